/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_scan.c - what a scan found, for programs.
 *
 * Invariants: named + unnamed = allocated, to the byte, per device; a storage is counted once.
 */
#include "view_scan.h"

#include <errno.h>
#include <string.h>

#include "map.h"

#define MODULES_MAX 8192u
#define MODULE_DEPTH 12u

/* A tensor counts when it is the first of its storage and its memory is held by the process. */
static bool counts(const struct scan_tensor *t)
{
    return t->base == SCAN_NONE && t->device_type == TORCH_DEVICE_NPU &&
           (t->place == SCAN_IN_LIVE ||
            (t->is_owner && (t->place == SCAN_PLACE_UNKNOWN || t->place == SCAN_IN_NO_BLOCK)));
}

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

static bool is_quantised(const struct scan_tensor *t)
{
    const char *name = torch_dtype_name(t->dtype);
    bool is_narrow = torch_dtype_bits(t->dtype) <= 8 && strcmp(name, "bool") != 0;
    return t->role == SCAN_PARAMETER && (is_narrow || strncmp(name, "float8", 6) == 0);
}

static bool is_expert(const char *path)
{
    return strstr(path, ".experts.") || strstr(path, "w13_weight") || strstr(path, "w2_weight");
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
    json_kbool(j, "counted", counts(t));
    if (is_expert(path))
        json_kbool(j, "expert", true);
    if (is_quantised(t))
        json_kbool(j, "quantised", true);
    if (t->base != SCAN_NONE) {
        scan_path(r, r->tensors[t->base].node, false, path, sizeof(path));
        json_kstr(j, "base", path);
    }
    json_end(j);
}

/* --- sums --- */

struct sum {
    uint64_t bytes, count;
    uint64_t dtypes; /* a bit per type of elements */
};

static void owners_array(struct json *j, const struct scan_result *r)
{
    struct sum sums[SCAN_OWNERS_MAX] = {{0}};

    for (uint32_t i = 0; i < r->s.tensor_count; i++)
        if (counts(&r->tensors[i])) {
            sums[r->tensors[i].owner].bytes += r->tensors[i].storage_bytes;
            sums[r->tensors[i].owner].count++;
        }
    json_karray(j, "owners");
    for (uint32_t i = 0; i < r->s.owner_count; i++) {
        if (!sums[i].count)
            continue;
        json_object(j);
        json_kstr(j, "owner", r->owners[i]);
        json_ku64(j, "bytes", sums[i].bytes);
        json_ku64(j, "tensors", sums[i].count);
        json_end(j);
    }
    json_end(j);
}

static void dtypes_array(struct json *j, const struct scan_result *r)
{
    static const char *const roles[] = {"tensor", "parameter", "buffer"};
    struct sum sums[256][3] = {{{0}}};

    for (uint32_t i = 0; i < r->s.tensor_count; i++)
        if (counts(&r->tensors[i])) {
            struct sum *s = &sums[r->tensors[i].dtype][r->tensors[i].role];
            s->bytes += r->tensors[i].storage_bytes;
            s->count++;
        }
    json_karray(j, "dtypes");
    for (unsigned dtype = 0; dtype < 256; dtype++)
        for (unsigned role = 0; role < 3; role++) {
            if (!sums[dtype][role].count)
                continue;
            json_object(j);
            json_kstr(j, "dtype", torch_dtype_name((uint8_t)dtype));
            json_kstr(j, "role", roles[role]);
            json_ku64(j, "bytes", sums[dtype][role].bytes);
            json_ku64(j, "tensors", sums[dtype][role].count);
            json_end(j);
        }
    json_end(j);
}

static void dtype_names(struct json *j, uint64_t dtypes)
{
    char text[256];
    size_t length = 0;

    text[0] = '\0';
    for (unsigned d = 0; d < 64; d++)
        if (dtypes >> d & 1)
            length += length + 24 > sizeof(text)
                          ? 0
                          : (size_t)snprintf(text + length, sizeof(text) - length, "%s%s",
                                             length ? "," : "", torch_dtype_name((uint8_t)d));
    json_kstr(j, "dtypes", text);
}

/* Sums of every node: its own tensors and those below it. Parents come before their children. */
static void sums_make(const struct scan_result *r, struct sum *sums)
{
    for (uint32_t i = 0; i < r->s.tensor_count; i++)
        if (counts(&r->tensors[i])) {
            struct sum *s = &sums[r->tensors[i].node];
            s->bytes += r->tensors[i].storage_bytes;
            s->count++;
            s->dtypes |= 1ull << (r->tensors[i].dtype & 63);
        }
    for (uint32_t i = r->s.node_count; i-- > 0;)
        if (r->nodes[i].parent != SCAN_NONE) {
            struct sum *s = &sums[r->nodes[i].parent];
            s->bytes += sums[i].bytes;
            s->count += sums[i].count;
            s->dtypes |= sums[i].dtypes;
        }
}

/* The next node in the order of the tree: down, else to the side, else up and to the side. */
static uint32_t tree_next(const struct scan_result *r, const uint32_t *child, const uint32_t *side,
                          uint32_t node)
{
    if (child[node] != SCAN_NONE)
        return child[node];
    while (node != SCAN_NONE && side[node] == SCAN_NONE)
        node = r->nodes[node].parent;
    return node == SCAN_NONE ? SCAN_NONE : side[node];
}

static void module_object(struct json *j, const struct scan_result *r, uint32_t node,
                          const struct sum *sum, unsigned depth)
{
    char path[SCAN_PATH_MAX];

    scan_path(r, node, false, path, sizeof(path));
    json_object(j);
    json_kstr(j, "name", path);
    json_ku64(j, "depth", depth);
    json_ku64(j, "bytes", sum->bytes);
    json_ku64(j, "tensors", sum->count);
    dtype_names(j, sum->dtypes);
    json_end(j);
}

/* Modules that hold something, each followed by those below it. */
static int modules_array(struct json *j, const struct scan_result *r)
{
    uint32_t count = r->s.node_count, shown = 0, roots = SCAN_NONE;
    _cleanup_free_ struct sum *sums = calloc(count + 1, sizeof(*sums));
    _cleanup_free_ uint32_t *links = malloc((2 * (size_t)count + 1) * sizeof(*links));

    if (!sums || !links)
        return -ENOMEM;
    uint32_t *child = links, *side = links + count;
    sums_make(r, sums);
    memset(links, 0xff, 2 * (size_t)count * sizeof(*links)); /* SCAN_NONE */
    for (uint32_t i = count; i-- > 0;) {
        uint32_t parent = r->nodes[i].parent;
        side[i] = parent == SCAN_NONE ? roots : child[parent];
        *(parent == SCAN_NONE ? &roots : &child[parent]) = i;
    }
    json_karray(j, "modules");
    for (uint32_t i = roots; i != SCAN_NONE && shown < MODULES_MAX;
         i = tree_next(r, child, side, i)) {
        unsigned depth = 0;
        if (!r->nodes[i].is_module || !sums[i].count)
            continue;
        for (uint32_t n = i; n != SCAN_NONE && !r->nodes[n].is_module_root; n = r->nodes[n].parent)
            depth++;
        if (depth > MODULE_DEPTH)
            continue;
        module_object(j, r, i, &sums[i], depth);
        shown++;
    }
    json_end(j);
    return 0;
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

static void allocators_array(struct json *j, const struct scan_result *r)
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
        json_key(j, "reserved_bytes");
        if (d->has_stats)
            json_u64(j, d->reserved_bytes);
        else
            json_null(j);
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
    json_kstr(j, "blocks", r->s.is_blocks_complete ? "full" : r->s.has_blocks ? "partial" : "none");
    nullable(j, "blocks_reason", r->s.blocks_reason);
    json_kstr(j, "names", !r->s.has_names ? "none" : r->s.is_cut ? "partial" : "full");
    nullable(j, "names_reason", r->s.names_reason);
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
    allocators_array(j, r);
    owners_array(j, r);
    dtypes_array(j, r);
    int n = modules_array(j, r);
    if (n == 0)
        n = tensors_array(j, r, q);
    if (n == 0)
        n = blocks_array(j, r, q);
    json_end(j);
    return n;
}
