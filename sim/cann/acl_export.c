/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acl_export.c - the exported functions of the library that has the ACL bodies: libascendcl (8.1),
 * libacl_rt_impl (8.5) or libruntime (9.2); from 8.5 on their names end in Impl.
 */
#include "acl.h"
#include "call.h"

#if SIM_LAYOUT == 81
#define FN(ret, sym, out, size, params, args, body)                                                \
    SIM_FUNCTION(ret, sym, sym, out, size, params, args, body)
#else
#define FN(ret, sym, out, size, params, args, body)                                                \
    SIM_FUNCTION(ret, sym##Impl, sym, out, size, params, args, body)
#endif
#include "acl.def"
