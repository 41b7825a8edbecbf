// SPDX-License-Identifier: Apache-2.0
// The kernels of decode, and how they follow each other: each may begin while the one before it runs.
#include "kernels/cuda_sm90/decode.h"

#include <cuda_fp8.h>

#include <algorithm>

#include "kernels/common/check.h"
#include "kernels/common/declare.h"
#include "kernels/cuda/scoring.h"
#include "kernels/cuda_sm90/decode_attention.cuh"
#include "kernels/cuda_sm90/score_stream.cuh"

namespace msabench::cuda_sm90 {
namespace {

constexpr int stream_warps = 8, ring_bytes = 16 * 1024;  // of a warp
constexpr int most_rows = 64;                            // of a sequence
constexpr int select_threads = 256;

/// Rows of a run: a token tensor may have more than there can be tokens.
std::int64_t rows_of(const lengths& rows, const msabench_problem& p) {
  return std::min(rows.row_bound, p.total_q) * p.hkv;
}

/// Thread blocks of the attention that have room beside those that score, one on each multiprocessor.
constexpr std::int64_t most_resident = 132;

/// 1 << this thread blocks are a row's cluster: so many that those of all rows have room at once, as far as there are
/// blocks of keys for them, and two, which have half the way each, unless there are rows enough without.
int span_places(const msabench_problem& p) {
  const std::int64_t rows = p.total_q * p.hkv;
  if (rows >= 2 * most_resident) return 0;
  int places = decode_attention_shape<__nv_bfloat16>::most_places;
  while (places > 1 && (rows << places > most_resident || 1 << (places - 1) >= p.topk)) --places;
  return places;
}

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

template <class S>
void launch_stream(const score_stream_call& call, const run_context& context) {
  const std::int64_t blocks = call.index.rows.batch * call.index.max_blocks;
  const std::int64_t grid = std::min<std::int64_t>(cuda::multiprocessors(), blocks);
  launch(stream_scores<S>, {grid, S::threads, sizeof(typename S::memory), 1, false}, context, call);
}

template <class T, bool scales_keys>
void launch_stream(const score_stream_call& call, std::int64_t rows, const run_context& context) {
  if (rows <= 8)
    launch_stream<stream_shape<T, 1, stream_warps, ring_bytes, scales_keys>>(call, context);
  else if (rows <= 16)
    launch_stream<stream_shape<T, 2, stream_warps, ring_bytes, scales_keys>>(call, context);
  else if (rows <= 32)
    launch_stream<stream_shape<T, 4, stream_warps, ring_bytes, scales_keys>>(call, context);
  else
    launch_stream<stream_shape<T, 8, stream_warps, ring_bytes, scales_keys>>(call, context);
}

/// Scores, where the caller wants them or in scratch. Returns where they are for whoever selects from them.
select_call start_scores(const index_call& call, const run_context& context) {
  const msabench_problem& p = context.problem;
  const bool wanted = call.scores != nullptr;
  const std::int64_t row_stride = wanted ? call.score_row_stride : score_columns(p);
  const std::int64_t head_stride = wanted ? call.score_head_stride : p.total_q * row_stride;
  float* const scores = wanted ? call.scores : static_cast<float*>(context.scratch);
  const score_stream_call stream{call, scores, head_stride, row_stride, wanted};
  const std::int64_t rows = p.max_q_len * p.hi;
  if (call.max_blocks > 0) {
    const kernels::scales& factors = call.keys.scale;
    if (!same_type(call.q_type, e4m3_type))
      with_type(call.q_type, [&](auto value) { launch_stream<decltype(value), false>(stream, rows, context); });
    else if (factors.data != nullptr && factors.token_stride != 0)
      launch_stream<__nv_fp8_e4m3, true>(stream, rows, context);
    else
      launch_stream<__nv_fp8_e4m3, false>(stream, rows, context);
  }
  // Whoever selects may read whole vectors in scratch.
  const std::int64_t columns = wanted ? call.max_blocks : row_stride;
  return {call.rows, call.rule,          call.heads,         columns, scores, head_stride, row_stride,
          call.ids,  call.id_row_stride, call.id_head_stride};
}

__global__ void __launch_bounds__(select_threads) select_few(const __grid_constant__ select_call c) {
  __shared__ row_selection<select_threads> selection;
  cuda::let_next_begin();
  const std::int64_t row = blockIdx.x / c.heads, head = blockIdx.x % c.heads;
  row_place place{};
  const bool there = place_row(c.rows, row, place);
  cuda::wait_for_previous();
  if (!there) return;
  const std::int64_t visible = min(visible_blocks(place, decode_block), c.max_blocks);
  selection.choose(c.rule, visible, c.scores + head * c.score_head_stride + row * c.score_row_stride, c.max_blocks,
                   [](std::int32_t) { return 0; });
  if (threadIdx.x < 32) selection.write_ids(c.rule, visible, c.ids + row * c.id_row_stride + head * c.id_head_stride);
}

void start_selection(const select_call& call, const run_context& context) {
  launch(select_few, {rows_of(call.rows, context.problem), select_threads, 0, 1, call.max_blocks > 0}, context, call);
}

/// `follows`: a kernel of this run.
void start_attention(const attend_call& call, const select_call& select, bool follows, const run_context& context) {
  const int places = span_places(context.problem), spans = 1 << places;
  // Of more thread blocks than that they would not have room there until they are needed.
  const int ahead = context.problem.total_q * context.problem.hkv * spans <= most_resident ? 3 : 0;
  with_type(call.q_type, [&](auto value) {
    using S = decode_attention_shape<decltype(value)>;
    const int tiles = call.topk > spans ? 2 : 1;
    launch(attend_few<S>,
           {rows_of(call.rows, context.problem) * spans, S::threads, S::shared_bytes(tiles),
            static_cast<unsigned>(spans), follows},
           context, decode_attention_call{call, places, ahead, select});
  });
}

bool has_rows(const lengths& rows) { return rows.batch > 0 && rows.row_bound > 0; }

bool is_16_bit(msabench_dtype type) { return same_type(type, bf16_type) || same_type(type, fp16_type); }

bool attends(const msabench_problem& p) { return p.op == MSABENCH_OP_ATTEND || p.op == MSABENCH_OP_MSA; }
bool indexes(const msabench_problem& p) { return p.op == MSABENCH_OP_INDEX || p.op == MSABENCH_OP_MSA; }

}  // namespace

bool decodes_rows_alone(const msabench_problem& p) {
  if (!attends(p) && !indexes(p)) return false;
  if (p.block != decode_block || p.topk > cuda::most_selected || p.hkv > most_rows) return false;
  if (p.page_layout != 0 && p.page_size % decode_block != 0) return false;
  if (attends(p) && (p.d != 128 || p.hq / p.hkv > 16 || !is_16_bit(p.q) || !is_16_bit(p.kv) || p.kv_scale != 0))
    return false;
  const bool is_e4m3 = same_type(p.q_idx, e4m3_type) && same_type(p.k_idx, e4m3_type);
  const bool has_index_types = is_e4m3 || (is_16_bit(p.q_idx) && is_16_bit(p.k_idx) && p.idx_scale == 0);
  return !indexes(p) || (p.di == 128 && has_index_types);
}

bool takes_decode(const msabench_problem& p) {
  if (!decodes_rows_alone(p) || p.max_q_len * p.hkv > most_rows) return false;
  // Scores are in memory, and blocks of all sequences, keys and rows are counted in 32 bits.
  constexpr double most_score_bytes = 128.0 * (1 << 20), most_count = 1 << 30;
  const double blocks = static_cast<double>(max_blocks(p));
  return score_count(p) * sizeof(float) <= most_score_bytes && static_cast<double>(p.batch) * blocks <= most_count &&
         static_cast<double>(p.max_kv_len) <= most_count && static_cast<double>(p.total_q) * p.hkv <= most_count / 16;
}

void decode_index(const index_call& call, const run_context& context) {
  if (!has_rows(call.rows)) return;
  start_selection(start_scores(call, context), context);
  if (call.lse != nullptr) cuda::log_sums_of_selected(call, static_cast<cudaStream_t>(context.stream));
}

void decode_attend(const attend_call& call, const run_context& context) {
  if (has_rows(call.rows)) start_attention(call, {}, false, context);
}

void decode_msa(const msa_call& call, const run_context& context) {
  if (!has_rows(call.attend.rows)) return;
  const select_call select = start_scores(call.index, context);
  start_attention(call.attend, select, call.index.max_blocks > 0, context);
}

double decode_scratch_bytes(const msabench_problem& p) {
  return p.op == MSABENCH_OP_ATTEND ? 0 : score_count(p) * sizeof(float);
}

msabench_numerics decode_numerics(const msabench_problem& p) {
  if (!attends(p)) return cuda::index_numerics(p);
  msabench_numerics declared = fp32_numerics(p);
  declared.p_operand = p.kv;
  declared.exp_rel_error = 0x1p-21f;  // ex2.approx: 2^-22, and its argument is rounded
  const std::int64_t keys = std::max<std::int64_t>(block_capacity(p), 1) * decode_block;
  const std::int64_t spans = std::int64_t{1} << span_places(p), share = cuda::ceil_div(p.topk, spans);
  // A lane adds four keys of a block and rescales what it has; then four lanes, eight warps and the spans are added up.
  declared.chain_row_sum = static_cast<std::uint32_t>(std::min(5 * share + 2 + 3 + 2 * spans, keys));
  declared.chain_out = static_cast<std::uint32_t>(std::min((decode_block + 1) * share + 2 * spans, keys));
  return declared;
}

}  // namespace msabench::cuda_sm90
