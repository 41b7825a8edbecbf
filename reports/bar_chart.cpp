// SPDX-License-Identifier: Apache-2.0
#include "reports/bar_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

namespace msabench {
namespace {

// A bar of so many eighths of a character.
std::string blocks(std::int64_t eighths, std::size_t width, std::size_t mark) {
  constexpr std::string_view parts[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  std::string text;
  for (std::size_t at = 0; at < width; ++at) {
    const std::int64_t left = eighths - static_cast<std::int64_t>(8 * at);
    if (at == mark)
      text += "|";
    else if (left >= 8)
      text += "█";
    else if (left > 0)
      text += parts[left];
    else
      text += " ";
  }
  return text;
}

}  // namespace

std::string bar_chart(const std::vector<bar>& bars, double most, std::size_t label_width, std::size_t width) {
  std::size_t widest = label_width;
  for (const bar& b : bars) {
    most = std::max({most, b.value, b.mark});
    widest = std::max(widest, b.label.size());
  }
  std::string text;
  for (const bar& b : bars) {
    const double scale = most > 0 ? static_cast<double>(width) / most : 0;
    auto eighths = static_cast<std::int64_t>(std::llround(8 * scale * b.value));
    if (b.value > 0) eighths = std::max<std::int64_t>(1, eighths);
    const std::size_t mark =
        b.mark < 0 ? width : std::min(width - 1, static_cast<std::size_t>(std::llround(scale * b.mark)));
    text += fmt::format("{:<{}}  {} {}\n", b.label, widest, blocks(eighths, width, mark), b.text);
  }
  return text;
}

}  // namespace msabench
