// SPDX-License-Identifier: Apache-2.0
// Messages over a stream socket: a 32-bit little-endian length, then that many bytes of JSON; descriptors travel beside
// the first byte of the message that names them (docs/protocol.md).
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "host/unique_fd.h"

namespace msabench {

struct message {
  nlohmann::json body;
  std::vector<unique_fd> fds;
};

// One end. Not thread-safe. What arrives is foreign: a peer that lies gives `garbage`, never an exception.
class channel {
 public:
  static constexpr std::uint32_t max_bytes = 16u << 20;
  static constexpr std::size_t max_fds = 200;

  enum class status { ready, nothing, closed, garbage };

  explicit channel(unique_fd socket) : socket_(std::move(socket)) {}

  // False: the peer is gone, or did not read for the time that set_send_timeout allows. suite_error: the message is
  // longer than max_bytes or carries more than max_fds descriptors.
  bool send(const nlohmann::json& body, std::span<const int> fds = {});

  // `wait` blocks until a whole message, the end or garbage is there; without it, takes only what has arrived. `closed`
  // is told only after the last whole message; an end in the middle of one is `closed` too.
  status receive(message& out, bool wait);

  void set_send_timeout(int seconds);
  int fd() const { return socket_.get(); }

 private:
  status next(message& out);
  bool read_some(bool wait);

  unique_fd socket_;
  std::string pending_;
  std::vector<unique_fd> pending_fds_;
  bool closed_ = false;
};

}  // namespace msabench
