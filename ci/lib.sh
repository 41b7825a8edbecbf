# SPDX-License-Identifier: Apache-2.0
# Shared by the scripts of this folder, which source it first: where the tree is, how it is configured, how long a stage took.
# shellcheck shell=bash

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
self="ci/$(basename "$0")"

say() { printf '%s: %s\n' "$self" "$*"; }
fail() { # fail CODE TEXT...: one line on stderr, then the exit codes of `msabench` (4 environment, 64 usage)
  local code="$1"
  shift
  printf '%s: error: %s\n' "$self" "$*" >&2
  exit "$code"
}

# A C++ compile of this tree takes up to 1 GiB, so memory bounds the jobs as well as the cores do.
job_count() {
  local cores memory
  cores="$(nproc 2>/dev/null || echo 1)"
  memory="$(awk '/^MemAvailable:/ { print int($2 / 1048576) }' /proc/meminfo 2>/dev/null || echo "$cores")"
  ((memory >= 1)) || memory=1
  echo "$((cores < memory ? cores : memory))"
}

# ccache is used where it is installed and its folder can be written. The environment only counts at the first configure of a build
# folder, so a ccache that appears later doesn't rebuild anything. Relative paths let two clones share the cache.
use_ccache() {
  local folder="${CCACHE_DIR:-${HOME:-}}"
  if command -v ccache >/dev/null && [[ -n "$folder" && -w "$folder" ]]; then
    export CMAKE_C_COMPILER_LAUNCHER=ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache CMAKE_CUDA_COMPILER_LAUNCHER=ccache
    export CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1
  fi
}

# configured PRESET: its folder in build/ was configured completely, from this very place.
configured() {
  local folder="$root/build/$1"
  [[ -f "$folder/build.ninja" ]] && grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$folder/CMakeCache.txt" 2>/dev/null
}

# configure PRESET [cmake options]: a folder left by a moved tree or an interrupted configure starts afresh.
configure() {
  local preset="$1"
  shift
  local fresh=()
  configured "$preset" || fresh=(--fresh)
  (cd "$root" && cmake --preset "$preset" "${fresh[@]}" --log-level=WARNING "$@") || fail 70 "configure of preset $preset failed"
}

# cudnn_frontend: prints the folder of cudnn-frontend's headers, which the plugin cudnn is compiled against: that in
# $MSABENCH_CUDNN_FRONTEND, or of the package on PyPI, fetched once into build/. Prints nothing, and why on stderr, where there is no
# CUDA toolkit for it or the package can't be had: the plugin is left out then, and CMake says so.
cudnn_frontend() {
  local version=1.32.0 folder="$root/build/cudnn-frontend" fetched
  if [[ -n "${MSABENCH_CUDNN_FRONTEND:-}" ]]; then
    printf '%s' "$MSABENCH_CUDNN_FRONTEND"
    return
  fi
  command -v nvcc >/dev/null || return 0
  folder="$folder-$version"
  if [[ ! -f "$folder/include/cudnn_frontend.h" ]]; then
    mkdir -p "$root/build"
    fetched="$(mktemp -d "$root/build/fetched.XXXXXX")"
    if python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: -d "$fetched" \
      "nvidia-cudnn-frontend==$version" >/dev/null 2>"$fetched/why" &&
      python3 -m zipfile -e "$fetched"/*.whl "$fetched/whole" && [[ -f "$fetched/whole/include/cudnn_frontend.h" ]]; then
      rm -rf "$folder"
      mv "$fetched/whole" "$folder"
    else
      say "nvidia-cudnn-frontend $version can't be fetched, so the plugin cudnn is left out: $(tail -n 1 "$fetched/why")" >&2
    fi
    rm -rf "$fetched"
  fi
  [[ ! -f "$folder/include/cudnn_frontend.h" ]] || printf '%s' "$folder/include"
}

build() { # build PRESET [ninja targets]
  local preset="$1"
  shift
  local quiet=(--quiet)
  [[ ! -t 1 ]] || quiet=() # a person sees the progress
  ninja -C "$root/build/$preset" -j "$(job_count)" "${quiet[@]}" "$@" || fail 70 "build of preset $preset failed"
}

# has_target PRESET TARGET: the build folder knows it.
has_target() { ninja -C "$root/build/$1" -t query "$2" >/dev/null 2>&1; }

# stage NAME COMMAND...: runs it, and says how many seconds it took.
stage() {
  local name="$1" start="$SECONDS"
  shift
  say "$name ..."
  "$@"
  say "$name took $((SECONDS - start)) s"
}

use_ccache
