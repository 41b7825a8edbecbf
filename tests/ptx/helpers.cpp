// SPDX-License-Identifier: Apache-2.0
#include "tests/ptx/machine.h"

namespace msabench::ptx {

helpers::helpers(int count) {
  for (int t = 1; t < count; ++t) threads_.emplace_back([this] { wait(); });
}
helpers::~helpers() {
  {
    const std::lock_guard lock(guard_);
    ends_ = true;
  }
  changed_.notify_all();
  for (std::thread& t : threads_) t.join();
}
void helpers::wait() {
  std::uint64_t seen = 0;
  std::unique_lock lock(guard_);
  for (;;) {
    changed_.wait(lock, [&] { return ends_ || turn_ != seen; });
    if (ends_) return;
    seen = turn_;
    const auto& work = *work_;
    lock.unlock();
    work();
    lock.lock();
    if (--busy_ == 0) changed_.notify_all();
  }
}
void helpers::run(const std::function<void()>& work) {
  const std::lock_guard one_after_the_other(taken_);
  {
    const std::lock_guard lock(guard_);
    work_ = &work;
    busy_ = static_cast<int>(threads_.size());
    ++turn_;
  }
  changed_.notify_all();
  work();
  std::unique_lock lock(guard_);
  changed_.wait(lock, [&] { return busy_ == 0; });
}

}  // namespace msabench::ptx
