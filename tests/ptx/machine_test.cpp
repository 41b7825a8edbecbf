// SPDX-License-Identifier: Apache-2.0
// Lanes, warps and blocks: that they meet where they have to, and that kernels which rely on luck are found out.
#include <gtest/gtest.h>

#include <set>

#include "tests/ptx/run_text.h"
#include "tests/ptx/tensor_map.h"

namespace msabench::ptx {
namespace {

/// Stores %d9 to out[%i].
const std::string store =
    "\n cvt.u64.u32 %d90, %i; shl.b64 %d90, %d90, 3; add.u64 %d90, %d90, %out; st.global.u64 [%d90], %d9;";

std::string error_of(const std::string& body, const few_lines& how = {}) {
  try {
    run_text(body, 256, how);
  } catch (const ptx_error& e) {
    return e.what();
  }
  return "";
}

TEST(ptx_lanes, meet_again_behind_a_branch) {
  const auto out = run_text(R"(
  and.b32 %r5, %i, 1;
  setp.eq.u32 %p1, %r5, 0;
  @%p1 bra EVEN;
  add.u32 %r6, %i, 100;
  bra.uni JOIN;
EVEN: add.u32 %r6, %i, 200;
JOIN: shfl.sync.bfly.b32 %r7|%p2, %r6, 1, 31, -1;
  cvt.u64.u32 %d9, %r7;)" + store,
                            32);
  for (std::uint64_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i % 2 == 0 ? i + 1 + 100 : i - 1 + 200) << i;
}

TEST(ptx_lanes, shuffle_stays_in_its_segment) {
  const auto out = run_text(
      "shfl.sync.down.b32 %r7|%p2, %i, 3, 0x181f, -1; selp.u32 %r8, 1000, 0, %p2; add.u32 %r7, %r7, %r8; cvt.u64.u32 "
      "%d9, %r7;" +
          store,
      32);
  for (std::uint64_t i = 0; i < 32; ++i) EXPECT_EQ(out[i], i % 8 < 5 ? i + 3 + 1000 : i) << i;
}

TEST(ptx_lanes, who_waits_for_a_lane_that_never_comes_is_named) {
  const std::string error =
      error_of("setp.eq.u32 %p1, %i, 5; @%p1 bra L; shfl.sync.idx.b32 %r7, %i, 0, 31, -1; L: bar.sync 0;");
  EXPECT_NE(error.find("nobody can go on"), std::string::npos) << error;
  EXPECT_NE(error.find("lanes ffffffdf"), std::string::npos) << error;
  EXPECT_NE(error_of("setp.eq.u32 %p1, %i, 5; @%p1 bra L; shfl.sync.idx.b32 %r7, %i, 5, 31, 0xffffffdf; L:")
                .find("reads lane 5"),
            std::string::npos);
}

TEST(ptx_lanes, one_that_is_gone_is_not_waited_for) {
  const auto out =
      run_text("setp.eq.u32 %p1, %i, 5; @%p1 ret; vote.sync.ballot.b32 %r7, 1, -1; cvt.u64.u32 %d9, %r7;" + store, 32);
  EXPECT_EQ(out[0], 0xffffffdf);
  EXPECT_EQ(out[5], 0xeeeeeeeeeeeeeeee);
}

TEST(ptx_lanes, one_that_spins_does_not_keep_the_others_from_what_it_waits_for) {
  const auto out = run_text(R"(
  setp.ne.u32 %p1, %i, 0;
  st.shared.u32 [buffer], 0;
  bar.warp.sync -1;
  @%p1 bra WRITE;
SPIN: ld.shared.u32 %r5, [buffer];
  setp.eq.u32 %p2, %r5, 0;
  @%p2 bra SPIN;
  cvt.u64.u32 %d9, %r5;)" + store +
                                R"(
  ret;
WRITE: st.shared.u32 [buffer], 7;)",
                            1);
  EXPECT_EQ(out[0], 7u);
}

TEST(ptx_barriers, warps_see_what_was_written_before) {
  const std::string body = R"(
  shl.b32 %r5, %i, 2; add.u32 %r5, %r5, 0; mov.u32 %r6, buffer; add.u32 %r6, %r6, %r5;
  st.shared.u32 [%r6], %i;
  BARRIER
  xor.b32 %r7, %i, 96; shl.b32 %r7, %r7, 2; mov.u32 %r8, buffer; add.u32 %r7, %r7, %r8;
  ld.shared.u32 %r9, [%r7]; cvt.u64.u32 %d9, %r9;)" +
                           store;
  const auto with = [&](const std::string& barrier, std::uint64_t seed) {
    std::string text = body;
    text.replace(text.find("BARRIER"), 7, barrier);
    const auto out = run_text(text, 128, {.threads = 128, .order = {.seed = seed}});
    std::uint64_t right = 0;
    for (std::uint64_t i = 0; i < 128; ++i) right += out[i] == (i ^ 96);
    return right;
  };
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    EXPECT_EQ(with("bar.sync 0;", seed), 128u);
    EXPECT_EQ(with("barrier.sync 3, 128;", seed), 128u);
    EXPECT_LT(with("", seed), 128u);
  }
}

TEST(ptx_barriers, producers_arrive_and_consumers_wait) {
  const auto out = run_text(R"(
  setp.ge.u32 %p1, %i, 32;
  @%p1 bra PRODUCER;
  bar.sync 1, 64;
  ld.shared.u32 %r5, [buffer]; cvt.u64.u32 %d9, %r5;)" +
                                store + R"(
  ret;
PRODUCER: st.shared.u32 [buffer], 3;
  bar.arrive 1, 64;)",
                            32, {.threads = 64});
  EXPECT_EQ(out[31], 3u);
}

TEST(ptx_barriers, a_count_that_is_never_reached_is_a_deadlock) {
  EXPECT_NE(
      error_of("setp.lt.u32 %p1, %i, 32; @%p1 bra L; bar.sync 1, 64; L:", {.threads = 64}).find("nobody can go on"),
      std::string::npos);
}

// Shared memory begins with 0xd5 in every byte.
const std::string copy = "cp.async.ca.shared.global [buffer], [%in], 8, 8;";

TEST(ptx_copies, come_only_when_they_are_waited_for) {
  const few_lines how = {.threads = 1, .inputs = {42}};
  const std::string read = "ld.shared.u64 %d9, [buffer];" + store;
  EXPECT_EQ(run_text(copy + "cp.async.commit_group; cp.async.wait_group 0;" + read, 1, how)[0], 42u);
  EXPECT_EQ(run_text(copy + "cp.async.wait_all;" + read, 1, how)[0], 42u);
  EXPECT_EQ(run_text(copy + "cp.async.commit_group; cp.async.wait_group 1;" + read, 1, how)[0], 0xd5d5d5d5d5d5d5d5);
  EXPECT_EQ(run_text(copy + "cp.async.wait_group 0;" + read, 1, how)[0], 0xd5d5d5d5d5d5d5d5);
}

TEST(ptx_copies, what_is_not_read_is_zero) {
  EXPECT_EQ(
      run_text(
          "cp.async.ca.shared.global [buffer], [%in], 8, 4; cp.async.wait_all; ld.shared.u64 %d9, [buffer];" + store, 1,
          {.threads = 1, .inputs = {~std::uint64_t{0}}})[0],
      0xffffffffu);
  // With a policy of the cache behind it.
  EXPECT_EQ(
      run_text("createpolicy.fractional.L2::evict_first.b64 %d1; cp.async.cg.shared.global.L2::cache_hint [buffer], "
               "[%in], 16, 8, %d1; cp.async.wait_all; ld.shared.u64 %d9, [buffer];" +
                   store,
               1, {.threads = 1, .inputs = {42, 43}})[0],
      42u);
}

const std::string make_barrier = "mbarrier.init.shared.b64 [buffer+64], 1;\n";
const std::string expect_bytes = "mbarrier.arrive.expect_tx.shared.b64 _, [buffer+64], 16;\n";
const std::string bulk =
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [buffer], [%in], 16, [buffer+64];\n";
const std::string wait_for_it = "W: mbarrier.try_wait.parity.shared::cta.b64 %p1, [buffer+64], 0; @!%p1 bra W;\n";

TEST(ptx_bulk, bytes_complete_a_phase) {
  const few_lines how = {.threads = 1, .inputs = {42, 43}};
  const std::string read = "ld.shared.u64 %d9, [buffer+8];" + store;
  EXPECT_EQ(run_text(make_barrier + expect_bytes + bulk + wait_for_it + read, 1, how)[0], 43u);
  EXPECT_EQ(run_text(make_barrier + expect_bytes + bulk + read, 1, how)[0], 0xd5d5d5d5d5d5d5d5) << "not waited for";
  EXPECT_NE(error_of(make_barrier + expect_bytes + wait_for_it, how).find("nobody can go on"), std::string::npos)
      << "nothing comes";
  EXPECT_NE(error_of(make_barrier + "mbarrier.arrive.shared.b64 _, [buffer+64], 2;", how).find("more arrivals"),
            std::string::npos);
}

TEST(ptx_bulk, a_box_is_swizzled_and_zero_past_the_edge) {
  // [3][64] of 16 bits; a box of 8 rows of 128 bytes.
  tensor_map map{};
  std::vector<std::uint16_t> memory(3 * 64);
  for (std::size_t n = 0; n < memory.size(); ++n) memory[n] = static_cast<std::uint16_t>(n + 1);
  map.magic = tensor_map::known;
  map.rank = 2;
  map.address = reinterpret_cast<std::uint64_t>(memory.data());
  map.size[0] = 64;
  map.size[1] = 3;
  map.stride[0] = 128;
  map.box[0] = 64;
  map.box[1] = 8;
  map.element_bytes = 2;
  map.swizzle = 3;
  alignas(64) std::array<char, 128> bytes{};
  std::memcpy(bytes.data(), &map, sizeof map);
  const few_lines how = {.inputs = {reinterpret_cast<std::uint64_t>(bytes.data())}};
  // Element (row, column) lies in piece column / 8 ^ row % 8 of its row.
  const auto out = run_text(R"(
  setp.ne.u32 %p3, %i, 0;
  @%p3 bra WAIT;
  mbarrier.init.shared.b64 [buffer+2048], 1;
  mbarrier.arrive.expect_tx.shared.b64 _, [buffer+2048], 1024;
  ld.global.u64 %d1, [%in];
  mov.u32 %r5, 0;
  mov.u32 %r6, 1;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [buffer], [%d1, {%r5, %r6}], [buffer+2048];
WAIT: bar.sync 0;
V: mbarrier.try_wait.parity.shared::cta.b64 %p1, [buffer+2048], 0;
  @!%p1 bra V;
  shl.b32 %r7, %i, 4; mov.u32 %r8, buffer; add.u32 %r7, %r7, %r8;
  ld.shared.u16 %h1, [%r7]; cvt.u64.u16 %d9, %h1;)" +
                                store,
                            32, how);
  for (std::uint64_t piece = 0; piece < 8; ++piece) {
    EXPECT_EQ(out[piece], 64 + 8 * piece + 1) << "row 1 of memory is row 0 of the box";
    EXPECT_EQ(out[8 + piece], 128 + 8 * (piece ^ 1) + 1);
    EXPECT_EQ(out[16 + piece], 0u) << "past the edge";
  }
}

// Two warps; the second reads what the first writes.
std::string race_of(const std::string& body, std::uint64_t seed = 0) {
  return error_of(body, {.threads = 64, .order = {.seed = seed, .races = true}, .inputs = {1, 2, 3, 4}});
}
const std::string write_by_first = "setp.ge.u32 %p1, %i, 32; @!%p1 st.shared.u32 [buffer], 1;\n";
const std::string read_by_second = "@%p1 ld.shared.u32 %r5, [buffer];\n";

TEST(ptx_races, are_found_whatever_the_order_was) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const std::string error = race_of(write_by_first + read_by_second, seed);
    EXPECT_NE(error.find("a race on shared memory"), std::string::npos) << seed;
    EXPECT_NE(error.find("nothing orders the two"), std::string::npos) << seed;
    EXPECT_EQ(race_of(write_by_first + "bar.sync 0;" + read_by_second, seed), "") << seed;
    EXPECT_EQ(race_of(write_by_first + "@!%p1 bar.arrive 1, 64; @%p1 bar.sync 1, 64;" + read_by_second, seed), "")
        << seed;
    EXPECT_NE(race_of(write_by_first + "@%p1 bar.arrive 1, 64; @!%p1 bar.sync 1, 64;" + read_by_second, seed), "")
        << "the wrong way round";
    EXPECT_NE(race_of("setp.ge.u32 %p1, %i, 32;" + read_by_second + write_by_first, seed), "")
        << "a read, then a write";
    EXPECT_NE(race_of("setp.ge.u32 %p1, %i, 32; st.shared.u32 [buffer], 1;", seed), "") << "two writes";
    EXPECT_EQ(
        race_of("setp.ge.u32 %p1, %i, 32; st.volatile.shared.u32 [buffer], 1; ld.volatile.shared.u32 %r5, [buffer];",
                seed),
        "")
        << "meant to meet";
    EXPECT_EQ(race_of("atom.shared.add.u32 %r5, [buffer], 1;", seed), "");
  }
}

TEST(ptx_races, a_copy_writes_from_its_beginning_to_the_wait) {
  const std::string begin = "setp.ge.u32 %p1, %i, 32; @%p1 ld.shared.u32 %r5, [buffer];\n",
                    copy_by_first = "@!%p1 cp.async.ca.shared.global [buffer], [%in], 8, 8;\n";
  EXPECT_EQ(race_of(begin + "bar.sync 0;" + copy_by_first + "cp.async.wait_all; bar.sync 0;" + read_by_second), "");
  EXPECT_NE(race_of(begin + copy_by_first + "bar.sync 0; cp.async.wait_all;"), "")
      << "begun while the other may still read";
  EXPECT_NE(race_of(begin + "bar.sync 0;" + copy_by_first + "bar.sync 0;" + read_by_second + "cp.async.wait_all;"), "")
      << "read before the wait";
}

TEST(ptx_races, bulk_copies_meet_readers_at_their_barrier) {
  const std::string made =
      "setp.ge.u32 %p1, %i, 32; setp.ne.u32 %p2, %i, 0; @!%p2 mbarrier.init.shared.b64 [buffer+64], 1; bar.sync 0;\n";
  const std::string begun = "@%p2 bra AFTER; " + expect_bytes + bulk + "AFTER:\n";
  const std::string waited = "V: mbarrier.try_wait.parity.shared::cta.b64 %p3, [buffer+64], 0; @!%p3 bra V;\n";
  EXPECT_EQ(race_of(made + begun + waited + read_by_second), "");
  EXPECT_NE(race_of(made + begun + read_by_second + waited + read_by_second), "") << "read before it came";
  EXPECT_NE(race_of(made + read_by_second + begun + waited), "") << "begun while the other may still read";
  EXPECT_EQ(race_of(made + read_by_second + "bar.sync 0;" + begun + waited), "");
}

TEST(ptx_clusters, blocks_reach_each_other) {
  const auto out = run_text(R"(
  mov.u32 %r5, %cluster_ctarank;
  st.shared.u32 [buffer], %r5;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  xor.b32 %r6, %r5, 1;
  mov.u32 %r7, buffer;
  mapa.shared::cluster.u32 %r8, %r7, %r6;
  ld.shared::cluster.u32 %r9, [%r8];
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  cvt.u64.u32 %d9, %r9;)" + store,
                            128, {.blocks = 4, .cluster = 2});
  for (std::uint64_t i = 0; i < 128; ++i) EXPECT_EQ(out[i], i / 32 % 2 ^ 1) << i;
}

TEST(ptx_clusters, meetings_order_what_was_released_before_them) {
  const auto of_pair = [](const std::string& arrive) {
    return error_of(
        "mov.u32 %r5, %cluster_ctarank; xor.b32 %r6, %r5, 1; mov.u32 %r7, buffer; mapa.shared::cluster.u32 %r8, %r7, "
        "%r6;"
        "setp.ne.u32 %p1, %r5, 0; @!%p1 st.shared::cluster.u32 [%r8], %r6;" +
            arrive + "barrier.cluster.wait.acquire.aligned; @%p1 ld.shared.u32 %r9, [buffer];",
        {.threads = 1, .blocks = 2, .cluster = 2, .order = {.races = true}});
  };
  EXPECT_EQ(of_pair("barrier.cluster.arrive.release.aligned;"), "");
  EXPECT_NE(of_pair("barrier.cluster.arrive.relaxed.aligned;").find("a race on shared memory"), std::string::npos);
}

TEST(ptx_clusters, aligned_meetings_are_those_of_whole_warps) {
  const std::string part = "setp.ne.u32 %p1, %i, 0; @%p1 bra END; barrier.cluster.arrive.aligned; END:";
  EXPECT_NE(error_of(part, {.cluster = 1}).find("whole warp"), std::string::npos);
}

TEST(ptx_clusters, are_needed_to_send) {
  const std::string send =
      "mov.u32 %r5, buffer; add.u32 %r6, %r5, 64; setp.ne.u32 %p1, %i, 0; @%p1 bra END; mbarrier.init.shared.b64 "
      "[%r6], 1;"
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r5], %r6, [%r6]; END:";
  EXPECT_EQ(error_of(send, {.cluster = 2}), "");
  EXPECT_NE(error_of(send).find("without clusters"), std::string::npos);
}

TEST(ptx_blocks, wait_for_earlier_ones_on_any_number_of_threads) {
  for (const int threads : {1, 3}) {
    const auto out = run_text(R"(
  setp.ne.u32 %p1, %i, 0;
  mov.u32 %r5, %ctaid.x;
  mov.u32 %r6, %tid.x;
  setp.ne.u32 %p2, %r6, 0;
  @%p2 ret;
SPIN: ld.acquire.gpu.global.u32 %r7, [%in];
  setp.ne.u32 %p3, %r7, %r5;
  @%p3 nanosleep.u32 20;
  @%p3 bra SPIN;
  add.u32 %r8, %r5, 1;
  st.release.gpu.global.u32 [%in], %r8;
  cvt.u64.u32 %d9, %r7;
  cvt.u64.u32 %d90, %r5; shl.b64 %d90, %d90, 3; add.u64 %d90, %d90, %out; st.global.u64 [%d90], %d9;)",
                              20, {.blocks = 20, .host_threads = threads, .inputs = {0}});
    for (std::uint64_t i = 0; i < 20; ++i) EXPECT_EQ(out[i], i);
  }
}

}  // namespace
}  // namespace msabench::ptx
