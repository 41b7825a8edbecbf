#!/bin/bash
# Builds bench_kl into $1 from this worktree's release build and variants of the kernels. Parts that no variant changes are
# compiled once for each name all the same, as the name is that of the namespace.
set -e
cd "$(dirname "$0")/.."
out=$(realpath -m $1)
mkdir -p $out
flags="-std=c++20 -O3 --expt-relaxed-constexpr -I. -Iinclude -I$out"
wgmma="-gencode=arch=compute_90a,code=sm_90a"
k=kernels/cuda_sm90
objects=""
: > $out/variants.inc
variant() {  # name [file sed-expression]...
  local name=$1; shift
  declare -A from=([kl]=$k/kl.cu [kl_scores]=$k/kl_scores.cu [kl_gradients]=$k/kl_gradients.cu [kl_sums]=$k/kl_sums.cu [tensor_map]=$k/tensor_map.cu)
  while (($#)); do
    sed "$2" ${from[$1]} > $out/$name.$1.cu
    ! cmp -s ${from[$1]} $out/$name.$1.cu || { echo "variant $name changes nothing in $1"; exit 1; }
    from[$1]=$out/$name.$1.cu; shift 2
  done
  for part in kl kl_scores kl_gradients kl_sums tensor_map; do
    local source=${from[$part]} define=""
    [ $part != kl ] || { define="-DKL=\"$source\""; source=scratch/kl_phases.cu; }
    nice -n 10 nvcc $flags $wgmma -Dcuda_sm90=$name $define -c $source -o $out/$name.$part.o
    objects="$objects $out/$name.$part.o"
  done
  echo "VARIANT($name)" >> $out/variants.inc
}
. ${2:-scratch/kl_variants.sh}
for f in kl kl_readings kl_sums readers; do
  [ -e $out/portable.$f.o ] || nice -n 10 nvcc $flags $wgmma -c kernels/cuda/$f.cu -o $out/portable.$f.o
done
nvcc $flags $wgmma -c scratch/bench_kl.cu -o $out/bench_kl.o
nvcc $wgmma -o $out/bench_kl $out/bench_kl.o $objects $out/portable.*.o build/release/kernels/common/libmsabench_kernels_common.a -lgomp
strip $out/bench_kl
