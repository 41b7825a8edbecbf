// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include "core/error.h"
#include "judge/attend_expectation.h"
#include "judge/backward_expectation.h"
#include "judge/backward_samples.h"
#include "judge/combine_expectation.h"
#include "judge/index_expectation.h"
#include "judge/input.h"
#include "judge/judge.h"
#include "judge/kl_expectation.h"
#include "judge/kl_samples.h"
#include "judge/msa_expectation.h"
#include "judge/norm_rope_expectation.h"
#include "judge/rope3d_expectation.h"
#include "judge/score_expectation.h"
#include "judge/select_expectation.h"
#include "judge/vit3d_expectation.h"

namespace msabench::judge {

namespace {

std::int64_t rows_of(const subject& what) {
  const tensor_view cu_seqlens_q = input(what, slot::cu_seqlens_q);
  return cu_seqlens_q.int_at(cu_seqlens_q.desc.shape[0] - 1);
}

}  // namespace

subject subject_of(const case_spec& c, const problem& agreed, const std::optional<capability>& answered) {
  subject what;
  what.definition = c;
  what.agreed = agreed;
  if (answered) {
    what.delivers = answered->delivers;
    what.declared = answered->declared;
  }
  return what;
}

std::unique_ptr<expectation> expect(const subject& what, std::span<const std::int64_t> rows) {
  switch (what.agreed.operation) {
    case op::attend:
    case op::dense:
    case op::vit_attend:
      return std::make_unique<attend_expectation>(what, rows);
    case op::msa:
      return std::make_unique<msa_expectation>(what, rows);
    case op::select:
      return std::make_unique<select_expectation>(what, rows);
    case op::score:
      return std::make_unique<score_expectation>(what, rows);
    case op::index:
      return std::make_unique<index_expectation>(what, rows);
    case op::combine:
      return std::make_unique<combine_expectation>(what, rows);
    case op::qk_norm_rope:
      return std::make_unique<norm_rope_expectation>(what, rows);
    case op::attend_backward:
    case op::dense_backward:
      if (std::ssize(rows) < rows_of(what)) return std::make_unique<backward_samples>(what, rows);
      return std::make_unique<backward_expectation>(what);
    case op::vit3d:
      return std::make_unique<vit3d_expectation>(what, rows);
    case op::kl:
      if (std::ssize(rows) < rows_of(what)) return std::make_unique<kl_samples>(what, rows);
      return std::make_unique<kl_expectation>(what);
    case op::rope3d:
      return std::make_unique<rope3d_expectation>(what, rows);
    default:
      throw suite_error(fmt::format("no oracle for operator {}", name(what.agreed.operation)));
  }
}

}  // namespace msabench::judge
