// SPDX-License-Identifier: Apache-2.0
#include "host/worker/process_state.h"

#include <fmt/format.h>
#include <pthread.h>
#include <string.h>  // strsignal, sigabbrev_np

#include <cfenv>
#include <limits>

namespace msabench {
namespace {

// Arithmetic on subnormals, for machines whose control register is not known here and for the message on those where it
// is. Volatile: it has to happen now, in the mode of now.
bool subnormals_vanish() {
  volatile float smallest_normal = std::numeric_limits<float>::min();
  volatile float subnormal = std::numeric_limits<float>::denorm_min();
  volatile float half = smallest_normal * 0.5f;
  volatile float scaled = subnormal * 0x1p100f;
  return half == 0.0f || scaled == 0.0f;
}

// What the C library adds by itself to an action that is set, be it the one that was there, and hands out again.
constexpr int library_flags = 0x04000000;  // SA_RESTORER, which no header names

bool same_action(const struct sigaction& a, const struct sigaction& b) {
  return a.sa_handler == b.sa_handler && (a.sa_flags & ~library_flags) == (b.sa_flags & ~library_flags);
}

std::string signal_name(int signal) {
  const char* short_name = ::sigabbrev_np(signal);
  return short_name ? fmt::format("SIG{}", short_name) : fmt::format("signal {}", signal);
}

}  // namespace

floating_point_mode::bits floating_point_mode::read() {
  bits b;
  fenv_t environment;
  std::fegetenv(&environment);
#if defined(__x86_64__)
  // x87: exception masks, precision, rounding. SSE: everything above the six sticky flags.
  b.control = (environment.__control_word & 0x0f3fu) | static_cast<std::uint64_t>(environment.__mxcsr & ~0x3fu) << 16;
#elif defined(__aarch64__)
  b.control = environment.__fpcr;
#endif
  b.rounding = std::fegetround();
  b.flushes_subnormals = subnormals_vanish();
  return b;
}

floating_point_mode::floating_point_mode() : before_(read()) {}

std::string floating_point_mode::restore() const {
  const bits now = read();
  if (now == before_) return {};
  std::string what;
  if (now.flushes_subnormals != before_.flushes_subnormals)
    what = now.flushes_subnormals ? "subnormals flushed to zero" : "subnormals no longer flushed";
  if (now.rounding != before_.rounding) what += fmt::format("{}rounding changed", what.empty() ? "" : ", ");
  if (what.empty()) what = fmt::format("control bits {:#x} instead of {:#x}", now.control, before_.control);
  fenv_t environment;
  std::fegetenv(&environment);
#if defined(__x86_64__)
  environment.__control_word = static_cast<unsigned short>((environment.__control_word & ~0x0f3fu) |
                                                           static_cast<unsigned>(before_.control & 0x0f3fu));
  environment.__mxcsr = static_cast<unsigned>(before_.control >> 16) | (environment.__mxcsr & 0x3fu);
#elif defined(__aarch64__)
  environment.__fpcr = static_cast<decltype(environment.__fpcr)>(before_.control);
#endif
  std::fesetenv(&environment);
  std::fesetround(before_.rounding);
  return what;
}

signal_state::signal_state() {
  for (int s = 1; s < count; ++s) ::sigaction(s, nullptr, &actions_[s]);
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mask_);
}

std::vector<std::string> signal_state::restore() const {
  std::vector<std::string> changed;
  for (int s = 1; s < count; ++s) {
    struct sigaction now = {};
    // The C library keeps two signals to itself and refuses to tell.
    if (::sigaction(s, nullptr, &now) != 0) continue;
    if (same_action(now, actions_[s])) continue;
    changed.push_back("handler of " + signal_name(s));
    ::sigaction(s, &actions_[s], nullptr);
  }
  sigset_t mask;
  ::pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  for (int s = 1; s < count; ++s) {
    if (sigismember(&mask, s) == sigismember(&mask_, s)) continue;
    changed.push_back("mask of " + signal_name(s));
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  return changed;
}

void process_state::restore(std::string_view entry, std::vector<violation>& found) const {
  if (const std::string what = mode_.restore(); !what.empty())
    found.push_back({violation::kind::floating_point_mode, std::nullopt, std::string(entry), what});
  for (const std::string& what : signals_.restore())
    found.push_back({violation::kind::signal_handler, std::nullopt, std::string(entry), what});
}

std::vector<std::string> process_state::restore() const {
  std::vector<std::string> changed;
  if (const std::string what = mode_.restore(); !what.empty())
    changed.push_back(fmt::format("floating-point mode ({})", what));
  for (std::string& what : signals_.restore()) changed.push_back(std::move(what));
  return changed;
}

}  // namespace msabench
