#!/bin/bash
# usage: scratch/build.sh OUT [sed expression for attend_scattered.cu] [for attend_shared.cu] [for attend_lists.cuh]
set -e
cd "$(dirname "$0")/.."
W=/tmp/s9att-bench.$$; mkdir -p $W
sed 's/constexpr double most_partial_bytes = .*;/static double\& most_partial_bytes = bench_budget;/' kernels/cuda_sm90/attend_lists.cu > $W/attend_lists_patched.cu
sed -i 's/const std::int64_t tokens = chunk_tokens(p);/const std::int64_t tokens = bench_tokens > 0 ? bench_tokens : chunk_tokens(p);/' $W/attend_lists_patched.cu
sed -i 's/^namespace msabench::cuda_sm90 {$/namespace msabench::cuda_sm90 { extern double bench_budget; extern long bench_tokens;/' $W/attend_lists_patched.cu
mkdir -p $W/kernels/cuda_sm90; sed "${4:-;}" kernels/cuda_sm90/attend_lists.cuh > $W/kernels/cuda_sm90/attend_lists.cuh
sed "${2:-;}" kernels/cuda_sm90/attend_scattered.cu > $W/attend_scattered_patched.cu
sed "${3:-;}" kernels/cuda_sm90/attend_shared.cu > $W/attend_shared_patched.cu
F="-std=c++20 --expt-relaxed-constexpr -gencode=arch=compute_90a,code=sm_90a -O3 -I$W -I. -Iinclude -Iscratch"
for f in scratch/bench_lists.cu scratch/bench_scattered.cu $W/attend_shared_patched.cu kernels/cuda_sm90/attend_maps.cu kernels/cuda_sm90/tensor_map.cu scratch/attend_bench.cu; do
  nice nvcc $F -c $f -o $W/$(basename $f .cu).o
done
nice nvcc $F -cudart static $W/*.o build/release/kernels/common/libmsabench_kernels_common.a -Xcompiler -fopenmp -ldl -o $1
rm -r $W
