// SPDX-License-Identifier: Apache-2.0
// Where the tensors of a case lie: shapes, strides, regions with their guards and bands. Nothing here writes values.
#pragma once

#include <cstdint>

#include "core/operator_table.h"
#include "inputs/input_set.h"

namespace msabench {

// Shape and strides of a slot. Packed, but: the halves of a fused cache are strided; `padded` (option stride) adds a
// gap of a multiple of 16 bytes after every axis but the innermost and rounds strides up to multiples of 16 bytes; ids
// are [Hkv,T,topk] where the profile says so.
tensor_desc layout_of(const slot_rule& rule, const problem& p, const extents& e, bool padded);

// Memory for an input: its first element at the very start of the region, so that an index of -1 (a row, a page, a page
// of all heads) meets the guard below, and so does any place that a 16-bit index or a 32-bit offset made negative. No region for an empty tensor.
buffer allocate_input(slot where, const tensor_desc& desc);

// Halves of one region: k first.
struct fused_cache {
  buffer k, v;
};
fused_cache allocate_fused(const tensor_desc& desc);

// Memory for an output: bands on both sides of at least 256 bytes and, where that is affordable, one row, so that
// writing one row too many is seen and not fatal. A region even for an empty tensor.
buffer allocate_output(slot where, const tensor_desc& desc);

}  // namespace msabench
