/* SPDX-License-Identifier: Apache-2.0 */
/* mstx.c - libms_tools_ext as it is when no tool is attached: every call does nothing. */
#include "call.h"
#include "sim_abi.h"

static int mstx_tool(uint64_t *id)
{
    if (!id)
        return 1;
    *id = 0;
    return 0;
}

#define FN(ret, sym, out, size, params, args, body)                                                \
    SIM_FUNCTION(ret, sym, sym, out, size, params, args, body)
#include "mstx.def"
