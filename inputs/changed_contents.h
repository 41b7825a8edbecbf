// SPDX-License-Identifier: Apache-2.0
// Other contents in the tensors of a case: what one plan meets from launch to launch when a graph is replayed, and what a
// caller must never hand over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "inputs/input_set.h"

namespace msabench {

// Duties of the caller (docs/contract.md section 9) that contents can break.
enum class duty { lengths_ascend, pages_exist, blocks_exist, queries_are_keys };
inline constexpr duty every_duty[] = {duty::lengths_ascend, duty::pages_exist, duty::blocks_exist,
                                      duty::queries_are_keys};
const char* breach_of(duty d);  // "lengths that decrease"

// Changes a set in place, and has it as it was at the latest when it goes. Sizes and checksum of the set follow.
class changed_contents {
 public:
  explicit changed_contents(input_set& set) : set_(set), rows_(set.sizes.t), checksum_(set.inputs_checksum) {}
  ~changed_contents() { restore(); }
  changed_contents(const changed_contents&) = delete;
  changed_contents& operator=(const changed_contents&) = delete;

  void restore();

  // The first sequence alone, or the first half of its rows where it is the only one; keys end with the rows, so that
  // each row that is left sees what it saw. Returns their number. Of a set with lengths.
  std::int64_t shorten();

  // The same sequences from the last to the first: lengths, tables and everything that counts tokens or packed keys.
  // Returns where each row is now; nothing (and nothing is changed) where there is one sequence, or keys would have to be
  // moved that are many or lie between others that nobody may read.
  std::vector<std::int64_t> reverse();

  // What shorten and reverse change.
  std::vector<slot> changing_slots() const;

  // False, and nothing is changed: these contents have no such duty.
  bool breach(duty d);

 private:
  // Index i of `axis` becomes index to[i].
  struct move {
    slot where;
    int axis;
    std::vector<std::int64_t> to;
  };
  std::vector<move> moves_of_reverse() const;  // empty: it changes nothing

  buffer* changing(slot where);  // remembered as it is; nullptr: absent or empty
  void changed();

  input_set& set_;
  const std::int64_t rows_;
  const input_checksums checksum_;
  std::vector<std::pair<const buffer*, std::vector<std::byte>>> before_;
};

}  // namespace msabench
