// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/msa.h"

#include "kernels/naive/attend.h"
#include "kernels/naive/index.h"

namespace msabench::naive {

void msa(const stages& stage, const msa_call& call, int threads, void* scratch, std::int64_t slice_bytes) {
  index(stage, call.index, threads, scratch, slice_bytes);
  attend_call attending = call.attend;
  attending.ids = call.index.ids;
  attending.id_row_stride = call.index.id_row_stride;
  attending.id_head_stride = call.index.id_head_stride;
  attend(stage, attending, threads, scratch, slice_bytes);
}

}  // namespace msabench::naive
