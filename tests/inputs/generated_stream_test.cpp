// SPDX-License-Identifier: Apache-2.0
// Which parts of inputs a device may make itself: those that hold the stream to the bit.
#include "inputs/generated_stream.h"

#include <gtest/gtest.h>

#include <algorithm>

#include <cmath>
#include <cstring>

#include "core/case.h"
#include "inputs/changed_contents.h"
#include "inputs/input_set.h"

using namespace msabench;

namespace {

input_set inputs_of(const std::string& name) {
  const case_spec c = parse_case(name);
  return make_inputs(c, make_problem(c));
}

// Bytes of a buffer that are generated, each of them compared with the stream.
std::uint64_t checked_bytes(const input_set& set, const case_spec& c, slot where) {
  const buffer& b = *set.find(where);
  const stream from(name_without_seed(c), name(where), c.seed);
  std::uint64_t bytes = 0;
  std::vector<std::byte> wanted;
  for (const generated_run& r : b.generated.runs) {
    wanted.resize(b.generated.end_of(r) - r.begin);
    from.fill_normal(wanted.data(), b.generated.type, r.first, r.count, std::ldexp(1.0, b.generated.exponent));
    EXPECT_EQ(std::memcmp(wanted.data(), b.region->data() + r.begin, wanted.size()), 0)
        << name(where) << " from byte " << r.begin;
    bytes += wanted.size();
  }
  EXPECT_EQ(b.generated.key, from.key());
  EXPECT_EQ(b.generated.seed, from.seed());
  return bytes;
}

generated_stream runs_of(std::initializer_list<generated_run> pieces, dtype type = bf16) {
  generated_runs list(slot::k, type, stream("some/case", "k", 1), 0x1p-3);
  for (const generated_run& r : pieces) list.add(r.begin, r.first, r.count);
  return list.finish();
}

constexpr std::uint64_t many = 16 << 20;  // elements

}  // namespace

TEST(generated_stream, is_what_inputs_hold) {
  for (const char* text : {"dense/h8x2.d64.b32.k4.l1.i0/q1.n64K/fp32.paged/random/s3",
                           "dense/h8x2.d64.b32.k4.l1.i0/q1.n64K.x2/bf16.contig/random.flat/s0",
                           "attend/m3/q1K.n32K/bf16.paged/random/s0"}) {
    SCOPED_TRACE(text);
    const case_spec c = parse_case(text);
    const input_set set = inputs_of(text);
    for (const slot where : {slot::k, slot::v})
      EXPECT_GT(checked_bytes(set, c, where), set.find(where)->region->bytes() / 2);
    checked_bytes(set, c, slot::q);
  }
  const char* index = "score/m3/q1.n128K/bf16.paged/random/s0";
  EXPECT_GT(checked_bytes(inputs_of(index), parse_case(index), slot::k_idx), std::uint64_t{16} << 20);
}

TEST(generated_stream, is_nothing_else) {
  const auto has = [](const char* text, slot where) { return !inputs_of(text).find(where)->generated.runs.empty(); };
  EXPECT_FALSE(has("dense/h8x2.d64.b32.k4.l1.i0/q1.n64K/fp32.contig/carry/s0", slot::v));
  EXPECT_FALSE(has("dense/h8x2.d64.b32.k4.l1.i0/q1.n8K/fp32.contig/random/s0", slot::k));  // small
  EXPECT_FALSE(has("score/m3/q1.n128K/bf16.paged/random.realistic/s0", slot::k_idx));
}

TEST(generated_stream, is_cut_to_whole_counters) {
  const generated_stream g = runs_of({{10, 5, 3}, {16, 8, many + 2}});
  ASSERT_EQ(g.runs.size(), 1u);
  EXPECT_EQ(g.exponent, -3);
  EXPECT_EQ(g.runs[0].begin, 16u);
  EXPECT_EQ(g.runs[0].first, 8u);
  EXPECT_EQ(g.runs[0].count, many);
}

TEST(generated_stream, has_no_run_that_is_short_or_lies_aslant) {
  EXPECT_TRUE(runs_of({{0, 0, 1000}}).runs.empty());
  EXPECT_TRUE(runs_of({{2, 0, many}}).runs.empty());  // a counter would have to be written in two parts
  EXPECT_EQ(runs_of({{0, 0, many}, {4 * many, 2 * many, 1000}, {6 * many, 3 * many, many}}).runs.size(), 2u);
}

TEST(generated_stream, ends_where_contents_change) {
  input_set set = inputs_of("attend/m3.tp4/q4.n300/bf16.paged/random/s0");
  buffer& lens = *std::ranges::find(set.inputs, slot::kv_lens, &buffer::where);
  lens.generated.runs = {{0, 0, 4}};
  changed_contents contents(set);
  contents.shorten();
  EXPECT_TRUE(lens.generated.runs.empty());
}
