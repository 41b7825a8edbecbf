// SPDX-License-Identifier: Apache-2.0
// Ids in other orders and layouts (docs/contract.md section 10): plugins that have them as their profile says, and ones
// that only say so.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <utility>

#include "kernels/naive/select.h"
#include "kernels/naive/stages.h"
#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

using namespace naive;

using say = void (*)(msabench_profile&);

/// There is one plugin to a shared object.
say& said() {
  static say change = nullptr;
  return change;
}

/// naive over `stage`, under the profile that `change` says.
msabench_plugin* saying(const msabench_host* host, const char* name, const stages& stage, say change) {
  said() = change;
  msabench_plugin* table = copy_of(host, name, stage);
  if (table == nullptr) return nullptr;
  table->query = [](const msabench_problem* problem, msabench_capability* out) {
    return answered(problem, out, said());
  };
  table->plan = plan_as_naive;
  return table;
}

using order_change = void (*)(const selection_rule& rule, const row_place& place, const float* scores,
                              std::int32_t* ids, std::int32_t count);

order_change& order_of_ids() {
  static order_change change = nullptr;
  return change;
}

/// naive's selection in another order, and msa from there on.
const stages& selecting(order_change change) {
  static const stages ordered = [] {
    stages s = exact_stages;
    s.select_row = [](const selection_rule& rule, const row_place& place, const float* scores, std::int32_t* candidates,
                      std::int32_t* ids) {
      exact_stages.select_row(rule, place, scores, candidates, ids);
      const auto count = static_cast<std::int32_t>(std::find(ids, ids + rule.topk, -1) - ids);
      order_of_ids()(rule, place, scores, ids, count);
    };
    return s;
  }();
  order_of_ids() = change;
  return ordered;
}

void by_score(const selection_rule&, const row_place&, const float* scores, std::int32_t* ids, std::int32_t count) {
  std::stable_sort(ids, ids + count,
                   [=](std::int32_t a, std::int32_t b) { return rank_score(scores[a]) > rank_score(scores[b]); });
}

void descending(const selection_rule&, const row_place&, const float*, std::int32_t* ids, std::int32_t count) {
  std::reverse(ids, ids + count);
}

void own_last(const selection_rule& rule, const row_place& place, const float*, std::int32_t* ids, std::int32_t count) {
  const bool has_own = count > 0 && ids[count - 1] + 1 == visible_blocks(place, rule.block);
  std::reverse(ids, ids + count - (has_own ? 1 : 0));
}

/// Both ways: what it is handed, and what it returns.
void any_order(msabench_profile& profile) { profile.in_id_order = profile.out_id_order = MSABENCH_ORDER_ANY; }
void score_order(msabench_profile& profile) { profile.in_id_order = profile.out_id_order = MSABENCH_ORDER_SCORE; }
void local_last(msabench_profile& profile) { profile.in_id_order = profile.out_id_order = MSABENCH_ORDER_LOCAL_LAST; }
void heads_first(msabench_profile& profile) { profile.in_id_layout = profile.out_id_layout = MSABENCH_LAYOUT_HTK; }

constexpr int coarse_levels = 64;

/// Of a row that is at work, whichever thread and plan it is of. thread_local memory would come with a thread's first row: that may
/// be in a later launch, against rule R3.
class row_memory {
 public:
  static constexpr int most_blocks = 1 << 16;

  row_memory() {
    while (taken_[at_].exchange(true)) at_ = (at_ + 1) % most_rows;
  }
  ~row_memory() { taken_[at_] = false; }
  row_memory(const row_memory&) = delete;
  row_memory& operator=(const row_memory&) = delete;

  float* blocks() const { return blocks_[at_]; }

 private:
  static constexpr int most_rows = 64;  // at once; others wait
  static inline std::atomic<bool> taken_[most_rows];
  static inline float blocks_[most_rows][most_blocks];
  int at_ = 0;
};

/// Ranks on steps over the range of the blocks that are not forced.
void select_coarsely(const selection_rule& rule, const row_place& place, const float* scores, std::int32_t* candidates,
                     std::int32_t* ids) {
  const std::int64_t visible = visible_blocks(place, rule.block);
  float low = INFINITY, high = -INFINITY;
  for (std::int64_t b = 0; b < visible; ++b) {
    if (is_forced(rule, visible, b) || !std::isfinite(scores[b])) continue;
    low = std::min(low, scores[b]);
    high = std::max(high, scores[b]);
  }
  if (visible > row_memory::most_blocks) std::abort();
  const row_memory memory;
  float* const quantised = memory.blocks();
  for (std::int64_t b = 0; b < visible; ++b) {
    const float s = scores[b];
    quantised[b] = high > low && std::isfinite(s) ? std::floor((s - low) / (high - low) * coarse_levels) : s;
  }
  exact_stages.select_row(rule, place, quantised, candidates, ids);
}

const stages& ranking_coarsely() {
  static const stages coarse = [] {
    stages s = exact_stages;
    s.select_row = select_coarsely;
    return s;
  }();
  return coarse;
}

}  // namespace

/// Ids [H,T,k] in and out, and says so.
const msabench_plugin* ids_by_head(const msabench_host* host) {
  msabench_plugin* table = saying(host, "ids_by_head", exact_stages, heads_first);
  if (table == nullptr) return nullptr;
  table->run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    changed_args by_token(args);
    if (auto* ids = by_token.change(MSABENCH_IDS)) {
      std::swap(ids->shape[0], ids->shape[1]);
      std::swap(ids->strides[0], ids->strides[1]);
    }
    return exact().run(plan, by_token.get(), workspace, stream);
  };
  return table;
}

/// Says [H,T,k], and reads and writes the memory as [T,H,k].
const msabench_plugin* claims_ids_by_head(const msabench_host* host) {
  msabench_plugin* table = saying(host, "claims_ids_by_head", exact_stages, heads_first);
  if (table == nullptr) return nullptr;
  table->run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    changed_args by_token(args);
    if (auto* ids = by_token.change(MSABENCH_IDS)) {
      std::swap(ids->shape[0], ids->shape[1]);
      ids->strides[1] = ids->shape[2];
      ids->strides[0] = ids->shape[1] * ids->shape[2];
    }
    return exact().run(plan, by_token.get(), workspace, stream);
  };
  return table;
}

/// Takes ids in any order, and returns them from the last to the first.
const msabench_plugin* ids_in_any_order(const msabench_host* host) {
  return saying(host, "ids_in_any_order", selecting(descending), any_order);
}

/// Says that it takes any order, and stops at the first id that is lower than the one before.
const msabench_plugin* claims_any_order(const msabench_host* host) {
  static const stages ascending_only = [] {
    stages s = exact_stages;
    s.row_blocks = [](const row_place& place, const std::int32_t* ids, std::int32_t topk, std::int32_t block_size,
                      std::int32_t* blocks, std::int32_t capacity) {
      const std::int32_t* const end = std::is_sorted_until(ids, std::find(ids, ids + topk, -1));
      return exact_stages.row_blocks(place, ids, static_cast<std::int32_t>(end - ids), block_size, blocks, capacity);
    };
    return s;
  }();
  return saying(host, "claims_any_order", ascending_only, any_order);
}

/// Takes ids by score, and returns them so.
const msabench_plugin* ids_by_score(const msabench_host* host) {
  return saying(host, "ids_by_score", selecting(by_score), score_order);
}

/// Says by score, and returns them ascending.
const msabench_plugin* claims_ids_by_score(const msabench_host* host) {
  return saying(host, "claims_ids_by_score", exact_stages, score_order);
}

/// Takes ids with the own block last, and returns them so, the others from the last to the first.
const msabench_plugin* own_block_last(const msabench_host* host) {
  return saying(host, "own_block_last", selecting(own_last), local_last);
}

/// Says that the own block stands last, and puts it first.
const msabench_plugin* claims_own_block_last(const msabench_host* host) {
  return saying(host, "claims_own_block_last", selecting(descending), local_last);
}

/// msa keeps its ids to itself.
const msabench_plugin* hides_ids(const msabench_host* host) {
  return saying(host, "hides_ids", exact_stages,
                [](msabench_profile& profile) { profile.out_id_order = MSABENCH_ORDER_NONE; });
}

/// Ranks on 64 steps, and says so.
const msabench_plugin* ranks_coarsely(const msabench_host* host) {
  return saying(host, "ranks_coarsely", ranking_coarsely(), [](msabench_profile& profile) {
    profile.rank_step = 1.0f / coarse_levels;
    profile.ties_low_id = 0;
  });
}

/// Ranks on 64 steps, and says 65 535.
const msabench_plugin* claims_fine_ranks(const msabench_host* host) {
  return saying(host, "claims_fine_ranks", ranking_coarsely(), [](msabench_profile& profile) {
    profile.rank_step = 1.0f / 65535;
    profile.ties_low_id = 0;
  });
}

}  // namespace msabench::faults
