// SPDX-License-Identifier: Apache-2.0
// The tensors of one case, inputs filled and outputs allocated, in memory that can be handed to a worker.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/case.h"
#include "core/operator_table.h"
#include "core/problem.h"
#include "core/tensor_view.h"
#include "inputs/generated_stream.h"
#include "inputs/memory.h"

namespace msabench {

struct buffer {
  slot where = slot::q;
  direction dir = direction::in;
  tensor_desc desc;
  std::shared_ptr<shared_region> region;  // shared by K and V of page layout 2 (fused)
  std::uint64_t offset = 0;               // bytes from the region's start to the first element
  std::vector<extent> contents;           // of the whole region, ascending, without gaps; outputs: empty
  generated_stream generated = {};        // of its elements, within what is filled

  const void* data() const { return region ? region->data() + offset : nullptr; }
  tensor_view view() const { return {data(), desc}; }
};

// Of what each input holds, filled or poisoned, in their order. Of inputs in one region the first has that of both.
using input_checksums = std::vector<std::uint64_t>;

struct input_set {
  problem agreed;  // the problem that the buffers are laid out for
  extents sizes;   // actual T, B, N, ... (the problem holds upper bounds)
  std::vector<buffer> inputs, outputs;
  input_checksums inputs_checksum;  // as the inputs were made
  // Changes the contents before launch `index` of an execution, and sizes.t and inputs_checksum with them; empty: every
  // launch sees the same.
  std::function<void(std::int32_t index)> before_launch;
  std::vector<slot> changing;  // all inputs that before_launch changes

  const buffer* find(slot s) const;           // inputs, then outputs; nullptr if absent
  std::map<slot, tensor_view> views() const;  // of the inputs
  std::uint64_t bytes() const;                // resident bytes of inputs and outputs (holes not counted)
};

// Fills a set for `c` laid out for `agreed` (what host and implementation agreed on: page layout, id form). Pages that
// no row reads stay holes or are poisoned. Throws suite_error if memory cannot be had.
//
// `forward`: who computes the inputs out and lse of a backward operator. The generator does so row by row, which large
// problems have no time for; left to the caller the two hold poison until put_input() gives them values.
enum class forward_results { computed, left_to_caller };
input_set make_inputs(const case_spec& c, const problem& agreed, forward_results forward = forward_results::computed);

// Values for a whole input, rows past those of `values` left as they are; its checksum with it. suite_error where the
// set has no such tensor.
void put_input(input_set& set, slot where, const tensor_view& values);

// The same inputs, with outputs of their own laid out for `agreed`, which must not differ in how inputs are laid out.
input_set with_other_outputs(const case_spec& c, const input_set& set, const problem& agreed);

// Inputs of `set` that the operator of `other` has too, with outputs of that operator laid out for `agreed`. suite_error
// where `set` lacks one, or has it laid out otherwise.
input_set with_other_operator(const case_spec& other, const input_set& set, const problem& agreed);

// As in input_set::inputs_checksum, of now; differs when an implementation wrote into an input.
input_checksums checksum_inputs(const input_set& set);
// Of the inputs that lie where one for which `chosen` holds does; the others as in `known`.
input_checksums checksum_inputs(const input_set& set, const input_checksums& known,
                                const std::function<bool(const buffer&)>& chosen);

// The first input that holds other than what make_inputs wrote; made anew to find it. nullptr: none.
const buffer* find_modified_input(const case_spec& c, const input_set& set);

}  // namespace msabench
