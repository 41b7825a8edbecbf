// SPDX-License-Identifier: Apache-2.0
#include "core/json.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>
#include <limits>
#include <set>
#include <vector>

#include "core/error.h"

namespace msabench {

using nlohmann::json;

std::string sentence(std::string_view text) {
  constexpr std::size_t most_chars = 2000;  // text that is longer says nothing more
  return one_line(text, most_chars);
}

json sentences(const std::vector<std::string>& texts) {
  auto out = json::array();
  for (const auto& text : texts) out.push_back(sentence(text));
  return out;
}

json finite_or_tag(double x) { return std::isfinite(x) ? json(x) : json(nullptr); }

std::string_view non_finite_tag(double x) noexcept {
  if (std::isnan(x)) return "nan";
  if (std::isinf(x)) return x > 0 ? "inf" : "-inf";
  return {};
}

void put_number(json& obj, std::string_view key, double x) {
  obj[std::string(key)] = finite_or_tag(x);
  const std::string tag_key = fmt::format("{}_tag", key);
  if (std::isfinite(x)) {
    obj.erase(tag_key);
  } else {
    obj[tag_key] = std::string(non_finite_tag(x));
  }
}

double get_number(const json& obj, std::string_view key) {
  const auto value = obj.find(std::string(key));
  if (value != obj.end() && value->is_number()) return value->get<double>();
  const auto tag = obj.find(fmt::format("{}_tag", key));
  if (value != obj.end() && value->is_null() && tag != obj.end() && tag->is_string()) {
    for (const double x : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(),
                           -std::numeric_limits<double>::infinity()})
      if (tag->get_ref<const std::string&>() == non_finite_tag(x)) return x;
  }
  throw suite_error(fmt::format("JSON key {} holds no number", key));
}

namespace {

struct refused {
  std::string problem;
};

// Follows the parser's events; throws refused at the first excess of depth or repeated key.
class structure_guard {
 public:
  explicit structure_guard(int max_depth) : max_depth_(max_depth) {}

  bool operator()(int depth, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
        keys_.emplace_back();
        [[fallthrough]];
      case json::parse_event_t::array_start:
        if (depth >= max_depth_) throw refused{fmt::format("is nested deeper than {} levels", max_depth_)};
        break;
      case json::parse_event_t::object_end:
        keys_.pop_back();
        break;
      case json::parse_event_t::key:
        if (!keys_.back().insert(parsed.get<std::string>()).second)
          throw refused{fmt::format("has the key \"{}\" twice in one object", parsed.get<std::string>())};
        break;
      default:
        break;
    }
    return true;
  }

 private:
  int max_depth_;
  std::vector<std::set<std::string>> keys_;
};

// "[json.exception.parse_error.101] parse error at line 1, column 2: ..." without the library's prefix.
std::string plain_message(const json::exception& e) {
  const std::string_view text = e.what();
  const std::size_t end = text.find("] ");
  return std::string(end == std::string_view::npos ? text : text.substr(end + 2));
}

}  // namespace

json parse_json(std::string_view field, std::string_view source, std::string_view text, const json_limits& limits) {
  if (text.size() > limits.max_bytes)
    bad_input(field, source, fmt::format("is longer than {} bytes", limits.max_bytes), "give less");
  std::string problem;
  try {
    structure_guard guard(limits.max_depth);
    // The library copies the callback; the reference keeps one state.
    return json::parse(text, std::ref(guard));
  } catch (const refused& r) {
    problem = r.problem;
  } catch (const json::exception& e) {
    problem = "is not valid JSON: " + plain_message(e);
  }
  bad_input(field, source, problem, "give plain JSON");
}

json parse_json(std::string_view field, std::string_view text) { return parse_json(field, "", text); }

}  // namespace msabench
