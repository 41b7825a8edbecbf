// SPDX-License-Identifier: Apache-2.0
// The messages between a host and a worker, version 1 (docs/protocol.md). Encoding is of core's values; decoding trusts
// nothing: usage_error says which field is wrong.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/observation.h"
#include "core/run_spec.h"
#include "host/channel.h"
#include "host/plugin_session.h"
#include "host/protocol_tensors.h"
#include "inputs/input_set.h"

namespace msabench::protocol {

inline constexpr int version = 1;
inline constexpr int worker_socket_fd = 3;

// Entry points, as `entered` names them.
bool is_entry(std::string_view text);

// The message's type; empty where there is none.
std::string type_of(const nlohmann::json& in);

// "ready": the worker's first message, before it loads anything.
nlohmann::json ready();
bool is_ready(const nlohmann::json& in);

struct load_request {
  std::string path;
  device where;
  int threads = 1;
  int implementation = 0;  // by which `time` knows it; `query` and `execute` are for 0
  std::string argument = {};
};
nlohmann::json encode(const load_request& r);
load_request decode_load(const nlohmann::json& in);

nlohmann::json encode(const plugin_identity& id);  // "loaded"
plugin_identity decode_identity(const nlohmann::json& in);

// `type` is "answered" or "done". Launches do not travel: their outputs are in shared memory.
nlohmann::json encode(std::string_view type, const observation& seen);
observation decode_observation(const nlohmann::json& in);

nlohmann::json encode(std::span<const launch_report> reports);  // "launched"
std::vector<launch_report> decode_launched(const nlohmann::json& in);

// "execute": the message, and the descriptors that travel beside it, one per region. The set must outlive the sending.
struct execute_message {
  nlohmann::json body;
  std::vector<int> fds;
};
// `contents`: with what every region holds, which a device needs.
execute_message encode_execute(const input_set& set, const input_set* second, const run_spec& how, bool contents);

// The same on the worker's side, memory mapped.
struct execute_request {
  bound_case bound;
  run_spec how;
  std::vector<mapped_region> regions;

  // The same memory at other addresses, and the tensors with it; the old addresses are left without access. For rule
  // R1: a plugin keeps no pointer once run has returned.
  void move_elsewhere();
};
execute_request decode_execute(message& in);

}  // namespace msabench::protocol
