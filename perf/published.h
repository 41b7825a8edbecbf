// SPDX-License-Identifier: Apache-2.0
// Figures that others have published and anchors measured before, as data: perf/published.json. They stand beside results and never
// enter one.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace msabench {

struct published_figure {
  std::string id;    // unique
  std::string what;  // what was measured or counted
  // prefill, decode or training, and the context in tokens; absent where the figure has none.
  std::optional<std::string> phase;
  std::optional<std::int64_t> context, chunk, batch;
  double value = 0;
  std::optional<double> value_high;  // the upper end, where a range was published
  std::string unit;                  // "x", "ms", "us", "TFLOP/s", "fraction"
  std::string machine;
  // What a ratio compares with: same-model (full attention with the same heads, same machine), previous-model (48 / 8 heads),
  // other-kernel; none: the value is absolute. The baselines are never mixed in a table.
  std::string baseline;
  std::string against;  // the same in words
  std::string source, note;
};

// In the order of the file.
const std::vector<published_figure>& published_figures();
// Reads such a file; usage_error names the figure and the field.
std::vector<published_figure> parse_published(std::string_view field, const nlohmann::json& in);
nlohmann::json to_json(const published_figure& f);

}  // namespace msabench
