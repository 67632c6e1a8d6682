/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.c - the observed program of the benchmark: calls a function pair in a loop when told to.
 *
 * Reads commands from stdin, one a line, and answers each with one line:
 *   pair N      N allocate+free pairs of aclrtMallocAlign32/aclrtFree; answers thread CPU ns per
 * pair leak N      N malloc+free pairs of the library that memleak-bpfcc watches; answers ns per
 * pair block N     N MallocBlock+FreeBlock pairs of libtorch_npu; answers ns per pair rate R S
 * pairs at R events per second for S seconds (2 events a pair); answers pairs done probed whether
 * the entry of aclrtMallocAlign32 carries a breakpoint now (0 or 1) quit argv: PATH-OF-LIBRARY (its
 * aclrt functions are used) PATH-OF-MEMLEAK-LIBRARY [PATH-OF-LIBTORCH_NPU]
 */
#include <dlfcn.h> /* dladdr needs _GNU_SOURCE, which the project sets */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int (*malloc_fn)(void **, size_t, int);
typedef int (*free_fn)(void *);
typedef int (*device_fn)(int32_t);
typedef void *(*block_malloc_fn)(size_t, void *, int);
typedef void (*block_free_fn)(void *);

static malloc_fn acl_malloc;
static free_fn acl_free;
static void *(*leak_malloc)(size_t);
static void (*leak_free)(void *);
static block_malloc_fn block_malloc;
static block_free_fn block_free;
static unsigned char first_bytes[16], leak_bytes[16];

static uint64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void pair(void)
{
    void *p = NULL;
    if (acl_malloc(&p, 4096, 0) != 0 || acl_free(p) != 0) {
        fprintf(stderr, "target: a call failed\n");
        exit(1);
    }
}

static void run_rate(uint64_t rate, uint64_t seconds)
{
    uint64_t begin = now_ns(CLOCK_MONOTONIC), total = rate * seconds / 2, done = 0;

    while (done < total) {
        uint64_t due = (now_ns(CLOCK_MONOTONIC) - begin) * rate / 2 / 1000000000ull;
        for (; done < due && done < total; done++)
            pair();
    }
    printf("%llu %llu\n", (unsigned long long)done,
           (unsigned long long)(now_ns(CLOCK_MONOTONIC) - begin));
}

/* Allocations happen deep in a program, and a tool that takes stacks pays for the depth: every
 * measurement of pairs is made 16 calls down, with frame pointers. */
__attribute__((noinline,
               optimize("no-omit-frame-pointer", "no-optimize-sibling-calls"))) static void
deep(unsigned depth, void (*fn)(unsigned long long), unsigned long long n)
{
    if (depth)
        deep(depth - 1, fn, n);
    else
        fn(n);
    __asm__ volatile("" ::: "memory");
}

static void run_pairs(unsigned long long n)
{
    for (unsigned long long i = 0; i < n; i++)
        pair();
}

static void run_leaks(unsigned long long n)
{
    for (unsigned long long i = 0; i < n; i++)
        leak_free(leak_malloc(4096));
}

static void run_command(const char *line)
{
    unsigned long long n, seconds;
    uint64_t begin;

    if (sscanf(line, "pair %llu", &n) == 1) {
        begin = now_ns(CLOCK_THREAD_CPUTIME_ID);
        deep(16, run_pairs, n);
        printf("%.1f\n", (double)(now_ns(CLOCK_THREAD_CPUTIME_ID) - begin) / n);
    } else if (sscanf(line, "leak %llu", &n) == 1) {
        begin = now_ns(CLOCK_THREAD_CPUTIME_ID);
        deep(16, run_leaks, n);
        printf("%.1f\n", (double)(now_ns(CLOCK_THREAD_CPUTIME_ID) - begin) / n);
    } else if (sscanf(line, "block %llu", &n) == 1 && block_malloc) {
        begin = now_ns(CLOCK_THREAD_CPUTIME_ID);
        for (unsigned long long i = 0; i < n; i++)
            block_free(block_malloc(2 << 20, NULL, 0));
        printf("%.1f\n", (double)(now_ns(CLOCK_THREAD_CPUTIME_ID) - begin) / n);
    } else if (sscanf(line, "rate %llu %llu", &n, &seconds) == 2) {
        run_rate(n, seconds);
    } else if (strncmp(line, "leaked", 6) == 0) {
        printf("%d\n", memcmp((void *)leak_malloc, leak_bytes, sizeof(leak_bytes)) != 0);
    } else if (strncmp(line, "probed", 6) == 0) {
        printf("%d\n", memcmp((void *)acl_malloc, first_bytes, sizeof(first_bytes)) != 0);
    } else {
        printf("?\n");
    }
}

static void *need(void *library, const char *name)
{
    void *p = dlsym(library, name);
    if (!p) {
        fprintf(stderr, "target: no %s\n", name);
        exit(1);
    }
    return p;
}

/* The first bytes of a function as the file has them: in memory a breakpoint may be there already.
 * The benchmark's libraries are linked with file offsets equal to addresses. */
static void bytes_from_file(const char *path, void *function, unsigned char ret[16])
{
    Dl_info info;
    FILE *f = fopen(path, "r");

    if (!f || !dladdr(function, &info) ||
        fseek(f, (char *)function - (char *)info.dli_fbase, SEEK_SET) != 0 ||
        fread(ret, 1, 16, f) != 16) {
        fprintf(stderr, "target: cannot read %s\n", path);
        exit(1);
    }
    fclose(f);
}

int main(int argc, char **argv)
{
    char line[256];
    void *library = argc > 2 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    void *leak = library ? dlopen(argv[2], RTLD_NOW | RTLD_LOCAL) : NULL;
    device_fn set_device;

    if (!library || !leak) {
        fprintf(stderr, "target: %s\n", argc > 2 ? dlerror() : "two libraries are needed");
        return 1;
    }
    acl_malloc = (malloc_fn)need(library, "aclrtMallocAlign32");
    acl_free = (free_fn)need(library, "aclrtFree");
    leak_malloc = (void *(*)(size_t))need(leak, "malloc");
    leak_free = (void (*)(void *))need(leak, "free");
    bytes_from_file(argv[2], (void *)leak_malloc, leak_bytes);
    bytes_from_file(argv[1], (void *)acl_malloc, first_bytes);
    set_device = (device_fn)dlsym(library, "aclrtSetDevice");
    if (set_device && set_device(0) != 0)
        return 1;
    if (argc > 3) {
        void *torch = dlopen(argv[3], RTLD_NOW | RTLD_GLOBAL);
        if (!torch) {
            fprintf(stderr, "target: %s\n", dlerror());
            return 1;
        }
        block_malloc =
            (block_malloc_fn)need(torch, "_ZN7c10_npu19NPUCachingAllocator11MallocBlockEmPvi");
        block_free = (block_free_fn)need(torch, "_ZN7c10_npu19NPUCachingAllocator9FreeBlockEPv");
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    printf("ready\n");
    while (fgets(line, sizeof(line), stdin) && strncmp(line, "quit", 4) != 0)
        run_command(line);
    return 0;
}
