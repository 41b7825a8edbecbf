// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/altered.h"

#include <algorithm>

#include "kernels/naive/glue.h"

namespace msabench::naive {
namespace {

msabench_plugin original{}, table{};

}  // namespace

const msabench_plugin& exact() { return original; }

const msabench_plugin* with_stages(const msabench_host* host, const char* name, stages (*change)(stages)) {
  static const stages changed_stages = change(exact_stages);
  return plugin(host, name, "naive with a fault, for tests", changed_stages);
}

msabench_plugin* copy_of_naive(const msabench_host* host, const char* name) {
  return copy_of(host, name, exact_stages);
}

msabench_plugin* copy_of(const msabench_host* host, const char* name, const stages& stages) {
  const msabench_plugin* own = plugin(host, name, "naive with a fault, for tests", stages);
  if (own == nullptr) return nullptr;
  original = table = *own;
  return &table;
}

msabench_status plan_as_naive(const msabench_problem* problem, msabench_plan** plan) {
  msabench_problem own = *problem;
  own.profile = {};
  own.profile.struct_size = sizeof own.profile;
  own.profile.in_id_form = problem->profile.in_id_form;
  return exact().plan(&own, plan);
}

changed_args::changed_args(const msabench_args* args) {
  const std::int32_t count = std::min<std::int32_t>(args->slot_count, MSABENCH_SLOT_COUNT_1_0);
  std::copy(args->slot, args->slot + count, slots_);
  args_ = {sizeof args_, count, slots_};
}

changed_args::view* changed_args::change(msabench_slot slot) {
  const msabench_tensor* given = slot < args_.slot_count ? slots_[slot] : nullptr;
  if (given == nullptr) return nullptr;
  view& v = views_[used_++];
  v.tensor = *given;
  std::copy(given->shape, given->shape + given->rank, v.shape);
  std::copy(given->strides, given->strides + given->rank, v.strides);
  v.tensor.shape = v.shape;
  v.tensor.strides = v.strides;
  slots_[slot] = &v.tensor;
  return &v;
}

const msabench_tensor* tensor_at(const msabench_args* args, msabench_slot slot) {
  return slot < args->slot_count ? args->slot[slot] : nullptr;
}

const msabench_tensor& output_of(const msabench_args* args) {
  for (const msabench_slot slot : {MSABENCH_OUT, MSABENCH_IDS})
    if (const msabench_tensor* output = tensor_at(args, slot)) return *output;
  return *tensor_at(args, MSABENCH_SCORES);
}

std::size_t extent_bytes(const msabench_tensor& tensor) {
  std::int64_t last = 0;
  for (std::int32_t axis = 0; axis < tensor.rank; ++axis) {
    if (tensor.shape[axis] == 0) return 0;
    last += (tensor.shape[axis] - 1) * tensor.strides[axis];
  }
  return static_cast<std::size_t>((last + 1) * tensor.dtype.bits / 8);
}

std::int64_t tokens(const msabench_args* args) {
  const std::int64_t batch = tensor_at(args, MSABENCH_KV_LENS)->shape[0];
  return batch == 0 ? 0 : static_cast<const std::int32_t*>(tensor_at(args, MSABENCH_CU_SEQLENS_Q)->data)[batch];
}

row_bytes row_of(const msabench_tensor& tensor, std::int64_t row) {
  msabench_tensor rest = tensor;
  rest.rank = tensor.rank - 1;
  rest.shape = tensor.shape + 1;
  rest.strides = tensor.strides + 1;
  return {static_cast<unsigned char*>(tensor.data) + row * tensor.strides[0] * tensor.dtype.bits / 8,
          extent_bytes(rest)};
}

}  // namespace msabench::naive
