# Copies of the kernels that write down when their phases begin. Usage: stamp.py ROOT OUT
import pathlib, sys
root, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
header = '''
constexpr int stamp_kinds = 15, stamp_blocks = 4096;
__device__ unsigned long long stamps[stamp_kinds * stamp_blocks];
inline const char* const stamp_names[stamp_kinds] = {
    "stream: begins", "stream: lengths known", "stream: copies started", "stream: first block there", "stream: done", "attend: begins",
    "attend: before the wait", "attend: after the wait", "attend: candidates", "attend: ids known", "attend: scores of a block",
    "attend: values of a block", "attend: block sums done", "attend: cluster met", "attend: done"};
__device__ inline void stamp(int kind) {
  if (threadIdx.x != 0 || blockIdx.x >= stamp_blocks) return;
  unsigned long long t;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(t));
  stamps[kind * stamp_blocks + blockIdx.x] = t;
}
'''
def change(name, edits):
    text = (root / 'kernels/cuda_sm90' / name).read_text()
    for old, new in edits:
        assert text.count(old) == 1, (name, old, text.count(old))
        text = text.replace(old, new)
    to = out / 'kernels/cuda_sm90' / name
    to.parent.mkdir(parents=True, exist_ok=True)
    to.write_text(text)
change('score_stream.cuh', [
    ('struct score_stream_call {', header + 'struct score_stream_call {'),
    ('  cuda::let_next_begin();\n', '  cuda::let_next_begin();\n  stamp(0);\n'),
    ('    int origin = guess;\n', '    stamp(1);\n    int origin = guess;\n'),
    ('    prefetch_queries(mine);\n    __syncwarp();\n', '    prefetch_queries(mine);\n    __syncwarp();\n    stamp(2);\n'),
    ('      write_scores(block,', '      if (next == S::stages) stamp(3);\n      write_scores(block,'),
    ('  if (s.whole_rows) write_unseen', '  stamp(4);\n  if (s.whole_rows) write_unseen'),
])
change('decode_attention.cuh', [
    ('#include "kernels/cuda_sm90/row_selection.cuh"', '#include "kernels/cuda_sm90/row_selection.cuh"\n#include "kernels/cuda_sm90/score_stream.cuh"'),
    ('  // What does not depend on the ids.', '  stamp(5);\n  // What does not depend on the ids.'),
    ('  cuda::wait_for_previous();\n', '  stamp(6);\n  cuda::wait_for_previous();\n  stamp(7);\n'),
    ('  const int count = shared.', '  stamp(8);\n  const int count = shared.'),
    ('  const int share = ', '  stamp(9);\n  const int share = '),
    ('    __syncthreads();  // maxima', '    stamp(10);\n    __syncthreads();  // maxima'),
    ('    __syncthreads();  // weights and values are there\n', '    __syncthreads();  // weights and values are there\n    stamp(11);\n'),
    ('  send_results<S>(s, span, total, shared);\n  wait_for(&shared.all_sent, 0);\n  merge_results<S>(s, span, row, kv_head, shared);\n',
     '  stamp(12);\n  send_results<S>(s, span, total, shared);\n  wait_for(&shared.all_sent, 0);\n  stamp(13);\n  merge_results<S>(s, span, row, kv_head, shared);\n  stamp(14);\n'),
])
for name in ('decode.cu', 'decode.h', 'decode_rows.cuh', 'row_selection.cuh', 'bulk_copies.cuh', 'cluster.cuh'):
    (out / 'kernels/cuda_sm90' / name).write_text((root / 'kernels/cuda_sm90' / name).read_text())
