/* SPDX-License-Identifier: Apache-2.0 */
/*
 * acl_forward.c - libascendcl of 8.5: a second public layer above libacl_rt under the same names
 * (so the target is looked up in that library, not by the loader's order). In 9.2 libascendcl has
 * no function of its own and only needs libacl_rt: both are found in the field.
 */
#include <dlfcn.h>
#include <stdio.h>

#include "call.h"
#include "sim_abi.h"

#define FN(ret, sym, out, size, params, args, body) FORWARD_##sym,
enum forward_index {
#include "acl.def"
    FORWARD_COUNT
};
#undef FN

static void *targets[FORWARD_COUNT];

__attribute__((constructor)) static void forward_setup(void)
{
    static const char *const names[FORWARD_COUNT] = {
#define FN(ret, sym, out, size, params, args, body) #sym,
#include "acl.def"
#undef FN
    };
    void *library = dlopen("libacl_rt.so", RTLD_NOW | RTLD_LOCAL);

    if (!library) {
        fprintf(stderr, "npusim: %s\n", dlerror());
        return;
    }
    for (int i = 0; i < FORWARD_COUNT; i++)
        targets[i] = dlsym(library, names[i]);
}

#define FN(ret, sym, out, size, params, args, body)                                                \
    SIM_EXPORT ret sym params                                                                      \
    {                                                                                              \
        return ((ret(*) params)targets[FORWARD_##sym])args;                                        \
    }
#include "acl.def"
