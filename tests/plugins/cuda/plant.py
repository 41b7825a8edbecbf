#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants one fault each into the CUDA example plugin, for the device's conformance run and for sanitizers.

usage: plant.py FAULT SOURCE TARGET    writes TARGET, SOURCE with the fault
       plant.py --list                 names the faults that conformance has to find
       plant.py --list-sanitizers      names those that a tool of compute-sanitizer has to find; each has the tool's name
Each fault is one replacement that must fit SOURCE exactly once.
"""
import pathlib
import sys

FAULTS = {
    # Weights of the next block are written while slower threads still read those of this one.
    "race": ("    __syncthreads();  // before weights are written again\n", ""),
    # The last keys of a block that ends inside a row's view are left out.
    "missed_tail": (
        "min(std::int64_t{c.block}, pos + 1 - first)",
        "min(std::int64_t{c.block}, pos + 1 - first) / 8 * 8",
    ),
    # The first two tokens of every page take each other's place.
    "page_offset": (
        "j % c.page_size * token_stride;",
        "((j % c.page_size) < 2 && c.page_size > 1 ? 1 - j % c.page_size : j % c.page_size) * token_stride;",
    ),
    # Page times stride in 32 bits.
    "page_32_bits": ("return page * page_stride", "return static_cast<std::int32_t>(page * page_stride)"),
    # The log-sum-exp of rows past the first thread block's is not written.
    "unwritten_lse": ("c.lse != nullptr && threadIdx.x == 0", "c.lse != nullptr && threadIdx.x == 0 && row == 0"),
    # A result for the row past the last one.
    "beyond_t": ("if (row >= c.starts[c.batch]) return;", "if (row > c.starts[c.batch]) return;"),
    # Lengths are prepared outside of what a graph captures, so replays see those of the capture.
    "stale_graph": (
        "    const call c = call_of(p, args, rows);\n",
        """    call c = call_of(p, args, rows);
    static std::int32_t* kept = nullptr;
    if (kept == nullptr) cudaMalloc(&kept, 1 << 20);
    cudaStreamCaptureStatus capturing;
    cudaStreamIsCapturing(static_cast<cudaStream_t>(stream), &capturing);
    if (capturing == cudaStreamCaptureStatusNone)
      cudaMemcpyAsync(kept, c.kv_lens, static_cast<std::size_t>(c.batch) * sizeof *kept, cudaMemcpyDeviceToDevice,
                      static_cast<cudaStream_t>(stream));
    c.kv_lens = kept;
""",
    ),
    # -1 is taken as a block id: reads before the cache.
    "empty_slot": ("ids[slot] < 0 ? 0 :", "ids[slot] < -1 ? 0 :"),
}

RUN = """msabench_status run(msabench_plan* plan, const msabench_args* args, void*, void* stream) {
  return guarded([=] {
"""


def beside(kernel, threads):
    """A kernel of its own before each launch, on two integers of the plugin's; no result depends on it."""
    return RUN, f"""__global__ void beside(int* own) {{
  {kernel}
}}

{RUN}    static int* const own = [] {{
      int* p = nullptr;
      cudaMalloc(&p, 2 * sizeof *p);
      return p;
    }}();
    beside<<<1, {threads}, 0, static_cast<cudaStream_t>(stream)>>>(own);
"""


# Results are right in spite of these: the memory past an allocation is there, what it holds is not looked at.
SANITIZERS = {
    "memcheck": beside("own[2] = 1;", 1),
    "racecheck": FAULTS["race"],
    "initcheck": beside("own[1] = own[0];", 1),
    # Lanes of a mask that leaves them out.
    "synccheck": beside("__syncwarp(0xf);\n  own[0] = 1;", 32),
}


def main(arguments):
    lists = {"--list": FAULTS, "--list-sanitizers": SANITIZERS}
    if len(arguments) == 1 and arguments[0] in lists:
        print("\n".join(lists[arguments[0]]))
        return 0
    if len(arguments) != 3 or arguments[0] not in {**FAULTS, **SANITIZERS}:
        print(__doc__, file=sys.stderr)
        return 64
    old, new = {**FAULTS, **SANITIZERS}[arguments[0]]
    text = pathlib.Path(arguments[1]).read_text(encoding="utf-8")
    if text.count(old) != 1:
        print(f"plant.py: {arguments[0]}: its place is {text.count(old)} times in {arguments[1]}; mend the fault", file=sys.stderr)
        return 1
    pathlib.Path(arguments[2]).write_text(text.replace(old, new), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
