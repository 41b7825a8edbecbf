#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds bench_index into $1 from this worktree's release build and variants of the kernel.
set -e
cd "$(dirname "$0")/.."
out=$1
mkdir -p $out
flags="-std=c++20 -O3 --expt-relaxed-constexpr"
wgmma="-gencode=arch=compute_90a,code=sm_90a"
objects=""
: > $out/variants.inc
compile() {  # name
  nvcc $flags -I$out/$1.tree -I. -Iinclude $wgmma -Dcuda_sm90=$1 -c $out/$1.tree/kernels/cuda_sm90/prefill_index.cu -o $out/$1.o
  nvcc $flags -I. -Iinclude $wgmma -Dcuda_sm90=$1 -c kernels/cuda_sm90/tensor_map.cu -o $out/$1.map.o
  objects="$objects $out/$1.o $out/$1.map.o"
  echo "VARIANT($1)" >> $out/variants.inc
}
variant() {  # name change...
  rm -rf $out/$1.tree
  mkdir -p $out/$1.tree/kernels
  cp -r kernels/cuda_sm90 $out/$1.tree/kernels/
  python3 scratch/variant.py $out/$1.tree/kernels/cuda_sm90 "${@:2}"
  compile $1
}
archive() {  # name commit
  rm -rf $out/$1.tree
  mkdir -p $out/$1.tree
  git archive $2 kernels/cuda_sm90 | tar x -C $out/$1.tree
  compile $1
}
archive old 4a32ce6
archive one_vote d9a8c22
variant halved_noprefetch
cp /tmp/no_prefetch.cu $out/halved_noprefetch.tree/kernels/cuda_sm90/prefill_index.cu
nvcc $flags -I$out/halved_noprefetch.tree -I. -Iinclude $wgmma -Dcuda_sm90=halved_noprefetch -c $out/halved_noprefetch.tree/kernels/cuda_sm90/prefill_index.cu -o $out/halved_noprefetch.o
variant halved
variant halved_group3 group3
variant halved_group8 group8
portable=build/release/kernels/cuda/CMakeFiles/cuda_kernels_portable.dir
nvcc $flags -I. -Iinclude -I$out -gencode=arch=compute_90,code=sm_90 -c scratch/bench_index.cu -o $out/bench_index.o
nvcc $flags -gencode=arch=compute_90,code=sm_90 -o $out/bench_index $out/bench_index.o $objects \
  $portable/{index,score_stream,score_sweep,select,merge_lists}.cu.o build/release/kernels/common/libmsabench_kernels_common.a -lgomp
strip $out/bench_index
