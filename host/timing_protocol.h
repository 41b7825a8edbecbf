// SPDX-License-Identifier: Apache-2.0
// The message `time` and what answers it (docs/protocol.md).
#pragma once

#include <span>
#include <vector>

#include "host/channel.h"
#include "host/protocol.h"
#include "host/timing.h"

namespace msabench::protocol {

// Beside the tensors' regions travels one page in which the worker notes the side whose launch is under way.
execute_message encode_timed(std::span<const timed_side> sides, const run_spec& how, std::uint64_t probe_bytes,
                             const shared_region& progress);

struct timed_request {
  struct side {
    int implementation = 0, group = 0;
    bool lead_in = false;
    bool back_to_back = false;
    std::int64_t least_sets = 1;
    problem agreed;
    std::vector<decoded_tensor> tensors;
  };
  std::vector<side> sides;
  std::vector<mapped_region> regions;
  std::unique_ptr<shared_region> progress;
  run_spec how;
  std::uint64_t probe_bytes = 0;
};
timed_request decode_timed(message& in);

// "timed", the last answer. Launches do not travel.
nlohmann::json encode(const timed_observation& seen);
timed_observation decode_timed_observation(const nlohmann::json& in);

}  // namespace msabench::protocol
