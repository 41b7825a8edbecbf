// SPDX-License-Identifier: Apache-2.0
// rope3d gone wrong.
#include <cstdint>
#include <utility>

#include "kernels/mutants/mutant.h"

namespace msabench::mutants {
namespace {

patch_position row_by_row(const patch_grid& item, std::int64_t patch) { return {0, patch / item.w, patch % item.w}; }

patch_position place_with_swapped_axes(const patch_grid& item, std::int64_t patch) {
  patch_position place = exact_stages.place_in_frame(item, patch);
  std::swap(place.h, place.w);
  return place;
}

patch_position angles_with_swapped_axes(const patch_position& position, std::int64_t) {
  return {position.t, position.w, position.h};
}

patch_position angles_of_the_item(const patch_position& position, std::int64_t segment_first) {
  return {position.t + segment_first, position.h, position.w};
}

void rotate_halves(const float* cosines, const float* sines, std::int32_t pairs, std::int32_t d, float* x) {
  for (std::int32_t i = 0; i < pairs; ++i) {
    const float low = x[i], high = x[i + d / 2];
    x[i] = low * cosines[i] - high * sines[i];
    x[i + d / 2] = high * cosines[i] + low * sines[i];
  }
}

void rotate_neighbours(const float* cosines, const float* sines, std::int32_t pairs, std::int32_t, float* x) {
  for (std::int32_t i = 0; i < pairs; ++i) {
    const float low = x[2 * i], high = x[2 * i + 1];
    x[2 * i] = low * cosines[i] - high * sines[i];
    x[2 * i + 1] = high * cosines[i] + low * sines[i];
  }
}

constexpr mutant mutants[] = {
    {"VIT-1.a", "items are not cut into segments",
     [](stages& s) { s.segment_patches = [](const patch_grids&, const patch_grid& item) { return item.t; }; }, nullptr},
    {"VIT-2.a", "every temporal patch is a segment",
     [](stages& s) { s.segment_patches = [](const patch_grids&, const patch_grid&) -> std::int64_t { return 1; }; },
     nullptr},
    {"VIT-3.a", "angles of t count through the item; positions are right",
     [](stages& s) { s.angle_position = angles_of_the_item; }, nullptr},
    {"VIT-3.b", "h and w exchanged in the angles; positions are right",
     [](stages& s) { s.angle_position = angles_with_swapped_axes; }, nullptr},
    {"VIT-3.c", "h and w exchanged in positions and angles",
     [](stages& s) { s.place_in_frame = place_with_swapped_axes; }, nullptr},
    {"VIT-3.d", "two axes only: t turns nothing; positions are right",
     [](stages& s) {
       s.angle_position = [](const patch_position& position, std::int64_t) -> patch_position {
         return {0, position.h, position.w};
       };
     },
     nullptr},
    {"VIT-3.e", "patches of a frame taken row by row instead of by merge blocks",
     [](stages& s) { s.place_in_frame = row_by_row; }, nullptr},
    {"ROPE-1.d", "pairs of patches are neighbours instead of halves",
     [](stages& s) { s.rotate_patch = rotate_neighbours; }, nullptr},
    {"ROPE-1.e", "pairs of patches are halves of the whole head, so that dims turn that pass through",
     [](stages& s) { s.rotate_patch = rotate_halves; }, nullptr},
};

}  // namespace

std::span<const mutant> rope3d_mutants() { return mutants; }

}  // namespace msabench::mutants
