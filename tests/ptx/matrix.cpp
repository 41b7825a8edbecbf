// SPDX-License-Identifier: Apache-2.0
// Products of matrices: mma.sync, wgmma, and the loads and stores of their fragments. Products are summed in double and
// rounded to fp32 once an instruction, which is better than the hardware does.
#include <cstdio>

#include "tests/ptx/halves.h"
#include "tests/ptx/machine.h"

namespace msabench::ptx {
namespace {

enum element : std::int64_t { half_element, bfloat_element, e4m3_element };

float value_of(std::int64_t kind, std::uint64_t bits_there) {
  switch (kind) {
    case half_element:
      return from_half(static_cast<std::uint16_t>(bits_there));
    case bfloat_element:
      return from_bfloat(static_cast<std::uint16_t>(bits_there));
    default:
      return from_e4m3(static_cast<std::uint8_t>(bits_there));
  }
}

bool shape_of(const std::string& word, int& m, int& n, int& k) {
  return std::sscanf(word.c_str(), "m%dn%dk%d", &m, &n, &k) == 3;
}

/// Rows g and g + 8 of a fragment of A in registers, k columns: [16][k].
template <class Row>
void unpack_left(warp& w, const instruction& i, std::size_t first, int k, Row* rows) {
  const int packed = i.number == e4m3_element ? 4 : 2, element_bits = 32 / packed, half = 4 * packed;
  for (int r = 0; r < k / half * 2; ++r) {
    const lane_values a = w.in_values(i.args[first + static_cast<std::size_t>(r)], 5);
    for (int l = 0; l < lanes; ++l)
      for (int e = 0; e < packed; ++e)
        rows[l / 4 + r % 2 * 8][r / 2 * half + packed * (l % 4) + e] = value_of(i.number, a[l] >> e * element_bits);
  }
}

/// mma.sync.aligned.m16n8kK.row.col.f32.T.T.f32 d, a, b, c
void multiply(warp& w, const instruction& i, std::uint32_t) {
  const int k = static_cast<int>(i.second), packed = i.number == e4m3_element ? 4 : 2, element_bits = 32 / packed,
            half = 4 * packed;
  const auto registers = static_cast<std::size_t>(k / half);
  float a[16][32], b[32][8];
  unpack_left(w, i, 4, k, a);
  for (std::size_t r = 0; r < registers; ++r) {
    const lane_values v = w.in_values(i.args[4 + 2 * registers + r], 5);
    for (int l = 0; l < lanes; ++l)
      for (int e = 0; e < packed; ++e)
        b[static_cast<int>(r) * half + packed * (l % 4) + e][l / 4] = value_of(i.number, v[l] >> e * element_bits);
  }
  double sums[16][8] = {};
  for (int row = 0; row < 16; ++row)
    for (int at = 0; at < k; ++at)
      for (int column = 0; column < 8; ++column) sums[row][column] += static_cast<double>(a[row][at]) * b[at][column];
  for (std::size_t r = 0; r < 4; ++r) {
    std::array<float, lanes> out;
    const lane_values c = w.in_values(i.args[4 + 3 * registers + r], 5);
    for (int l = 0; l < lanes; ++l)
      out[static_cast<std::size_t>(l)] = static_cast<float>(
          sums[l / 4 + static_cast<int>(r) / 2 * 8][l % 4 * 2 + static_cast<int>(r) % 2] + as<float>(c[l]));
    std::uint64_t* const to = w.result(i, r);
    for (int l = 0; l < lanes; ++l) to[l] = bits(out[static_cast<std::size_t>(l)]);
  }
}

handler product_handler(instruction& i) {
  // mma . sync . aligned . m16n8k16 . row . col . f32 . bf16 . bf16 . f32
  int m = 0, n = 0, k = 0;
  if (i.words.size() != 10 || !shape_of(i.words[3], m, n, k) || m != 16 || n != 8 || i.words[4] != "row" ||
      i.words[5] != "col" || i.words[6] != "f32" || i.words[9] != "f32" || i.words[7] != i.words[8])
    return nullptr;
  if (i.words[7] == "bf16")
    i.number = bfloat_element;
  else if (i.words[7] == "f16")
    i.number = half_element;
  else if (i.words[7] == "e4m3")
    i.number = e4m3_element;
  else
    return nullptr;
  if (k > 32 || k % (i.number == e4m3_element ? 16 : 8) != 0) return nullptr;
  i.second = k;
  i.order = flow::together;
  return multiply;
}

int matrices_of(const instruction& i) { return has_word(i, "x4") ? 4 : has_word(i, "x2") ? 2 : 1; }

/// ldmatrix: row r of matrix m lies where lane 8 m + r says.
void load_matrices(warp& w, const instruction& i, std::uint32_t) {
  const int count = matrices_of(i);
  const auto n = static_cast<std::size_t>(count);
  const lane_values base = w.in_values(i.args[n], 7);
  std::array<std::array<std::uint64_t, lanes>, 4> out;
  for (int m = 0; m < count; ++m) {
    std::uint16_t values[8][8];
    for (int r = 0; r < 8; ++r)
      std::memcpy(
          values[r],
          w.shared_to_read(static_cast<std::uint32_t>(base[8 * m + r] + static_cast<std::uint64_t>(i.args[n].offset)),
                           16, i),
          16);
    for (int l = 0; l < lanes; ++l) {
      const int g = l / 4, t = l % 4 * 2;
      out[static_cast<std::size_t>(m)][static_cast<std::size_t>(l)] =
          i.number != 0 ? values[t][g] | static_cast<std::uint32_t>(values[t + 1][g]) << 16
                        : values[g][t] | static_cast<std::uint32_t>(values[g][t + 1]) << 16;
    }
  }
  for (std::size_t m = 0; m < n; ++m) std::memcpy(w.result(i, m), out[m].data(), sizeof out[m]);
}
void store_matrices(warp& w, const instruction& i, std::uint32_t) {
  const int count = matrices_of(i);
  const lane_values base = w.in_values(i.args[0], 7);
  for (int m = 0; m < count; ++m) {
    const lane_values v = w.in_values(i.args[static_cast<std::size_t>(1 + m)], 6);
    std::uint16_t values[8][8];
    for (int l = 0; l < lanes; ++l) {
      const int g = l / 4, t = l % 4 * 2;
      (i.number != 0 ? values[t][g] : values[g][t]) = static_cast<std::uint16_t>(v[l]);
      (i.number != 0 ? values[t + 1][g] : values[g][t + 1]) = static_cast<std::uint16_t>(v[l] >> 16);
    }
    for (int r = 0; r < 8; ++r)
      std::memcpy(
          w.shared_to_write(static_cast<std::uint32_t>(base[8 * m + r] + static_cast<std::uint64_t>(i.args[0].offset)),
                            16, i),
          values[r], 16);
  }
  ++w.in->events;
}

/// A matrix in shared memory as a descriptor of wgmma tells it.
class described {
 public:
  described(warp& w, const instruction& i, std::uint64_t descriptor, bool along_k, std::int64_t kind)
      : w_(w), i_(i), along_k_(along_k), kind_(kind) {
    const auto field = [&](int bit) { return static_cast<std::int64_t>(descriptor >> bit & 0x3fff) * 16; };
    start_ = field(0);
    leading_ = field(16);
    stride_ = field(32);
    mode_ = static_cast<int>(descriptor >> 62);  // 0 none, 1: 128 bytes, 2: 64, 3: 32
    if ((descriptor >> 49 & 7) != 0) fail(i, "a base offset in a descriptor: the interpreter knows none");
  }

  /// Row (of M or N) and column along K.
  float at(int row, int k) const {
    const std::int64_t size = kind_ == e4m3_element ? 1 : 2, width = mode_ == 0 ? 16 : 16 << (4 - mode_);
    const std::int64_t byte = k * size;
    std::int64_t address = 0;
    if (along_k_) {
      // Groups of eight rows; a row of `width` bytes lies in one piece.
      if (mode_ == 0)
        address = start_ + row / 8 * stride_ + row % 8 * 16 + byte / 16 * leading_ + byte % 16;
      else
        address = start_ + row / 8 * stride_ + row % 8 * width + byte;
    } else {
      const std::int64_t elements = width / size;
      address = start_ + row % elements * size + k % 8 * width;
      address += mode_ == 0 ? row / elements * stride_ + k / 8 * leading_ : row / elements * leading_ + k / 8 * stride_;
    }
    if (mode_ != 0) address ^= (address >> 7 & ((8 >> (mode_ - 1)) - 1)) << 4;
    std::uint64_t there = 0;
    std::memcpy(&there, w_.shared_to_read(static_cast<std::uint64_t>(address), size, i_),
                static_cast<std::size_t>(size));
    return value_of(kind_, there);
  }

 private:
  warp& w_;
  const instruction& i_;
  bool along_k_;
  std::int64_t kind_, start_, leading_, stride_;
  int mode_;
};

void begin_product(warp& w, const instruction& i, std::uint32_t mask) {
  if (mask != ~0u) fail(i, "not all lanes of the warp");
  // Read when it is waited for: whoever changes an operand before that is found out.
  w.open_products.push_back({&i});
}
void commit_products(warp& w, const instruction&, std::uint32_t) {
  w.product_groups.push_back(std::move(w.open_products));
  w.open_products.clear();
}
void wait_products(warp& w, const instruction& i, std::uint32_t) {
  const std::uint64_t left = w.value(i, 0)[0];
  for (; w.product_groups.size() > left; w.product_groups.pop_front())
    for (const begun_product& p : w.product_groups.front()) multiply_warpgroup(w, *p.what);
  ++w.in->events;
}

}  // namespace

// wgmma.mma_async.sync.aligned.m64nNkK.f32.T.T {d}, a, b-descriptor, scale-d, 1, 1 [, trans-a], trans-b
void multiply_warpgroup(warp& w, const instruction& i) {
  int m = 0, n = 0, k = 0;
  shape_of(i.words[4], m, n, k);
  const auto results = static_cast<std::size_t>(n / 2);
  const bool in_registers = i.widths[1] == 4;
  const std::size_t right = results + (in_registers ? 4 : 1);
  const bool has_transposes = i.number != e4m3_element;
  const auto flag = [&](std::size_t arg) { return static_cast<std::int32_t>(w.in_values(i.args[arg], 4)[0]); };
  const bool adds = (w.predicate(i.args[right + 1]) & 1) != 0;
  const float sign = static_cast<float>(flag(right + 2) * flag(right + 3));
  const bool a_along_k = in_registers || !has_transposes || flag(right + 4) == 0;
  const bool b_along_k = !has_transposes || flag(right + (in_registers ? 4 : 5)) == 0;
  float a[16][32];
  if (in_registers) {
    unpack_left(w, i, results, k, a);
  } else {
    const described left(w, i, w.in_values(i.args[results], 5)[0], a_along_k, i.number);
    for (int row = 0; row < 16; ++row)
      for (int at = 0; at < k; ++at) a[row][at] = left.at(static_cast<int>(w.number % 4) * 16 + row, at);
  }
  const described b(w, i, w.in_values(i.args[right], 5)[0], b_along_k, i.number);
  for (int octet = 0; octet < n / 8; ++octet) {
    double sums[16][8] = {};
    for (int at = 0; at < k; ++at)
      for (int column = 0; column < 8; ++column) {
        const double x = b.at(octet * 8 + column, at);
        for (int row = 0; row < 16; ++row) sums[row][column] += a[row][at] * x;
      }
    for (std::size_t r = 0; r < 4; ++r) {
      std::uint64_t* const to = w.result(i, static_cast<std::size_t>(octet) * 4 + r);
      for (int l = 0; l < lanes; ++l) {
        const double sum = sign * sums[l / 4 + static_cast<int>(r) / 2 * 8][l % 4 * 2 + static_cast<int>(r) % 2];
        to[l] = bits(static_cast<float>(adds ? sum + as<float>(to[l]) : sum));
      }
    }
  }
}

handler matrix_handler(instruction& i) {
  const std::string& base = i.words[0];
  if (base == "mma") return product_handler(i);
  if (base == "ldmatrix" || base == "stmatrix") {
    if (!has_word(i, "m8n8") || !has_word(i, "b16")) return nullptr;
    i.order = flow::together;
    i.number = has_word(i, "trans");
    return base == "ldmatrix" ? load_matrices : store_matrices;
  }
  if (base == "wgmma") {
    i.order = flow::together;
    if (has_word(i, "fence")) return [](warp&, const instruction&, std::uint32_t) {};
    if (has_word(i, "commit_group")) return commit_products;
    if (has_word(i, "wait_group")) return wait_products;
    int m = 0, n = 0, k = 0;
    if (i.words.size() != 8 || i.words[1] != "mma_async" || !shape_of(i.words[4], m, n, k) || i.words[5] != "f32")
      return nullptr;
    if (i.words[6] == "bf16")
      i.number = bfloat_element;
    else if (i.words[6] == "f16")
      i.number = half_element;
    else if (i.words[6] == "e4m3" && i.words[7] == "e4m3")
      i.number = e4m3_element;
    else
      return nullptr;
    return begin_product;
  }
  return nullptr;
}

}  // namespace msabench::ptx
