// SPDX-License-Identifier: Apache-2.0
// rope3d gone wrong, each by one replaced stage of the naive kernels.
#include <cmath>
#include <utility>

#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

using namespace naive;

std::int64_t whole_item(const patch_grids&, const patch_grid& item) { return item.t; }
std::int64_t single_frame(const patch_grids&, const patch_grid&) { return 1; }

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

patch_position angles_of_two_axes(const patch_position& position, std::int64_t) { return {0, position.h, position.w}; }

float frequency_of_text(std::int32_t i, std::int32_t pairs, std::int32_t d, double) {
  return exact_stages.axis_frequency(i, pairs, d, 5e6);
}

float frequency_of_head(std::int32_t i, std::int32_t, std::int32_t d, double theta) {
  return static_cast<float>(std::pow(theta, -2.0 * i / d));
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

void rotate_other_way(const float* cosines, const float* sines, std::int32_t pairs, std::int32_t, float* x) {
  for (std::int32_t i = 0; i < pairs; ++i) {
    const float low = x[i], high = x[i + pairs];
    x[i] = low * cosines[i] + high * sines[i];
    x[i + pairs] = high * cosines[i] - low * sines[i];
  }
}

}  // namespace

/// rope3d: items are not cut into segments.
const msabench_plugin* rope3d_ignores_window(const msabench_host* host) {
  return with_stages(host, "rope3d_ignores_window", [](stages s) {
    s.segment_patches = whole_item;
    return s;
  });
}

/// rope3d: every temporal patch is a segment.
const msabench_plugin* rope3d_frames_apart(const msabench_host* host) {
  return with_stages(host, "rope3d_frames_apart", [](stages s) {
    s.segment_patches = single_frame;
    return s;
  });
}

/// rope3d: patches of a frame are taken row by row, not by merge blocks.
const msabench_plugin* rope3d_ignores_merge(const msabench_host* host) {
  return with_stages(host, "rope3d_ignores_merge", [](stages s) {
    s.place_in_frame = row_by_row;
    return s;
  });
}

/// rope3d: h and w are exchanged, in positions and angles.
const msabench_plugin* rope3d_swaps_axes(const msabench_host* host) {
  return with_stages(host, "rope3d_swaps_axes", [](stages s) {
    s.place_in_frame = place_with_swapped_axes;
    return s;
  });
}

/// rope3d: h and w are exchanged in the angles alone; positions are right.
const msabench_plugin* rope3d_swaps_angles(const msabench_host* host) {
  return with_stages(host, "rope3d_swaps_angles", [](stages s) {
    s.angle_position = angles_with_swapped_axes;
    return s;
  });
}

/// rope3d: the angles of t are counted through the item; positions are right.
const msabench_plugin* rope3d_keeps_counting(const msabench_host* host) {
  return with_stages(host, "rope3d_keeps_counting", [](stages s) {
    s.angle_position = angles_of_the_item;
    return s;
  });
}

/// rope3d: t turns nothing; positions are right.
const msabench_plugin* rope3d_two_axes(const msabench_host* host) {
  return with_stages(host, "rope3d_two_axes", [](stages s) {
    s.angle_position = angles_of_two_axes;
    return s;
  });
}

/// rope3d: frequencies of the text model's base.
const msabench_plugin* rope3d_text_base(const msabench_host* host) {
  return with_stages(host, "rope3d_text_base", [](stages s) {
    s.axis_frequency = frequency_of_text;
    return s;
  });
}

/// rope3d: frequencies theta^(-2i/d).
const msabench_plugin* rope3d_head_dims(const msabench_host* host) {
  return with_stages(host, "rope3d_head_dims", [](stages s) {
    s.axis_frequency = frequency_of_head;
    return s;
  });
}

/// rope3d: pairs are halves of the whole head, so that dims are turned that pass through.
const msabench_plugin* rope3d_turns_rest(const msabench_host* host) {
  return with_stages(host, "rope3d_turns_rest", [](stages s) {
    s.rotate_patch = rotate_halves;
    return s;
  });
}

/// rope3d: pairs are neighbours.
const msabench_plugin* rope3d_interleaved(const msabench_host* host) {
  return with_stages(host, "rope3d_interleaved", [](stages s) {
    s.rotate_patch = rotate_neighbours;
    return s;
  });
}

/// rope3d: the sines have the other sign.
const msabench_plugin* rope3d_backwards(const msabench_host* host) {
  return with_stages(host, "rope3d_backwards", [](stages s) {
    s.rotate_patch = rotate_other_way;
    return s;
  });
}

}  // namespace msabench::faults
