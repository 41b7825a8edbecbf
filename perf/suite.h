// SPDX-License-Identifier: Apache-2.0
// What a speed run times: points (a phase at a context and batch), each with the operators that have inputs there. Driven
// by the registry of cases: an operator appears here once its inputs can be made.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/case.h"
#include "core/perf_record.h"
#include "core/work.h"

namespace msabench {

enum class perf_suite { decode, prefill, prefill_whole, crossover, topk, layer, training, vision };
std::string_view name(perf_suite s);
perf_suite parse_suite(std::string_view text);  // usage_error, field "--suite"

enum class perf_selection { random, realistic, shared64 };
std::string_view name(perf_selection s);
perf_selection parse_selection(std::string_view text);  // usage_error, field "--selection"

struct suite_request {
  perf_suite suite = perf_suite::decode;
  std::vector<std::int64_t> contexts;  // empty: those of the suite; vision: patches of each video
  std::int64_t batch = 1;
  // prefill: the last so many tokens of each context; 0: all of them. prefill_whole and topk: 0 is 8K.
  std::int64_t chunk = 0;
  perf_selection selection = perf_selection::random;
  std::string shape = "m3", types = "bf16", layout = "paged";  // as in case names
  scale_form fp8 = scale_form::none;                           // of operators with scaled operands: these are e4m3
  scale_form fp8_index = scale_form::none;                     // of the index branch alone
  bool grad16 = false;                                         // gradients in the storage type, not in fp32
  std::vector<op> operators;                                   // only these; empty: all of the suite
  std::uint64_t seed = 0;
};

struct suite_point {
  std::string phase;
  std::int64_t query_tokens = 0, context = 0, batch = 1;
  std::vector<case_spec> cases;           // one for each operator
  std::optional<std::int32_t> topk = {};  // instead of the shape's
};

// Those asked for, or those of the suite; ascending, each once.
std::vector<std::int64_t> contexts_of(const suite_request& request);
// Tokens of a chunk, in suites that go by chunks.
std::int64_t chunk_of(const suite_request& request);

// Ascending contexts. usage_error for contexts, shapes, types that no case can have.
std::vector<suite_point> plan_suite(const suite_request& request);

// The work of one call of the case; `selection` where its ids are known.
work work_of_case(const case_spec& c, const problem& p, std::optional<selection_counts> selection = {});

// The same as a report has it, with the least bytes of a selection that is not known.
perf_work least_work(const case_spec& c, const problem& p, std::optional<selection_counts> selection = {});

// Memory that inputs and outputs of one set take.
double set_bytes(const case_spec& c, const problem& p);

// Rounds of a point until an input set may be used again: what is touched in between is at least `distance_bytes`. Each
// round touches `round_bytes`. At least 1.
std::int64_t rounds_until_reuse(double round_bytes, double distance_bytes);

}  // namespace msabench
