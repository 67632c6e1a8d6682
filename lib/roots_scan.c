/* SPDX-License-Identifier: Apache-2.0 */
/*
 * roots_scan.c - the order of a scan, the second look, and what is left of it.
 *
 * Invariants: a tensor in the result verified twice, the second time from memory read anew, and was
 * the same; the blocks are of the second look, too; a block or tensor of which that cannot be said
 * is counted, not shown.
 */
#include "roots_internal.h"

#include <errno.h>
#include <string.h>

#define TABLE_ATTEMPTS 5u
#define INTERPRETER_ATTEMPTS 3u
#define NAMES_ATTEMPTS 3u
#define CHUNK_SHIFT 10
#define FINISH_NS 500000000ull /* for the tensors that were found, when the time is over */

static const char *stop_text(int error)
{
    return error == -ETIME    ? "the time for a scan was over"
           : error == -EDQUOT ? "the bytes for a scan were read"
                              : "out of memory";
}

static void names_reason(struct walk *w, const char *text)
{
    struct scan_summary *s = &w->result->s;
    if (!s->names_reason[0])
        snprintf(s->names_reason, sizeof(s->names_reason), "%s", text);
}

/* Reads the table of blocks into the result, in place of an earlier one. */
static int blocks_read(struct walk *w)
{
    const struct scan_input *in = w->input;
    struct scan_result *res = w->result;
    struct error error = {0};
    struct npualloc table;

    if (!in->allocator)
        return -ENODATA;
    int r = npualloc_read(in->image, in->ranges, in->allocator, TABLE_ATTEMPTS, &table, &error);
    if (r < 0) {
        if (res->s.has_blocks)
            return r; /* those of the earlier reading stay */
        snprintf(res->s.blocks_reason, sizeof(res->s.blocks_reason), "%s", error.what);
        res->s.is_torn = r != -ENODATA;
        return r;
    }
    free(res->blocks);
    res->blocks = table.blocks;
    res->s.block_count = (uint32_t)table.block_count;
    res->s.device_count = table.device_count;
    memcpy(res->devices, table.devices, sizeof(res->devices));
    res->s.has_blocks = true;
    res->s.is_torn = false;
    res->s.is_blocks_complete = table.is_complete;
    res->s.attempts = table.attempts;
    snprintf(res->s.blocks_reason, sizeof(res->s.blocks_reason), "%s",
             table.is_complete ? "" : "blocks do not add up to the allocator's own totals");
    return 0;
}

static bool is_python(struct walk *w)
{
    const struct scan_input *in = w->input;
    const struct pyobj_layout *layout;

    if (!in->python_minor) {
        names_reason(w, in->python_why ? in->python_why : "no CPython in this process");
        return false;
    }
    layout = pyobj_layout_find(in->python_minor);
    if (!layout) {
        names_reason(w, "this version of CPython is not known");
        return false;
    }
    pyobj_init(&w->py, in->image, layout);
    w->result->s.python_minor = in->python_minor;
    /* a thread that begins or ends just now is in the list without being whole */
    for (unsigned i = 0; in->runtime && i < INTERPRETER_ATTEMPTS; i++) {
        if (pyobj_interpreter(&w->py, in->runtime, &w->interpreter) == 0)
            return true;
        image_forget(in->image);
    }
    int r = image_stopped(in->image);
    names_reason(w, r < 0 ? stop_text(r)
                          : "the interpreter's threads were not found where this version has them");
    w->error = r;
    return false;
}

/* Reads a tensor into its record; false: it does not verify. */
static bool tensor_fill(struct walk *w, const struct torchobj_layout *layout, struct scan_tensor *t)
{
    struct torchobj o;
    int r = torchobj_read(w->input->image, w->input->ranges, layout, t->object, &o);

    if (r < 0) {
        w->result->s.rejected += r != -ENODATA && !image_stopped(w->input->image);
        return false;
    }
    t->storage = o.storage;
    t->data = o.data;
    t->storage_bytes = o.storage_bytes;
    t->used_bytes = o.used_bytes;
    t->offset = o.offset;
    memcpy(t->dims, o.dims, sizeof(t->dims));
    t->dim_count = o.dim_count;
    t->dtype = o.dtype;
    t->device_type = o.device_type;
    t->device = o.device_index;
    t->is_owner = o.is_owner;
    return true;
}

static int layout_find(struct walk *w, struct torchobj_layout *ret)
{
    uint64_t samples[TORCHOBJ_SAMPLES];
    uint32_t count = w->result->s.tensor_count;
    uint32_t n = count < TORCHOBJ_SAMPLES ? count : TORCHOBJ_SAMPLES;
    size_t verified;

    /* spread over all of them: the first ones may be of one odd kind */
    for (uint32_t i = 0; i < n; i++)
        samples[i] = w->result->tensors[(uint64_t)i * count / n].object;
    int r = torchobj_calibrate(w->input->image, w->input->ranges, samples, n, ret, &verified);
    if (r == 0)
        snprintf(w->result->s.torch, sizeof(w->result->s.torch), "%s", ret->versions);
    return r;
}

static bool tensor_same(const struct scan_tensor *a, const struct scan_tensor *b)
{
    return a->storage == b->storage && a->data == b->data && a->storage_bytes == b->storage_bytes &&
           a->used_bytes == b->used_bytes && a->device == b->device && a->dtype == b->dtype;
}

/* Keeps what `keep` says, in order. */
static void tensors_filter(struct walk *w, const struct torchobj_layout *layout, bool is_second)
{
    struct scan_result *res = w->result;
    uint32_t kept = 0;

    for (uint32_t i = 0; i < res->s.tensor_count; i++) {
        struct scan_tensor t = res->tensors[i];
        if (!tensor_fill(w, layout, &t)) {
            if (image_stopped(w->input->image))
                break;
            res->s.changed += is_second;
            continue;
        }
        if (is_second && !tensor_same(&t, &res->tensors[i])) {
            res->s.changed++;
            continue;
        }
        if (!is_second && t.device_type != TORCH_DEVICE_NPU) {
            res->s.host_tensors++;
            if (!w->input->include_host)
                continue;
        }
        res->tensors[kept++] = t;
    }
    res->s.tensor_count = kept;
}

/* Whether a tensor is a better name for its storage than the one so far: it is all of it, the other
 * a part, and both are of the same owner. */
static bool is_better(const struct scan_tensor *t, const struct scan_tensor *so_far)
{
    return t->owner == so_far->owner && so_far->used_bytes < so_far->storage_bytes &&
           t->used_bytes == t->storage_bytes;
}

/* One tensor of each storage has it; the others are views of it. */
static int storages_share(struct walk *w)
{
    struct scan_result *res = w->result;
    struct map storages;
    int r = 0;

    map_init(&storages, sizeof(struct walk_seen), CHUNK_SHIFT, NULL);
    for (uint32_t i = 0; i < res->s.tensor_count && r == 0; i++) {
        struct scan_tensor *t = &res->tensors[i];
        uint32_t number = map_find(&storages, t->storage, 0);
        bool is_new = !number;
        if (is_new)
            r = map_add(&storages, t->storage, 0, &number);
        if (r < 0)
            break;
        struct walk_seen *seen = map_at(&storages, number);
        if (is_new || is_better(t, &res->tensors[seen->value]))
            seen->value = i;
        if (is_new && t->device_type != TORCH_DEVICE_NPU)
            res->s.host_bytes += t->storage_bytes;
    }
    for (uint32_t i = 0; i < res->s.tensor_count && r == 0; i++) {
        uint32_t number = map_find(&storages, res->tensors[i].storage, 0);
        uint32_t base = ((struct walk_seen *)map_at(&storages, number))->value;
        res->tensors[i].base = base == i ? SCAN_NONE : base;
    }
    map_clear(&storages);
    return r;
}

/* What no row of the table owns is at least a parameter, a buffer or neither. */
static void owners_refine(struct walk *w)
{
    uint16_t loose = walk_owner(w, "PTA@tensor"), weights = 0, buffers = 0;

    for (uint32_t i = 0; i < w->result->s.tensor_count; i++) {
        struct scan_tensor *t = &w->result->tensors[i];
        if (t->owner != loose || t->role == SCAN_OTHER)
            continue;
        if (t->role == SCAN_PARAMETER)
            t->owner = weights = weights ? weights : walk_owner(w, "PTA@weights");
        else
            t->owner = buffers = buffers ? buffers : walk_owner(w, "PTA@buffers");
    }
}

static void tensors_finish(struct walk *w)
{
    struct scan_result *res = w->result;
    struct torchobj_layout layout;
    uint32_t found = res->s.tensor_count;
    int r = found ? layout_find(w, &layout) : -ENOENT;

    if (r < 0) {
        res->s.tensor_count = 0;
        names_reason(w, r == -ENOENT    ? "no tensor was found among the objects"
                        : r == -ENODATA ? "the tensors of this torch do not verify under any layout"
                                        : stop_text(r));
        return;
    }
    tensors_filter(w, &layout, false);
    image_forget(w->input->image);
    tensors_filter(w, &layout, true);
    r = image_stopped(w->input->image);
    if (r < 0) { /* those that were not looked at are not there, which is no verdict on them */
        res->s.is_cut = true;
        names_reason(w, stop_text(r));
    }
    if (!res->s.tensor_count && res->s.rejected)
        names_reason(w, "no tensor verified");
    res->s.has_names = res->s.tensor_count > 0;
}

/* is_last: what is found without the root, too. */
static void names_find(struct walk *w, bool is_last)
{
    if (!is_python(w)) {
        w->result->s.is_cut = w->error < 0;
        return;
    }
    seed_roots(w);
    /* frames that come and go while they are read may hide the one that leads to the root */
    if (!w->error && !w->result->s.framework[0] && seed_expects_root(w)) {
        w->is_rootless = true;
        w->torn++;
        if (!is_last)
            return;
    }
    if (!w->error)
        seed_frames(w);
    if (!w->error && (w->input->is_thorough || !w->result->s.framework[0]))
        seed_tracked(w);
    if (!w->error) /* frames and modules end quietly */
        w->error = image_stopped(w->input->image);
    if (w->error)
        names_reason(w, stop_text(w->error));
    w->result->s.is_cut = w->error || w->is_full;
    if (w->is_full)
        names_reason(w, "there are more objects than one scan looks at");
}

/* Forgets what a walk found, to walk again. */
static void walk_again(struct walk *w)
{
    struct scan_summary *s = &w->result->s;

    map_clear(&w->visited);
    map_clear(&w->names);
    pyobj_done(&w->py);
    s->node_count = s->tensor_count = s->string_bytes = s->owner_count = 0;
    s->objects = s->skipped = 0;
    s->framework[0] = s->root[0] = s->names_reason[0] = '\0';
    w->torn = 0;
    w->is_rootless = false;
    image_forget(w->input->image);
}

/* Names, anew as long as parts of the roots change under the walk. */
static void names_settle(struct walk *w)
{
    struct scan_summary *s = &w->result->s;

    for (unsigned attempt = 1;; attempt++) {
        names_find(w, attempt == NAMES_ATTEMPTS);
        /* a root may be in the part of a thread's frames that was not seen */
        if (!s->framework[0])
            w->torn += w->py.torn_threads;
        if (!w->torn || w->error || attempt == NAMES_ATTEMPTS)
            break;
        walk_again(w);
    }
    if (w->torn) {
        s->is_cut = true;
        names_reason(w,
                     w->is_rootless
                         ? "the server's model runner was not found: its frames change, or it is "
                           "none that schema/roots.def knows"
                         : "parts of the model change while they are read");
    }
}

static void walk_done(struct walk *w)
{
    if (w->py.layout)
        pyobj_done(&w->py);
    map_clear(&w->visited);
    map_clear(&w->names);
    free(w->now.items);
    free(w->later.items);
}

int scan_process(const struct scan_input *input, struct scan_result **ret)
{
    _cleanup_(scan_result_freep) struct scan_result *result = calloc(1, sizeof(*result));
    struct walk w = {.input = input, .result = result};
    int r;

    if (!result)
        return -ENOMEM;
    map_init(&w.visited, sizeof(struct walk_seen), CHUNK_SHIFT, NULL);
    map_init(&w.names, sizeof(struct walk_seen), CHUNK_SHIFT, NULL);
    if (!input->allocator)
        snprintf(result->s.blocks_reason, sizeof(result->s.blocks_reason),
                 "torch_npu's allocator was not found");
    blocks_read(&w);
    names_settle(&w);
    /* what was found until then is still looked at */
    image_extend(input->image, FINISH_NS);
    tensors_finish(&w);
    owners_refine(&w);
    /* the blocks once more, last, so that they are as new as can be */
    if (result->s.has_blocks)
        blocks_read(&w);
    r = storages_share(&w);
    if (r == 0)
        r = scan_join(result);
    result->s.read_bytes = image_stats(input->image)->read_bytes;
    walk_done(&w);
    if (r < 0)
        return r;
    if (w.error == -ENOMEM && !result->s.tensor_count && !result->s.has_blocks)
        return -ENOMEM;
    *ret = TAKE_PTR(result);
    return 0;
}
