// SPDX-License-Identifier: Apache-2.0
#include "tests/core/work_brute.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace msabench::brute {

namespace {

using std::int64_t;

int64_t bytes(const dtype& type) { return type.bits / 8; }

// Calls f(sequence, row of the batch, position) for every row.
void for_rows(const setting& s, const std::function<void(int64_t, int64_t, int64_t)>& f) {
  int64_t row = 0;
  for (std::size_t b = 0; b < s.batch.size(); ++b)
    for (int64_t i = 0; i < s.batch[b].q_len; ++i, ++row)
      f(static_cast<int64_t>(b), row, s.batch[b].kv_len - s.batch[b].q_len + i);
}

int64_t key_id(int64_t sequence, int64_t key, int64_t head = 0) { return (sequence * 4096 + key) * 64 + head; }

struct pass {
  const setting& s;
  const problem& p = s.p;
  ledger l{};
  counted out{};

  // Scopes in which nothing is kept beyond one token, or one token and head.
  static int64_t of(int64_t row, int64_t head = 0) { return row * 64 + head; }

  void read_heads(slot where, int64_t row, int64_t heads, int64_t size) {
    for (int64_t h = 0; h < heads; ++h) l.read(where, row * 64 + h, size, of(row));
  }
  void write_heads(slot where, int64_t row, int64_t heads, int64_t size) {
    for (int64_t h = 0; h < heads; ++h) l.write(where, row * 64 + h, size);
  }
  void read_query(int64_t row) {
    read_heads(slot::q, row, p.hq, p.d * bytes(p.q));
    if (p.q == e4m3) read_heads(slot::q_scale, row, p.hq, 4);
  }
  void read_index_query(int64_t row, int64_t head) {
    l.read(slot::q_idx, row * 64 + head, p.di * bytes(p.q_idx), of(row));
    if (p.idx_scale != 0) l.read(slot::q_idx_scale, row * 64 + head, 4, of(row));
  }
  void read_index_key(int64_t b, int64_t key, int64_t scope) {
    l.read(slot::k_idx, key_id(b, key), p.di * bytes(p.k_idx), scope);
    if (p.idx_scale == 2) l.read(slot::k_idx_scale, key_id(b, key), 4, scope);
    if (p.idx_scale == 1) tensor_scale(slot::k_idx_scale);
  }
  void tensor_scale(slot where) { l.read(where, 0, 4, 0); }
  void read_key(slot where, slot scale, int64_t b, int64_t key, int64_t head, int64_t row) {
    l.read(where, key_id(b, key, head), p.d * bytes(p.kv), of(row));
    if (p.kv_scale == 2) l.read(scale, key_id(b, key, head), 4, of(row));
    if (p.kv_scale == 1) tensor_scale(scale);
  }

  void score() {
    for_rows(s, [&](int64_t b, int64_t row, int64_t pos) {
      for (int64_t h = 0; h < p.hi; ++h) {
        if (pos >= 0) read_index_query(row, h);
        for (int64_t j = 0; j <= pos; ++j) {
          read_index_key(b, j, of(row));
          out.flops += 2 * p.di;
        }
      }
    });
  }
  void for_scores(const std::function<void(int64_t)>& f) {
    for_rows(s, [&](int64_t, int64_t row, int64_t pos) {
      for (int64_t h = 0; h < p.hi; ++h)
        for (int64_t j = 0; j <= pos; j += p.block) f((row * 64 + h) * 4096 + j);
    });
  }
  void write_ids() {
    for_rows(s, [&](int64_t, int64_t row, int64_t) { write_heads(slot::ids, row, p.hkv, 4 * p.topk); });
  }
  void index() {
    score();
    for_scores([&](int64_t) { l.scratch(4), l.scratch(4), ++out.ranked; });
  }
  std::vector<int64_t> keys(bool selected, int64_t row, int64_t head, int64_t pos) const {
    if (selected) return s.selected(row, head, pos);
    std::vector<int64_t> all(static_cast<std::size_t>(std::max<int64_t>(0, pos + 1)));
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  void attend(bool selected) {
    for_rows(s, [&](int64_t b, int64_t row, int64_t pos) {
      if (pos >= 0) read_query(row);
      for (int64_t r = 0; r < p.hkv; ++r)
        for (const int64_t j : keys(selected, row, r, pos)) {
          read_key(slot::k, slot::k_scale, b, j, r, row);
          read_key(slot::v, slot::v_scale, b, j, r, row);
          for (int64_t g = 0; g < p.hq / p.hkv; ++g) out.flops += 2 * p.d + 2 * p.d;
        }
      write_heads(slot::out, row, p.hq, p.d * bytes(p.out));
      if (s.asks(slot::lse)) write_heads(slot::lse, row, p.hq, 4);
    });
  }
  void read_ids() {
    for_rows(s, [&](int64_t, int64_t row, int64_t pos) {
      if (pos >= 0) read_heads(slot::ids, row, p.hkv, 4 * p.topk);
    });
  }
  // dS = dP and Q K^T again, dQ, dK, dV: five products.
  void backward(bool selected) {
    const int64_t grad = bytes(p.grad);
    for_rows(s, [&](int64_t b, int64_t row, int64_t pos) {
      if (pos >= 0) {
        read_query(row);
        read_heads(slot::out, row, p.hq, p.d * bytes(p.out));
        read_heads(slot::d_out, row, p.hq, p.d * bytes(p.out));
        read_heads(slot::lse, row, p.hq, 4);
      }
      for (int64_t r = 0; r < p.hkv; ++r)
        for (const int64_t j : keys(selected, row, r, pos)) {
          read_key(slot::k, slot::k_scale, b, j, r, row);
          read_key(slot::v, slot::v_scale, b, j, r, row);
          for (int64_t g = 0; g < p.hq / p.hkv; ++g) out.flops += 5 * 2 * p.d;
          for (int i = 0; i < 2; ++i) l.scratch(p.d * grad), l.scratch(p.d * grad);  // dk and dv, in and out
        }
      write_heads(slot::dq, row, p.hq, p.d * grad);
    });
    for_keys([&](int64_t b, int64_t j) {
      for (int64_t r = 0; r < p.hkv; ++r) {
        l.write(slot::dk, key_id(b, j, r), p.d * grad);
        l.write(slot::dv, key_id(b, j, r), p.d * grad);
      }
    });
  }
  void for_keys(const std::function<void(int64_t, int64_t)>& f) {
    for (std::size_t b = 0; b < s.batch.size(); ++b)
      for (int64_t j = 0; j < s.batch[b].kv_len; ++j) f(static_cast<int64_t>(b), j);
  }
  void kl() {
    const bool selected = p.kl_warm_up == 0;
    const int64_t grad = bytes(p.grad);
    for_rows(s, [&](int64_t b, int64_t row, int64_t pos) {
      if (pos >= 0) read_query(row);
      std::set<int64_t> updated;
      for (int64_t r = 0; r < p.hkv; ++r) {
        if (pos >= 0) read_index_query(row, r);
        for (const int64_t j : keys(selected, row, r, pos)) {
          read_key(slot::k, slot::k_scale, b, j, r, row);
          read_index_key(b, j, selected ? of(row, r) : of(row));
          out.flops += 2 * p.d * (p.hq / p.hkv);  // teacher
          out.flops += 3 * 2 * p.di;              // student, dq_idx, dk_idx
          if (selected || updated.insert(j).second) l.scratch(p.di * grad), l.scratch(p.di * grad);
        }
      }
      write_heads(slot::dq_idx, row, p.hi, p.di * grad);
      if (s.asks(slot::dq)) write_heads(slot::dq, row, p.hq, p.d * grad);
    });
    for_keys([&](int64_t b, int64_t j) {
      l.write(slot::dk_idx, key_id(b, j), p.di * grad);
      for (int64_t r = 0; r < p.hkv && s.asks(slot::dk); ++r) l.write(slot::dk, key_id(b, j, r), p.d * grad);
    });
    l.write(slot::loss, 0, 8);
  }
  void norm_rope() {
    for_rows(s, [&](int64_t, int64_t row, int64_t pos) {
      const auto heads = [&](slot from, slot to, slot weight, int64_t n, int64_t dim, dtype type) {
        for (int64_t h = 0; h < n; ++h) {
          l.write(to, row * 64 + h, dim * bytes(type));
          if (pos < 0) continue;
          l.read(from, row * 64 + h, dim * bytes(type), of(row));
          l.read(weight, 0, dim * bytes(p.q), of(row));
          l.read(slot::cos_sin, pos, 4 * p.rope_dims, of(row));
          for (int64_t c = 0; c < dim; ++c) out.flops += 2 + 3;  // x^2 into the sum; 1 + w, times x, times the root
          for (int64_t c = 0; c < p.rope_dims; ++c) out.flops += 3;
        }
      };
      heads(slot::q, slot::q_rope, slot::q_norm, p.hq, p.d, p.q);
      heads(slot::k, slot::k_rope, slot::k_norm, p.hkv, p.d, p.kv);
      heads(slot::q_idx, slot::q_idx_rope, slot::q_idx_norm, p.hi, p.di, p.q_idx);
      heads(slot::k_idx, slot::k_idx_rope, slot::k_idx_norm, 1, p.di, p.k_idx);
    });
  }
  void combine() {
    for_rows(s, [&](int64_t, int64_t row, int64_t) {
      for (int64_t h = 0; h < p.hq; ++h) {
        for (int64_t part = 0; part < p.splits; ++part) {
          l.read(slot::partial_out, (part * 4096 + row) * 64 + h, p.d * bytes(p.partial), of(row));
          l.read(slot::partial_lse, (part * 4096 + row) * 64 + h, 4, of(row));
          out.flops += 2 * p.d;
        }
        if (p.splits > 0) out.flops += p.d;
      }
      write_heads(slot::out, row, p.hq, p.d * bytes(p.out));
      write_heads(slot::lse, row, p.hq, 4);
    });
  }

  counted done() {
    out.compulsory = l.compulsory();
    out.algorithmic = l.algorithmic();
    return out;
  }
};

// (0 .. own) minus these may be chosen.
bool forced(const problem& p, int64_t block, int64_t own) {
  return block < p.init_blocks || block > own - p.local_blocks;
}

}  // namespace

void ledger::read(slot s, int64_t vector, int64_t size, int64_t scope) {
  if (read_.emplace(s, vector).second) compulsory_ += size;
  if (in_scope_.emplace(s, vector, scope).second) algorithmic_ += size;
}

void ledger::write(slot s, int64_t vector, int64_t size) {
  if (!written_.emplace(s, vector).second) return;
  compulsory_ += size;
  algorithmic_ += size;
}

int64_t setting::rows() const {
  int64_t n = 0;
  for (const auto& b : batch) n += b.q_len;
  return n;
}

bool setting::asks(slot s) const { return std::find(outputs.begin(), outputs.end(), s) != outputs.end(); }

std::vector<int64_t> setting::selected(int64_t row, int64_t head, int64_t pos) const {
  std::vector<int64_t> keys;
  for (int64_t i = 0; i < p.topk; ++i) {
    const int64_t id = ids[(row * p.hkv + head) * p.topk + i];
    for (int64_t j = id * p.block; id >= 0 && j < (id + 1) * p.block && j <= pos; ++j) keys.push_back(j);
  }
  return keys;
}

counted count(const setting& s) {
  pass run{s};
  switch (s.p.operation) {
    case op::qk_norm_rope:
      run.norm_rope();
      break;
    case op::score:
      run.score();
      run.for_scores([&](int64_t at) { run.l.write(slot::scores, at, 4); });
      break;
    case op::select:
      run.for_scores([&](int64_t at) { run.l.read(slot::scores, at, 4, at), ++run.out.ranked; });
      run.write_ids();
      break;
    case op::index:
      run.index();
      run.write_ids();
      if (s.asks(slot::lse_idx))
        for_rows(s, [&](int64_t, int64_t row, int64_t) { run.write_heads(slot::lse_idx, row, s.p.hkv, 4); });
      break;
    case op::attend:
      run.read_ids();
      run.attend(true);
      break;
    case op::dense:
      run.attend(false);
      break;
    case op::msa:
      run.index();
      if (s.asks(slot::ids)) {
        run.write_ids();
      } else {
        for_rows(s, [&](int64_t, int64_t, int64_t) { run.l.scratch(4 * s.p.topk * s.p.hkv); });
      }
      for_rows(s, [&](int64_t, int64_t, int64_t pos) { run.l.scratch(pos < 0 ? 0 : 4 * s.p.topk * s.p.hkv); });
      run.attend(true);
      break;
    case op::combine:
      run.combine();
      break;
    case op::attend_backward:
      run.read_ids();
      run.backward(true);
      break;
    case op::dense_backward:
      run.backward(false);
      break;
    case op::kl:
      if (s.p.kl_warm_up == 0) run.read_ids();
      run.kl();
      break;
    default:
      std::abort();
  }
  counted out = run.done();
  // Scores that are an output as well as scratch: written once in either role.
  if (s.p.operation == op::msa && s.asks(slot::scores)) out.compulsory += 4 * out.ranked;
  return out;
}

counted count_least(const setting& s) {
  const problem& p = s.p;
  pass run{s};
  int64_t contested = 0;
  for_rows(s, [&](int64_t b, int64_t row, int64_t pos) {
    const int64_t own = pos < 0 ? -1 : pos / p.block;
    if (own + 1 <= p.topk) return;
    for (int64_t h = 0; h < p.hi; ++h) {
      if (p.operation != op::select) run.read_index_query(row, h);
      for (int64_t block = 0; block <= own; ++block) {
        if (forced(p, block, own)) continue;
        ++contested;
        for (int64_t j = block * p.block; p.operation != op::select && j <= pos && j < (block + 1) * p.block; ++j) {
          run.l.read(slot::k_idx, key_id(b, j), p.di * bytes(p.k_idx) + (p.idx_scale == 2 ? 4 : 0), 0);
          run.out.flops += 2 * p.di;
        }
      }
    }
  });
  if (p.operation == op::select) run.l.read(slot::scores, 0, 4 * contested, 0);
  if (p.operation != op::msa || s.asks(slot::ids)) run.write_ids();
  if (p.operation == op::msa) run.attend(true);
  return run.done();
}

counted count(const vision_setting& s) {
  const problem& p = s.p;
  const bool rotates = p.operation != op::vit_attend, attends = p.operation != op::rope3d;
  const auto asks = [&](slot w) { return std::find(s.outputs.begin(), s.outputs.end(), w) != s.outputs.end(); };
  // Segment of each patch.
  std::vector<int64_t> segment;
  int64_t segments = 0;
  for (const auto& g : s.items)
    for (int64_t t = 0; t < g.t; ++t) {
      if (p.vit_window == 0 ? t == 0 : t % p.vit_window == 0) ++segments;
      segment.insert(segment.end(), static_cast<std::size_t>(g.h * g.w), segments);
    }
  ledger l;
  counted out;
  const auto n = static_cast<int64_t>(segment.size());
  const int64_t rotated = p.d / 3 / 2 * 2 * 3;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t h = 0; h < p.hq; ++h) {
      const int64_t at = i * 64 + h, q = p.d * bytes(p.q), k = p.d * bytes(p.kv);
      l.read(slot::q, at, q, i);
      if (rotates) {
        l.read(slot::k, at, k, i);
        out.flops += 2 * 3 * rotated;
        const auto stage = [&](slot where, int64_t size) {
          if (!attends || asks(where)) {
            l.write(where, at, size);
          } else {
            l.scratch(size);
          }
        };
        stage(slot::q_rope, q);
        stage(slot::k_rope, k);
        if (!attends || (asks(slot::positions) && attends)) l.write(slot::positions, i, 12);
      }
      if (!attends) continue;
      if (rotates) l.scratch(q);  // rotated, read again
      for (int64_t j = 0; j < n; ++j) {
        if (segment[i] != segment[j]) continue;
        // Of vit3d the straightforward kernel reads the rotated keys, which are no input.
        if (rotates) {
          l.scratch(k);
        } else {
          l.read(slot::k, j * 64 + h, k, i);
        }
        l.read(slot::v, j * 64 + h, k, i);
        out.flops += 4 * p.d;
      }
      l.write(slot::out, at, p.d * bytes(p.out));
      if (asks(slot::lse)) l.write(slot::lse, at, 4);
    }
  out.compulsory = l.compulsory();
  out.algorithmic = l.algorithmic();
  return out;
}

std::vector<std::int32_t> make_ids(const problem& p, std::span<const sequence> batch, habit how, bool heads_share,
                                   std::mt19937& rng) {
  std::vector<std::int32_t> ids;
  for (const auto& s : batch) {
    std::vector<std::map<int64_t, int64_t>> seen(static_cast<std::size_t>(p.hkv));  // keys of a block, by head
    for (int64_t i = 0; i < s.q_len; ++i)
      for (int64_t r = 0; r < p.hkv; ++r) {
        auto& mine = seen[heads_share ? 0 : static_cast<std::size_t>(r)];
        const int64_t pos = s.kv_len - s.q_len + i, own = pos < 0 ? -1 : pos / p.block;
        const auto visible = [&](int64_t b) { return std::min<int64_t>(p.block, pos + 1 - b * p.block); };
        const auto gain = [&](int64_t b) { return std::max<int64_t>(0, visible(b) - mine[b]); };
        std::vector<int64_t> row, rest;
        for (int64_t b = 0; b <= own; ++b) (forced(p, b, own) ? row : rest).push_back(b);
        std::shuffle(rest.begin(), rest.end(), rng);
        if (how != habit::random) {
          std::sort(rest.begin(), rest.end());
          std::stable_sort(rest.begin(), rest.end(), [&](int64_t a, int64_t b) {
            return how == habit::new_keys ? gain(a) > gain(b) : gain(a) < gain(b);
          });
        }
        while (static_cast<int64_t>(row.size()) < std::min<int64_t>(p.topk, own + 1)) {
          row.push_back(rest.front());
          rest.erase(rest.begin());
        }
        std::sort(row.begin(), row.end());
        for (const auto b : row) mine[b] = std::max(mine[b], visible(b));
        row.resize(static_cast<std::size_t>(p.topk), -1);
        ids.insert(ids.end(), row.begin(), row.end());
      }
  }
  return ids;
}

}  // namespace msabench::brute
