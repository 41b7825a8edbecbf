// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <optional>

#include "core/environment_error.h"
#include "core/error.h"
#include "core/hashes.h"
#include "core/json_fields.h"
#include "host/executor.h"
#include "host/implementation.h"
#include "host/interrupt.h"
#include "host/launch_recorder.h"
#include "host/protocol.h"
#include "host/told_failure.h"
#include "host/worker_process.h"

namespace msabench {
namespace {

using nlohmann::json;

// Launches from the second on ran under the memory limit; did this end there?
bool ended_under_limit(const observation& seen, const run_spec& how) {
  const bool failed = seen.result == outcome::crashed || seen.result == outcome::error_status ||
                      seen.result == outcome::unsupported || seen.result == outcome::nonsense;
  return how.limit_memory && failed && seen.entry == "run" && !seen.launches.empty() &&
         seen.launches.back().index + 1 < how.launches;
}

class worker_executor final : public executor {
 public:
  worker_executor(implementation_ref impl, const executor_options& options)
      : impl_(std::move(impl)), options_(options), executable_(worker_executable()) {}

  implementation_record info() override {
    if (sha256_.empty()) sha256_ = sha256_file(options_.field, impl_.path);
    observation ignored;  // if it does not load, the first query says so
    ensure_loaded(ignored);
    return {identity_ ? identity_->name : impl_.label,
            identity_ ? identity_->version : "",
            identity_ ? identity_->description : "",
            impl_.path,
            sha256_,
            identity_ ? identity_->device : ""};
  }

  observation query(const problem& p) override {
    observation seen;
    if (!begin(seen)) return seen;
    double remaining_s = options_.query_timeout_s;
    if (send({{"type", "query"}, {"problem", p}}, {}, seen, remaining_s))
      converse("answered", remaining_s, seen, nullptr);
    finish(seen);
    return seen;
  }

  observation execute(input_set& set, const run_spec& how) override {
    if (const std::string not_done = unsupported_run_spec(how); !not_done.empty()) throw suite_error(not_done);
    observation seen = attempt(set, how);
    if (!ended_under_limit(seen, how)) return seen;
    // Rule R3 or a fault of its own? The same without the limit, in a worker that has not seen this case.
    worker_.reset();
    run_spec without = how;
    without.limit_memory = false;
    observation again = attempt(set, without);
    if (again.result == outcome::completed)
      add_violation(again, {violation::kind::memory_limit, std::nullopt, "run",
                            fmt::format("a later launch needs more memory than the process has after the first: {}",
                                        seen.message.empty() ? fmt::format("status {}", seen.status) : seen.message)});
    for (const violation& v : seen.violations) add_violation(again, v);
    if (again.captured_output.empty()) again.captured_output = seen.captured_output;
    return again;
  }

 private:
  // Makes sure that a worker has the plugin loaded. False: it can't be loaded, and `seen` says what happened. That is
  // not tried again: every further case would cost a crash or the time of a hang.
  bool ensure_loaded(observation& seen) {
    if (worker_) return true;
    if (dead_load_) {
      seen = *dead_load_;
      return false;
    }
    worker_ = worker_process::start(executable_);
    wait_until_ready();
    if (!worker_) {
      seen.result = outcome::timed_out;
      seen.message = "interrupted";
      return false;
    }
    seen.entry = "get";
    double remaining_s = options_.query_timeout_s;
    const int threads = options_.threads > 0 ? options_.threads : available_cores();
    if (send(protocol::encode(protocol::load_request{impl_.path, impl_.where, threads, 0, impl_.argument}), {}, seen,
             remaining_s))
      converse("loaded", remaining_s, seen, nullptr);
    if (!worker_ && !interrupted()) dead_load_ = seen;
    return worker_ != nullptr;
  }

  // Before any foreign code is in that process: what goes wrong here is the installation's fault or the machine's.
  void wait_until_ready() {
    double remaining_s = options_.query_timeout_s;
    message in;
    const worker_process::event what = worker_->wait(in, remaining_s);
    if (what == worker_process::event::arrived && protocol::is_ready(in.body)) return;
    const std::string why = what == worker_process::event::arrived ? "speaks another protocol"
                            : what == worker_process::event::out_of_time
                                ? "is not ready in time"
                                : "ends at once: " + worker_->end_description();
    const std::string output = worker_->take_output();
    worker_.reset();
    if (what == worker_process::event::interrupted) return;
    throw environment_error({"worker", executable_, output.empty() ? why : why + ": " + one_line(output, 200),
                             "install host and worker of one build, and see `ulimit -a`"});
  }

  bool begin(observation& seen) {
    if (interrupted()) {
      seen.result = outcome::timed_out;
      seen.message = "interrupted";
      return false;
    }
    if (!ensure_loaded(seen)) return false;
    seen = {};
    return true;
  }

  observation attempt(input_set& set, const run_spec& how) {
    observation seen;
    if (!begin(seen)) return seen;
    const bool on_device = impl_.where.type == device_type::cuda;
    launch_recorder recorder(set, how, on_device);
    const protocol::execute_message message = protocol::encode_execute(set, recorder.second(), how, on_device);
    double remaining_s = how.timeout_s;
    if (send(message.body, message.fds, seen, remaining_s)) converse("done", remaining_s, seen, &recorder);
    if (!worker_ && seen.entry == "run") recorder.record_abnormal_end(seen);
    recorder.finish(seen);
    if (seen.result == outcome::crashed && seen.entry == "run" && recorder.launches_recorded() == 1)
      seen.message += "; in the second launch, whose buffers lie elsewhere than those of the first: see rule R1";
    finish(seen);
    return seen;
  }

  bool send(const json& body, std::span<const int> fds, observation& seen, double& remaining_s) {
    if (worker_->send(body, fds)) return true;
    message ignored;
    while (worker_->wait(ignored, remaining_s) == worker_process::event::arrived) {
    }
    end_abnormally(seen, outcome::crashed, worker_->end_description());
    return false;
  }

  // Keeps the output, and gives the worker up.
  void end_abnormally(observation& seen, outcome how, std::string what) {
    seen.result = how;
    seen.message = std::move(what);
    seen.captured_output = worker_->take_output();
    worker_.reset();
  }

  // Listens until the message `last`; launches are recorded as they are told.
  void converse(std::string_view last, double& remaining_s, observation& seen, launch_recorder* recorder) {
    const double allowed_s = remaining_s;
    for (;;) {
      message in;
      switch (worker_->wait(in, remaining_s)) {
        case worker_process::event::ended:
          return end_abnormally(seen, outcome::crashed, worker_->end_description());
        case worker_process::event::out_of_time:
          return end_abnormally(seen, outcome::timed_out, fmt::format("no end within {:.3g} s", allowed_s));
        case worker_process::event::interrupted:
          return end_abnormally(seen, outcome::timed_out, "interrupted");
        case worker_process::event::arrived:
          break;
      }
      try {
        if (handle(in.body, last, seen, recorder)) return;
      } catch (const usage_error& e) {
        if (e.what_is_wrong().field == options_.field) throw;
        // The plugin lives in the worker's process and can write to its socket.
        return end_abnormally(seen, outcome::crashed, fmt::format("wrote into the protocol's socket ({})", e.what()));
      }
    }
  }

  // True: that was the last message. usage_error: it is not of the protocol.
  bool handle(const json& in, std::string_view last, observation& seen, launch_recorder* recorder) {
    const json_fields fields("message", in);
    std::string type, text;
    fields.read("type", type);
    if (type == "entered") {
      fields.read("entry", text);
      if (!protocol::is_entry(text)) fields.refuse("entry", text, "is no entry point");
      seen.entry = text;
      return false;
    }
    if (type == "launched" && recorder) {
      if (!recorder->record(protocol::decode_launched(in), seen)) fields.refuse("launches", {}, "are not those due");
      worker_->send({{"type", "next"}});
      return false;
    }
    if (const auto failure = told_failure(fields, type, last, options_.field, impl_.label)) {
      worker_.reset();
      std::rethrow_exception(failure);
    }
    if (type != last) fields.refuse("type", type, fmt::format("was not expected before {}", last));
    if (last == "loaded") {
      identity_ = protocol::decode_identity(in);
    } else {
      merge(protocol::decode_observation(in), seen);
    }
    return true;
  }

  static void merge(observation told, observation& seen) {
    told.launches = std::move(seen.launches);
    const auto recorded = std::move(seen.violations);
    seen = std::move(told);
    for (const violation& v : recorded) add_violation(seen, v);
  }

  // Output of the case, and an end to a worker that an exception or a lost device has left in an unknown state.
  void finish(observation& seen) {
    if (!worker_) return;
    seen.captured_output = worker_->take_output();
    if (seen.result == outcome::crashed || seen.result == outcome::device_lost) worker_.reset();
  }

  implementation_ref impl_;
  executor_options options_;
  std::string executable_;
  std::unique_ptr<worker_process> worker_;
  std::optional<plugin_identity> identity_;
  std::string sha256_;
  std::optional<observation> dead_load_;
};

}  // namespace

std::unique_ptr<executor> make_worker_executor(const implementation_ref& impl, const executor_options& options) {
  return std::make_unique<worker_executor>(impl, options);
}

}  // namespace msabench
