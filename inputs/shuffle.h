// SPDX-License-Identifier: Apache-2.0
// Fisher-Yates with a given source of 32-bit words: the same permutation on every machine, unlike std::shuffle.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

namespace msabench {

// word(i), i < items.size() - 1, are the random words that it takes. The bias of the remainder is below 2^-18 at 16 Ki
// items.
template <class Item, class Word>
void shuffle(std::span<Item> items, Word word) {
  for (std::size_t left = items.size(); left > 1; --left) {
    const std::size_t i = items.size() - left;
    std::swap(items[i], items[i + static_cast<std::size_t>(word(static_cast<std::int64_t>(i))) % left]);
  }
}

}  // namespace msabench
