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
constexpr std::uint64_t end_bytes = 64 << 10, place_bytes = 4096;
constexpr int places_between = 16;

}  // namespace

device_generator::~device_generator() {
  if (of_steps_ != 0) device_->release(of_steps_);
}

void device_generator::make(device_address region, const generated_stream& what) {
  if (what.runs.empty()) return;
  const auto size = static_cast<std::uint64_t>(size_bytes(what.type));
  std::vector<std::byte> elements(normal_steps * size);
  fill_normal_elements(elements.data(), what.type, std::ldexp(1.0, what.exponent));
  if (of_steps_ == 0) of_steps_ = device_->allocate(normal_steps * sizeof(float));
  device_->upload(of_steps_, elements.data(), elements.size());

  void* const kernel = device_->load_kernel(generate_inputs_ptx(), fmt::format("generate_{}", size).c_str());
  std::uint64_t key = what.key, seed = what.seed;
  for (const generated_run& r : what.runs) {
    device_address to = region + r.begin;
    std::uint64_t groups = r.count / group_elements, first = r.first / group_elements;
    void* parameters[] = {&to, &groups, &first, &key, &seed, &of_steps_};
    const auto blocks = static_cast<unsigned>(std::min((groups + threads - 1) / threads, most_blocks));
    // The default stream, on which uploads are too: the elements of another stream wait for this one.
    device_->launch_kernel(kernel, blocks, threads, parameters, nullptr);
  }
}

void device_generator::verify(device_address region, const generated_stream& what, const std::byte* host) const {
  if (what.runs.empty()) return;
  const auto size = static_cast<std::uint64_t>(size_bytes(what.type));
  std::vector<std::byte> made;
  const auto compare = [&](const generated_run& r, std::uint64_t begin, std::uint64_t bytes) {
    made.resize(bytes);
    device_->download(made.data(), region + begin, bytes);
    const auto differs = std::mismatch(made.begin(), made.end(), host + begin).first - made.begin();
    if (differs == std::ssize(made)) return;
    throw suite_error(fmt::format("the device's generator makes another {} than the host's at index {} of the stream",
                                  name(what.where),
                                  r.first + (begin + static_cast<std::uint64_t>(differs) - r.begin) / size));
  };
  const generated_run &front = what.runs.front(), &back = what.runs.back();
  compare(front, front.begin, std::min(front.count * size, end_bytes));
  const std::uint64_t last = std::min(back.count * size, end_bytes);
  compare(back, what.end_of(back) - last, last);
  std::minstd_rand random(1);
  const auto below = [&](std::uint64_t n) { return std::uniform_int_distribution<std::uint64_t>(0, n - 1)(random); };
  for (int i = 0; i < places_between; ++i) {
    const generated_run& r = what.runs[below(what.runs.size())];
    const std::uint64_t bytes = std::min(r.count * size, place_bytes);
    compare(r, r.begin + below(r.count * size / bytes) * bytes, bytes);
  }
}

}  // namespace msabench
