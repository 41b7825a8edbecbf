# SPDX-License-Identifier: Apache-2.0
"""Writes a small recording as a model run would leave it: six tokens of two sequences of 200, two KV heads, bf16.

    python3 recorded_file.py FILE.safetensors
"""

import json
import random
import struct
import sys

SHAPE, LENGTHS = "h4x2.d32.b16.k3.l1.i0", "q3.n200.x2"
TOKENS, KEYS, HQ, HKV, HI, D, BLOCK, TOPK = 6, 400, 4, 2, 2, 32, 16, 3


def bf16(values):
    """Nearest, ties to even."""
    words = []
    for value in values:
        bits = struct.unpack("<I", struct.pack("<f", value))[0]
        words.append((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    return struct.pack(f"<{len(words)}H", *words)


def tensors(seed=1):
    """Name -> (dtype, shape, bytes). Keys drift slowly from token to token, as those of a model do."""
    draw = random.Random(seed)

    def drifting(rows, width):
        out, now = [], [draw.gauss(0, 1) for _ in range(width)]
        for _ in range(rows):
            now = [0.8 * x + 0.6 * draw.gauss(0, 1) for x in now]
            out += now
        return bf16(out)

    ids = []
    for token in range(TOKENS):
        own = (200 - 3 + token % 3) // BLOCK
        for _ in range(HKV):
            ids += sorted(draw.sample(range(own), TOPK - 1)) + [own]
    return {
        "q": ("BF16", [TOKENS, HQ, D], drifting(TOKENS, HQ * D)),
        "k": ("BF16", [KEYS, HKV, D], drifting(KEYS, HKV * D)),
        "v": ("BF16", [KEYS, HKV, D], drifting(KEYS, HKV * D)),
        "q_idx": ("BF16", [TOKENS, HI, D], drifting(TOKENS, HI * D)),
        "k_idx": ("BF16", [KEYS, D], drifting(KEYS, D)),
        "ids": ("I32", [TOKENS, HKV, TOPK], struct.pack(f"<{len(ids)}i", *ids)),
    }


def write(path, of):
    header, data = {}, b""
    for name, (dtype, shape, content) in of.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


if __name__ == "__main__":
    write(sys.argv[1], tensors())
