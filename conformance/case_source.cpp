// SPDX-License-Identifier: Apache-2.0
#include "conformance/case_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>

#include "conformance/cost.h"
#include "conformance/runner.h"
#include "core/error.h"
#include "core/generator.h"

namespace msabench {

namespace {

// Triples of all launches and bytes of tensors. The oracle does a few million triples in a second, and looks at eight
// rows once more for each target fault.
constexpr std::int64_t most_triples = 1'500'000;
constexpr double most_bytes = 8 << 20;
constexpr std::int64_t most_rows = 400;

// Numbers of one case, whatever was drawn for the others.
class dice {
 public:
  dice(std::uint64_t seed, std::uint64_t number) : words_("fuzz", std::to_string(number), seed) {}

  // 0 .. n - 1
  std::int64_t below(std::int64_t n) {
    return static_cast<std::int64_t>((std::uint64_t{words_.word(at_++)} * static_cast<std::uint64_t>(n)) >> 32);
  }
  std::int64_t between(std::int64_t least, std::int64_t most) { return least + below(most - least + 1); }
  bool percent(int chance) { return below(100) < chance; }
  template <class T>
  T of(std::initializer_list<T> items) {
    return items.begin()[below(std::ssize(items))];
  }
  // As many numbers of one length in bits as of another.
  std::int64_t of_any_length(std::int64_t most) {
    const auto bits = static_cast<std::int64_t>(std::log2(static_cast<double>(most))) + 1;
    const std::int64_t top = std::int64_t{1} << below(bits);
    return std::min(most, between(top, 2 * top - 1));
  }

 private:
  stream words_;
  std::uint64_t at_ = 0;
};

std::int32_t draw_dim(dice& d) {
  if (d.percent(50)) return d.of({64, 128});
  if (d.percent(70)) return d.of({8, 16, 32, 48, 80, 96, 112, 192, 256});
  return static_cast<std::int32_t>(d.between(1, 160));
}

shape_spec draw_shape(dice& d, op o) {
  shape_spec s;
  if (!is_vision(o) && d.percent(15)) {
    s = named_shapes()[static_cast<std::size_t>(d.below(std::ssize(named_shapes())))].shape;
    const auto ways = d.of<std::int32_t>({1, 2, 4});
    s.hq /= ways;
    s.hkv /= ways;
    s.hi /= ways;
    return s;
  }
  s.hkv = s.hi = d.of({1, 1, 2, 2, 3, 4, 5, 6, 8});
  s.hq = is_vision(o) ? s.hkv : s.hkv * d.of({1, 1, 2, 3, 4, 5, 7, 8, 12, 16});
  s.d = draw_dim(d);
  s.di = d.percent(65) ? s.d : draw_dim(d);
  s.block = d.percent(70)   ? d.of({16, 32, 64, 128})
            : d.percent(50) ? d.of({1, 2, 4, 8, 256})
                            : static_cast<std::int32_t>(d.between(1, 200));
  s.topk = static_cast<std::int32_t>(d.percent(80) ? d.between(1, 8) : d.between(1, 40));
  s.local_blocks = static_cast<std::int32_t>(d.percent(60) ? 1 : d.between(0, std::min(s.topk, 5)));
  s.init_blocks = static_cast<std::int32_t>(d.percent(60) ? 0 : d.between(0, std::min(s.topk - s.local_blocks, 4)));
  return s;
}

// Borders of blocks and of tiles, and anything between.
std::int64_t draw_keys(dice& d, const shape_spec& s) {
  if (d.percent(6)) return 0;
  if (d.percent(12)) return d.between(1, 10);
  if (d.percent(50)) {
    const std::int64_t blocks = d.between(1, 2 * s.topk + 3);
    return std::max<std::int64_t>(0, blocks * s.block + d.between(-2, 2));
  }
  return d.of_any_length(4095);
}

std::int64_t draw_queries(dice& d, std::int64_t keys) {
  if (d.percent(6)) return 0;
  if (d.percent(40)) return 1;
  if (d.percent(40)) return d.between(2, 9);
  if (d.percent(30)) return d.of({15, 16, 17, 31, 32, 33, 63, 64, 65});
  if (d.percent(30)) return keys + d.between(1, 3);  // rows before the first token
  return std::min<std::int64_t>(keys, d.between(1, 300));
}

// Empty where the batch has no name.
std::optional<lengths_spec> draw_batch(dice& d, const shape_spec& s) {
  std::vector<sequence> batch;
  const auto draw = [&] {
    const std::int64_t keys = draw_keys(d, s);
    return sequence{draw_queries(d, keys), keys};
  };
  if (d.percent(30)) {
    batch.assign(static_cast<std::size_t>(d.of({1, 1, 1, 2, 3, 5, 17})), draw());
  } else {
    for (std::int64_t n = d.between(1, d.percent(80) ? 4 : 10); n > 0; --n) batch.push_back(draw());
  }
  if (batch.size() == 1 && (batch[0].q_len == 0 || batch[0].kv_len == 0)) return std::nullopt;
  return lengths_of(batch);
}

lengths_spec draw_grids(dice& d) {
  lengths_spec lengths;
  lengths.form = lengths_spec::kind::grids;
  for (std::int64_t n = d.between(1, 4); n > 0; --n)
    lengths.grids.push_back({d.percent(50) ? 1 : d.between(2, 11), 2 * d.between(1, 7), 2 * d.between(1, 7)});
  return lengths;
}

void draw_family(dice& d, case_spec& c) {
  std::vector<const family_info*> possible;
  for (const auto& f : families())
    if (!f.variants.empty() && std::ranges::find(f.operators, c.operation) != f.operators.end()) possible.push_back(&f);
  const family_info& f = *possible[static_cast<std::size_t>(d.below(std::ssize(possible)))];
  c.family = f.name;
  c.variant = f.variants[static_cast<std::size_t>(d.below(std::ssize(f.variants)))];
}

double draw_scale(dice& d) {
  if (d.percent(50)) return d.of({0.05, 0.125, 0.25, 0.3, 1.0, 2.0});
  return static_cast<double>(d.between(1, 999)) / 1000;
}

case_options draw_options(dice& d, const case_spec& c) {
  case_options o;
  const op of = c.operation;
  const bool paged = c.layout != page_layout::contiguous;
  const std::int32_t block = c.shape.block;
  if (paged && d.percent(30))
    o.page_size = d.percent(50) ? d.of({block / 2, 2 * block}) : d.of({1, 2, 16, 64, 128, 256});
  if (paged && d.percent(4)) o.pool_pages = d.of<std::int64_t>({1 << 10, 1 << 14, 1 << 17});
  const bool has_scores = of != op::select && of != op::combine && of != op::qk_norm_rope && of != op::rope3d;
  if (has_scores && d.percent(20)) o.softmax_scale = draw_scale(d);
  if (of == op::combine && d.percent(95)) o.splits = static_cast<std::int32_t>(d.between(1, d.percent(80) ? 8 : 70));
  if (of == op::combine && c.type != fp32) o.part16 = d.percent(30);
  if (trains(of) && c.type != fp32) o.grad16 = d.percent(20);
  if (of == op::qk_norm_rope && d.percent(40))
    o.rope_dims = static_cast<std::int32_t>(2 * d.between(0, std::min(c.shape.d, c.shape.di) / 2));
  if (is_vision(of) && d.percent(40)) o.window = static_cast<std::int32_t>(d.between(0, 9));
  o.stride = d.percent(15);
  if (of == op::vit3d) o.bare = d.percent(30);
  o.slack = d.percent(15);
  o.rep = d.percent(4);
  o.warm = of == op::kl && d.percent(30);
  if (of == op::kl && d.percent(15)) o.kl_coeff = d.of({0.0, 0.01, 0.5, 30.0});
  const bool takes_ids = of == op::attend || of == op::attend_backward || (of == op::kl && !o.warm);
  o.lenient = takes_ids && d.percent(15);
  o.short_rows = takes_ids && !o.lenient && d.percent(15);
  const bool scaled = of == op::score || of == op::index || of == op::attend || of == op::dense || of == op::msa;
  if (scaled && d.percent(25)) o.fp8 = d.percent(60) ? scale_form::token : scale_form::tensor;
  if (of == op::msa && o.fp8 == scale_form::none && d.percent(25))
    o.fp8_index = d.percent(60) ? scale_form::token : scale_form::tensor;
  return o;
}

// May be no legal case.
std::optional<case_spec> attempt(dice& d, std::span<const op> operators) {
  case_spec c;
  c.operation = operators[static_cast<std::size_t>(d.below(std::ssize(operators)))];
  c.shape = draw_shape(d, c.operation);
  const auto lengths = is_vision(c.operation) ? draw_grids(d) : draw_batch(d, c.shape);
  if (!lengths) return std::nullopt;
  c.lengths = *lengths;
  c.type = d.of({bf16, bf16, fp16, fp32});
  if (names_layout(c.operation) && !trains(c.operation))
    c.layout = d.of({page_layout::contiguous, page_layout::paged, page_layout::fused});
  draw_family(d, c);
  c.options = draw_options(d, c);
  c.seed = static_cast<std::uint64_t>(d.below(1000));
  return c;
}

}  // namespace

bool is_quick(const case_spec& c) {
  const auto all = sequences(c);
  std::int64_t rows = 0;
  for (const auto& s : all) rows += s.q_len;
  return rows <= most_rows && implementation_triples(c) <= most_triples && memory_bytes(c) <= most_bytes;
}

bool has_name(const case_spec& c) {
  try {
    return parse_case(name(c)) == c;
  } catch (const usage_error&) {
    return false;
  }
}

case_source::case_source(std::uint64_t seed, std::vector<op> operators)
    : seed_(seed), operators_(std::move(operators)) {
  if (!operators_.empty()) return;
  for (const op o : all_ops)
    if (std::ranges::any_of(
            families(), [&](const family_info& f) { return std::ranges::find(f.operators, o) != f.operators.end(); }))
      operators_.push_back(o);
}

case_spec case_source::draw(std::uint64_t number) const {
  constexpr int most_attempts = 10000;
  dice d(seed_, number);
  for (int i = 0; i < most_attempts; ++i)
    if (const auto c = attempt(d, operators_); c && has_name(*c) && is_quick(*c)) return *c;
  throw suite_error(fmt::format("no legal case in {} attempts", most_attempts));
}

}  // namespace msabench
