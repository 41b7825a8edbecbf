// SPDX-License-Identifier: Apache-2.0
// Makes golden files from case names: inputs by the generator, results by the reference. Such a file holds another
// program to the reference; it says nothing about the reference itself.
//
// The name gives shape, lengths and storage type; its family is random. Streams are `case name without seed|tensor`,
// values are rounded to the storage type and written as float64.
//   attention   any text operator, one sequence, contiguous: q, k, v, q_idx, k_idx, d_out as they are drawn, q times the
//               factor of the variant (scale_q)
//   text_layer  any text operator, one whole prompt (q = n): hidden as drawn, weights [out, in] times 2^-r with r =
//               log2(in)/2 rounded, norms times 2^-3; rot is the largest even number up to half of the smaller of d and
//               didx, theta 5e6, eps 1e-6
//   vit3d       any vision operator: q, k, v as drawn, q times the factor of the variant; merge 2, theta 1e4
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace msabench {

struct golden_request {
  std::string kind;
  std::string case_name;
  std::int64_t hidden = 64;  // text_layer: width of the hidden states
  std::int64_t window = 4;   // vit3d: temporal patches of a segment, 0 = unlimited
};

// What will be made. usage_error for unknown kinds, names that are none, and names whose lengths, layout or options a
// golden file of the kind can't hold or that are too large.
void require_makeable(const golden_request& wanted);

// Writes the file atomically. usage_error as above, where two equal block scores would leave the selection to the order
// of ties, and naming `field` where the file can't be written.
void make_golden(const golden_request& wanted, std::string_view field, const std::filesystem::path& path);

}  // namespace msabench
