/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acl_wrap.c - libacl_rt from 8.5 on: each public function is one tail call of its Impl, which the
 * compiler makes a single jump (that is why this file is always optimised and never logs).
 */
#include "call.h"
#include "sim_abi.h"

#define FN(ret, sym, out, size, params, args, body)                                                \
    extern ret sym##Impl params;                                                                   \
    SIM_EXPORT ret sym params                                                                      \
    {                                                                                              \
        return sym##Impl args;                                                                     \
    }
#include "acl.def"
