#!/bin/bash
# Builds bench_dense into $1 from this worktree's release build and variants of the kernel.
set -e
cd "$(dirname "$0")/.."
out=$1
mkdir -p $out
flags="-std=c++20 -O3 --expt-relaxed-constexpr -I. -Iinclude -I$out"
wgmma="-gencode=arch=compute_90a,code=sm_90a"
kernel=kernels/cuda_sm90/wide_attention.cu
objects=""
: > $out/dense_variants.inc
variant() {  # name source
  nvcc $flags $wgmma -Dcuda_sm90=$1 -c $2 -o $out/$1.o
  nvcc $flags $wgmma -Dcuda_sm90=$1 -c kernels/cuda_sm90/tensor_map.cu -o $out/$1.map.o
  objects="$objects $out/$1.o $out/$1.map.o"
  echo "VARIANT($1)" >> $out/dense_variants.inc
}
change() {  # name sed-expression
  sed -E "$2" $kernel > $out/$1.cu
  cmp -s $kernel $out/$1.cu && { echo "$1: nothing changed"; exit 1; }
  variant $1 $out/$1.cu
}
variant plain $kernel
# The wait for values where the assembler puts it.
change early '/keep_before_wait\(/d'
change noturns 's/turns\.(wait|pass_on|end)\(\);//'
# Sums rescaled only where a greatest score has changed.
change skips 's/^( *)for \(int j = 0; j < S::columns \/ 2; \+\+j\) out\[j\] \*= /\1for (int j = 0; j < S::columns \/ 2 \&\& changed; ++j) out[j] *= /; s/^( *)values_at\.next\(\);$/&\n\1[[maybe_unused]] const bool changed = __any_sync(~0u, factors[0] != 1 || factors[1] != 1);/'
change byitem 's/if \(launch\.grid\.spans == 1\)/if (false)/'
portable=build/release/kernels/cuda/CMakeFiles/cuda_kernels_portable.dir
nvcc $flags -gencode=arch=compute_90,code=sm_90 -c scratch/bench_dense.cu -o $out/bench_dense.o
nvcc $flags -gencode=arch=compute_90,code=sm_90 -o $out/bench_dense $out/bench_dense.o $objects \
  $portable/{dense,attention_plan,narrow_attention,gathered_attention}.cu.o build/release/kernels/common/libmsabench_kernels_common.a -lgomp
strip $out/bench_dense
ls -la $out/bench_dense
