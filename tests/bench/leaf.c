/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leaf.c - a libascendcl.so with the allocation pair alone and nothing below it: what is measured
 * on it is the cost of probes and programs, not of a driver. Built to begin with `push %rbp`, as
 * the functions of real libraries do: an instruction that the kernel single-steps costs 5 x more.
 */
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default"), noinline, optimize("no-omit-frame-pointer")))

int aclrtMallocAlign32(void **ptr, size_t size, int policy);
int aclrtFree(void *ptr);

static uintptr_t next = 0x120000000000;

API int aclrtMallocAlign32(void **ptr, size_t size, int policy)
{
    volatile int keep_frame = policy;
    (void)keep_frame;
    *ptr = (void *)next;
    next += size;
    return 0;
}

API int aclrtFree(void *ptr)
{
    volatile uintptr_t keep_frame = (uintptr_t)ptr;
    return keep_frame == 0;
}
