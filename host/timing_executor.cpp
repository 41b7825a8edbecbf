// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <cstring>

#include "core/environment_error.h"
#include "core/error.h"
#include "core/json_fields.h"
#include "host/implementation.h"
#include "host/interrupt.h"
#include "host/output_copy.h"
#include "host/timing.h"
#include "host/timing_protocol.h"
#include "host/told_failure.h"
#include "host/worker_process.h"
#include "inputs/poison.h"

namespace msabench {
namespace {

using nlohmann::json;

// Different outputs of one side that are kept to be judged: a right implementation has one, one with atomics a few.
constexpr std::size_t most_outputs = 4;

class worker_timing final : public timing_executor {
 public:
  worker_timing(std::vector<implementation_ref> implementations, const executor_options& options,
                std::uint64_t probe_bytes)
      : implementations_(std::move(implementations)),
        options_(options),
        probe_bytes_(probe_bytes),
        executable_(worker_executable()) {}

  timed_observation run(std::span<const timed_side> sides, const run_spec& how) override {
    seen_ = {};
    seen_.sides.resize(sides.size());
    if (!load(sides)) return std::move(seen_);
    for (const timed_side& s : sides) poison_outputs(*s.set, 0, how.poison_seed);
    shared_region progress = shared_region::create("msabench.progress", 4096, 4096);
    const auto message = protocol::encode_timed(sides, how, probe_bytes_, progress);
    double remaining_s = how.timeout_s;
    sides_ = sides;
    poison_seed_ = how.poison_seed;
    entry_.clear();
    if (worker_->send(message.body, message.fds))
      converse("timed", remaining_s);
    else
      ended("stopped reading");
    if (seen_.ended) blame(progress);
    for (std::size_t i = 0; i < sides.size(); ++i)
      if (checksum_inputs(*sides[i].set) != sides[i].set->inputs_checksum)
        add_violation(seen_.sides[i].seen,
                      {violation::kind::input_modified, std::nullopt, "run", "an input has changed"});
    if (worker_) captured_ = worker_->take_output();
    for (auto& s : seen_.sides) s.seen.captured_output = captured_;
    return std::move(seen_);
  }

 private:
  bool load(std::span<const timed_side> sides) {
    if (worker_) return true;
    worker_ = worker_process::start(executable_);
    double remaining_s = options_.query_timeout_s;
    message in;
    if (worker_->wait(in, remaining_s) != worker_process::event::arrived || !protocol::is_ready(in.body)) {
      if (interrupted()) return stop_for_interrupt();
      throw environment_error({"worker", executable_, "is not ready: " + worker_->end_description(),
                               "install host and worker of one build, and see `ulimit -a`"});
    }
    const int threads = options_.threads > 0 ? options_.threads : available_cores();
    for (std::size_t i = 0; i < implementations_.size(); ++i) {
      const auto& impl = implementations_[i];
      remaining_s = options_.query_timeout_s;
      loading_ = i;
      entry_ = "get";
      if (!worker_->send(protocol::encode(
              protocol::load_request{impl.path, impl.where, threads, static_cast<int>(i), impl.argument}))) {
        ended("stopped reading");
        return false;
      }
      converse("loaded", remaining_s);
      if (!worker_) {
        // The others were not reached, and say so.
        seen_.end = fmt::format("{} while {} was loaded", seen_.end, impl.label);
        for (std::size_t s = 0; s < sides.size(); ++s) {
          if (sides[s].implementation != static_cast<int>(i)) continue;
          if (seen_.ended_in < 0) seen_.ended_in = static_cast<int>(s);
          fail(seen_.sides[s].seen, outcome::crashed, seen_.end);
        }
        return false;
      }
    }
    return true;
  }

  bool stop_for_interrupt() {
    seen_.interrupted = true;
    worker_.reset();
    return false;
  }

  void fail(observation& seen, outcome how, const std::string& text) const {
    seen.result = how;
    seen.entry = entry_.empty() ? "run" : entry_;
    seen.message = text;
  }

  void ended(const std::string& what) {
    seen_.ended = true;
    seen_.end = what;
    captured_ = worker_->take_output();
    worker_.reset();
  }

  // The side whose launch was under way; all of them if none was.
  void blame(const shared_region& progress) {
    std::int32_t noted = 0;
    std::memcpy(&noted, progress.data(), sizeof noted);
    const bool known = noted >= 1 && static_cast<std::size_t>(noted) <= seen_.sides.size();
    seen_.ended_in = known ? noted - 1 : -1;
    const outcome how = out_of_time_ ? outcome::timed_out : outcome::crashed;
    for (std::size_t i = 0; i < seen_.sides.size(); ++i) {
      if (known && static_cast<int>(i) != seen_.ended_in) continue;
      fail(seen_.sides[i].seen, how, seen_.end);
    }
  }

  void converse(std::string_view last, double& remaining_s) {
    const double allowed_s = remaining_s;
    out_of_time_ = false;
    for (;;) {
      message in;
      switch (worker_->wait(in, remaining_s)) {
        case worker_process::event::ended:
          return ended(worker_->end_description());
        case worker_process::event::out_of_time:
          out_of_time_ = true;
          return ended(fmt::format("no end within {:.3g} s", allowed_s));
        case worker_process::event::interrupted:
          stop_for_interrupt();
          return;
        case worker_process::event::arrived:
          break;
      }
      try {
        if (handle(in.body, last)) return;
      } catch (const usage_error& e) {
        if (e.what_is_wrong().field == "--impl" || e.what_is_wrong().field == "--against") throw;
        worker_->kill();
        return ended(fmt::format("wrote into the protocol's socket ({})", e.what()));
      }
    }
  }

  bool handle(const json& in, std::string_view last) {
    const json_fields fields("message", in);
    std::string type, text;
    fields.read("type", type);
    if (type == "entered") {
      fields.read("entry", text);
      if (!protocol::is_entry(text)) fields.refuse("entry", text, "is no entry point");
      entry_ = text;
      return false;
    }
    if (type == "collect" && last == "timed") {
      collect(fields);
      worker_->send({{"type", "next"}});
      return false;
    }
    if (const auto failure = told_failure(fields, type, last, loading_ == 0 ? "--impl" : "--against",
                                          implementations_[loading_].label)) {
      worker_.reset();
      std::rethrow_exception(failure);
    }
    if (type != last) fields.refuse("type", type, fmt::format("was not expected before {}", last));
    if (type == "timed") merge(protocol::decode_timed_observation(in), fields);
    return true;
  }

  void collect(const json_fields& fields) {
    std::size_t index = 0;
    fields.read("side", index);
    if (index >= seen_.sides.size()) fields.refuse("side", index, "does not exist");
    side_observation& side = seen_.sides[index];
    const input_set& set = *sides_[index].set;
    add_output_damage(set, {0, poison_seed_, set.sizes.t, false}, side.seen);
    ++side.outputs_seen;
    launch l = copy_outputs(set, 0, 0, side.seen.launches);
    if (l.same_as >= 0) return;
    if (side.seen.launches.size() < most_outputs)
      side.seen.launches.push_back(std::move(l));
    else
      ++side.outputs_dropped;
  }

  void merge(timed_observation told, const json_fields& fields) {
    if (told.sides.size() != seen_.sides.size()) fields.refuse("sides", told.sides.size(), "are not those asked for");
    for (std::size_t i = 0; i < told.sides.size(); ++i) {
      side_observation &from = told.sides[i], &here = seen_.sides[i];
      from.seen.launches = std::move(here.seen.launches);
      for (const violation& v : here.seen.violations) add_violation(from.seen, v);
      from.outputs_seen = here.outputs_seen;
      from.outputs_dropped = here.outputs_dropped;
    }
    seen_ = std::move(told);
  }

  std::vector<implementation_ref> implementations_;
  executor_options options_;
  std::uint64_t probe_bytes_;
  std::string executable_;
  std::unique_ptr<worker_process> worker_;

  // Of the run under way.
  timed_observation seen_;
  std::span<const timed_side> sides_;
  std::uint64_t poison_seed_ = 0;
  std::string entry_, captured_;
  std::size_t loading_ = 0;
  bool out_of_time_ = false;
};

}  // namespace

std::int64_t sets_of_group(std::int64_t launches_per_round, std::int64_t rounds) {
  return rounds <= 0 ? 1 : launches_per_round * rounds;
}

std::unique_ptr<timing_executor> make_timing_executor(std::vector<implementation_ref> implementations,
                                                      const executor_options& options, std::uint64_t probe_bytes) {
  for (const implementation_ref& impl : implementations)
    if (&impl != &implementations.front() && impl.path == implementations.front().path &&
        impl.argument != implementations.front().argument)
      bad_input("--against", impl.label,
                "is the same file as --impl with another word behind the colon, which one process can't hold twice",
                "copy the file for one of them");
  for (const implementation_ref& impl : implementations)
    if (!(impl.where == implementations.front().where))
      bad_input("--against", impl.label, "runs on another device than --impl", "compare two of one device");
  return std::make_unique<worker_timing>(std::move(implementations), options, probe_bytes);
}

}  // namespace msabench
