// SPDX-License-Identifier: Apache-2.0
// Where tensors lie: strides, alignment, guards, page tables, lengths.
#include <set>

#include "tests/inputs/made_case.h"

namespace msabench {
namespace {

void touch(const void* at) { static_cast<void>(*static_cast<const volatile std::byte*>(at)); }

TEST(Layout, IsPackedByDefault) {
  const made_case m("attend/h8x2.d64.b32.k5.l1.i0/q5.n500/bf16.paged/random/s0");
  for (const auto* list : {&m.set.inputs, &m.set.outputs})
    for (const buffer& b : *list) EXPECT_EQ(b.desc.strides, packed_strides(b.desc.shape)) << name(b.where);
}

TEST(Layout, PadsByMultiplesOf16Bytes) {
  for (const char* layout : {"contig", "paged", "fused"}) {
    const made_case m(std::string("attend/h6x3.d64.b32.k5.l1.i0/q5.n500/bf16.") + layout + "/random/stride/s0");
    for (const auto* list : {&m.set.inputs, &m.set.outputs})
      for (const buffer& b : *list) {
        const auto packed = packed_strides(b.desc.shape);
        EXPECT_EQ(b.desc.strides.back(), 1);
        for (std::size_t axis = 0; axis + 1 < packed.size(); ++axis) {
          EXPECT_GT(b.desc.strides[axis], packed[axis]) << name(b.where);
          EXPECT_EQ(b.desc.strides[axis] * size_bytes(b.desc.type) % 16, 0) << name(b.where);
          EXPECT_GT(b.desc.strides[axis], b.desc.shape[axis + 1] * b.desc.strides[axis + 1]) << name(b.where);
        }
      }
  }
}

TEST(Layout, AlignsFirstElements) {
  for (const char* name : {"attend/m3/q5.n500/bf16.paged/random/s0", "attend/m3/q5.n500/bf16.fused/random/stride/s0",
                           "attend/m3/q5.n500/fp32.contig/random/slack/s0", "select/m3/q5.n500/bf16/select.gap/s0"}) {
    const made_case m(name);
    for (const auto* list : {&m.set.inputs, &m.set.outputs})
      for (const buffer& b : *list) EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.data()) % 256, 0u) << name;
  }
}

TEST(Layout, FusedHalvesShareARegion) {
  const made_case m("attend/h8x2.d64.b32.k4.l1.i0/q5.n500/bf16.fused/random/s0");
  const buffer &k = *m.set.find(slot::k), &v = *m.set.find(slot::v);
  EXPECT_EQ(k.region, v.region);
  EXPECT_EQ(k.desc.strides, v.desc.strides);
  EXPECT_EQ(k.desc.strides[2], 128);
  EXPECT_EQ(v.offset, 128u);
}

TEST(Layout, OutputsHaveBands) {
  const made_case m("attend/h8x2.d64.b32.k4.l1.i0/q5.n500/bf16.fused/random/stride/s0");
  for (const buffer& b : m.set.outputs) {
    const auto end = b.offset + static_cast<std::uint64_t>(b.desc.span_elements() * size_bytes(b.desc.type));
    EXPECT_GE(b.offset, 256u);
    EXPECT_GE(b.region->bytes() - end, 256u);
  }
}

TEST(Layout, ContentsCoverRegionsWithoutGaps) {
  for (const char* name : {"attend/m3/q1.n128K/bf16.paged/random/s0", "attend/m3/q5.n64K/bf16.contig/needle/s0",
                           "attend/h6x3.d64.b32.k5.l1.i0/rag.small/bf16.fused/carry/stride/s0",
                           "attend/h6x3.d64.b32.k5.l1.i0/rag.small/bf16.contig/random/slack/s0"}) {
    const made_case m(name);
    for (const buffer& b : m.set.inputs) {
      std::uint64_t at = 0;
      for (const extent& e : b.contents) {
        EXPECT_EQ(e.begin, at);
        EXPECT_GT(e.end, e.begin);
        at = e.end;
      }
      EXPECT_EQ(at, b.region->bytes()) << name << ' ' << msabench::name(b.where);
    }
    for (const buffer& b : m.set.outputs) EXPECT_TRUE(b.contents.empty());
  }
}

TEST(LayoutDeathTest, IndexMinusOneMeetsTheGuard) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const made_case m("attend/m3/q1.n4K.x2/bf16.paged/random/s0");
  for (const buffer& b : m.set.inputs) {
    const auto* const first = static_cast<const std::byte*>(b.data());
    // A row, a page of all heads, one head of a page, one element in front.
    for (const std::int64_t stride : b.desc.strides)
      EXPECT_DEATH(touch(first - stride * size_bytes(b.desc.type)), "") << name(b.where) << ' ' << stride;
    EXPECT_DEATH(touch(b.region->data() + b.region->bytes()), "") << name(b.where);
  }
}

TEST(Lengths, AreCumulative) {
  const made_case m("attend/h8x2.d64.b32.k4.l1.i0/rag.holes/bf16.contig/random/s0");
  const auto expected = sequences(m.c);
  std::int64_t rows = 0, keys = 0;
  EXPECT_EQ(m.view(slot::cu_seqlens_q).desc.shape[0], static_cast<std::int64_t>(expected.size()) + 1);
  for (std::size_t b = 0; b < expected.size(); ++b) {
    EXPECT_EQ(m.view(slot::cu_seqlens_q).int_at(b), rows);
    EXPECT_EQ(m.view(slot::cu_seqlens_kv).int_at(b), keys);
    EXPECT_EQ(m.view(slot::kv_lens).int_at(b), expected[b].kv_len);
    rows += expected[b].q_len;
    keys += expected[b].kv_len;
  }
  EXPECT_EQ(m.set.sizes.t, rows);
  EXPECT_EQ(m.set.sizes.n, keys);
  EXPECT_EQ(m.view(slot::cu_seqlens_kv).int_at(expected.size()), keys);
}

TEST(Lengths, SlackIsInTheTensorsOnly) {
  const made_case m("attend/h8x2.d64.b32.k4.l1.i0/q5.n500.x2/bf16.contig/random/slack/s0");
  EXPECT_EQ(m.set.sizes.t, 10);
  EXPECT_EQ(m.view(slot::q).desc.shape[0], m.p.total_q);
  EXPECT_GT(m.p.total_q, 10);
  EXPECT_EQ(m.view(slot::k).desc.shape[0], m.p.total_kv);
  EXPECT_GT(m.p.total_kv, 1000);
  EXPECT_EQ(m.view(slot::kv_lens).desc.shape[0], 2);
  EXPECT_GT(m.p.batch, 2);
  for (std::int64_t row = 10; row < m.p.total_q; ++row) EXPECT_TRUE(std::isnan(m.view(slot::q).at(row, 0, 0)));
  for (std::int64_t key = 1000; key < m.p.total_kv; ++key) EXPECT_TRUE(std::isnan(m.view(slot::k).at(key, 1, 3)));
}

TEST(Pages, ArePermutedAndPageZeroIsNobodys) {
  const made_case m("attend/m3/q1.n32K.x2/bf16.paged/needle/s0");
  std::set<std::int32_t> pages;
  int in_place = 0;
  for (std::int64_t b = 0; b < 2; ++b)
    for (std::int64_t column = 0; column < 256; ++column) {
      const std::int32_t page = m.view(slot::block_table).int_at(b, column);
      pages.insert(page);
      in_place += page == b * 256 + column;
      EXPECT_GT(page, 0);
      EXPECT_LT(page, m.p.pool_pages);
    }
  EXPECT_EQ(pages.size(), 512u);
  EXPECT_LT(in_place, 16);
  EXPECT_LT(512, m.p.pool_pages);
}

TEST(Pages, UnusedEntriesAreHuge) {
  const made_case m("attend/h8x2.d64.b32.k4.l1.i0/rag.small/bf16.paged/random/s0");
  const std::int64_t columns = m.view(slot::block_table).desc.shape[1];
  int unused = 0;
  for (std::int64_t b = 0; b < m.batch(); ++b)
    for (std::int64_t column = (m.kv_len(b) + 31) / 32; column < columns; ++column, ++unused)
      EXPECT_GE(m.view(slot::block_table).int_at(b, column), 0x7FFFFFF0);
  EXPECT_GT(unused, 50);
}

TEST(Pages, NumbersPass65535) {
  const made_case m("attend/h4x1.d64.b64.k4.l1.i0/q1.n1M/bf16.paged/random/page16/s0");
  std::int32_t largest = 0, selected_past = 0;
  for (std::int64_t column = 0; column < 65536; ++column)
    largest = std::max(largest, m.view(slot::block_table).int_at(0, column));
  EXPECT_GT(largest, 65535);
  for (const std::int64_t block : m.chosen(0, 0))
    for (int page = 0; page < 4; ++page) selected_past += m.view(slot::block_table).int_at(0, block * 4 + page) > 65535;
  EXPECT_GT(selected_past, 0);
}

TEST(Pages, RaggedBatchesShareAPrefix) {
  const made_case m("attend/m3/rag.three/bf16.paged/random/s0"), apart("attend/m3/rag.three/bf16.paged/needle/s0");
  const auto shared = [](const made_case& of) {
    std::map<std::int32_t, std::set<std::int64_t>> holders;
    for (std::int64_t b = 0; b < of.batch(); ++b)
      for (std::int64_t column = 0; column * of.p.page_size < of.kv_len(b); ++column)
        holders[of.view(slot::block_table).int_at(b, column)].insert(b);
    std::int64_t count = 0;
    for (const auto& [page, sequences] : holders) count += sequences.size() > 1;
    return count;
  };
  EXPECT_EQ(shared(m), 8);  // of sequences of 2600 and 1033 tokens, the last 1 and 7 of this call
  EXPECT_EQ(shared(apart), 0);
}

}  // namespace
}  // namespace msabench
