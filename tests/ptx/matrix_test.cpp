// SPDX-License-Identifier: Apache-2.0
// Products of matrices against double loops: where elements lie in registers and in shared memory.
#include <gtest/gtest.h>

#include <ostream>

#include "tests/ptx/halves.h"
#include "tests/ptx/run_text.h"

namespace msabench::ptx {
namespace {

// Small whole numbers: products and sums are exact.
float left_at(int row, int k) { return static_cast<float>((row * 7 + k * 3) % 11 - 5); }
float right_at(int k, int column) { return static_cast<float>((k * 5 + column * 2) % 9 - 4); }
double product_at(int row, int column, int depth) {
  double sum = 0;
  for (int k = 0; k < depth; ++k) sum += static_cast<double>(left_at(row, k)) * right_at(k, column);
  return sum;
}

void put(std::vector<std::uint64_t>& memory, std::size_t byte, std::uint16_t value) {
  std::memcpy(reinterpret_cast<char*>(memory.data()) + byte, &value, 2);
}

/// Copies the input to shared memory, 8 bytes a thread and turn.
std::string fill(std::size_t bytes) {
  return R"(
  mov.u32 %r20, %tid.x; shl.b32 %r20, %r20, 3; mov.u32 %r21, %ntid.x; shl.b32 %r21, %r21, 3; mov.u32 %r22, buffer;
F: cvt.u64.u32 %d20, %r20; add.u64 %d20, %d20, %in; ld.global.u64 %d21, [%d20]; add.u32 %r23, %r20, %r22; st.shared.u64 [%r23], %d21;
  add.u32 %r20, %r20, %r21; setp.lt.u32 %p9, %r20, )" +
         std::to_string(bytes) + "; @%p9 bra F;\n bar.sync 0;\n";
}

/// %f1..4 to out, 16 bytes a thread.
const std::string store_four = R"(
  cvt.u64.u32 %d90, %i; shl.b64 %d90, %d90, 4; add.u64 %d90, %d90, %out; st.global.v4.f32 [%d90], {%f1, %f2, %f3, %f4};)";

/// Value of register n of a thread, as the accumulators of mma and wgmma lie.
double accumulator(const std::vector<std::uint64_t>& out, int row, int column) {
  const int thread = row / 16 * 32 + row % 8 * 4 + column / 2, n = row % 16 / 8 * 2 + column % 2;
  float value = 0;
  std::memcpy(&value, reinterpret_cast<const char*>(out.data()) + thread * 16 + n * 4, 4);
  return value;
}

TEST(ptx_mma, takes_fragments_from_ldmatrix) {
  // A [16][16] and B transposed [8][16], rows of 32 bytes.
  std::vector<std::uint64_t> memory(96);
  for (int row = 0; row < 16; ++row)
    for (int k = 0; k < 16; ++k) put(memory, static_cast<std::size_t>(row * 32 + k * 2), to_bfloat(left_at(row, k)));
  for (int column = 0; column < 8; ++column)
    for (int k = 0; k < 16; ++k)
      put(memory, static_cast<std::size_t>(512 + column * 32 + k * 2), to_bfloat(right_at(k, column)));
  const auto out = run_text(fill(768) + R"(
  and.b32 %r30, %i, 15; shl.b32 %r30, %r30, 5; shr.u32 %r31, %i, 4; shl.b32 %r31, %r31, 4; add.u32 %r30, %r30, %r31; add.u32 %r30, %r30, %r22;
  ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r30];
  and.b32 %r32, %i, 7; shl.b32 %r32, %r32, 5; shr.u32 %r33, %i, 3; and.b32 %r33, %r33, 1; shl.b32 %r33, %r33, 4; add.u32 %r32, %r32, %r33; add.u32 %r32, %r32, %r22;
  ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%r5, %r6}, [%r32+512];
  mov.f32 %f1, 0f3f800000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
  mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4};)" +
                                store_four,
                            64, {.inputs = memory});
  for (int row = 0; row < 16; ++row)
    for (int column = 0; column < 8; ++column)
      EXPECT_EQ(accumulator(out, row, column), 1 + product_at(row, column, 16)) << row << ' ' << column;
}

/// How B [16][8] lies in shared memory.
struct layout {
  const char* name;
  bool along_k;
  int mode;  ///< of the descriptor: 0 none, 1: 128 bytes, 2: 64, 3: 32
  std::uint64_t leading, stride;
  std::uint64_t start;  ///< bytes from an address that 1024 divides
};
std::ostream& operator<<(std::ostream& out, const layout& l) { return out << l.name; }

/// Byte of element (k, n), written out for each mode as the manual draws it.
std::uint64_t place(const layout& l, int k, int n) {
  const auto uk = static_cast<std::uint64_t>(k), un = static_cast<std::uint64_t>(n);
  std::uint64_t at = 0;
  if (l.along_k) {
    if (l.mode == 0) return l.start + un * 16 + uk / 8 * l.leading + uk % 8 * 2;
    const std::uint64_t row = l.mode == 1 ? 128 : l.mode == 2 ? 64 : 32;
    at = l.start + un * row + uk * 2;
  } else {
    if (l.mode == 0) return l.start + uk / 8 * l.leading + uk % 8 * 16 + un * 2;
    const std::uint64_t row = l.mode == 1 ? 128 : l.mode == 2 ? 64 : 32;
    at = l.start + uk / 8 * l.stride + uk % 8 * row + un * 2;
  }
  // Pieces of 16 bytes are changed over within 1024, 512 or 256 bytes.
  const std::uint64_t line = at / 128;
  const std::uint64_t change = l.mode == 1 ? line % 8 : l.mode == 2 ? line % 4 : line % 2;
  return at ^ change * 16;
}

class wgmma_layout : public testing::TestWithParam<layout> {};

TEST_P(wgmma_layout, is_that_of_the_manual) {
  const layout& l = GetParam();
  constexpr std::size_t bytes = 4096;
  std::vector<std::uint64_t> memory(bytes / 8, 0x7fc07fc07fc07fc0);  // NaN where nothing belongs
  for (int k = 0; k < 16; ++k)
    for (int n = 0; n < 8; ++n) put(memory, place(l, k, n), to_bfloat(right_at(k, n)));
  const std::uint64_t descriptor =
      l.leading / 16 << 16 | l.stride / 16 << 32 | static_cast<std::uint64_t>(l.mode) << 62;
  // A in registers: rows g and g + 8 of a warp, columns 2t and 2t + 8.
  for (int thread = 0; thread < 128; ++thread)
    for (int r = 0; r < 4; ++r) {
      const int row = thread / 32 * 16 + thread % 32 / 4 + r % 2 * 8, k = thread % 4 * 2 + r / 2 * 8;
      memory.push_back(to_bfloat(left_at(row, k)) | static_cast<std::uint32_t>(to_bfloat(left_at(row, k + 1))) << 16);
    }
  const auto text = [&](const std::string& spoil, const std::string& wait) {
    return fill(bytes) + R"(
  cvt.u64.u32 %d1, %i; shl.b64 %d1, %d1, 5; add.u64 %d1, %d1, %in; ld.global.u32 %r1, [%d1+4096]; ld.global.u32 %r2, [%d1+4104]; ld.global.u32 %r3, [%d1+4112]; ld.global.u32 %r4, [%d1+4120];
  mov.f32 %f1, 0f7fc00000; mov.f32 %f2, %f1; mov.f32 %f3, %f1; mov.f32 %f4, %f1;
  add.u32 %r5, %r22, )" +
           std::to_string(l.start) + "; shr.u32 %r5, %r5, 4; cvt.u64.u32 %d2, %r5; or.b64 %d2, %d2, " +
           std::to_string(descriptor) + R"(;
  wgmma.fence.sync.aligned;
  { .reg .pred p; setp.ne.b32 p, 0, 0;
    wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, %d2, p, 1, 1, )" +
           (l.along_k ? "0" : "1") + "; }\n wgmma.commit_group.sync.aligned;\n" + spoil + wait + store_four;
  };
  const auto right = [&](const std::vector<std::uint64_t>& out) {
    int count = 0;
    for (int row = 0; row < 64; ++row)
      for (int column = 0; column < 8; ++column) count += accumulator(out, row, column) == product_at(row, column, 16);
    return count;
  };
  const std::string wait = "wgmma.wait_group.sync.aligned 0;\n";
  EXPECT_EQ(right(run_text(text("", wait), 256, {.threads = 128, .inputs = memory})), 512);
  // Results that nobody waited for, and operands that were written over before.
  EXPECT_LT(right(run_text(text("", ""), 256, {.threads = 128, .inputs = memory})), 512);
  EXPECT_LT(right(run_text(text("xor.b32 %r1, %r1, 0x3f003f00;", wait), 256, {.threads = 128, .inputs = memory})), 512);
}

INSTANTIATE_TEST_SUITE_P(ptx, wgmma_layout,
                         testing::Values(layout{"k_128", true, 1, 16, 1024, 0},
                                         layout{"k_128_second_step", true, 1, 16, 1024, 32},
                                         layout{"k_64", true, 2, 16, 512, 32}, layout{"k_32", true, 3, 16, 256, 0},
                                         layout{"k_plain", true, 0, 128, 256, 0},
                                         layout{"n_128", false, 1, 1024, 1024, 0},
                                         layout{"n_64", false, 2, 512, 512, 0}, layout{"n_32", false, 3, 256, 256, 256},
                                         layout{"n_plain", false, 0, 128, 256, 0}),
                         [](const auto& i) { return std::string(i.param.name); });

TEST(ptx_halves, round_as_ieee_has_it) {
  for (int bits_of_it = 0; bits_of_it < 0x10000; ++bits_of_it) {
    const auto u = static_cast<std::uint16_t>(bits_of_it);
    if (from_half(u) == from_half(u)) {
      EXPECT_EQ(to_half(from_half(u)), u);
    }
    if (from_bfloat(u) == from_bfloat(u)) {
      EXPECT_EQ(to_bfloat(from_bfloat(u)), u);
    }
  }
  for (int b = 0; b < 256; ++b) {
    const auto u = static_cast<std::uint8_t>(b);
    if (from_e4m3(u) == from_e4m3(u)) {
      EXPECT_EQ(to_e4m3(from_e4m3(u)), u);
    }
  }
  EXPECT_EQ(to_half(1 + 0x1p-11), 0x3c00) << "half a step, to even";
  EXPECT_EQ(to_half(1 + 3 * 0x1p-11), 0x3c02);
  EXPECT_EQ(to_half(0x1p-25), 0) << "half the smallest, to even";
  EXPECT_EQ(to_half(1 - 0x1p-13), 0x3c00) << "carries into the exponent";
  EXPECT_EQ(to_e4m3(17), 0x58) << "16 or 18: to even";
  EXPECT_EQ(to_e4m3(1000), 0x7e) << "the greatest";
}

}  // namespace
}  // namespace msabench::ptx
