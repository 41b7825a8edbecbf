// SPDX-License-Identifier: Apache-2.0
#include "host/worker/device_checksum.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "core/error.h"
#include "host/implementation.h"
#include "host/worker/mixed_word.h"

namespace msabench {
namespace {

constexpr std::uint64_t word_bytes = 8;

// for (i = number of this thread; i < n; i += number of all threads) own += mixed_word(at[i], place + i * bytes of an element);
// *sum += own, at once.
std::string kernel_of(unsigned bytes) {
  return fmt::format(R"(
.visible .entry checksum_{bytes}(.param .u64 at, .param .u64 n, .param .u64 place, .param .u64 sum) {{
  .reg .pred %past;
  .reg .u32 %block, %threads, %thread, %blocks;
  .reg .u64 %a, %count, %first, %to, %i, %stride, %wide, %offset, %address, %x, %salt, %high, %own;
  ld.param.u64 %a, [at];
  ld.param.u64 %count, [n];
  ld.param.u64 %first, [place];
  ld.param.u64 %to, [sum];
  cvta.to.global.u64 %a, %a;
  cvta.to.global.u64 %to, %to;
  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %blocks, %nctaid.x;
  mul.wide.u32 %i, %block, %threads;
  cvt.u64.u32 %wide, %thread;
  add.u64 %i, %i, %wide;
  mul.wide.u32 %stride, %blocks, %threads;
  mov.u64 %own, 0;
again:
  setp.ge.u64 %past, %i, %count;
  @%past bra done;
  mul.lo.u64 %offset, %i, {bytes};
  add.u64 %address, %a, %offset;
  ld.global.u{bits} %x, [%address];
  add.u64 %salt, %first, %offset;
  add.u64 %salt, %salt, 1;
  mul.lo.u64 %salt, %salt, 0x{place:X};
  add.u64 %x, %x, %salt;
  shr.u64 %high, %x, 30;
  xor.b64 %x, %x, %high;
  mul.lo.u64 %x, %x, 0x{one:X};
  shr.u64 %high, %x, 27;
  xor.b64 %x, %x, %high;
  mul.lo.u64 %x, %x, 0x{two:X};
  shr.u64 %high, %x, 31;
  xor.b64 %x, %x, %high;
  add.u64 %own, %own, %x;
  add.u64 %i, %i, %stride;
  bra again;
done:
  red.global.add.u64 [%to], %own;
  ret;
}}
)",
                     fmt::arg("bytes", bytes), fmt::arg("bits", 8 * bytes), fmt::arg("place", place_factor),
                     fmt::arg("one", first_factor), fmt::arg("two", second_factor));
}

const char* kernels() {
  static const std::string text = "\n.version 7.0\n.target sm_70\n.address_size 64\n" + kernel_of(1) + kernel_of(8);
  return text.c_str();
}

constexpr unsigned threads = 256;
constexpr std::uint64_t most_blocks = 1024;  // each thread ends with an addition in one place

// Up to the first whole word, whole words, and the rest.
struct parts {
  std::uint64_t front, words, back;
};
parts parts_of(std::uint64_t begin, std::uint64_t end) {
  const std::uint64_t bytes = end - begin;
  const std::uint64_t front = std::min(bytes, (word_bytes - begin % word_bytes) % word_bytes);
  const std::uint64_t words = (bytes - front) / word_bytes;
  return {front, words, bytes - front - words * word_bytes};
}

std::uint64_t sum_of_bytes(const std::byte* region, std::uint64_t begin, std::uint64_t count) {
  std::uint64_t sum = 0;
  for (std::uint64_t at = begin; at < begin + count; ++at) sum += mixed_word(static_cast<std::uint8_t>(region[at]), at);
  return sum;
}

std::uint64_t sum_of_range(const std::byte* region, std::uint64_t begin, std::uint64_t end) {
  const parts p = parts_of(begin, end);
  const std::uint64_t first = begin + p.front, past = first + p.words * word_bytes;
  std::uint64_t sum = sum_of_bytes(region, begin, p.front) + sum_of_bytes(region, past, p.back);
  for (std::uint64_t at = first; at < past; at += word_bytes) {
    std::uint64_t word;
    std::memcpy(&word, region + at, word_bytes);
    sum += mixed_word(word, at);
  }
  return sum;
}

}  // namespace

std::uint64_t checksum_on_host(const std::byte* region, const protocol::byte_ranges& ranges) {
  // A multiple of the word, and so as if a range were summed in one.
  constexpr std::uint64_t piece = std::uint64_t{8} << 20;
  protocol::byte_ranges pieces;
  for (const auto& [begin, end] : ranges)
    for (std::uint64_t at = begin; at < end;) {
      const std::uint64_t next = std::min(end, (at / piece + 1) * piece);
      pieces.emplace_back(at, next);
      at = next;
    }
  std::atomic<std::uint64_t> sum = 0;
  std::atomic<std::size_t> taken = 0;
  const auto work = [&] {
    std::uint64_t own = 0;
    for (std::size_t i = taken++; i < pieces.size(); i = taken++)
      own += sum_of_range(region, pieces[i].first, pieces[i].second);
    sum += own;
  };
  {
    std::vector<std::jthread> others;
    const auto most = static_cast<std::size_t>(std::max(available_cores(), 1));
    for (std::size_t t = 1; t < std::min(most, pieces.size()); ++t) others.emplace_back(work);
    work();
  }
  return sum;
}

device_checksum::~device_checksum() {
  if (sum_ != 0) device_->release(sum_);
}

std::uint64_t device_checksum::of(device_address region, const protocol::byte_ranges& ranges) {
  prepare();
  return sum_of(region, ranges);
}

std::uint64_t device_checksum::sum_of(device_address region, const protocol::byte_ranges& ranges) {
  std::uint64_t sum = 0;
  device_->settle();
  device_->upload(sum_, &sum, sizeof sum);
  for (const auto& [begin, end] : ranges) {
    const parts p = parts_of(begin, end);
    const std::uint64_t first = begin + p.front, past = first + p.words * word_bytes;
    launch("checksum_1", region + begin, p.front, begin);
    launch("checksum_8", region + first, p.words, first);
    launch("checksum_1", region + past, p.back, past);
  }
  device_->settle();
  device_->download(&sum, sum_, sizeof sum);
  return sum;
}

// A checksum that is the same whatever it is made of would let everything pass.
void device_checksum::prepare() {
  if (sum_ != 0) return;
  constexpr std::uint64_t bytes = 64;
  sum_ = device_->allocate(2 * bytes);
  const device_address sample = sum_ + bytes;
  const protocol::byte_ranges some = {{1, 21}, {29, bytes - 2}};
  std::array<std::byte, bytes> known{};
  std::vector<std::uint64_t> seen;
  // Outside, before, in and behind whole words.
  for (const std::uint64_t at : {std::uint64_t{0}, std::uint64_t{1}, std::uint64_t{9}, std::uint64_t{20}, bytes - 3}) {
    known[at] = std::byte{0x81};
    device_->upload(sample, known.data(), bytes);
    seen.push_back(sum_of(sample, some));
    if (seen.back() != checksum_on_host(known.data(), some) ||
        std::ranges::find(seen, seen.back()) != std::prev(seen.end()))
      throw suite_error("the device's checksum of memory is not that of the host");
  }
}

void device_checksum::launch(const char* kernel, device_address at, std::uint64_t count, std::uint64_t place) {
  if (count == 0) return;
  void* parameters[] = {&at, &count, &place, &sum_};
  const auto blocks = static_cast<unsigned>(std::min((count + threads - 1) / threads, most_blocks));
  device_->launch_kernel(device_->load_kernel(kernels(), kernel), blocks, threads, parameters, nullptr);
}

}  // namespace msabench
