#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds bench_index into $1 from this worktree's release build and variants of the kernel.
set -e
cd "$(dirname "$0")/.."
out=$1
mkdir -p $out
flags="-std=c++20 -O3 --expt-relaxed-constexpr -I. -Iinclude -I$out"
wgmma="-gencode=arch=compute_90a,code=sm_90a"
kernel=kernels/cuda_sm90/prefill_index.cu
objects=""
: > $out/variants.inc
variant() {  # name source
  nvcc $flags $wgmma -Dcuda_sm90=$1 -c $2 -o $out/$1.o
  nvcc $flags $wgmma -Dcuda_sm90=$1 -c kernels/cuda_sm90/tensor_map.cu -o $out/$1.map.o
  objects="$objects $out/$1.o $out/$1.map.o"
  echo "VARIANT($1)" >> $out/variants.inc
}
variant plain $kernel
variant cluster2 scratch/prefill_index_cluster.cu
sed 's/plan.helpers = static_cast<int>(processors - plan.items)/plan.helpers = 0/' $kernel > $out/no_helpers.cu
variant no_helpers $out/no_helpers.cu
sed 's/std::min(8, (room/std::min(3, (room/' $kernel > $out/stages3.cu
variant stages3 $out/stages3.cu
python3 scratch/ordered.py $kernel $out/ordered.cu
variant ordered $out/ordered.cu
portable=build/release/kernels/cuda/CMakeFiles/cuda_kernels_portable.dir
nvcc $flags -gencode=arch=compute_90,code=sm_90 -c scratch/bench_index.cu -o $out/bench_index.o
nvcc $flags -gencode=arch=compute_90,code=sm_90 -o $out/bench_index $out/bench_index.o $objects \
  $portable/{index,score_stream,score_sweep,select,merge_lists}.cu.o build/release/kernels/common/libmsabench_kernels_common.a -lgomp
strip $out/bench_index
