// SPDX-License-Identifier: Apache-2.0
#include "host/worker/device_comparison.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace msabench {
namespace {

// for (i = number of this thread; i < n; i += number of all threads) if (one[i] != other[i]) *found = 1;
// Whichever thread writes, it writes the same.
constexpr const char* kernels = R"(
.version 7.0
.target sm_70
.address_size 64

.visible .entry compare_8(.param .u64 one, .param .u64 other, .param .u64 n, .param .u64 found) {
  .reg .pred %past, %same;
  .reg .u32 %block, %threads, %thread, %blocks, %yes;
  .reg .u64 %a, %b, %count, %to, %i, %stride, %at, %offset, %wide, %va, %vb;
  ld.param.u64 %a, [one];
  ld.param.u64 %b, [other];
  ld.param.u64 %count, [n];
  ld.param.u64 %to, [found];
  cvta.to.global.u64 %a, %a;
  cvta.to.global.u64 %b, %b;
  cvta.to.global.u64 %to, %to;
  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %blocks, %nctaid.x;
  mul.wide.u32 %i, %block, %threads;
  cvt.u64.u32 %wide, %thread;
  add.u64 %i, %i, %wide;
  mul.wide.u32 %stride, %blocks, %threads;
again:
  setp.ge.u64 %past, %i, %count;
  @%past bra done;
  shl.b64 %offset, %i, 3;
  add.u64 %at, %a, %offset;
  ld.global.u64 %va, [%at];
  add.u64 %at, %b, %offset;
  ld.global.u64 %vb, [%at];
  add.u64 %i, %i, %stride;
  setp.eq.u64 %same, %va, %vb;
  @%same bra again;
  mov.u32 %yes, 1;
  st.global.u32 [%to], %yes;
  bra again;
done:
  ret;
}

.visible .entry compare_1(.param .u64 one, .param .u64 other, .param .u64 n, .param .u64 found) {
  .reg .pred %past, %same;
  .reg .u32 %block, %threads, %thread, %blocks, %yes, %va, %vb;
  .reg .u64 %a, %b, %count, %to, %i, %stride, %at, %wide;
  ld.param.u64 %a, [one];
  ld.param.u64 %b, [other];
  ld.param.u64 %count, [n];
  ld.param.u64 %to, [found];
  cvta.to.global.u64 %a, %a;
  cvta.to.global.u64 %b, %b;
  cvta.to.global.u64 %to, %to;
  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %blocks, %nctaid.x;
  mul.wide.u32 %i, %block, %threads;
  cvt.u64.u32 %wide, %thread;
  add.u64 %i, %i, %wide;
  mul.wide.u32 %stride, %blocks, %threads;
again:
  setp.ge.u64 %past, %i, %count;
  @%past bra done;
  add.u64 %at, %a, %i;
  ld.global.u8 %va, [%at];
  add.u64 %at, %b, %i;
  ld.global.u8 %vb, [%at];
  add.u64 %i, %i, %stride;
  setp.eq.u32 %same, %va, %vb;
  @%same bra again;
  mov.u32 %yes, 1;
  st.global.u32 [%to], %yes;
  bra again;
done:
  ret;
}
)";

constexpr unsigned threads = 256;
constexpr std::uint64_t most_blocks = 4096;

}  // namespace

device_comparison::~device_comparison() {
  if (found_ != 0) device_->release(found_);
}

void device_comparison::compare(device_address one, device_address other, std::uint64_t bytes) {
  prepare();
  constexpr std::uint64_t word = 8;
  // Up to the first whole word, whole words, and the rest; what is not aligned alike goes byte by byte.
  const std::uint64_t front = one % word == other % word ? std::min(bytes, (word - one % word) % word) : bytes;
  const std::uint64_t words = (bytes - front) / word, middle = front + words * word;
  launch("compare_1", one, other, front);
  launch("compare_8", one + front, other + front, words);
  launch("compare_1", one + middle, other + middle, bytes - middle);
}

bool device_comparison::found_difference() {
  prepare();
  device_->settle();
  std::uint32_t found = 0;
  device_->download(&found, found_, sizeof found);
  device_->fill(found_, 0, sizeof found);
  return found != 0;
}

// A comparison that finds nothing whatever it is given would let everything pass.
void device_comparison::prepare() {
  if (found_ != 0) return;
  constexpr std::uint64_t bytes = 64;
  found_ = device_->allocate(4 * bytes);
  device_->fill(found_, 0, 4 * bytes);
  const device_address sample = found_ + bytes, alike = sample + bytes, other = alike + bytes;
  // Before, in and behind the whole words.
  for (const std::uint64_t at : {std::uint64_t{1}, bytes / 2, bytes - 2}) {
    device_->fill(other, 0, bytes);
    device_->fill(other + at, 1, 1);
    compare(sample + 1, alike + 1, bytes - 2);
    const bool same = !found_difference();
    compare(sample + 1, other + 1, bytes - 2);
    if (!same || !found_difference())
      throw suite_error("the device's comparison of memory doesn't tell equal bytes from others");
  }
}

void device_comparison::launch(const char* kernel, device_address one, device_address other, std::uint64_t words) {
  if (words == 0) return;
  void* parameters[] = {&one, &other, &words, &found_};
  const auto blocks = static_cast<unsigned>(std::min((words + threads - 1) / threads, most_blocks));
  device_->launch_kernel(device_->load_kernel(kernels, kernel), blocks, threads, parameters, nullptr);
}

}  // namespace msabench
