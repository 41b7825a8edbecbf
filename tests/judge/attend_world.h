// SPDX-License-Identifier: Apache-2.0
// A small `attend` or `dense` case made by hand, and an emulation of implementations of it in single precision: honest ones that
// round where kernels do, and faulty ones.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "judge/judge.h"

namespace msabench::judge::test {

// Owns the bytes of one tensor.
struct tensor {
  tensor_desc desc;
  std::vector<std::byte> bytes;

  tensor() = default;
  tensor(dtype type, std::vector<std::int64_t> shape);
  tensor_view view() const { return {bytes.data(), desc}; }
  void set(std::int64_t offset, double x) { store(bytes.data(), desc.type, offset, x); }
  double get(std::int64_t offset) const { return load(bytes.data(), desc.type, offset); }
  void set_int(std::int64_t offset, std::int32_t x);
};

struct attend_shape {
  std::int32_t hq = 4, hkv = 2, d = 16, block = 8, topk = 4;
  std::vector<sequence> sequences = {{20, 45}};
  dtype type = bf16;
  bool dense = false;  // no ids: every visible key
  // vit_attend: every key of the sequence, each of which is a query.
  bool segments = false;
};

// Where an emulated implementation departs from plain single precision. Faults edit the list of keys (in order of
// accumulation, a key may stand in it twice), the value head, or numbers.
struct variant {
  dtype p = fp32, partial = fp32, accumulator = fp32;
  dtype score = fp32, score_accumulator = fp32, operand = fp64, value = fp64;  // fp64: as stored
  bool truncates_p = false, truncates_out = false, sum_of_rounded_p = false, reversed = false, exp2 = false;
  int splits = 1;
  double scale_factor = 1, lse_factor = 1, exp_factor = 1;
  std::function<void(std::int64_t row, std::int64_t kv_head, std::vector<std::int64_t>& keys)> edit_keys = nullptr;
  std::function<std::int64_t(std::int64_t kv_head)> value_head = nullptr;
};

class attend_world {
 public:
  explicit attend_world(const attend_shape& shape, const std::string& family = "random");

  // Fills, by family name.
  void fill_random(unsigned seed, double q_scale = 1);
  void fill_block_code();
  void fill_key_code(std::int64_t coded_block);
  void fill_carry();

  // Selects, for every row and KV head, own block and the blocks just before it but for a gap, so that some visible
  // block is not selected wherever there are more than topk.
  void choose_blocks();

  judge::subject subject() const;
  std::vector<std::int64_t> all_rows() const;
  std::vector<std::int64_t> selected_keys(std::int64_t row, std::int64_t kv_head) const;

  void run(const variant& v);
  launch outputs() const;
  void poison_outputs(int launch_index);

  std::int64_t rows() const { return static_cast<std::int64_t>(places_.size()); }
  std::int64_t position(std::int64_t row) const { return places_[static_cast<std::size_t>(row)].position; }
  std::int64_t kv_len(std::int64_t row) const { return places_[static_cast<std::size_t>(row)].kv_len; }

  attend_shape shape;
  case_spec definition;
  problem agreed;
  profile delivers;
  numerics declared;
  std::vector<perturbation> targets;
  tensor q, k, v, ids, cu_q, cu_kv, kv_lens, out, lse;

 private:
  struct place {
    std::int64_t sequence, position, kv_len, first_key;
  };
  void run_row(const variant& how, std::int64_t row, std::int64_t head);
  std::vector<place> places_;
};

numerics honest_numerics(dtype type);
check_result find_check(const std::vector<check_result>& checks, const std::string& id);
std::vector<check_result> checks_of(const attend_world& w);
// Whether all gating checks that are observed pass.
bool passes(const std::vector<check_result>& checks);
std::string told(const std::vector<check_result>& checks);
// "K1 K8c"; empty: all passed.
std::string failing_ids(const std::vector<check_result>& checks);

// The detectability of one fault.
double seen(attend_world& w, perturbation fault);

}  // namespace msabench::judge::test
