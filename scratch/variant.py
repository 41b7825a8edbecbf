# Applies named changes to a copy of kernels/cuda_sm90: variant.py FOLDER CHANGE...
import sys
folder, changes = sys.argv[1], sys.argv[2:]
name = folder + "/prefill_index.cu"
s = open(name).read()
def rep(a, b):
    global s
    assert s.count(a) == 1, (a, s.count(a))
    s = s.replace(a, b)
PRODUCT = """    start_products<T, shape>(products, query_descriptor,
                             k_major_descriptor(tiles_at + place.stage * shape::stage_bytes));
"""
for change in changes:
    if change == "lane":  # the descriptor recomputed as before
        rep("__shfl_sync(all_lanes, static_cast<int>(threadIdx.x) / group_threads, 0) - 1", "threadIdx.x / group_threads - 1")
    elif change in ("permit1", "permit2", "permit3"):
        n = int(change[-1])
        rep(PRODUCT, """    if constexpr (shape::row_groups == 4) meet(8 + group, 2 * group_threads);
""" + PRODUCT)
        rep("""    pin(products);
""", """    pin(products);
    if constexpr (shape::row_groups == 4)
      asm volatile("bar.arrive %%0, %%1;" ::"r"(8 + (group + %d) %% 4), "r"(2 * group_threads) : "memory");
""" % n)
        rep("  ring_place<shape::stages> place;\n  for (int tile = work.from; tile < work.to; ++tile, place.next()) {\n    wait_for(&ring.full", """  ring_place<shape::stages> place;
  if (shape::row_groups == 4 && group >= 4 - %d)
    asm volatile("bar.arrive %%0, %%1;" ::"r"(8 + (group + %d) %% 4), "r"(2 * group_threads) : "memory");
  for (int tile = work.from; tile < work.to; ++tile, place.next()) {
    wait_for(&ring.full""" % (n, n))
    elif change == "halves":
        rep("best[half].insert(taken[half]", "if (__any_sync(all_lanes, taken[half])) best[half].insert(taken[half]")
    elif change.startswith("group"):
        k = folder + "/key_scales.cuh"
        t = open(k).read()
        assert "group = 5;" in t
        open(k, "w").write(t.replace("group = 5;", "group = %s;" % change[5:]))
    else:
        raise SystemExit(change)
open(name, "w").write(s)
