// SPDX-License-Identifier: Apache-2.0
// What run does to memory that it should leave alone, or leaves alone though it should write it. Results are naive's
// otherwise. Each fault is the run of its plugin.
#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <utility>

#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

constexpr std::size_t overrun_bytes = 16;
constexpr unsigned char intruder = 0x3c;

/// Runs naive, and `after` if that went well.
template <class After>
msabench_status run_then(msabench_plan* plan, const msabench_args* args, void* workspace, void* stream, After after) {
  const msabench_status status = exact().run(plan, args, workspace, stream);
  if (status == MSABENCH_OK) after();
  return status;
}

}  // namespace

/// 16 bytes before the output.
const msabench_plugin* write_before(const msabench_host* host) {
  return changed(host, "write_before", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      return run_then(plan, args, workspace, stream, [=] {
        std::memset(static_cast<unsigned char*>(output_of(args).data) - overrun_bytes, intruder, overrun_bytes);
      });
    };
  });
}

/// 16 bytes behind the output.
const msabench_plugin* write_behind(const msabench_host* host) {
  return changed(host, "write_behind", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      return run_then(plan, args, workspace, stream, [=] {
        const msabench_tensor& output = output_of(args);
        std::memset(static_cast<unsigned char*>(output.data) + extent_bytes(output), intruder, overrun_bytes);
      });
    };
  });
}

/// The output depends on what the workspace held on entry.
const msabench_plugin* reads_workspace(const msabench_host* host) {
  return changed(host, "reads_workspace", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      const unsigned char found = *static_cast<const unsigned char*>(workspace);
      return run_then(plan, args, workspace, stream, [=] {
        if (tokens(args) > 0) *static_cast<unsigned char*>(output_of(args).data) ^= found;
      });
    };
  });
}

/// A bit of the first element of q, or of scores.
const msabench_plugin* change_input(const msabench_host* host) {
  return changed(host, "change_input", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      return run_then(plan, args, workspace, stream, [=] {
        const msabench_tensor* q = tensor_at(args, MSABENCH_Q);
        const msabench_tensor& input = q != nullptr ? *q : *tensor_at(args, MSABENCH_SCORES);
        if (extent_bytes(input) > 0) *static_cast<unsigned char*>(input.data) ^= 1;
      });
    };
  });
}

/// Rows from T to the end of the output are zeroed.
const msabench_plugin* ignores_t(const msabench_host* host) {
  return changed(host, "ignores_t", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      return run_then(plan, args, workspace, stream, [=] {
        const msabench_tensor& output = output_of(args);
        for (std::int64_t row = tokens(args); row < output.shape[0]; ++row) {
          const row_bytes bytes = row_of(output, row);
          std::memset(bytes.first, 0, bytes.size);
        }
      });
    };
  });
}

/// The first and the last page of every sequence are taken for each other.
const msabench_plugin* swap_table_entries(const msabench_host* host) {
  return changed(host, "swap_table_entries", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) -> msabench_status {
      struct paged_cache {
        msabench_slot table, keys;
        int page_axis;
      };
      constexpr paged_cache caches[] = {{MSABENCH_BLOCK_TABLE, MSABENCH_K, 2},
                                        {MSABENCH_BLOCK_TABLE_IDX, MSABENCH_K_IDX, 1}};
      // Memory that is there since loading: run may not ask for more (R3), and one fault is enough.
      static std::mutex one_at_a_time;
      static std::array<std::array<std::int32_t, 1 << 20>, std::size(caches)> entries;
      const std::lock_guard lock(one_at_a_time);
      std::array<const msabench_tensor*, MSABENCH_SLOT_COUNT_1_0> slots{};
      std::copy_n(args->slot, std::min<std::size_t>(args->slot_count, slots.size()), slots.begin());
      std::array<msabench_tensor, std::size(caches)> swapped;
      for (std::size_t i = 0; i < std::size(caches); ++i) {
        const msabench_tensor* given = tensor_at(args, caches[i].table);
        if (given == nullptr || extent_bytes(*given) == 0) continue;
        if (extent_bytes(*given) > sizeof entries[i]) return MSABENCH_INVALID_PROBLEM;
        std::memcpy(entries[i].data(), given->data, extent_bytes(*given));
        const msabench_tensor& lens = *tensor_at(args, MSABENCH_KV_LENS);
        const auto* kv_lens = static_cast<const std::int32_t*>(lens.data);
        const std::int64_t page_size = tensor_at(args, caches[i].keys)->shape[caches[i].page_axis];
        for (std::int64_t b = 0; b < lens.shape[0]; ++b) {
          auto* const row = entries[i].data() + b * given->strides[0];
          if (kv_lens[b] > 0) std::swap(row[0], row[(kv_lens[b] - 1) / page_size]);
        }
        swapped[i] = *given;
        swapped[i].data = entries[i].data();
        slots[caches[i].table] = &swapped[i];
      }
      const msabench_args changed_args{sizeof changed_args, args->slot_count, slots.data()};
      return exact().run(plan, &changed_args, workspace, stream);
    };
  });
}

/// Rows of q are taken to lie one behind the other.
const msabench_plugin* ignores_strides(const msabench_host* host) {
  return changed(host, "ignores_strides", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      changed_args changed(args);
      if (changed_args::view* q = changed.change(MSABENCH_Q)) {
        std::int64_t packed = 1;
        for (std::int32_t axis = q->tensor.rank; axis-- > 0; packed *= q->shape[axis]) q->strides[axis] = packed;
      }
      return exact().run(plan, changed.get(), workspace, stream);
    };
  });
}

/// Reports an error after it has written the outputs.
const msabench_plugin* writes_on_error(const msabench_host* host) {
  return changed(host, "writes_on_error", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      exact().run(plan, args, workspace, stream);
      return msabench_status{MSABENCH_NO_RESOURCES};
    };
    table.last_error = [] { return "workspace 0: ran out half way; give more"; };
  });
}

}  // namespace msabench::faults
