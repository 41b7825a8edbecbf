# SPDX-License-Identifier: Apache-2.0
# Part `perf` of ci/gpu, which sources this: how fast plugins are, in runs of which each may fail alone.
# shellcheck shell=bash disable=SC2154,SC2034 # what it shares with ci/gpu

baselines=(cudnn cublas_twin)
# What perf times, the most wanted first, each by a run of its own: the seconds it may take, and its options. Where inputs are dear a
# run begins with what is cheap, as later points are planned by what earlier ones took.
timed=(decode decode-e4m3 prefill-1m prefill-1m-e4m3 attend-shared64 whole-1m training-kl vision decode-16-1m decode-16 training prefill whole-1m-e4m3
  decode-16-e4m3)
# Of `cuda` what has a target, in the order of all.
timed_of_cuda=(decode prefill-1m training-kl vision decode-16-1m training prefill)
stages=msa,dense,index,attend
declare -A timed_by=(
  [decode]="24 --suite decode --context 8K,128K,1M --op $stages"
  [prefill-1m]="44 --suite prefill --context 1M --chunk 8K --op $stages"
  [whole-1m]="70 --suite prefill_whole --context 1M --chunk 8K"
  [prefill]="32 --suite prefill --context 8K,32K,128K --chunk 8K --op $stages"
  [training]="85 --suite training --context 16K,64K --op attend,dense,attend_backward,dense_backward --grad storage"
  [decode-e4m3]="14 --suite decode --context 1M --op msa,dense,index --fp8-index tensor"
  [decode-16-e4m3]="90 --suite decode --batch 16 --context 1M --op msa,dense --fp8-index tensor"
  [prefill-1m-e4m3]="34 --suite prefill --context 1M --chunk 8K --op msa,dense,index --fp8-index tensor"
  [attend-shared64]="12 --suite prefill --context 1M --chunk 8K --op attend --selection shared64"
  [decode-16]="14 --suite decode --batch 16 --context 8K,128K --op msa,dense"
  [training-kl]="26 --suite training --context 512,16K,64K --op kl --grad storage"
  [vision]="24 --suite vision --context 16K,64K"
  [decode-16-1m]="70 --suite decode --batch 16 --context 1M --op msa,dense"
  [whole-1m-e4m3]="70 --suite prefill_whole --context 1M --chunk 8K --fp8-index tensor"
  [cuda prefill]="15 --suite prefill --context 32K --chunk 8K --op $stages"
  [cuda vision]="10 --suite vision --context 16K"
  [cuda decode]="20 --suite decode --context 8K,128K,1M --op $stages"
  [cuda training-kl]="20 --suite training --context 512,16K,64K --op kl --grad storage"
  [cuda training]="35 --suite training --context 16K,64K --op attend,attend_backward --grad storage"
)
# timed_of PLUGIN: its items
timed_of() {
  if [[ "$(name_of "$1")" == cuda ]]; then echo "${timed_of_cuda[@]}"; else echo "${timed[@]}"; fi
}

# unpacked PLUGIN: a folder of its reports of this commit and file; $out has them as one archive.
unpacked() {
  local archive report name
  name="$(name_of "$1")" archive="$out/perf-$(name_of "$1").tar.gz"
  local folder="$work/timed/$name"
  mkdir -p "$folder"
  [[ ! -f "$archive" ]] || tar -xzf "$archive" -C "$folder" || say "$archive: can't be unpacked, and is made anew"
  for report in "$folder"/*.json; do
    [[ -f "$report" ]] || continue
    [[ "$dirty" != true && "$(value commit "$report")" == "$commit" ]] && grep -qF "\"$(sha256_of "$(file_of "$1")")\"" "$report" && continue
    say "$(basename "$report") in $archive: is of another commit or plugin, and made anew"
    rm -f "$report" "${report%.json}.md"
  done
}

# The detail of a run: what it counts, and why it ended as it did.
summary_of_run() { grep -E '^([0-9]+ (measured|unverified|failed|busy|unsupported|not-run) |[A-Z]+( [A-Z]+)*(:|$))' "$1" | tail -n 2 | tr -s ' \n' ' '; }

time_plugin() { # time_plugin PLUGIN ITEM
  local plugin="$1" item="$2" options budget name sha folder before="$SECONDS" code=0
  name="$(name_of "$plugin")" sha="$(sha256_of "$(file_of "$plugin")")" folder="$work/timed/$(name_of "$plugin")"
  read -r budget options <<<"${timed_by[$name $item]:-${timed_by[$item]}}"
  [[ -f "$folder/perf-$item.json" ]] || forget perf "$item" "$name"
  due "$((budget + 20))" perf "$item" "$name" "$sha" || return 0
  rm -rf "$work/run" "$folder/perf-$item".*
  [[ ! -f "$dist/lib/msabench/cudnn.so" || "$name" == cudnn ]] || options+=" --against cudnn"
  # shellcheck disable=SC2086 # words
  timeout -s INT -k 10 "$((seconds - SECONDS))" "$msabench" perf --impl "$plugin" --device cuda --budget-s "$budget" --out "$work/run" \
    $options >"$work/perf.txt" 2>&1 || code=$?
  cat "$work/perf.txt"
  judged "$code" "$work/perf.txt"
  if [[ -s "$work/run/perf.json" ]]; then
    device="$(value device "$work/run/perf.json")"
    detail="$(summary_of_run "$work/perf.txt")"
    [[ -f "$dist/lib/msabench/cudnn.so" ]] || detail="${detail% }; without cudnn, which is not in the dist"
    # Some figures are unverified, or were left out for the time; those that are there are right or marked, and another run may end alike.
    if ((code == 2)) && [[ "$(value partial "$work/run/perf.json")" == false ]]; then state=incomplete; fi
    mv "$work/run/perf.json" "$folder/perf-$item.json"
    mv "$work/run/perf.md" "$folder/perf-$item.md"
    tar -czf "$work/packed" -C "$folder" . || fail 70 "reports can't be packed; they take tar and gzip"
    mv "$work/packed" "$out/perf-$name.tar.gz"
  fi
  record perf "$item" "$name" "$sha" "$state" "$((SECONDS - before))" "$detail"
}

perf() {
  local plugin item each kept=()
  use_dist
  if ((${#plugins[@]} == 0)); then
    built_in_plugins
    for each in "${plugins[@]}"; do [[ " ${baselines[*]} " == *" $each "* ]] || kept+=("$each"); done
    plugins=("${kept[@]}")
  fi
  ((${#plugins[@]} > 0)) || plugins_of_dist
  use_plugins "$((most_files - 1))"
  for plugin in "${plugins[@]}"; do unpacked "$plugin"; done
  for item in "${timed[@]}"; do
    for plugin in "${plugins[@]}"; do
      [[ " $(timed_of "$plugin") " != *" $item "* ]] || time_plugin "$plugin" "$item"
    done
  done
  finish perf
}
