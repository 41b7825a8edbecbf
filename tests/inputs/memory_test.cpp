// SPDX-License-Identifier: Apache-2.0
#include "inputs/memory.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "core/environment_error.h"
#include "core/error.h"

namespace msabench {
namespace {

std::uint64_t resident_bytes(const shared_region& region) {
  struct stat file{};
  EXPECT_EQ(fstat(region.fd(), &file), 0);
  return static_cast<std::uint64_t>(file.st_blocks) * 512;
}

void touch(const std::byte* at) { static_cast<void>(*static_cast<const volatile std::byte*>(at)); }

TEST(SharedRegion, IsRoundedToPagesAndReadsAsZero) {
  const auto region = shared_region::create("test", 5000, 1);
  EXPECT_EQ(region.bytes() % static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE)), 0u);
  EXPECT_GE(region.bytes(), 5000u);
  for (std::uint64_t i = 0; i < region.bytes(); ++i) ASSERT_EQ(region.data()[i], std::byte{0});
}

TEST(SharedRegion, StaysSparse) {
  const auto region = shared_region::create("test", std::uint64_t{1} << 32, 65536);
  EXPECT_EQ(resident_bytes(region), 0u);
  region.data()[3'000'000'000] = std::byte{1};
  EXPECT_GT(resident_bytes(region), 0u);
  EXPECT_LT(resident_bytes(region), 4u << 20);
}

TEST(SharedRegion, AttachSeesTheSameBytes) {
  const auto region = shared_region::create("test", 9000, 65536);
  std::memcpy(region.data() + 8990, "abc", 3);
  const auto other = shared_region::attach(dup(region.fd()), region.bytes(), 4096);
  EXPECT_NE(other.data(), region.data());
  EXPECT_EQ(std::memcmp(other.data() + 8990, "abc", 3), 0);
  other.data()[0] = std::byte{7};
  EXPECT_EQ(region.data()[0], std::byte{7});
}

TEST(SharedRegion, MovedMemoryIsTheSameAndTheOldPlaceIsClosed) {
  auto region = shared_region::create("test", 9000, 65536);
  std::memcpy(region.data() + 8990, "abc", 3);
  const std::byte* const first = region.data();
  for (int i = 0; i < 3; ++i) {
    const std::byte* const before = region.data();
    region.move_elsewhere();
    EXPECT_NE(region.data(), before);
    EXPECT_EQ(std::memcmp(region.data() + 8990, "abc", 3), 0);
    // A system call fails on memory without access where a read of ours would end the process.
    int pipes[2];
    ASSERT_EQ(pipe(pipes), 0);
    EXPECT_EQ(write(pipes[1], before, 1), -1);
    EXPECT_EQ(write(pipes[1], first, 1), -1);
    EXPECT_EQ(write(pipes[1], region.data(), 1), 1);
    for (const int fd : pipes) close(fd);
  }
}

TEST(SharedRegion, AttachRefusesAShorterFile) {
  const auto region = shared_region::create("test", 4096, 4096);
  EXPECT_THROW(shared_region::attach(dup(region.fd()), std::uint64_t{1} << 30, 4096), suite_error);
  EXPECT_THROW(shared_region::attach(-1, 4096, 4096), environment_error);
}

TEST(SharedRegion, SaysWhatCouldNotBeHad) {
  try {
    shared_region::create("test", std::uint64_t{1} << 60, 4096);
    FAIL() << "an impossible size was granted";
  } catch (const suite_error& e) {
    EXPECT_NE(std::string(e.what()).find("1152921504606846976"), std::string::npos) << e.what();
  }
}

TEST(SharedRegion, Moves) {
  auto a = shared_region::create("test", 4096, 4096);
  const std::byte* const data = a.data();
  auto b = std::move(a);
  EXPECT_EQ(b.data(), data);
  auto c = shared_region::create("test", 8192, 4096);
  c = std::move(b);
  EXPECT_EQ(c.data(), data);
  touch(c.data());
}

TEST(SharedRegionDeathTest, GuardsFault) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto region = shared_region::create("test", 4096, 65536);
  touch(region.data());
  touch(region.data() + region.bytes() - 1);
  EXPECT_DEATH(touch(region.data() - 1), "");
  EXPECT_DEATH(touch(region.data() - 65536), "");
  EXPECT_DEATH(touch(region.data() + region.bytes()), "");
  EXPECT_DEATH(touch(region.data() + region.bytes() + 65535), "");
}

}  // namespace
}  // namespace msabench
