// SPDX-License-Identifier: Apache-2.0
// Whole sets: reproducible, undamaged, cheap, and changes in them are found.
#include <omp.h>
#include <sys/stat.h>

#include <chrono>
#include <cstring>

#include "core/error.h"
#include "inputs/poison.h"
#include "tests/inputs/made_case.h"

namespace msabench {
namespace {

bool same_bytes(const input_set& a, const input_set& b) {
  if (a.inputs.size() != b.inputs.size() || a.inputs_checksum != b.inputs_checksum) return false;
  for (std::size_t i = 0; i < a.inputs.size(); ++i) {
    const buffer &x = a.inputs[i], &y = b.inputs[i];
    if (x.desc != y.desc || !x.region != !y.region) return false;
    if (x.region && (x.region->bytes() != y.region->bytes() ||
                     std::memcmp(x.region->data(), y.region->data(), x.region->bytes()) != 0))
      return false;
  }
  return true;
}

std::vector<std::string> every_case() {
  std::vector<std::string> all;
  const std::string shape = "/h4x2.d64.b32.k4.l1.i0/rag.small/";
  for (const auto& family : families())
    for (const auto variant : family.variants) {
      const std::string values = std::string(family.name) + (variant.empty() ? "" : ".") + std::string(variant);
      for (const op o : family.operators) {
        if (o != op::attend && o != op::dense && o != op::select) continue;
        const std::vector<std::string> types =
            o == op::select ? std::vector<std::string>{"bf16"}
                            : std::vector<std::string>{"bf16.contig", "fp16.paged", "fp32.fused"};
        for (const auto& type : types)
          for (const char* option : {"", "/stride", "/slack", "/stride/slack"})
            all.push_back(std::string(name(o)) + shape + type + "/" + values + option + "/s1");
      }
    }
  return all;
}

TEST(InputSet, EveryFamilyAndLayoutIsMadeTwiceTheSame) {
  const auto names = every_case();
  EXPECT_GE(names.size(), 150u);
  for (const auto& name : names) {
    made_case a(name);
    const made_case b(name);
    EXPECT_TRUE(same_bytes(a.set, b.set)) << name;
    EXPECT_EQ(a.set.inputs_checksum, checksum_inputs(a.set)) << name;
    EXPECT_EQ(find_modified_input(a.c, a.set), nullptr) << name;
    poison_outputs(a.set, 0, 0);
    for (const buffer& output : a.set.outputs) {
      EXPECT_FALSE(find_damage(output, a.set.sizes.t, 0, 0, 0).band) << name;
      EXPECT_FALSE(find_damage(output, a.set.sizes.t, 0, 0, 0).beyond_t) << name;
    }
  }
}

TEST(InputSet, IsTheSameForAnyNumberOfThreads) {
  const int before = omp_get_max_threads();
  for (const char* name : {"attend/m3/rag.tails/bf16.paged/needle/s0", "attend/m3/q33.n8K/bf16.contig/carry.all/s0",
                           "select/m3/q64.n64K/bf16/select.nan/s0"}) {
    omp_set_num_threads(1);
    const made_case one(name);
    omp_set_num_threads(3);
    const made_case three(name);
    EXPECT_TRUE(same_bytes(one.set, three.set)) << name;
  }
  omp_set_num_threads(before);
}

TEST(InputSet, SeedsDiffer) {
  for (const char* name : {"attend/m3/q2.n2K/bf16.paged/random/s", "select/m3/q2.n8K/bf16/select.few/s"}) {
    const made_case a(std::string(name) + "0"), b(std::string(name) + "1");
    EXPECT_NE(a.set.inputs_checksum, b.set.inputs_checksum);
  }
}

TEST(InputSet, FusedHoldsTheValuesOfApart) {
  const std::string_view text = "attend/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.paged/random/s0";
  problem p = make_problem(parse_case(text));
  const made_case apart(text, p);
  p.layout = page_layout::fused;
  const made_case fused(text, p);
  for (const slot s : {slot::k, slot::v})
    for (std::int64_t page = 0; page < p.pool_pages; ++page)
      for (std::int64_t head = 0; head < 2; ++head)
        for (std::int64_t token = 0; token < 32; ++token)
          for (std::int64_t c = 0; c < 64; ++c) {
            const double x = apart.view(s).at(page, head, token, c), y = fused.view(s).at(page, head, token, c);
            ASSERT_TRUE(x == y || (std::isnan(x) && std::isnan(y)));
          }
}

TEST(InputSet, HoldsViewsOfItsInputsOnly) {
  const made_case m("attend/m3/q1.n2K/bf16.paged/random/s0");
  EXPECT_EQ(m.in.size(), 7u);
  EXPECT_FALSE(m.in.contains(slot::out));
  ASSERT_NE(m.set.find(slot::out), nullptr);
  EXPECT_EQ(m.set.find(slot::out)->dir, direction::out);
  ASSERT_NE(m.set.find(slot::lse), nullptr);
  EXPECT_EQ(m.set.find(slot::scores), nullptr);
  problem p = m.p;
  p.asked.lse = lse_form::none;
  EXPECT_EQ(make_inputs(m.c, p).find(slot::lse), nullptr);
}

TEST(InputSet, NothingToDo) {
  const made_case m("attend/m3/rag.idle/bf16.paged/random/s0");
  EXPECT_EQ(m.set.sizes.t, 0);
  EXPECT_EQ(m.set.sizes.b, 3);
  EXPECT_EQ(m.set.find(slot::q)->data(), nullptr);
  EXPECT_EQ(find_modified_input(m.c, m.set), nullptr);
}

TEST(InputSet, FindsTheModifiedInput) {
  for (const char* name :
       {"attend/m3/rag.draft/bf16.paged/random/s0", "attend/m3/rag.draft/bf16.fused/random/stride/s0",
        "attend/m3/q1.n1M/bf16.paged/random/s0", "select/m3/rag.draft/bf16/select.gap/slack/s0"}) {
    const made_case m(name);
    for (const buffer& b : m.set.inputs) {
      if (b.where == slot::v && m.p.layout == page_layout::fused) continue;  // memory of k
      for (const auto kind : {extent::kind::filled, extent::kind::poisoned}) {
        const auto last =
            std::find_if(b.contents.rbegin(), b.contents.rend(), [&](const extent& e) { return e.holds == kind; });
        ASSERT_TRUE(kind == extent::kind::poisoned || last != b.contents.rend());
        if (last == b.contents.rend()) continue;
        b.region->data()[last->end - 1] ^= std::byte{4};
        EXPECT_NE(checksum_inputs(m.set), m.set.inputs_checksum) << name << ' ' << msabench::name(b.where);
        EXPECT_EQ(find_modified_input(m.c, m.set), &b);
        b.region->data()[last->end - 1] ^= std::byte{4};
        EXPECT_EQ(checksum_inputs(m.set), m.set.inputs_checksum);
      }
    }
  }
}

std::uint64_t resident_bytes(const input_set& set) {
  std::map<int, std::uint64_t> by_file;
  for (const auto* list : {&set.inputs, &set.outputs})
    for (const buffer& b : *list) {
      struct stat file{};
      if (!b.region || fstat(b.region->fd(), &file) != 0) continue;
      by_file[b.region->fd()] = static_cast<std::uint64_t>(file.st_blocks) * 512;
    }
  std::uint64_t total = 0;
  for (const auto& [fd, bytes] : by_file) total += bytes;
  return total;
}

TEST(InputSet, AMillionKeysAreCheap) {
  for (const char* family : {"random", "needle", "block_code", "key_code.high", "carry", "carry.all"})
    for (const char* layout : {"paged", "fused", "contig"}) {
      const std::string name = std::string("attend/m3/q1.n1M/bf16.") + layout + "/" + family + "/s0";
      const auto start = std::chrono::steady_clock::now();
      made_case m(name);
      const double elapsed_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      poison_outputs(m.set, 0, 0);
      EXPECT_LT(resident_bytes(m.set), 200u << 20) << name;
      EXPECT_LE(m.set.bytes(), resident_bytes(m.set)) << name;
      // Half a second where nobody else computes; the limit leaves room for loaded and sanitized machines.
      EXPECT_LT(elapsed_s, 8) << name;
      EXPECT_GE(m.set.find(slot::k)->region->bytes(), std::uint64_t{1} << 30) << name;
    }
}

TEST(InputSet, RefusesWhatItCannotMake) {
  const auto c = parse_case("attend/m3/q4.n2K/bf16.paged/random/s0");
  problem p = make_problem(c);
  p.total_q = 3;
  EXPECT_THROW(make_inputs(c, p), suite_error);
  p = make_problem(c);
  p.operation = op::select;
  EXPECT_THROW(make_inputs(c, p), suite_error);
  p = make_problem(c);
  p.pool_pages = 2;
  EXPECT_THROW(make_inputs(c, p), suite_error);
  case_spec unknown = c;
  unknown.family = "nothing";
  EXPECT_THROW(make_inputs(unknown, make_problem(c)), suite_error);
}

}  // namespace
}  // namespace msabench
