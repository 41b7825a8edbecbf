# Variant: warpgroups start their products in turn.
import sys
s = open(sys.argv[1]).read()
def rep(a, b):
    global s
    assert s.count(a) == 1, (a, s.count(a))
    s = s.replace(a, b)
rep("std::uint64_t queries, std::uint64_t keys) {\n  begin_products();", """std::uint64_t queries, std::uint64_t keys) {
  const int group = threadIdx.x / group_threads - 1;
  meet(8 + group, 2 * group_threads);
  begin_products();""")
rep("  commit_products();\n", """  commit_products();
  asm volatile("bar.arrive %0, %1;" ::"r"(8 + (group + 1) % shape::row_groups), "r"(2 * group_threads) : "memory");
""")
rep("  const std::uint32_t tiles_at = cuda::shared_address(tiles);\n", """  const std::uint32_t tiles_at = cuda::shared_address(tiles);
  if (group == shape::row_groups - 1)
    asm volatile("bar.arrive %0, %1;" ::"r"(8), "r"(2 * group_threads) : "memory");
""")
open(sys.argv[2], "w").write(s)
