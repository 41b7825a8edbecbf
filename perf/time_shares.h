// SPDX-License-Identifier: Apache-2.0
// How the time of a point is shared once its inputs are there.
#pragma once

namespace msabench {

struct time_wishes {
  double own_s = 0;     // the point's part of the budget, less what copies and verification take; may be negative
  double left_s = 0;    // of the whole budget, likewise
  double fewest_s = 0;  // the fewest samples that count
  double least_in_a_row_s = 0;   // a run of launches in a row of each item; 0: none is wanted
  double wanted_in_a_row_s = 0;  // all runs of launches in a row
  bool at_any_price = false;     // of a point without figures that are whole nothing can be said
};

// Of samples, which take turns, and of runs of launches back to back.
struct time_shares {
  double samples_s = 0, in_a_row_s = 0;
};

// More than the point's part where a figure would be missing otherwise, as far as the whole budget has it. Back to back gets half,
// or what a run of each item needs.
time_shares share_time(const time_wishes& wishes);

}  // namespace msabench
