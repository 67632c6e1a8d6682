/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memleak_pair.c - the pair of leaf.c under the names that memleak-bpfcc probes in an object
 * (option -O): malloc and free, and the others that it insists on. Loaded RTLD_LOCAL, so nobody
 * else's malloc is replaced.
 */
#include <stddef.h>
#include <stdint.h>

#define API __attribute__((visibility("default"), noinline, optimize("no-omit-frame-pointer")))

void *malloc(size_t size);
void *calloc(size_t count, size_t size);
void *realloc(void *ptr, size_t size);
void free(void *ptr);
int munmap(void *ptr, size_t size);
void *mmap(void *ptr, size_t size, int protection, int flags, int fd, long offset);

/* never called; memleak-bpfcc wants to find them */
#define OTHER(name)                                                                                \
    void *name(size_t size);                                                                       \
    API void *name(size_t size)                                                                    \
    {                                                                                              \
        volatile uintptr_t p = size;                                                               \
        return (void *)p;                                                                          \
    }
OTHER(posix_memalign)
OTHER(valloc)
OTHER(memalign)
OTHER(pvalloc)
OTHER(aligned_alloc)

static uintptr_t next = 0x120000000000;

API void *malloc(size_t size)
{
    volatile uintptr_t p = next;
    next += size;
    return (void *)p;
}

API void *calloc(size_t count, size_t size)
{
    volatile uintptr_t p = next;
    next += count * size;
    return (void *)p;
}

API void *realloc(void *ptr, size_t size)
{
    volatile uintptr_t p = (uintptr_t)ptr + size;
    return (void *)p;
}

API void free(void *ptr)
{
    volatile uintptr_t keep_frame = (uintptr_t)ptr;
    (void)keep_frame;
}

API int munmap(void *ptr, size_t size)
{
    volatile uintptr_t keep_frame = (uintptr_t)ptr + size;
    return keep_frame == 0;
}

API void *mmap(void *ptr, size_t size, int protection, int flags, int fd, long offset)
{
    volatile uintptr_t p = (uintptr_t)ptr + size;
    return (void *)p;
}
