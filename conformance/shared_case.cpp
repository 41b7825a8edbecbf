// SPDX-License-Identifier: Apache-2.0
#include "conformance/shared_case.h"

#include <chrono>
#include <nlohmann/json.hpp>

namespace msabench {

namespace {

std::string text_of(const problem& p) { return nlohmann::json(p).dump(); }

class stopwatch {
 public:
  explicit stopwatch(double& into) : into_(into) {}
  ~stopwatch() { into_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  double& into_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace

input_set& shared_case::inputs(const problem& agreed) {
  std::string problem = text_of(agreed);
  for (made_inputs& each : inputs_)
    if (each.problem == problem) return each.set;
  const stopwatch time(seconds_);
  inputs_.push_back({std::move(problem), make_inputs(case_, agreed)});
  return inputs_.back().set;
}

shared_case::expected_outputs& shared_case::expected(const judge::subject& what,
                                                     const std::vector<std::int64_t>& rows) {
  std::string problem = text_of(what.agreed);
  std::string declaration = nlohmann::json(what.declared).dump() + nlohmann::json(what.delivers).dump();
  for (made_expectation& each : expected_)
    if (each.problem == problem && each.declaration == declaration && each.rows == rows) return each.outputs;
  const stopwatch time(seconds_);
  expected_.push_back({std::move(problem), std::move(declaration), rows, {judge::expect(what, rows), std::nullopt}});
  return expected_.back().outputs;
}

void shared_case::discard(const problem& agreed) {
  const std::string problem = text_of(agreed);
  std::erase_if(expected_, [&](const made_expectation& each) { return each.problem == problem; });
  std::erase_if(inputs_, [&](const made_inputs& each) { return each.problem == problem; });
}

}  // namespace msabench
