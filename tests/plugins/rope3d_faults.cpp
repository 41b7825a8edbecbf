// SPDX-License-Identifier: Apache-2.0
// rope3d gone wrong, each by one replaced stage of the naive kernels.
#include <cmath>
#include <utility>

#include "tests/plugins/fault.h"

namespace msabench::faults {
namespace {

using namespace naive;

float frequency_of_text(std::int32_t i, std::int32_t pairs, std::int32_t d, double) {
  return exact_stages.axis_frequency(i, pairs, d, 5e6);
}

float frequency_of_head(std::int32_t i, std::int32_t, std::int32_t d, double theta) {
  return static_cast<float>(std::pow(theta, -2.0 * i / d));
}

void rotate_other_way(const float* cosines, const float* sines, std::int32_t pairs, std::int32_t, float* x) {
  for (std::int32_t i = 0; i < pairs; ++i) {
    const float low = x[i], high = x[i + pairs];
    x[i] = low * cosines[i] + high * sines[i];
    x[i + pairs] = high * cosines[i] - low * sines[i];
  }
}

}  // namespace

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

/// rope3d: the sines have the other sign.
const msabench_plugin* rope3d_backwards(const msabench_host* host) {
  return with_stages(host, "rope3d_backwards", [](stages s) {
    s.rotate_patch = rotate_other_way;
    return s;
  });
}

}  // namespace msabench::faults
