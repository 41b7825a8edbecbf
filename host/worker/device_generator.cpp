// SPDX-License-Identifier: Apache-2.0
#include "host/worker/device_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "core/error.h"
#include "core/normal_step.h"
#include "host/worker/generate_inputs_ptx.h"
#include "host/worker/generated_group.h"

namespace msabench {
namespace {

constexpr unsigned threads = 256;
constexpr std::uint64_t most_blocks = 4096;  // some for each multiprocessor of any device
constexpr std::uint64_t end_bytes = 64 << 10, page_bytes = 4096;
constexpr int pages_between = 16;

}  // namespace

device_generator::~device_generator() {
  if (of_steps_ != 0) device_->release(of_steps_);
}

void device_generator::make(device_address region, const generated_extent& what) {
  const auto size = static_cast<std::uint64_t>(size_bytes(what.type));
  std::vector<std::byte> elements(normal_steps * size);
  fill_normal_elements(elements.data(), what.type, std::ldexp(1.0, what.exponent));
  if (of_steps_ == 0) of_steps_ = device_->allocate(normal_steps * sizeof(float));
  device_->upload(of_steps_, elements.data(), elements.size());

  void* const kernel = device_->load_kernel(generate_inputs_ptx(), fmt::format("generate_{}", size).c_str());
  device_address to = region + what.begin;
  std::uint64_t groups = what.count / group_elements, first = what.first / group_elements;
  std::uint64_t key = what.key, seed = what.seed;
  void* parameters[] = {&to, &groups, &first, &key, &seed, &of_steps_};
  const auto blocks = static_cast<unsigned>(std::min((groups + threads - 1) / threads, most_blocks));
  // The default stream, on which uploads are too: the table of the next extent waits for this one.
  device_->launch_kernel(kernel, blocks, threads, parameters, nullptr);
}

void device_generator::verify(device_address region, const generated_extent& what, const std::byte* host) const {
  std::vector<std::byte> made;
  const auto compare = [&](std::uint64_t begin, std::uint64_t bytes) {
    made.resize(bytes);
    device_->download(made.data(), region + begin, bytes);
    const auto differs = std::mismatch(made.begin(), made.end(), host + begin).first - made.begin();
    if (differs == std::ssize(made)) return;
    const std::uint64_t element =
        (begin + static_cast<std::uint64_t>(differs) - what.begin) / static_cast<std::uint64_t>(size_bytes(what.type));
    throw suite_error(
        fmt::format("the device's generator makes another {} than the host's from index {} of the stream on",
                    name(what.where), what.first + element));
  };
  const std::uint64_t bytes = what.end() - what.begin;
  compare(what.begin, std::min(bytes, end_bytes));
  compare(what.end() - std::min(bytes, end_bytes), std::min(bytes, end_bytes));
  if (bytes <= 2 * end_bytes) return;
  std::minstd_rand random(1);
  for (int i = 0; i < pages_between; ++i)
    compare(what.begin + std::uniform_int_distribution<std::uint64_t>(0, bytes / page_bytes - 1)(random) * page_bytes,
            page_bytes);
}

}  // namespace msabench
