// SPDX-License-Identifier: Apache-2.0
#include "kernels/naive/stages.h"

#include "kernels/naive/attend.h"
#include "kernels/naive/score.h"
#include "kernels/naive/select.h"

namespace msabench::naive {

const stages exact_stages{
    .visible_keys = visible_keys,
    .query_head = query_head,
    .index_head = index_head,
    .row_blocks = row_blocks,
    .all_blocks = all_blocks,
    .block_maximum = block_maximum,
    .attend_block = attend_block,
    .merge = merge,
    .store = store,
    .attend_row = attend_row,
    .select_row = select_row,
};

}  // namespace msabench::naive
