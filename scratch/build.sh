#!/bin/bash
# usage: scratch/build.sh OUT [sed expression for attend_scattered.cu] [for attend_shared.cu] [for attend_lists.cuh]
set -e
cd "$(dirname "$0")/.."
W=/tmp/s9att-bench.$$; mkdir -p $W
sed 's/constexpr double most_partial_bytes = .*;/static double\& most_partial_bytes = bench_budget;/' kernels/cuda_sm90/attend_lists.cu > $W/attend_lists_patched.cu
sed -i 's/pairs \* 6 \/ 10/static_cast<std::int64_t>(static_cast<double>(pairs) * bench_fraction)/' $W/attend_lists_patched.cu
sed -i 's/if (head_pairs <= chunk.pairs_of_pass)/if (bench_tokens == 0 \&\& head_pairs <= chunk.pairs_of_pass)/' $W/attend_lists_patched.cu
sed -i 's/if (fitting_tiles > 0 \&\&/if (bench_tokens > 0) { chunk.segment_tiles = bench_tokens \/ 8; chunk.segments = ceil_div(chunk.tiles, chunk.segment_tiles); return; } else if (bench_tokens == 0 \&\& fitting_tiles > 0 \&\&/' $W/attend_lists_patched.cu
sed -i 's/^namespace msabench::cuda_sm90 {$/namespace msabench::cuda_sm90 { extern double bench_budget, bench_fraction; extern long bench_tokens;/' $W/attend_lists_patched.cu
mkdir -p $W/kernels/cuda_sm90; sed "${4:-;}" kernels/cuda_sm90/attend_lists.cuh > $W/kernels/cuda_sm90/attend_lists.cuh
sed "${2:-;}" kernels/cuda_sm90/attend_scattered.cu > $W/attend_scattered_patched.cu
sed "${3:-;}" kernels/cuda_sm90/attend_shared.cu > $W/attend_shared_patched.cu
sed "${5:-;}" kernels/cuda_sm90/attend_combine.cuh > $W/kernels/cuda_sm90/attend_combine.cuh
if [ -n "$TIMED" ]; then
  sed -i 's/places.wait(chunk, work);/{ BENCH_T0; places.wait(chunk, work); BENCH_ADD(0); }/
s/wait_for(shared.queries_ready + from.stage, from.parity);/{ BENCH_T0; & BENCH_ADD(1); }/
s/wait_for(shared.keys_ready + at.stage, at.parity);/{ BENCH_T0; & BENCH_ADD(2); }/
s/wait_for(shared.values_ready + at.stage, at.parity);/{ BENCH_T0; & BENCH_ADD(3); }/
s/consume<T>(call, chunk, group - 1, shared);/{ BENCH_T0; & BENCH_ADD(4); BENCH_END(0); }/
s/combine_results<T>(call, chunk, shared.results);/{ BENCH_T0; & BENCH_ADD(5); BENCH_END(1); }/
s/if (\*chunk.work_count == 0) return;/& BENCH_BEGIN;/' $W/attend_scattered_patched.cu
  sed -i 's/wait_for_pass(chunk, unit.number, pass);/{ BENCH_T0; & BENCH_ADD(6); }/
s/wait_for(ring.free + to.stage, to.parity ^ 1);/{ BENCH_T0; & BENCH_ADD(7); }/
s/wait_for(ring.ready + from.stage, from.parity);/{ BENCH_T0; & BENCH_ADD(8); }/
s/if (lane == 0) tell(chunk.units_done + header.pass, 1);/{ BENCH_T0; & BENCH_ADD(9); }/' $W/kernels/cuda_sm90/attend_combine.cuh
fi
F="-std=c++20 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a -O3 $TIMED -I$W -I. -Iinclude -Iscratch"
for f in scratch/bench_lists.cu scratch/bench_scattered.cu $W/attend_shared_patched.cu kernels/cuda_sm90/attend_maps.cu kernels/cuda_sm90/tensor_map.cu scratch/attend_bench.cu; do
  nice nvcc $F -c $f -o $W/$(basename $f .cu).o
done
nice nvcc $F -cudart static $W/*.o build/release/kernels/common/libmsabench_kernels_common.a -Xcompiler -fopenmp -ldl -o $1
rm -r $W
