// SPDX-License-Identifier: Apache-2.0
// Whether times were taken at one clock of the GPU. Pure functions; where nobody counted clocks there is nothing to say.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/samples.h"

namespace msabench {

// How far the median clocks of two items may be apart for their times to be compared. A ratio of two medians, each known to
// 1 %, is known to 2 %, and clocks go in steps of 15 MHz, 1 % of what a loaded GPU runs at: a larger difference changes a
// ratio by more than it is uncertain by.
inline constexpr double most_clock_difference = 0.03;

// Samples below this share of their median clock are flagged. The timer that the clock is counted against may be off by
// one of its microseconds in fifty, for the sample and for the median, and the clock by one step: 5 % are no accident.
inline constexpr double low_clock_share = 0.95;

// Numbers of the samples that began below low_clock_share of the median.
std::vector<std::int64_t> low_clock_samples(std::span<const double> sm_mhz);

// Why the times of the two are not compared; empty: they may be, or one of them has no clocks.
std::string clocks_apart(const samples& a, const samples& b);

}  // namespace msabench
