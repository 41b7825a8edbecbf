#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Timing first, as it compares ids with the portable kernel itself; then the judge.
nvidia-smi --query-gpu=name,clocks.sm,clocks.max.sm,power.limit --format=csv
timeout 60 ./bench_index || echo "bench_index: rc $?"
timeout 60 "$DIST/bin/msabench" check --impl ./cuda_sm90.so --device cuda --level core --filter 'index/*' --json "$RES/index.json" > check.txt 2>&1
echo "check: rc $?"; grep -E "^(fail|broken|crash|timeout|device|PASSED|FAILED|INCOMPLETE)" -A3 check.txt | head -40
while read -r c; do
  timeout 20 "$DIST/bin/msabench" repro "$c" --impl ./cuda_sm90.so --device cuda > repro.txt 2>&1
  rc=$?; echo "$rc $c"; [ $rc -ne 0 ] && head -12 repro.txt
done < cases.txt
