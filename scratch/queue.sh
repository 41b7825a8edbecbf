#!/bin/bash
# Makes /tmp/gpu/queue/s9att-1: correctness and times of variants of attend.
set -e
cd "$(dirname "$0")/.."
Q=/tmp/gpu/queue/s9att-1.part; rm -rf $Q; mkdir -p $Q
scratch/build.sh $Q/base
scratch/build.sh $Q/noturns ';' 's/turns.wait();//;s/turns.pass_on();//;s/return turns.end();/return;/;s/if (consumer == 1) pass_on();//'
scratch/build.sh $Q/stages3 ';' 's/block_stages = 2, query_stages = 2/block_stages = 3, query_stages = 1/'
scratch/build.sh $Q/consumers2 's/consumers = 3/consumers = 2/;s/producer_registers = 32, consumer_registers = 160/producer_registers = 40, consumer_registers = 232/'
scratch/build.sh $Q/cached 's/__stcs/__stcg/;s/__ldcs/__ldcg/'
cat > $Q/run.sh <<'RUN'
#!/bin/bash
cd "$(dirname "$0")"
for b in base noturns stages3 consumers2; do
  echo "#### $b"; timeout 20 ./$b quick 512:32768:random:256 512:32768:shared64:256 512:32768:half:256 512:32768:random:8 500:32731:random:8 500:32731:half:1000 500:32731:random:256:96 || echo "exit $?"
done
echo "#### base"
timeout 40 ./base full 8192:1048576:random:256 8192:1048576:shared64:256 8192:1048576:mix:256 8192:1048576:half:256 8192:1048576:random:420 8192:1048576:random:600 8192:1048576:random:2600 8192:8192:random:256 8192:8192:random:256:1024 8192:8192:random:256:512 8192:131072:random:256 8192:131072:random:256:8192 2048:1048576:random:256 || echo "exit $?"
for b in noturns stages3; do echo "#### $b"; timeout 20 ./$b full 8192:1048576:shared64:256 || echo "exit $?"; done
for b in consumers2 cached; do echo "#### $b"; timeout 20 ./$b full 8192:1048576:random:256 8192:1048576:random:600 || echo "exit $?"; done
RUN
chmod +x $Q/run.sh; echo 60 > $Q/limit_s
