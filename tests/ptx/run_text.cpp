// SPDX-License-Identifier: Apache-2.0
#include "tests/ptx/run_text.h"

namespace msabench::ptx {

std::vector<std::uint64_t> run_text(const std::string& body, std::size_t words, const few_lines& how) {
  const std::string text = ".version 9.0\n.target sm_90a\n.address_size 64\n" + how.around + R"(
.visible .entry test(.param .u64 out, .param .u64 in) {
  .reg .pred %p<10>;
  .reg .b16 %h<100>;
  .reg .b32 %r<100>;
  .reg .f32 %f<100>;
  .reg .b64 %d<100>;
  .reg .b64 %out, %in;
  .reg .b32 %i;
  .shared .align 1024 .b8 buffer[4096];
  ld.param.u64 %out, [out];
  ld.param.u64 %in, [in];
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %i, %r0, %r1, %r2;
)" + body + "\n  ret;\n}\n";
  const auto m = read_module(text);
  std::vector<std::uint64_t> out(words, 0xeeeeeeeeeeeeeeee), in = how.inputs;
  launch l;
  l.what = &m->kernels.at("test");
  l.grid = {how.blocks, 1, 1};
  l.block = {how.threads, 1, 1};
  l.cluster = how.cluster;
  l.parameters = {reinterpret_cast<std::uint64_t>(out.data()), reinterpret_cast<std::uint64_t>(in.data())};
  l.parameter_base = reinterpret_cast<std::uint64_t>(l.parameters.data());
  helpers threads(how.host_threads);
  run(l, how.order, threads);
  return out;
}

}  // namespace msabench::ptx
