#!/bin/bash
# Variants against the portable kernel first (a WRONG line says which rows), with times; then the judge.
nvidia-smi --query-gpu=name,clocks.sm,clocks.max.sm,power.limit --format=csv
timeout 22 ./bench_dense || echo "bench_dense: rc $?"
for f in 'vit_attend/*' 'dense/m3.tp?/rag*' 'vit3d/m3/g10*'; do
  timeout 7 "$DIST/bin/msabench" check --impl ./cuda_sm90.so --device cuda --level core --filter "$f" > check.txt 2>&1
  echo "check $f: rc $?"; grep -E "^(fail|broken|crash|timeout|device|PASSED|FAILED|INCOMPLETE)" -A3 check.txt | head -24
done
