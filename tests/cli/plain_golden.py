# SPDX-License-Identifier: Apache-2.0
"""Golden files written in plain Python: the formulas of docs/contract.md on lists of floats, sharing no code with the
reference. Small problems only; sums by math.fsum, so that the last bits are not those of the reference either."""

import json
import math
import random

INF = math.inf


class Tensor:
    """Packed values of one shape; f64, or i32 where integer."""

    def __init__(self, shape, values, integer=False):
        assert math.prod(shape) == len(values), (shape, len(values))
        self.shape, self.values, self.integer = list(shape), list(values), integer


def flat(nested):
    return [x for part in nested for x in flat(part)] if isinstance(nested, list) else [nested]


def write(path, parameters, tensors):
    """A safetensors file."""
    import array
    header, data = {"__metadata__": {"case": json.dumps(parameters)}}, b""
    for name, tensor in tensors.items():
        raw = array.array("i" if tensor.integer else "d", tensor.values).tobytes()
        header[name] = {"dtype": "I32" if tensor.integer else "F64", "shape": tensor.shape,
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def normal(source, *shape):
    if not shape:
        return source.gauss(0, 1)
    return [normal(source, *shape[1:]) for _ in range(shape[0])]


def dot(a, b):
    return math.fsum(x * y for x, y in zip(a, b))


def softmax(scores):
    """Weights and log-sum-exp."""
    if not scores:
        return [], -INF
    m = max(scores)
    total = math.fsum(math.exp(s - m) for s in scores)
    return [math.exp(s - m) / total for s in scores], m + math.log(total)


def mix(weights, rows, width):
    return [math.fsum(w * row[c] for w, row in zip(weights, rows)) for c in range(width)]


def select(scores, own, topk, local, init):
    """Ascending ids of the visible blocks 0 .. own that are selected, then -1."""
    chosen = {b for b in range(own + 1) if b < init or b > own - local}
    for b in sorted(range(own + 1), key=lambda b: (-scores[b], b)):
        if len(chosen) < topk:
            chosen.add(b)
    return sorted(chosen) + [-1] * (topk - len(chosen))


def zeros(*shape):
    return [zeros(*shape[1:]) for _ in range(shape[0])] if shape else 0.0


def attention(seed, q_len, kv_len, hq, hkv, d, didx, block, topk, local, init, scale_q=1.0):
    source = random.Random(seed)
    blocks = -(-kv_len // block)
    q = [[[scale_q * x for x in head] for head in row] for row in normal(source, q_len, hq, d)]
    k, v = normal(source, kv_len, hkv, d), normal(source, kv_len, hkv, d)
    q_idx, k_idx = normal(source, q_len, hkv, didx), normal(source, kv_len, didx)
    d_out = normal(source, q_len, hq, d)
    group, scale, index_scale = hq // hkv, 1 / math.sqrt(d), 1 / math.sqrt(didx)

    def visible(i):
        return range(max(0, kv_len - q_len + i + 1))

    scores = [[[-INF] * blocks for _ in range(q_len)] for _ in range(hkv)]
    ids = [[None] * hkv for _ in range(q_len)]
    for i in range(q_len):
        for r in range(hkv):
            row = scores[r][i]
            for j in visible(i):
                row[j // block] = max(row[j // block], index_scale * dot(q_idx[i][r], k_idx[j]))
            ids[i][r] = select(row, (len(visible(i)) + block - 1) // block - 1, topk, local, init)

    def attend(i, h, keys):
        r = h // group
        weights, lse = softmax([scale * dot(q[i][h], k[j][r]) for j in keys])
        return weights, lse, mix(weights, [v[j][r] for j in keys], d)

    def keys_of(i, r):
        return [j for j in visible(i) if j // block in ids[i][r]]

    out, lse, dense_out, dense_lse = zeros(q_len, hq), zeros(q_len, hq), zeros(q_len, hq), zeros(q_len, hq)
    dq, dk, dv = zeros(q_len, hq, d), zeros(kv_len, hkv, d), zeros(kv_len, hkv, d)
    for i in range(q_len):
        for h in range(hq):
            r = h // group
            keys = keys_of(i, r)
            weights, lse[i][h], o = attend(i, h, keys)
            out[i][h] = o
            _, dense_lse[i][h], dense_out[i][h] = attend(i, h, visible(i))
            mean = dot(d_out[i][h], o)
            for p, j in zip(weights, keys):
                ds = scale * p * (dot(d_out[i][h], v[j][r]) - mean)
                for c in range(d):
                    dq[i][h][c] += ds * k[j][r][c]
                    dk[j][r][c] += ds * q[i][h][c]
                    dv[j][r][c] += p * d_out[i][h][c]

    def kl(keys_for):
        loss, dq_idx, dk_idx = [], zeros(q_len, hkv, didx), zeros(kv_len, didx)
        factor = 1 / (max(q_len, 1) * hkv)
        for i in range(q_len):
            for r in range(hkv):
                keys = keys_for(i, r)
                heads = [attend(i, h, keys)[0] for h in range(r * group, (r + 1) * group)]
                teacher = [math.fsum(head[j] for head in heads) / group for j in range(len(keys))]
                index = [index_scale * dot(q_idx[i][r], k_idx[j]) for j in keys]
                student, index_lse = softmax(index)
                for j, p, p_idx, s in zip(keys, teacher, student, index):
                    if p > 0:
                        loss.append(factor * p * (math.log(p) - (s - index_lse)))
                    ds = index_scale * factor * (p_idx - p)
                    for c in range(didx):
                        dq_idx[i][r][c] += ds * k_idx[j][c]
                        dk_idx[j][c] += ds * q_idx[i][r][c]
        return [math.fsum(loss)], dq_idx, dk_idx

    kl_sparse, kl_warmup = kl(keys_of), kl(lambda i, r: visible(i))
    parameters = {"kind": "attention", "q_len": q_len, "kv_len": kv_len, "hq": hq, "hkv": hkv, "d": d, "didx": didx,
                  "block": block, "topk": topk, "local": local, "init": init, "scale_q": scale_q}
    per_row, per_key = [q_len, hq, d], [kv_len, hkv, d]
    tensors = {
        "q": Tensor(per_row, flat(q)), "k": Tensor(per_key, flat(k)), "v": Tensor(per_key, flat(v)),
        "q_idx": Tensor([q_len, hkv, didx], flat(q_idx)), "k_idx": Tensor([kv_len, didx], flat(k_idx)),
        "d_out": Tensor(per_row, flat(d_out)), "block_scores": Tensor([hkv, q_len, blocks], flat(scores)),
        "block_ids": Tensor([q_len, hkv, topk], flat(ids), integer=True),
        "out": Tensor(per_row, flat(out)), "lse": Tensor([q_len, hq], flat(lse)),
        "dq": Tensor(per_row, flat(dq)), "dk": Tensor(per_key, flat(dk)), "dv": Tensor(per_key, flat(dv)),
        "dense_out": Tensor(per_row, flat(dense_out)), "dense_lse": Tensor([q_len, hq], flat(dense_lse)),
    }
    for name, (loss, dq_idx, dk_idx) in (("kl_sparse", kl_sparse), ("kl_warmup", kl_warmup)):
        tensors[name] = Tensor([1], loss)
        tensors[name + "_dq_idx"] = Tensor([q_len, hkv, didx], flat(dq_idx))
        tensors[name + "_dk_idx"] = Tensor([kv_len, didx], flat(dk_idx))
    return parameters, tensors


def text_layer(seed, seq, hidden, hq, hkv, d, didx, block, topk, local, rot, theta=5e6, eps=1e-6):
    source = random.Random(seed)
    x = normal(source, seq, hidden)
    weights = {name: [[y / math.sqrt(len(row)) for y in row] for row in normal(source, rows, columns)]
               for name, rows, columns in (("wq", hq * d, hidden), ("wk", hkv * d, hidden), ("wv", hkv * d, hidden),
                                           ("wo", hidden, hq * d), ("wiq", hkv * didx, hidden), ("wik", didx, hidden))}
    norms = {name: [y / 4 for y in normal(source, width)]
             for name, width in (("q_norm", d), ("k_norm", d), ("iq_norm", didx), ("ik_norm", didx))}

    def project(rows, name):
        return [[dot(row, w) for w in weights[name]] for row in rows]

    def heads(name, norm, width):
        """[token][head][width], normalised and rotated."""
        result = []
        for position, row in enumerate(project(x, name)):
            result.append([])
            for first in range(0, len(row), width):
                y = row[first:first + width]
                rms = math.sqrt(math.fsum(a * a for a in y) / width + eps)
                y = [a / rms * (1 + w) for a, w in zip(y, norms[norm])]
                half = rot // 2
                for i in range(half):
                    angle = position * theta ** (-2 * i / rot)
                    a, b = y[i], y[i + half]
                    y[i] = a * math.cos(angle) - b * math.sin(angle)
                    y[i + half] = b * math.cos(angle) + a * math.sin(angle)
                result[-1].append(y)
        return result

    q, k = heads("wq", "q_norm", d), heads("wk", "k_norm", d)
    q_idx, k_idx = heads("wiq", "iq_norm", didx), heads("wik", "ik_norm", didx)
    v = project(x, "wv")
    ids, attended = [], []
    for i in range(seq):
        row = []
        for r in range(hkv):
            best = [-INF] * (i // block + 1)
            for j in range(i + 1):
                best[j // block] = max(best[j // block], dot(q_idx[i][r], k_idx[j][0]) / math.sqrt(didx))
            chosen = select(best, i // block, topk, local, 0)
            ids.append(chosen)
            keys = [j for j in range(i + 1) if j // block in chosen]
            for h in range(r * (hq // hkv), (r + 1) * (hq // hkv)):
                p, _ = softmax([dot(q[i][h], k[j][r]) / math.sqrt(d) for j in keys])
                row += mix(p, [v[j][r * d:(r + 1) * d] for j in keys], d)
        attended.append(row)
    parameters = {"kind": "text_layer", "hidden": hidden, "hq": hq, "hkv": hkv, "d": d, "hidx": hkv, "didx": didx,
                  "block": block, "topk": topk, "local": local, "rot": rot, "theta": theta, "eps": eps, "seq": seq}
    tensors = {"hidden": Tensor([seq, hidden], flat(x))}
    tensors |= {name: Tensor([len(w), len(w[0])], flat(w)) for name, w in weights.items()}
    tensors |= {name: Tensor([len(w)], w) for name, w in norms.items()}
    tensors["block_ids"] = Tensor([seq, hkv, topk], flat(ids), integer=True)
    tensors["output"] = Tensor([seq, hidden], flat(project(attended, "wo")))
    return parameters, tensors


def vit3d(seed, grids, heads, d, merge=2, window=4, theta=1e4):
    source = random.Random(seed)
    boundaries, positions = [0], []
    for t, h, w in grids:
        for frame in range(t):
            in_segment = frame % window if window else frame
            if in_segment == 0 and frame > 0:
                boundaries.append(len(positions))
            positions += [(in_segment, a * merge + i, b * merge + j) for a in range(h // merge)
                          for b in range(w // merge) for i in range(merge) for j in range(merge)]
        boundaries.append(len(positions))
    tokens, pairs = len(positions), d // 3 // 2
    q, k, v = (normal(source, tokens, heads, d) for _ in range(3))

    def rotated(x):
        y = [[list(head) for head in row] for row in x]
        for position, row in zip(positions, y):
            angles = [p * theta ** (-2 * i / (2 * pairs)) for p in position for i in range(pairs)]
            for head in row:
                for i, angle in enumerate(angles):
                    a, b = head[i], head[i + 3 * pairs]
                    head[i] = a * math.cos(angle) - b * math.sin(angle)
                    head[i + 3 * pairs] = b * math.cos(angle) + a * math.sin(angle)
        return y

    q_rope, k_rope = rotated(q), rotated(k)
    out, lse = [], []
    for first, end in zip(boundaries, boundaries[1:]):
        for i in range(first, end):
            for h in range(heads):
                p, l = softmax([dot(q_rope[i][h], k_rope[j][h]) / math.sqrt(d) for j in range(first, end)])
                out += mix(p, [v[j][h] for j in range(first, end)], d)
                lse.append(l)
    parameters = {"kind": "vit3d", "grids": [list(g) for g in grids], "heads": heads, "d": d, "merge": merge,
                  "window": window, "theta": theta}
    shape = [tokens, heads, d]
    return parameters, {
        "q": Tensor(shape, flat(q)), "k": Tensor(shape, flat(k)), "v": Tensor(shape, flat(v)),
        "cu_seqlens": Tensor([len(boundaries)], boundaries, integer=True),
        "positions": Tensor([tokens, 3], flat([list(p) for p in positions]), integer=True),
        "q_rope": Tensor(shape, flat(q_rope)), "k_rope": Tensor(shape, flat(k_rope)),
        "out": Tensor(shape, out), "lse": Tensor([tokens, heads], lse)}
