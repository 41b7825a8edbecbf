// SPDX-License-Identifier: Apache-2.0
// Heads of tokens, their norm weights and the table of angles.
//
// The table holds a random point of the unit circle for every position and pair, not the cosines of some frequency: from
// integers by four operations that every machine rounds alike, and no two positions are nearly the same.
#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/generator.h"
#include "inputs/extent_list.h"
#include "inputs/operators.h"
#include "inputs/token_heads.h"

namespace msabench {

namespace {

// Above this only the rows of the table that a position of the call comes near are filled; the others read as 0.
constexpr std::uint64_t small_table_bytes = std::uint64_t{64} << 20;

class weights_and_angles {
 public:
  explicit weights_and_angles(const fill_job& job) : job_(job), variant_(token_variant_of(job.definition)) {}

  void fill_weights(slot where) const {
    buffer& b = job_.input(where);
    prepare_whole(b, job_.definition.seed);
    const stream values = stream_of(where);
    for (std::int64_t c = 0; c < b.desc.shape[0]; ++c)
      store(b.region->data(), b.desc.type, c,
            variant_.weight + values.normal_step(static_cast<std::uint64_t>(c)) * variant_.weight_scale);
  }

  void fill_table() const {
    buffer& b = job_.input(slot::cos_sin);
    if (!b.region) return;
    const stream angles = stream_of(slot::cos_sin);
    if (b.region->bytes() <= small_table_bytes) {
      prepare_whole(b, job_.definition.seed);
      for (std::int64_t position = 0; position < b.desc.shape[0]; ++position) fill_position(b, angles, position);
      return;
    }
    extent_list filled;
    for (const std::int64_t position : positions_near(b.desc.shape[0])) {
      fill_position(b, angles, position);
      const auto begin = static_cast<std::uint64_t>(position * b.desc.strides[0] * 4);
      filled.add(begin, begin + static_cast<std::uint64_t>(b.desc.shape[1] * 4), extent::kind::filled);
    }
    b.contents = filled.finish(b.region->bytes(), extent::kind::hole);
  }

 private:
  stream stream_of(slot where) const { return {name_without_seed(job_.definition), name(where), job_.definition.seed}; }

  // cos and sin of 2 atan t, t from 16 bits; another bit turns them to the other half of the circle.
  static void fill_position(const buffer& b, const stream& angles, std::int64_t position) {
    const std::int64_t half = b.desc.shape[1] / 2, first = position * b.desc.strides[0];
    for (std::int64_t i = 0; i < half; ++i) {
      const std::uint32_t word = angles.word(static_cast<std::uint64_t>(position * half + i));
      const double t = (static_cast<double>(word & 0xFFFF) - 0x1p15) * 0x1p-15;
      const double c = (1 - t * t) / (1 + t * t), s = 2 * t / (1 + t * t);
      store(b.region->data(), fp32, first + i, (word >> 16 & 1) != 0 ? -c : c);
      store(b.region->data(), fp32, first + half + i, s);
    }
  }

  // Those of the call, their neighbours, and the same counted from the start of the call.
  std::vector<std::int64_t> positions_near(std::int64_t end) const {
    std::vector<std::int64_t> all;
    for (std::int64_t row = 0; row < job_.rows.total_q(); ++row) {
      const batch_row& place = job_.rows.rows()[static_cast<std::size_t>(row)];
      const std::int64_t in_chunk = row - job_.rows.first_row(place.sequence);
      for (const std::int64_t p : {place.position - 1, place.position, place.position + 1, in_chunk})
        if (p >= 0 && p < end) all.push_back(p);
    }
    std::ranges::sort(all);
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }

  const fill_job& job_;
  const token_variant& variant_;
};

}  // namespace

void fill_qk_norm_rope(const fill_job& job) {
  for (const slot where : {slot::q, slot::k, slot::q_idx, slot::k_idx}) fill_token_heads(job, where);
  const weights_and_angles filler(job);
  for (const slot where : {slot::q_norm, slot::k_norm, slot::q_idx_norm, slot::k_idx_norm}) filler.fill_weights(where);
  filler.fill_table();
}

}  // namespace msabench
