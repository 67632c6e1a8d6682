/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_scan.c - what a scan found, for programs.
 *
 * Invariants: named + unnamed = allocated, to the byte, per device; a storage is counted once.
 */
#include "view_scan.h"

#include <errno.h>
#include <string.h>

#include "scan_kind.h"
#include "view_rows.h"

static const char *place_name(uint8_t place)
{
    static const char *const names[] = {"live", "free", "pending", "outside", "unknown"};
    return place < ARRAY_SIZE(names) ? names[place] : "unknown";
}

static const char *role_name(uint8_t role)
{
    return role == SCAN_PARAMETER ? "parameter" : role == SCAN_BUFFER ? "buffer" : "tensor";
}

static const char *state_name(uint8_t state)
{
    static const char *const names[] = {"live", "free", "pending", "unmapped"};
    return state < ARRAY_SIZE(names) ? names[state] : "unknown";
}

static void shape(struct json *j, const struct scan_tensor *t)
{
    json_karray(j, "shape");
    for (unsigned i = 0; i < t->dim_count && i < TORCH_DIMS_KEPT; i++)
        json_i64(j, t->dims[i]);
    json_end(j);
}

static void tensor_object(struct json *j, const struct scan_result *r, const struct scan_tensor *t)
{
    char path[SCAN_PATH_MAX];

    scan_path(r, t->node, false, path, sizeof(path));
    json_object(j);
    json_kstr(j, "name", path);
    if (t->role != SCAN_OTHER) {
        scan_path(r, t->node, true, path, sizeof(path));
        json_kstr(j, "state_name", path);
    }
    json_kstr(j, "role", role_name(t->role));
    json_kstr(j, "owner", r->owners[t->owner]);
    json_kstr(j, "dtype", torch_dtype_name(t->dtype));
    shape(j, t);
    json_ku64(j, "size_bytes", t->storage_bytes);
    json_ku64(j, "tensor_bytes", t->used_bytes);
    json_khex(j, "address", t->data);
    json_ki64(j, "device", t->device_type == TORCH_DEVICE_NPU ? t->device : -1);
    json_kstr(j, "place", place_name(t->place));
    json_kbool(j, "counted", scan_counts(t));
    struct scan_kind kind = scan_kind_of(t, path);
    if (kind.is_expert)
        json_kbool(j, "expert", true);
    if (kind.is_quantised)
        json_kbool(j, "quantised", true);
    if (kind.is_scale)
        json_kbool(j, "scale", true);
    if (t->base != SCAN_NONE) {
        scan_path(r, r->tensors[t->base].node, false, path, sizeof(path));
        json_kstr(j, "base", path);
    }
    json_end(j);
}

/* --- blocks --- */

static void block_object(struct json *j, const struct scan_result *r, uint32_t i)
{
    const struct npualloc_block *b = &r->blocks[i];
    char path[SCAN_PATH_MAX];

    json_object(j);
    json_khex(j, "address", b->address);
    json_ku64(j, "size_bytes", b->bytes);
    json_ku64(j, "requested_bytes", b->requested_bytes);
    json_ku64(j, "device", b->device);
    json_khex(j, "stream", b->stream);
    json_kstr(j, "state", state_name(b->state));
    json_kstr(j, "pool", b->is_small ? "small" : "large");
    json_kbool(j, "private", b->is_private);
    if (r->block_tensors[i] != SCAN_NONE) {
        scan_path(r, r->tensors[r->block_tensors[i]].node, false, path, sizeof(path));
        json_kstr(j, "name", path);
        json_kstr(j, "owner", r->owners[r->tensors[r->block_tensors[i]].owner]);
    }
    json_end(j);
}

struct physical {
    int device; /* the driver's */
    bool is_late, is_known;
    uint64_t bytes;
};

static int on_device_use(void *userdata, const struct ledger_device_use *use)
{
    struct physical *p = userdata;

    if (use->device != p->device)
        return 0;
    p->is_known = !p->is_late || use->driver_bytes != UINT64_MAX;
    p->bytes = use->physical_bytes;
    return 1;
}

/* All that the process has of a device. false: nobody knows. */
static bool physical_of(const struct view_scan_query *q, uint8_t device, uint64_t *ret)
{
    const struct ledger_process *process =
        q->ledger ? ledger_find_process(q->ledger, q->tgid) : NULL;
    struct physical p = {.is_late = q->is_late};

    if (!process)
        return false;
    p.device = view_device_of(&process->facts, device);
    ledger_each_device(q->ledger, q->tgid, on_device_use, &p);
    *ret = p.bytes;
    return p.is_known;
}

/* The allocator keeps its books while sleep mode takes the memory away: what it has reserved beyond
 * all that the process has is addresses only. */
static void backing_write(struct json *j, const struct npualloc_device *d,
                          const struct view_scan_query *q)
{
    uint64_t physical = 0;
    bool known = d->has_stats && physical_of(q, d->device, &physical);

    json_ki64_or_null(j, "physical_bytes", known, (int64_t)physical);
    json_ki64_or_null(j, "unmapped_bytes", known,
                      d->reserved_bytes > physical ? (int64_t)(d->reserved_bytes - physical) : 0);
}

static void allocators_array(struct json *j, const struct scan_result *r,
                             const struct view_scan_query *q)
{
    json_karray(j, "allocators");
    for (uint32_t i = 0; i < r->s.device_count; i++) {
        const struct npualloc_device *d = &r->devices[i];
        uint64_t named = 0, count = 0;
        for (uint32_t b = 0; b < r->s.block_count; b++)
            if (r->blocks[b].device == d->device && r->block_tensors[b] != SCAN_NONE) {
                named += r->blocks[b].bytes;
                count++;
            }
        json_object(j);
        json_ku64(j, "device", d->device);
        json_ku64(j, "allocated_bytes", d->live_bytes);
        json_ku64(j, "allocated_blocks", d->live_blocks);
        json_ku64(j, "named_bytes", named);
        json_ku64(j, "named_blocks", count);
        json_ku64(j, "unnamed_bytes", d->live_bytes - named);
        json_ku64(j, "free_bytes", d->free_bytes);
        json_ku64(j, "free_blocks", d->free_blocks);
        json_ku64(j, "largest_free_bytes", d->largest_free_bytes);
        json_ku64(j, "pending_bytes", d->pending_bytes);
        json_ki64_or_null(j, "reserved_bytes", d->has_stats, (int64_t)d->reserved_bytes);
        backing_write(j, d, q);
        json_end(j);
    }
    json_end(j);
}

struct order {
    uint64_t bytes;
    uint32_t index;
};

static int compare_order(const void *a, const void *b)
{
    const struct order *x = a, *y = b;

    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static int tensors_array(struct json *j, const struct scan_result *r,
                         const struct view_scan_query *q)
{
    _cleanup_free_ struct order *order = malloc((r->s.tensor_count + 1) * sizeof(*order));
    uint32_t count = 0;

    if (!order)
        return -ENOMEM;
    for (uint32_t i = 0; i < r->s.tensor_count; i++)
        if (r->tensors[i].storage_bytes >= q->min_size_bytes)
            order[count++] = (struct order){r->tensors[i].storage_bytes, i};
    qsort(order, count, sizeof(*order), compare_order);
    json_ku64(j, "matched_tensors", count);
    json_karray(j, "tensors");
    for (uint32_t i = 0; i < count && (!q->limit || i < q->limit); i++)
        tensor_object(j, r, &r->tensors[order[i].index]);
    json_end(j);
    return 0;
}

/* Live blocks that nothing names, largest first; with_all: every block by address. */
static int blocks_array(struct json *j, const struct scan_result *r,
                        const struct view_scan_query *q)
{
    _cleanup_free_ struct order *order = malloc((r->s.block_count + 1) * sizeof(*order));
    uint32_t count = 0;

    if (!order)
        return -ENOMEM;
    for (uint32_t i = 0; i < r->s.block_count; i++)
        if (r->blocks[i].state == NPUALLOC_LIVE && r->block_tensors[i] == SCAN_NONE)
            order[count++] = (struct order){r->blocks[i].bytes, i};
    qsort(order, count, sizeof(*order), compare_order);
    json_karray(j, "unnamed");
    for (uint32_t i = 0; i < count && (!q->limit || i < q->limit); i++)
        block_object(j, r, order[i].index);
    json_end(j);
    if (!q->with_blocks)
        return 0;
    json_karray(j, "blocks");
    for (uint32_t i = 0, n = 0; i < r->s.block_count && (!q->limit || n < q->limit); i++)
        if (r->blocks[i].bytes >= q->min_size_bytes) {
            block_object(j, r, i);
            n++;
        }
    json_end(j);
    return 0;
}

static void nullable(struct json *j, const char *key, const char *text)
{
    json_kstr(j, key, text[0] ? text : NULL);
}

static void summary(struct json *j, const struct scan_result *r, const struct view_scan_query *q)
{
    char python[16];

    json_ku64(j, "tgid", q->tgid);
    snprintf(python, sizeof(python), "3.%u", r->s.python_minor);
    json_kstr(j, "python", r->s.python_minor ? python : NULL);
    nullable(j, "torch_layout", r->s.torch);
    nullable(j, "framework", r->s.framework);
    nullable(j, "root", r->s.root);
    json_kobject(j, "coverage");
    const char *blocks, *blocks_why, *names, *names_why;
    scan_coverage(r, &blocks, &blocks_why, &names, &names_why);
    json_kstr(j, "blocks", blocks);
    json_kstr(j, "blocks_reason", blocks_why);
    json_kstr(j, "names", names);
    json_kstr(j, "names_reason", names_why);
    json_end(j);
    json_kobject(j, "scan");
    json_ku64(j, "duration_ns", r->s.duration_ns);
    json_ku64(j, "cpu_ns", r->s.cpu_ns);
    json_ku64(j, "read_bytes", r->s.read_bytes);
    json_ku64(j, "objects", r->s.objects);
    json_ku64(j, "skipped_objects", r->s.skipped);
    json_ku64(j, "rejected_tensors", r->s.rejected);
    json_ku64(j, "changed_tensors", r->s.changed);
    json_ku64(j, "host_tensors", r->s.host_tensors);
    json_ku64(j, "table_attempts", r->s.attempts);
    json_end(j);
}

int view_scan(const struct scan_result *r, const struct view_context *c,
              const struct view_scan_query *q, struct json *j)
{
    json_object(j);
    view_header(c, j);
    summary(j, r, q);
    allocators_array(j, r, q);
    int n = view_scan_sums(r, j);
    if (n == 0)
        n = tensors_array(j, r, q);
    if (n == 0)
        n = blocks_array(j, r, q);
    json_end(j);
    return n;
}
