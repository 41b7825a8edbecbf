/* SPDX-License-Identifier: Apache-2.0 */
#include <msabench/plugin.h>

#include "layout.inc"
