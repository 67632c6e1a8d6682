/* SPDX-License-Identifier: Apache-2.0 */
/*
 * operand.c - operands and slots at run time, and the table from operation to handler.
 *
 * Invariant: a slot index is checked against its array before it is used.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "run.h"

static const char *const slot_names[SLOT_KINDS] = {
    "nothing",        "device memory",    "host memory",       "registered memory",
    "touched memory", "an address range", "a physical handle", "a segment",
    "a pool",         "memory of a pool", "a stream",          "a communicator",
    "a tensor",       "a context",        "opened memory"};

const char *slot_kind_name(enum slot_kind kind)
{
    return slot_names[kind];
}

static int ref_slot(struct thread *t, const struct operand *ref, uint32_t *ret);

static int address_resolve(void *userdata, const struct operand *ref, int64_t *ret)
{
    struct thread *t = userdata;
    uint32_t index;
    int r = ref_slot(t, ref, &index);
    if (r < 0)
        return r;
    *ret = (int64_t)t->process->slots[index].value;
    return 0;
}

static int value_of(struct thread *t, const struct expr *expr, int64_t *ret)
{
    struct expr_context context = {.scenario = t->process->scenario,
                                   .vars = t->vars,
                                   .random = &t->random,
                                   .address = address_resolve,
                                   .userdata = t};
    return expr_eval(expr, &context, ret);
}

static int ref_slot(struct thread *t, const struct operand *ref, uint32_t *ret)
{
    int64_t index = 0;
    if (ref->all) {
        *ret = t->all_slot;
        return 0;
    }
    if (ref->expr.count) {
        int r = value_of(t, &ref->expr, &index);
        if (r < 0)
            return r;
        if (index < 0 || index >= (int64_t)ref->slots)
            return -ENOENT;
    }
    *ret = ref->slot + (uint32_t)index;
    return 0;
}

static const char *value_problem(int error)
{
    switch (error) {
    case -ENOENT:
        return "an index outside its array";
    case -EDOM:
        return "a division by zero or an empty random range";
    default:
        return "a number that is too large";
    }
}

bool operand_int(struct thread *t, const struct op *op, unsigned index, int64_t absent,
                 int64_t *ret)
{
    if (op->args[index].kind == OPERAND_NONE) {
        *ret = absent;
        return true;
    }
    int r = value_of(t, &op->args[index].expr, ret);
    if (r < 0)
        thread_fail(t, op, "%s has %s", statement_of(op->code)->params[index].name,
                    value_problem(r));
    return r == 0;
}

bool operand_size(struct thread *t, const struct op *op, unsigned index, int64_t *ret)
{
    if (!operand_int(t, op, index, 0, ret))
        return false;
    if (*ret < 0)
        thread_fail(t, op, "%s is negative: %lld", statement_of(op->code)->params[index].name,
                    (long long)*ret);
    return *ret >= 0;
}

bool operand_text(struct thread *t, const struct op *op, unsigned index, char *out, size_t size)
{
    if (text_expand(t->process->scenario, t->vars, op->args[index].text, out, size) < 0) {
        thread_fail(t, op, "'%.60s' is too long with its variables", op->args[index].text);
        return false;
    }
    return true;
}

int64_t operand_choice(const struct op *op, unsigned index, int64_t absent)
{
    return op->args[index].kind == OPERAND_NONE ? absent : op->args[index].value;
}

struct slot *slot_any(struct thread *t, const struct op *op, unsigned index)
{
    uint32_t slot;
    int r = ref_slot(t, &op->args[index], &slot);
    if (r < 0) {
        thread_fail(t, op, "%s has %s", statement_of(op->code)->params[index].name,
                    value_problem(r));
        return NULL;
    }
    return &t->process->slots[slot];
}

struct slot *slot_new(struct thread *t, const struct op *op, unsigned index)
{
    if (op->args[index].anonymous) {
        t->anonymous = (struct slot){0};
        return &t->anonymous;
    }
    struct slot *slot = slot_any(t, op, index);
    if (slot && slot->kind != SLOT_EMPTY) {
        thread_fail(t, op, "%s still holds %s (free it, or `forget` it)",
                    statement_of(op->code)->params[index].name, slot_names[slot->kind]);
        return NULL;
    }
    return slot;
}

struct slot *slot_get(struct thread *t, const struct op *op, unsigned index, enum slot_kind kind)
{
    struct slot *slot = slot_any(t, op, index);
    if (slot && slot->kind != kind) {
        thread_fail(t, op, "%s holds %s, not %s", statement_of(op->code)->params[index].name,
                    slot_names[slot->kind], slot_names[kind]);
        return NULL;
    }
    return slot;
}

void slot_book(struct thread *t, struct slot *slot, enum slot_kind slot_kind,
               enum truth_kind truth_kind, unsigned module, unsigned device, uint64_t value,
               int64_t bytes, int64_t hal_bytes)
{
    *slot = (struct slot){.kind = slot_kind,
                          .value = value,
                          .bytes = bytes,
                          .hal_bytes = hal_bytes,
                          .cell = truth_add(t->process->truth, truth_kind, module, device, t->phase,
                                            bytes, hal_bytes)};
}

void slot_clear(struct thread *t, struct slot *slot)
{
    truth_remove(t->process->truth, slot->cell, slot->bytes, slot->hal_bytes);
    *slot = (struct slot){0};
}

const op_handler op_handlers[OP_COUNT] = {
    [OP_LET] = do_let,
    [OP_SEED] = do_seed,
    [OP_SLEEP] = do_sleep,
    [OP_BARRIER] = do_barrier,
    [OP_CHECKPOINT] = do_checkpoint,
    [OP_HOLD] = do_hold,
    [OP_WAIT] = do_wait,
    [OP_EXIT] = do_exit,
    [OP_ABORT] = do_abort,
    [OP_KILL] = do_kill,
    [OP_PRINT] = do_print,
    [OP_DEVICE] = do_device,
    [OP_DEVICE_RESET] = do_device_reset,
    [OP_CONTEXT] = do_context,
    [OP_CONTEXT_USE] = do_context_use,
    [OP_CONTEXT_DESTROY] = do_context_destroy,
    [OP_MALLOC] = do_malloc,
    [OP_FREE] = do_free,
    [OP_FREE_ADDRESS] = do_free_address,
    [OP_HOST] = do_host,
    [OP_REGISTER] = do_register,
    [OP_UNREGISTER] = do_unregister,
    [OP_FORGET] = do_forget,
    [OP_TOUCH] = do_touch,
    [OP_RESERVE] = do_reserve,
    [OP_RELEASE] = do_release,
    [OP_CREATE] = do_create,
    [OP_DESTROY] = do_destroy,
    [OP_MAP] = do_map,
    [OP_UNMAP] = do_unmap,
    [OP_RETAIN] = do_retain,
    [OP_EXPORT] = do_export,
    [OP_IMPORT] = do_import,
    [OP_IPC_EXPORT] = do_ipc_export,
    [OP_IPC_OPEN] = do_ipc_open,
    [OP_IPC_CLOSE] = do_ipc_close,
    [OP_SEGMENT] = do_segment,
    [OP_GROW] = do_grow,
    [OP_SHRINK] = do_shrink,
    [OP_SEGMENT_FREE] = do_segment_free,
    [OP_POOL] = do_pool,
    [OP_POOL_MALLOC] = do_pool_malloc,
    [OP_POOL_FREE] = do_pool_free,
    [OP_POOL_TRIM] = do_pool_trim,
    [OP_POOL_DESTROY] = do_pool_destroy,
    [OP_STREAM] = do_stream,
    [OP_STREAM_DESTROY] = do_stream_destroy,
    [OP_SYNC] = do_sync,
    [OP_HCCL] = do_hccl,
    [OP_HCCL_DESTROY] = do_hccl_destroy,
    [OP_ALLREDUCE] = do_allreduce,
    [OP_COPY] = do_copy,
    [OP_MEMSET] = do_memset,
    [OP_MEMINFO] = do_meminfo,
    [OP_ATB] = do_atb,
    [OP_OPERATOR] = do_operator,
    [OP_CALL] = do_call,
    [OP_TENSOR] = do_tensor,
    [OP_DEL] = do_del,
    [OP_RECORD_STREAM] = do_record_stream,
    [OP_STREAM_DONE] = do_stream_done,
    [OP_EMPTY_CACHE] = do_empty_cache,
    [OP_WORKSPACE] = do_workspace,
};
