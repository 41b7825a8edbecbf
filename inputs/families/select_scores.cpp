// SPDX-License-Identifier: Apache-2.0
// Given block scores that are hard to select from. Values are dyadic, so that they are the same floats on every
// machine, and given by rank: rank r of m unforced blocks in random order, of which the first w are to be chosen.
// Forced blocks get the lowest score unless a remark says otherwise: who does not force them loses them.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "inputs/families/family.h"

namespace msabench {

namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

std::int64_t count(const score_row& row) { return static_cast<std::int64_t>(row.order.size()); }

// value(r) for every rank, and the same for all forced blocks.
template <class Value>
void write_by_rank(score_row& row, float forced, Value value) {
  for (std::int64_t r = 0; r < count(row); ++r)
    row.scores[static_cast<std::size_t>(row.order[static_cast<std::size_t>(r)])] = static_cast<float>(value(r));
  for (const std::int32_t b : row.forced) row.scores[static_cast<std::size_t>(b)] = forced;
}

std::uint32_t word(const score_row& row, std::int64_t r) { return row.words[static_cast<std::size_t>(r)]; }

// A NaN of random sign and payload; quiet, as loading a signalling one is no business of a selection.
float any_nan(const score_row& row, std::int64_t r) {
  return std::bit_cast<float>(0x7FC00000u | (word(row, r) & 0x803FFFFFu));
}

// Winners and losers far apart, all distinct.
void gap(score_row& row) {
  const auto w = row.winners;
  write_by_rank(row, -1024, [=](std::int64_t r) {
    return r < w ? 4 + static_cast<double>(w - r) / 8 : -static_cast<double>(r - w + 1) / 64;
  });
}

// All values are neighbouring floats: ranks k and k + 1 are one step apart.
void step(score_row& row) {
  const auto w = row.winners;
  write_by_rank(row, 1.25f, [=](std::int64_t r) { return 1.5 + static_cast<double>(w - r) * 0x1p-23; });
}

// 17 equal values around rank k.
void tie17(score_row& row) {
  const std::int64_t first = std::max<std::int64_t>(0, row.winners - 8), last = first + 17;
  write_by_rank(row, -8, [=](std::int64_t r) {
    if (r < first) return 2 + static_cast<double>(first - r) / 64;
    return r < last ? 2 : 2 - static_cast<double>(r - last + 1) / 4096;
  });
}

// Forced blocks too.
void equal(score_row& row) {
  write_by_rank(row, 0.5f, [](std::int64_t) { return 0.5; });
}

void negative(score_row& row) {
  write_by_rank(row, -4096, [](std::int64_t r) { return -1 - static_cast<double>(r) / 16; });
}

// Four values, each many times.
void few(score_row& row) {
  constexpr double values[] = {-1, 0.25, 0.5, 2};
  write_by_rank(row, -4, [&](std::int64_t r) { return values[word(row, r) % 4]; });
}

// One value stretches the row's range, above (even rows) or below, to more than 65534 times what separates all the
// others together. Forced blocks lie just below the others, so that they don't stretch it.
void outlier(score_row& row) {
  const std::int64_t m = count(row), odd_one = row.row % 2 == 0 ? 0 : m - 1;
  const double outside = row.row % 2 == 0 ? 0x1p17 : -0x1p17;
  write_by_rank(row, 1,
                [=](std::int64_t r) { return r == odd_one ? outside : 1 + static_cast<double>(m - r) * 0x1p-20; });
}

// Three clusters of neighbouring floats; rank k lies inside the middle one, which holds half of all blocks under one
// 16-bit prefix.
void cluster(score_row& row) {
  const std::int64_t m = count(row), top = row.winners / 2, middle = top + m / 2;
  write_by_rank(row, -2, [=](std::int64_t r) {
    if (r < top) return 3 - static_cast<double>(r) * 0x1p-22;
    return r < middle ? 1 + static_cast<double>(middle - r) * 0x1p-23 : -1 - static_cast<double>(r) * 0x1p-23;
  });
}

// By block number: a running selection replaces a member with every block.
void rising(score_row& row) {
  write_by_rank(row, -1, [](std::int64_t) { return 0; });
  for (const std::int32_t b : row.order) row.scores[static_cast<std::size_t>(b)] = static_cast<float>(b + 1) / 16;
}

// `order` is the same for all heads here; each head wins with another stretch of it.
void heads(score_row& row) {
  const std::int64_t m = count(row), shift = m == 0 ? 0 : row.head * row.winners % m;
  write_by_rank(row, -1024, [&](std::int64_t p) { return 4 - static_cast<double>((p - shift + m) % m) / 64; });
}

// Four kinds of row: some NaN; so many that NaN blocks have to be chosen; the forced ones NaN; all NaN.
void nan(score_row& row) {
  const std::int64_t kind = row.row % 4, w = row.winners;
  write_by_rank(row, kind == 2 || kind == 3 ? any_nan(row, 0) : -1024, [&](std::int64_t r) {
    const bool is_nan = kind == 0 ? r % 4 == 1 : kind == 1 ? r >= w / 2 : kind == 2 ? r % 8 == 3 : true;
    return is_nan ? any_nan(row, r) : static_cast<float>(8 - static_cast<double>(r) / 16);
  });
}

// Three kinds of row: fewer +inf than places; more; and -inf from rank k/2 on, which are eligible after all others.
void inf(score_row& row) {
  const std::int64_t kind = row.row % 3, w = row.winners;
  write_by_rank(row, kind == 1 ? -1 : -infinity, [=](std::int64_t r) {
    const double finite = 4 - static_cast<double>(r) / 64;
    if (kind == 2) return r < (w + 1) / 2 ? finite : -static_cast<double>(infinity);
    return r < (kind == 0 ? (w + 1) / 2 : w + 3) ? static_cast<double>(infinity) : finite;
  });
}

// Three kinds of row: more values from FLT_MAX down than there are places; 2e30 and its neighbours, where sentinels
// lie; the same below zero.
void huge(score_row& row) {
  const std::int64_t kind = row.row % 3;
  const double sentinel = static_cast<double>(2e30f);
  write_by_rank(row, kind == 2 ? -std::numeric_limits<float>::max() : -1, [=](std::int64_t r) {
    if (kind == 0) return std::ldexp(static_cast<double>((1 << 24) - 1 - 16 * r), 104);
    // 2e30 lies between 2^100 and 2^101, whose floats are 2^77 apart.
    return (kind == 1 ? sentinel : -sentinel) - std::ldexp(static_cast<double>(r), 77);
  });
}

// Three kinds of row: zeros of both signs around rank k; as many zeros as places, then tiny negative values; tiny
// positive winners, then zeros.
void zero(score_row& row) {
  const std::int64_t kind = row.row % 3, m = count(row), w = row.winners;
  const std::int64_t first = kind == 0 ? w / 2 : kind == 1 ? 0 : w;
  const std::int64_t last = kind == 0 ? w + w / 2 + 8 : kind == 1 ? w : m;
  write_by_rank(row, -1, [&](std::int64_t r) {
    if (r >= first && r < last) return word(row, r) % 2 == 0 ? 0.0 : -0.0;
    // Above the subnormals, so that a device that flushes those still tells them apart.
    const double size = 0x1p-100 * (1 + static_cast<double>(r < first ? m - r : r) * 0x1p-20);
    return r < first ? size : -size;
  });
}

struct variant {
  std::string_view name;
  write_scores write;
};
constexpr variant variants[] = {
    {"random", nullptr},    {"gap", gap}, {"step", step},       {"tie17", tie17},     {"equal", equal},
    {"negative", negative}, {"few", few}, {"outlier", outlier}, {"cluster", cluster}, {"rising", rising},
    {"heads", heads},       {"nan", nan}, {"inf", inf},         {"huge", huge},       {"zero", zero},
};

}  // namespace

write_scores select_variant_of(const case_spec& c) {
  for (const auto& v : variants)
    if (c.family == "select" && v.name == c.variant) return v.write;
  throw suite_error(fmt::format("no scores for family {}.{} of operator select", c.family, c.variant));
}

}  // namespace msabench
