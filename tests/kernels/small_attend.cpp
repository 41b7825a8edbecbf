// SPDX-License-Identifier: Apache-2.0
#include "tests/kernels/small_attend.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "tests/kernels/small_lengths.h"

namespace msabench::plugin_test {
namespace {

std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape, bool padded) {
  // Outer strides get 16 bytes of bf16 more than they need, so that no two dimensions are packed.
  std::vector<std::int64_t> strides(shape.size(), 1);
  for (std::size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis] + (padded ? 8 : 0);
  return strides;
}

/// Unit roundoff.
double u_of(msabench_dtype type) {
  return std::ldexp(1.0, type.code == bf16_type.code ? -8 : type.bits == 16 ? -11 : -24);
}

msabench_op operator_of(const attend_shape& shape) {
  return shape.segments ? MSABENCH_OP_VIT_ATTEND : shape.dense ? MSABENCH_OP_DENSE : MSABENCH_OP_ATTEND;
}

void fill_random(buffer& to, std::mt19937& random) {
  // Uniform by integers: the standard distributions differ between libraries.
  const auto& shape = to.shape();
  const auto value = [&random] { return static_cast<double>(random() % 2001) / 1000.0 - 1.0; };
  for (std::int64_t a = 0; a < shape[0]; ++a) {
    for (std::int64_t b = 0; b < shape[1]; ++b) {
      for (std::int64_t c = 0; c < shape[2]; ++c) {
        if (shape.size() == 3) {
          to.set({a, b, c}, value());
          continue;
        }
        for (std::int64_t e = 0; e < shape[3]; ++e) to.set({a, b, c, e}, value());
      }
    }
  }
}

}  // namespace

small_attend::small_attend(attend_shape given, unsigned seed)
    : shape(std::move(given)), problem(empty_problem(operator_of(shape))) {
  shape.dense = shape.dense || shape.segments;
  std::mt19937 random(seed);
  make_lengths();
  problem.hq = shape.hq;
  problem.hkv = shape.hkv;
  problem.d = shape.d;
  problem.block = shape.block;
  problem.topk = shape.topk;
  problem.local_blocks = 1;
  problem.page_layout = shape.page_layout;
  problem.page_size = shape.page_size;
  problem.batch = static_cast<std::int64_t>(shape.sequences.size());
  problem.total_q = tokens_;
  problem.max_kv_len = longest_;
  problem.total_kv = keys_;
  problem.q = problem.kv = problem.out = shape.type;
  problem.softmax_scale = shape.softmax_scale;
  problem.profile.in_id_form = shape.form;
  for (const auto& sequence : shape.sequences) {
    problem.max_q_len = std::max<std::int64_t>(problem.max_q_len, sequence.first);
  }

  const auto tensor = [this](msabench_dtype type, std::vector<std::int64_t> sizes) {
    auto strides = strides_of(sizes, shape.padded_strides);
    return buffer(type, std::move(sizes), std::move(strides));
  };
  const std::int64_t rows = tokens_ + shape.spare_rows;
  q = tensor(shape.type, {rows, shape.hq, shape.d});
  out = tensor(shape.type, {rows, shape.hq, shape.d});
  lse = tensor(fp32_type, {rows, shape.hq});
  ids = tensor(int32_type, {rows, shape.hkv, shape.topk});
  fill_random(q, random);
  make_cache(random);
  make_ids(random);
}

void small_attend::make_lengths() {
  small_lengths made(shape.sequences);
  cu_seqlens_q = std::move(made.cu_seqlens_q);
  cu_seqlens_kv = std::move(made.cu_seqlens_kv);
  kv_lens = std::move(made.kv_lens);
  tokens_ = made.tokens;
  keys_ = made.keys;
  longest_ = made.longest;
}

void small_attend::make_cache(std::mt19937& random) {
  if (shape.page_layout == 0) {
    // Patches are queries and keys, in tensors of one length.
    const std::vector<std::int64_t> sizes{keys_ + (shape.segments ? shape.spare_rows : 0), shape.hkv, shape.d};
    k = buffer(shape.type, sizes, strides_of(sizes, shape.padded_strides));
    v = buffer(shape.type, sizes, strides_of(sizes, shape.padded_strides));
    fill_random(k, random);
    fill_random(v, random);
    return;
  }
  const std::int64_t most = (longest_ + shape.page_size - 1) / shape.page_size;
  const auto batch = static_cast<std::int64_t>(shape.sequences.size());
  pages_ = 1;  // page 0 belongs to nobody
  for (const auto& sequence : shape.sequences) pages_ += (sequence.second + shape.page_size - 1) / shape.page_size;
  problem.pool_pages = pages_;
  if (shape.page_layout == 2) {
    fused = buffer(shape.type, {pages_, shape.hkv, shape.page_size, 2 * shape.d});
    fill_random(fused, random);
    half_shape_ = {pages_, shape.hkv, shape.page_size, shape.d};
  } else {
    const std::vector<std::int64_t> sizes{pages_, shape.hkv, shape.page_size, shape.d};
    k = buffer(shape.type, sizes, strides_of(sizes, shape.padded_strides));
    v = buffer(shape.type, sizes, strides_of(sizes, shape.padded_strides));
    fill_random(k, random);
    fill_random(v, random);
  }
  std::vector<std::int32_t> order(static_cast<std::size_t>(pages_ - 1));
  std::iota(order.begin(), order.end(), 1);
  std::shuffle(order.begin(), order.end(), random);
  block_table = buffer(int32_type, {batch, most + 1});
  std::size_t next = 0;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t used =
        (shape.sequences[static_cast<std::size_t>(b)].second + shape.page_size - 1) / shape.page_size;
    // Past the last page in use a table may hold anything, such as this.
    for (std::int64_t page = 0; page <= most; ++page)
      block_table.set({b, page}, page < used ? order[next++] : 2000000000);
  }
}

void small_attend::make_ids(std::mt19937& random) {
  std::int64_t row = 0;
  for (const auto& [query, length] : shape.sequences) {
    for (std::int64_t i = 0; i < query; ++i, ++row) {
      const std::int64_t position = length - query + i;
      const std::int64_t visible = position < 0 ? 0 : position / shape.block + 1;
      for (std::int64_t head = 0; head < shape.hkv; ++head) {
        std::vector<std::int32_t> all(static_cast<std::size_t>(visible));
        std::iota(all.begin(), all.end(), 0);
        std::shuffle(all.begin(), all.end(), random);
        std::size_t count = std::min(all.size(), static_cast<std::size_t>(shape.topk));
        if (shape.form != MSABENCH_FORM_EXACT) count = random() % (count + 1);
        std::vector<std::int32_t> chosen(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(count));
        if (shape.form == MSABENCH_FORM_LENIENT) {
          // Duplicates, blocks that the row does not see, and -1 in between.
          while (chosen.size() < static_cast<std::size_t>(shape.topk)) {
            const std::int32_t junk[] = {-1, -7, static_cast<std::int32_t>(visible), 2000000000,
                                         chosen.empty() ? -1 : chosen[random() % chosen.size()]};
            chosen.push_back(junk[random() % 5]);
          }
          std::shuffle(chosen.begin(), chosen.end(), random);
        } else {
          std::sort(chosen.begin(), chosen.end());
          chosen.resize(static_cast<std::size_t>(shape.topk), -1);
        }
        for (std::int32_t slot = 0; slot < shape.topk; ++slot) {
          ids.set({row, head, slot}, chosen[static_cast<std::size_t>(slot)]);
        }
      }
    }
  }
}

arguments small_attend::args() const {
  arguments given;
  given.put(MSABENCH_Q, q);
  if (!shape.dense) given.put(MSABENCH_IDS, ids);
  given.put(MSABENCH_OUT, out);
  given.put(MSABENCH_LSE, lse);
  if (shape.segments) {
    given.put(MSABENCH_CU_SEGMENTS, cu_seqlens_q);
  } else {
    given.put(MSABENCH_CU_SEQLENS_Q, cu_seqlens_q);
    given.put(MSABENCH_KV_LENS, kv_lens);
    if (shape.page_layout == 0) given.put(MSABENCH_CU_SEQLENS_KV, cu_seqlens_kv);
  }
  if (shape.page_layout != 0) given.put(MSABENCH_BLOCK_TABLE, block_table);
  if (shape.page_layout == 2) {
    // The two halves share everything but where they start.
    msabench_tensor half = fused.tensor();
    half.shape = half_shape_.data();
    given.put(MSABENCH_K, half);
    half.data = static_cast<std::byte*>(half.data) + shape.d * shape.type.bits / 8;
    given.put(MSABENCH_V, half);
  } else {
    given.put(MSABENCH_K, k);
    given.put(MSABENCH_V, v);
  }
  return given;
}

double small_attend::cached(bool value, std::int64_t b, std::int64_t head, std::int64_t j, std::int64_t c) const {
  const buffer& from = value ? v : k;
  if (shape.page_layout == 0) return from.get({static_cast<std::int64_t>(cu_seqlens_kv.get({b})) + j, head, c});
  const auto page = static_cast<std::int64_t>(block_table.get({b, j / shape.page_size}));
  const std::int64_t offset = j % shape.page_size;
  return shape.page_layout == 2 ? fused.get({page, head, offset, value ? shape.d + c : c})
                                : from.get({page, head, offset, c});
}

expected_row small_attend::expected(std::int64_t row, std::int32_t head) const {
  std::int64_t b = 0;
  while (cu_seqlens_q.get({b + 1}) <= static_cast<double>(row)) ++b;
  const auto length = static_cast<std::int64_t>(kv_lens.get({b}));
  const auto own = length - static_cast<std::int64_t>(cu_seqlens_q.get({b + 1})) + row;
  const std::int64_t position = shape.segments ? length - 1 : own;
  const std::int32_t kv_head = head / (shape.hq / shape.hkv);
  std::set<std::int64_t> blocks;
  for (std::int32_t slot = 0; slot < shape.topk; ++slot)
    blocks.insert(static_cast<std::int64_t>(ids.get({row, kv_head, slot})));

  const double scale = shape.softmax_scale != 0 ? shape.softmax_scale : 1 / std::sqrt(static_cast<double>(shape.d));
  std::vector<std::int64_t> keys;
  std::vector<double> scores;
  double gauge = 0;  // greatest scale * sum |q||k|
  for (std::int64_t j = 0; j <= position && j < length; ++j) {
    if (!shape.dense && !blocks.contains(j / shape.block)) continue;
    double sum = 0, magnitude = 0;
    for (std::int64_t c = 0; c < shape.d; ++c) {
      const double product = q.get({row, head, c}) * cached(false, b, kv_head, j, c);
      sum += product;
      magnitude += std::abs(product);
    }
    keys.push_back(j);
    scores.push_back(scale * sum);
    gauge = std::max(gauge, std::abs(scale) * magnitude);
  }
  expected_row result{std::vector<double>(static_cast<std::size_t>(shape.d)), -std::numeric_limits<double>::infinity(),
                      std::vector<double>(static_cast<std::size_t>(shape.d)), 0};
  if (keys.empty()) return result;

  const double maximum = *std::max_element(scores.begin(), scores.end());
  double total = 0;
  for (const double s : scores) total += std::exp(s - maximum);
  result.lse = maximum + std::log(total);
  // Scores are off by at most d + 2 roundings of the gauge, exponentials by 2^-22 and the rounding of their argument; a
  // weighted mean moves by at most twice that times the mean of |v|; every addition of the sums may round once.
  const double u32 = std::ldexp(1.0, -24), u_out = u_of(shape.type);
  const double eta = (shape.d + 2) * u32 * gauge + 4 * u32 + 8 * u32 * gauge;
  // Keys may be summed one after the other, or in tiles of 128 where there are many.
  const std::ptrdiff_t tiles = 128 + (std::ssize(keys) + 127) / 128;
  const double chain = static_cast<double>(shape.dense ? tiles : std::ssize(keys)) * u32;
  result.lse_limit = 1.02 * (eta + chain + 4 * u32 + 4 * u32 * (std::abs(maximum) + std::abs(result.lse)));
  for (std::size_t c = 0; c < result.out.size(); ++c) {
    double sum = 0, magnitude = 0;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const double p = std::exp(scores[i] - maximum) / total;
      const double value = cached(true, b, kv_head, keys[i], static_cast<std::int64_t>(c));
      sum += p * value;
      magnitude += p * std::abs(value);
    }
    result.out[c] = sum;
    result.limit[c] = 1.02 * (u_out * std::abs(sum) + (2 * eta + 2 * chain + 4 * u32) * magnitude);
  }
  return result;
}

std::optional<std::string> small_attend::fault() const {
  if (!out.guards_intact() || !lse.guards_intact()) return "guard bands written";
  for (std::int64_t row = 0; row < out.shape()[0]; ++row) {
    for (std::int32_t head = 0; head < shape.hq; ++head) {
      const std::string where = "row " + std::to_string(row) + " head " + std::to_string(head);
      if (row >= tokens_) {
        if (!lse.untouched({row, head}) || !out.untouched({row, head, 0})) return where + ": past T, but written";
        continue;
      }
      const expected_row want = expected(row, head);
      const double got = lse.get({row, head});
      if (got != want.lse && !(std::abs(got - want.lse) <= want.lse_limit)) {
        return where + ": lse " + std::to_string(got) + ", expected " + std::to_string(want.lse);
      }
      for (std::int64_t c = 0; c < shape.d; ++c) {
        const double value = out.get({row, head, c}), wanted = want.out[static_cast<std::size_t>(c)];
        if (!(std::abs(value - wanted) <= want.limit[static_cast<std::size_t>(c)])) {
          return where + " channel " + std::to_string(c) + ": " + std::to_string(value) + ", expected " +
                 std::to_string(wanted);
        }
      }
    }
  }
  return std::nullopt;
}

}  // namespace msabench::plugin_test
