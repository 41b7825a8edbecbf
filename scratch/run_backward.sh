#!/bin/bash
# Comparison with the portable kernel, then timing, then the judge if the plugin is here.
timeout 30 ./bench_backward 3 || echo "bench_backward: rc $?"
[ -e cuda_sm90.so ] || exit 0
for op in attend_backward dense_backward; do
  timeout 20 "$DIST/bin/msabench" check --impl ./cuda_sm90.so --device cuda --level core --filter "$op/*" --json "$RES/$op.json" > check.txt 2>&1
  echo "== $op: rc $?"; grep -E "^(fail|broken|crash|timeout|device|PASSED|FAILED|INCOMPLETE)" -A3 check.txt | head -40
done
while read -r c; do
  timeout 20 "$DIST/bin/msabench" repro "$c" --impl ./cuda_sm90.so --device cuda > repro.txt 2>&1 < /dev/null
  rc=$?; echo "$rc $c"; [ $rc -ne 0 ] && head -12 repro.txt
done < cases.txt
