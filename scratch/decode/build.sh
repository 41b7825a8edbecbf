#!/bin/bash
# Builds bench and stamped into $1 from the portable kernels' objects of build/release.
set -e
root=$(cd "$(dirname "$0")/../.." && pwd); out=$1; mkdir -p "$out/gen"
cd "$root"
objects=$(ls build/release/kernels/cuda/CMakeFiles/cuda_kernels_portable.dir/*.o build/release/kernels/common/CMakeFiles/msabench_kernels_common.dir/check*.o build/release/kernels/common/CMakeFiles/msabench_kernels_common.dir/{error,tensor_rules,storage,vit3d_tensors}*.o)
flags="-std=c++20 -O3 -gencode=arch=compute_90a,code=sm_90a --expt-relaxed-constexpr -Iscratch/decode"
nice nvcc $flags -I. -Iinclude scratch/decode/bench.cu $objects -o "$out/bench" -ldl
python3 scratch/decode/stamp.py . "$out/gen"
nice nvcc $flags -DSTAMPS -I"$out/gen" -I. -Iinclude scratch/decode/bench.cu $objects -o "$out/stamped" -ldl
for v in unchanged; do
  python3 scratch/decode/variants.py . "$out/gen_$v" $v
  nice nvcc $flags "-DQUICK=\"$v\"" -I"$out/gen_$v" -I. -Iinclude scratch/decode/bench.cu $objects -o "$out/$v" -ldl
done
nice nvcc $flags "-DQUICK=\"plain\"" -I. -Iinclude scratch/decode/bench.cu $objects -o "$out/plain" -ldl
