/* SPDX-License-Identifier: Apache-2.0 */
/* hal_export.c - the exported functions of libascend_hal, one per row of hal.def. */
#include "call.h"
#include "hal.h"

#define FN(ret, sym, out, size, params, args, body)                                                \
    SIM_FUNCTION(ret, sym, sym, out, size, params, args, body)
#include "hal.def"
