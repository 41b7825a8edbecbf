// SPDX-License-Identifier: Apache-2.0
// The kernels of decode, and how they follow each other: each may begin while the one before it runs.
#include "kernels/cuda_sm90/decode.h"

#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/common/declare.h"
#include "kernels/cuda/scoring.h"
#include "kernels/cuda_sm90/decode_attention.cuh"
#include "kernels/cuda_sm90/score_stream.cuh"

namespace msabench::cuda_sm90 {
namespace {

constexpr int stream_bytes = 16 * 1024;  // of keys that are on their way to a warp
constexpr int most_rows = 64;            // of a sequence
constexpr int select_threads = 256;

/// Rows of a run: a token tensor may have more than there can be tokens.
std::int64_t rows_of(const lengths& rows, const msabench_problem& p) {
  return std::min(rows.row_bound, p.total_q) * p.hkv;
}

bool attends(const msabench_problem& p) { return p.op == MSABENCH_OP_ATTEND || p.op == MSABENCH_OP_MSA; }
bool indexes(const msabench_problem& p) { return p.op == MSABENCH_OP_INDEX || p.op == MSABENCH_OP_MSA; }

/// Whether a sequence is attended to while the next ones are scored.
bool overlaps_sequences(const msabench_problem& p) { return p.op == MSABENCH_OP_MSA && p.batch > 1; }

/// 1 << this thread blocks are a row's cluster: at least two, since there is no sending without a cluster, and as many as
/// there are blocks of keys for. But only so many that all rows' thread blocks are on the device at once, two on each of
/// its multiprocessors; or that those of a sequence are done before the next one is scored.
int span_places(const msabench_problem& p) {
  constexpr std::int64_t most_blocks = 2 * 132;
  const std::int64_t rows = p.total_q * p.hkv;
  const std::int64_t hidden = overlaps_sequences(p) ? max_blocks(p) / 8 / (p.max_q_len * p.hkv) : 0;
  int places = decode_attention_shape<__nv_bfloat16>::most_places;
  while (places > 1 && ((rows << places > most_blocks && 1 << places > hidden) || 1 << (places - 1) >= p.topk))
    --places;
  return places;
}

/// At the beginning of scratch; scores follow.
std::int64_t counter_bytes(const msabench_problem& p) { return cuda::ceil_div((1 + p.batch) * 4, 256) * 256; }

/// Scores have rows of whole vectors.
std::int64_t score_columns(const msabench_problem& p) { return cuda::ceil_div(max_blocks(p), 4) * 4; }

/// [heads][T][score_columns]
double score_count(const msabench_problem& p) {
  return static_cast<double>(p.total_q) * p.hkv * static_cast<double>(score_columns(p));
}

struct launch_shape {
  std::int64_t blocks;
  unsigned threads;
  std::size_t shared;
  unsigned cluster;  ///< thread blocks of a cluster
  bool overlaps;     ///< begins while the kernel before it runs, which has to be one of these
};

template <class Call>
void launch(void (*kernel)(Call), const launch_shape& shape, const run_context& context, const Call& call) {
  cuda::allow_shared_memory(kernel, shape.shared);
  // A multiprocessor divides its memory anew only when it is idle, and the next kernel's thread blocks are to come
  // before.
  cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
  constexpr unsigned portable_cluster = 8;
  if (shape.cluster > portable_cluster) cudaFuncSetAttribute(kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
  cudaLaunchAttribute attributes[2] = {};
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(shape.blocks));
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared;
  config.stream = static_cast<cudaStream_t>(context.stream);
  config.attrs = attributes;
  if (shape.cluster > 1) {
    cudaLaunchAttribute& size = attributes[config.numAttrs++];
    size.id = cudaLaunchAttributeClusterDimension;
    size.val.clusterDim.x = shape.cluster;
    size.val.clusterDim.y = size.val.clusterDim.z = 1;
  }
  if (shape.overlaps) {
    cudaLaunchAttribute& overlap = attributes[config.numAttrs++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  cudaLaunchKernelEx(&config, kernel, call);
}

/// use(T{}) with the C++ type of a 16-bit type.
template <class Use>
void with_type(msabench_dtype type, const Use& use) {
  if (same_type(type, bf16_type))
    use(__nv_bfloat16{});
  else
    use(__half{});
}

__global__ void clear_counters(std::uint32_t* counters, std::int64_t count) {
  cuda::let_next_begin();
  for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) counters[i] = 0;
}

/// use(T{}) with the C++ type of an operand of the index branch.
template <class Use>
void with_index_type(msabench_dtype type, const Use& use) {
  if (same_type(type, e4m3_type))
    use(__nv_fp8_e4m3{});
  else
    with_type(type, use);
}

/// Returns where scores that are there are counted, if they are.
template <class S>
const std::uint32_t* launch_stream(score_stream_call call, const run_context& context) {
  const std::int64_t blocks = call.index.rows.batch * call.index.max_blocks;
  const std::int64_t grid = std::min<std::int64_t>(cuda::multiprocessors(), blocks);
  const bool hands_out = call.handed != nullptr && blocks > S::first_blocks * S::warps * grid;
  if (hands_out) {
    const std::int64_t count = call.done == nullptr ? 1 : 1 + call.index.rows.batch;
    clear_counters<<<1, 128, 0, static_cast<cudaStream_t>(context.stream)>>>(call.handed, count);
  } else {
    call.handed = call.done = nullptr;
  }
  launch(stream_scores<S>, {grid, S::threads, sizeof(typename S::memory), 1, hands_out}, context, call);
  return call.done;
}

struct started_scores {
  select_call select;         ///< where they are for whoever selects from them
  const std::uint32_t* done;  ///< as decode_attention_call
};

/// Scores, where the caller wants them or in scratch.
started_scores start_scores(const index_call& call, const run_context& context) {
  const msabench_problem& p = context.problem;
  const bool wanted = call.scores != nullptr;
  const std::int64_t row_stride = wanted ? call.score_row_stride : score_columns(p);
  const std::int64_t head_stride = wanted ? call.score_head_stride : p.total_q * row_stride;
  auto* const counters = static_cast<std::uint32_t*>(context.scratch);
  float* const scores =
      wanted ? call.scores : reinterpret_cast<float*>(static_cast<char*>(context.scratch) + counter_bytes(p));
  const int page_blocks = p.page_layout == 0 ? 1 : p.page_size / decode_block;
  const score_stream_call stream{call,   scores,      head_stride, row_stride,
                                 wanted, page_blocks, counters,    overlaps_sequences(p) ? counters + 1 : nullptr};
  const std::uint32_t* done = nullptr;
  const std::int64_t rows = p.max_q_len * p.hi;
  if (call.max_blocks > 0)
    with_index_type(call.q_type, [&](auto value) {
      using T = decltype(value);
      constexpr int stages = stream_bytes / (32 * 128 * sizeof(T));
      if (rows <= 8)
        done = launch_stream<stream_shape<T, 1, stages>>(stream, context);
      else if (rows <= 16)
        done = launch_stream<stream_shape<T, 2, stages>>(stream, context);
      else if (rows <= 32)
        done = launch_stream<stream_shape<T, 4, stages>>(stream, context);
      else
        done = launch_stream<stream_shape<T, 8, stages>>(stream, context);
    });
  // Whoever selects may read whole vectors in scratch.
  const std::int64_t columns = wanted ? call.max_blocks : row_stride;
  return {{call.rows, call.rule, call.heads, columns, scores, head_stride, row_stride, call.ids, call.id_row_stride,
           call.id_head_stride},
          done};
}

__global__ void __launch_bounds__(select_threads) select_few(const __grid_constant__ select_call c) {
  __shared__ row_selection<select_threads> selection;
  __shared__ alignas(16) float room[row_selection<select_threads>::step];
  cuda::let_next_begin();
  const std::int64_t row = blockIdx.x / c.heads, head = blockIdx.x % c.heads;
  row_place place{};
  const bool there = place_row(c.rows, row, place);
  cuda::wait_for_previous();
  if (!there) return;
  const std::int64_t visible = min(visible_blocks(place, decode_block), c.max_blocks);
  selection.rank(c.rule, visible, c.scores + head * c.score_head_stride + row * c.score_row_stride, c.max_blocks, room);
  selection.take([](int) { return 0; }, [](int, int, int) {});
  if (threadIdx.x < 32) selection.write(c.rule, visible, c.ids + row * c.id_row_stride + head * c.id_head_stride);
}

void start_selection(const select_call& call, const run_context& context) {
  launch(select_few, {rows_of(call.rows, context.problem), select_threads, 0, 1, call.max_blocks > 0}, context, call);
}

/// `follows`: a kernel of this run.
void start_attention(const attend_call& call, const started_scores& scores, bool follows, const run_context& context) {
  const int places = span_places(context.problem), spans = 1 << places;
  // Scoring as many blocks takes longer than a rehearsal.
  constexpr std::int64_t least_blocks = 512;
  const bool rehearses = follows && context.problem.batch == 1 && max_blocks(context.problem) >= least_blocks;
  const auto start = [&](auto shape) {
    using S = decltype(shape);
    const int tiles = call.topk > spans && !S::is_e4m3 ? 2 : 1;
    launch(attend_few<S>,
           {rows_of(call.rows, context.problem) * spans, S::threads, S::shared_bytes(tiles),
            static_cast<unsigned>(spans), follows},
           context, decode_attention_call{call, places, scores.select, scores.done, rehearses});
  };
  if (same_type(call.keys.type, e4m3_type))
    start(decode_attention_shape<__nv_bfloat16, __nv_fp8_e4m3>{});
  else
    with_type(call.q_type, [&](auto value) { start(decode_attention_shape<decltype(value)>{}); });
}

bool has_rows(const lengths& rows) { return rows.batch > 0 && rows.row_bound > 0; }

bool is_16_bit(msabench_dtype type) { return same_type(type, bf16_type) || same_type(type, fp16_type); }

}  // namespace

bool decodes_rows_alone(const msabench_problem& p) {
  if (!attends(p) && !indexes(p)) return false;
  if (p.block != decode_block || p.topk > cuda::most_selected || p.hkv > most_rows) return false;
  if (p.page_layout != 0 && p.page_size % decode_block != 0) return false;
  // Weights times the scales of values would not fit into fp16.
  const bool is_stored =
      same_type(p.kv, p.q) ? p.kv_scale == 0 : same_type(p.kv, e4m3_type) && same_type(p.q, bf16_type);
  if (attends(p) && (p.d != 128 || p.hq / p.hkv > 16 || !is_16_bit(p.q) || !is_stored)) return false;
  const bool is_indexed = is_16_bit(p.q_idx) ? p.idx_scale == 0 : same_type(p.q_idx, e4m3_type);
  return !indexes(p) || (p.di == 128 && same_type(p.k_idx, p.q_idx) && is_indexed);
}

bool takes_decode(const msabench_problem& p) {
  if (!decodes_rows_alone(p) || p.max_q_len * p.hkv > most_rows) return false;
  // Scores are in memory, and blocks of all sequences and rows are counted in 32 bits.
  constexpr double most_score_bytes = 128.0 * (1 << 20), most_count = 1 << 30;
  const double blocks = static_cast<double>(max_blocks(p));
  return score_count(p) * sizeof(float) <= most_score_bytes && static_cast<double>(p.batch) * blocks <= most_count &&
         static_cast<double>(p.total_q) * p.hkv <= most_count / 16;
}

void decode_index(const index_call& call, const run_context& context) {
  if (!has_rows(call.rows)) return;
  start_selection(start_scores(call, context).select, context);
  if (call.lse != nullptr) cuda::log_sums_of_selected(call, static_cast<cudaStream_t>(context.stream));
}

void decode_attend(const attend_call& call, const run_context& context) {
  if (has_rows(call.rows)) start_attention(call, {}, false, context);
}

void decode_msa(const msa_call& call, const run_context& context) {
  if (!has_rows(call.attend.rows)) return;
  start_attention(call.attend, start_scores(call.index, context), call.index.max_blocks > 0, context);
}

double decode_scratch_bytes(const msabench_problem& p) {
  return p.op == MSABENCH_OP_ATTEND ? 0 : static_cast<double>(counter_bytes(p)) + score_count(p) * sizeof(float);
}

msabench_numerics decode_numerics(const msabench_problem& p) {
  msabench_numerics declared = attends(p) ? fp32_numerics(p) : cuda::index_numerics(p);
  if (!attends(p)) return declared;
  declared.p_operand = p.q;
  declared.exp_rel_error = 0x1p-21f;  // ex2.approx: 2^-22, and its argument is rounded
  const std::int64_t keys = std::max<std::int64_t>(block_capacity(p), 1) * decode_block;
  const std::int64_t spans = std::int64_t{1} << span_places(p), share = cuda::ceil_div(p.topk, spans);
  // A lane adds four keys of a block and rescales what it has; then four lanes, eight warps and the spans are added up.
  // A weight may have been multiplied by the scale of its value.
  declared.chain_row_sum = static_cast<std::uint32_t>(std::min(5 * share + 2 + 3 + 2 * spans, keys));
  declared.chain_out = static_cast<std::uint32_t>(std::min((decode_block + 1) * share + 2 * spans + 1, keys));
  return declared;
}

}  // namespace msabench::cuda_sm90
