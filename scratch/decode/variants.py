# Other ways to do what the kernels do, as copies of them. Usage: variants.py ROOT OUT flags|normal
#   flags   attention waits for a word of each thread block that scores, not for the end of their kernel
#   normal  keys get no policy in the second-level cache
import pathlib, sys
root, out, which = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
folder = root / 'kernels/cuda_sm90'
names = ['score_stream.cuh', 'decode_attention.cuh', 'decode.cu', 'decode.h', 'decode_rows.cuh', 'row_selection.cuh', 'bulk_copies.cuh', 'cluster.cuh']
texts = {n: (folder / n).read_text() for n in names}
def change(name, old, new):
    assert texts[name].count(old) == 1, (name, old, texts[name].count(old))
    texts[name] = texts[name].replace(old, new)
if which == 'normal':
    change('bulk_copies.cuh', 'L2::evict_first.b64', 'L2::evict_normal.b64')
else:
    change('score_stream.cuh', 'visible blocks as well\n', 'visible blocks as well\n  std::uint32_t* done = nullptr;\n')
    change('score_stream.cuh', '  cuda::let_next_begin();\n', '''  if (s.done != nullptr) {
    if (threadIdx.x == 0) {
      s.done[blockIdx.x] = 0;
      __threadfence();
    }
    __syncthreads();
  }
  cuda::let_next_begin();
''')
    change('score_stream.cuh', '  if (s.whole_rows) write_unseen', '''  if (s.done != nullptr) {
    __syncthreads();
    if (threadIdx.x == 0) {
      __threadfence();
      asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(s.done + blockIdx.x), "r"(1) : "memory");
    }
  }
  if (s.whole_rows) write_unseen''')
    change('decode_attention.cuh', 'ids nullptr: not wanted\n', 'ids nullptr: not wanted\n  const std::uint32_t* done = nullptr;\n  int done_count = 0;\n')
    change('decode_attention.cuh', '  cuda::wait_for_previous();\n  if (!there) return;', '''  if (s.done == nullptr || !there) cuda::wait_for_previous();
  if (!there) return;
  if (s.done != nullptr) {
    if (warp == 0)
      for (int i = lane; i < s.done_count; i += 32) {
        std::uint32_t is_done;
        do {
          asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(is_done) : "l"(s.done + i) : "memory");
        } while (is_done == 0);
      }
    __syncthreads();
  }
''')
    change('decode_attention.cuh', '  merge_results<S>(s, span, row, kv_head, shared);\n', '  merge_results<S>(s, span, row, kv_head, shared);\n  if (s.done != nullptr) cuda::wait_for_previous();\n')
    change('decode.cu', 'const score_stream_call stream{call, scores, head_stride, row_stride, wanted};',
           '''std::uint32_t* const done = reinterpret_cast<std::uint32_t*>(static_cast<char*>(context.scratch) + (context.scratch_bytes - 1024) / 256 * 256);
  const score_stream_call stream{call, scores, head_stride, row_stride, wanted, done};''')
    change('decode.cu', 'decode_attention_call{call, places, select});', '''decode_attention_call{call, places, select,
               follows ? reinterpret_cast<const std::uint32_t*>(static_cast<char*>(context.scratch) + (context.scratch_bytes - 1024) / 256 * 256) : nullptr,
               static_cast<int>(std::min<std::int64_t>(cuda::multiprocessors(), call.rows.batch * max_blocks(context.problem)))});''')
(out / 'kernels/cuda_sm90').mkdir(parents=True, exist_ok=True)
for n in names:
    (out / 'kernels/cuda_sm90' / n).write_text(texts[n])
