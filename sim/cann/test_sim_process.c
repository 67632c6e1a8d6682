/* SPDX-License-Identifier: Apache-2.0 */
/* test_sim_process.c - cases of several processes, devices and libraries. */
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_sim.h"

/* Child: takes argument MiB of device 0, says so, and waits to be killed. */
static void child_hold(const char *argument)
{
    void *a;

    EQUAL(aclrtSetDevice(0), 0);
    EQUAL(aclrtMallocAlign32(&a, strtoull(argument, NULL, 10) * MIB, 0), 0);
    if (write(STDOUT_FILENO, "held\n", 5) != 5)
        exit(1);
    pause();
}

/* Starts a holder and waits until it holds. */
static int holder_start(const char *megabytes)
{
    int ends[2], saved, pid;
    char text[8];

    CHECK(pipe(ends) == 0);
    saved = dup(STDOUT_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    pid = spawn_case("child_hold", megabytes, NULL);
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(ends[1]);
    EQUAL(read(ends[0], text, 5), 5);
    close(ends[0]);
    return pid;
}

static void test_kill(void)
{
    char task[4096];
    struct log_line *lines;
    size_t count;
    uint64_t base;
    void *a;
    int pid;

    EQUAL(aclrtSetDevice(0), 0);
    base = used_bytes();
    pid = holder_start("4096");
    EQUAL(used_bytes(), base + RUNTIME_BYTES + 4 * GIB);
    svm_task_path(task, sizeof(task), pid);
    EQUAL(svm_sum(task, 0, SIM_MODULE_APP, 4), 4 * GIB);
    EQUAL(kill(pid, SIGKILL), 0);
    EQUAL(waitpid(pid, NULL, 0), pid);
    /* Its log is complete, and an allocation that needs its memory gets it. */
    lines = log_read(NULL, &count);
    CHECK(log_count(lines, count, NULL, "halMemAlloc") == 5);
    EQUAL(aclrtMallocAlign32(&a, 7 * GIB, 0), 0);
    EQUAL(aclrtFree(a), 0);
    EQUAL(used_bytes(), base);
    EQUAL(access(task, F_OK), -1);
}

/* Child: takes memory, then becomes another image of the same process. */
static void child_exec(const char *argument)
{
    void *a;

    EQUAL(aclrtSetDevice(0), 0);
    if (!argument) {
        EQUAL(aclrtMallocAlign32(&a, 1 * GIB, 0), 0);
        execl("/proc/self/exe", "test_sim", "child_exec", "again", NULL);
    }
    EQUAL(used_bytes(), RUNTIME_BYTES);
}

static void test_exec(void)
{
    wait_good(spawn_case("child_exec", NULL, NULL));
}

static void test_visible(void)
{
    struct sim_acl_phys_prop prop = {.mem_attr = SIM_ATTR_HBM_HUGE,
                                     .location = {0, SIM_LOCATION_DEVICE}};
    struct log_line *lines;
    uint32_t devices = 0;
    int32_t device;
    void *a, *handle;
    size_t count;

    EQUAL(aclrtGetDeviceCount(&devices), 0);
    EQUAL(devices, 2);
    EQUAL(aclrtSetDevice(2), SIM_RT_INVALID_DEVICE);
    EQUAL(aclrtSetDevice(1), 0);
    EQUAL(aclrtGetDevice(&device), 0);
    EQUAL(device, 1);
    EQUAL(aclrtMallocAlign32(&a, 4096, 0), 0);
    EQUAL(aclrtMallocPhysical(&handle, 2 * MIB, &prop, 0), 0);
    EQUAL(aclrtGetLogicDevIdByUserDevId(0, &device), 0);
    EQUAL(device, 2);
    lines = log_read(NULL, &count);
    EQUAL(log_nth(lines, count, "halMemAlloc", 2)->args[2] & 0x3ff, 5);
    EQUAL(used_bytes(), RUNTIME_BYTES + 4096);
    EQUAL(aclrtSetDevice(0), 0);
    EQUAL(used_bytes(), RUNTIME_BYTES + 2 * MIB); /* the handle is on the first visible card */
}

/* Child: opens what the parent shares and answers in it. */
static void child_import(const char *argument)
{
    uint64_t shareable;
    char key[80];
    void *range, *handle, *ipc;
    uint64_t before;

    EQUAL(sscanf(argument, "%" SCNx64 "/%79s", &shareable, key), 2);
    EQUAL(aclrtSetDevice(0), 0);
    before = used_bytes();
    EQUAL(aclrtMemImportFromShareableHandle(shareable, 0, &handle), 0);
    EQUAL(aclrtReserveMemAddress(&range, 4 * MIB, 0, NULL, 0), 0);
    EQUAL(aclrtMapMem(range, 2 * MIB, 0, handle, 0), 0);
    EQUAL(aclrtIpcMemImportByKey(&ipc, key, 0), 0);
    EQUAL(used_bytes(), before);
    CHECK(!strcmp(range, "from the handle"));
    CHECK(!strcmp(ipc, "from the key"));
    strcpy(range, "answer one");
    strcpy(ipc, "answer two");
    EQUAL(aclrtIpcMemClose(key), 0);
    EQUAL(aclrtUnmapMem(range), 0);
    EQUAL(aclrtFreePhysical(handle), 0);
}

static void test_share(void)
{
    struct sim_acl_phys_prop prop = {.mem_attr = SIM_ATTR_HBM_HUGE,
                                     .location = {0, SIM_LOCATION_DEVICE}};
    void *range, *handle, *block;
    char key[65], argument[128];
    uint64_t shareable, base;

    EQUAL(aclrtSetDevice(0), 0);
    base = used_bytes();
    EQUAL(aclrtMallocPhysical(&handle, 2 * MIB, &prop, 0), 0);
    EQUAL(aclrtReserveMemAddress(&range, 2 * MIB, 0, NULL, 0), 0);
    EQUAL(aclrtMapMem(range, 2 * MIB, 0, handle, 0), 0);
    strcpy(range, "from the handle");
    EQUAL(aclrtMalloc(&block, 1 * MIB, 0), 0);
    strcpy(block, "from the key");
    EQUAL(aclrtMemExportToShareableHandle(handle, 0, 0, &shareable), 0);
    EQUAL(aclrtIpcMemGetExportKey(block, 1 * MIB, key, sizeof(key), 0), 0);
    CHECK(!strcmp(block, "from the key"));
    snprintf(argument, sizeof(argument), "%" PRIx64 "/%s", shareable, key);
    wait_good(spawn_case("child_import", argument, NULL));
    CHECK(!strcmp(range, "answer one"));
    CHECK(!strcmp(block, "answer two"));
    EQUAL(aclrtFree(block), 0);
    EQUAL(aclrtUnmapMem(range), 0);
    EQUAL(aclrtFreePhysical(handle), 0);
    EQUAL(used_bytes(), base);
    CHECK(aclrtMemImportFromShareableHandle(shareable, 0, &handle) != 0);
}

static void test_fork(void)
{
    uint64_t base;
    void *a, *b;
    int pid;

    EQUAL(aclrtSetDevice(0), 0);
    EQUAL(aclrtMallocAlign32(&a, 8 * MIB, 0), 0);
    strcpy(a, "parent");
    base = used_bytes();
    pid = fork();
    if (!pid) {
        EQUAL(aclrtMallocAlign32(&b, 4096, 0), SIM_RT_CONTEXT_NULL);
        CHECK(aclrtFree(a) != 0);
        EQUAL(aclrtSetDevice(0), 0);
        EQUAL(used_bytes(), base + RUNTIME_BYTES);
        EQUAL(aclrtMallocAlign32(&b, 16 * MIB, 0), 0);
        CHECK(a != b);
        EQUAL(used_bytes(), base + RUNTIME_BYTES + 16 * MIB);
        _exit(0); /* no exit handler runs: the parent must get the memory back all the same */
    }
    wait_good(pid);
    EQUAL(used_bytes(), base);
    CHECK(!strcmp(a, "parent"));
    EQUAL(aclrtFree(a), 0);
}

/* Child: takes 32 MiB blocks until the card is full; exits with their count. */
static void child_fill(const char *argument)
{
    int taken = 0;
    void *a;

    (void)argument;
    EQUAL(aclrtSetDevice(0), 0);
    while (aclrtMallocAlign32(&a, 32 * MIB, SIM_HUGE_ONLY) == 0)
        taken++;
    if (write(STDOUT_FILENO, &taken, sizeof(taken)) != sizeof(taken))
        exit(1);
    pause();
}

static void test_crowd(void)
{
    int ends[2], saved, pids[4], taken, sum = 0;

    CHECK(pipe(ends) == 0);
    saved = dup(STDOUT_FILENO);
    dup2(ends[1], STDOUT_FILENO);
    for (int i = 0; i < 4; i++)
        pids[i] = spawn_case("child_fill", NULL, NULL);
    dup2(saved, STDOUT_FILENO);
    for (int i = 0; i < 4; i++) {
        EQUAL(read(ends[0], &taken, sizeof(taken)), sizeof(taken));
        sum += taken;
    }
    /* 1024 MiB less the runtime's 6 MiB of up to four processes: 31 blocks of 32 MiB fit. */
    EQUAL(sum, 31);
    for (int i = 0; i < 4; i++) {
        kill(pids[i], SIGKILL);
        waitpid(pids[i], NULL, 0);
    }
    EQUAL(aclrtSetDevice(0), 0);
    EQUAL(used_bytes(), RUNTIME_BYTES);
}

static void test_reset(void)
{
    struct sim_acl_phys_prop prop = {.mem_attr = SIM_ATTR_HBM_HUGE,
                                     .location = {1, SIM_LOCATION_DEVICE}};
    void *a, *b, *handle, *context;
    int32_t device;

    EQUAL(aclrtSetDevice(0), 0);
    EQUAL(aclrtMalloc(&a, 8 * MIB, 0), 0);
    EQUAL(aclrtSetDevice(1), 0);
    EQUAL(aclrtMalloc(&b, 8 * MIB, 0), 0);
    EQUAL(aclrtMallocPhysical(&handle, 8 * MIB, &prop, 0), 0);
    EQUAL(aclrtGetCurrentContext(&context), 0);
    EQUAL(aclrtResetDevice(1), 0);
    EQUAL(aclrtGetDevice(&device), SIM_RT_CONTEXT_NULL);
    EQUAL(aclrtSetCurrentContext(context), SIM_RT_CONTEXT_NULL);
    CHECK(aclrtFree(b) != 0);
    CHECK(aclrtFreePhysical(handle) != 0);
    EQUAL(aclrtSetDevice(1), 0);
    EQUAL(used_bytes(), RUNTIME_BYTES);
    EQUAL(aclrtSetDevice(0), 0);
    EQUAL(used_bytes(), RUNTIME_BYTES + 10 * MIB); /* 8 MiB + 32 in pages of 2 MiB */
    EQUAL(aclrtFree(a), 0);
}

static void test_hccl(void)
{
    struct sim_hccl_root_info root;
    struct sim_hccl_config config = {.buffer_mb = 50, .name = "tp"};
    struct log_line *lines;
    const struct log_line *hal;
    uint32_t rank, ranks;
    uint64_t base;
    void *comm, *second;
    char name[128];
    size_t count;

    EQUAL(aclrtSetDevice(6), 0);
    base = used_bytes();
    EQUAL(HcclGetRootInfo(&root), 0);
    EQUAL(HcclCommInitRootInfo(4, &root, 3, &comm), 0);
    EQUAL(used_bytes(), base + 402 * MIB); /* 2 x 200 + 1, in pages of 2 MiB */
    EQUAL(HcclCommInitRootInfoConfig(2, &root, 1, &config, &second), 0);
    EQUAL(used_bytes(), base + 504 * MIB);
    CHECK(HcclCommInitRootInfo(4, &root, 4, &comm) != 0);
    EQUAL(HcclGetRankId(comm, &rank), 0);
    EQUAL(HcclGetRankSize(comm, &ranks), 0);
    EQUAL(HcclGetCommName(second, name), 0);
    EQUAL(rank, 3);
    EQUAL(ranks, 4);
    CHECK(!strcmp(name, "tp"));
    lines = log_read(NULL, &count);
    hal = log_nth(lines, count, "halMemAlloc", 2);
    EQUAL(hal->args[2] >> 56, SIM_MODULE_HCCL);
    EQUAL(hal->size_bytes, 401 * MIB);
    EQUAL(log_nth(lines, count, "aclrtMallocWithCfg", 0)->args[2], 0x1000);
    EQUAL(HcclCommDestroy(comm), 0);
    EQUAL(HcclCommDestroy(second), 0);
    EQUAL(used_bytes(), base);
}

static void test_dcmi(void)
{
    struct sim_dcmi_hbm_info info;
    struct sim_dcmi_proc_mem procs[64];
    int count, pid, cards[16];

    EQUAL(dcmi_init(), 0);
    EQUAL(dcmi_get_card_list(&count, cards, 16), 0);
    EQUAL(count, 8);
    pid = holder_start("100");
    EQUAL(dcmi_get_device_hbm_info(0, 0, &info), 0);
    EQUAL(info.memory_mb, 64 * 1024);
    EQUAL(info.used_mb, 106);
    EQUAL(dcmi_get_device_resource_info(0, 0, procs, &count), 0);
    EQUAL(count, 1);
    EQUAL(procs[0].proc_id, pid);
    EQUAL(procs[0].used_bytes, 106 * MIB);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    EQUAL(dcmi_get_device_hbm_info(0, 0, &info), 0);
    EQUAL(info.used_mb, 0);
    EQUAL(dcmi_get_device_resource_info(0, 0, procs, &count), 0);
    EQUAL(count, 0);
    CHECK(dcmi_get_device_hbm_info(8, 0, &info) != 0);

    /* A process that uses a card and asks about it is not taken for dead. */
    EQUAL(aclrtSetDevice(0), 0);
    EQUAL(dcmi_get_device_hbm_info(0, 0, &info), 0);
    EQUAL(info.used_mb, 6);
    EQUAL(dcmi_get_device_resource_info(0, 0, procs, &count), 0);
    EQUAL(count, 1);
    EQUAL(procs[0].proc_id, getpid());
    EQUAL(used_bytes(), RUNTIME_BYTES);
}

static void *symbol(const char *name)
{
    void *found = dlsym(RTLD_DEFAULT, name);

    CHECK(found);
    return found;
}

static void test_atb(void)
{
    int (*create_context)(void **) = symbol("_ZN3atb13CreateContextEPPNS_7ContextE");
    int (*destroy_context)(void *) = symbol("_ZN3atb14DestroyContextEPNS_7ContextE");
    int (*create)(const void *, void **) =
        symbol("_ZN3atb15CreateOperationINS_5infer9RopeParamEEEiRKT_PPNS_9OperationE");
    int (*destroy)(void *) = symbol("_ZN3atb16DestroyOperationEPNS_9OperationE");
    int (*setup)(void *, const void *, uint64_t *, void *) =
        symbol("_ZN3atb13OperationBase5SetupERKNS_11VariantPackERmPNS_7ContextE");
    static char pack[13568];
    void *context, *operation, *tensor, *addr, *workspace;
    struct log_line *lines;
    uint64_t bytes = 0;
    size_t count;

    EQUAL(aclrtSetDevice(0), 0);
    EQUAL(create_context(&context), 0);
    EQUAL(create(pack, &operation), 0);
    EQUAL(setup(operation, pack, &bytes, context), 0);
    EQUAL(bytes, 64 * 1024);
    EQUAL(aclrtMallocAlign32(&workspace, bytes, 0), 0);
    /* Through the virtual table, as callers do: destructors take two slots. */
    EQUAL((*(int (***)(void *, const void *, void *, uint64_t, void *))operation)[7](
              operation, pack, workspace, bytes, context),
          0);
    tensor = aclCreateTensor(NULL, 0, 0, NULL, 0, 2, NULL, 0, workspace);
    EQUAL(aclGetRawTensorAddr(tensor, &addr), 0);
    EQUAL((uintptr_t)addr, (uintptr_t)workspace);
    EQUAL(aclDestroyTensor(tensor), 0);
    EQUAL(CommonOpExecutorRun(workspace, bytes, NULL, NULL), 0);
    CHECK(mstxMemHeapRegister(NULL, NULL) == NULL);
    lines = log_read(NULL, &count);
    EQUAL(log_nth(lines, count,
                  "_ZN3atb13OperationBase7ExecuteERKNS_11VariantPackEPhmPNS_7ContextE", 0)
              ->args[2],
          (uintptr_t)workspace);
    EQUAL(log_nth(lines, count, "aclCreateTensor", 0)->args[8], (uintptr_t)workspace);
    EQUAL(log_nth(lines, count, "aclrtMalloc", 0)->result, 0); /* the context's tiling buffer */
    EQUAL(destroy(operation), 0);
    EQUAL(destroy_context(context), 0);
    EQUAL(aclrtFree(workspace), 0);
    EQUAL(used_bytes(), RUNTIME_BYTES);
}

/* A stream that is busy: its event is done later, or when somebody has waited for it. */
static void test_busy(void)
{
    void *event;
    int status = -1;

    EQUAL(aclrtSetDevice(0), 0);
    EQUAL(aclrtCreateEvent(&event), 0);
    EQUAL(aclrtQueryEventStatus(event, &status), 0);
    EQUAL(status, 1);
    EQUAL(aclrtRecordEvent(event, NULL), 0);
    EQUAL(aclrtQueryEventStatus(event, &status), 0);
    EQUAL(status, 0);
    EQUAL(aclrtSynchronizeEvent(event), 0);
    EQUAL(aclrtQueryEventStatus(event, &status), 0);
    EQUAL(status, 1);
    EQUAL(aclrtDestroyEvent(event), 0);
}

static void test_streams(void)
{
    void *streams[4], *event, *model;
    int32_t id[2];
    int status = -1;

    EQUAL(aclrtSetDevice(0), 0);
    for (int i = 0; i < 3; i++)
        EQUAL(aclrtCreateStream(&streams[i]), 0);
    EQUAL(aclrtCreateStreamWithConfig(&streams[3], 0, 3), 207005);
    EQUAL(aclrtStreamGetId(streams[0], &id[0]), 0);
    EQUAL(aclrtStreamGetId(streams[1], &id[1]), 0);
    CHECK(id[0] != id[1]);
    EQUAL(aclrtDestroyStream(streams[0]), 0);
    CHECK(aclrtDestroyStream(streams[0]) != 0);
    EQUAL(aclrtCreateEvent(&event), 0);
    EQUAL(aclrtRecordEvent(event, streams[1]), 0);
    EQUAL(aclrtQueryEventStatus(event, &status), 0);
    EQUAL(status, 1);
    EQUAL(aclrtDestroyEvent(event), 0);
    EQUAL(aclmdlRICaptureBegin(streams[1], 0), 0);
    EQUAL(aclmdlRICaptureGetInfo(streams[1], &status, &model), 0);
    EQUAL(status, 1);
    EQUAL(aclmdlRICaptureGetInfo(streams[2], &status, &model), 0);
    EQUAL(status, 0);
    EQUAL(aclmdlRICaptureEnd(streams[1], &model), 0);
    EQUAL(aclmdlRIExecuteAsync(model, streams[1]), 0);
    EQUAL(aclmdlRIDestroy(model), 0);
}

void test_process_cases(const char *name, const char *argument)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"kill", test_kill},       {"visible", test_visible}, {"share", test_share},
                 {"fork", test_fork},       {"crowd", test_crowd},     {"reset", test_reset},
                 {"hccl", test_hccl},       {"dcmi", test_dcmi},       {"atb", test_atb},
                 {"streams", test_streams}, {"busy", test_busy},       {"exec", test_exec}};
    static const struct {
        const char *name;
        void (*run)(const char *argument);
    } children[] = {{"child_hold", child_hold},
                    {"child_import", child_import},
                    {"child_fill", child_fill},
                    {"child_exec", child_exec}};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        if (!strcmp(cases[i].name, name)) {
            cases[i].run();
            exit(0);
        }
    for (size_t i = 0; i < sizeof(children) / sizeof(children[0]); i++)
        if (!strcmp(children[i].name, name)) {
            children[i].run(argument);
            exit(0);
        }
}
