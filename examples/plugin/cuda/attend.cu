// SPDX-License-Identifier: Apache-2.0
//
// A plugin in CUDA: `attend` for bf16 and fp32, contiguous and paged (page_layout 1), any sizes, fp32 arithmetic, one thread
// block for a row and query head. It is there to be read: it shows what a plugin on a device does (pointers are device
// pointers, all work goes to the stream that run is given, nothing waits), not how to be fast.
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <msabench/plugin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <new>
#include <string>

struct msabench_plan {
  msabench_problem problem;
};

namespace {

constexpr msabench_dtype bf16{4, 16, 1}, fp32{2, 32, 1}, int32{0, 32, 1};
constexpr int threads = 128;

bool same(msabench_dtype a, msabench_dtype b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }

// What the kernel needs of a problem and its tensors; strides in elements.
struct call {
  const void *q, *k, *v;
  const std::int32_t *starts, *kv_lens, *places, *ids;  // places: cu_seqlens_kv, or the block table
  void* out;
  float* lse;  // null: not wanted
  std::int64_t q_row, q_head, out_row, out_head, lse_row, lse_head, ids_row, ids_head, places_row;
  std::int64_t kv_page, kv_head, kv_token;  // contiguous: kv_page is not used, kv_token is a token's
  std::int64_t v_page, v_head, v_token;
  std::int32_t batch, hq, group, d, block, topk, page_size;
  float scale;
};

__device__ float widen(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ float widen(float x) { return x; }
__device__ void store(__nv_bfloat16* to, float x) { *to = __float2bfloat16_rn(x); }
__device__ void store(float* to, float x) { *to = x; }

// Of all threads, the same for each.
template <class Op>
__device__ float reduce(float value, Op op, float* shared) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (int half = threads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] = op(shared[threadIdx.x], shared[threadIdx.x + half]);
    __syncthreads();
  }
  const float result = shared[0];
  __syncthreads();  // before the next use of `shared`
  return result;
}

template <class T>
__global__ void attend(call c) {
  const int head = blockIdx.x, kv_head = head / c.group;
  const std::int64_t row = blockIdx.y;
  if (row >= c.starts[c.batch]) return;  // R4: the grid has the bound's rows
  int b = 0;
  while (row >= c.starts[b + 1]) ++b;
  const std::int64_t pos = c.kv_lens[b] - (c.starts[b + 1] - row);
  const T* q = static_cast<const T*>(c.q) + row * c.q_row + head * c.q_head;

  extern __shared__ float memory[];
  float *const shared = memory, *const weights = memory + threads;  // [threads], [block]

  // In 64 bits: page numbers and offsets pass 2^31.
  const auto token = [&](std::int64_t j, std::int64_t page_stride, std::int64_t head_stride,
                         std::int64_t token_stride) {
    if (c.page_size == 0) return (c.places[b] + j) * token_stride + kv_head * head_stride;
    const std::int64_t page = c.places[b * c.places_row + j / c.page_size];
    return page * page_stride + kv_head * head_stride + j % c.page_size * token_stride;
  };
  const auto score = [&](std::int64_t j) {
    const T* k = static_cast<const T*>(c.k) + token(j, c.kv_page, c.kv_head, c.kv_token);
    float sum = 0;
    for (int i = 0; i < c.d; ++i) sum = fmaf(widen(q[i]), widen(k[i]), sum);
    return sum * c.scale;
  };
  const std::int32_t* ids = c.ids + row * c.ids_row + kv_head * c.ids_head;
  const auto visible = [&](int slot, std::int64_t& first) {
    first = std::int64_t{ids[slot]} * c.block;
    return ids[slot] < 0 ? 0 : static_cast<int>(min(std::int64_t{c.block}, pos + 1 - first));
  };

  float greatest = -INFINITY;
  for (int slot = 0; slot < c.topk; ++slot) {
    std::int64_t first;
    const int count = visible(slot, first);
    for (int i = threadIdx.x; i < count; i += threads) greatest = fmaxf(greatest, score(first + i));
  }
  greatest = reduce(greatest, [](float x, float y) { return fmaxf(x, y); }, shared);

  float weight = 0;
  constexpr int most_channels = 4;  // of a thread
  float total[most_channels] = {};
  for (int slot = 0; slot < c.topk; ++slot) {
    std::int64_t first;
    const int count = visible(slot, first);
    if (count <= 0) continue;
    float sum = 0;
    for (int i = threadIdx.x; i < count; i += threads) {
      weights[i] = expf(score(first + i) - greatest);
      sum += weights[i];
    }
    // It also waits for the weights of the other threads.
    weight += reduce(sum, [](float x, float y) { return x + y; }, shared);
    for (int n = 0; n < most_channels; ++n) {
      const int channel = threadIdx.x + n * threads;
      if (channel >= c.d) break;
      float partial = 0;
      for (int i = 0; i < count; ++i) {
        const T* v = static_cast<const T*>(c.v) + token(first + i, c.v_page, c.v_head, c.v_token);
        partial = fmaf(weights[i], widen(v[channel]), partial);
      }
      total[n] += partial;
    }
    __syncthreads();  // before weights are written again
  }

  // A row without keys is 0, its lse -infinity.
  for (int n = 0; n < most_channels; ++n) {
    const int channel = threadIdx.x + n * threads;
    if (channel >= c.d) break;
    store(static_cast<T*>(c.out) + row * c.out_row + head * c.out_head + channel, weight > 0 ? total[n] / weight : 0);
  }
  if (c.lse != nullptr && threadIdx.x == 0) {
    const double log_weight = log(static_cast<double>(weight));
    c.lse[row * c.lse_row + head * c.lse_head] = weight > 0 ? static_cast<float>(greatest + log_weight) : -INFINITY;
  }
}

// Host side: every entry point is a call of guarded, and what is refused is thrown.
struct refusal {
  msabench_status status;
  const char* text;
};
thread_local std::string error_text;

void require(bool met, msabench_status otherwise, const char* text) {
  if (!met) throw refusal{otherwise, text};
}
void valid(bool met, const char* text) { require(met, MSABENCH_INVALID_PROBLEM, text); }
void supported(bool met, const char* text) { require(met, MSABENCH_UNSUPPORTED, text); }

template <class Body>
msabench_status guarded(Body body) noexcept {
  error_text.clear();
  try {
    body();
    return MSABENCH_OK;
  } catch (const refusal& refused) {
    error_text = refused.text;
    return refused.status;
  } catch (const std::bad_alloc&) {
    return MSABENCH_NO_RESOURCES;
  }
}

// A host of another version may have a shorter or a longer struct than this one.
template <class T>
T read(const T* given) {
  T own{};
  std::memcpy(static_cast<void*>(&own), given, std::min<std::size_t>(given->struct_size, sizeof own));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof own; i < given->struct_size; ++i)
    supported(bytes[i] == 0, "struct_size: a field of a later version is set; pass 0");
  return own;
}

// R9: query and plan agree, so both come here.
msabench_problem checked(const msabench_problem* given) {
  const msabench_problem p = read(given);
  supported(p.op == MSABENCH_OP_ATTEND, "op: only attend (4) is here; ask for that");
  supported(p.reserved == 0, "reserved: unknown; pass 0");
  valid(p.topk > 0 && p.block > 0 && p.d > 0 && p.hkv > 0 && p.hq > 0, "topk, block, d, hkv, hq: must be at least 1");
  valid(p.hq % p.hkv == 0, "hq: no multiple of hkv; correct it");
  valid(p.local_blocks >= 0 && p.init_blocks >= 0 && p.local_blocks <= p.topk - p.init_blocks,
        "topk: does not hold local_blocks and init_blocks; correct them");
  supported(p.d <= 4 * threads, "d: more than 512 channels are not here");
  supported(p.block <= 8192, "block: more than 8192 keys do not fit into shared memory");
  supported(p.total_q <= 65535, "total_q: more than 65535 rows are not here");
  supported(p.page_layout == 0 || p.page_layout == 1, "page_layout: only 0 and 1 are here");
  valid(p.page_layout == 0 ? p.page_size == 0 : p.page_size > 0, "page_size: does not fit page_layout; correct it");
  supported(same(p.q, bf16) || same(p.q, fp32), "q: neither bf16 nor fp32; use one of them");
  supported(same(p.q, p.kv) && same(p.q, p.out), "kv: q, kv and out are one type here; use that of q");
  valid(std::isfinite(p.softmax_scale), "softmax_scale: not finite; correct it");
  supported(p.kv_scale == 0, "kv_scale: no scaled types here; pass 0");
  supported(p.splits == 0, "splits: rows are not split here; pass 0");
  supported(p.profile.in_id_form == MSABENCH_FORM_EXACT || p.profile.in_id_form == MSABENCH_FORM_SHORT,
            "profile.in_id_form: ids must be distinct; ask for 0 or 1");
  return p;
}

// What only the tensors show (R9); nothing is enqueued before all of it has passed (R8).
struct tensors {
  const msabench_problem& p;
  msabench_args args;

  const msabench_tensor* find(msabench_slot slot) const { return slot < args.slot_count ? args.slot[slot] : nullptr; }
  const msabench_tensor& get(msabench_slot slot, msabench_dtype type, std::initializer_list<std::int64_t> shape) const {
    const msabench_tensor* t = find(slot);
    valid(t != nullptr, "a tensor that attend needs is absent; pass it");
    valid(same(t->dtype, type), "dtype of a tensor: not the problem's; convert it");
    valid(t->rank == static_cast<std::int32_t>(shape.size()), "rank of a tensor: not the operator's; reshape it");
    bool empty = false;
    for (std::int32_t axis = 0; axis < t->rank; ++axis) {
      const std::int64_t size = shape.begin()[axis];
      valid(size < 0 || t->shape[axis] == size, "shape of a tensor: not the problem's; correct it");
      empty = empty || t->shape[axis] == 0;
    }
    valid(empty || t->data != nullptr, "a tensor that is not empty has data NULL; pass its memory");
    supported(empty || t->strides[t->rank - 1] == 1, "strides: the innermost must be 1; copy it");
    return *t;
  }
};

call call_of(const msabench_problem& p, const msabench_args* given, std::int64_t& rows) {
  const tensors in{p, read(given)};
  constexpr std::int64_t any = -1;
  const msabench_tensor& kv_lens = in.get(MSABENCH_KV_LENS, int32, {any});
  const std::int64_t batch = kv_lens.shape[0];
  const msabench_tensor& q = in.get(MSABENCH_Q, p.q, {any, p.hq, p.d});
  rows = q.shape[0];
  const msabench_tensor& ids = in.get(MSABENCH_IDS, int32, {rows, p.hkv, p.topk});
  const msabench_tensor& out = in.get(MSABENCH_OUT, p.out, {rows, p.hq, p.d});
  const bool paged = p.page_layout == 1;
  const msabench_tensor& places =
      paged ? in.get(MSABENCH_BLOCK_TABLE, int32, {batch, any}) : in.get(MSABENCH_CU_SEQLENS_KV, int32, {batch + 1});
  const auto cache = [&](msabench_slot slot) -> const msabench_tensor& {
    return paged ? in.get(slot, p.kv, {any, p.hkv, p.page_size, p.d}) : in.get(slot, p.kv, {any, p.hkv, p.d});
  };
  const msabench_tensor &k = cache(MSABENCH_K), &v = cache(MSABENCH_V);

  call c{};
  c.q = q.data, c.k = k.data, c.v = v.data;
  c.starts = static_cast<const std::int32_t*>(in.get(MSABENCH_CU_SEQLENS_Q, int32, {batch + 1}).data);
  c.kv_lens = static_cast<const std::int32_t*>(kv_lens.data);
  c.places = static_cast<const std::int32_t*>(places.data);
  c.ids = static_cast<const std::int32_t*>(ids.data);
  c.out = out.data;
  c.q_row = q.strides[0], c.q_head = q.strides[1];
  c.out_row = out.strides[0], c.out_head = out.strides[1];
  c.ids_row = ids.strides[0], c.ids_head = ids.strides[1];
  c.places_row = places.strides[0];
  if (in.find(MSABENCH_LSE) != nullptr) {
    const msabench_tensor& lse = in.get(MSABENCH_LSE, fp32, {rows, p.hq});
    c.lse = static_cast<float*>(lse.data);
    c.lse_row = lse.strides[0], c.lse_head = lse.strides[1];
  }
  c.kv_page = paged ? k.strides[0] : 0, c.kv_head = k.strides[1], c.kv_token = paged ? k.strides[2] : k.strides[0];
  c.v_page = paged ? v.strides[0] : 0, c.v_head = v.strides[1], c.v_token = paged ? v.strides[2] : v.strides[0];
  c.batch = static_cast<std::int32_t>(batch);
  c.hq = p.hq, c.group = p.hq / p.hkv, c.d = p.d, c.block = p.block, c.topk = p.topk, c.page_size = p.page_size;
  c.scale = static_cast<float>(p.softmax_scale != 0 ? p.softmax_scale : 1 / std::sqrt(static_cast<double>(p.d)));
  return c;
}

msabench_status query(const msabench_problem* given, msabench_capability* out) {
  return guarded([=] {
    const msabench_problem p = checked(given);
    msabench_capability answer{};
    answer.struct_size = out->struct_size;
    msabench_numerics& n = answer.numerics;
    n.struct_size = sizeof n;
    n.operand = n.v_operand = n.out_store = p.q;
    n.score_acc = n.score_store = n.p_operand = n.pv_acc = n.partial_store = n.ds_operand = fp32;
    n.chain_out = n.chain_row_sum = static_cast<std::uint32_t>(p.block) + static_cast<std::uint32_t>(p.topk);
    n.exp_rel_error = 0x1p-21f;  // expf is within 2 ulp, the difference of scores adds to it
    answer.profile.struct_size = sizeof answer.profile;
    answer.profile.in_id_form = p.profile.in_id_form;
    answer.profile.repeatable = answer.profile.batch_invariant = answer.profile.graph_safe = 1;
    std::memcpy(static_cast<void*>(out), &answer, std::min<std::size_t>(out->struct_size, sizeof answer));
  });
}

msabench_status plan(const msabench_problem* given, msabench_plan** out) {
  return guarded([=] { *out = new msabench_plan{checked(given)}; });
}

msabench_status workspace(const msabench_plan*, std::uint64_t* bytes, std::uint32_t* alignment) {
  *bytes = 0;
  *alignment = 1;
  return MSABENCH_OK;
}

msabench_status run(msabench_plan* plan, const msabench_args* args, void*, void* stream) {
  return guarded([=] {
    const msabench_problem& p = plan->problem;
    std::int64_t rows = 0;
    const call c = call_of(p, args, rows);
    if (rows == 0 || c.batch == 0) return;
    const dim3 grid(static_cast<unsigned>(p.hq), static_cast<unsigned>(rows));
    const std::size_t shared_bytes = sizeof(float) * (threads + static_cast<std::size_t>(p.block));
    const auto on = static_cast<cudaStream_t>(stream);
    if (same(p.q, fp32))
      attend<float><<<grid, threads, shared_bytes, on>>>(c);
    else
      attend<__nv_bfloat16><<<grid, threads, shared_bytes, on>>>(c);
    const cudaError_t launched = cudaGetLastError();
    require(launched == cudaSuccess, MSABENCH_DEVICE_ERROR, cudaGetErrorString(launched));
  });
}

void destroy(msabench_plan* plan) { delete plan; }

const char* last_error() { return error_text.c_str(); }

constexpr msabench_plugin table{sizeof(msabench_plugin),
                                MSABENCH_ABI_MAJOR,
                                MSABENCH_ABI_MINOR,
                                0,
                                "example-cuda",
                                "1.0",
                                "attend in CUDA",
                                query,
                                plan,
                                workspace,
                                run,
                                destroy,
                                last_error};

}  // namespace

const msabench_plugin* msabench_plugin_get(const msabench_host* host) {
  return host->device.type == 2 ? &table : nullptr;  // nullptr: this does not run there
}
