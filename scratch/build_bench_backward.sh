#!/bin/bash
# Builds bench_backward into $1 from this worktree's release build and variants of the kernels.
set -e
cd "$(dirname "$0")/.."
out=$(realpath -m $1)
mkdir -p $out
flags="-std=c++20 -O3 --expt-relaxed-constexpr -I. -Iinclude -I$out"
wgmma="-gencode=arch=compute_90a,code=sm_90a"
host=kernels/cuda_sm90/attend_backward.cu
blocks=kernels/cuda_sm90/block_gradients.cu
objects=""
: > $out/variants.inc
variant() {  # name host blocks
  nvcc $flags $wgmma -Dcuda_sm90=$1 -DATTEND_BACKWARD="\"$2\"" -c scratch/backward_phases.cu -o $out/$1.host.o
  nvcc $flags $wgmma -Dcuda_sm90=$1 -c $3 -o $out/$1.blocks.o
  nvcc $flags $wgmma -Dcuda_sm90=$1 -c kernels/cuda_sm90/tensor_map.cu -o $out/$1.map.o
  objects="$objects $out/$1.host.o $out/$1.blocks.o $out/$1.map.o"
  echo "VARIANT($1)" >> $out/variants.inc
}
variant plain $host $blocks
for f in attend_backward query_gradients key_gradients readers; do
  [ -e $out/portable.$f.o ] || nvcc $flags $wgmma -c kernels/cuda/$f.cu -o $out/portable.$f.o
done
nvcc $flags $wgmma -c scratch/bench_backward.cu -o $out/bench_backward.o
nvcc $wgmma -o $out/bench_backward $out/bench_backward.o $objects $out/portable.*.o \
  build/release/kernels/common/libmsabench_kernels_common.a -lgomp
strip $out/bench_backward
