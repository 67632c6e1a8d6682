/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_acl.c - a libacl_rt.so for what the simulated one cannot be made to do: calls that never
 * return (a hook that jumps away), calls by the hundred thousand, wrappers that are one jump.
 */
#include <stdint.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default"), noinline))

__attribute__((visibility("default"))) void (*fake_hook)(
    void); /* called in the middle of aclrtMalloc */
static uint64_t next_address = 0x100000000000;

int aclrtMalloc(void **ret, uint64_t size, int policy);
int aclrtMallocCached(void **ret, uint64_t size, int policy);
int aclrtMallocAlign32(void **ret, uint64_t size, int policy);
int aclrtFree(void *address);
int aclrtSetDevice(int device);

EXPORT int aclrtMalloc(void **ret, uint64_t size, int policy)
{
    (void)policy;
    if (fake_hook)
        fake_hook();
    *ret = (void *)next_address;
    next_address += (size + 4095) & ~4095ull;
    return 0;
}

/* compiled to one jump: both functions have the same frame */
EXPORT int aclrtMallocCached(void **ret, uint64_t size, int policy)
{
    return aclrtMalloc(ret, size, policy);
}

/* a probed call inside a probed call, each with a frame of its own */
EXPORT int aclrtMallocAlign32(void **ret, uint64_t size, int policy)
{
    int result = aclrtMalloc(ret, size + 64, policy);

    return result ? result + 1 : 0;
}

EXPORT int aclrtFree(void *address)
{
    return address ? 0 : 107000;
}

EXPORT int aclrtSetDevice(int device)
{
    return device < 0 ? 107001 : 0;
}
