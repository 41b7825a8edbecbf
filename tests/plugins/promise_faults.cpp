// SPDX-License-Identifier: Apache-2.0
// Promises that are not kept: results within every limit, in other bits than the profile says.
#include <algorithm>
#include <atomic>

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
