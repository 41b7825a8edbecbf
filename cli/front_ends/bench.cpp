// SPDX-License-Identifier: Apache-2.0
// msabench_bench: the figures of `msabench perf` as Google Benchmark benchmarks, with its filters, repetitions and
// formats. One benchmark a point and operator. Its one iteration is a whole timed run in the worker, under the rules of
// `msabench perf`, and its time is the median of that run's samples.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <string_view>

#include "cli/front_ends/environment.h"
#include "core/environment_error.h"
#include "core/error.h"
#include "core/units.h"
#include "core/verdict.h"
#include "host/conditions.h"
#include "host/implementation.h"
#include "host/interrupt.h"
#include "perf/busy.h"
#include "perf/session.h"

namespace msabench {
namespace {

constexpr const char* help = R"(msabench_bench: the figures of `msabench perf` as Google Benchmark benchmarks.

  MSABENCH_IMPL       name or file of the implementation (required to run)
  MSABENCH_SUITE      decode (default), prefill, prefill_whole, crossover, topk, layer, training, vision
  MSABENCH_CONTEXT    tokens of each sequence, a list with commas; default of the suite
  MSABENCH_BATCH      sequences of a call, default 1
  MSABENCH_SELECTION  random (default), realistic, shared64
  MSABENCH_BUDGET_S   seconds of each benchmark, default 20
  MSABENCH_BUSY       refuse (default): no time from a busy machine; tell: times with a remark
  MSABENCH_SEED, MSABENCH_DEVICE, MSABENCH_THREADS, MSABENCH_TIMEOUT_S   as the options of `msabench perf`

A time is given only where the outputs of the timed run were judged right and the machine was quiet enough to tell.
Exit codes are those of `msabench perf`: 0 all measured, 1 failed, 2 unverified, 3 nothing measured, 4 busy.

)";

// What the benchmarks of this process share.
struct bench_state {
  perf_setup setup;
  std::unique_ptr<perf_session> session;
  perf_run seen;  // points of all benchmarks that ran
};

perf_setup setup_of(const front_end_setup& chosen, const suite_request& what) {
  perf_setup setup;
  setup.what = what;
  setup.budget_s = parse_seconds("MSABENCH_BUDGET_S", variable("MSABENCH_BUDGET_S").value_or("20"));
  setup.tell_busy =
      from_variable("MSABENCH_BUSY", [] { return tells_when_busy(variable("MSABENCH_BUSY").value_or("refuse")); });
  setup.options = {"MSABENCH_BUDGET_S", "MSABENCH_BUSY=tell"};
  setup.timeout_s = chosen.timeout_s;
  setup.threads = chosen.how.threads > 0 ? chosen.how.threads : available_cores();
  setup.last_level_cache_bytes = last_level_cache_bytes();
  setup.available_memory_bytes = available_memory_bytes();
  return setup;
}

suite_request request_from_environment() {
  suite_request what;
  what.suite =
      from_variable("MSABENCH_SUITE", [] { return parse_suite(variable("MSABENCH_SUITE").value_or("decode")); });
  what.contexts = parse_sizes("MSABENCH_CONTEXT", variable("MSABENCH_CONTEXT").value_or(""));
  what.batch = parse_size("MSABENCH_BATCH", variable("MSABENCH_BATCH").value_or("1"));
  what.selection = from_variable("MSABENCH_SELECTION",
                                 [] { return parse_selection(variable("MSABENCH_SELECTION").value_or("random")); });
  what.seed = seed_from_environment();
  return what;
}

void report(benchmark::State& state, const perf_item& item) {
  constexpr double us = 1e-6;
  if (item.state != item_state::measured || !item.figures) {
    state.SkipWithError(fmt::format("{}: {}", name(item.state), item.reason).c_str());
    return;
  }
  const perf_figures& f = *item.figures;
  state.SetIterationTime(item.time_us.median * us);
  state.counters["samples"] = static_cast<double>(item.time_us.count);
  state.counters["quartile1_s"] = item.time_us.first_quartile * us;
  state.counters["quartile3_s"] = item.time_us.third_quartile * us;
  state.counters["FLOP/s"] = f.flops_per_s;
  state.counters["bytes/s"] = f.bytes_per_s;
  if (f.efficiency) state.counters["roofline"] = *f.efficiency;
  std::string label = fmt::format("{} of {} rows judged right", item.rows_checked, item.rows_total);
  for (const auto& remark : item.remarks) label += "; " + remark;
  state.SetLabel(label);
}

// The run of one operator at one point.
perf_run timed(bench_state& shared, const suite_point& point, op operation) {
  perf_setup setup = shared.setup;
  setup.what.contexts = {point.context};
  setup.what.operators = {operation};
  perf_run run;
  run.implementations = shared.session->implementations();
  measure(setup, shared.session->executors(), {[](const perf_run&) {}, [](const perf_point&) {}}, run);
  return run;
}

void run_benchmark(benchmark::State& state, bench_state& shared, const suite_point& point, op operation) {
  perf_run run;
  std::string refused;
  for (auto _ : state) {
    if (interrupted()) {
      refused = "interrupted";
    } else {
      try {
        run = timed(shared, point, operation);
      } catch (const environment_error& e) {
        refused = e.what();
        run.points.emplace_back().items.emplace_back().state = item_state::busy;
      }
    }
    for (const auto& p : run.points)
      for (const auto& item : p.items)
        if (refused.empty()) report(state, item);
    if (run.points.empty() && refused.empty()) refused = "not-run: the budget ended first";
    if (!refused.empty()) state.SkipWithError(refused.c_str());
  }
  for (auto& p : run.points) shared.seen.points.push_back(std::move(p));
}

std::size_t add_benchmarks(bench_state& shared) {
  std::size_t all = 0;
  for (const suite_point& point : plan_suite(shared.setup.what))
    for (const case_spec& c : point.cases) {
      ++all;
      benchmark::RegisterBenchmark(
          name(c).c_str(),
          [&shared, point, o = c.operation](benchmark::State& state) { run_benchmark(state, shared, point, o); })
          ->UseManualTime()
          ->Iterations(1)
          ->Unit(benchmark::kMicrosecond);
    }
  return all;
}

int run(int argc, char** argv) {
  bool only_lists = false;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (argument == "--help") fmt::print("{}", help);
    only_lists |= argument.starts_with("--benchmark_list_tests") && argument != "--benchmark_list_tests=false";
  }
  std::fflush(stdout);
  benchmark::Initialize(&argc, argv);
  if (argc > 1) bad_input("argument", argv[1], "unknown", "see msabench_bench --help");
  bench_state shared;
  shared.setup.what = request_from_environment();
  if (!only_lists) {
    const front_end_setup chosen = setup_from_environment();
    shared.setup = setup_of(chosen, shared.setup.what);
    install_interrupt_handler();
    shared.session = std::make_unique<perf_session>(std::span(&chosen.impl, 1), chosen.how, shared.setup);
  }
  const std::size_t all = add_benchmarks(shared);
  const std::size_t ran = benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  if (only_lists) return exit_code::ok;
  if (ran == 0) {
    fmt::print(stderr, "msabench_bench: nothing ran: no benchmark of {} matches; see --benchmark_list_tests\n", all);
    return exit_code::nothing_verified;
  }
  shared.seen.partial = interrupted();
  return exit_code_of(shared.seen);
}

}  // namespace
}  // namespace msabench

int main(int argc, char** argv) {
  return msabench::guarded("msabench_bench", [&] { return msabench::run(argc, argv); });
}
