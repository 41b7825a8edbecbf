// SPDX-License-Identifier: Apache-2.0
// Bars of text, for terminals and for Markdown's code blocks. Private to reports.
#pragma once

#include <string>
#include <vector>

namespace msabench {

struct bar {
  std::string label;
  double value = 0;  // finite, not negative
  std::string text;  // behind the bar
  double mark = -1;  // a place on the same scale that is shown by a |, over the bar too; negative: none
};

// One line a bar, labels to the left, all on one scale that ends at `most` (or at the largest value, if that is larger);
// bars are `width` characters at the most. A value above 0 is never without a bar.
// Labels take at least `label_width`, so that charts below each other can begin at one column.
std::string bar_chart(const std::vector<bar>& bars, double most, std::size_t label_width = 0, std::size_t width = 40);

}  // namespace msabench
