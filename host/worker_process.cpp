// SPDX-License-Identifier: Apache-2.0
#include "host/worker_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <string.h>  // sigdescr_np
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include "core/environment_error.h"
#include "core/error.h"
#include "host/interrupt.h"
#include "host/protocol.h"

extern char** environ;

namespace msabench {
namespace {

using clock = std::chrono::steady_clock;

constexpr std::size_t kept_output_bytes = 4096;
// How often a wait looks at the process itself: a child of it may hold the socket open after its death.
constexpr double tick_s = 0.1;

[[noreturn]] void fail(std::string_view what, int error) {
  throw environment_error(
      {"worker", std::string(what), ::strerrordesc_np(error),
       "raise the limits on processes and open files (`ulimit -a`), and install msabench completely"});
}

std::string describe(const siginfo_t& end) {
  if (end.si_code == CLD_EXITED) return fmt::format("exit({}) called", end.si_status);
  const char* what = ::sigdescr_np(end.si_status);
  std::string text = fmt::format("signal {} ({})", end.si_status, what ? what : "unknown");
  if (end.si_status == SIGKILL) text += ", perhaps by the system for lack of memory";
  return text;
}

struct spawn_settings {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;

  spawn_settings(int socket, int output) {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, output, 1);
    ::posix_spawn_file_actions_adddup2(&actions, output, 2);
    ::posix_spawn_file_actions_adddup2(&actions, socket, protocol::worker_socket_fd);
    // Whatever else this process has open, flagged or not, is none of a plugin's business.
    ::posix_spawn_file_actions_addclosefrom_np(&actions, protocol::worker_socket_fd + 1);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    sigset_t none, all;
    ::sigemptyset(&none);
    ::sigfillset(&all);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &all);
  }
  spawn_settings(const spawn_settings&) = delete;
  ~spawn_settings() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
};

// A descriptor that no dup2 of spawn_settings can overwrite before it is used, nor leave close-on-exec by being its own
// target.
unique_fd above_standard(int fd) {
  unique_fd original(fd);
  unique_fd moved(::fcntl(fd, F_DUPFD_CLOEXEC, 10));
  if (!moved) fail("fcntl", errno);
  return moved;
}

}  // namespace

std::unique_ptr<worker_process> worker_process::start(const std::string& executable) {
  int sockets[2], pipes[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) fail("socketpair", errno);
  unique_fd ours(sockets[0]);
  const unique_fd theirs = above_standard(sockets[1]);
  if (::pipe2(pipes, O_CLOEXEC) != 0) fail("pipe", errno);
  unique_fd output(pipes[0]);
  const unique_fd input = above_standard(pipes[1]);
  ::fcntl(output.get(), F_SETFL, O_NONBLOCK);

  const spawn_settings settings(theirs.get(), input.get());
  std::string name = executable, parent = fmt::format("{}", ::getpid());
  std::array<char*, 3> arguments = {name.data(), parent.data(), nullptr};
  pid_t pid = -1;
  const int error =
      ::posix_spawn(&pid, executable.c_str(), &settings.actions, &settings.attributes, arguments.data(), environ);
  if (error != 0) fail(executable, error);
  auto worker = std::unique_ptr<worker_process>(new worker_process(pid, std::move(ours), std::move(output)));
  worker->link_.set_send_timeout(10);
  return worker;
}

worker_process::~worker_process() { kill(); }

worker_process::event worker_process::wait(message& out, double& remaining_s) {
  const double allowed_s = remaining_s;
  const auto start = clock::now();
  for (;;) {
    drain();
    if (interrupted()) {
      kill();
      return event::interrupted;
    }
    channel::status s = link_.receive(out, false);
    if (s == channel::status::nothing && has_ended()) {
      // It may have spoken between the two looks.
      s = link_.receive(out, false);
      if (s == channel::status::nothing) s = channel::status::closed;
    }
    remaining_s = allowed_s - std::chrono::duration<double>(clock::now() - start).count();
    switch (s) {
      case channel::status::ready:
        return event::arrived;
      case channel::status::closed:
        reap("closed the protocol's socket");
        return event::ended;
      case channel::status::garbage:
        reap("wrote into the protocol's socket");
        return event::ended;
      case channel::status::nothing:
        break;
    }
    if (remaining_s <= 0) {
      kill();
      return event::out_of_time;
    }
    pollfd watched[] = {{link_.fd(), POLLIN, 0}, {output_.get(), POLLIN, 0}};
    ::poll(watched, output_ ? 2 : 1, static_cast<int>(std::ceil(std::min(remaining_s, tick_s) * 1000)));
  }
}

bool worker_process::has_ended() const {
  siginfo_t end{};
  return ::waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid == pid_;
}

// A process that is about to die gets a moment for it, so that the cause can be told from our own signal.
void worker_process::reap(const std::string& otherwise) {
  const auto start = clock::now();
  while (!has_ended() && clock::now() - start < std::chrono::seconds(3))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  siginfo_t end{};
  ::waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOHANG | WNOWAIT);
  end_ = end.si_pid == pid_ ? describe(end) : otherwise;
  kill();
}

void worker_process::kill() {
  if (pid_ <= 0) return;
  // The group first, while its leader is not reaped and the number can't belong to another one.
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

void worker_process::drain() {
  char bytes[65536];
  // Bounded: a worker that writes without end must not keep this one from looking at the clock.
  for (int i = 0; i < 16 && output_; ++i) {
    const ssize_t n = ::read(output_.get(), bytes, sizeof bytes);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) output_.reset();
    if (n <= 0) return;
    captured_.append(bytes, static_cast<std::size_t>(n));
    if (captured_.size() > kept_output_bytes) captured_.erase(0, captured_.size() - kept_output_bytes);
  }
}

std::string worker_process::take_output() {
  drain();
  std::string lines;
  std::string_view rest = captured_;
  while (!rest.empty()) {
    const auto end = std::min(rest.find('\n'), rest.size());
    lines += one_line(rest.substr(0, end), 4 * kept_output_bytes);
    if (end < rest.size()) lines += '\n';
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  captured_.clear();
  return lines;
}

}  // namespace msabench
