# Other ways to do what the kernels do, as copies of them. Usage: variants.py ROOT OUT unchanged|normal
#   keys get another policy in the second-level cache
import pathlib, sys
root, out, which = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
folder = root / 'kernels/cuda_sm90'
names = ['score_stream.cuh', 'decode_attention.cuh', 'decode.cu', 'decode.h', 'decode_rows.cuh', 'row_selection.cuh', 'bulk_copies.cuh']
texts = {n: (folder / n).read_text() for n in names}
def change(name, old, new):
    assert texts[name].count(old) == 1, (name, old, texts[name].count(old))
    texts[name] = texts[name].replace(old, new)
change('bulk_copies.cuh', 'L2::evict_first.b64', 'L2::evict_%s.b64' % which)
(out / 'kernels/cuda_sm90').mkdir(parents=True, exist_ok=True)
for n in names:
    (out / 'kernels/cuda_sm90' / n).write_text(texts[n])
