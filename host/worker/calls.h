// SPDX-License-Identifier: Apache-2.0
// One call into a plugin: what it gets, and what is looked at when it comes back.
#pragma once

#include <string.h>  // strnlen

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/observation.h"
#include "host/plugin_session.h"
#include "host/worker/conversions.h"
#include "host/worker/device_image.h"
#include "host/worker/process_state.h"
#include "msabench/plugin.h"

namespace msabench {

inline constexpr std::size_t max_message_chars = 500;

// An out struct as a plugin gets it: zero, with bytes behind it that nobody may write.
template <class T>
struct guarded_out {
  T value{};
  std::array<unsigned char, 256> canary;

  guarded_out() { canary.fill(0xC3); }
  bool intact() const {
    for (const unsigned char c : canary)
      if (c != 0xC3) return false;
    return true;
  }
};

// How a call ended on this side. Holds no heap memory: under rule R3 there may be none to be had.
struct call_end {
  std::int32_t status = MSABENCH_OK;
  bool threw = false;
  char text[200] = "";
};

template <class Call>
call_end catching(Call&& call) noexcept {
  call_end end;
  try {
    end.status = call();
  } catch (const std::exception& e) {
    end.threw = true;
    std::strncpy(end.text, e.what(), sizeof end.text - 1);
  } catch (...) {
    end.threw = true;
    std::strncpy(end.text, "of unknown type", sizeof end.text - 1);
  }
  return end;
}

// Adds to the violations and restores what the call left changed. `limits` set: the call may not make the process grow.
template <class Call>
call_end watched(std::string_view entry, std::vector<violation>& found, memory_limiter* limits, Call&& call) {
  const process_state before;
  if (limits) limits->freeze();
  const call_end end = catching(call);
  if (limits) limits->thaw();
  before.restore(entry, found);
  return end;
}

inline std::string bounded(const char* text, std::size_t max_chars = max_message_chars) {
  return text ? one_line({text, ::strnlen(text, 4096)}, max_chars) : std::string();
}

// The arguments of one launch, made anew for each: a plugin that keeps pointers to them is left with stale ones.
class run_arguments {
 public:
  // `image`: where the tensors are on a device; null on a CPU.
  run_arguments(const bound_case& c, bool second, device where, const device_image* image = nullptr) {
    const auto add_from = [&](const bound_tensor& t) { add(t, where, image != nullptr ? image->at(t) : t.data); };
    for (const bound_tensor& t : c.tensors)
      if (!second || t.dir == direction::in) add_from(t);
    if (second)
      for (const bound_tensor& t : c.second_outputs) add_from(t);
    args_ = {sizeof args_, static_cast<std::int32_t>(slots_.size()), slots_.data()};
  }
  run_arguments(const run_arguments&) = delete;

  const msabench_args* get() const { return &args_; }

 private:
  void add(const bound_tensor& t, device where, void* data) {
    auto& to = tensors_.at(static_cast<std::size_t>(t.where));
    to = {data,
          t.desc.shape.data(),
          t.desc.strides.data(),
          static_cast<std::int32_t>(t.desc.shape.size()),
          to_c(t.desc.type),
          to_c(where)};
    slots_.at(static_cast<std::size_t>(t.where)) = &to;
  }

  std::array<msabench_tensor, slot_count> tensors_{};
  std::array<const msabench_tensor*, slot_count> slots_{};
  msabench_args args_{};
};

}  // namespace msabench
