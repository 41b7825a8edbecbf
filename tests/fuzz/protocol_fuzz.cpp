// SPDX-License-Identifier: Apache-2.0
// What host and worker read from each other. The first byte says which message the rest is meant to be, or that it is a
// stream of frames.
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "core/environment_error.h"
#include "core/json.h"
#include "host/channel.h"
#include "host/protocol.h"
#include "host/timing_protocol.h"
#include "tests/fuzz/foreign_text.h"

using namespace msabench;
using namespace msabench::fuzz_test;

namespace {

constexpr std::size_t region_bytes = 1 << 16;
constexpr int regions = 3;

void read_frames(std::string_view bytes) {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
  const unique_fd writer(ends[0]);
  channel reader{unique_fd(ends[1])};
  // What does not fit into the socket's buffer would wait for a reader.
  constexpr std::size_t most = 1 << 16;
  require(::write(ends[0], bytes.data(), std::min(bytes.size(), most)) >= 0);
  require(::shutdown(ends[0], SHUT_WR) == 0);
  message m;
  while (reader.receive(m, true) == channel::status::ready) require(m.body.is_object());
}

message with_regions(const nlohmann::json& body) {
  message m{body, {}};
  for (int i = 0; i < regions; ++i) {
    m.fds.emplace_back(::memfd_create("fuzz", MFD_CLOEXEC));
    require(::ftruncate(m.fds.back().get(), region_bytes) == 0);
  }
  return m;
}

void decode(int which, const nlohmann::json& body) {
  switch (which) {
    case 0:
      protocol::decode_load(body);
      break;
    case 1:
      protocol::decode_identity(body);
      break;
    case 2:
      protocol::decode_observation(body);
      break;
    case 3:
      protocol::decode_launched(body);
      break;
    case 4:
      protocol::decode_timed_observation(body);
      break;
    case 5: {
      message m = with_regions(body);
      protocol::decode_execute(m);
      break;
    }
    case 6: {
      message m = with_regions(body);
      protocol::decode_timed(m);
      break;
    }
    default:
      protocol::is_ready(body);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view rest = text_of(data + 1, size - 1);
  if (data[0] == 'f') {
    read_frames(rest);
    return 0;
  }
  nlohmann::json body;
  // A channel lets objects through, and nothing else.
  if (!taken([&] { body = parse_json("message", rest); }) || !body.is_object()) return 0;
  // A worker answers the last two with `error` and `no_resources`.
  try {
    taken([&] { decode(data[0] - '0', body); });
  } catch (const suite_error&) {
  } catch (const environment_error&) {
  }
  return 0;
}
