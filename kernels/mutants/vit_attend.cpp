// SPDX-License-Identifier: Apache-2.0
// Attention inside segments gone wrong.
#include <cmath>
#include <cstdint>

#include "kernels/common/lengths.h"
#include "kernels/mutants/mutant.h"

namespace msabench::mutants {
namespace {

row_place place_in_joined_segments(const lengths& segments, std::int64_t row) {
  row_place place = segments.place(row);
  if (place.sequence + 1 < segments.batch)
    place.length += segments.cu_seqlens_q[place.sequence + 2] - segments.cu_seqlens_q[place.sequence + 1];
  place.position = place.length - 1;
  return place;
}

row_place place_outside_of_last_segment(const lengths& segments, std::int64_t row) {
  row_place place = segments.place(row);
  if (place.sequence + 1 == segments.batch) place.position = -1;
  return place;
}

/// What zeros would have added: exp(0 - maximum) each, and no value.
void attend_padded_block(const float* scores, float maximum, const tile& values, weighted_sum& sum) {
  exact_stages.attend_block(scores, maximum, values, sum);
  sum.weight += static_cast<float>(dense_block - values.count) * std::exp(-maximum);
}

std::int32_t head_of_next(std::int32_t kv_head, std::int32_t member, std::int32_t kv_heads, std::int32_t group) {
  return exact_stages.query_head((kv_head + 1) % kv_heads, member, kv_heads, group);
}

constexpr mutant mutants[] = {
    {"VIT-1.b", "tokens of a segment read the next one as well",
     [](stages& s) { s.segment_place = place_in_joined_segments; }, nullptr},
    {"VIT-4.a", "the last segment is dropped: its tokens read nothing",
     [](stages& s) { s.segment_place = place_outside_of_last_segment; }, nullptr},
    {"VIT-4.b", "segments are filled up with zeros to whole tiles, and the zeros take part",
     [](stages& s) { s.attend_block = attend_padded_block; }, nullptr},
    {"GQA-2.d", "the queries of the next head", [](stages& s) { s.query_head = head_of_next; }, nullptr},
};

}  // namespace

std::span<const mutant> vit_attend_mutants() { return mutants; }

}  // namespace msabench::mutants
