// SPDX-License-Identifier: Apache-2.0
// Tiles of keys one after the other, each brought near while the one before it is computed.
#pragma once

#include <cstdint>
#include <utility>

#include "kernels/cpu/attention.h"

namespace msabench::cpu {

/// Call announce for the first tile, then take, announce for the next one if there is one, and attend, any number of
/// times. What it is made of must outlive it.
class tile_walk {
 public:
  tile_walk(const attention_caches& caches, const key_list& keys, const attention_scratch& scratch)
      : caches_(caches), keys_(keys), scratch_(scratch) {}

  /// `head` is counted from the list's own on.
  void announce(const key_range& next, std::int32_t head) {
    key_list keys = keys_;
    keys.kv_head += head;
    gather(caches_.keys, keys, next, scratch_.ahead.keys);
    if (caches_.values.data != nullptr) gather(caches_.values, keys, next, scratch_.ahead.values);
    ahead_ = next.count;
  }

  /// Takes the tile that was announced.
  void take() {
    std::swap(scratch_.addresses, scratch_.ahead);
    ahead_ = 0;
  }

  /// Runs of tokens against the tile taken, which is `range`; adds to `to`.
  void attend(const query_rows& rows, const key_range& range, const token_range* runs, std::int32_t count,
              const partial_rows& to) {
    attend_tile(caches_, rows, range, runs, count, ahead_, scratch_, to);
  }

 private:
  const attention_caches& caches_;
  const key_list& keys_;
  attention_scratch scratch_;
  std::int32_t ahead_ = 0;
};

}  // namespace msabench::cpu
