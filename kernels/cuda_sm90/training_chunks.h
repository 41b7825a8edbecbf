// SPDX-License-Identifier: Apache-2.0
// Training takes a batch in chunks of tokens, so that what is kept of readings has a bound. A reading is a (token, KV head)
// and a block that it reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

namespace msabench::cuda_sm90 {

// Tests have little ones, so that small cases go through several, and lists through several pieces.
#ifndef MSABENCH_MOST_CHUNK
#define MSABENCH_MOST_CHUNK std::numeric_limits<std::int64_t>::max()
#endif
#ifndef MSABENCH_LEAST_PIECE
#define MSABENCH_LEAST_PIECE 512
#endif

/// Tokens of a piece of a list of readers: short enough for multiprocessors to end together.
inline constexpr std::int64_t least_piece = MSABENCH_LEAST_PIECE;

class training_chunks {
 public:
  training_chunks(std::int64_t tokens, std::int64_t kept_readings, std::int64_t readings_of_token)
      : all_(std::max<std::int64_t>(1, tokens)),
        room_(std::clamp<std::int64_t>(kept_readings / std::max<std::int64_t>(1, readings_of_token), 1, all_)) {}

  std::int64_t tokens() const { return std::min<std::int64_t>(room_, MSABENCH_MOST_CHUNK); }
  std::int64_t count() const { return (all_ + tokens() - 1) / tokens(); }
  /// Chunks of fewer tokens would spend their time between kernels.
  bool worthwhile() const { return room_ >= std::min<std::int64_t>(128, all_); }

 private:
  std::int64_t all_, room_;
};

}  // namespace msabench::cuda_sm90
