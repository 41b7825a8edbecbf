// SPDX-License-Identifier: Apache-2.0
// For the driver without a device (fake_driver.cpp).
#include <array>
#include <cstddef>
#include <cstdint>

#include "tests/plugins/fault.h"

namespace msabench::faults {

namespace {

msabench_host on_the_cpu(const msabench_host* host) {
  msabench_host here = *host;
  here.device = {1, 0};
  return here;
}

msabench_status run_on_the_cpu(msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
  std::array<msabench_tensor, MSABENCH_SLOT_COUNT_1_0> tensors{};
  std::array<const msabench_tensor*, MSABENCH_SLOT_COUNT_1_0> slots{};
  for (std::size_t i = 0; i < slots.size() && static_cast<std::int32_t>(i) < args->slot_count; ++i) {
    if (args->slot[i] == nullptr) continue;
    tensors[i] = *args->slot[i];
    tensors[i].device = {1, 0};
    slots[i] = &tensors[i];
  }
  const msabench_args seen = {sizeof seen, static_cast<std::int32_t>(slots.size()), slots.data()};
  return exact().run(plan, &seen, workspace, stream);
}

}  // namespace

/// naive that says it runs on a GPU; there is none, and its tensors lie in memory of the host.
const msabench_plugin* runs_on_a_fake_gpu(const msabench_host* host) {
  static msabench_host here;
  here = on_the_cpu(host);
  return changed(&here, "runs_on_a_fake_gpu", [](msabench_plugin& table) { table.run = run_on_the_cpu; });
}

/// The same; its second launch changes a bit of the first element of q, which no other launch does.
const msabench_plugin* changes_queries_on_a_fake_gpu(const msabench_host* host) {
  static msabench_host here;
  here = on_the_cpu(host);
  return changed(&here, "changes_queries_on_a_fake_gpu", [](msabench_plugin& table) {
    table.run = [](msabench_plan* plan, const msabench_args* args, void* workspace, void* stream) {
      static int launches = 0;
      const msabench_status status = run_on_the_cpu(plan, args, workspace, stream);
      if (++launches == 2) *static_cast<unsigned char*>(args->slot[MSABENCH_Q]->data) ^= 1;
      return status;
    };
  });
}

}  // namespace msabench::faults
