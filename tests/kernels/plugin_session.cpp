// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/plugin_session.h"

#include <dlfcn.h>

#include <cstring>
#include <stdexcept>

namespace msabench::plugin_test {

std::string plugin_path(const std::string& name) { return std::string(MSABENCH_PLUGINS) + "/" + name + ".so"; }

const msabench_plugin* load_plugin(const std::string& path, int threads, msabench_device device) {
  void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) throw std::runtime_error(dlerror());
  using get_function = const msabench_plugin* (*)(const msabench_host*);
  const auto get = reinterpret_cast<get_function>(dlsym(object, "msabench_plugin_get"));
  if (get == nullptr) throw std::runtime_error(path + ": no msabench_plugin_get");
  const msabench_host host{sizeof(msabench_host), MSABENCH_ABI_MAJOR, MSABENCH_ABI_MINOR, threads, device};
  return get(&host);
}

msabench_problem empty_problem(msabench_op op) {
  msabench_problem problem{};
  problem.struct_size = sizeof problem;
  problem.op = op;
  problem.profile.struct_size = sizeof problem.profile;
  return problem;
}

const msabench_args* arguments::get() {
  slots_.assign(MSABENCH_SLOT_COUNT_1_0, nullptr);
  for (const auto& [slot, tensor] : tensors_) slots_[static_cast<std::size_t>(slot)] = &tensor;
  args_ = {sizeof args_, MSABENCH_SLOT_COUNT_1_0, slots_.data()};
  return &args_;
}

session::session(const msabench_plugin* plugin, msabench_problem problem) : plugin_(plugin) {
  capability_.struct_size = sizeof capability_;
  status_ = plugin_->query(&problem, &capability_);
  if (status_ != MSABENCH_OK) return;
  problem.profile = capability_.profile;
  status_ = plugin_->plan(&problem, &plan_);
  if (status_ != MSABENCH_OK) return;
  std::uint64_t bytes = 0;
  status_ = plugin_->workspace(plan_, &bytes, &alignment_);
  bytes_ = static_cast<std::size_t>(bytes);
  memory_.resize(bytes_ + alignment_);
}

session::~session() {
  if (plan_ != nullptr) plugin_->destroy(plan_);
}

void* session::workspace() {
  const auto address = reinterpret_cast<std::uintptr_t>(memory_.data());
  return memory_.data() + (alignment_ - address % alignment_) % alignment_;
}

msabench_status session::run(arguments& args, unsigned char dirt) {
  std::memset(memory_.data(), dirt, memory_.size());
  return plugin_->run(plan_, args.get(), workspace(), nullptr);
}

}  // namespace msabench::plugin_test
