// SPDX-License-Identifier: Apache-2.0
//
// A plugin in C++: `attend` for bf16 and fp32, contiguous and paged (page_layout 1), any sizes, one thread, fp32
// arithmetic. Beside the C one it shows three habits: views instead of raw tensors, refusals as exceptions that never
// leave the plugin (rule R6), and partial sums per block, which let it declare a shorter chain of additions.
#include <msabench/plugin.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <limits>
#include <new>
#include <string>

struct msabench_plan {
  msabench_problem problem;
};

namespace {

constexpr msabench_dtype bf16{4, 16, 1}, fp32{2, 32, 1}, int32{0, 32, 1};
constexpr float infinity = std::numeric_limits<float>::infinity();

bool same(msabench_dtype a, msabench_dtype b) { return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes; }

struct refusal {
  msabench_status status;
  std::string text;
};

thread_local std::string error_text;

void append(std::string& text, const char* part) { text += part; }
void append(std::string& text, std::int64_t part) { text += std::to_string(part); }

// A text is put together only where it is needed: run may not allocate on its way to a result (R3).
template <class... Parts>
void require(bool met, msabench_status otherwise, const Parts&... parts) {
  if (met) return;
  refusal refused{otherwise, {}};
  (append(refused.text, parts), ...);
  throw refused;
}

template <class... Parts>
void valid(bool met, const Parts&... parts) {
  require(met, MSABENCH_INVALID_PROBLEM, parts...);
}

template <class... Parts>
void supported(bool met, const Parts&... parts) {
  require(met, MSABENCH_UNSUPPORTED, parts...);
}

// Every entry point is a call of this: whatever is thrown inside becomes a status and a text.
template <class Body>
msabench_status guarded(Body body) noexcept {
  error_text.clear();
  try {
    body();
    return MSABENCH_OK;
  } catch (refusal& refused) {
    error_text.swap(refused.text);
    return refused.status;
  } catch (const std::bad_alloc&) {
    return MSABENCH_NO_RESOURCES;
  } catch (const std::exception&) {
    return MSABENCH_INTERNAL;
  }
}

// A host of another version may have a shorter or a longer struct than this one.
template <class T>
T read(const T* given) {
  T own{};
  std::memcpy(static_cast<void*>(&own), given, std::min<std::size_t>(given->struct_size, sizeof own));
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  for (std::size_t i = sizeof own; i < given->struct_size; ++i) {
    supported(bytes[i] == 0, "struct_size: a field of a later version is set; pass 0");
  }
  return own;
}

// R9: query and plan agree, so both come here.
msabench_problem checked(const msabench_problem* given) {
  const msabench_problem p = read(given);
  const auto positive = [](const char* field, std::int64_t value) {
    valid(value > 0, field, " ", value, ": must be at least 1; correct it");
  };
  supported(p.op == MSABENCH_OP_ATTEND, "op ", p.op, ": only attend (4) is here; ask for that");
  supported(p.reserved == 0, "reserved ", p.reserved, ": unknown; pass 0");
  positive("topk", p.topk);
  positive("block", p.block);
  positive("d", p.d);
  positive("hkv", p.hkv);
  positive("hq", p.hq);
  valid(p.hq % p.hkv == 0, "hq ", p.hq, ": no multiple of hkv; correct it");
  valid(p.local_blocks >= 0 && p.init_blocks >= 0 && p.local_blocks <= p.topk - p.init_blocks, "topk ", p.topk,
        ": does not hold local_blocks and init_blocks; correct them");
  supported(p.page_layout == 0 || p.page_layout == 1, "page_layout ", p.page_layout, ": not here; use 0 or 1");
  valid(p.page_layout == 0 ? p.page_size == 0 : p.page_size > 0, "page_size ", p.page_size,
        ": does not fit page_layout; correct it");
  supported(same(p.q, bf16) || same(p.q, fp32), "q: neither bf16 nor fp32; use one of them");
  supported(same(p.q, p.kv) && same(p.q, p.out), "kv: q, kv and out are one type here; use that of q");
  valid(std::isfinite(p.softmax_scale), "softmax_scale: not finite; correct it");
  supported(p.kv_scale == 0, "kv_scale ", p.kv_scale, ": no scaled types here; pass 0");
  supported(p.splits == 0, "splits ", p.splits, ": rows are not split here; pass 0");
  supported(p.profile.in_id_form == MSABENCH_FORM_EXACT || p.profile.in_id_form == MSABENCH_FORM_SHORT,
            "profile.in_id_form ", p.profile.in_id_form, ": ids must be distinct; ask for 0 or 1");
  return p;
}

// A tensor as the kernel reads it: elements are floats, whatever they are stored as.
struct view {
  msabench_tensor t;

  std::int64_t offset(std::int64_t i, std::int64_t j) const { return i * t.strides[0] + j * t.strides[1]; }
  const std::int32_t* ints() const { return static_cast<const std::int32_t*>(t.data); }
  float load(std::int64_t at) const {
    if (same(t.dtype, fp32)) return static_cast<const float*>(t.data)[at];
    return std::bit_cast<float>(std::uint32_t{static_cast<const std::uint16_t*>(t.data)[at]} << 16);
  }
  void store(std::int64_t at, float value) const {
    if (same(t.dtype, fp32)) {
      static_cast<float*>(t.data)[at] = value;
      return;
    }
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t nearest = std::isnan(value) ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    static_cast<std::uint16_t*>(t.data)[at] = static_cast<std::uint16_t>(nearest);
  }
};

// One run. The constructor checks what only the tensors show (R9), so that nothing is written before a refusal (R8).
class attend {
 public:
  attend(const msabench_problem& problem, const msabench_args* given) : p(problem), args(read(given)) {
    kv_lens = tensor(MSABENCH_KV_LENS, "kv_lens", int32, {any});
    batch = kv_lens.t.shape[0];
    starts = tensor(MSABENCH_CU_SEQLENS_Q, "cu_seqlens_q", int32, {batch + 1});
    q = tensor(MSABENCH_Q, "q", p.q, {any, p.hq, p.d});
    const std::int64_t rows = q.t.shape[0];
    ids = tensor(MSABENCH_IDS, "ids", int32, {rows, p.hkv, p.topk});
    out = tensor(MSABENCH_OUT, "out", p.out, {rows, p.hq, p.d});
    wants_lse = present(MSABENCH_LSE);
    if (wants_lse) lse = tensor(MSABENCH_LSE, "lse", fp32, {rows, p.hq});
    if (p.page_layout == 0) {
      places = tensor(MSABENCH_CU_SEQLENS_KV, "cu_seqlens_kv", int32, {batch + 1});
      k = tensor(MSABENCH_K, "k", p.kv, {any, p.hkv, p.d});
      v = tensor(MSABENCH_V, "v", p.kv, {any, p.hkv, p.d});
    } else {
      places = tensor(MSABENCH_BLOCK_TABLE, "block_table", int32, {batch, any});
      k = tensor(MSABENCH_K, "k", p.kv, {any, p.hkv, p.page_size, p.d});
      v = tensor(MSABENCH_V, "v", p.kv, {any, p.hkv, p.page_size, p.d});
    }
  }

  // R4: how many tokens there are, and where, is read now. `sums` is [2][d].
  void operator()(float* sums) const {
    for (std::int64_t b = 0; b < batch; ++b) {
      const std::int64_t first = starts.ints()[b], end = starts.ints()[b + 1], length = kv_lens.ints()[b];
      for (std::int64_t row = first; row < end; ++row) {
        for (std::int32_t head = 0; head < p.hq; ++head) attend_row(b, row, length - (end - row), head, sums);
      }
    }
  }

 private:
  static constexpr std::int64_t any = -1;

  bool present(msabench_slot slot) const { return slot < args.slot_count && args.slot[slot] != nullptr; }

  view tensor(msabench_slot slot, const char* name, msabench_dtype type,
              std::initializer_list<std::int64_t> shape) const {
    valid(present(slot), name, " absent: attend needs it; pass it");
    const msabench_tensor& t = *args.slot[slot];
    valid(same(t.dtype, type), name, ".dtype: not the problem's; convert it");
    valid(t.rank == static_cast<std::int32_t>(shape.size()), name, ".rank: not the operator's; reshape it");
    bool empty = false;
    for (std::int32_t axis = 0; axis < t.rank; ++axis) {
      const std::int64_t size = shape.begin()[axis];
      valid(size == any || t.shape[axis] == size, name, ".shape: not the problem's; correct it");
      empty = empty || t.shape[axis] == 0;
    }
    valid(empty || t.data != nullptr, name, ".data null: not empty; pass its memory");
    supported(empty || t.strides[t.rank - 1] == 1, name, ".strides: the innermost must be 1; copy it");
    return {t};
  }

  // Element of key or value j of sequence b.
  std::int64_t token(const view& kv, std::int64_t b, std::int32_t head, std::int64_t j) const {
    if (p.page_layout == 0) return kv.offset(places.ints()[b] + j, head);
    const std::int64_t page = places.ints()[b * places.t.strides[0] + j / p.page_size];
    return kv.offset(page, head) + j % p.page_size * kv.t.strides[2];
  }

  float score(std::int64_t b, std::int64_t row, std::int32_t head, std::int64_t j) const {
    const std::int64_t q_at = q.offset(row, head), k_at = token(k, b, head / (p.hq / p.hkv), j);
    float sum = 0;
    for (std::int32_t c = 0; c < p.d; ++c) sum += q.load(q_at + c) * k.load(k_at + c);
    const double scale = p.softmax_scale != 0 ? p.softmax_scale : 1 / std::sqrt(static_cast<double>(p.d));
    return sum * static_cast<float>(scale);
  }

  // The keys of the row's blocks that it sees, block by block.
  template <class Visit>
  void for_each_block(std::int64_t row, std::int32_t kv_head, std::int64_t pos, Visit visit) const {
    const std::int32_t* blocks = ids.ints() + ids.offset(row, kv_head);
    for (std::int32_t slot = 0; slot < p.topk; ++slot) {
      const std::int64_t first = std::int64_t{blocks[slot]} * p.block;
      if (blocks[slot] >= 0 && first <= pos) visit(first, std::min(first + p.block, pos + 1));
    }
  }

  void attend_row(std::int64_t b, std::int64_t row, std::int64_t pos, std::int32_t head, float* sums) const {
    const std::int32_t kv_head = head / (p.hq / p.hkv);
    float *total = sums, *partial = sums + p.d;
    float maximum = -infinity, weight = 0;
    for_each_block(row, kv_head, pos, [&](std::int64_t first, std::int64_t end) {
      for (std::int64_t j = first; j < end; ++j) maximum = std::max(maximum, score(b, row, head, j));
    });
    std::fill_n(total, p.d, 0.0f);
    for_each_block(row, kv_head, pos, [&](std::int64_t first, std::int64_t end) {
      float partial_weight = 0;
      std::fill_n(partial, p.d, 0.0f);
      for (std::int64_t j = first; j < end; ++j) {
        const float e = std::exp(score(b, row, head, j) - maximum);
        const std::int64_t v_at = token(v, b, kv_head, j);
        for (std::int32_t c = 0; c < p.d; ++c) partial[c] += e * v.load(v_at + c);
        partial_weight += e;
      }
      for (std::int32_t c = 0; c < p.d; ++c) total[c] += partial[c];
      weight += partial_weight;
    });
    // A row without keys is 0, its lse -infinity.
    const std::int64_t out_at = out.offset(row, head);
    for (std::int32_t c = 0; c < p.d; ++c) out.store(out_at + c, weight > 0 ? total[c] / weight : 0);
    const double log_weight = std::log(static_cast<double>(weight));
    if (wants_lse) lse.store(lse.offset(row, head), weight > 0 ? static_cast<float>(maximum + log_weight) : -infinity);
  }

  const msabench_problem& p;
  msabench_args args;
  std::int64_t batch = 0;
  bool wants_lse = false;
  view q, k, v, ids, out, lse, starts, kv_lens, places;
};

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
    answer.profile.struct_size = sizeof answer.profile;
    answer.profile.in_id_form = p.profile.in_id_form;
    answer.profile.repeatable = answer.profile.batch_invariant = 1;
    std::memcpy(static_cast<void*>(out), &answer, std::min<std::size_t>(out->struct_size, sizeof answer));
  });
}

msabench_status plan(const msabench_problem* given, msabench_plan** out) {
  return guarded([=] { *out = new msabench_plan{checked(given)}; });
}

msabench_status workspace(const msabench_plan* plan, std::uint64_t* bytes, std::uint32_t* alignment) {
  return guarded([=] {
    *bytes = 2 * sizeof(float) * static_cast<std::uint64_t>(plan->problem.d);
    *alignment = alignof(float);
  });
}

msabench_status run(msabench_plan* plan, const msabench_args* args, void* scratch, void*) {
  return guarded([=] { attend(plan->problem, args)(static_cast<float*>(scratch)); });
}

void destroy(msabench_plan* plan) { delete plan; }

const char* last_error() { return error_text.c_str(); }

constexpr msabench_plugin table{sizeof(msabench_plugin),
                                MSABENCH_ABI_MAJOR,
                                MSABENCH_ABI_MINOR,
                                0,
                                "example-cpp",
                                "1.0",
                                "attend in C++",
                                query,
                                plan,
                                workspace,
                                run,
                                destroy,
                                last_error};

}  // namespace

const msabench_plugin* msabench_plugin_get(const msabench_host* host) {
  return host->device.type == 1 ? &table : nullptr;  // nullptr: this does not run there
}
