// SPDX-License-Identifier: Apache-2.0
// The workspace of a run, cut into arrays. Without memory the same cuts only count bytes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace msabench::cuda {

class workspace_cutter {
 public:
  explicit workspace_cutter(void* memory) : base_(static_cast<char*>(memory)) {}

  /// The next `count` elements, aligned to 256 bytes. A double, since sizes that no machine has must not wrap around.
  template <class T>
  T* take(double count) {
    // Nobody runs with what a double does not count exactly.
    T* const taken = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + static_cast<std::int64_t>(bytes_));
    constexpr double line = 256;
    const double asked = count * static_cast<double>(sizeof(T));
    const double lines =
        asked / line < 1e15 ? static_cast<double>(static_cast<std::int64_t>(asked / line)) : asked / line;
    bytes_ += (lines + 1) * line;
    return taken;
  }

  double bytes() const { return bytes_; }

 private:
  char* base_;
  double bytes_ = 0;
};

}  // namespace msabench::cuda
