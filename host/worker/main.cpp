// SPDX-License-Identifier: Apache-2.0
// The worker: loads one plugin and runs problems on it for the process that started it (docs/protocol.md).
#include <fcntl.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <memory>

#include "core/environment_error.h"
#include "core/error.h"
#include "core/verdict.h"
#include "host/channel.h"
#include "host/plugin_session.h"
#include "host/protocol.h"
#include "host/worker/address_space.h"
#include "host/worker/cuda_driver.h"
#include "host/worker/timed_run.h"

#ifdef MSABENCH_SANITIZED
// A plugin's fault has to end the process as it does elsewhere; what a killed worker leaks says nothing.
extern "C" __attribute__((visibility("default"))) const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "detect_leaks=0:handle_segv=0:handle_sigbus=0:handle_sigfpe=0:handle_sigill=0:handle_abort=0:"
         "abort_on_error=1:allocator_may_return_null=1";
}
#endif

namespace msabench {
namespace {

#ifdef MSABENCH_SANITIZED
constexpr bool sanitized = true;
#else
constexpr bool sanitized = false;
#endif

// Ends without destructors and exit functions: those of a foreign library may do anything.
[[noreturn]] void leave(int code) {
  std::fflush(nullptr);
  ::_exit(code);
}

class worker final : public session_events {
 public:
  explicit worker(unique_fd socket) : link_(std::move(socket)) {}

  [[noreturn]] void serve() {
    send(protocol::ready());
    for (;;) {
      message in = wait_for_message();
      try {
        answer(in);
      } catch (const usage_error& e) {
        send({{"type", "error"}, {"message", e.what()}});
      } catch (const suite_error& e) {
        send({{"type", "error"}, {"message", e.what()}});
      } catch (const environment_error& e) {
        send({{"type", "no_resources"}, {"message", e.what()}});
      }
      running_ = nullptr;
    }
  }

  void entering(std::string_view entry) override { send({{"type", "entered"}, {"entry", std::string(entry)}}); }

  bool launched(std::span<const launch_report> reports) override {
    send(protocol::encode(reports));
    const message in = wait_for_message();
    const std::string type = protocol::type_of(in.body);
    if (type != "next" && type != "stop") throw suite_error("expected next or stop after launched, got " + type);
    if (type == "next" && running_ != nullptr && reports.front().index == 0) move_buffers();
    return type == "next";
  }

 private:
  message wait_for_message() {
    message in;
    if (link_.receive(in, true) != channel::status::ready) leave(0);
    return in;
  }

  void send(const nlohmann::json& body) {
    std::fflush(nullptr);
    if (link_.send(body)) return;
    // The host is gone, or foreign code has closed the socket: then this is what the host sees of it.
    std::fputs("msabench-worker: the protocol's socket is closed\n", stderr);
    leave(exit_code::failed);
  }

  void answer(message& in) {
    const std::string type = protocol::type_of(in.body);
    if (type == "load") return load(in.body);
    if (sessions_.empty()) throw suite_error("nothing is loaded, got " + type);
    if (type == "query") return query(in.body);
    if (type == "execute") return execute(in);
    if (type == "time") return time(in);
    throw suite_error("unknown message " + type);
  }

  void load(const nlohmann::json& body) {
    const protocol::load_request r = protocol::decode_load(body);
    if (r.implementation != static_cast<int>(sessions_.size()) || r.implementation >= most_implementations)
      throw suite_error("implementation " + std::to_string(r.implementation) + " is not the next one to load");
    threads_ = r.threads;
    // CUDA reserves terabytes of address space.
    const bool limited = !sanitized && r.where.type == device_type::cpu;
    if (!limits_) limits_ = std::make_unique<address_space>(limited, r.threads);
    limits_->start();
    std::unique_ptr<plugin_session> loaded;
    try {
      loaded = plugin_session::load({r.path, r.argument}, r.where, r.threads, *this, limits_.get());
    } catch (const usage_error& e) {
      const diagnostic& d = e.what_is_wrong();
      return send({{"type", "refused"}, {"problem", d.problem}, {"remedy", d.remedy}});
    }
    sessions_.push_back(std::move(loaded));
    // A worker that takes the place of one that died gets a case next, and maps all of it.
    limits_->unlimited();
    plugin_identity identity = sessions_.back()->identity();
    if (const auto on = sessions_.back()->on_device()) identity.device = describe(on->facts());
    send(protocol::encode(identity));
  }

  void query(const nlohmann::json& body) {
    if (!body.contains("problem")) throw suite_error("query without problem");
    const problem asked = body.at("problem").get<problem>();
    limits_->start();
    const observation seen = sessions_[0]->query(asked, *this);
    limits_->unlimited();
    send(protocol::encode("answered", seen));
  }

  // Rule R1: whoever kept a pointer from the first launch meets an address without access in the second.
  void move_buffers() {
    limits_->unlimited();
    running_->move_elsewhere();
    limits_->start();
  }

  void execute(message& in) {
    observation seen;
    {
      protocol::execute_request r = protocol::decode_execute(in);
      running_ = &r;
      limits_->start();
      seen = sessions_[0]->execute(r.bound, r.how, *this);
      limits_->unlimited();
      running_ = nullptr;
    }
    if (!limits_->active())
      seen.remarks.push_back(sanitized ? "no limit on memory: this build has sanitizers"
                                       : "no limit on memory: CUDA reserves more address space than any limit leaves");
    send(protocol::encode("done", seen));
  }

  // Memory is the host's to limit here: it knows how many input sets there will be.
  void time(message& in) {
    protocol::timed_request r = protocol::decode_timed(in);
    limits_->unlimited();
    timed_run_environment around;
    around.session = [this](int i) -> plugin_session& {
      if (i < 0 || static_cast<std::size_t>(i) >= sessions_.size())
        throw suite_error("no such implementation is loaded");
      return *sessions_[static_cast<std::size_t>(i)];
    };
    around.events = this;
    around.threads = threads_;
    around.device = sessions_[0]->on_device();
    around.probes = &probes_;
    around.collect = [this](std::size_t side, std::int64_t set) {
      send({{"type", "collect"}, {"side", side}, {"set", set}});
      if (const message answer = wait_for_message(); protocol::type_of(answer.body) != "next")
        throw suite_error("expected next after collect");
    };
    send(protocol::encode(run_timed(r, around)));
  }

  static constexpr int most_implementations = 2;

  channel link_;
  std::unique_ptr<address_space> limits_;
  std::vector<std::unique_ptr<plugin_session>> sessions_;
  std::unique_ptr<machine_probes> probes_;
  int threads_ = 1;
  protocol::execute_request* running_ = nullptr;  // while its launches go on
};

// Stack that was used once is there later: the limit of rule R3 is on what a launch needs beyond the one before it.
__attribute__((noinline)) void touch_stack() {
  volatile char space[512 << 10];
  for (std::size_t i = 0; i < sizeof space; i += 1024) space[i] = 0;
}

int run(int argc, char** argv) {
  int parent = 0;
  const std::string_view text = argc == 2 ? argv[1] : "";
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), parent);
  if (argc != 2 || parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() ||
      ::fcntl(protocol::worker_socket_fd, F_SETFD, FD_CLOEXEC) != 0) {
    fmt::print(stderr, "msabench-worker: error: is started by msabench, not by hand; see docs/protocol.md\n");
    return exit_code::usage;
  }
  // The parent may have died before the first line: then the signal never comes.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) return 0;
  const rlimit no_core{0, 0};
  ::setrlimit(RLIMIT_CORE, &no_core);
#ifdef M_ARENA_MAX
  // One heap for all threads: each further one reserves 64 MiB of address space, hundreds of gigabytes on a large
  // machine, and would hide what a launch allocates.
  ::mallopt(M_ARENA_MAX, 1);
#endif
  // Whole lines leave before a crash can swallow them.
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  touch_stack();
  worker(unique_fd(protocol::worker_socket_fd)).serve();
}

}  // namespace
}  // namespace msabench

int main(int argc, char** argv) { return msabench::run(argc, argv); }
