// SPDX-License-Identifier: Apache-2.0
#include "inputs/families/family.h"
#include "inputs/operators.h"
#include "inputs/selection.h"

namespace msabench {

void fill_msa(const fill_job& job) {
  const case_spec& c = job.definition;
  const problem& p = job.set.agreed;
  const selection chosen(c, p, job.rows, attend_family_of(c).shares_blocks_variant == c.variant);
  fill_attention(job, chosen);
  if (plants_selection(c))
    fill_index_branch(job, *make_planted_index({c, p, job.rows}, chosen), false);
  else
    fill_index_branch(job);
}

}  // namespace msabench
