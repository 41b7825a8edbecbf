# SPDX-License-Identifier: Apache-2.0
# Part `merge` of ci/gpu, which sources this: one report of each plugin, and a page of all, out of what parts have left.
# shellcheck shell=bash disable=SC2154,SC2034 # what it shares with ci/gpu

planted_faults() { # of the dist, by name
  local each
  for each in "$dist"/cuda/fault_*.so; do [[ ! -f "$each" ]] || name_of "$each"; done
  [[ ! -f "$dist/cuda/kernel_faults.tar.xz" ]] || tar -xJOf "$dist/cuda/kernel_faults.tar.xz" cases.txt | cut -d ' ' -f 1
}

# A line for everything that a merged report of NAME should hold: what no session has done stands there as not run.
expected_parts() { # expected_parts NAME SHA256
  local tool item
  for tool in "${tools[@]}"; do
    record sanitize "$tool" "$1" "$2" not-run 0 "no session has run it"
    grep -qsF "\"item\":\"$tool of the worker's kernels\"" "${parts[@]}" ||
      record sanitize "$tool of the worker's kernels" suite "" not-run 0 "no session has run it"
  done
  # Nobody asks how fast the example is, and baselines are timed beside others.
  [[ " example ${baselines[*]} " == *" $1 "* ]] || for item in $(timed_of "$1"); do record perf "$item" "$1" "$2" not-run 0 "no session has run it"; done
  local planted known=0
  for planted in $(planted_faults); do
    known=1
    grep -qsF "\"part\":\"faults\",\"item\":\"${planted}\"" "${parts[@]}" ||
      record faults "$planted" suite "" not-run 0 "no session has run it"
  done
  # Where parts are merged there may be no dist to tell which there are.
  ((known)) || grep -qsF '"part":"faults"' "${parts[@]}" || record faults all suite "" not-run 0 "no session has run them"
}

# Of the text of `msabench merge`, in a line.
result_of() { awk '/^(PASSED|FAILED|INCOMPLETE|PARTIAL|NOTHING)/ { on = 1 } /^reports:/ { on = 0 } on { printf "%s ", $0 }' "$1"; }
# summary COMMIT DEVICE FILES ROWS...: a page of all plugins, and of what was run beside level core of these FILES ("NAME SHA256"
# a line) or of the suite.
summary() {
  local files="$3"
  echo "<!-- SPDX-License-Identifier: Apache-2.0 -->"
  printf '# Level core on %s\n\nSuite at commit %s.\n\n| plugin | |\n|---|---|\n' "$2" "$1"
  shift 3
  printf '%s\n' "$@"
  printf '\n## Faults, sanitizers, speed\n\n| part | what | of | | |\n|---|---|---|---|---|\n'
  # Of several lines about one thing a failure stands, then what has run, then the last one.
  sed -n 's/^{"part":"\([^"]*\)","item":"\([^"]*\)","of":"\([^"]*\)","sha256":"\([^"]*\)".*,"state":"\([^"]*\)","seconds":[^,]*,"detail":"\(.*\)"}$/\1\t\2\t\3\t\5\t\6\t\4/p' \
    "${parts[@]}" /dev/null | files="$files" awk -F '\t' '
      BEGIN {
        count = split(ENVIRON["files"], lines, "\n")
        for (i = 1; i <= count; ++i) merged[lines[i]]
      }
      $1 == "conform" { next }
      $3 != "suite" && !(($3 " " $6) in merged) { next }
      { key = $1 " | " $2 " | " $3; gsub(/[|]/, "/", $5); rank = $4 == "failed" ? 4 : $4 == "passed" ? 3 : $4 == "incomplete" ? 2 : 1 }
      !(key in best) { order[++n] = key }
      rank >= best[key] { best[key] = rank; text[key] = "| " key " | " $4 " | " $5 " |" }
      END { for (i = 1; i <= n; ++i) print text[order[i]] }'
}

take_speed() { # take_speed ARCHIVE SHA256 FOLDER: into it, those reports that are of this file and of $commit
  local report
  rm -rf "$work/speed"
  mkdir "$work/speed"
  tar -xzf "$1" -C "$work/speed" || fail 70 "$1 can't be unpacked"
  for report in "$work/speed"/*.json; do
    if [[ -f "$report" && "$(value commit "$report")" == "$commit" ]] && grep -qF "\"$2\"" "$report"; then
      mv "$report" "${report%.json}.md" "$3"
    fi
  done
}

merge() {
  local folder name target reports given worst=0 code results=() sha files="" of=""
  ((${#folders[@]} > 0)) || fail 64 "FOLDER: none given; name the --out folders of the parts"
  for folder in "${folders[@]}"; do [[ -d "$folder" ]] || fail 64 "FOLDER $folder: is no folder"; done
  for msabench in "$dist/bin/msabench" "$root/build/release/bin/msabench" ""; do [[ ! -x "$msabench" ]] || break; done
  [[ -n "$msabench" ]] || fail 64 "$dist: holds no bin/msabench; make it with ci/gpu dist, name it with --dist"
  parts=()
  for folder in "${folders[@]}"; do [[ ! -f "$folder/parts.jsonl" ]] || parts+=("$folder/parts.jsonl"); done
  target="$out"
  [[ -n "${out_given:-}" ]] || target="$root/out/gpu/merged"
  for name in $(for folder in "${folders[@]}"; do ls "$folder"; done | sed -n 's/^conform-\(.*\)\.json$/\1/p' | sort -u); do
    reports=() given=()
    for folder in "${folders[@]}"; do [[ ! -f "$folder/conform-$name.json" ]] || reports+=("$folder/conform-$name.json"); done
    commit="$(value commit "${reports[0]}")" dirty="$(value dirty "${reports[0]}")"
    out="$work"
    rm -f "$work/parts.jsonl"
    # One page tells of all.
    [[ -z "$of" || "$of" == "commit $commit, $(value device "${reports[0]}")" ]] ||
      fail 64 "FOLDER: ${reports[0]} is of commit $commit, $(value device "${reports[0]}"), another one of $of; merge them apart"
    of="commit $commit, $(value device "${reports[0]}")"
    sha="$(sha256_in "${reports[0]}")"
    files+="$name $sha"$'\n'
    expected_parts "$name" "$sha" >/dev/null
    for folder in "$work/parts.jsonl" "${parts[@]}"; do given+=(--parts "$folder"); done
    say "$name:"
    code=0
    "$msabench" merge "${reports[@]}" "${given[@]}" --out "$target/$name" >"$work/merge.txt" || code=$?
    cat "$work/merge.txt"
    ((code != 64)) || exit 64
    for folder in "${folders[@]}"; do
      [[ ! -f "$folder/perf-$name.tar.gz" ]] || take_speed "$folder/perf-$name.tar.gz" "$sha" "$target/$name"
    done
    results+=("| [$name]($name/report.md) | $(result_of "$work/merge.txt") |")
    ((code == 0 || (worst != 0 && code > worst))) || worst="$code"
  done
  if [[ -z "${code:-}" ]]; then
    local why
    why="$(sed -n 's/^{"part":"conform",.*"state":"not-run",.*"detail":"\(.*\)"}$/ (\1)/p' "${parts[@]}" /dev/null | tail -n 1)"
    fail 3 "FOLDER: no conform-*.json in them, so nothing was judged$why; run ci/gpu conform"
  fi
  summary "$commit" "$(value device "$target/$name/report.json")" "$files" "${results[@]}" >"$target/summary.md"
  say "$target/summary.md"
  exit "$worst"
}
