/* SPDX-License-Identifier: Apache-2.0 */
/*
 * npumem/tag.h - a program says itself whose device memory it allocates. Copy this file anywhere.
 *
 *     npumem_tag_begin("UserDefined@myserver@kv_cache");
 *     ... allocate: aclrtMalloc, torch tensors ...
 *     npumem_tag_end();
 *     npumem_tag_address(tensor_pointer, "UserDefined@myserver@draft");   something that is there
 * already
 *
 * A tag holds for the calling thread, from begin to end; tags nest. It outranks everything else
 * that npumem knows about an allocation. Names are FRAMEWORK@COMPONENT@DETAIL, at most 47 bytes.
 *
 * No daemon is needed. The functions below do nothing; npumemd puts probes on them while it watches
 * the process, so that without it a tag costs one empty call (about a nanosecond). They are found
 * in the main program (also without -rdynamic, unless it is stripped) and in libnpumem_tag.so: code
 * in a shared object of its own defines NPUMEM_TAG_LIBRARY and links with -lnpumem_tag.
 */
#ifndef NPUMEM_TAG_H
#define NPUMEM_TAG_H

#include <stddef.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifdef NPUMEM_TAG_LIBRARY
void npumem_tag_push(const char *owner, size_t length);
void npumem_tag_pop(void);
void npumem_tag_memory(const void *address, const char *owner, size_t length);
#else
#define NPUMEM_TAG_POINT __attribute__((weak, noinline, used, visibility("default")))
void npumem_tag_push(const char *owner, size_t length);
void npumem_tag_pop(void);
void npumem_tag_memory(const void *address, const char *owner, size_t length);
NPUMEM_TAG_POINT void npumem_tag_push(const char *owner, size_t length)
{
    __asm__ volatile("" : : "r"(owner), "r"(length) : "memory");
}
NPUMEM_TAG_POINT void npumem_tag_pop(void)
{
    __asm__ volatile("" : : : "memory");
}
NPUMEM_TAG_POINT void npumem_tag_memory(const void *address, const char *owner, size_t length)
{
    __asm__ volatile("" : : "r"(address), "r"(owner), "r"(length) : "memory");
}
#undef NPUMEM_TAG_POINT
#endif

static inline void npumem_tag_begin(const char *owner)
{
    npumem_tag_push(owner, strlen(owner));
}

static inline void npumem_tag_end(void)
{
    npumem_tag_pop();
}

/* The block that begins at this address; one that is not followed yet (small, or from before) is
 * not named. */
static inline void npumem_tag_address(const void *address, const char *owner)
{
    npumem_tag_memory(address, owner, strlen(owner));
}

#ifdef __cplusplus
}
#endif
#endif
