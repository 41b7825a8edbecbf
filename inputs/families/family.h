// SPDX-License-Identifier: Apache-2.0
// Families of inputs: what the values of a case are. One file per family; a new one adds a row to the table of its
// operator in registry.cpp. Families write values; where the values lie, what is poison and what stays a hole is
// decided elsewhere.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/case.h"
#include "core/generator.h"
#include "core/problem.h"
#include "inputs/batch.h"
#include "inputs/selection.h"

namespace msabench {

// What a family of attention knows: `attend`, `msa`, and `dense` and `vit_attend`, whose rows select all that they see. The references outlive the family object.
struct attend_context {
  const case_spec& definition;
  const problem& agreed;
  const batch& rows;
  const selection& chosen;
};

struct key_place {
  std::int64_t sequence = 0, key = 0, head = 0;  // KV head
};

// Values of q, k and v. The default is independent normal values (core/generator.h) everywhere. Functions are called
// from several threads at once and depend on their arguments alone.
class attend_family {
 public:
  virtual ~attend_family() = default;

  // Power of two on the normal values of q; 0: q is zero.
  virtual double q_scale() const { return 1; }

  // Writes the `d` values of one key in storage type to dst, which holds its normal values; or leaves them.
  virtual void write_k(const key_place&, void*) const {}
  virtual void write_v(const key_place&, void*) const {}

  // Writes the values of the query heads of one (row, KV head), [G, d] in storage type, over the normal ones; or leaves
  // them.
  virtual void write_q(std::int64_t, std::int64_t, void*) const {}

  // True where v names the place of a key: then keys that nobody should read hold their values too instead of poison,
  // so that a wrong address is named and not only noticed.
  virtual bool names_places() const { return false; }

  // True where the functions above leave all values as they are.
  virtual bool writes_nothing() const { return false; }
};

// Channel of `code` for a KV head: codes of neighbouring heads are 17 channels apart.
inline std::int64_t code_channel(std::int64_t code, std::int64_t head, std::int64_t d) {
  return (code + 17 * head) % d;
}

std::unique_ptr<attend_family> make_random(const attend_context&);
std::unique_ptr<attend_family> make_block_code(const attend_context&);
std::unique_ptr<attend_family> make_key_code(const attend_context&);
std::unique_ptr<attend_family> make_carry(const attend_context&);
std::unique_ptr<attend_family> make_needle(const attend_context&);
std::unique_ptr<attend_family> make_cancel(const attend_context&);
std::unique_ptr<attend_family> make_offset(const attend_context&);
std::unique_ptr<attend_family> make_hot_flat(const attend_context&);
std::unique_ptr<attend_family> make_hot_peaked(const attend_context&);
std::unique_ptr<attend_family> make_ramp(const attend_context&);
std::unique_ptr<attend_family> make_recorded(const attend_context&);

struct attend_family_info {
  std::string_view name;
  std::unique_ptr<attend_family> (*make)(const attend_context&);
  bool shares_pages;  // values of a key depend on nothing that differs between sequences
  std::string_view
      shares_blocks_variant;  // this variant wants the same blocks in every row of a sequence; "-": none does
};
// Throws suite_error for an unknown family.
const attend_family_info& attend_family_of(const case_spec& c);

// What a family of the index branch knows. The references outlive the family object.
struct index_context {
  const case_spec& definition;
  const problem& agreed;
  const batch& rows;
};

// Values of q_idx and k_idx; as attend_family, of one head of keys.
class index_family {
 public:
  virtual ~index_family() = default;
  virtual double q_scale() const { return 1; }
  // Writes the di values of one key, or leaves the normal ones.
  virtual void write_k(const key_place&, void*) const {}
  // Writes the queries [Hi, di] of a row, or leaves the normal ones.
  virtual void write_q(std::int64_t, void*) const {}
  // True where these leave all values as they are.
  virtual bool writes_nothing() const { return false; }
};

std::unique_ptr<index_family> make_random_index(const index_context&);
std::unique_ptr<index_family> make_index_code(const index_context&);
std::unique_ptr<index_family> make_negative(const index_context&);
std::unique_ptr<index_family> make_special(const index_context&);
std::unique_ptr<index_family> make_hot_index(const index_context&);
std::unique_ptr<index_family> make_ramp_index(const index_context&);
std::unique_ptr<index_family> make_recorded_index(const index_context&);

// The index branch that selects what `chosen` says, for every row and head; see plants_selection().
std::unique_ptr<index_family> make_planted_index(const index_context&, const selection& chosen);

struct index_family_info {
  std::string_view name;
  std::unique_ptr<index_family> (*make)(const index_context&);
  bool shares_pages;  // values of a key depend on nothing that differs between sequences
};
// That of the case, or `random`.
const index_family_info& index_family_of(const case_spec& c);

// The given scores of one (row, index head). `order` is a random permutation of the visible blocks that are not forced:
// a family gives its values by rank in it, best first.
struct score_row {
  std::int64_t row = 0, head = 0, heads = 0;
  std::span<float> scores;              // [visible blocks], all to be written
  std::span<const std::int32_t> order;  // not forced
  std::span<const std::int32_t> forced;
  std::int64_t winners = 0;              // how many of `order` are to be chosen, at most order.size()
  std::span<const std::uint32_t> words;  // [visible blocks] random words
};

using write_scores = void (*)(score_row&);
// Throws suite_error for an unknown variant. nullptr: normal values from the generator.
write_scores select_variant_of(const case_spec& c);

}  // namespace msabench
