// SPDX-License-Identifier: Apache-2.0
#include "conformance/probe_numerics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

namespace msabench {
namespace {

// A rounding: to a format, to nearest or toward zero.
struct rounding {
  dtype to;
  bool truncates = false;

  double operator()(double x) const {
    // Eight bits of e4m3 are about 1/448 .. 448, so weights are scaled before they are rounded.
    const double scale = to == e4m3 ? 256 : 1;
    const double r = round_to(x * scale, to);
    return (truncates && std::abs(r) > std::abs(x * scale) ? r - std::copysign(ulp_of(x * scale, to), r) : r) / scale;
  }
  std::string text() const { return fmt::format("{}{}", name(to), truncates ? " truncated" : ""); }
  double roundoff() const { return unit_roundoff(to) * (truncates ? 2 : 1); }
};

// From fine to coarse.
constexpr std::array<rounding, 7> roundings = {
    {{fp32}, {fp16}, {fp16, true}, {tf32, true}, {bf16}, {bf16, true}, {e4m3}}};

bool explains(std::span<const double> got, std::span<const double> predicted, std::span<const double> tolerance) {
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - predicted[i]) <= tolerance[i])) return false;
  return !got.empty();
}

struct found_rounding {
  rounding how;
  bool normalised = false;  // the weight was divided by the sum of all before it was rounded
};

// The format of sums in which 2^bits + 1 - 2^bits is still 1, and no larger power.
dtype accumulator_of_bits(int bits) {
  if (bits >= 22) return fp32;
  if (bits >= 13) return fp8_acc;
  return bits >= 10 ? fp16 : bf16;
}

class prober {
 public:
  explicit prober(probe_session& session) : on_(session), n_{session.declared(), {}} {}

  probed_numerics result() {
    probe_output();
    probe_weights();
    probe_scores();
    probe_score_sums();
    probe_output_sums();
    probe_values();
    not_told("chain_score", on_.declared().chain_score);
    not_told("chain_out", on_.declared().chain_out);
    not_told("chain_row_sum", on_.declared().chain_row_sum);
    return std::move(n_);
  }

 private:
  static constexpr int most_exponent = 24;

  void add(std::string field, std::optional<std::string> seen, std::string declared, comparison c, std::string how) {
    n_.numbers.push_back({std::move(field), std::move(seen), std::move(declared), c, std::move(how)});
  }

  void not_told(const char* field, std::uint32_t declared) {
    add(field, std::nullopt, std::to_string(declared), comparison::untold,
        "the order of additions is not told apart: count the additions of your loop");
  }

  bool declares_truncation(std::uint32_t bit) const { return (on_.declared().truncated & bit) != 0; }

  // A format that was seen, beside the one declared.
  void format(const char* field, dtype numerics::* type, std::uint32_t bit, std::optional<rounding> seen,
              std::string how) {
    const rounding declared{on_.declared().*type, bit != 0 && declares_truncation(bit)};
    if (!seen) return add(field, std::nullopt, declared.text(), comparison::untold, std::move(how));
    // Formats of eleven bits are told apart by their range alone.
    const bool same_bits = unit_roundoff(declared.to) == unit_roundoff(seen->to);
    if (same_bits) seen->to = declared.to;
    n_.proposed.*type = seen->to;
    if (bit != 0) n_.proposed.truncated = (n_.proposed.truncated & ~bit) | (seen->truncates ? bit : 0);
    const comparison c = declared.roundoff() > seen->roundoff()   ? comparison::coarser
                         : declared.roundoff() < seen->roundoff() ? comparison::finer
                                                                  : comparison::equal;
    add(field, seen->text(), declared.text(), c, std::move(how));
  }

  std::size_t lines() const { return static_cast<std::size_t>(std::min(on_.heads(), on_.channels())); }

  // The mean of two values that lies a quarter or three quarters between two values of the type.
  void probe_output() {
    const dtype t = on_.type();
    if (t == fp32) {
      const auto value = [](std::int64_t c) { return 1 + static_cast<double>(2 * c + 1) * 0x1p-20; };
      const auto seen = on_.run({1, 0.125, {}, {}, [&](std::int64_t, std::int64_t c) { return value(c); }});
      return output_of(seen, value);
    }
    const double u = ulp_of(1, t);
    const auto base = [&](std::int64_t c) { return 2 * (1 + static_cast<double>(c % 16) * u); };
    const auto rest = [&](std::int64_t c) { return (c % 2 == 0 ? 0.25 : 0.75) * 2 * u; };
    const auto sign = [](std::int64_t c) { return c % 4 < 2 ? 1.0 : -1.0; };
    const auto seen = on_.run(
        {2, 0.125, {}, {}, [&](std::int64_t j, std::int64_t c) { return sign(c) * (j == 0 ? base(c) : rest(c)); }});
    output_of(seen, [&](std::int64_t c) { return sign(c) * (base(c) + rest(c)) / 2; });
  }

  template <class Exact>
  void output_of(const probe_answer& seen, const Exact& exact) {
    std::optional<rounding> found;
    for (const auto& r : roundings) {
      if (found || unit_roundoff(r.to) < unit_roundoff(on_.type())) continue;
      std::vector<double> predicted, tolerance(seen.out[0].size(), 0x1p-23);
      for (std::size_t c = 0; c < seen.out[0].size(); ++c)
        predicted.push_back(round_to(r(exact(static_cast<std::int64_t>(c))), on_.type()));
      if (explains(seen.out[0], predicted, tolerance)) found = r;
    }
    format(
        "out_store", &numerics::out_store, truncates_out, found,
        found ? "exact means of two values, between two values of the type" : "no rounding explains what was stored");
  }

  double weight(std::size_t h) const { return std::exp(-0.125 * (4 + static_cast<double>(h % 64) / 4)); }

  // Two keys of weight 1 take away all of a third one's weight that the type can hold: what is left tells the weight.
  void probe_weights() {
    const auto first_part = [&](std::int64_t c) { return round_to(weight(static_cast<std::size_t>(c)), on_.type()); };
    const auto second_part = [&](std::int64_t c) {
      return round_to(weight(static_cast<std::size_t>(c)) - first_part(c), on_.type());
    };
    const auto seen = on_.run(
        {3, 0.125, [](std::int64_t h, std::int64_t c) { return c == 0 ? 4 + static_cast<double>(h % 64) / 4 : 0; },
         [](std::int64_t j, std::int64_t c) { return j == 2 && c == 0 ? -1.0 : 0.0; },
         [&](std::int64_t j, std::int64_t c) { return j == 0   ? -first_part(c)
                                                      : j == 1 ? -second_part(c)
                                                               : 1.0; }});
    std::vector<double> got;
    for (std::size_t h = 0; h < lines(); ++h) got.push_back(seen.out[h][h]);
    std::optional<found_rounding> found;
    for (const bool normalised : {false, true})
      for (const auto& r : roundings)
        for (const bool rounded : {false, true}) {
          if (found || (normalised && r.to == fp32)) continue;
          std::vector<double> predicted, tolerance;
          for (std::size_t h = 0; h < lines(); ++h) {
            const auto c = static_cast<std::int64_t>(h);
            const double w = weight(h), sum = 2 + w;
            const double o = normalised ? r(w / sum) - r(1 / sum) * (first_part(c) + second_part(c))
                                        : (r(w) - first_part(c) - second_part(c)) / (2 + (rounded ? r(w) : w));
            predicted.push_back(o);
            tolerance.push_back(4 * unit_roundoff(on_.type()) * std::abs(o) + (r.to == fp32 ? 0x1p-18 : 0x1p-20) * w);
          }
          if (explains(got, predicted, tolerance)) found = found_rounding{r, normalised};
        }
    format("p_operand", &numerics::p_operand, truncates_p, found ? std::optional(found->how) : std::nullopt,
           !found              ? "no rounding explains the weight that is left"
           : found->normalised ? "weights divided by their sum before they are rounded"
                               : "the weight of a key, less what two others take away");
    if (found && found->how.to == fp32)
      probe_exponential(got, first_part, second_part);
    else
      add("exp_rel_error", std::nullopt, declared_error(on_.declared().exp_rel_error), comparison::untold,
          "rounded weights hide the error of exp");
    probe_sum_of_weights(seen, found);
  }

  static std::string declared_error(float e) { return e == 0 ? "2^-22" : fmt::format("{:.3g}", e); }

  template <class First, class Second>
  void probe_exponential(const std::vector<double>& got, const First& first_part, const Second& second_part) {
    double worst = 0;
    for (std::size_t h = 0; h < got.size(); ++h) {
      const auto c = static_cast<std::int64_t>(h);
      const double w = weight(h), kept = got[h] * (2 + w) + first_part(c) + second_part(c);
      worst = std::max(worst, std::abs(kept - w) / w - 4 * unit_roundoff(on_.type()) * std::abs(got[h]) / w - 0x1p-21);
    }
    const double declared =
        on_.declared().exp_rel_error == 0 ? 0x1p-22 : static_cast<double>(on_.declared().exp_rel_error);
    if (worst <= 0x1p-22) {
      n_.proposed.exp_rel_error = 0;
      return add("exp_rel_error", "at most 2^-22", declared_error(on_.declared().exp_rel_error),
                 declared > 0x1p-22 ? comparison::coarser : comparison::equal,
                 "the weights, beyond what sums may lose");
    }
    const int power = static_cast<int>(std::ceil(std::log2(worst)));
    n_.proposed.exp_rel_error = std::ldexp(1.0F, power);
    add("exp_rel_error", fmt::format("2^{}", power), declared_error(on_.declared().exp_rel_error),
        declared < worst ? comparison::finer : comparison::equal, "the weights, beyond what sums may lose");
  }

  void probe_sum_of_weights(const probe_answer& seen, const std::optional<found_rounding>& p) {
    const std::string declared = std::to_string(on_.declared().lse_from_rounded_p);
    const auto untold = [&](const char* why) {
      add("lse_from_rounded_p", std::nullopt, declared, comparison::untold, why);
      add("log_abs_error", std::nullopt, declared_error(on_.declared().log_abs_error), comparison::untold, why);
    };
    if (seen.lse.empty()) return untold("no lse is emitted");
    if (!p) return untold("the rounding of the weights is not known");
    const std::span<const double> got(seen.lse.data(), lines());
    std::optional<bool> rounded;
    double error = 0;
    for (const bool guess : {false, true}) {
      std::vector<double> predicted, tolerance(lines(), 0x1p-17);
      for (std::size_t h = 0; h < lines(); ++h)
        predicted.push_back(std::log(2 + (guess ? p->how(weight(h)) : weight(h))));
      if (rounded || !explains(got, predicted, tolerance)) continue;
      rounded = guess;
      for (std::size_t h = 0; h < lines(); ++h) error = std::max(error, std::abs(got[h] - predicted[h]));
    }
    if (!rounded) return untold("lse is that of neither sum");
    n_.proposed.lse_from_rounded_p = *rounded ? 1 : 0;
    const bool says = on_.declared().lse_from_rounded_p != 0;
    add("lse_from_rounded_p", *rounded ? "1" : "0", declared,
        says == *rounded ? comparison::equal
        : says           ? comparison::coarser
                         : comparison::finer,
        "lse against the sums of exact and of rounded weights");
    const bool usual = error <= 0x1p-22 + 0x1p-22;  // and the roundings of a number below 2
    if (usual) n_.proposed.log_abs_error = 0;
    add("log_abs_error", usual ? "at most 2^-22" : fmt::format("{:.2g}", error),
        declared_error(on_.declared().log_abs_error), usual ? comparison::equal : comparison::finer, "the same");
  }

  double q_at(std::int64_t h, std::int64_t c) const {
    if (c > 1) return 0;
    const double step = on_.type() == fp32 ? 0x1p-23 * 12345 : ulp_of(1, on_.type());
    const double steps = static_cast<double>(c == 0 ? 2 * h + 1 : 2 * ((h * 7 + 3) % 32) + 1);
    return round_to((1 + std::fmod(steps * step * (on_.type() == fp16 ? 13 : 1), 1.0)) * (c == 0 ? 8 : 2), on_.type());
  }

  // One key: lse is its score. Products of q and k with all of their bits, and a scale that is no power of two.
  void probe_scores() {
    const double scale = 0.05, other = round_to(1.0 + 0x1.5p-1 + 0x1.2346p-9, on_.type());
    const auto k_at = [&](std::int64_t c) { return c == 0 ? other : c == 1 ? 1.0 : 0.0; };
    const auto seen = on_.run({1,
                               scale,
                               [&](std::int64_t h, std::int64_t c) { return q_at(h, c); },
                               [&](std::int64_t, std::int64_t c) { return k_at(c); },
                               {}});
    if (seen.lse.empty()) return scores_untold("no lse is emitted");
    const double to_base2 = std::log2(std::exp(1.0));
    const auto matches = [&](const auto& score_of) {
      std::vector<double> predicted, tolerance;
      for (std::int64_t h = 0; h < on_.heads(); ++h) {
        predicted.push_back(score_of(h));
        tolerance.push_back(std::abs(predicted.back()) * 0x1p-20);
      }
      return explains(seen.lse, predicted, tolerance);
    };
    const auto dot = [&](std::int64_t h, const auto& on_q, const auto& on_k) {
      return on_q(q_at(h, 0)) * on_k(k_at(0)) + on_q(q_at(h, 1)) * on_k(k_at(1));
    };
    const auto same = [](double x) { return x; };
    if (matches([&](std::int64_t h) { return scale * dot(h, same, same); }))
      return scores_are({{on_.type()}}, 0, {{fp32}}, "scores of single keys are exact");
    for (const auto& r : roundings) {
      if (r.to == fp32) continue;
      const auto times = [&](double factor) { return [&r, factor](double x) { return r(x * factor) / factor; }; };
      if (matches([&](std::int64_t h) { return r(scale * dot(h, same, same)); }) ||
          matches([&](std::int64_t h) { return scale * r(dot(h, same, same)); }) ||
          matches([&](std::int64_t h) { return r(scale * to_base2 * dot(h, same, same)) / to_base2; }))
        return scores_are({{on_.type()}}, 0, r, "scores of single keys are rounded");
      if (matches([&](std::int64_t h) { return scale * dot(h, times(scale), same); }) ||
          matches([&](std::int64_t h) { return scale * dot(h, times(scale * to_base2), same); }))
        return scores_are(r, 1, {{fp32}}, "q is multiplied by the scale and rounded");
      if (matches([&](std::int64_t h) { return scale * dot(h, r, r); }))
        return scores_are(r, 2, {{fp32}}, "q and k are rounded");
    }
    scores_untold("no single rounding explains the scores");
  }

  void scores_untold(const char* why) {
    format("operand", &numerics::operand, truncates_operand, std::nullopt, why);
    format("score_store", &numerics::score_store, truncates_score, std::nullopt, why);
  }

  void scores_are(rounding operand, std::uint8_t rounded, rounding store, const char* how) {
    const std::uint8_t says = on_.declared().rounded_operands;
    if (rounded == 0 && says == 0) operand.to = on_.declared().operand;
    format("operand", &numerics::operand, truncates_operand, operand, how);
    n_.proposed.rounded_operands = rounded;
    add("rounded_operands", std::to_string(rounded), std::to_string(says),
        says == rounded  ? comparison::equal
        : says > rounded ? comparison::coarser
                         : comparison::finer,
        how);
    format("score_store", &numerics::score_store, truncates_score, store, how);
  }

  // 2^e + 1 - 2^e in channels of one product: the largest e at which 1 is left, the fewest over places.
  void probe_score_sums() {
    const std::int64_t last = on_.channels() - 1;
    const std::array<std::array<std::int64_t, 3>, 5> places = {
        {{0, 1, 2}, {0, 8, 16}, {0, 1, last}, {0, last / 2, last}, {3, 20, 35}}};
    int bits = most_exponent;
    for (const auto& at : places)
      for (int from = 1; from <= most_exponent; from += static_cast<int>(on_.heads())) {
        const auto exponent = [&](std::int64_t h) { return from + static_cast<int>(h); };
        const auto seen =
            on_.run({1,
                     0.125,
                     [&](std::int64_t h, std::int64_t c) {
                       if (exponent(h) > most_exponent) return 0.0;
                       const double large = std::ldexp(1.0, exponent(h) - 12);
                       return c == at[0] ? large : c == at[1] ? 1.0 : c == at[2] ? -large : 0.0;
                     },
                     [&](std::int64_t, std::int64_t c) { return c == at[0] || c == at[2] ? 0x1p12 : 1.0; },
                     {}});
        if (seen.lse.empty()) return format("score_acc", &numerics::score_acc, 0, std::nullopt, "no lse is emitted");
        for (std::int64_t h = 0; h < on_.heads() && exponent(h) <= most_exponent; ++h)
          if (std::abs(seen.lse[static_cast<std::size_t>(h)] - 0.125) > 0.01) bits = std::min(bits, exponent(h) - 1);
      }
    format("score_acc", &numerics::score_acc, 0, rounding{accumulator_of_bits(bits)},
           fmt::format("1 is kept beside 2^{} in the sum of products", bits));
  }

  // The same in the weighted sum of values, all weights 1.
  int bits_kept(std::int64_t large, std::int64_t small, std::int64_t minus) {
    constexpr double one = 0x1p-9;  // so that 2^24 times as much is a number of fp16
    const auto exponent = [](std::int64_t c) { return static_cast<int>(c % most_exponent) + 1; };
    const auto seen = on_.run({on_.most_keys(), 0.125, {}, {}, [&](std::int64_t j, std::int64_t c) {
                                 const double x = std::ldexp(one, exponent(c));
                                 return j == large ? x : j == small ? one : j == minus ? -x : 0.0;
                               }});
    const double want = one / static_cast<double>(on_.most_keys());
    int bits = most_exponent;
    for (std::int64_t c = 0; c < on_.channels(); ++c)
      if (std::abs(seen.out[0][static_cast<std::size_t>(c)] - want) > 0.1 * want)
        bits = std::min(bits, exponent(c) - 1);
    return bits;
  }

  void probe_output_sums() {
    const std::int64_t b = on_.block(), n = on_.most_keys();
    const int inside = std::min({bits_kept(0, 1, 2), bits_kept(0, b / 2, b - 1), bits_kept(n - b, n - b / 2, n - 1)});
    const int across =
        std::min({bits_kept(0, 1, n - 1), bits_kept(0, b + 1, n - b - 1), bits_kept(b / 2, n / 2 + 1, n - 1)});
    format("pv_acc", &numerics::pv_acc, 0, rounding{accumulator_of_bits(inside)},
           fmt::format("1 is kept beside 2^{} in the sum of a block's values", inside));
    const dtype partial = accumulator_of_bits(across);
    const bool coarser = unit_roundoff(partial) > unit_roundoff(accumulator_of_bits(inside));
    format("partial_store", &numerics::partial_store, truncates_partial, rounding{coarser ? partial : fp32, false},
           fmt::format("1 is kept beside 2^{} across blocks{}", across,
                       coarser ? "; whether to nearest or truncated is not told apart" : ""));
  }

  void probe_values() {
    if (on_.type() != fp32)
      return format("v_operand", &numerics::v_operand, truncates_v, rounding{on_.type()},
                    "16-bit values are operands as stored");
    const auto value = [](std::int64_t c) { return 1 + static_cast<double>(2 * c + 1) * 0x1p-20; };
    const auto seen = on_.run({1, 0.125, {}, {}, [&](std::int64_t, std::int64_t c) { return value(c); }});
    for (const auto& r : roundings) {
      std::vector<double> predicted, tolerance(seen.out[0].size(), 0x1p-22);
      for (std::size_t c = 0; c < seen.out[0].size(); ++c) predicted.push_back(r(value(static_cast<std::int64_t>(c))));
      if (explains(seen.out[0], predicted, tolerance))
        return format("v_operand", &numerics::v_operand, truncates_v, r, "one value of 24 bits");
    }
    format("v_operand", &numerics::v_operand, truncates_v, std::nullopt, "no rounding explains a single value");
  }

  probe_session& on_;
  probed_numerics n_;
};

}  // namespace

std::string_view name(comparison c) {
  switch (c) {
    case comparison::equal:
      return "equal";
    case comparison::coarser:
      return "coarser than seen";
    case comparison::finer:
      return "finer than seen";
    case comparison::untold:
      break;
  }
  return "not told apart";
}

probed_numerics probe_numerics(probe_session& session) { return prober(session).result(); }

std::string c_initialiser(const numerics& n) {
  const auto type = [](dtype t) { return fmt::format("{{{}, {}, {}}}", t.code, t.bits, t.lanes); };
  std::string text = "(msabench_numerics){\n    .struct_size = sizeof(msabench_numerics),\n";
  const auto line = [&](std::string_view field, const std::string& value, std::string_view note = "") {
    text += fmt::format("    .{} = {},{}{}\n", field, value, note.empty() ? "" : "  /* ",
                        note.empty() ? "" : fmt::format("{} */", note));
  };
  line("operand", type(n.operand), name(n.operand));
  line("v_operand", type(n.v_operand), name(n.v_operand));
  line("score_acc", type(n.score_acc), name(n.score_acc));
  line("score_store", type(n.score_store), name(n.score_store));
  line("p_operand", type(n.p_operand), name(n.p_operand));
  line("pv_acc", type(n.pv_acc), name(n.pv_acc));
  line("partial_store", type(n.partial_store), name(n.partial_store));
  line("out_store", type(n.out_store), name(n.out_store));
  line("ds_operand", type(n.ds_operand), name(n.ds_operand));
  line("rounded_operands", std::to_string(n.rounded_operands));
  line("lse_from_rounded_p", std::to_string(n.lse_from_rounded_p));
  line("truncated", std::to_string(n.truncated));
  line("chain_score", std::to_string(n.chain_score));
  line("chain_out", std::to_string(n.chain_out));
  line("chain_row_sum", std::to_string(n.chain_row_sum));
  line("exp_rel_error", fmt::format("{:.9e}f", n.exp_rel_error));
  line("log_abs_error", fmt::format("{:.9e}f", n.log_abs_error));
  return text + "}";
}

}  // namespace msabench
