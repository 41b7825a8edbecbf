// SPDX-License-Identifier: Apache-2.0
// Small training problems for the tests of attend_backward, dense_backward and kl: contiguous ragged batches, and the
// formulas of the contract and of the error model once more, plainly and in long double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "core/dtype.h"
#include "core/problem.h"
#include "reference/attend_backward.h"
#include "reference/dense_backward.h"
#include "reference/kl.h"

namespace msabench::reference::testing {

struct training_spec {
  std::vector<std::pair<std::int64_t, std::int64_t>> sequences;  // q_b, N_b
  std::int32_t hq = 4, hkv = 2, d = 16, di = 8, block = 16, topk = 4, local_blocks = 1, init_blocks = 0;
  dtype type = fp32;
  double softmax_scale = 0, index_scale = 0;
  double query_size = 1, index_size = 1, offset = 0;  // factors of q and q_idx, mean of v
  double coeff = 1;
  bool warm_up = false;
  std::uint64_t seed = 1;
};

// A stored tensor.
struct stored {
  stored() = default;
  stored(dtype stored_type, std::vector<std::int64_t> stored_shape);
  double operator[](std::int64_t i) const { return load(bytes.data(), type, i); }
  void set(std::int64_t i, double x) { store(bytes.data(), type, i, x); }
  tensor_view view() const { return {bytes.data(), packed(type, shape)}; }

  dtype type;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;
};

class training_batch {
 public:
  explicit training_batch(const training_spec& spec);
  // Views refer to the batch's own memory.
  training_batch(const training_batch&) = delete;
  training_batch& operator=(const training_batch&) = delete;

  stored q, k, v, d_out, q_idx, k_idx;
  problem p;

  const training_spec& spec() const { return spec_; }
  std::int64_t rows() const { return cu_q_.back(); }
  std::int64_t keys() const { return cu_kv_.back(); }
  attend_backward_inputs attend() const;
  dense_backward_inputs dense() const;
  kl_inputs kl() const;

  std::int32_t& id(std::int64_t row, std::int64_t group, std::int64_t slot);
  void set_ids(const std::function<std::vector<std::int32_t>(std::int64_t row, std::int64_t group)>& ids);

  // Rows in k and v of what (row, group) reads, by the words of the contract.
  std::vector<std::int64_t> read_keys(std::int64_t row, std::int64_t group, bool all) const;

 private:
  training_spec spec_;
  std::vector<std::int32_t> cu_q_, kv_lens_, cu_kv_, ids_;
};

using real = long double;

// Gradient and gauges; `size` is the natural size of an element's rounding errors.
struct plain_gradient {
  explicit plain_gradient(std::size_t elements)
      : value(elements), magnitude(elements), error(elements), fine_error(elements), spread(elements), size(elements) {}
  std::vector<real> value, magnitude, error, fine_error, spread, size;
};
struct plain_backward_result {
  plain_gradient dq, dk, dv;
  std::vector<real> lse;
};
plain_backward_result plain_backward(const training_batch& b, bool all, const backward_error& err);

struct plain_kl_result {
  real loss = 0, teacher = 0, student = 0, magnitude = 0;
  plain_gradient dq_idx, dk_idx;
};
plain_kl_result plain_kl(const training_batch& b, const kl_error& err);

// sum <dO, o> over rows and heads, and the loss of kl alone: what central differences are taken of.
real plain_objective(const training_batch& b, bool all);
real plain_loss(const training_batch& b);

// Fails the running test where a value or gauge is off by more than `tolerance` of its natural size.
void expect_close(const gradient& got, const plain_gradient& want, double tolerance);
void expect_same_bits(const gradient& got, const gradient& want);

// Fails unless the gradient agrees with central differences of `objective` over all elements of x, to 1e-6 of the
// gradient's largest element.
void expect_derivative(const gradient& got, stored& x, const std::function<real()>& objective);

}  // namespace msabench::reference::testing
