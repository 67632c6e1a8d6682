/* SPDX-License-Identifier: Apache-2.0 */
/*
 * do_device.c - devices, contexts, streams, communicators, copies, ATB, and calls by name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "run.h"

#define NEED(function)                                                                             \
    do {                                                                                           \
        if (!t->process->acl.function)                                                             \
            return EXPECT_MISSING;                                                                 \
    } while (0)

int thread_device(struct thread *t, int64_t device)
{
    int r = t->process->acl.aclrtSetDevice((int32_t)device);
    if (r == 0)
        t->device = device;
    return r;
}

HANDLER(do_device)
{
    int64_t device;
    if (!operand_int(t, op, 0, 0, &device))
        return RUN_FAILED;
    return thread_device(t, device);
}

HANDLER(do_device_reset)
{
    int64_t device;
    if (!operand_int(t, op, 0, 0, &device))
        return RUN_FAILED;
    return t->process->acl.aclrtResetDevice((int32_t)device);
}

HANDLER(do_context)
{
    void *context = NULL;
    int64_t device;
    struct slot *slot = slot_new(t, op, 0);
    if (!slot || !operand_int(t, op, 1, 0, &device))
        return RUN_FAILED;
    int r = t->process->acl.aclrtCreateContext(&context, (int32_t)device);
    if (r == 0) {
        *slot = (struct slot){.kind = SLOT_CONTEXT, .value = (uint64_t)context, .bytes = device};
        t->device = device; /* a new context is the thread's current one */
    }
    return r;
}

HANDLER(do_context_use)
{
    struct slot *slot = slot_get(t, op, 0, SLOT_CONTEXT);
    if (!slot)
        return RUN_FAILED;
    int r = t->process->acl.aclrtSetCurrentContext((void *)slot->value);
    if (r == 0)
        t->device = slot->bytes;
    return r;
}

HANDLER(do_context_destroy)
{
    struct slot *slot = slot_get(t, op, 0, SLOT_CONTEXT);
    if (!slot)
        return RUN_FAILED;
    int r = t->process->acl.aclrtDestroyContext((void *)slot->value);
    if (r == 0)
        *slot = (struct slot){0};
    return r;
}

HANDLER(do_stream)
{
    void *stream = NULL;
    struct slot *slot = slot_new(t, op, 0);
    if (!slot)
        return RUN_FAILED;
    int r = operand_choice(op, 1, 1) ? t->process->acl.aclrtCreateStreamWithConfig(&stream, 0, 3)
                                     : t->process->acl.aclrtCreateStream(&stream);
    if (r == 0)
        *slot = (struct slot){.kind = SLOT_STREAM, .value = (uint64_t)stream};
    return r;
}

HANDLER(do_stream_destroy)
{
    int64_t force;
    struct slot *slot = slot_get(t, op, 0, SLOT_STREAM);
    if (!slot || !operand_int(t, op, 1, 0, &force))
        return RUN_FAILED;
    int r = force ? t->process->acl.aclrtDestroyStreamForce((void *)slot->value)
                  : t->process->acl.aclrtDestroyStream((void *)slot->value);
    if (r == 0)
        *slot = (struct slot){0};
    return r;
}

HANDLER(do_sync)
{
    if (op->args[0].kind == OPERAND_NONE)
        return t->process->acl.aclrtSynchronizeDevice();
    struct slot *slot = slot_get(t, op, 0, SLOT_STREAM);
    return slot ? t->process->acl.aclrtSynchronizeStream((void *)slot->value) : RUN_FAILED;
}

/* The rank 0 of a communicator makes the root information and hands it to the others. */
static int64_t root_info(struct thread *t, const struct op *op, const char *name, int64_t rank,
                         int64_t ranks, struct sim_hccl_root_info *ret)
{
    char file[256];
    memset(ret, 0, sizeof(*ret));
    if (rank == 0) {
        int r = t->process->acl.HcclGetRootInfo(ret);
        if (r || ranks == 1)
            return r;
        snprintf(file, sizeof(file), "key.hccl.%.100s", name);
        r = control_put(&t->process->control, file, ret, sizeof(*ret));
        return r < 0 ? thread_fail(t, op, "root info cannot be written: %s", strerror(-r)) : 0;
    }
    snprintf(file, sizeof(file), "hccl.%.100s", name);
    int r = control_get_key(&t->process->control, file, ret, sizeof(*ret));
    return r < 0 ? thread_fail(t, op, "root info of %s: %s", name, strerror(-r)) : 0;
}

HANDLER(do_hccl)
{
    struct sim_hccl_root_info root;
    struct sim_hccl_config config;
    char name[SCENARIO_LINE_MAX] = "";
    void *comm = NULL;
    int64_t rank, ranks, buffer;
    struct slot *slot = slot_new(t, op, 0);

    NEED(HcclCommInitRootInfoConfig);
    if (!slot || !operand_int(t, op, 1, t->vars[VAR_RANK], &rank) ||
        !operand_int(t, op, 2, t->vars[VAR_RANKS], &ranks) ||
        !operand_int(t, op, 3, 200 << 20, &buffer))
        return RUN_FAILED;
    if (op->args[4].kind != OPERAND_NONE && !operand_text(t, op, 4, name, sizeof(name)))
        return RUN_FAILED;
    control_name(name);
    if (rank < 0 || ranks < 1 || rank >= ranks || buffer < 0 || buffer % (1 << 20) ||
        buffer >> 20 > UINT32_MAX - 1)
        return thread_fail(t, op, "rank %lld of %lld, buffer of %lld (whole MiB)", (long long)rank,
                           (long long)ranks, (long long)buffer);
    int64_t r = root_info(t, op, *name ? name : "default", rank, ranks, &root);
    if (r)
        return r;
    memset(&config, 0, sizeof(config));
    config.buffer_mb = (uint32_t)(buffer >> 20);
    snprintf(config.name, sizeof(config.name), "%.100s", name);
    r = operand_choice(op, 5, 0)
            ? t->process->acl.HcclCommInitRootInfo((uint32_t)ranks, &root, (uint32_t)rank, &comm)
            : t->process->acl.HcclCommInitRootInfoConfig((uint32_t)ranks, &root, (uint32_t)rank,
                                                         &config, &comm);
    if (r == 0)
        *slot = (struct slot){.kind = SLOT_COMM, .value = (uint64_t)comm};
    return r;
}

HANDLER(do_hccl_destroy)
{
    struct slot *slot = slot_get(t, op, 0, SLOT_COMM);
    if (!slot)
        return RUN_FAILED;
    int r = t->process->acl.HcclCommDestroy((void *)slot->value);
    if (r == 0)
        *slot = (struct slot){0};
    return r;
}

/* A slot that is memory, and that its first `bytes` bytes are its own. */
static void *memory_get(struct thread *t, const struct op *op, unsigned index, int64_t bytes)
{
    struct slot *slot = slot_any(t, op, index);
    if (!slot)
        return NULL;
    if (slot->kind != SLOT_DEVICE && slot->kind != SLOT_HOST && slot->kind != SLOT_REGISTERED &&
        slot->kind != SLOT_TOUCHED && slot->kind != SLOT_TENSOR && slot->kind != SLOT_POOL_BLOCK) {
        thread_fail(t, op, "%s holds %s, no memory", statement_of(op->code)->params[index].name,
                    slot_kind_name(slot->kind));
        return NULL;
    }
    if (bytes > slot->bytes) {
        thread_fail(t, op, "%s is smaller than %lld bytes",
                    statement_of(op->code)->params[index].name, (long long)bytes);
        return NULL;
    }
    if (slot->kind == SLOT_TENSOR)
        return t->process->torch.pointer((void *)slot->value);
    return (void *)slot->value;
}

HANDLER(do_allreduce)
{
    int64_t count;
    struct slot *comm = slot_get(t, op, 0, SLOT_COMM);
    NEED(HcclAllReduce);
    if (!comm || !operand_size(t, op, 2, &count))
        return RUN_FAILED;
    if (count > INT64_MAX / 4)
        return thread_fail(t, op, "count is too large");
    void *memory = memory_get(t, op, 1, count * 4);
    if (!memory)
        return RUN_FAILED;
    return t->process->acl.HcclAllReduce(memory, memory, (uint64_t)count, 4, 0, (void *)comm->value,
                                         NULL);
}

HANDLER(do_copy)
{
    int64_t bytes;
    struct slot *stream = NULL;
    if (!operand_size(t, op, 3, &bytes))
        return RUN_FAILED;
    void *to = memory_get(t, op, 1, bytes);
    void *from = to ? memory_get(t, op, 2, bytes) : NULL;
    if (!from)
        return RUN_FAILED;
    if (op->args[4].kind == OPERAND_NONE)
        return t->process->acl.aclrtMemcpy(to, (size_t)bytes, from, (size_t)bytes,
                                           (int)op->args[0].value);
    stream = slot_get(t, op, 4, SLOT_STREAM);
    if (!stream)
        return RUN_FAILED;
    return t->process->acl.aclrtMemcpyAsync(to, (size_t)bytes, from, (size_t)bytes,
                                            (int)op->args[0].value, (void *)stream->value);
}

HANDLER(do_memset)
{
    int64_t value, bytes;
    if (!operand_int(t, op, 1, 0, &value) || !operand_size(t, op, 2, &bytes))
        return RUN_FAILED;
    void *memory = memory_get(t, op, 0, bytes);
    if (!memory)
        return RUN_FAILED;
    return t->process->acl.aclrtMemset(memory, (size_t)bytes, (int32_t)value, (size_t)bytes);
}

HANDLER(do_meminfo)
{
    size_t available = 0, total = 0;
    int r = t->process->acl.aclrtGetMemInfo(SIM_ATTR_HBM, &available, &total);
    if (r == 0) {
        t->vars[op->args[0].value] = (int64_t)available;
        t->vars[op->args[1].value] = (int64_t)total;
    }
    return r;
}

/* Enough room for the fixed-size ATB structs that the two functions take by reference. */
struct atb_objects {
    uint64_t operation[512];
    uint64_t variants[13568 / 8];
    uint64_t context[512];
};

HANDLER(do_atb)
{
    static const char setup_name[] =
        "_ZN3atb13OperationBase5SetupERKNS_11VariantPackERmPNS_7ContextE";
    static const char execute_name[] =
        "_ZN3atb13OperationBase7ExecuteERKNS_11VariantPackEPhmPNS_7ContextE";
    int64_t bytes;
    void *memory = NULL;
    bool execute = op->args[0].value;

    if (!operand_size(t, op, 1, &bytes))
        return RUN_FAILED;
    if (op->args[2].kind != OPERAND_NONE && !(memory = memory_get(t, op, 2, bytes)))
        return RUN_FAILED;
    void *symbol = acl_symbol(&t->process->acl, execute ? execute_name : setup_name);
    if (!symbol)
        return EXPECT_MISSING;
    struct atb_objects *objects = calloc(1, sizeof(*objects));
    if (!objects)
        return thread_fail(t, op, "out of memory");
    uint64_t workspace = (uint64_t)bytes;
    /* an object begins with the address behind the head of its class's table (Itanium C++ ABI) */
    const char *table = acl_symbol(&t->process->acl, "_ZTVN3atb13OperationBaseE");
    if (table)
        objects->operation[0] = (uintptr_t)table + 16;
    objects->operation[2] = workspace; /* sim/cann/atb.cpp: what the operation asks for */
    int r = execute
                ? ((int (*)(void *, const void *, void *, uint64_t, void *))symbol)(
                      objects->operation, objects->variants, memory, workspace, objects->context)
                : ((int (*)(void *, const void *, uint64_t *, void *))symbol)(
                      objects->operation, objects->variants, &workspace, objects->context);
    free(objects);
    return r;
}

/* The parts of atb::VariantPack that the ABI fixes: the number of a list @8, its tensors of 104
 * bytes
 * @16, their memory @80; the second list is @6784. */
static void pack_add(uint64_t *pack, unsigned list, unsigned index, const void *memory)
{
    uint64_t *at = pack + list * (6784 / 8);
    at[1] = index + 1;
    at[2 + (index * 104 + 80) / 8] = (uintptr_t)memory;
}

static int operator_atb(struct thread *t, void *const *memory, unsigned count)
{
    int (*execute)(void *, const void *, void *, uint64_t, void *) =
        (__typeof__(execute))acl_symbol(
            &t->process->acl, "_ZN3atb13OperationBase7ExecuteERKNS_11VariantPackEPhmPNS_7ContextE");
    struct atb_objects *objects = execute ? calloc(1, sizeof(*objects)) : NULL;

    if (!objects)
        return EXPECT_MISSING;
    for (unsigned i = 0; i < count; i++) /* the last one is the result */
        pack_add(objects->variants, i + 1 == count, i + 1 == count ? 0 : i, memory[i]);
    int r = execute(objects->operation, objects->variants, NULL, 0, objects->context);
    free(objects);
    return r;
}

static int operator_aclnn(struct thread *t, void *const *memory, unsigned count, int64_t offset)
{
    void *(*create)(const int64_t *, uint64_t, int, const int64_t *, int64_t, int, const int64_t *,
                    uint64_t, void *) =
        (__typeof__(create))acl_symbol(&t->process->acl, "aclCreateTensor");
    int (*run)(void *, uint64_t, void *, void *) =
        (__typeof__(run))acl_symbol(&t->process->acl, "CommonOpExecutorRun");
    int (*destroy)(const void *) =
        (__typeof__(destroy))acl_symbol(&t->process->acl, "aclDestroyTensor");
    int64_t one = 1;
    void *tensors[3] = {NULL};

    if (!create || !run || !destroy)
        return EXPECT_MISSING;
    for (unsigned i = 0; i < count; i++)
        tensors[i] = create(&one, 1, 0, &one, 0, 2, &one, 1, (char *)memory[i] + offset);
    int r = run(NULL, 0, tensors, NULL);
    for (unsigned i = 0; i < count; i++)
        destroy(tensors[i]);
    return r;
}

/* One operator on up to three blocks, as libopapi or libatb run one. */
HANDLER(do_operator)
{
    void *memory[3];
    unsigned count = 0;
    int64_t offset;

    if (!operand_int(t, op, 4, 0, &offset))
        return RUN_FAILED;
    for (unsigned i = 1; i <= 3; i++)
        if (op->args[i].kind != OPERAND_NONE &&
            !(memory[count++] = memory_get(t, op, i, offset + 1)))
            return RUN_FAILED;
    return op->args[0].value ? operator_atb(t, memory, count)
                             : operator_aclnn(t, memory, count, offset);
}

/* Any C function of the libraries with up to six integers: for tests of single probes. */
HANDLER(do_call)
{
    char name[SCENARIO_LINE_MAX];
    int64_t arguments[6];
    if (!operand_text(t, op, 0, name, sizeof(name)))
        return RUN_FAILED;
    for (unsigned i = 0; i < 6; i++) {
        if (!operand_int(t, op, i + 1, 0, &arguments[i]))
            return RUN_FAILED;
    }
    int (*function)(int64_t, int64_t, int64_t, int64_t, int64_t, int64_t) =
        (__typeof__(function))acl_symbol(&t->process->acl, name);
    if (!function)
        return EXPECT_MISSING;
    return function(arguments[0], arguments[1], arguments[2], arguments[3], arguments[4],
                    arguments[5]);
}
