// SPDX-License-Identifier: Apache-2.0
#include "conformance/shrink.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "conformance/case_source.h"

namespace msabench {

namespace {

using cases = std::vector<case_spec>;

// Adds what `change` makes of the case, if there is a change and the result is a case.
template <class Change>
void add(cases& to, const case_spec& c, Change change) {
  case_spec changed = c;
  change(changed);
  if (changed != c && has_name(changed) && is_quick(changed)) to.push_back(std::move(changed));
}

// Values below `value` and at least `least`: the least one, the half, one less.
std::vector<std::int64_t> below(std::int64_t value, std::int64_t least) {
  std::vector<std::int64_t> smaller;
  for (const std::int64_t v : {least, value / 2, value - 1})
    if (v >= least && v < value && std::ranges::find(smaller, v) == smaller.end()) smaller.push_back(v);
  return smaller;
}

// Lists without one of their halves, then without one of their items.
template <class T>
std::vector<std::vector<T>> shorter(const std::vector<T>& list) {
  std::vector<std::vector<T>> all;
  const auto without = [&](std::size_t first, std::size_t count) {
    std::vector<T> rest(list);
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(first),
               rest.begin() + static_cast<std::ptrdiff_t>(first + count));
    if (!rest.empty()) all.push_back(std::move(rest));
  };
  const std::size_t half = list.size() / 2;
  if (half > 1) {
    without(half, list.size() - half);
    without(0, half);
  }
  for (std::size_t i = 0; i < list.size(); ++i) without(i, 1);
  return all;
}

void add_batch(cases& to, const case_spec& c, const std::vector<sequence>& batch) {
  if (batch.size() == 1 && (batch[0].q_len == 0 || batch[0].kv_len == 0)) return;
  add(to, c, [&](case_spec& s) { s.lengths = lengths_of(batch); });
}

void add_smaller_batches(cases& to, const case_spec& c) {
  const std::vector<sequence> batch = sequences(c);
  for (const auto& rest : shorter(batch)) add_batch(to, c, rest);
  const auto with = [&](std::size_t i, sequence s) {
    auto changed = batch;
    changed[i] = s;
    add_batch(to, c, changed);
  };
  constexpr std::size_t most_changed = 16;  // of longer batches the first ones: each step is a run
  for (std::size_t i = 0; i < std::min(batch.size(), most_changed); ++i) {
    const auto [q, n] = batch[i];
    const std::int64_t padding = std::max<std::int64_t>(0, q - n);
    for (const std::int64_t fewer : below(n, 0)) with(i, {std::min(q, fewer + padding), fewer});
    for (const std::int64_t fewer : below(q, std::min<std::int64_t>(q, 1))) with(i, {fewer, n});
    // The same rows without what is before or behind a border of blocks.
    if (const std::int64_t past = n % c.shape.block; past > 1) with(i, {std::min(q, n - past + 1), n - past + 1});
  }
}

void add_smaller_grids(cases& to, const case_spec& c) {
  const auto with = [&](std::vector<grid> grids) {
    add(to, c, [&](case_spec& s) { s.lengths.grids = std::move(grids); });
  };
  const std::vector<grid>& all = c.lengths.grids;
  for (const auto& rest : shorter(all)) with(rest);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto change = [&](grid g) {
      auto changed = all;
      changed[i] = g;
      with(std::move(changed));
    };
    const grid& g = all[i];
    for (const std::int64_t t : below(g.t, 1)) change({t, g.h, g.w});
    for (const std::int64_t h : below(g.h / 2, 1)) change({g.t, 2 * h, g.w});
    for (const std::int64_t w : below(g.w / 2, 1)) change({g.t, g.h, 2 * w});
  }
}

// Each option back to its default; then those that remain smaller.
void add_fewer_options(cases& to, const case_spec& c) {
  constexpr case_options none;
  const auto without = [&](auto member) { add(to, c, [&](case_spec& s) { s.options.*member = none.*member; }); };
  without(&case_options::rep);
  without(&case_options::slack);
  without(&case_options::stride);
  without(&case_options::pool_pages);
  without(&case_options::page_size);
  without(&case_options::softmax_scale);
  without(&case_options::rope_dims);
  without(&case_options::window);
  without(&case_options::warm);
  without(&case_options::kl_coeff);
  without(&case_options::fp8);
  without(&case_options::fp8_index);
  without(&case_options::lenient);
  without(&case_options::short_rows);
  without(&case_options::part16);
  without(&case_options::grad16);
  without(&case_options::splits);
  for (const std::int64_t n : below(c.options.splits, 1))
    add(to, c, [&](case_spec& s) { s.options.splits = static_cast<std::int32_t>(n); });
  if (c.options.fp8 == scale_form::token) add(to, c, [](case_spec& s) { s.options.fp8 = scale_form::tensor; });
  if (c.options.fp8_index == scale_form::token)
    add(to, c, [](case_spec& s) { s.options.fp8_index = scale_form::tensor; });
}

void add_fewer_heads(cases& to, const case_spec& c) {
  const std::int32_t group = c.shape.hq / c.shape.hkv;
  const auto heads = [&](std::int64_t kv, std::int64_t per_group) {
    add(to, c, [&](case_spec& s) {
      s.shape.hkv = s.shape.hi = static_cast<std::int32_t>(kv);
      s.shape.hq = static_cast<std::int32_t>(kv * per_group);
    });
  };
  for (const std::int64_t kv : below(c.shape.hkv, 1)) heads(kv, group);
  for (const std::int64_t g : below(group, 1)) heads(c.shape.hkv, g);
}

void add_smaller_shapes(cases& to, const case_spec& c) {
  add_fewer_heads(to, c);
  const shape_spec& now = c.shape;
  const auto change = [&](auto member, std::int64_t value) {
    add(to, c, [&](case_spec& s) { s.shape.*member = static_cast<std::int32_t>(value); });
  };
  for (const std::int32_t d : {16, 32, 64, now.d / 2, 1}) {
    if (d < 1 || d >= now.d) continue;
    add(to, c, [&](case_spec& s) {
      s.shape.d = d;
      if (now.di == now.d) s.shape.di = d;
    });
  }
  if (now.di > now.d) change(&shape_spec::di, now.d);
  for (const std::int64_t di : below(now.di, 1)) change(&shape_spec::di, di);
  for (const std::int64_t n : below(now.init_blocks, 0)) change(&shape_spec::init_blocks, n);
  for (const std::int64_t n : below(now.local_blocks, 0)) change(&shape_spec::local_blocks, n);
  for (const std::int64_t n : below(now.topk, 1)) change(&shape_spec::topk, n);
  for (const std::int32_t b : {16, now.block / 2, 1})
    if (b >= 1 && b < now.block) change(&shape_spec::block, b);
}

void add_plainer_storage(cases& to, const case_spec& c) {
  if (c.layout == page_layout::fused) add(to, c, [](case_spec& s) { s.layout = page_layout::paged; });
  if (c.layout != page_layout::contiguous)
    add(to, c, [](case_spec& s) {
      s.layout = page_layout::contiguous;
      s.options.page_size = 0;
      s.options.pool_pages = 0;
    });
  if (c.type == fp16) add(to, c, [](case_spec& s) { s.type = bf16; });
  if (c.type != fp32) add(to, c, [](case_spec& s) { s.type = fp32; });
}

// The first variant of the family, then the families that the registry names before it.
void add_plainer_families(cases& to, const case_spec& c) {
  for (const auto& f : families()) {
    const bool same = f.name == c.family;
    if (!f.variants.empty())
      for (const auto variant : f.variants) {
        if (same && variant == c.variant) return;
        add(to, c, [&](case_spec& s) {
          s.family = f.name;
          s.variant = variant;
        });
      }
    if (same) return;
  }
}

}  // namespace

std::vector<case_spec> simpler_cases(const case_spec& c) {
  cases all;
  if (c.lengths.form == lengths_spec::kind::grids)
    add_smaller_grids(all, c);
  else
    add_smaller_batches(all, c);
  add_fewer_options(all, c);
  add_smaller_shapes(all, c);
  add_plainer_storage(all, c);
  add_plainer_families(all, c);
  if (c.seed != 0) add(all, c, [](case_spec& s) { s.seed = 0; });
  return all;
}

shrunk shrink(const case_spec& failing, const std::function<bool(const case_spec&)>& still_fails,
              const std::function<bool()>& may_go_on) {
  shrunk result{failing};
  std::set<std::string> tried = {name(failing)};
  while (true) {
    bool smaller = false;
    for (const auto& c : simpler_cases(result.smallest)) {
      if (!tried.insert(name(c)).second) continue;
      if (!may_go_on()) return result;
      ++result.tried;
      if (!still_fails(c)) continue;
      result.smallest = c;
      smaller = true;
      break;
    }
    if (smaller) continue;
    result.finished = true;
    return result;
  }
}

}  // namespace msabench
