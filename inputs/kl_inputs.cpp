// SPDX-License-Identifier: Apache-2.0
#include "inputs/families/family.h"
#include "inputs/operators.h"
#include "inputs/selection.h"

namespace msabench {

void fill_kl(const fill_job& job) {
  const case_spec& c = job.definition;
  const selection chosen(c, job.set.agreed, job.rows, false);
  fill_attention(job, chosen);
  const index_family_info& family = index_family_of(c);
  fill_index_branch(job, *family.make({c, job.set.agreed, job.rows}), family.shares_pages, &chosen);
  if (!c.options.warm) fill_ids(job, chosen);
}

}  // namespace msabench
