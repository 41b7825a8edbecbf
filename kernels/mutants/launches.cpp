// SPDX-License-Identifier: Apache-2.0
// Faults that lie between launches: what is kept from one to the next, read too early, or written elsewhere. On a CPU they
// have the form that the explanation says: a counter, a kept copy, a read before the write.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <map>
#include <mutex>
#include <vector>

#include "kernels/common/lengths.h"
#include "kernels/mutants/mutant.h"

namespace msabench::mutants {
namespace {

using bytes = std::vector<unsigned char>;

/// What is kept for each plan; two plans may run at the same time.
struct kept_of_plan {
  int launches = 0;
  std::map<msabench_slot, bytes> contents;
};

std::mutex& lock() {
  static std::mutex mutex;
  return mutex;
}

std::map<const msabench_plan*, kept_of_plan>& all_kept() {
  static std::map<const msabench_plan*, kept_of_plan> kept;
  return kept;
}

kept_of_plan& kept(const msabench_plan* plan) {
  const std::lock_guard guard(lock());
  return all_kept()[plan];
}

/// A run that keeps something for its plan.
void forget_with_plan(msabench_plugin& table) {
  table.destroy = [](msabench_plan* plan) {
    {
      const std::lock_guard guard(lock());
      all_kept().erase(plan);
    }
    exact().destroy(plan);
  };
}

/// Runs, and puts row `row` of the output back as it was.
msabench_status run_all_but(std::int64_t row, msabench_plan* plan, const msabench_args* args, void* workspace,
                            void* stream) {
  const row_bytes kept_row = row_of(output_of(args), row);
  static thread_local bytes before;
  before.assign(kept_row.first, kept_row.first + kept_row.size);
  const msabench_status status = exact().run(plan, args, workspace, stream);
  std::copy(before.begin(), before.end(), kept_row.first);
  return status;
}

void last_row_unwritten(msabench_plugin& table) {
  table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    const std::int64_t rows = tokens(args);
    return rows == 0 ? exact().run(plan, args, workspace, stream)
                     : run_all_but(rows - 1, plan, args, workspace, stream);
  };
}

void race_in_seventh_launch(msabench_plugin& table) {
  table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    constexpr int every = 7;
    const bool lost = kept(plan).launches++ % every == every - 1;
    return lost && tokens(args) > 0 ? run_all_but(tokens(args) - 1, plan, args, workspace, stream)
                                    : exact().run(plan, args, workspace, stream);
  };
  forget_with_plan(table);
}

void counter_in_workspace(msabench_plugin& table) {
  table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    std::int32_t arrived = 0;
    std::memcpy(&arrived, workspace, sizeof arrived);
    return arrived != 0 && tokens(args) > 0 ? run_all_but(0, plan, args, workspace, stream)
                                            : exact().run(plan, args, workspace, stream);
  };
}

void counter_in_plan(msabench_plugin& table) {
  table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    return kept(plan).launches++ > 0 && tokens(args) > 0 ? run_all_but(tokens(args) - 1, plan, args, workspace, stream)
                                                         : exact().run(plan, args, workspace, stream);
  };
  forget_with_plan(table);
}

/// Tensors as the first launch of the plan that had any rows found them.
msabench_status run_with_first(std::initializer_list<msabench_slot> slots, msabench_plan* plan,
                               const msabench_args* args, void* workspace, void* stream) {
  changed_args first(args);
  kept_of_plan& of_plan = kept(plan);
  for (const msabench_slot slot : slots)
    if (auto* view = first.change(slot)) {
      const auto* data = static_cast<const unsigned char*>(view->tensor.data);
      bytes& held = of_plan.contents.try_emplace(slot, data, data + extent_bytes(view->tensor)).first->second;
      view->tensor.data = held.data();
    }
  return exact().run(plan, first.get(), workspace, stream);
}

void lengths_of_first_launch(msabench_plugin& table) {
  table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    return run_with_first({MSABENCH_CU_SEQLENS_Q, MSABENCH_KV_LENS}, plan, args, workspace, stream);
  };
  forget_with_plan(table);
}

/// Tables and ids as of the first launch: what graphs hold that were captured with them. The plugin says that its plans
/// may be replayed.
template <msabench_slot Slot>
void table_of_first_launch(msabench_plugin& table) {
  table.query = [](const msabench_problem* problem, msabench_capability* out) {
    return answered(problem, out, [](msabench_profile& profile) { profile.graph_safe = 1; });
  };
  table.plan = plan_as_naive;
  table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    return run_with_first({Slot}, plan, args, workspace, stream);
  };
  forget_with_plan(table);
}

void output_of_launch_before(msabench_plugin& table) {
  table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    const msabench_status status = exact().run(plan, args, workspace, stream);
    const msabench_tensor& out = output_of(args);
    auto* const data = static_cast<unsigned char*>(out.data);
    bytes& before = kept(plan).contents[MSABENCH_OUT];
    if (before.empty()) before.assign(extent_bytes(out), 0);
    if (before.size() == extent_bytes(out)) std::swap_ranges(before.begin(), before.end(), data);
    return status;
  };
  forget_with_plan(table);
}

void behind_workspace(msabench_plugin& table) {
  table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    const msabench_status status = exact().run(plan, args, workspace, stream);
    std::uint64_t size = 0;
    std::uint32_t alignment = 0;
    exact().workspace(plan, &size, &alignment);
    constexpr std::size_t overrun_bytes = 16;
    std::memset(static_cast<unsigned char*>(workspace) + size, 0x3c, overrun_bytes);
    return status;
  };
}

/// A padding row zeroes a row of a tile of two.
void empty_row_over_its_neighbour(msabench_plugin& table) {
  table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    const msabench_status status = exact().run(plan, args, workspace, stream);
    const msabench_tensor* lens = tensor_at(args, MSABENCH_KV_LENS);
    if (status != MSABENCH_OK || lens == nullptr) return status;
    const msabench_tensor* out = tensor_at(args, MSABENCH_OUT);
    const lengths rows{static_cast<const std::int32_t*>(tensor_at(args, MSABENCH_CU_SEQLENS_Q)->data),
                       static_cast<const std::int32_t*>(lens->data), lens->shape[0],
                       out == nullptr ? 0 : out->shape[0]};
    for (std::int64_t row = 0; row + 1 < rows.tokens(); ++row) {
      if (rows.place(row).position >= 0 || rows.place(row + 1).position < 0) continue;
      const row_bytes next = row_of(output_of(args), row + 1);
      std::memset(next.first, 0, next.size);
    }
    return status;
  };
}

/// Ids of the first row as the buffer held them on entry, [Hkv][topk]; nullptr outside of msa.
const std::int32_t* ids_before_launch = nullptr;

void attend_before_ids_are_written(const stages& stage, const attend_call& call, std::int64_t row, std::int32_t kv_head,
                                   void* scratch) {
  attend_call early = call;
  if (ids_before_launch != nullptr && row == 0) {
    early.ids = ids_before_launch;
    early.id_head_stride = call.topk;
  }
  exact_stages.attend_row(stage, early, row, kv_head, scratch);
}

void keeps_ids_before_launch(msabench_plugin& table) {
  table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
    const msabench_tensor* ids = tensor_at(args, MSABENCH_IDS);
    static std::vector<std::int32_t> before;
    ids_before_launch = nullptr;
    if (ids != nullptr && tensor_at(args, MSABENCH_Q_IDX) != nullptr && tensor_at(args, MSABENCH_Q) != nullptr) {
      before.clear();
      for (std::int64_t head = 0; head < ids->shape[1]; ++head) {
        const auto* line = static_cast<const std::int32_t*>(ids->data) + head * ids->strides[1];
        before.insert(before.end(), line, line + ids->shape[2]);
      }
      ids_before_launch = before.data();
    }
    return exact().run(plan, args, workspace, stream);
  };
}

/// Plans and runs every visible key, whatever the ids say.
void plan_as_dense(msabench_plugin& table) {
  table.plan = [](const msabench_problem* problem, msabench_plan** plan) {
    msabench_problem all = *problem;
    if (all.op == MSABENCH_OP_ATTEND) {
      all.op = MSABENCH_OP_DENSE;
      all.profile.in_id_form = 0;
    }
    return exact().plan(&all, plan);
  };
}

constexpr mutant mutants[] = {
    {"RACE-1.a", "a missing barrier; here: every seventh launch of a plan, the last row is not written in time",
     nullptr, race_in_seventh_launch},
    {"RACE-2.a", "a counter in the workspace is taken as it was left; here: where it is not 0, row 0 counts as done",
     nullptr, counter_in_workspace},
    {"RACE-2.b", "a counter in the plan is not reset: from its second launch on, the last row counts as done", nullptr,
     counter_in_plan},
    {"RACE-3.a", "the last row of the output is not written", nullptr, last_row_unwritten},
    {"GRAPH-1.a", "lengths kept from the first launch of a plan", nullptr, lengths_of_first_launch},
    {"GRAPH-1.b", "the block table kept from the first launch of a plan that may be replayed", nullptr,
     table_of_first_launch<MSABENCH_BLOCK_TABLE>},
    {"MEM-1.a", "16 bytes behind the workspace that was asked for are written", nullptr, behind_workspace},
    {"MEM-1.b", "an empty row overwrites the row behind it", nullptr, empty_row_over_its_neighbour},
    {"MEM-1.c", "index keys of a prefix kept from before; here: their block table, in a plan that may be replayed",
     nullptr, table_of_first_launch<MSABENCH_BLOCK_TABLE_IDX>},
    {"LAUNCH-1.a", "ids read before they are written; here: of the first row, as the buffer held them on entry",
     [](stages& s) { s.attend_row = attend_before_ids_are_written; }, keeps_ids_before_launch},
    {"DENSE-1.a", "dense attention that poses as sparse", nullptr, plan_as_dense},
    {"ZERO-1.c", "out is that of the launch before", nullptr, output_of_launch_before},
};

}  // namespace

std::span<const mutant> launch_mutants() { return mutants; }

}  // namespace msabench::mutants
