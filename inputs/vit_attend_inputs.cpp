// SPDX-License-Identifier: Apache-2.0
#include "inputs/operators.h"
#include "inputs/selection.h"

namespace msabench {

// To the families a segment is a sequence whose rows all see the whole of it (inputs/batch.h).
void fill_vit_attend(const fill_job& job) {
  fill_attention(job, selection(job.definition, job.set.agreed, job.rows, false));
}

// The same values before rotation. Weights of the codes and of the carry are equal whatever is rotated: queries are 0.
void fill_vit3d(const fill_job& job) { fill_vit_attend(job); }

}  // namespace msabench
