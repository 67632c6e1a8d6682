/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_memory.c - cases of one process: nesting, sizes, codes, physical handles, pools, text.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "test_sim.h"

static const char *body_layer(void)
{
    return SIM_LAYOUT == 81 ? "libascendcl" : SIM_LAYOUT == 85 ? "libacl_rt_impl" : "libruntime";
}

static void check_inside(const struct log_line *inner, const struct log_line *outer)
{
    CHECK(inner->begin_ns >= outer->begin_ns && inner->end_ns <= outer->end_ns);
    EQUAL(inner->tid, outer->tid);
    EQUAL(inner->result, 0);
}

static void check_flag(uint64_t flag, unsigned device, bool huge, unsigned module)
{
    EQUAL(flag & 0x3ff, device);
    EQUAL(flag >> 10 & 15, 1); /* device memory */
    EQUAL(flag >> 14 & 7, 1);  /* HBM */
    EQUAL(flag >> 17 & 1, huge);
    EQUAL(flag >> 56, module);
}

static void test_nesting(void)
{
    struct sim_malloc_attr attr = {.attr = SIM_CFG_MODULE_ID, .value.module_id = SIM_MODULE_HCCL};
    struct sim_malloc_cfg cfg = {&attr, 1};
    const struct log_line *acl, *rt, *hal;
    struct log_line *lines;
    void *a, *b, *c;
    size_t count;

    EQUAL(aclrtSetDevice(3), 0);
    EQUAL(aclrtMalloc(&a, 3 * MIB, SIM_HUGE_FIRST), 0);
    EQUAL(aclrtMallocAlign32(&b, 1000, SIM_HUGE_FIRST), 0);
    EQUAL(aclrtMallocWithCfg(&c, 5 * MIB + 7, SIM_TYPE_HIGH_BAND_WIDTH, &cfg), 0);
    EQUAL(aclrtFree(a), 0);
    lines = log_read(NULL, &count);

    /* What the runtime took at the first aclrtSetDevice, with no allocation call above. */
    EQUAL(log_count(lines, count, NULL, "halMemAlloc"), 5);
    check_flag(log_nth(lines, count, "halMemAlloc", 0)->args[2], 3, true, SIM_MODULE_RUNTIME);

    acl = log_nth(lines, count, "aclrtMalloc", 0);
    rt = log_nth(lines, count, "rtMalloc", 0);
    hal = log_nth(lines, count, "halMemAlloc", 2);
    CHECK(!strcmp(acl->layer, body_layer()));
    CHECK(!strcmp(acl->symbol, SIM_LAYOUT == 81 ? "aclrtMalloc" : "aclrtMallocImpl"));
    check_inside(rt, acl);
    check_inside(hal, rt);
    EQUAL(acl->size_bytes, 3 * MIB);
    EQUAL(rt->size_bytes, 3 * MIB + 32);
    EQUAL(hal->size_bytes, 3 * MIB + 32);
    EQUAL(hal->out, (uintptr_t)a);
    EQUAL(acl->out, (uintptr_t)a);
    check_flag(hal->args[2], 3, true, SIM_MODULE_APP);

    hal = log_nth(lines, count, "halMemAlloc", 3);
    EQUAL(log_nth(lines, count, "aclrtMallocAlign32", 0)->size_bytes, 1000);
    EQUAL(hal->size_bytes, 1024);
    check_flag(hal->args[2], 3, false, SIM_MODULE_APP);

    hal = log_nth(lines, count, "halMemAlloc", 4);
    check_inside(log_nth(lines, count, "rtsMalloc", 0),
                 log_nth(lines, count, "aclrtMallocWithCfg", 0));
    check_inside(log_nth(lines, count, "rtMemAlloc", 0), log_nth(lines, count, "rtsMalloc", 0));
    EQUAL(hal->size_bytes, 5 * MIB + 32);
    check_flag(hal->args[2], 3, true, SIM_MODULE_HCCL);

    check_inside(log_nth(lines, count, "rtFree", 0), log_nth(lines, count, "aclrtFree", 0));
    check_inside(log_nth(lines, count, "halMemFree", 0), log_nth(lines, count, "rtFree", 0));
    EQUAL(log_nth(lines, count, "halMemFree", 0)->args[0], (uintptr_t)a);
}

static void test_oom(void)
{
    const size_t tries = SIM_LAYOUT == 92 ? 2 : 1; /* 9.2 trims and tries all once more */
    struct log_line *lines;
    void *a, *b;
    size_t count, first;

    EQUAL(aclrtSetDevice(0), 0);
    EQUAL(aclrtMalloc(&b, 2 * GIB, SIM_HUGE_FIRST), SIM_RT_MEMORY_ALLOCATION);
    EQUAL(aclrtMalloc(&b, 2 * GIB, SIM_HUGE_ONLY), SIM_RT_MEMORY_ALLOCATION);
    lines = log_read(NULL, &count);
    EQUAL(log_count(lines, count, NULL, "halMemAlloc"), 2 + 3 * tries);
    for (size_t i = 0; i < 2 * tries; i++) {
        const struct log_line *hal = log_nth(lines, count, "halMemAlloc", 2 + i);

        EQUAL(hal->result, SIM_DRV_OUT_OF_MEMORY);
        EQUAL(hal->args[2] >> 17 & 1, i % 2 == 0);
    }
    EQUAL(log_nth(lines, count, "aclrtMalloc", 0)->result, SIM_RT_MEMORY_ALLOCATION);

    /* 1018 MiB are left, which huge pages can't hold exactly but small pages can. */
    EQUAL(used_bytes(), RUNTIME_BYTES);
    EQUAL(aclrtMallocAlign32(&a, 1017 * MIB + 4096, SIM_HUGE_FIRST), 0);
    EQUAL(aclrtMallocAlign32(&b, 1 * MIB, SIM_HUGE_FIRST), SIM_RT_MEMORY_ALLOCATION);
    EQUAL(aclrtFree(a), 0);
    EQUAL(used_bytes(), RUNTIME_BYTES);
    first = 2 + 3 * tries;
    EQUAL(aclrtMallocAlign32(&a, 1017 * MIB, SIM_NORMAL_ONLY), 0);
    EQUAL(aclrtMallocAlign32(&b, 1 * MIB + 32, SIM_HUGE_FIRST), SIM_RT_MEMORY_ALLOCATION);
    EQUAL(aclrtMallocAlign32(&b, 1 * MIB - 4096, SIM_HUGE_FIRST), 0);
    EQUAL(used_bytes(), GIB - 4096);
    lines = log_read(NULL, &count);
    EQUAL(log_nth(lines, count, "halMemAlloc", first)->result, 0);
}

static void test_vmm(void)
{
    struct sim_acl_phys_prop prop = {.mem_attr = SIM_ATTR_HBM_HUGE,
                                     .location = {2, SIM_LOCATION_DEVICE}};
    void *range, *handle, *second, *again;
    uint64_t base;
    char *at;

    EQUAL(aclrtSetDevice(2), 0);
    base = used_bytes();
    EQUAL(aclrtReserveMemAddress(&range, 72 * GIB, 0, NULL, 1), 0);
    EQUAL((uintptr_t)range & (2 * MIB - 1), 0);
    EQUAL(used_bytes(), base);
    EQUAL(aclrtMallocPhysical(&handle, 20 * MIB, &prop, 0), 0);
    EQUAL(used_bytes(), base + 20 * MIB);
    at = range;
    EQUAL(aclrtMapMem(at, 20 * MIB, 0, handle, 0), 0);
    EQUAL(aclrtMapMem(at + 40 * MIB, 10 * MIB, 10 * MIB, handle, 0), 0);
    strcpy(at + 10 * MIB, "one memory, two addresses");
    CHECK(!strcmp(at + 40 * MIB, "one memory, two addresses"));
    CHECK(aclrtReleaseMemAddress(range) != 0); /* still mapped */
    CHECK(aclrtMapMem(at, 2 * MIB, 0, handle, 0) != 0);
    CHECK(aclrtMapMem(at + 60 * MIB, 20 * MIB, 2 * MIB, handle, 0) != 0);

    /* The memory goes back with the last of: handle, references, maps. */
    EQUAL(aclrtFreePhysical(handle), 0);
    CHECK(aclrtFreePhysical(handle) != 0);
    EQUAL(aclrtUnmapMem(at), 0);
    CHECK(aclrtUnmapMem(at) != 0);
    EQUAL(used_bytes(), base + 20 * MIB);
    EQUAL(aclrtMemRetainAllocationHandle(at + 41 * MIB, &again), 0);
    EQUAL((uintptr_t)again, (uintptr_t)handle);
    EQUAL(aclrtUnmapMem(at + 40 * MIB), 0);
    EQUAL(used_bytes(), base + 20 * MIB);
    EQUAL(aclrtFreePhysical(again), 0);
    EQUAL(used_bytes(), base);

    /* Sleep and wake: the same address, a new handle. */
    EQUAL(aclrtMallocPhysical(&second, 2 * MIB, &prop, 0), 0);
    EQUAL(aclrtMapMem(at, 2 * MIB, 0, second, 0), 0);
    EQUAL(at[10], 0); /* not the old content */
    EQUAL(aclrtUnmapMem(at), 0);
    EQUAL(aclrtFreePhysical(second), 0);
    EQUAL(aclrtReleaseMemAddress(range), 0);
    EQUAL(used_bytes(), base);
}

static void test_vmm_oom(void)
{
    struct sim_acl_phys_prop prop = {.mem_attr = SIM_ATTR_HBM_HUGE,
                                     .location = {0, SIM_LOCATION_DEVICE}};
    void *handles[4];
    struct log_line *lines;
    size_t count;

    EQUAL(aclrtMallocPhysical(&handles[0], 20 * MIB, &prop, 0), SIM_RT_CONTEXT_NULL);
    EQUAL(aclrtSetDevice(0), 0);
    EQUAL(aclrtMallocPhysical(&handles[0], 20 * MIB, &prop, 0), 0);
    EQUAL(aclrtMallocPhysical(&handles[1], 20 * MIB, &prop, 0), 0);
    EQUAL(aclrtMallocPhysical(&handles[2], 20 * MIB, &prop, 0), SIM_RT_MEMORY_ALLOCATION);
    EQUAL(aclrtFreePhysical(handles[0]), 0);
    EQUAL(aclrtMallocPhysical(&handles[2], 20 * MIB, &prop, 0), 0);
    lines = log_read(NULL, &count);
    EQUAL(log_nth(lines, count, "halMemCreate", 2)->result, SIM_DRV_OUT_OF_MEMORY);
    EQUAL(log_nth(lines, count, "halMemCreate", 0)->out, (uintptr_t)handles[0]);
}

static void test_host(void)
{
    char *own = malloc(4096);
    struct sim_ptr_attributes attributes;
    struct log_line *lines;
    void *host, *device, *managed, *mbuf;
    uint64_t base;
    size_t count;

    EQUAL(aclrtSetDevice(1), 0);
    base = used_bytes();
    EQUAL(aclrtMallocHost(&host, 10 * MIB), 0);
    EQUAL(aclrtHostRegister(own, 4096, 0, &device), 0);
    EQUAL(aclrtAllocBuf(&mbuf, 4096), 0);
    EQUAL(used_bytes(), base);
    EQUAL(aclrtMemAllocManaged(&managed, 1 * MIB, 0), 0);
    EQUAL(used_bytes(), base + 1 * MIB);
    EQUAL(aclrtPointerGetAttributes(host, &attributes), 0);
    EQUAL(attributes.location.type, SIM_LOCATION_HOST);
    EQUAL(aclrtPointerGetAttributes((char *)managed + 5000, &attributes), 0);
    EQUAL(attributes.location.type, SIM_LOCATION_DEVICE);
    EQUAL(attributes.location.id, 1);
    CHECK(aclrtFreeHost(managed) != 0);
    EQUAL(aclrtFree(managed), 0);
    EQUAL(aclrtHostUnregister(own), 0);
    CHECK(aclrtHostUnregister(own) != 0);
    EQUAL(aclrtFreeHost(host), 0);
    EQUAL(aclrtFreeBuf(mbuf), 0);
    lines = log_read(NULL, &count);
    EQUAL(log_nth(lines, count, "halMemAlloc", 2)->args[2] >> 10 & 15, SIM_VIRT_HOST);
    EQUAL(log_nth(lines, count, "halHostRegister", 0)->size_bytes, 4096);
}

static void test_pool(void)
{
    struct log_line *lines;
    void *pool, *stream, *a, *b, *c;
    uint64_t base, reserved;
    size_t count;

    EQUAL(aclrtSetDevice(0), 0);
    base = used_bytes();
    EQUAL(aclrtCreateStream(&stream), 0);
    EQUAL(aclrtMemPoolCreate(&pool, NULL), 0);
    EQUAL(used_bytes(), base);
    EQUAL(aclrtMemPoolMallocAsync(&a, 1 * MIB, pool, stream), 0);
    EQUAL(aclrtMemPoolMallocAsync(&b, 40 * MIB, pool, stream), 0);
    EQUAL(aclrtMemPoolMallocAsync(&c, 100, pool, stream), 0);
    memset(b, 7, 40 * MIB);
    CHECK((uintptr_t)b >= (uintptr_t)a + 1 * MIB || (uintptr_t)b + 40 * MIB <= (uintptr_t)a);
    reserved = used_bytes() - base;
    CHECK(reserved >= 41 * MIB && reserved <= 128 * MIB);
    lines = log_read(NULL, &count);
    EQUAL(log_count(lines, count, NULL, "halMemAlloc"), 2); /* the runtime's own two */
    EQUAL(aclrtMemPoolFreeAsync(a, stream), 0);
    CHECK(aclrtMemPoolFreeAsync(a, stream) != 0);
    EQUAL(aclrtFree(b), 0); /* legal for a pool's pointer */
    EQUAL(used_bytes() - base, reserved);
    EQUAL(aclrtMemPoolFreeAsync(c, stream), 0);
    EQUAL(aclrtMemPoolTrimTo(pool, 0), 0);
    EQUAL(used_bytes(), base);
    EQUAL(aclrtMemPoolMallocAsync(&a, 1 * MIB, pool, stream), 0);
    EQUAL(aclrtMemPoolDestroy(pool), 0);
    EQUAL(used_bytes(), base);
    EQUAL(aclrtMemPoolMallocAsync(&a, 1 * MIB, pool, stream), SIM_RT_PARAM_INVALID);
}

static void test_errors(void)
{
    int32_t device;
    void *a;

    EQUAL(aclrtGetDevice(&device), SIM_RT_CONTEXT_NULL);
    EQUAL(aclrtMalloc(&a, 4096, 0), SIM_RT_CONTEXT_NULL);
    EQUAL(aclrtMallocHost(&a, 4096), SIM_RT_CONTEXT_NULL);
    EQUAL(aclrtSetDevice(8), SIM_RT_INVALID_DEVICE);
    EQUAL(aclrtSetDevice(-1), SIM_RT_INVALID_DEVICE);
    EQUAL(aclrtSetDevice(7), 0);
    EQUAL(aclrtGetDevice(&device), 0);
    EQUAL(device, 7);
    EQUAL(aclrtMalloc(&a, 0, 0), SIM_ACL_INVALID_PARAM);
    EQUAL(aclrtMalloc(NULL, 4096, 0), SIM_ACL_INVALID_PARAM);
    EQUAL(aclrtMalloc(&a, 4096, 99), SIM_RT_PARAM_INVALID);
    EQUAL(aclrtMalloc(&a, SIZE_MAX, 0), SIM_ACL_INVALID_PARAM);
    EQUAL(aclrtMalloc(&a, 1ull << 60, 0), SIM_RT_MEMORY_ALLOCATION);
    EQUAL(aclrtFree(NULL), SIM_ACL_INVALID_PARAM);
    EQUAL(aclrtFree(&a), SIM_RT_PARAM_INVALID);
    EQUAL(aclrtMalloc(&a, 4096, 0), 0);
    CHECK(aclrtFree((char *)a + 32) != 0);
    EQUAL(aclrtFree(a), 0);
    EQUAL(aclrtFree(a), SIM_RT_PARAM_INVALID);
}

static void test_reuse(void)
{
    static void *blocks[20000];
    void *a, *b;
    unsigned seed = 1;

    setenv("NPUSIM_LOG", "", 1);
    EQUAL(aclrtSetDevice(0), 0);
    EQUAL(aclrtMallocAlign32(&a, 20 * MIB, 0), 0);
    memset(a, 0x5a, 20 * MIB);
    EQUAL(aclrtFree(a), 0);
    EQUAL(aclrtMallocAlign32(&b, 20 * MIB, 0), 0);
    EQUAL((uintptr_t)a, (uintptr_t)b);
    EQUAL(*(char *)b, 0);
    EQUAL(aclrtFree(b), 0);
    /* Many sizes in random order: no overlap (each block keeps its mark), exact balance. */
    for (int i = 0; i < 200000; i++) {
        size_t k = (size_t)rand_r(&seed) % 20000;
        size_t size = 32 + (size_t)rand_r(&seed) % (i % 50 ? 60000 : 5000000);

        if (blocks[k]) {
            EQUAL(*(size_t *)blocks[k], k);
            EQUAL(aclrtFree(blocks[k]), 0);
            blocks[k] = NULL;
        } else {
            EQUAL(aclrtMallocAlign32(&blocks[k], size, 0), 0);
            *(size_t *)blocks[k] = k;
        }
    }
    for (size_t k = 0; k < 20000; k++)
        if (blocks[k]) {
            EQUAL(*(size_t *)blocks[k], k);
            EQUAL(aclrtFree(blocks[k]), 0);
        }
    EQUAL(used_bytes(), RUNTIME_BYTES);
}

static long resident_kb(void)
{
    long pages = 0;
    FILE *in = fopen("/proc/self/statm", "re");

    CHECK(in && fscanf(in, "%*d %ld", &pages) == 1);
    fclose(in);
    return pages * 4;
}

static void test_no_ram(void)
{
    void *a, *b;
    long before;

    EQUAL(aclrtSetDevice(0), 0);
    before = resident_kb();
    EQUAL(aclrtMalloc(&a, 50 * GIB, 0), 0);
    CHECK(resident_kb() - before < 1024);
    memset(a, 1, 64 * MIB);
    CHECK(resident_kb() - before >= 64 * 1024);
    EQUAL(aclrtFree(a), 0);
    CHECK(resident_kb() - before < 2048);
    EQUAL(aclrtMalloc(&b, 50 * GIB, 0), 0);
}

static void test_svm(void)
{
    static const uint16_t modules[] = {SIM_MODULE_APP, SIM_MODULE_HCCL, SIM_MODULE_GE};
    struct sim_acl_phys_prop prop = {.mem_attr = SIM_ATTR_HBM_HUGE,
                                     .location = {4, SIM_LOCATION_DEVICE}};
    struct sim_malloc_attr attr = {.attr = SIM_CFG_MODULE_ID};
    struct sim_malloc_cfg cfg = {&attr, 1};
    uint64_t live[64] = {0}, frees[64] = {0}, allocs[64] = {0};
    char task[4096], dev[4096];
    struct log_line *lines;
    void *blocks[300], *handle;
    unsigned seed = 7;
    size_t count;

    EQUAL(aclrtSetDevice(4), 0);
    EQUAL(aclrtMallocPhysical(&handle, 20 * MIB, &prop, 0), 0);
    for (int i = 0; i < 300; i++) {
        attr.value.module_id = modules[i % 3];
        EQUAL(aclrtMallocWithCfg(&blocks[i], 1 + (size_t)rand_r(&seed) % (4 * MIB), 0, &cfg), 0);
        if (i % 4 == 3)
            EQUAL(aclrtFree(blocks[i - 2]), 0);
    }
    /* The text against the sums of the driver calls in the log. */
    lines = log_read(NULL, &count);
    live[SIM_MODULE_APP] = log_nth(lines, count, "halMemCreate", 0)->size_bytes;
    allocs[SIM_MODULE_APP] = 1;
    for (size_t i = 0; i < count; i++) {
        unsigned module = (unsigned)(lines[i].args[2] >> 56);

        if (lines[i].result || strcmp(lines[i].symbol, "halMemAlloc"))
            continue;
        live[module] += lines[i].size_bytes;
        allocs[module]++;
        for (size_t k = i + 1; k < count; k++) {
            if (!strcmp(lines[k].symbol, "halMemAlloc") && lines[k].out == lines[i].out)
                break;
            if (!strcmp(lines[k].symbol, "halMemFree") && lines[k].args[0] == lines[i].out) {
                live[module] -= lines[i].size_bytes;
                frees[module]++;
                break;
            }
        }
    }
    svm_task_path(task, sizeof(task), getpid());
    snprintf(dev, sizeof(dev), "%s/proc/svm/dev4/summary", getenv("NPUSIM_DIR"));
    EQUAL(frees[SIM_MODULE_APP] + frees[SIM_MODULE_HCCL] + frees[SIM_MODULE_GE], 75);
    EQUAL(live[SIM_MODULE_RUNTIME], RUNTIME_BYTES);
    for (int module = 0; module < 64; module++) {
        EQUAL(svm_sum(task, 4, module, 4), live[module]);
        EQUAL(svm_sum(task, 4, module, 6), allocs[module]);
        EQUAL(svm_sum(task, 4, module, 7), frees[module]);
        EQUAL(svm_sum(dev, 4, module, 4), live[module]);
        CHECK(svm_sum(task, 4, module, 5) >= live[module]);
    }
}

static void test_svm_off(void)
{
    char task[4096];
    void *a;

    EQUAL(aclrtSetDevice(0), 0);
    EQUAL(aclrtMalloc(&a, 4096, 0), 0);
    svm_task_path(task, sizeof(task), getpid());
    EQUAL(access(task, F_OK), -1);
    EQUAL(aclrtFree(a), 0);
}

static void test_fail(void)
{
    void *a, *b;

    EQUAL(aclrtSetDevice(0), 0);
    EQUAL(aclrtMallocAlign32(&a, 2 * MIB, 0), SIM_RT_DRV_INTERNAL);
    EQUAL(aclrtMallocAlign32(&a, 2 * MIB, 0), 0);
    EQUAL(aclrtMallocAlign32(&b, 2 * MIB, 0), 0);
    EQUAL(aclrtFree(a), 0);
    EQUAL(aclrtFree(b), SIM_RT_PARAM_INVALID);
    EQUAL(used_bytes(), RUNTIME_BYTES + 2 * MIB);
    EQUAL(aclrtFree(b), 0);
    EQUAL(used_bytes(), RUNTIME_BYTES);
}

void test_memory_cases(const char *name, const char *argument)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"nesting", test_nesting}, {"oom", test_oom},         {"vmm", test_vmm},
                 {"vmm_oom", test_vmm_oom}, {"host", test_host},       {"pool", test_pool},
                 {"errors", test_errors},   {"reuse", test_reuse},     {"no_ram", test_no_ram},
                 {"svm", test_svm},         {"svm_off", test_svm_off}, {"fail", test_fail}};

    (void)argument;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (!strcmp(cases[i].name, name)) {
            cases[i].run();
            exit(0);
        }
}
