// SPDX-License-Identifier: Apache-2.0
#include "judge/attend_naming.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <numeric>
#include <set>
#include <vector>

namespace msabench::judge {
namespace {

// A key or block that carries a channel alone.
struct carrier {
  std::int64_t block = 0;
  std::int64_t key = -1;  // -1: the whole block
  auto operator<=>(const carrier&) const = default;
};

std::string spelled(const carrier& c, std::int64_t block) {
  if (c.key < 0) return fmt::format("block {}", c.block);
  return fmt::format("key {} (block {}, offset {})", c.key, c.block, c.key - c.block * block);
}

// Keys that may explain a channel, and which channels each carries.
class key_set {
 public:
  // Only keys that carry one of `channels` are kept.
  key_set(std::int64_t block, std::vector<std::size_t> channels) : block_(block), channels_(std::move(channels)) {}

  void add(std::int64_t key, std::span<const double> v) {
    ++keys_in_[key / block_];
    std::set<std::size_t> carries;
    for (const auto c : channels_)
      if (v[c] != 0 && !std::isnan(v[c])) carries.insert(c);
    if (!carries.empty()) keys_.push_back({key, std::move(carries)});
  }

  // The one key, or all of one block's keys, that carry the channel; false if they are several or part of a block.
  bool only_carrier(std::size_t channel, carrier& found) const {
    std::int64_t count = 0, key = -1;
    std::set<std::int64_t> blocks;
    for (const auto& k : keys_)
      if (k.carries.contains(channel)) {
        ++count;
        key = k.key;
        blocks.insert(k.key / block_);
      }
    if (blocks.size() != 1) return false;
    const std::int64_t b = *blocks.begin();
    if (keys_in_.at(b) == count)
      found = {b, -1};
    else if (count == 1)
      found = {b, key};
    else
      return false;
    if (keys_in_.at(b) == 1) found.key = key;
    return true;
  }

  // Keys of a block that carry any channel: a key code marks those of one block only.
  std::size_t marked(std::int64_t block) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(keys_, [&](const auto& k) { return k.key / block_ == block; }));
  }

 private:
  struct entry {
    std::int64_t key;
    std::set<std::size_t> carries;
  };
  std::int64_t block_;
  std::vector<std::size_t> channels_;
  std::vector<entry> keys_;
  std::map<std::int64_t, std::int64_t> keys_in_;
};

key_set selected_keys(const reference::attend_inputs& in, const reference::attend_row& want) {
  std::vector<std::size_t> channels(static_cast<std::size_t>(in.p.d));
  std::iota(channels.begin(), channels.end(), std::size_t{0});
  key_set keys(in.p.block, std::move(channels));
  std::vector<double> v(static_cast<std::size_t>(in.p.d));
  for (const auto& k : reference::attended_keys(in, want.row, want.head)) {
    reference::value_of(in, want.row, want.head / std::max(1, in.p.group()), k.key, v);
    keys.add(k.key, v);
  }
  return keys;
}

// Keys that a fault may have brought in: visible ones of blocks that are not selected, and those past the row's
// position.
key_set other_keys(const reference::attend_inputs& in, const reference::row_place& place,
                   const reference::attend_row& want, const std::vector<std::size_t>& channels) {
  std::set<std::int64_t> selected;
  for (const auto& k : reference::attended_keys(in, want.row, want.head)) selected.insert(k.block);
  key_set keys(in.p.block, channels);
  if (channels.empty()) return keys;
  std::vector<double> v(static_cast<std::size_t>(in.p.d));
  for (std::int64_t key = 0; key < place.kv_len; ++key) {
    if (key <= place.position && selected.contains(key / in.p.block)) continue;
    reference::value_of(in, want.row, want.head / std::max(1, in.p.group()), key, v);
    keys.add(key, v);
  }
  return keys;
}

// Reads of another KV head shift every channel, which no key or block explains.
std::string name_wrong_head(const reference::attend_inputs& in, const reference::attend_row& want,
                            std::span<const double> got, std::span<const double> limit) {
  const auto keys = reference::attended_keys(in, want.row, want.head);
  const std::int64_t own = want.head / std::max(1, in.p.group());
  const auto d = static_cast<std::size_t>(in.p.d);
  std::vector<double> v(d), out(d);
  for (std::int64_t r = 0; r < in.p.hkv; ++r) {
    if (r == own) continue;
    std::ranges::fill(out, 0.0);
    for (const auto& k : keys) {
      reference::value_of(in, want.row, r, k.key, v);
      for (std::size_t c = 0; c < d; ++c) out[c] += k.weight * v[c];
    }
    bool same = true;
    // The limit belongs to the right value; the wrong one has its own size, hence the 1/64.
    for (std::size_t c = 0; c < d && same; ++c)
      same = std::abs(got[c] - out[c]) <= std::max(limit[c], std::abs(out[c]) / 64);
    if (same) return fmt::format("V of KV head {} instead of {}", r, own);
  }
  return {};
}

// Several keys of a block that has no other marked keys are that block.
void gather(std::set<carrier>& found, const key_set& keys) {
  std::map<std::int64_t, std::vector<carrier>> by_block;
  for (const auto& c : found)
    if (c.key >= 0) by_block[c.block].push_back(c);
  for (const auto& [block, members] : by_block)
    if (members.size() > 1 && members.size() == keys.marked(block)) {
      for (const auto& m : members) found.erase(m);
      found.insert({block, -1});
    }
}

void list(std::vector<std::string>& phrases, const std::set<carrier>& found, std::int64_t block,
          std::string_view what) {
  constexpr std::size_t most = 2;
  std::size_t listed = 0;
  for (const auto& c : found) {
    if (listed++ == most) {
      phrases.push_back(fmt::format("{} more {}", found.size() - most, what));
      return;
    }
    phrases.push_back(fmt::format("{} {}", spelled(c, block), what));
  }
}

}  // namespace

std::string name_code_fault(const reference::attend_inputs& in, const reference::row_place& place,
                            const reference::attend_row& want, std::span<const double> got,
                            std::span<const double> limit) {
  if (auto head = name_wrong_head(in, want, got, limit); !head.empty()) return head;

  const key_set selected = selected_keys(in, want);
  std::set<carrier> dropped, extra, twice;
  std::vector<std::size_t> unasked;
  for (std::size_t c = 0; c < got.size(); ++c) {
    const double share = want.out[c];
    if (std::abs(got[c] - share) <= limit[c] || std::isnan(got[c])) continue;
    carrier k;
    if (share == 0) {
      unasked.push_back(c);
    } else if (got[c] < share / 4) {
      if (selected.only_carrier(c, k)) dropped.insert(k);
    } else if (const double doubled = 2 * share / (1 + share); std::abs(got[c] - doubled) <= (doubled - share) / 8) {
      if (selected.only_carrier(c, k)) twice.insert(k);
    }
  }
  const auto others = other_keys(in, place, want, unasked);
  for (const auto c : unasked)
    if (carrier k; others.only_carrier(c, k)) extra.insert(k);
  gather(dropped, selected);
  gather(extra, others);
  gather(twice, selected);

  // A lost or an added key shifts the shares of all others, which may then look doubled.
  if (!dropped.empty() || !unasked.empty()) twice.clear();
  std::vector<std::string> phrases;
  list(phrases, dropped, in.p.block, "dropped");
  list(phrases, twice, in.p.block, "counted twice");
  std::set<carrier> later, unselected;
  for (const auto& k : extra) {
    const bool past = k.key >= 0 ? k.key > place.position : k.block * in.p.block > place.position;
    (past ? later : unselected).insert(k);
  }
  list(phrases, unselected, in.p.block, "attended though not selected");
  list(phrases, later, in.p.block, "attended though past the row's position");
  return fmt::format("{}", fmt::join(phrases, ", "));
}

}  // namespace msabench::judge
