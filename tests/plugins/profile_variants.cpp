// SPDX-License-Identifier: Apache-2.0
// Naive under another profile (docs/contract.md section 10): right, but in another form, and one that only says so.
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/naive/stages.h"
#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

/// Naive's own profile back where it looks at it.
msabench_status plan_as_naive(const msabench_problem* problem, msabench_plan** plan) {
  msabench_problem own = *problem;
  own.profile.lse = MSABENCH_LSE_NATURAL;
  own.profile.empty_row = MSABENCH_EMPTY_ZERO;
  own.profile.score_unit = MSABENCH_SCORE_SCALED;
  own.profile.score_own = own.profile.score_tail = MSABENCH_SCORE_VALUE;
  own.profile.nan_score = MSABENCH_NAN_IGNORE;
  return exact().plan(&own, plan);
}

template <class Answer>
msabench_status answered(const msabench_problem* problem, msabench_capability* out, Answer answer) {
  const msabench_status status = exact().query(problem, out);
  if (status == MSABENCH_OK) answer(out->profile);
  return status;
}

template <class Visit>
void for_each_lse(const msabench_args* args, Visit visit) {
  const msabench_tensor* lse = tensor_at(args, MSABENCH_LSE);
  if (lse == nullptr) return;
  for (std::int64_t row = 0; row < tokens(args); ++row)
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
      const msabench_tensor* lse = tensor_at(args, MSABENCH_LSE);
      const msabench_tensor& out = output_of(args);
      const std::size_t bytes = extent_bytes(out);
      static thread_local std::vector<unsigned char> out_before;
      out_before.resize(bytes);
      if (bytes > 0) std::memcpy(out_before.data(), out.data, bytes);
      auto& lse_before = kept_lse();
      lse_before.clear();
      for_each_lse(args, [&](float& x, std::int64_t, std::int64_t) { lse_before.push_back(x); });
      const msabench_status status = exact().run(plan, args, workspace, stream);
      if (status != MSABENCH_OK || lse == nullptr) return status;
      std::size_t i = 0;
      for_each_lse(args, [&](float& x, std::int64_t row, std::int64_t head) {
        const float before = lse_before[i++];
        if (!std::isinf(x)) return;
        std::memcpy(&x, &before, sizeof x);
        const std::int64_t element = out.dtype.bits / 8, at = (row * out.strides[0] + head * out.strides[1]) * element;
        std::memcpy(static_cast<unsigned char*>(out.data) + at, out_before.data() + at,
                    static_cast<std::size_t>(out.shape[2] * element));
      });
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
  table->query = [](const msabench_problem* problem, msabench_capability* out) {
    return answered(problem, out, [](msabench_profile& profile) { profile.nan_score = MSABENCH_NAN_PROPAGATE; });
  };
  table->plan = plan_as_naive;
  return table;
}

}  // namespace msabench::faults
