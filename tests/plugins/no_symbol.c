/* SPDX-License-Identifier: Apache-2.0
 * A shared object like any other, but no plugin. */
__attribute__((visibility("default"))) int msabench_is_not_here(void);
int msabench_is_not_here(void) { return 0; }
