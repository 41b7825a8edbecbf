// SPDX-License-Identifier: Apache-2.0
// Partial results that are hard to put together. Log-sum-exps are multiples of 2^-9 made of integers, so that they are
// the same floats on every machine; a part without keys has -infinity and an O_p of NaN.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/error.h"
#include "core/generator.h"
#include "inputs/operators.h"

namespace msabench {

namespace {

constexpr double no_keys = -std::numeric_limits<double>::infinity();

// One part of one row and head, as a variant sees it.
struct part {
  std::int64_t row = 0, head = 0, index = 0, parts = 0;
  std::int64_t keys = 0;  // of the row
  int noise = 0;          // normal, in units of 2^-9: standard deviation 0.29

  bool is(std::int64_t i) const { return index == i % parts; }
  double jitter() const { return noise * 0x1p-9; }
};

// As if the row's keys had been split evenly: short rows leave the last parts without keys. 0.6875 stands for ln 2.
double split_keys(const part& p) {
  const std::int64_t each = (p.keys + p.parts - 1) / p.parts;
  const std::int64_t count = std::clamp<std::int64_t>(p.keys - p.index * each, 0, each);
  if (count == 0) return no_keys;
  const auto bits = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(count)));
  return 0.6875 * bits + 2 * p.jitter();
}

// One part has 31 times the mass of each of the others: exp(3.4375) = 31.1.
double skewed(const part& p) { return p.is(p.row + p.head) ? 2.5 : 2.5 - 3.4375; }

// One part without keys in every row; of 16 rows one has keys in a single part, and one in none.
double holes(const part& p) {
  const std::int64_t kind = p.row % 16;
  const bool chosen = p.is(p.row + p.head);
  if (kind == 15 || (kind == 14 && !chosen) || (kind < 14 && chosen && p.parts > 1)) return no_keys;
  return p.jitter();
}

// exp of them overflows or vanishes in single precision.
double large(const part& p) {
  constexpr double levels[] = {300, -300, 96, -1000};
  return levels[p.row % 4] + 2 * p.jitter();
}

// All weights but one lie around the smallest normal number of single precision, exp(-87.34).
double tiny(const part& p) {
  return p.is(p.row + p.head) ? 0.5 : 0.5 - 86 - static_cast<double>((p.index + p.row) % 20) + p.jitter();
}

struct variant {
  std::string_view name;
  double (*lse)(const part&);
};
constexpr variant variants[] = {
    {"random", split_keys}, {"skewed", skewed}, {"holes", holes}, {"large", large}, {"tiny", tiny},
};

const variant& variant_of(const case_spec& c) {
  for (const variant& v : variants)
    if (c.family == "partials" && v.name == c.variant) return v;
  throw suite_error("no partial results for case " + name(c));
}

class partials_filler {
 public:
  explicit partials_filler(const fill_job& job)
      : job_(job),
        out_(job.input(slot::partial_out)),
        lse_(job.input(slot::partial_lse)),
        lse_of_(variant_of(job.definition).lse),
        values_(name_without_seed(job.definition), "partial_out", job.definition.seed),
        noise_(name_without_seed(job.definition), "partial_lse", job.definition.seed) {}

  void fill(std::int64_t index, std::int64_t row) const {
    const auto& shape = out_.desc.shape;
    const auto& o = out_.desc.strides;
    const auto& l = lse_.desc.strides;
    const std::int64_t heads = shape[2], d = shape[3], size = size_bytes(out_.desc.type);
    const batch_row& place = job_.rows.rows()[static_cast<std::size_t>(row)];
    for (std::int64_t head = 0; head < heads; ++head) {
      const auto number = static_cast<std::uint64_t>((index * shape[1] + row) * heads + head);
      const part p{
          row, head, index, shape[0], std::max<std::int64_t>(0, place.position + 1), noise_.normal_step(number)};
      const double lse = p.keys == 0 ? no_keys : lse_of_(p);
      store(lse_.region->data(), fp32, index * l[0] + row * l[1] + head * l[2], lse);
      std::byte* const values = out_.region->data() + (index * o[0] + row * o[1] + head * o[2]) * size;
      if (lse == no_keys)
        std::memset(values, 0xFF, static_cast<std::size_t>(d * size));  // NaN in every format
      else
        values_.fill_normal(values, out_.desc.type, number * static_cast<std::uint64_t>(d),
                            static_cast<std::uint64_t>(d));
      // The vanishing parts are all that every other channel has.
      if (lse_of_ == tiny && p.is(row + head))
        for (std::int64_t c = 1; c < d; c += 2) store(values, out_.desc.type, c, 0);
    }
  }

 private:
  const fill_job& job_;
  buffer &out_, &lse_;
  double (*lse_of_)(const part&);
  stream values_, noise_;
};

}  // namespace

void fill_combine(const fill_job& job) {
  const partials_filler filler(job);
  buffer& out = job.input(slot::partial_out);
  if (!out.region) return;
  for (buffer* b : {&out, &job.input(slot::partial_lse)}) prepare_whole(*b, job.definition.seed);
  const std::int64_t parts = out.desc.shape[0], rows = job.rows.total_q();
  const bool large_tensor = out.region->bytes() > small_bytes;
#pragma omp parallel for schedule(static) collapse(2) if (large_tensor)
  for (std::int64_t index = 0; index < parts; ++index)
    for (std::int64_t row = 0; row < rows; ++row) filler.fill(index, row);
}

}  // namespace msabench
