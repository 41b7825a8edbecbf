// SPDX-License-Identifier: Apache-2.0
// Positions, segments and rotary embedding of a vision tower in float64 (docs/contract.md section 8), and the gauges of
// its limit (docs/verdicts.md, prologue). Bit-identical for any number of threads.
//
// Items are (t, h, w) in patches, t in temporal patches of two frames. An item of more temporal patches than the window
// is cut into segments of `window`, the last one of the rest.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/problem.h"
#include "core/tensor_view.h"

namespace msabench::reference {

// Temporal patches of a video of `frames` frames: two frames each, the last frame of an odd number stands twice. An
// image is a video of one frame. suite_error below 1.
std::int64_t temporal_patches(std::int64_t frames);
// The frame at place 0 or 1 of a temporal patch.
std::int64_t frame_of(std::int64_t temporal_patch, std::int64_t place, std::int64_t frames);

// Which tokens form a segment, and where each token stands.
struct vit_layout {
  std::vector<std::int32_t> cu_segments;               // [S+1] prefix sums of t*h*w over all segments
  std::vector<std::array<std::int32_t, 3>> positions;  // [N] t from 0 in every segment; h, w in the item
};

// grids [items, 3] int32; window in temporal patches, 0 = unlimited; merge x merge patches lie next to each other (merge
// blocks row-major, row-major inside a block). suite_error for other shapes, sides below 1, h or w that are no multiple
// of merge, a window below 0 and more than 2^31 - 1 tokens.
vit_layout lay_out(const tensor_view& grids, std::int64_t window, std::int64_t merge = 2);

// Angles of the pairs (i, i + 3 f) of a head of d elements, f = floor(floor(d / 3) / 2) for each of the axes t | h | w:
// coordinate * theta^(-2i / 2f). The last d - 6 f elements belong to no pair.
class axial_angles {
 public:
  axial_angles(std::int64_t d, double theta);
  std::int64_t pairs() const { return 3 * static_cast<std::int64_t>(frequencies_.size()); }
  // `angles` has pairs() elements.
  void at(const std::array<std::int32_t, 3>& position, std::span<double> angles) const;

 private:
  std::vector<double> frequencies_;
};
// Rotates the d elements of one head in place; `angles` as above.
void rotate(std::span<const double> angles, std::span<double> x);

// q, k [N, heads, d], grids [items, 3]; of the problem hq = heads, d, vit_window and rope_theta (0 stands for 1e4) count.
struct rope3d_inputs {
  problem p;
  tensor_view q, k, grids;
  std::int64_t merge = 2;
};

// One (token, head); vectors have d elements.
struct rope3d_row {
  std::int64_t row = 0, head = 0;
  std::vector<double> q, k;      // rotated
  std::vector<double> q_a, k_a;  // a: amplitude of the pair that the element belongs to; 0 where it passes through
  std::vector<double> phi;       // angle of the pair; 0 where the element passes through
};

struct rope3d_result {
  vit_layout layout;             // of all items
  std::vector<rope3d_row> rows;  // of the rows asked for, rows x heads
};

// suite_error for shapes that contradict each other and rows not below N.
rope3d_result rope3d(const rope3d_inputs& in, std::span<const std::int64_t> rows);

}  // namespace msabench::reference
