// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/rope3d.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/storage.h"
#include "kernels/naive/tasks.h"

namespace msabench::naive {
namespace {

constexpr std::int64_t merge = 2;  // patches of a merge block lie next to each other

/// Where a token stands: t counts from the first temporal patch of its segment.
struct token_place {
  patch_position position;
  std::int64_t segment_first;  ///< temporal patch of the item that t counts from
};

token_place place_of(const stages& stage, const patch_grids& items, std::int64_t token) {
  std::int64_t item = 0, first = 0;
  while (token >= first + items.at(item).tokens()) first += items.at(item++).tokens();
  const patch_grid g = items.at(item);
  const std::int64_t frame = (token - first) / g.frame(), length = stage.segment_patches(items, g);
  patch_position position = stage.place_in_frame(g, (token - first) % g.frame());
  position.t = frame % length;
  return {position, frame - position.t};
}

void write_segments(const stages& stage, const rope3d_call& call) {
  std::int64_t count = 0, end = 0;
  call.cu_segments[count++] = 0;
  for (std::int64_t i = 0; i < call.items.items; ++i) {
    const patch_grid g = call.items.at(i);
    const std::int64_t length = stage.segment_patches(call.items, g);
    for (std::int64_t first = 0; first < g.t; first += length) {
      end += std::min(length, g.t - first) * g.frame();
      call.cu_segments[count++] = static_cast<std::int32_t>(end);
    }
  }
}

}  // namespace

std::int64_t segment_patches(const patch_grids& items, const patch_grid& item) { return items.segment_length(item); }

patch_position place_in_frame(const patch_grid& item, std::int64_t patch) {
  const std::int64_t block = patch / (merge * merge), inside = patch % (merge * merge);
  const std::int64_t blocks_of_row = item.w / merge;
  return {0, block / blocks_of_row * merge + inside / merge, block % blocks_of_row * merge + inside % merge};
}

patch_position angle_position(const patch_position& position, std::int64_t) { return position; }

float axis_frequency(std::int32_t i, std::int32_t pairs, std::int32_t, double theta) {
  return static_cast<float>(std::pow(theta, -static_cast<double>(i) / pairs));
}

void rotate_patch(const float* cosines, const float* sines, std::int32_t pairs, std::int32_t, float* x) {
  for (std::int32_t i = 0; i < pairs; ++i) {
    const float low = x[i], high = x[i + pairs];
    x[i] = low * cosines[i] - high * sines[i];
    x[i + pairs] = high * cosines[i] + low * sines[i];
  }
}

void rotate_token(const stages& stage, const rope3d_call& call, std::int64_t token, float* scratch) {
  const std::int32_t of_axis = call.d / 3 / 2, pairs = 3 * of_axis;
  float* const cosines = scratch;
  float* const sines = cosines + pairs;
  float* const head_values = sines + pairs;
  const token_place place = place_of(stage, call.items, token);
  std::int32_t* position = call.positions + token * call.position_stride;
  position[0] = static_cast<std::int32_t>(place.position.t);
  position[1] = static_cast<std::int32_t>(place.position.h);
  position[2] = static_cast<std::int32_t>(place.position.w);
  const patch_position turned = stage.angle_position(place.position, place.segment_first);
  const std::int64_t coordinates[] = {turned.t, turned.h, turned.w};
  for (std::int32_t i = 0; i < pairs; ++i) {
    const float angle =
        static_cast<float>(coordinates[i / of_axis]) * stage.axis_frequency(i % of_axis, of_axis, call.d, call.theta);
    cosines[i] = std::cos(angle);
    sines[i] = std::sin(angle);
  }
  for (const rope3d_call::tensor& t : call.tensors)
    for (std::int32_t head = 0; head < call.heads; ++head) {
      load_row(t.x + (token * t.x_row_stride + head * t.x_head_stride) * bytes_of(call.type), call.type, call.d,
               head_values);
      stage.rotate_patch(cosines, sines, pairs, call.d, head_values);
      store_row(head_values, call.d, call.type,
                t.y + (token * t.y_row_stride + head * t.y_head_stride) * bytes_of(call.type));
    }
}

double rope3d_scratch_bytes(std::int64_t d) { return 2.0 * sizeof(float) * static_cast<double>(d); }

void rope3d(const stages& stage, const rope3d_call& call, int threads, void* scratch, std::int64_t slice_bytes) {
  write_segments(stage, call);
  for_each_task(call.tokens, threads, 8, scratch, slice_bytes, [&](std::int64_t token, void* slice) {
    stage.rotate_token(stage, call, token, static_cast<float*>(slice));
  });
}

}  // namespace msabench::naive
