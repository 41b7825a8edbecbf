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

// for (p = number of this block; p < n; p += number of blocks) {
//   elements of pieces[p] of the region, by the threads of the block in turn: own += mixed_word(element, its place);
// }
// *sum += own, at once.
std::string kernel_of(unsigned bytes) {
  return fmt::format(R"(
.visible .entry checksum_{bytes}(.param .u64 region, .param .u64 pieces, .param .u64 n, .param .u64 sum) {{
  .reg .pred %past;
  .reg .u32 %block, %threads, %thread, %blocks;
  .reg .u64 %from, %table, %all, %to, %p, %skip, %entry, %begin, %count, %first, %i, %stride, %offset, %place, %address, %x, %salt, %high, %own;
  ld.param.u64 %from, [region];
  ld.param.u64 %table, [pieces];
  ld.param.u64 %all, [n];
  ld.param.u64 %to, [sum];
  cvta.to.global.u64 %from, %from;
  cvta.to.global.u64 %table, %table;
  cvta.to.global.u64 %to, %to;
  mov.u32 %block, %ctaid.x;
  mov.u32 %threads, %ntid.x;
  mov.u32 %thread, %tid.x;
  mov.u32 %blocks, %nctaid.x;
  cvt.u64.u32 %p, %block;
  cvt.u64.u32 %skip, %blocks;
  cvt.u64.u32 %first, %thread;
  cvt.u64.u32 %stride, %threads;
  mov.u64 %own, 0;
piece:
  setp.ge.u64 %past, %p, %all;
  @%past bra done;
  shl.b64 %entry, %p, 4;
  add.u64 %entry, %table, %entry;
  ld.global.v2.u64 {{%begin, %count}}, [%entry];
  add.u64 %p, %p, %skip;
  mov.u64 %i, %first;
element:
  setp.ge.u64 %past, %i, %count;
  @%past bra piece;
  mul.lo.u64 %offset, %i, {bytes};
  add.u64 %place, %begin, %offset;
  add.u64 %address, %from, %place;
  ld.global.u{bits} %x, [%address];
  add.u64 %salt, %place, 1;
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
  bra element;
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
constexpr std::uint64_t most_blocks = 1024;                    // each thread ends with an addition in one place
constexpr std::uint64_t piece_bytes = std::uint64_t{1} << 20;  // of a block at a time

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
  if (pieces_ != 0) device_->release(pieces_);
}

std::uint64_t device_checksum::of(device_address region, const protocol::byte_ranges& ranges) {
  prepare();
  return sum_of(region, ranges);
}

std::uint64_t device_checksum::sum_of(device_address region, const protocol::byte_ranges& ranges) {
  // A cache in pages has many ranges: in a launch for each the launches would take most of the time.
  std::vector<piece> words, bytes;
  for (const auto& [begin, end] : ranges) {
    const parts p = parts_of(begin, end);
    const std::uint64_t first = begin + p.front, past = first + p.words * word_bytes;
    if (p.front > 0) bytes.push_back({begin, p.front});
    for (std::uint64_t at = first; at < past; at += piece_bytes)
      words.push_back({at, std::min(piece_bytes, past - at) / word_bytes});
    if (p.back > 0) bytes.push_back({past, p.back});
  }
  std::uint64_t sum = 0;
  device_->settle();
  device_->upload(sum_, &sum, sizeof sum);
  launch("checksum_1", region, bytes);
  launch("checksum_8", region, words);
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

void device_checksum::launch(const char* kernel, device_address region, const std::vector<piece>& pieces) {
  if (pieces.empty()) return;
  if (pieces.size() > capacity_) {
    if (pieces_ != 0) device_->release(pieces_);
    pieces_ = 0;
    capacity_ = pieces.size();
    pieces_ = device_->allocate(capacity_ * sizeof(piece));
  }
  device_->upload(pieces_, pieces.data(), pieces.size() * sizeof(piece));
  std::uint64_t count = pieces.size();
  void* parameters[] = {&region, &pieces_, &count, &sum_};
  const auto blocks = static_cast<unsigned>(std::min(count, most_blocks));
  device_->launch_kernel(device_->load_kernel(kernels(), kernel), blocks, threads, parameters, nullptr);
  device_->settle();
}

}  // namespace msabench
