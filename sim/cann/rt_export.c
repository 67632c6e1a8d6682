/* SPDX-License-Identifier: Apache-2.0 */
/* rt_export.c - the exported functions of libruntime, one per row of rt.def. */
#include "call.h"
#include "rt.h"

#define FN(ret, sym, out, size, params, args, body)                                                \
    SIM_FUNCTION(ret, sym, sym, out, size, params, args, body)
#include "rt.def"
