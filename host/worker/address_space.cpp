// SPDX-License-Identifier: Apache-2.0
#include "host/worker/address_space.h"

#include <fcntl.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

namespace msabench {
namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

// Without heap: it is called when there may be none left. 0 if the system does not say.
std::uint64_t current_bytes() {
  const int fd = ::open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  char text[128];
  const ssize_t n = ::read(fd, text, sizeof text);
  ::close(fd);
  std::uint64_t pages = 0;
  if (n > 0) std::from_chars(text, text + n, pages);
  return pages * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

address_space::address_space(bool active, int threads) : active_(active) {
  rlimit stack{}, most{};
  ::getrlimit(RLIMIT_STACK, &stack);
  ::getrlimit(RLIMIT_AS, &most);
  constexpr rlim_t usual_stack = 8u << 20;
  const std::uint64_t stack_bytes = std::min<rlim_t>(stack.rlim_cur, 8 * usual_stack);
  allowance_ = 2 * gib + static_cast<std::uint64_t>(std::max(threads, 1)) * stack_bytes;
  most_ = most.rlim_cur;  // RLIM_INFINITY is the largest value
}

void address_space::set(std::uint64_t bytes) {
  if (!active_) return;
  rlimit now{};
  ::getrlimit(RLIMIT_AS, &now);
  now.rlim_cur = std::min<rlim_t>(bytes, most_);
  ::setrlimit(RLIMIT_AS, &now);
}

void address_space::start() {
  limit_ = current_bytes() + allowance_;
  set(limit_);
}

void address_space::unlimited() {
  limit_ = most_;
  set(limit_);
}

void address_space::allow_more(std::uint64_t bytes) {
  limit_ = bytes > most_ - std::min(limit_, most_) ? most_ : limit_ + bytes;
  set(limit_);
}

void address_space::freeze() {
  if (!active_) return;
  // Free memory at the top of the heap goes back first: it would hide an allocation.
  ::malloc_trim(0);
  if (const std::uint64_t now = current_bytes()) set(now);
}

void address_space::thaw() { set(limit_); }

}  // namespace msabench
