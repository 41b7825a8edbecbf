// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "core/environment_error.h"
#include "core/error.h"
#include "host/plugin_session.h"
#include "host/worker/calls.h"
#include "host/worker/captured_graph.h"
#include "host/worker/conversions.h"
#include "host/worker/cuda_driver.h"
#include "host/worker/device_image.h"
#include "host/worker/device_workspace.h"
#include "host/worker/process_state.h"
#include "host/worker/timed_plan.h"
#include "host/worker/workspace.h"
#include "msabench/plugin.h"

namespace msabench {
namespace {

[[noreturn]] void refuse(const std::string& path, const std::string& problem, const std::string& remedy) {
  bad_input("--impl", path, problem, remedy);
}

void check_table(const msabench_plugin* table, const std::string& path, device where) {
  if (!table)
    refuse(path,
           fmt::format("msabench_plugin_get returned NULL: it does not run on {}",
                       where.type == device_type::cpu ? "a CPU" : fmt::format("CUDA device {}", where.id)),
           "choose another --device or another plugin");
  if (table->abi_major != MSABENCH_ABI_MAJOR)
    refuse(path,
           fmt::format("speaks plugin interface {}.{}, this host {}.{}", table->abi_major, table->abi_minor,
                       MSABENCH_ABI_MAJOR, MSABENCH_ABI_MINOR),
           "rebuild it against msabench/plugin.h of this version");
  if (table->struct_size < sizeof(msabench_plugin))
    refuse(path,
           fmt::format("its function table has struct_size {}, version {}.{} needs {}", table->struct_size,
                       table->abi_major, table->abi_minor, sizeof(msabench_plugin)),
           "set struct_size = sizeof(msabench_plugin)");
  const std::pair<std::string_view, bool> fields[] = {
      {"name", table->name},   {"version", table->version}, {"description", table->description},
      {"query", table->query}, {"plan", table->plan},       {"workspace", table->workspace},
      {"run", table->run},     {"destroy", table->destroy}, {"last_error", table->last_error}};
  for (const auto& [field, there] : fields)
    if (!there) refuse(path, fmt::format("{} is NULL in its function table", field), "fill in every field");
  if (!*table->name) refuse(path, "its name is empty", "give the plugin a name");
}

outcome outcome_of(std::int32_t status) {
  switch (status) {
    case MSABENCH_OK:
      return outcome::completed;
    case MSABENCH_UNSUPPORTED:
      return outcome::unsupported;
    case MSABENCH_INVALID_PROBLEM:
    case MSABENCH_NO_RESOURCES:
    case MSABENCH_INTERNAL:
      return outcome::error_status;
    case MSABENCH_DEVICE_ERROR:
      return outcome::device_lost;
    default:
      return outcome::nonsense;
  }
}

// What stood on the stack beyond the caller's frame is overwritten, and what was last freed on the heap.
__attribute__((noinline)) void use_stack() {
  volatile char frame[16384];
  for (volatile char& byte : frame) byte = 'x';
  for (const std::size_t bytes : {24, 64, 128, 256, 512}) {
    const auto block = std::make_unique_for_overwrite<char[]>(bytes);
    std::memset(block.get(), 'x', bytes);
    __asm__ volatile("" : : "r"(block.get()) : "memory");
  }
}

class session final : public plugin_session {
 public:
  session(const file& what, device where, int threads, session_events& events, memory_limiter* limits)
      : where_(where), limits_(limits) {
    const std::string& path = what.path;
    // Always set: whoever started this process has no say in which of its plugins a file is.
    ::setenv("MSABENCH_PLUGIN_ARGUMENT", what.argument.c_str(), 1);
    const process_state before;
    events.entering("get");
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    const char* why = library ? nullptr : ::dlerror();
    for (const std::string& changed : before.restore()) remarks_.push_back(changed + " changed at load, reset");
    if (!library) refuse(path, "can't be loaded: " + bounded(why, 300), "link it so that `ldd FILE` finds everything");
    void* symbol = ::dlsym(library, "msabench_plugin_get");
    if (!symbol)
      refuse(path, "exports no msabench_plugin_get", "define it as in msabench/plugin.h, with MSABENCH_EXPORT");
    // From here on the library stays: its threads, handlers and exit functions may outlive any use of it.
    const auto get = reinterpret_cast<const msabench_plugin* (*)(const msabench_host*)>(symbol);
    host_ = {sizeof host_, MSABENCH_ABI_MAJOR, MSABENCH_ABI_MINOR, threads, to_c(where)};
    if (where.type == device_type::cuda) device_ = cuda_device::open(where.id);
    const call_end end = watched("get", found_, nullptr, [&] {
      table_ = get(&host_);
      return std::int32_t{MSABENCH_OK};
    });
    if (end.threw) {
      get_exception_ = thrown(end);
      return;
    }
    if (table_ == nullptr && !what.argument.empty())
      refuse(path,
             fmt::format("msabench_plugin_get returned NULL: it has no '{}', or none for this device", what.argument),
             "give another word behind the colon, or another --device");
    check_table(table_, path, where);
    identity_ = {bounded(table_->name, 100), bounded(table_->version, 100), bounded(table_->description, 200),
                 table_->abi_major, table_->abi_minor};
  }

  const plugin_identity& identity() const override { return identity_; }

  observation query(const problem& p, session_events& events) override {
    observation seen = begin();
    if (seen.result != outcome::completed) return seen;
    const msabench_problem asked = to_c(p);
    guarded_out<msabench_capability> out;
    out.value.struct_size = sizeof out.value;
    out.value.numerics.struct_size = sizeof out.value.numerics;
    out.value.profile.struct_size = sizeof out.value.profile;
    events.entering("query");
    const call_end end = watched("query", seen.violations, nullptr, [&] { return table_->query(&asked, &out.value); });
    check_overrun(out.intact(), "query", "msabench_capability", seen);
    if (!finish(seen, "query", end)) return seen;
    capability answer;
    std::string wrong = read_answer(out.value, answer.declared, answer.delivers);
    if (out.value.struct_size != sizeof out.value)
      wrong = fmt::format("capability.struct_size is {}, the host had set it to {}", out.value.struct_size,
                          sizeof out.value);
    if (wrong.empty())
      seen.answered = answer;
    else
      nonsense(seen, "query", wrong);
    return seen;
  }

  observation execute(const bound_case& c, const run_spec& how, session_events& events) override;
  std::unique_ptr<prepared_plan> prepare(const problem& agreed, bool graph, observation& seen,
                                         session_events& events) override;
  std::shared_ptr<cuda_device> on_device() const override { return device_; }

 private:
  struct planned {
    msabench_plan* plan = nullptr;
    std::unique_ptr<scratch_memory> memory;
    void* data() const { return memory ? memory->data() : nullptr; }
    void make_dirty(int launch, std::uint64_t seed) const {
      if (memory) memory->make_dirty(launch, seed);
    }
    std::string damage() const { return memory ? memory->damage() : std::string(); }
  };

  observation begin() {
    observation seen;
    seen.remarks = std::exchange(remarks_, {});
    seen.violations = std::exchange(found_, {});
    if (!get_exception_.empty()) {
      seen.result = outcome::crashed;
      seen.entry = "get";
      seen.message = get_exception_;
    }
    return seen;
  }

  static std::string thrown(const call_end& end) { return "exception: " + bounded(end.text); }

  static void nonsense(observation& seen, std::string_view entry, std::string text) {
    seen.result = outcome::nonsense;
    seen.entry = entry;
    seen.message = std::move(text);
  }

  static void check_overrun(bool intact, std::string_view entry, std::string_view what, observation& seen) {
    if (!intact)
      seen.violations.push_back({violation::kind::struct_overrun, std::nullopt, std::string(entry),
                                 fmt::format("wrote past the end of {}", what)});
  }

  // The text of the calling thread's last failed call (rule R7), whatever that call has left of the thread's state.
  std::string error_text(const call_end& end) const {
    if (end.threw) return thrown(end);
    if (end.status == MSABENCH_OK) return {};
    std::string text;
    const process_state before;
    const call_end asked = catching([&] {
      const char* const told = table_->last_error();
      text = bounded(told);
      use_stack();
      // A stack frame of the plugin's, or memory that it has freed, holds something else by now.
      if (bounded(told) != text) text += " (rule R7: this text did not stay valid after last_error had returned)";
      return std::int32_t{MSABENCH_OK};
    });
    before.restore();
    return asked.threw ? "last_error threw an " + thrown(asked) : text;
  }

  // Records how the call ended; true if it returned OK.
  static bool finish(observation& seen, std::string_view entry, const call_end& end, std::string text) {
    seen.entry = entry;
    seen.status = end.status;
    seen.result = end.threw ? outcome::crashed : outcome_of(end.status);
    if (seen.result == outcome::nonsense)
      text = fmt::format("status {} is no msabench_status{}{}", end.status, text.empty() ? "" : ": ", text);
    seen.message = std::move(text);
    return seen.result == outcome::completed;
  }
  bool finish(observation& seen, std::string_view entry, const call_end& end) const {
    return finish(seen, entry, end, error_text(end));
  }

  bool make_plan(const problem& p, planned& to, observation& seen, session_events& events);
  bool make_workspace(planned& to, observation& seen, session_events& events);
  void move(scratch_memory& memory);
  // `image`: of the case on the device; null on a CPU.
  bool launch_each(const bound_case& c, device_image* image, const run_spec& how, planned& on, observation& seen,
                   session_events& events);
  void launch_pair(const bound_case& c, device_image* image, const run_spec& how, planned& first, planned& second,
                   observation& seen, session_events& events);
  bool launch_all(const bound_case& c, const run_spec& how, planned& first, planned& second, observation& seen,
                  session_events& events);
  void check_current_device(std::vector<violation>& found) const;
  void destroy(planned& p, observation& seen, session_events& events);

  device where_;
  memory_limiter* limits_;
  std::shared_ptr<cuda_device> device_;  // null on a CPU
  msabench_host host_{};                 // outlives the call: a plugin may keep the pointer
  const msabench_plugin* table_ = nullptr;
  plugin_identity identity_;
  std::string get_exception_;
  std::vector<std::string> remarks_;
  std::vector<violation> found_;
};

bool session::make_plan(const problem& p, planned& to, observation& seen, session_events& events) {
  const msabench_problem asked = to_c(p);
  guarded_out<msabench_plan*> out;
  events.entering("plan");
  const call_end end = watched("plan", seen.violations, nullptr, [&] { return table_->plan(&asked, &out.value); });
  check_overrun(out.intact(), "plan", "the plan pointer", seen);
  if (!finish(seen, "plan", end)) {
    // Rule R9: query has accepted this very problem.
    if (seen.result == outcome::unsupported || end.status == MSABENCH_INVALID_PROBLEM)
      nonsense(
          seen, "plan",
          fmt::format("plan refused what query accepted: {}", seen.message.empty() ? "(no message)" : seen.message));
    return false;
  }
  if (!out.value) nonsense(seen, "plan", "plan returned OK and a NULL plan");
  to.plan = out.value;
  return to.plan != nullptr;
}

bool session::make_workspace(planned& to, observation& seen, session_events& events) {
  guarded_out<std::uint64_t> bytes;
  guarded_out<std::uint32_t> alignment;
  events.entering("workspace");
  const call_end end = watched("workspace", seen.violations, nullptr,
                               [&] { return table_->workspace(to.plan, &bytes.value, &alignment.value); });
  check_overrun(bytes.intact() && alignment.intact(), "workspace", "bytes or alignment", seen);
  if (!finish(seen, "workspace", end)) return false;
  seen.workspace_bytes = bytes.value;
  if (bytes.value == 0) return true;
  constexpr std::uint32_t max_alignment = 4096;
  if (alignment.value == 0 || (alignment.value & (alignment.value - 1)) != 0 || alignment.value > max_alignment) {
    nonsense(seen, "workspace",
             fmt::format("alignment {} is no power of two up to {}", alignment.value, max_alignment));
    return false;
  }
  constexpr std::uint64_t address_space = std::uint64_t{1} << 47;
  if (bytes.value >= address_space) {
    nonsense(seen, "workspace", fmt::format("{} bytes are more than any address space holds", bytes.value));
    return false;
  }
  const auto physical =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  if (limits_) limits_->allow_more(workspace::mapped_bytes(bytes.value, alignment.value));
  if (device_)
    to.memory = std::make_unique<device_workspace>(device_);
  else
    to.memory = std::make_unique<workspace>();
  if ((!device_ && bytes.value > physical) || !to.memory->allocate(bytes.value, alignment.value)) {
    seen.result = outcome::error_status;
    seen.status = MSABENCH_NO_RESOURCES;
    seen.message = device_ ? fmt::format("workspace of {} bytes: the device has not so much left", bytes.value)
                           : fmt::format("workspace of {} bytes: this machine has {}", bytes.value, physical);
    return false;
  }
  return true;
}

// Rule R1: a pointer to the workspace that was kept from an earlier launch leads nowhere.
void session::move(scratch_memory& memory) {
  if (limits_) limits_->allow_more(memory.move_bytes());
  if (!memory.move_elsewhere())
    throw environment_error({"workspace", fmt::format("{} bytes", memory.move_bytes()), "there is no memory to move it",
                             "take a smaller case, or a machine with more memory"});
}

// Rule R6: a plugin that works on another device goes back to the one it was called on.
void session::check_current_device(std::vector<violation>& found) const {
  if (!device_ || device_->is_current()) return;
  found.push_back({violation::kind::current_device, std::nullopt, "run", "another CUDA context is current"});
  device_->make_current();
}

bool session::launch_each(const bound_case& c, device_image* image, const run_spec& how, planned& on, observation& seen,
                          session_events& events) {
  const device_stream stream(device_);
  captured_graph graph(device_);
  const bool replays = how.graph && image != nullptr;
  for (std::int32_t i = 0; i < how.launches; ++i) {
    if (image != nullptr) image->upload();
    const run_arguments args(c, false, where_, image);
    const auto enqueue = [&] { return table_->run(on.plan, args.get(), on.data(), stream.get()); };
    on.make_dirty(i, how.poison_seed);
    if (replays && i == 0) {
      // What is loaded at first use is loaded now: no capture allows it.
      const call_end first = catching(enqueue);
      stream.wait();
      if (!first.threw && first.status == MSABENCH_OK && !graph.capture(stream.get(), enqueue)) {
        finish(seen, "run", {});
        seen.result = outcome::nonsense;
        seen.message = "run can't be captured into a graph: " + graph.why();
        return false;
      }
      image->upload();
      on.make_dirty(i, how.poison_seed);
    }
    launch_report report{i, 0, 0, {}};
    events.entering("run");
    // Rule R3: what the first launch may still set up, a later one finds ready.
    memory_limiter* frozen = how.limit_memory && i > (how.rehearse ? 1 : 0) ? limits_ : nullptr;
    const call_end end = watched("run", report.violations, frozen, [&] {
      if (!graph.captured()) return enqueue();
      graph.launch(stream.get());
      return std::int32_t{MSABENCH_OK};
    });
    // What it has enqueued is part of this launch, however run ended.
    check_current_device(report.violations);
    stream.wait();
    const bool is_last = i + 1 == how.launches || end.threw || end.status != MSABENCH_OK;
    if (image != nullptr) image->download(is_last);
    if (const std::string where = on.damage(); !where.empty())
      report.violations.push_back({violation::kind::out_of_bounds, std::nullopt, "run", where});
    report.status = end.status;
    const bool ok = finish(seen, "run", end);
    if (end.threw) {
      seen.violations.insert(seen.violations.end(), report.violations.begin(), report.violations.end());
      return false;
    }
    if (!events.launched({&report, 1}) || !ok) return false;
    if (i > 0 || how.launches == 1 || replays) continue;
    if (on.memory) move(*on.memory);
    if (image != nullptr) image->move_elsewhere();
  }
  return true;
}

void session::launch_pair(const bound_case& c, device_image* image, const run_spec& how, planned& first,
                          planned& second, observation& seen, session_events& events) {
  // Enough rounds that the two really overlap, each started together.
  constexpr int rounds = 4;
  std::array<planned*, 2> plans = {&first, &second};
  std::array<call_end, 2> ends;
  std::array<std::string, 2> texts;  // last_error belongs to the thread that called
  std::array<launch_report, 2> reports;
  std::atomic<int> arrived{0};
  std::atomic<bool> failed{false};
  const process_state before;
  events.entering("run");
  const auto launch = [&](std::size_t which) {
    reports[which] = {how.launches + static_cast<std::int32_t>(which), static_cast<std::int32_t>(which), 0, {}};
    const floating_point_mode mode;
    if (device_) device_->make_current();
    const device_stream stream(device_);
    const run_arguments args(c, which == 1, where_, image);
    for (int round = 0; round < rounds; ++round) {
      plans[which]->make_dirty(reports[which].index, how.poison_seed);
      arrived.fetch_add(1);
      while (arrived.load() < 2 * (round + 1) && !failed.load()) std::this_thread::yield();
      if (failed.load()) return;
      ends[which] =
          catching([&] { return table_->run(plans[which]->plan, args.get(), plans[which]->data(), stream.get()); });
      stream.wait();
      reports[which].status = ends[which].status;
      if (const std::string what = mode.restore(); !what.empty() && reports[which].violations.empty())
        reports[which].violations.push_back({violation::kind::floating_point_mode, std::nullopt, "run", what});
      if (ends[which].threw || ends[which].status != MSABENCH_OK) {
        texts[which] = error_text(ends[which]);
        failed.store(true);
      }
    }
    if (const std::string where = plans[which]->damage(); !where.empty())
      reports[which].violations.push_back({violation::kind::out_of_bounds, std::nullopt, "run", where});
  };
  std::array<std::optional<cuda_failure>, 2> lost;
  const auto launch_or_tell = [&](std::size_t which) {
    try {
      launch(which);
    } catch (const cuda_failure& f) {
      lost[which] = f;
      failed.store(true);
    }
  };
  if (image != nullptr) image->upload();
  std::thread other(launch_or_tell, std::size_t{1});
  launch_or_tell(0);
  other.join();
  for (const auto& failure : lost)
    if (failure) throw cuda_failure{*failure};
  if (image != nullptr) image->download(true);
  before.restore("run", reports[0].violations);
  const std::size_t worse = ends[1].threw || ends[1].status != MSABENCH_OK ? 1 : 0;
  if (!finish(seen, "run", ends[worse], texts[worse])) seen.message += " (while two plans ran at the same time)";
  if (!ends[worse].threw) events.launched(reports);
}

void session::destroy(planned& p, observation& seen, session_events& events) {
  if (!p.plan) return;
  events.entering("destroy");
  const call_end end = watched("destroy", seen.violations, nullptr, [&] {
    table_->destroy(p.plan);
    return std::int32_t{MSABENCH_OK};
  });
  p.plan = nullptr;
  // An earlier failure is the one to tell.
  if (end.threw && seen.result == outcome::completed) finish(seen, "destroy", end);
}

bool session::launch_all(const bound_case& c, const run_spec& how, planned& first, planned& second, observation& seen,
                         session_events& events) {
  if (!make_plan(c.agreed, first, seen, events) || !make_workspace(first, seen, events)) return false;
  std::optional<device_image> image;
  if (device_) image.emplace(device_, c);
  device_image* const on_device = image ? &*image : nullptr;
  if (!launch_each(c, on_device, how, first, seen, events)) return false;
  if (!how.second_plan || !make_plan(c.agreed, second, seen, events) || !make_workspace(second, seen, events))
    return false;
  launch_pair(c, on_device, how, first, second, seen, events);
  return true;
}

observation session::execute(const bound_case& c, const run_spec& how, session_events& events) {
  if (const std::string not_done = unsupported_run_spec(how); !not_done.empty()) throw suite_error(not_done);
  observation seen = begin();
  if (seen.result != outcome::completed) return seen;
  planned first, second;
  try {
    launch_all(c, how, first, second, seen, events);
  } catch (const cuda_failure& f) {
    // Whatever failed (a copy, a wait), nothing that the device holds can be relied on.
    seen.result = outcome::device_lost;
    seen.entry = "run";
    seen.message = f.text;
  }
  // After an exception the plans are in no state that destroy could be held to, and a lost device answers nothing.
  if (seen.result == outcome::crashed || seen.result == outcome::device_lost) return seen;
  destroy(second, seen, events);
  destroy(first, seen, events);
  return seen;
}

std::unique_ptr<prepared_plan> session::prepare(const problem& agreed, bool graph, observation& seen,
                                                session_events& events) {
  seen = begin();
  if (seen.result != outcome::completed) return nullptr;
  planned p;
  if (make_plan(agreed, p, seen, events) && make_workspace(p, seen, events))
    return make_timed_plan({table_, p.plan, std::move(p.memory), where_, device_, graph,
                            [this](observation& to, const call_end& end) { finish(to, "run", end); },
                            [this](std::vector<violation>& found) { check_current_device(found); }});
  if (seen.result != outcome::crashed) destroy(p, seen, events);
  return nullptr;
}

}  // namespace

std::unique_ptr<plugin_session> plugin_session::load(const file& what, device where, int threads,
                                                     session_events& events, memory_limiter* limits) {
  return std::make_unique<session>(what, where, threads, events, limits);
}

std::string unsupported_run_spec(const run_spec& how) {
  if (how.timing.enabled) return "this executor does not time launches";
  if (how.streams != 1) return "this executor launches on one stream";
  if (how.launches < 1) return "a run needs at least one launch";
  return {};
}

}  // namespace msabench
