// SPDX-License-Identifier: Apache-2.0
// What a device makes of a stream, against what the host makes of it; and how the message tells which.
#include <gtest/gtest.h>

#include <cstring>

#include "core/error.h"
#include "core/normal_step.h"
#include "host/protocol.h"
#include "host/worker/generated_group.h"

using namespace msabench;

namespace {

template <class Stored>
std::vector<Stored> groups_of(const stream& from, dtype type, double scale, std::uint64_t first, std::uint64_t count) {
  std::vector<Stored> elements(normal_steps), made(count);
  fill_normal_elements(elements.data(), type, scale);
  for (std::uint64_t i = 0; i < count; i += group_elements) {
    const auto group = make_group(elements.data(), from.key(), from.seed(), (first + i) / group_elements);
    std::memcpy(made.data() + i, group.elements, sizeof group.elements);
  }
  return made;
}

template <class Stored>
void expect_the_same(dtype type) {
  constexpr std::uint64_t count = 8192;
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{7}, ~std::uint64_t{5}})
    for (const double scale : {1.0, 0x1p-3, 0x1p2})
      for (const std::uint64_t first : {std::uint64_t{0}, std::uint64_t{12}, std::uint64_t{1} << 32,
                                        (std::uint64_t{1} << 34) - 4096, (std::uint64_t{1} << 35) + 4}) {
        const stream from("some/case", "k", seed);
        std::vector<Stored> wanted(count);
        from.fill_normal(wanted.data(), type, first, count, scale);
        EXPECT_EQ(groups_of<Stored>(from, type, scale, first, count), wanted)
            << name(type) << " from " << first << ", seed " << seed << ", scale " << scale;
      }
}

// A region of 1 MiB that is filled from byte 64 on, with these runs.
generated_stream decoded(nlohmann::json change) {
  const input_set none;
  nlohmann::json generated = {{"slot", "k"}, {"dtype", "bf16"}, {"key", "18446744073709551615"},
                              {"seed", "3"}, {"exponent", -3},  {"runs", {{64, 8, 400}, {1024, 4096, 1000}}}};
  generated.update(change);
  nlohmann::json region = {
      {"bytes", 1 << 20}, {"guard_bytes", 4096}, {"filled", {{64, 4096}, {8192, 1 << 20}}}, {"generated", generated}};
  // As they arrive: numbers without sign are told from others.
  region = nlohmann::json::parse(region.dump());
  shared_region memory = shared_region::create("test", 1 << 20, 4096);
  unique_fd fd(::dup(memory.fd()));
  return protocol::map_region(region, fd).generated;
}

}  // namespace

TEST(generated, groups_are_what_the_host_makes) {
  expect_the_same<std::uint16_t>(bf16);
  expect_the_same<std::uint16_t>(fp16);
  expect_the_same<std::uint32_t>(fp32);
  expect_the_same<std::uint8_t>(e4m3);
}

TEST(generated, runs_travel) {
  const generated_stream g = decoded(nlohmann::json::object());
  EXPECT_EQ(g.where, slot::k);
  EXPECT_EQ(g.type, bf16);
  EXPECT_EQ(g.key, ~std::uint64_t{0});
  EXPECT_EQ(g.seed, 3u);
  EXPECT_EQ(g.exponent, -3);
  ASSERT_EQ(g.runs.size(), 2u);
  EXPECT_EQ(g.runs[1].first, 4096u);
  EXPECT_EQ(g.end_of(g.runs[1]), 1024u + 2000u);
}

TEST(generated, what_a_device_could_not_make_is_refused) {
  const nlohmann::json wrong[] = {{{"dtype", "i32"}},
                                  {{"dtype", "fp64"}},
                                  {{"exponent", 500}},
                                  {{"key", "x"}},
                                  {{"runs", {{64, 8}}}},
                                  {{"runs", {{-8, 8, 400}}}},
                                  {{"runs", {{64, 6, 400}}}},                   // within a counter
                                  {{"runs", {{64, 8, 402}}}},                   // half of one
                                  {{"runs", {{66, 8, 400}}}},                   // not where one can be written
                                  {{"runs", {{0, 8, 400}}}},                    // before what is filled
                                  {{"runs", {{64, 8, 2020}}}},                  // past its end
                                  {{"runs", {{4096, 8, 400}}}},                 // between two ranges
                                  {{"runs", {{64, 8, 400}, {512, 400, 400}}}},  // over each other
                                  {{"runs", {{1024, 8, 400}, {64, 400, 400}}}},
                                  {{"runs", {{8192, 8, std::uint64_t{1} << 63}}}},
                                  {{"runs", {{std::uint64_t{1} << 40, 8, 400}}}}};
  for (const auto& change : wrong) {
    SCOPED_TRACE(change.dump());
    try {
      decoded(change);
      ADD_FAILURE() << "taken";
    } catch (const usage_error& e) {
      EXPECT_EQ(e.what_is_wrong().field, "generated." + change.begin().key()) << e.what();
    }
  }
}

TEST(generated, is_told_to_devices_of_contents_that_stay) {
  const case_spec c = parse_case("dense/h8x2.d64.b32.k4.l1.i0/q1.n64K/fp32.contig/random/s0");
  input_set set = make_inputs(c, make_problem(c));
  const auto told = [&](bool to_device) {
    std::size_t runs = 0;
    const auto message = protocol::encode_execute(set, nullptr, {}, to_device);
    for (const auto& region : message.body.at("regions"))
      if (region.contains("generated")) runs += region.at("generated").at("runs").size();
    return runs;
  };
  EXPECT_EQ(told(true), 2u);
  EXPECT_EQ(told(false), 0u);
  set.before_launch = [](std::int32_t) {};
  EXPECT_EQ(told(true), 2u);
  set.changing = {slot::k};
  EXPECT_EQ(told(true), 1u);
}

TEST(generated, the_rest_is_uploaded) {
  generated_stream g;
  g.type = bf16;
  const protocol::byte_ranges filled = {{64, 4096}, {8192, 10000}, {10240, 10500}};
  EXPECT_EQ(protocol::uploaded(filled, g), filled);
  g.runs = {{64, 0, 400}, {1024, 0, 1000}, {8192, 0, 904}};
  const protocol::byte_ranges rest = {{864, 1024}, {3024, 4096}, {10240, 10500}};
  EXPECT_EQ(protocol::uploaded(filled, g), rest);
}
