/* SPDX-License-Identifier: Apache-2.0 */
/*
 * do_torch.c - statements that go through the stand-in caching allocator (sim/driver/torch).
 *
 * A tensor's truth is the block size that the allocator gave it; reserved and active bytes are the
 * allocator's own figures, which a report carries under "torch".
 */
#include "run.h"

static bool stream_of(struct thread *t, const struct op *op, unsigned index, void **ret)
{
    *ret = NULL;
    if (op->args[index].kind == OPERAND_NONE)
        return true;
    struct slot *slot = slot_get(t, op, index, SLOT_STREAM);
    if (slot)
        *ret = (void *)slot->value;
    return slot;
}

HANDLER(do_tensor)
{
    const struct torch *torch = &t->process->torch;
    void *stream, *block = NULL;
    int64_t bytes, external, device;
    struct slot *slot = slot_new(t, op, 0);

    if (!slot || !operand_size(t, op, 1, &bytes) || !stream_of(t, op, 2, &stream) ||
        !operand_int(t, op, 3, 0, &external) || !operand_int(t, op, 4, t->device, &device))
        return RUN_FAILED;
    if (device < 0)
        return thread_fail(t, op, "the thread has no device");
    int r = torch->malloc((size_t)bytes, stream, (int)device, external != 0, &block);
    if (r == 0) {
        int64_t rounded = (int64_t)torch->size(block);
        slot_book(t, slot, SLOT_TENSOR, TRUTH_TENSOR, 0, (unsigned)device, (uint64_t)block, bytes,
                  rounded);
    }
    return r;
}

HANDLER(do_del)
{
    struct slot *slot = slot_get(t, op, 0, SLOT_TENSOR);
    if (!slot)
        return RUN_FAILED;
    int r = t->process->torch.free((void *)slot->value);
    if (r == 0)
        slot_clear(t, slot);
    return r;
}

HANDLER(do_record_stream)
{
    void *stream;
    struct slot *slot = slot_get(t, op, 0, SLOT_TENSOR);
    if (!slot || !stream_of(t, op, 1, &stream))
        return RUN_FAILED;
    return t->process->torch.record_stream((void *)slot->value, stream);
}

HANDLER(do_stream_done)
{
    void *stream;
    if (!stream_of(t, op, 0, &stream))
        return RUN_FAILED;
    return t->process->torch.stream_done((int)t->device, stream);
}

HANDLER(do_empty_cache)
{
    (void)op;
    return t->process->torch.empty_cache((int)t->device);
}

HANDLER(do_workspace)
{
    void *stream;
    int64_t bytes;
    if (!operand_size(t, op, 0, &bytes) || !stream_of(t, op, 1, &stream))
        return RUN_FAILED;
    if (t->device < 0)
        return thread_fail(t, op, "the thread has no device");
    return t->process->torch.workspace((size_t)bytes, stream, (int)t->device);
}
