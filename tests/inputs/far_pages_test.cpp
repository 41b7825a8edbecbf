// SPDX-License-Identifier: Apache-2.0
// Pools far larger than what is used: places past 2^16 pages and 2^32 bytes, poison where a shorter number leads, and
// little memory.
#include <sys/stat.h>

#include <algorithm>
#include <set>

#include "core/operator_table.h"
#include "inputs/truncated_pages.h"
#include "tests/inputs/made_case.h"

namespace msabench {
namespace {

// Bytes of the machine's memory behind a region.
std::uint64_t resident_bytes(const shared_region& region) {
  struct stat file{};
  EXPECT_EQ(fstat(region.fd(), &file), 0);
  return static_cast<std::uint64_t>(file.st_blocks) * 512;
}

struct paged_cache {
  slot table, keys;
};

std::set<std::int64_t> used_pages(const made_case& m, const paged_cache& cache) {
  std::set<std::int64_t> pages;
  const tensor_view& table = m.view(cache.table);
  for (std::int64_t b = 0; b < m.batch(); ++b)
    for (std::int64_t column = 0; column * m.p.page_size < m.kv_len(b); ++column) pages.insert(table.int_at(b, column));
  return pages;
}

extent::kind kind_at(const buffer& b, std::uint64_t at) {
  for (const extent& e : b.contents)
    if (at >= e.begin && at < e.end) return e.holds;
  ADD_FAILURE() << at << " lies in no extent";
  return extent::kind::hole;
}

void expect_far(std::string_view name, const paged_cache& cache, std::int64_t first_page, std::int64_t bits_of_offset) {
  const made_case m(name);
  const buffer& b = *m.set.find(cache.keys);
  const std::int64_t size = size_bytes(b.desc.type), stride = b.desc.strides[0];
  const auto pages = used_pages(m, cache);
  ASSERT_FALSE(pages.empty()) << name;
  for (const std::int64_t page : pages) {
    EXPECT_GE(page, first_page) << name;
    EXPECT_GE(page * stride * size, std::int64_t{1} << bits_of_offset) << name;
    const std::uint64_t begin = b.offset + static_cast<std::uint64_t>(page * stride * size);
    if (kind_at(b, begin) != extent::kind::filled) continue;
    for (const std::int64_t other : truncated_pages(page, stride, size)) {
      EXPECT_EQ(pages.count(other), 0u) << name;
      EXPECT_EQ(kind_at(b, b.offset + static_cast<std::uint64_t>(other * stride * size)), extent::kind::poisoned)
          << name << " page " << page << " cut to " << other;
      // Of index keys every other page outweighs all keys: a maximum passes over NaN.
      const double there = load(b.data(), b.desc.type, other * stride);
      EXPECT_TRUE(std::isnan(there) || (cache.keys == slot::k_idx && there > 9000)) << name << " page " << other;
    }
  }
  EXPECT_LE(resident_bytes(*b.region), std::uint64_t{512} << 20) << name;
  EXPECT_LE(m.set.bytes(), std::uint64_t{1} << 30) << name;
}

TEST(far_pages, of_keys) {
  constexpr paged_cache main_branch{slot::block_table, slot::k};
  expect_far("attend/m3/q1.n8K/bf16.paged/needle/pool128K/s0", main_branch, 65536, 33);
  expect_far("attend/m3.tp4/rag.draft/bf16.fused/random/pool128K/s0", main_branch, 65536, 32);
  expect_far("dense/h2x1.d64.b32.k4.l1.i0/rag.small/bf16.paged/random/pool128K/s0", main_branch, 65536, 28);
}

TEST(far_pages, of_index_keys) {
  constexpr paged_cache index_branch{slot::block_table_idx, slot::k_idx};
  expect_far("score/m3/q1.n8K/bf16.paged/random/pool512K/s0", index_branch, 262144, 33);
  expect_far("index/m3/q1.n8K/bf16.paged/random/pool512K/s0", index_branch, 262144, 33);
  expect_far("msa/m3/q1.n8K/bf16.fused/needle/pool128K/s0", index_branch, 65536, 31);
}

TEST(far_pages, guards_reach_as_far_as_a_negative_number_leads) {
  const made_case m("attend/m3/q1.n8K/bf16.paged/needle/pool128K/s0");
  const buffer& k = *m.set.find(slot::k);
  const auto page_bytes = static_cast<std::uint64_t>(k.desc.strides[0] * size_bytes(k.desc.type));
  EXPECT_GE(k.region->guard_bytes(), 32768 * page_bytes);
  EXPECT_GE(k.region->guard_bytes(), std::uint64_t{2} << 31);  // of two-byte elements
}

// Where nobody may look there is nothing to read, not even zeros; a pool without the option keeps its holes.
TEST(far_pages, holes_have_no_access) {
  const auto kinds = [](std::string_view name) {
    std::set<extent::kind> all;
    const made_case m(name);
    std::uint64_t end = 0;
    for (const extent& e : m.set.find(slot::k)->contents) {
      EXPECT_EQ(e.begin, end);
      end = e.end;
      if (e.holds == extent::kind::unmapped) {
        EXPECT_EQ(e.begin % 65536 + e.end % 65536, 0u);
      }
      all.insert(e.holds);
    }
    return all;
  };
  EXPECT_TRUE(kinds("attend/m3/q1.n8K/bf16.paged/needle/pool128K/s0").contains(extent::kind::unmapped));
  EXPECT_FALSE(kinds("attend/m3/q1.n1M/bf16.paged/needle/s0").contains(extent::kind::unmapped));
}

TEST(truncated_pages, are_those_that_a_shorter_number_gives) {
  EXPECT_TRUE(truncated_pages(65535, 8192, 2).empty());
  EXPECT_EQ(truncated_pages(65537, 8192, 2), (std::vector<std::int64_t>{1}));
  // 2^17 pages of 2^16 elements of 2 bytes: 2^34 bytes.
  EXPECT_EQ(truncated_pages(131071, 65536, 2), (std::vector<std::int64_t>{65535, 32767, 65535}));
  // A page that divides nothing: the place lies in two.
  const auto two = truncated_pages(60000, 50000, 2);
  const std::int64_t rest = 60000LL * 100000 % (1LL << 32) / 100000;
  EXPECT_EQ(two, (std::vector<std::int64_t>{rest, rest + 1}));
}

}  // namespace
}  // namespace msabench
