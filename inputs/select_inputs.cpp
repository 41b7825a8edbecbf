// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <vector>

#include "inputs/families/family.h"
#include "inputs/operators.h"
#include "inputs/selection.h"
#include "inputs/shuffle.h"

namespace msabench {

namespace {

class scores_filler {
 public:
  explicit scores_filler(const fill_job& job)
      : job_(job),
        scores_(job.input(slot::scores)),
        write_(select_variant_of(job.definition)),
        values_(name_without_seed(job.definition), "scores", job.definition.seed),
        order_(name_without_seed(job.definition), "scores_order", job.definition.seed),
        details_(name_without_seed(job.definition), "scores_detail", job.definition.seed) {}

  void fill(std::int64_t head, std::int64_t row) const {
    const auto& shape = scores_.desc.shape;
    const auto& strides = scores_.desc.strides;
    const std::int64_t width = shape[2];
    auto* const data = reinterpret_cast<float*>(scores_.region->data());
    const std::span<float> line(data + head * strides[0] + row * strides[1], static_cast<std::size_t>(width));
    const std::int64_t visible = job_.rows.rows()[static_cast<std::size_t>(row)].visible_blocks(job_.set.agreed.block);
    std::fill(line.begin() + visible, line.end(), -std::numeric_limits<float>::infinity());
    if (visible == 0) return;

    const auto first = static_cast<std::uint64_t>((head * shape[1] + row) * width);
    if (write_ == nullptr) {
      values_.fill_normal(line.data(), fp32, first, static_cast<std::uint64_t>(visible));
      return;
    }
    write_planned(head, row, line.first(static_cast<std::size_t>(visible)), first);
  }

 private:
  void write_planned(std::int64_t head, std::int64_t row, std::span<float> scores, std::uint64_t first) const {
    const problem& p = job_.set.agreed;
    const auto visible = static_cast<std::int64_t>(scores.size());
    std::vector<std::int32_t> order, forced;
    for (std::int64_t b = 0; b < visible; ++b)
      (is_forced(b, visible - 1, p.local_blocks, p.init_blocks) ? forced : order)
          .push_back(static_cast<std::int32_t>(b));
    std::vector<std::uint32_t> words(scores.size());
    // Heads with disjoint winners need an order in common.
    const bool common = job_.definition.variant == "heads";
    order_.fill_words(words.data(), common ? first % static_cast<std::uint64_t>(plane()) : first, words.size());
    shuffle(std::span(order), [&](std::int64_t i) { return words[static_cast<std::size_t>(i)]; });
    details_.fill_words(words.data(), first, words.size());
    const std::int64_t places = p.topk - static_cast<std::int64_t>(forced.size());
    score_row out{row,
                  head,
                  p.hkv,
                  scores,
                  order,
                  forced,
                  std::clamp<std::int64_t>(places, 0, static_cast<std::int64_t>(order.size())),
                  words};
    write_(out);
  }

  std::int64_t plane() const { return scores_.desc.shape[1] * scores_.desc.shape[2]; }

  const fill_job& job_;
  buffer& scores_;
  write_scores write_;
  stream values_, order_, details_;
};

}  // namespace

void fill_select(const fill_job& job) {
  buffer& scores = job.input(slot::scores);
  const scores_filler filler(job);
  if (!scores.region) return;
  prepare_whole(scores, job.definition.seed);
  const std::int64_t heads = scores.desc.shape[0], rows = job.rows.total_q();
  const bool large = scores.region->bytes() > small_bytes;
#pragma omp parallel for schedule(static) collapse(2) if (large)
  for (std::int64_t head = 0; head < heads; ++head)
    for (std::int64_t row = 0; row < rows; ++row) filler.fill(head, row);
}

}  // namespace msabench
