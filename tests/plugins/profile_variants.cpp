// SPDX-License-Identifier: Apache-2.0
// Naive under another profile (docs/contract.md section 10): right, but in another form, and one that only says so.
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/common/storage.h"
#include "kernels/naive/stages.h"
#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

template <class Visit>
void for_each_lse(const msabench_args* args, Visit visit) {
  const msabench_tensor* lse = tensor_at(args, MSABENCH_LSE);
  if (lse == nullptr) lse = tensor_at(args, MSABENCH_LSE_IDX);
  if (lse == nullptr) return;
  const std::int64_t rows = tensor_at(args, MSABENCH_KV_LENS) == nullptr ? lse->shape[0] : tokens(args);
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t head = 0; head < lse->shape[1]; ++head)
      visit(static_cast<float*>(lse->data)[row * lse->strides[0] + head * lse->strides[1]], row, head);
}

/// Memory that the second launch finds ready (rule R3).
std::vector<float>& kept_lse() {
  static thread_local std::vector<float> kept;
  return kept;
}

/// Of the last plan: a worker has one problem at a time.
std::int32_t& block_of_plan() {
  static std::int32_t block = 1;
  return block;
}
double& scale_of_plan() {
  static double scale = 1;
  return scale;
}

std::int64_t position_of(const msabench_args* args, std::int64_t row) {
  const auto* cu = static_cast<const std::int32_t*>(tensor_at(args, MSABENCH_CU_SEQLENS_Q)->data);
  const auto* lens = static_cast<const std::int32_t*>(tensor_at(args, MSABENCH_KV_LENS)->data);
  std::int64_t b = 0;
  while (cu[b + 1] <= row) ++b;
  return lens[b] - (cu[b + 1] - row);
}

struct row_output {
  const msabench_tensor* tensor;
  int row_axis;
};

/// ids and scores are outputs where the index branch runs, and of select the ids.
std::vector<row_output> outputs_of(const msabench_args* args) {
  const bool indexes = tensor_at(args, MSABENCH_Q_IDX) != nullptr, attends = tensor_at(args, MSABENCH_Q) != nullptr;
  std::vector<row_output> outputs;
  const auto add = [&](msabench_slot slot, int row_axis) {
    if (const msabench_tensor* t = tensor_at(args, slot)) outputs.push_back({t, row_axis});
  };
  for (const msabench_slot slot : {MSABENCH_OUT, MSABENCH_LSE, MSABENCH_LSE_IDX}) add(slot, 0);
  if (indexes || !attends) add(MSABENCH_IDS, 0);
  if (indexes) add(MSABENCH_SCORES, 1);
  return outputs;
}

void restore_row(const msabench_tensor& t, int row_axis, std::int64_t row, const std::vector<unsigned char>& before) {
  const std::int64_t element = t.dtype.bits / 8;
  std::int64_t index[3] = {};
  for (index[0] = 0; index[0] < t.shape[0]; ++index[0])
    for (index[1] = 0; index[1] < t.shape[1]; ++index[1]) {
      if (index[row_axis] != row) continue;
      const std::int64_t at = (index[0] * t.strides[0] + index[1] * t.strides[1]) * element;
      const std::int64_t run = t.rank == 3 ? t.shape[2] : 1;
      std::memcpy(static_cast<unsigned char*>(t.data) + at, before.data() + at,
                  static_cast<std::size_t>(run * element));
    }
}

msabench_status query_nan(const msabench_problem* problem, msabench_capability* out) {
  return answered(problem, out, [](msabench_profile& profile) { profile.nan_score = MSABENCH_NAN_PROPAGATE; });
}

msabench_status query_fused_only(const msabench_problem* problem, msabench_capability* out) {
  return problem->page_layout == 1 ? msabench_status{MSABENCH_UNSUPPORTED} : exact().query(problem, out);
}

float in_bf16(float x) {
  std::uint16_t stored = 0;
  kernels::store_row(&x, 1, kernels::bf16_type, &stored);
  kernels::load_row(&stored, kernels::bf16_type, 1, &x);
  return x;
}

void rotate_in_bf16(const float* cos_sin, std::int32_t rope_dims, std::int32_t, float* y) {
  const std::int32_t half = rope_dims / 2;
  for (std::int32_t c = 0; c < half; ++c) {
    const float cosine = in_bf16(cos_sin[c]), sine = in_bf16(cos_sin[half + c]), first = y[c], second = y[c + half];
    y[c] = in_bf16(first * cosine) - in_bf16(second * sine);
    y[c + half] = in_bf16(second * cosine) + in_bf16(first * sine);
  }
}

using profile_change = void (*)(msabench_profile&);

/// What `with_norm_rope` says: there is one plugin to a shared object.
profile_change& said_of_norm_rope() {
  static profile_change change = nullptr;
  return change;
}

const msabench_plugin* with_norm_rope(const msabench_host* host, const char* name, void (*change)(naive::stages&),
                                      profile_change say) {
  static naive::stages rounding = naive::exact_stages;
  change(rounding);
  said_of_norm_rope() = say;
  msabench_plugin* table = copy_of(host, name, rounding);
  if (table == nullptr) return nullptr;
  table->query = [](const msabench_problem* problem, msabench_capability* out) {
    return answered(problem, out, said_of_norm_rope());
  };
  table->plan = plan_as_naive;
  return table;
}

msabench_status query_base2(const msabench_problem* problem, msabench_capability* out) {
  return answered(problem, out, [](msabench_profile& profile) { profile.lse = MSABENCH_LSE_BASE2; });
}

}  // namespace

/// lse in base 2, and says so.
const msabench_plugin* emits_base2_lse(const msabench_host* host) {
  return changed(host, "emits_base2_lse", [](msabench_plugin& table) {
    table.query = query_base2;
    table.plan = plan_as_naive;
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      const msabench_status status = exact().run(plan, args, workspace, stream);
      for_each_lse(args, [](float& lse, std::int64_t, std::int64_t) {
        lse = static_cast<float>(static_cast<double>(lse) / std::log(2.0));
      });
      return status;
    };
  });
}

/// Says base 2, and emits natural logarithms.
const msabench_plugin* claims_base2_lse(const msabench_host* host) {
  return changed(host, "claims_base2_lse", [](msabench_plugin& table) {
    table.query = query_base2;
    table.plan = plan_as_naive;
  });
}

/// Emits no lse, and says so: the tensor stays as it was.
const msabench_plugin* emits_no_lse(const msabench_host* host) {
  return changed(host, "emits_no_lse", [](msabench_plugin& table) {
    table.query = [](const msabench_problem* problem, msabench_capability* out) {
      return answered(problem, out, [](msabench_profile& profile) { profile.lse = MSABENCH_LSE_NONE; });
    };
    table.plan = plan_as_naive;
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      auto& kept = kept_lse();
      kept.clear();
      for_each_lse(args, [&](float& lse, std::int64_t, std::int64_t) { kept.push_back(lse); });
      const msabench_status status = exact().run(plan, args, workspace, stream);
      std::size_t i = 0;
      for_each_lse(args, [&](float& lse, std::int64_t, std::int64_t) { std::memcpy(&lse, &kept[i++], sizeof lse); });
      return status;
    };
  });
}

/// Leaves empty rows as they were, says so, and promises equal bits all the same.
const msabench_plugin* leaves_empty_rows(const msabench_host* host) {
  return changed(host, "leaves_empty_rows", [](msabench_plugin& table) {
    table.query = [](const msabench_problem* problem, msabench_capability* out) {
      return answered(problem, out, [](msabench_profile& profile) {
        profile.empty_row = MSABENCH_EMPTY_UNDEFINED;
        profile.repeatable = 1;
      });
    };
    table.plan = plan_as_naive;
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      static thread_local std::vector<std::vector<unsigned char>> before;
      const auto outputs = outputs_of(args);
      before.resize(outputs.size());
      for (std::size_t i = 0; i < outputs.size(); ++i) {
        const auto* first = static_cast<const unsigned char*>(outputs[i].tensor->data);
        before[i].assign(first, first + extent_bytes(*outputs[i].tensor));
      }
      const msabench_status status = exact().run(plan, args, workspace, stream);
      for (std::int64_t row = 0; row < tokens(args) && status == MSABENCH_OK; ++row)
        for (std::size_t i = 0; i < outputs.size() && position_of(args, row) < 0; ++i)
          restore_row(*outputs[i].tensor, outputs[i].row_axis, row, before[i]);
      return status;
    };
  });
}

/// Block scores as bare dot products, a sentinel in the own block and nothing behind it, and says so.
const msabench_plugin* emits_raw_scores(const msabench_host* host) {
  return changed(host, "emits_raw_scores", [](msabench_plugin& table) {
    table.query = [](const msabench_problem* problem, msabench_capability* out) {
      return answered(problem, out, [](msabench_profile& profile) {
        profile.score_unit = MSABENCH_SCORE_RAW;
        profile.score_own = MSABENCH_SCORE_SENTINEL;
        profile.score_tail = MSABENCH_SCORE_UNWRITTEN;
      });
    };
    table.plan = [](const msabench_problem* problem, msabench_plan** plan) {
      block_of_plan() = problem->block;
      scale_of_plan() = problem->index_scale;
      return plan_as_naive(problem, plan);
    };
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      const msabench_status status = exact().run(plan, args, workspace, stream);
      const msabench_tensor* scores = tensor_at(args, MSABENCH_SCORES);
      if (status != MSABENCH_OK || scores == nullptr) return status;
      for (std::int64_t head = 0; head < scores->shape[0]; ++head)
        for (std::int64_t row = 0; row < tokens(args); ++row) {
          auto* line = static_cast<float*>(scores->data) + head * scores->strides[0] + row * scores->strides[1];
          const std::int64_t own = position_of(args, row) / block_of_plan();
          if (position_of(args, row) < 0) continue;
          for (std::int64_t b = 0; b < own; ++b)
            line[b] = static_cast<float>(static_cast<double>(line[b]) / scale_of_plan());
          line[own] = 1e30f;
        }
      return status;
    };
  });
}

/// Says bare dot products, and emits scaled scores.
const msabench_plugin* claims_raw_scores(const msabench_host* host) {
  return changed(host, "claims_raw_scores", [](msabench_plugin& table) {
    table.query = [](const msabench_problem* problem, msabench_capability* out) {
      return answered(problem, out, [](msabench_profile& profile) { profile.score_unit = MSABENCH_SCORE_RAW; });
    };
    table.plan = plan_as_naive;
  });
}

/// A NaN key makes its block's score NaN, and the profile says so.
const msabench_plugin* emits_nan_scores(const msabench_host* host) {
  static naive::stages nan_stages = naive::exact_stages;
  nan_stages.block_maximum = [](const float* query, float scale, const naive::tile& keys, float* scores) {
    const float maximum = naive::exact_stages.block_maximum(query, scale, keys, scores);
    for (std::int32_t i = 0; i < keys.count; ++i)
      if (std::isnan(scores[i])) return scores[i];
    return maximum;
  };
  msabench_plugin* table = copy_of(host, "emits_nan_scores", nan_stages);
  if (table == nullptr) return nullptr;
  table->query = query_nan;
  table->plan = plan_as_naive;
  return table;
}

/// Says that NaN propagates, and ignores the key.
const msabench_plugin* claims_nan_scores(const msabench_host* host) {
  return changed(host, "claims_nan_scores", [](msabench_plugin& table) {
    table.query = query_nan;
    table.plan = plan_as_naive;
  });
}

/// qk_norm_rope: rounds to bf16 between norm and rotation, and says so.
const msabench_plugin* declares_rounded_norm(const msabench_host* host) {
  return with_norm_rope(
      host, "declares_rounded_norm",
      [](naive::stages& s) {
        s.norm_head = [](const float* x, const float* weight, float eps, std::int32_t dim, float* y) {
          naive::exact_stages.norm_head(x, weight, eps, dim, y);
          for (std::int32_t c = 0; c < dim; ++c) y[c] = in_bf16(y[c]);
        };
      },
      [](msabench_profile& profile) { profile.round_after_norm = 1; });
}

/// qk_norm_rope: rotates by bf16 angles and rounds the products to bf16, and says so.
const msabench_plugin* declares_rotation_in_storage(const msabench_host* host) {
  return with_norm_rope(
      host, "declares_rotation_in_storage", [](naive::stages& s) { s.rotate_head = rotate_in_bf16; },
      [](msabench_profile& profile) { profile.rotate_in_storage = 1; });
}

/// The same, and does not say so.
const msabench_plugin* rotates_in_storage(const msabench_host* host) {
  return with_norm_rope(
      host, "rotates_in_storage", [](naive::stages& s) { s.rotate_head = rotate_in_bf16; }, [](msabench_profile&) {});
}

/// Takes caches whose pages hold K and V side by side only.
const msabench_plugin* takes_fused_pages(const msabench_host* host) {
  return changed(host, "takes_fused_pages", [](msabench_plugin& table) {
    table.query = query_fused_only;
    table.last_error = [] { return "page_layout: K and V in one page only; pass 2"; };
  });
}

/// Says the same, and reads each half as if it were packed.
const msabench_plugin* misreads_fused_pages(const msabench_host* host) {
  return changed(host, "misreads_fused_pages", [](msabench_plugin& table) {
    table.query = query_fused_only;
    table.last_error = [] { return "page_layout: K and V in one page only; pass 2"; };
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      changed_args packed(args);
      for (const msabench_slot slot : {MSABENCH_K, MSABENCH_V})
        if (auto* half = packed.change(slot); half != nullptr && half->tensor.rank == 4)
          for (int axis = 2; axis >= 0; --axis) half->strides[axis] = half->strides[axis + 1] * half->shape[axis + 1];
      return exact().run(plan, packed.get(), workspace, stream);
    };
  });
}

/// Takes caches that are addressed by slots only.
const msabench_plugin* takes_slots(const msabench_host* host) {
  return changed(host, "takes_slots", [](msabench_plugin& table) {
    table.query = [](const msabench_problem* problem, msabench_capability* out) {
      return problem->page_layout != 0 && problem->page_size != 1 ? msabench_status{MSABENCH_UNSUPPORTED}
                                                                  : exact().query(problem, out);
    };
    table.last_error = [] { return "page_size: slots only; pass 1"; };
  });
}

}  // namespace msabench::faults
