// SPDX-License-Identifier: Apache-2.0
// Promises that are not kept: results within every limit, in other bits than the profile says.
#include <algorithm>
#include <atomic>
#include <map>
#include <vector>

#include "kernels/naive/stages.h"
#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

using namespace naive;

/// Whether the launch under way adds up a row's blocks from the last one to the first.
std::atomic<bool>& backwards() {
  static std::atomic<bool> flag{false};
  return flag;
}

void in_the_order_due(std::int32_t* blocks, std::int32_t count) {
  if (backwards()) std::reverse(blocks, blocks + count);
}

const stages& either_order() {
  static const stages both = [] {
    stages s = exact_stages;
    s.row_blocks = [](const row_place& place, const std::int32_t* ids, std::int32_t topk, std::int32_t block_size,
                      std::int32_t* blocks, std::int32_t capacity) {
      const std::int32_t count = exact_stages.row_blocks(place, ids, topk, block_size, blocks, capacity);
      in_the_order_due(blocks, count);
      return count;
    };
    s.all_blocks = [](const row_place& place, std::int32_t block_size, std::int32_t* blocks, std::int32_t capacity) {
      const std::int32_t count = exact_stages.all_blocks(place, block_size, blocks, capacity);
      in_the_order_due(blocks, count);
      return count;
    };
    return s;
  }();
  return both;
}

/// Of the last plan: a worker has one problem at a time.
std::atomic<std::int32_t>& splits_of_plan() {
  static std::atomic<std::int32_t> splits{0};
  return splits;
}

/// naive takes the hint only where it follows it.
msabench_problem without_splits(const msabench_problem& problem) {
  msabench_problem own = problem;
  if (own.op != MSABENCH_OP_COMBINE) own.splits = 0;
  own.profile.split_invariant = 0;
  return own;
}

msabench_plugin* takes_splits(const msabench_host* host, const char* name) {
  msabench_plugin* table = copy_of(host, name, either_order());
  if (table == nullptr) return nullptr;
  table->query = [](const msabench_problem* problem, msabench_capability* out) {
    const msabench_problem own = without_splits(*problem);
    const msabench_status status = exact().query(&own, out);
    if (status == MSABENCH_OK) out->profile.split_invariant = 1;
    return status;
  };
  table->plan = [](const msabench_problem* problem, msabench_plan** plan) {
    const msabench_problem own = without_splits(*problem);
    splits_of_plan() = problem->splits;
    return exact().plan(&own, plan);
  };
  return table;
}

using say = void (*)(msabench_profile&);

/// There is one plugin to a shared object.
say& said() {
  static say change = nullptr;
  return change;
}

msabench_plugin* promising(const msabench_host* host, const char* name, say change) {
  said() = change;
  msabench_plugin* table = copy_of_naive(host, name);
  if (table == nullptr) return nullptr;
  table->query = [](const msabench_problem* problem, msabench_capability* out) {
    return answered(problem, out, said());
  };
  table->plan = plan_as_naive;
  return table;
}

using tensor_contents = std::map<msabench_slot, std::vector<unsigned char>>;

std::map<const msabench_plan*, tensor_contents>& kept_contents() {
  static std::map<const msabench_plan*, tensor_contents> kept;
  return kept;
}
tensor_contents& contents_of(const msabench_plan* plan) { return kept_contents()[plan]; }

/// Ids are an input of attend alone.
bool attends_to(const msabench_args* args, msabench_slot slot) {
  return tensor_at(args, MSABENCH_Q) != nullptr && (slot != MSABENCH_IDS || tensor_at(args, MSABENCH_Q_IDX) == nullptr);
}

/// Lengths ascend, no sequence has more queries than keys (but for padding), and the pages of its keys are in the pool.
bool sound(const msabench_args* args) {
  const msabench_tensor* lens = tensor_at(args, MSABENCH_KV_LENS);
  if (lens == nullptr) return true;
  const auto* ends = static_cast<const std::int32_t*>(tensor_at(args, MSABENCH_CU_SEQLENS_Q)->data);
  const auto* keys = static_cast<const std::int32_t*>(lens->data);
  for (std::int64_t b = 0; b < lens->shape[0]; ++b)
    if (ends[b + 1] < ends[b] || keys[b] < 0) return false;
  const struct {
    msabench_slot table, keys;
    int tokens;
  } caches[] = {{MSABENCH_BLOCK_TABLE, MSABENCH_K, 2}, {MSABENCH_BLOCK_TABLE_IDX, MSABENCH_K_IDX, 1}};
  for (const auto& cache : caches) {
    const msabench_tensor* table = tensor_at(args, cache.table);
    if (table == nullptr) continue;
    const msabench_tensor& pages = *tensor_at(args, cache.keys);
    for (std::int64_t b = 0; b < lens->shape[0]; ++b)
      for (std::int64_t column = 0; column * pages.shape[cache.tokens] < keys[b]; ++column) {
        const std::int32_t page = static_cast<const std::int32_t*>(table->data)[b * table->strides[0] + column];
        if (page < 0 || page >= pages.shape[0]) return false;
      }
  }
  return true;
}

}  // namespace

/// attend, dense, msa: blocks are added up in another order where a call has more than one row.
const msabench_plugin* breaks_batch_invariance(const msabench_host* host) {
  msabench_plugin* table = copy_of(host, "breaks_batch_invariance", either_order());
  if (table == nullptr) return nullptr;
  table->run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    backwards() = tensor_at(args, MSABENCH_Q) != nullptr && tokens(args) > 1;
    return exact().run(plan, args, workspace, stream);
  };
  return table;
}

/// attend, dense, msa: blocks are added up in another order where more than one split is asked for.
const msabench_plugin* breaks_split_invariance(const msabench_host* host) {
  msabench_plugin* table = takes_splits(host, "breaks_split_invariance");
  if (table == nullptr) return nullptr;
  table->run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    backwards() = splits_of_plan() > 1;
    return exact().run(plan, args, workspace, stream);
  };
  return table;
}

/// Right: takes any number of splits, and its bits do not depend on it.
const msabench_plugin* keeps_split_invariance(const msabench_host* host) {
  return takes_splits(host, "keeps_split_invariance");
}

/// naive as it is, and says that its plans may be replayed.
const msabench_plugin* replays_plans(const msabench_host* host) {
  return promising(host, "replays_plans", [](msabench_profile& profile) { profile.graph_safe = 1; });
}

/// Says the same, and keeps the block tables and ids that the first full launch of a plan has.
const msabench_plugin* keeps_tables(const msabench_host* host) {
  msabench_plugin* table = promising(host, "keeps_tables", [](msabench_profile& profile) { profile.graph_safe = 1; });
  if (table == nullptr) return nullptr;
  table->run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    changed_args first(args);
    for (const msabench_slot slot : {MSABENCH_BLOCK_TABLE, MSABENCH_IDS})
      if (auto* kept = attends_to(args, slot) ? first.change(slot) : nullptr) {
        const auto* data = static_cast<const unsigned char*>(kept->tensor.data);
        const auto found = contents_of(plan).try_emplace(slot, data, data + extent_bytes(kept->tensor)).first;
        kept->tensor.data = found->second.data();
      }
    return exact().run(plan, first.get(), workspace, stream);
  };
  table->destroy = [](msabench_plan* plan) {
    kept_contents().erase(plan);
    exact().destroy(plan);
  };
  return table;
}

/// Looks at lengths, tables and ids before it uses them, and says so.
const msabench_plugin* looks_at_contents(const msabench_host* host) {
  msabench_plugin* table =
      promising(host, "looks_at_contents", [](msabench_profile& profile) { profile.hardened = 1; });
  if (table == nullptr) return nullptr;
  table->run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    return sound(args) ? exact().run(plan, args, workspace, stream) : msabench_status{MSABENCH_INVALID_PROBLEM};
  };
  table->last_error = [] { return "lengths or block tables: not sound; correct them"; };
  return table;
}

/// Says the same, and looks at nothing.
const msabench_plugin* looks_at_nothing(const msabench_host* host) {
  return promising(host, "looks_at_nothing", [](msabench_profile& profile) { profile.hardened = 1; });
}

/// attend, dense, msa: every other launch adds up blocks in another order.
const msabench_plugin* breaks_repeatability(const msabench_host* host) {
  msabench_plugin* table = copy_of(host, "breaks_repeatability", either_order());
  if (table == nullptr) return nullptr;
  table->run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    static std::atomic<int> launches{0};
    backwards() = launches++ % 2 == 1;
    return exact().run(plan, args, workspace, stream);
  };
  return table;
}

}  // namespace msabench::faults
