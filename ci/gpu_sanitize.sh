# SPDX-License-Identifier: Apache-2.0
# Part `sanitize` of ci/gpu, which sources this: level sanitize and the worker's own kernels under each of compute-sanitizer's tools.
# shellcheck shell=bash disable=SC2154,SC2034 # what it shares with ci/gpu

tool_seconds=60 # racecheck: twice as many

find_sanitizer() { # prints its path
  local each
  if [[ -n "${COMPUTE_SANITIZER:-}" ]]; then
    [[ -x "$COMPUTE_SANITIZER" ]] && echo "$COMPUTE_SANITIZER"
    return
  fi
  for each in "$(command -v compute-sanitizer || true)" /usr/local/cuda*/bin/compute-sanitizer; do
    if [[ -n "$each" && -x "$each" ]]; then
      echo "$each"
      return 0
    fi
  done
  return 1
}

# under FOLDER TOOL SECONDS COMMAND...: what it wrote is in FOLDER/tool.txt, what the tool says in FOLDER/tool.log; sets code, errors
# (empty: the tool came to no end) and first (its first error).
under() {
  local at="$1" tool="$2" limit="$3"
  shift 3
  local options=()
  # What a thread block may have of barriers in shared memory. Left to itself the tool counts too few of them, loses track, and launches fail.
  [[ "$tool" != racecheck && "$tool" != synccheck ]] || options=(--num-cuda-barriers 1024)
  rm -f "$at"/tool.*
  code=0
  timeout -s INT -k 5 "$limit" "$sanitizer" --tool "$tool" --target-processes all --log-file "$at/tool.log" --print-limit 20 \
    --check-exit-code no "${options[@]}" "$@" \
    >"$at/tool.txt" 2>&1 || code=$?
  touch "$at/tool.log"
  # One summary for each process.
  errors="$(sed -n -e 's/^=* ERROR SUMMARY: \([0-9]*\) error.*/\1/p' -e 's/^=* RACECHECK SUMMARY: .*(\([0-9]*\) error.*/\1/p' "$at/tool.log" |
    awk '{ n += $1 } END { if (NR) print n }')"
  first="$(sed -n 's/^=* \(\(Invalid\|Uninitialized\|Error: Race\|Barrier\|Program hit\|Misaligned\).*\)/\1/p;t end;b;:end;q' "$at/tool.log")"
  if ((code == 124 || code == 137)); then errors=""; fi
}
why_no_end() { # why_no_end FOLDER SECONDS: in one clause, from what `under` has left
  if ((code == 124 || code == 137)); then
    echo "took longer than $2 s"
  else
    echo "exit $code: $(sed -n 's/^=* *//p' "$1/tool.log" | grep -iE 'error|not supported|fail' | head -n 1) $(last_line "$1/tool.txt")"
  fi
}

# usable TOOL: it runs what is known to be good, and sees what is known to be wrong. Otherwise sets detail.
usable() {
  local planted="$dist/cuda/sanitizer/$1.so"
  under "$work" "$1" "$tool_seconds" "$msabench" repro "$known_good" --impl "$dist/cuda/example.so" --device cuda --timeout-s "$tool_seconds" \
    --json "$work/good.json"
  if [[ "$errors" != 0 ]] || ((code != 0)); then
    detail="compute-sanitizer doesn't run a known-good kernel here: ${errors:+$errors errors; }$(why_no_end "$work" "$tool_seconds")"
    return 1
  fi
  device="$(value device "$work/good.json")"
  [[ -f "$planted" ]] || {
    detail="$planted: the planted fault is missing; make the dist anew"
    return 1
  }
  under "$work" "$1" "$tool_seconds" "$msabench" repro "$known_good" --impl "$planted" --device cuda --timeout-s "$tool_seconds"
  [[ -n "$errors" && "$errors" != 0 ]] && return 0
  detail="the sanitizer sees nothing: a planted fault was not flagged; $(why_no_end "$work" "$tool_seconds")"
  return 1
}

# sanitize_piece FOLDER TOOL COMMAND...: leaves state and detail there, a line each.
sanitize_piece() {
  local folder="$1" tool="$2" state detail doubt
  shift 2
  at_once under "$folder" "$tool" "$tool_seconds" "$@"
  judged "$code" "$folder/tool.txt"
  if [[ -n "$first" || "${errors:-0}" != 0 ]]; then
    state=failed detail="${errors:-at least 1} errors: ${first:-$detail}"
  elif [[ -z "$errors" ]]; then
    state=not-run detail="$(why_no_end "$folder" "$tool_seconds")"
  elif [[ "$state" == passed ]] && doubt="$(sed -n 's/^=* *\(.*might be incorrect.*\)/\1/p;T;q' "$folder/tool.log")" && [[ -n "$doubt" ]]; then
    # No error then says nothing.
    state=not-run detail="the tool doubts itself: $doubt"
  elif ((code == 3)); then
    state=unsupported
  fi
  printf '%s\n' "$state" "$detail" >"$folder/ended"
  mv "$folder/ended" "$folder/state"
}

# What of an item's cases is done, so that a session which ends too early loses little: $out/sanitize.tsv, a line for each of `pieces`.
piece_key() { printf '%s\t%s\t%s\t%s\t%s' "$1" "$2" "$3" "$4" "$commit"; } # piece_key TOOL OF SHA256 CASES
known_piece() {                                                             # state and detail, a line each
  [[ "$dirty" != true && -f "$out/sanitize.tsv" ]] || return 0
  key="$(piece_key "$@")" awk -F '\t' 'BEGIN { OFS = FS } $1 FS $2 FS $3 FS $4 FS $5 == ENVIRON["key"] { state = $6; detail = $7 }
    END { if (state != "" && state != "not-run") { print state; print detail } }' "$out/sanitize.tsv"
}
# keep_pieces TOOL ITEM OF SHA256: of those that have ended, each once; and what the tool said where one failed.
keep_pieces() {
  local folder words cases
  for folder in "$work"/pieces/*; do
    [[ -f "$folder/state" && ! -f "$folder/kept" ]] || continue
    mapfile -t words <"$folder/state"
    cases="$(<"$folder/cases")"
    if [[ "${words[0]}" == failed ]]; then
      { # within what may travel
        say "$2 of $3${cases:+, $cases}"
        head -c 60000 "$folder/tool.log"
        tail -n 20 "$folder/tool.txt"
      } >>"$out/sanitize.txt"
    fi
    printf '%s\t%s\t%s\n' "$(piece_key "$1" "$3" "$4" "$cases")" "${words[0]}" "$(printf '%s' "${words[1]:-}" | LC_ALL=C tr -c '\40-\176' ' ')" >>"$out/sanitize.tsv"
    : >"$folder/kept"
  done
}

# sanitize_one TOOL ITEM OF SHA256 COMMAND...: with each of the options in `pieces`, some at once; what fails or doesn't run stands for all.
sanitize_one() {
  local tool="$1" item="$2" of="$3" sha="$4" before="$SECONDS" piece folder number=0 done_pieces=0 left=0 words
  local limit=$((tool_seconds + 5)) needed # limit: of what runs under a tool, until it is killed
  shift 4
  needed="$limit"
  [[ -n "${tool_state[$tool]:-}" ]] || needed=$((3 * limit)) # whether it is usable takes two more
  due "$needed" sanitize "$item" "$of" "$sha" || return 0
  if [[ -z "${tool_state[$tool]:-}" ]]; then
    if usable "$tool"; then tool_state[$tool]=usable; else tool_state[$tool]="$detail"; fi
    say "$tool: ${tool_state[$tool]}, $((SECONDS - before)) s"
    before="$SECONDS"
  fi
  if [[ "${tool_state[$tool]}" != usable ]]; then
    record sanitize "$item" "$of" "$sha" not-run 0 "${tool_state[$tool]}"
    return 0
  fi
  rm -rf "$work/pieces"
  for piece in "${pieces[@]}"; do
    folder="$work/pieces/$((number++))"
    mkdir -p "$folder"
    printf '%s' "${piece#--filter }" >"$folder/cases"
    known_piece "$tool" "$of" "$sha" "${piece#--filter }" >"$folder/known"
    if [[ -s "$folder/known" ]]; then
      mv "$folder/known" "$folder/state"
      : >"$folder/kept"
      continue
    fi
    while (($(jobs -rp | wc -l) >= pool_size)); do
      wait -n || true
      keep_pieces "$tool" "$item" "$of" "$sha"
    done
    if ((SECONDS + limit > seconds)); then
      left=$((left + 1))
      continue
    fi
    # shellcheck disable=SC2086 # an option and its value
    sanitize_piece "$folder" "$tool" "$@" $piece &
  done
  wait
  keep_pieces "$tool" "$item" "$of" "$sha"
  state=unsupported detail="nothing that it is for"
  for ((number = 0; number < ${#pieces[@]}; ++number)); do
    folder="$work/pieces/$number" piece="${pieces[number]#--filter }"
    [[ -f "$folder/state" ]] || continue
    mapfile -t words <"$folder/state"
    if [[ "${words[0]}" == passed ]]; then done_pieces=$((done_pieces + 1)); fi
    case "${words[0]}:$state" in
      failed:failed | not-run:failed | not-run:not-run | unsupported:*) ;;
      passed:failed | passed:not-run) ;;
      passed:*) state=passed detail="${words[1]}" ;;
      *) state="${words[0]}" detail="${piece:+$piece: }${words[1]}" ;;
    esac
  done
  if ((left > 0)) && [[ "$state" != failed ]]; then
    left_over=$((left_over + 1))
    say "sanitize $item of $of: $((${#pieces[@]} - left)) of ${#pieces[@]} operators done"
    return 0
  fi
  if ((left > 0)); then detail+="; $left of ${#pieces[@]} operators not tried"; fi
  if [[ "$state" == unsupported ]]; then state=not-run; fi
  if [[ "$state" == passed ]] && ((done_pieces > 1)); then detail="cases of $done_pieces operators"; fi
  record sanitize "$item" "$of" "$sha" "$state" "$((SECONDS - before))" "$detail"
}

sanitize() {
  local plugin tool name sha worker="$dist/bin/msabench-worker" pieces operators
  declare -gA tool_state=()
  use_dist
  pool_size="$jobs"
  mapfile -t operators < <("$msabench" list --level sanitize | sed -n 's,^\([a-z0-9_]*\)/.*/s[0-9]* .*,\1,p' | sort -u)
  ((${#operators[@]} > 0)) || fail 70 "$msabench doesn't list the cases of level sanitize"
  ((${#plugins[@]} > 0)) || { built_in_plugins && plugins_of_dist; }
  use_plugins 100
  if sanitizer="$(find_sanitizer)"; then
    say "$sanitizer: $("$sanitizer" --version 2>&1 | grep -iE '^ *version' | head -n 1)"
  else
    for tool in "${tools[@]}"; do
      # shellcheck disable=SC2016 # the name of the variable is meant
      tool_state[$tool]='no compute-sanitizer in $COMPUTE_SANITIZER, on the PATH or in /usr/local/cuda*/bin'
    done
  fi
  for tool in "${tools[@]}"; do
    tool_seconds=60
    [[ "$tool" != racecheck ]] || tool_seconds=120
    # Short, and without the products of cuBLAS, which the worker leaves out under a sanitizer.
    pieces=("")
    sanitize_one "$tool" "$tool of the worker's kernels" suite "$(sha256_of "$worker")" \
      "$msabench" perf --impl "$dist/cuda/example.so" --device cuda --op attend --suite decode --context 8K --budget-s 3 --busy tell \
      --timeout-s "$tool_seconds"
    pieces=("${operators[@]/%//*}")
    pieces=("${pieces[@]/#/--filter }")
    for plugin in "${plugins[@]}"; do
      name="$(name_of "$plugin")" sha="$(sha256_of "$(file_of "$plugin")")"
      sanitize_one "$tool" "$tool" "$name" "$sha" "$msabench" check --impl "$plugin" --device cuda --level sanitize \
        --timeout-s "$tool_seconds"
    done
  done
  finish sanitize
}
