// SPDX-License-Identifier: Apache-2.0
// The table operator -> slots: direction, type class and shape of every tensor. It drives allocation, guards, poison, the
// worker protocol and the documentation; nothing else in the tree says which tensors an operator has.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/operator.h"
#include "core/problem.h"

namespace msabench {

enum class direction { in, out };

// Which field of the problem gives the element type; integers and fixed floats are themselves.
enum class type_class { q, kv, q_idx, k_idx, out, partial, grad, int32, float32, float64 };

// When a slot belongs to a problem at all.
enum class presence { always, contiguous, paged, kv_scale, idx_scale, q_fp8, not_warm_up };

struct slot_rule {
  slot where;
  direction dir;
  bool optional;  // the host may leave it absent; an absent output is not written
  type_class type;
  std::string_view shape;        // comma-separated symbols, e.g. "T,Hq,d"
  std::string_view paged_shape;  // empty: the same
  presence when = presence::always;
};

std::span<const slot_rule> slots_of(op o);

dtype type_of(const slot_rule& rule, const problem& p);
bool present(const slot_rule& rule, const problem& p);

// The axis of the slot's shape that is written as `symbol` ("T", "N", ...); -1: none. Ids in layout [H,T,k] count too.
int axis_of(const slot_rule& rule, const problem& p, std::string_view symbol);

// Sizes that the problem does not hold, or holds only as bounds.
struct extents {
  std::int64_t t = 0;          // T
  std::int64_t b = 0;          // B
  std::int64_t n = 0;          // N, contiguous keys
  std::int64_t pages = 0;      // pool pages
  std::int64_t idx_pages = 0;  // pool pages of the index cache
  std::int64_t p = 0;          // partial results
  std::int64_t max_pos = 0, items = 0, segments = 0;
};

extents bounds_of(const problem& p);

// Shape of a slot: every symbol of the rule evaluated. Throws suite_error for an unknown symbol.
std::vector<std::int64_t> shape_of(const slot_rule& rule, const problem& p, const extents& e);

}  // namespace msabench
