// SPDX-License-Identifier: Apache-2.0
#include "inputs/poison.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "inputs/checksum.h"
#include "tests/inputs/made_case.h"

namespace msabench {
namespace {

constexpr std::string_view small_case = "attend/h4x2.d64.b32.k4.l1.i0/q3.n300.x2/bf16.paged/random/s0";
constexpr std::string_view strided_case = "attend/h4x2.d64.b32.k4.l1.i0/q3.n300.x2/bf16.paged/random/stride/s0";
constexpr std::string_view slack_case = "attend/h4x2.d64.b32.k4.l1.i0/q3.n300.x2/bf16.paged/random/slack/s0";

struct output_fixture {
  explicit output_fixture(std::string_view name, slot s = slot::out) : made(name) {
    poison_outputs(made.set, 1, 5);
    for (buffer& b : made.set.outputs)
      if (b.where == s) output = &b;
  }
  damage look(int launch = 1, std::uint64_t seed = 5) const {
    return find_damage(*output, made.set.sizes.t, 0, launch, seed);
  }
  std::byte& at(std::int64_t offset) const {
    return output->region->data()[static_cast<std::int64_t>(output->offset) + offset];
  }

  made_case made;
  buffer* output = nullptr;
};

TEST(Poison, RepeatsOneElement) {
  for (const dtype t : {bf16, fp16, fp32, fp64, e4m3, i32}) {
    std::vector<std::byte> bytes(10'000);
    fill_poison(bytes, t, 3, 9);
    const tensor_view view{bytes.data(), packed(t, {10'000 / size_bytes(t)})};
    for (std::int64_t i = 0; i < view.desc.elements(); ++i) {
      ASSERT_TRUE(is_poison(view, i, 3, 9)) << name(t) << ' ' << i;
      ASSERT_TRUE(t == i32 || std::isnan(load(view.data, t, i)));
    }
  }
}

TEST(Poison, InPartsIsTheSame) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{3000}, (std::size_t{21} << 20) + 1000}) {
    std::vector<std::byte> whole(size), parts(size);
    fill_poison(whole, fp32, 3, 9);
    fill_poison_in_parts(parts, fp32, 3, 9);
    EXPECT_EQ(whole, parts) << size;
  }
}

TEST(Poison, FillsAllOfAnOutput) {
  for (const slot s : {slot::out, slot::lse}) {
    const output_fixture f(small_case, s);
    const tensor_view view = f.output->view();
    for (std::int64_t i = 0; i < view.desc.span_elements(); ++i) ASSERT_TRUE(is_poison(view, i, 1, 5));
    EXPECT_FALSE(f.look().band);
    EXPECT_FALSE(f.look().beyond_t);
  }
}

TEST(FindDamage, KnowsTheLaunch) {
  const output_fixture f(small_case);
  EXPECT_TRUE(f.look(0, 5).band);
  EXPECT_TRUE(f.look(1, 6).band);
}

TEST(FindDamage, SeesOneByteOnEitherSide) {
  for (const std::string_view name : {small_case, strided_case, slack_case}) {
    const output_fixture f(name);
    const std::int64_t end = f.output->desc.span_elements() * 2;
    for (const std::int64_t at : {std::int64_t{-1}, std::int64_t{-256}, end, end + 255}) {
      f.at(at) ^= std::byte{1};
      const damage found = f.look();
      EXPECT_TRUE(found.band);
      EXPECT_FALSE(found.beyond_t);
      EXPECT_EQ(found.at, at);
      f.at(at) ^= std::byte{1};
      EXPECT_FALSE(f.look().band);
    }
  }
}

TEST(FindDamage, LeavesTheTensorToTheImplementation) {
  for (const std::string_view name : {small_case, strided_case, slack_case}) {
    const output_fixture f(name);
    const auto& desc = f.output->desc;
    for (std::int64_t row = 0; row < f.made.set.sizes.t; ++row)
      for (std::int64_t head = 0; head < desc.shape[1]; ++head)
        for (std::int64_t c = 0; c < desc.shape[2]; ++c)
          f.at((row * desc.strides[0] + head * desc.strides[1] + c) * 2) ^= std::byte{1};
    const damage found = f.look();
    EXPECT_FALSE(found.band);
    EXPECT_FALSE(found.beyond_t);
  }
}

TEST(FindDamage, SeesStrideGaps) {
  const output_fixture f(strided_case);
  const auto& desc = f.output->desc;
  ASSERT_GT(desc.strides[1], desc.shape[2]);
  ASSERT_GT(desc.strides[0], desc.shape[1] * desc.strides[1]);
  const std::int64_t behind_head = (desc.strides[0] + desc.strides[1] + desc.shape[2]) * 2;
  const std::int64_t behind_row = (2 * desc.strides[0] + desc.shape[1] * desc.strides[1]) * 2;
  for (const std::int64_t at : {behind_head, behind_row}) {
    f.at(at) ^= std::byte{1};
    EXPECT_TRUE(f.look().band);
    EXPECT_EQ(f.look().at, at);
    f.at(at) ^= std::byte{1};
  }
}

TEST(FindDamage, SeesRowsPastT) {
  const output_fixture f(slack_case);
  const auto& desc = f.output->desc;
  ASSERT_EQ(f.made.set.sizes.t, 6);
  ASSERT_GT(desc.shape[0], 6);
  const std::int64_t at = 6 * desc.strides[0] * 2;
  f.at(at) ^= std::byte{1};
  EXPECT_TRUE(f.look().beyond_t);
  EXPECT_FALSE(f.look().band);
  EXPECT_EQ(f.look().at, at);
  EXPECT_FALSE(find_damage(*f.output, 6, -1, 1, 5).beyond_t);
}

TEST(FindDamage, KnowsTheRowAxis) {
  const auto c = parse_case("select/h4x2.d64.b32.k4.l1.i0/q3.n300.x2/bf16/select.gap/slack/s0");
  problem p = make_problem(c);
  p.asked.out_id_layout = id_layout::htk;
  input_set set = make_inputs(c, p);
  poison_outputs(set, 0, 0);
  const buffer& ids = *set.find(slot::ids);
  ASSERT_EQ(ids.desc.shape, (std::vector<std::int64_t>{2, 15, 4}));
  EXPECT_FALSE(find_damage(ids, set.sizes.t, 1, 0, 0).beyond_t);
  // Row 6 of head 0 lies in front of the rows of head 1, which are the implementation's.
  reinterpret_cast<std::int32_t*>(ids.region->data() + ids.offset)[6 * 4] = 1;
  EXPECT_TRUE(find_damage(ids, set.sizes.t, 1, 0, 0).beyond_t);
  reinterpret_cast<std::int32_t*>(ids.region->data() + ids.offset)[15 * 4] = 1;
  EXPECT_EQ(find_damage(ids, set.sizes.t, 1, 0, 0).at, 6 * 16);
}

TEST(FindDamage, WatchesOutputsWithoutElements) {
  const output_fixture f("attend/h4x2.d64.b32.k4.l1.i0/rag.idle/bf16.paged/random/s0");
  ASSERT_EQ(f.output->desc.elements(), 0);
  ASSERT_TRUE(f.output->region);
  EXPECT_FALSE(f.look().band);
  f.at(0) ^= std::byte{1};
  EXPECT_TRUE(f.look().band);
}

TEST(Checksum, SeesEveryBitAndTheOrder) {
  std::vector<std::byte> bytes(1003);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 + i / 61);
  const std::uint64_t sum = checksum(bytes, 1);
  EXPECT_EQ(sum, checksum(bytes, 1));
  EXPECT_NE(sum, checksum(bytes, 2));
  EXPECT_NE(sum, checksum(std::span(bytes).first(1002), 1));
  for (std::size_t i = 0; i < bytes.size(); ++i)
    for (int bit = 0; bit < 8; ++bit) {
      bytes[i] ^= static_cast<std::byte>(1 << bit);
      ASSERT_NE(checksum(bytes, 1), sum) << i;
      bytes[i] ^= static_cast<std::byte>(1 << bit);
    }
  for (const std::size_t apart : {std::size_t{1}, std::size_t{8}, std::size_t{64}, std::size_t{512}}) {
    std::swap(bytes[3], bytes[3 + apart]);
    EXPECT_NE(checksum(bytes, 1), sum);
    std::swap(bytes[3], bytes[3 + apart]);
  }
}

}  // namespace
}  // namespace msabench
