// SPDX-License-Identifier: Apache-2.0
// The worker as its parent sees it: started, listened to, ended, described. It runs in a process group of its own,
// reads nothing, and writes into a pipe that is emptied whenever the parent waits.
//
// The kernel ends the worker when the THREAD that started it ends; start and use it from one that lives on.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>

#include "host/channel.h"

namespace msabench {

class worker_process {
 public:
  // suite_error if it can't be started.
  static std::unique_ptr<worker_process> start(const std::string& executable);
  // Kills and reaps what is left.
  ~worker_process();

  enum class event { arrived, ended, out_of_time, interrupted };

  // Waits for one message at most `remaining_s` seconds and subtracts what it waited. After anything but `arrived` the
  // process group has been killed and reaped.
  event wait(message& out, double& remaining_s);

  // False: the worker does not read any more; wait() says why.
  bool send(const nlohmann::json& body, std::span<const int> fds = {}) { return link_.send(body, fds); }

  // After `ended`: "signal 11 (Segmentation fault)", "exit(0) called", ...
  const std::string& end_description() const { return end_; }

  void kill();

  // The last 4 KiB of what was written to stdout and stderr since the last call, as lines of valid UTF-8.
  std::string take_output();

 private:
  worker_process(pid_t pid, unique_fd socket, unique_fd output)
      : pid_(pid), link_(std::move(socket)), output_(std::move(output)) {}

  void drain();
  bool has_ended() const;
  void reap(const std::string& otherwise);

  pid_t pid_;
  channel link_;
  unique_fd output_;
  std::string captured_, end_;
};

}  // namespace msabench
