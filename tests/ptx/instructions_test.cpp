// SPDX-License-Identifier: Apache-2.0
// One instruction at a time, against values worked out by hand from the manual of PTX.
#include <gtest/gtest.h>

#include <bit>
#include <ostream>

#include "tests/ptx/run_text.h"

namespace msabench::ptx {
namespace {

struct line {
  const char* text;  ///< leaves its result in %d9
  std::uint64_t want;
};
std::ostream& operator<<(std::ostream& out, const line& l) { return out << l.text; }

class instruction_of_ptx : public testing::TestWithParam<line> {};

TEST_P(instruction_of_ptx, gives_what_the_manual_says) {
  const auto out = run_text(std::string(GetParam().text) + "\n st.global.u64 [%out], %d9;", 1, {.threads = 1});
  EXPECT_EQ(out[0], GetParam().want) << std::hex << out[0];
}

// 32 bits, widened
#define OF_32(text) text " cvt.u64.u32 %d9, %r9;"
#define OF_F(text) text " mov.b32 %r9, %f9; cvt.u64.u32 %d9, %r9;"
constexpr std::uint32_t f(float x) { return std::bit_cast<std::uint32_t>(x); }

INSTANTIATE_TEST_SUITE_P(
    ptx, instruction_of_ptx,
    testing::Values(
        line{OF_32("mov.u32 %r9, 7; add.s32 %r9, %r9, -9;"), 0xfffffffe},
        line{OF_32("mul.hi.u32 %r9, -1, -1;"), 0xfffffffe}, line{OF_32("mul.hi.s32 %r9, -1, -1;"), 0},
        line{"mul.wide.s32 %d9, -3, 5;", static_cast<std::uint64_t>(-15)},
        line{"mul.wide.u32 %d9, -1, 2;", 0x1fffffffe}, line{"mad.wide.u32 %d9, -1, -1, 1;", 0xfffffffe00000002},
        line{"mul.hi.u64 %d9, -1, -1;", 0xfffffffffffffffe},
        line{OF_32("div.s32 %r9, -7, 2;"), static_cast<std::uint32_t>(-3)},
        line{OF_32("rem.s32 %r9, -7, 2;"), 0xffffffff}, line{OF_32("div.u32 %r9, 5, 0;"), 0xffffffff},
        line{OF_32("shr.s32 %r9, -8, 40;"), 0xffffffff}, line{OF_32("shr.u32 %r9, -8, 40;"), 0},
        line{OF_32("shl.b32 %r9, 1, 32;"), 0}, line{OF_32("shf.l.clamp.b32 %r9, 0x80000000, 1, 33;"), 0x80000000},
        line{OF_32("shf.l.wrap.b32 %r9, 0x80000000, 1, 33;"), 3},
        line{OF_32("shf.r.wrap.b32 %r9, 0x80000000, 1, 31;"), 3},
        line{OF_32("prmt.b32 %r9, 0x33221100, 0x77665544, 0x0735;"), 0x00773355},
        line{OF_32("prmt.b32 %r9, 0x80, 0, 0x8888;"), 0xffffffff}, line{OF_32("bfi.b32 %r9, 0xff, 0, 4, 3;"), 0x70},
        line{OF_32("bfe.s32 %r9, 0xf0, 4, 4;"), 0xffffffff}, line{OF_32("bfe.u32 %r9, 0xf0, 4, 4;"), 15},
        line{OF_32("lop3.b32 %r9, 0x0f, 0x33, 0x55, 0x80;"), 1}, line{OF_32("popc.b64 %r9, -1;"), 64},
        line{OF_32("clz.b32 %r9, 1;"), 31}, line{OF_32("brev.b32 %r9, 1;"), 0x80000000},
        line{OF_32("bfind.shiftamt.u32 %r9, 1;"), 31}, line{OF_32("bfind.u32 %r9, 0;"), 0xffffffff},
        line{OF_F("max.f32 %f9, 0f7fc00000, 0fbf800000;"), f(-1)},
        line{OF_F("min.f32 %f9, 0f00000000, 0f80000000;"), f(-0.0f)},
        line{OF_F("max.f32 %f9, 0f00000000, 0f80000000;"), f(0.0f)}, line{OF_32("max.s32 %r9, -1, 1;"), 1},
        line{OF_32("max.u32 %r9, -1, 1;"), 0xffffffff}, line{OF_32("max.s32 %r9, -1, 1, 5;"), 5},
        line{"min.s64 %d9, 3, 7, 2;", 2}, line{OF_32("max.bf16x2 %r9, 0x3f80c000, 0xc0004000;"), 0x3f804000},
        line{OF_F("add.rm.f32 %f9, 0f3f800000, 0f00800000;"), f(1)},
        line{OF_F("add.rp.f32 %f9, 0f3f800000, 0f00800000;"), 0x3f800001},
        line{OF_F("fma.rn.f32 %f9, 0f40000000, 0f40400000, 0f3f800000;"), f(7)},
        line{OF_F("ex2.approx.ftz.f32 %f9, 0f40400000;"), f(8)}, line{OF_F("cvt.rn.f32.s32 %f9, -3;"), f(-3)},
        line{OF_32("cvt.rni.s32.f32 %r9, 0f40200000;"), 2},
        line{OF_32("cvt.rzi.s32.f32 %r9, 0fc0400000;"), static_cast<std::uint32_t>(-3)},
        line{OF_32("cvt.rzi.u32.f32 %r9, 0fc0400000;"), 0}, line{"cvt.rzi.s64.f64 %d9, 0d7ff8000000000000;", 0},
        line{OF_32("cvt.rn.bf16x2.f32 %r9, 0f3f800000, 0f40000000;"), 0x3f804000},
        line{OF_32("cvt.rn.f16x2.f32 %r9, 0f3f800000, 0f40000000;"), 0x3c004000},
        line{OF_32("cvt.rn.bf16.f32 %h1, 0f3f808000; cvt.u32.u16 %r9, %h1;"), 0x3f80},
        line{OF_32("cvt.rn.bf16.f32 %h1, 0f3f818000; cvt.u32.u16 %r9, %h1;"), 0x3f82},
        line{OF_32("cvt.rn.f16.f32 %h1, 0f33000001; cvt.u32.u16 %r9, %h1;"), 1},
        line{OF_32("cvt.rn.f16.f32 %h1, 0f477ff000; cvt.u32.u16 %r9, %h1;"), 0x7c00},
        line{OF_F("mov.b16 %h1, 0x0001; cvt.f32.f16 %f9, %h1;"), 0x33800000},
        line{"cvt.s64.s32 %d9, -1;", ~std::uint64_t{0}}, line{"cvt.u64.u32 %d9, -1;", 0xffffffff},
        line{OF_32("cvt.sat.u8.s32 %r9, 300;"), 255},
        line{OF_32("mov.b32 %r9, 0x00020001; mov.b32 {%h1, %h2}, %r9; mov.b32 %r9, {%h2, %h1};"), 0x00010002},
        line{OF_32("setp.lt.s32 %p1, -1, 0; selp.u32 %r9, 4, 5, %p1;"), 4},
        line{OF_32("setp.lt.u32 %p1, -1, 0; selp.u32 %r9, 4, 5, %p1;"), 5},
        line{OF_32("setp.ltu.f32 %p1, 0f7fc00000, 0f00000000; selp.u32 %r9, 4, 5, %p1;"), 4},
        line{OF_32("setp.lt.f32 %p1, 0f7fc00000, 0f00000000; selp.u32 %r9, 4, 5, %p1;"), 5},
        line{OF_32("setp.eq.s32 %p1|%p2, 1, 1; selp.u32 %r9, 4, 5, %p2;"), 5},
        line{OF_32("setp.eq.s32 %p2, 0, 1; setp.eq.and.s32 %p1, 1, 1, %p2; selp.u32 %r9, 4, 5, %p1;"), 5},
        line{OF_32("{ .reg .b32 %r9; mov.u32 %r9, 1; } mov.u32 %r9, 2;"), 2},
        line{OF_32("mov.u32 %r9, 0; mov.u32 %r8, 1; L0: add.u32 %r9, %r9, 3; add.u32 %r8, %r8, 1; setp.le.u32 %p1, "
                   "%r8, 4; @%p1 bra L0;"),
             12},
        line{OF_32("mov.u32 %r8, 1; ts: .branchtargets A, B; brx.idx %r8, ts; A: mov.u32 %r9, 1; bra.uni C; B: mov.u32 "
                   "%r9, 2; C:"),
             2},
        line{OF_32("st.shared.u32 [buffer+8], 5; atom.shared.add.u32 %r8, [buffer+8], 3; ld.shared.u32 %r7, "
                   "[buffer+8]; mad.lo.u32 %r9, %r7, 100, %r8;"),
             805},
        line{OF_32("mov.u32 %r8, buffer; cvt.u64.u32 %d1, %r8; cvta.shared.u64 %d2, %d1; st.u32 [%d2], 9; "
                   "ld.shared.u32 %r9, [buffer];"),
             9}));

TEST(ptx_reader, puts_functions_in_the_place_of_calls) {
  const few_lines how = {.threads = 4, .around = R"(
.global .align 8 .b8 table[16] = {5, 0, 0, 0, 0, 0, 0, 0, 7};
.func (.param .b64 back) twice(.param .b64 x, .param .b32 even) {
  .reg .b64 %a; .reg .b32 %e; .reg .pred %q;
  ld.param.u64 %a, [x+0];
  ld.param.u32 %e, [even];
  setp.eq.u32 %q, %e, 0;
  @%q bra DONE;
  shl.b64 %a, %a, 1;
DONE:
  st.param.b64 [back+0], %a;
  ret;
})"};
  const auto out = run_text(R"(
  cvt.u64.u32 %d1, %i;
  add.u64 %d3, %d1, 10;
  and.b32 %r5, %i, 1;
  { .param .b64 p0; st.param.b64 [p0], %d3; .param .b32 p1; st.param.b32 [p1], %r5; .param .b64 r0;
    call.uni (r0), twice, (p0, p1);
    ld.param.b64 %d4, [r0]; }
  mov.u64 %d6, table;
  ld.global.u64 %d7, [%d6+8];
  add.u64 %d4, %d4, %d7;
  shl.b64 %d5, %d1, 3;
  add.u64 %d5, %d5, %out;
  st.global.u64 [%d5], %d4;)",
                            4, how);
  EXPECT_EQ(out, (std::vector<std::uint64_t>{17, 29, 19, 33}));
}

std::string error_of(const std::string& body, const few_lines& how = {}) {
  try {
    run_text(body, 64, how);
  } catch (const ptx_error& e) {
    return e.what();
  }
  return "";
}

TEST(ptx_reader, names_what_it_does_not_know_when_it_is_run) {
  EXPECT_EQ(error_of("bra.uni L; frobnicate.u32 %r1, %r2; L:"), "");
  EXPECT_NE(error_of("frobnicate.u32 %r1, %r2;").find("frobnicate.u32 %r1, %r2: the interpreter does not know"),
            std::string::npos);
  EXPECT_NE(error_of("add.u32 %r1, %nobody, 1;").find("nothing is named %nobody"), std::string::npos);
  EXPECT_NE(error_of("bra.uni NOWHERE;").find("no label NOWHERE"), std::string::npos);
}

TEST(ptx_memory, refuses_what_the_hardware_traps_on) {
  EXPECT_NE(error_of("ld.shared.u32 %r1, [buffer+4096];").find("past the end of shared memory"), std::string::npos);
  EXPECT_NE(error_of("ld.shared.u32 %r1, [buffer+2];").find("not aligned"), std::string::npos);
  EXPECT_NE(error_of("ld.global.u64 %d1, [%out+4];").find("not aligned"), std::string::npos);
  EXPECT_NE(error_of("ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [buffer+8];").find("not aligned"), std::string::npos);
}

}  // namespace
}  // namespace msabench::ptx
