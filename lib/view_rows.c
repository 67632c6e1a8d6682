/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_rows.c - collects one row per process and device.
 *
 * Owns: the join of the driver's device numbers with a process's own (ASCEND_RT_VISIBLE_DEVICES),
 * the filters, and the rule for when a physical figure is known.
 * Must not: add levels; keep pointers into the ledger.
 * Invariants: a process has exactly one main row; a row's pools are those of its device.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "procfacts.h"
#include "array.h"
#include "view_rows.h"

const char view_reason_no_pool[] =
    "no allocator totals: no torch_npu block event has been seen in this process";
const char view_reason_late[] =
    "attached late and the driver gives no per-process figure: what was held before is not known";
const char view_reason_no_driver[] = "the driver gives no per-process figure";
const char view_reason_peak[] = "not known of the moment of the peak";

struct collect {
    const struct ledger *ledger;
    const struct view_context *context;
    struct view_rows *rows;
    size_t first; /* first row of the process at hand */
    const struct ledger_process *process;
};

bool view_level_is_torch(enum ledger_level level)
{
    return level == LEVEL_BLOCK || level == LEVEL_PENDING;
}

int view_device_of(const struct process_facts *facts, uint16_t torch_device)
{
    if (facts->visible_count == 0)
        return torch_device;
    if (torch_device >= facts->visible_count || torch_device >= ARRAY_SIZE(facts->visible_devices))
        return VIEW_NO_DEVICE;
    return facts->visible_devices[torch_device];
}

static int visible_of(const struct process_facts *facts, int device)
{
    if (device == VIEW_NO_DEVICE)
        return -1;
    if (facts->visible_count == 0)
        return device;
    for (size_t i = 0; i < facts->visible_count && i < ARRAY_SIZE(facts->visible_devices); i++) {
        if (facts->visible_devices[i] == device)
            return (int)i;
    }
    return -1;
}

bool view_row_has(const struct view_row *row, enum ledger_level level, uint16_t device)
{
    if (level == LEVEL_HOST) /* host memory has no device: it stands once, at the main row */
        return row->main;
    if (view_level_is_torch(level))
        return view_device_of(&row->facts, device) == row->device;
    return row->device == device;
}

bool view_filter_process(const struct view_context *c, const struct process_facts *facts)
{
    bool ok = c->tgid_count == 0;
    for (size_t i = 0; i < c->tgid_count && !ok; i++)
        ok = c->tgids[i] == facts->tgid;
    if (!ok)
        return false;

    ok = c->rank_count == 0;
    for (size_t i = 0; i < c->rank_count && !ok; i++)
        ok = c->ranks[i] == facts->rank;
    if (!ok)
        return false;

    ok = c->container_count == 0;
    for (size_t i = 0; i < c->container_count && !ok; i++) {
        size_t length = strlen(c->containers[i]);
        /* an empty word means "on the host"; a prefix would match every container */
        ok = length == 0 ? facts->container[0] == '\0'
                         : strncmp(facts->container, c->containers[i], length) == 0;
    }
    return ok;
}

bool view_filter_device(const struct view_context *c, int device)
{
    if (c->device_count == 0)
        return true;
    for (size_t i = 0; i < c->device_count; i++) {
        if (c->devices[i] == device)
            return true;
    }
    return false;
}

static struct view_row *row_of_device(struct collect *s, int device)
{
    struct view_rows *rows = s->rows;

    for (size_t i = s->first; i < rows->count; i++) {
        if (rows->items[i].device == device)
            return &rows->items[i];
    }
    if (ARRAY_ROOM(rows->items, rows->capacity, rows->count) < 0)
        return NULL;
    struct view_row *row = &rows->items[rows->count++];
    *row = (struct view_row){
        .facts = s->process->facts,
        .alive = s->process->alive,
        .host_bytes = s->process->host_bytes,
        .device = device,
        .visible_device = visible_of(&s->process->facts, device),
    };
    return row;
}

static int on_device(void *userdata, const struct ledger_device_use *use)
{
    struct view_row *row = row_of_device(userdata, use->device);
    if (!row)
        return -ENOMEM;
    row->use = *use;
    row->has_use = true;
    return 0;
}

static int on_pool(void *userdata, const struct ledger_pool *pool)
{
    struct collect *s = userdata;
    struct view_row *row = row_of_device(s, view_device_of(&s->process->facts, pool->device));

    if (!row)
        return -ENOMEM;
    if (ARRAY_ROOM(row->pools, row->pool_capacity, row->pool_count) < 0)
        return -ENOMEM;
    row->pools[row->pool_count++] = (struct view_pool){
        .component = pool->component,
        .torch_device = pool->device,
        .allocated_bytes = pool->allocated_bytes,
        .reserved_bytes = pool->reserved_bytes,
        .active_bytes = pool->active_bytes,
        .known_bytes = pool->known_block_bytes,
        /* below 0: blocks from before attach were freed, and before_attach is less by them */
        .small_bytes = pool->small_bytes > 0 ? pool->small_bytes : 0,
        .before_attach_bytes = pool->before_attach_bytes,
    };
    return 0;
}

struct view_pool_sum view_row_pools(const struct view_row *row)
{
    struct view_pool_sum sum = {0};
    for (size_t i = 0; i < row->pool_count; i++) {
        const struct view_pool *p = &row->pools[i];
        sum.allocated_bytes += p->allocated_bytes;
        sum.reserved_bytes += p->reserved_bytes;
        sum.active_bytes += p->active_bytes;
        sum.known_bytes += p->known_bytes;
        sum.small_bytes += p->small_bytes;
        sum.before_attach_bytes += p->before_attach_bytes;
    }
    return sum;
}

/* Memory by which the main row is chosen: physical where it is seen, else what pools hold. */
static uint64_t row_weight(const struct view_row *row)
{
    int64_t reserved = view_row_pools(row).reserved_bytes;
    uint64_t pool = reserved > 0 ? (uint64_t)reserved : 0;
    return row->use.physical_bytes > pool ? row->use.physical_bytes : pool;
}

static int compare_rows(const void *a, const void *b)
{
    const struct view_row *x = a, *y = b;
    return (x->device > y->device) - (x->device < y->device);
}

static void use_at_peak(struct ledger_device_use *use)
{
    use->physical_bytes = use->peak_bytes;
    use->before_attach_bytes = use->peak_before_attach_bytes;
    use->known_bytes = use->peak_bytes - use->peak_before_attach_bytes;
    use->driver_bytes = UINT64_MAX;
}

static int on_process(void *userdata, const struct ledger_process *process)
{
    struct collect *s = userdata;
    const struct view_context *c = s->context;
    struct view_coverage coverage = {0};
    int r;

    if (!process->alive && !c->include_exited)
        return 0;
    s->first = s->rows->count;
    s->process = process;
    bool is_in_full =
        process->alive ||
        (c->exited_in_full && ledger_find_process(s->ledger, process->facts.tgid) == process);
    if (is_in_full) {
        r = ledger_each_device(s->ledger, process->facts.tgid, on_device, s);
        if (r == 0)
            r = ledger_each_pool_when(s->ledger, process->facts.tgid, c->moment.when, on_pool, s);
        if (r)
            return r;
        if (process->alive && c->coverage_fn)
            c->coverage_fn(c->userdata, process->facts.tgid, &coverage);
    }
    if (s->rows->count == s->first && !row_of_device(s, VIEW_NO_DEVICE))
        return -ENOMEM;

    struct view_row *rows = s->rows->items + s->first, *largest = rows;
    size_t count = s->rows->count - s->first;
    qsort(rows, count, sizeof(*rows), compare_rows);
    for (size_t i = 0; i < count; i++) {
        rows[i].coverage = coverage;
        rows[i].physical_known =
            !coverage.late || (rows[i].has_use && rows[i].use.driver_bytes != UINT64_MAX);
        if (c->moment.when == LEDGER_AT_PEAK)
            use_at_peak(&rows[i].use);
        if (row_weight(&rows[i]) > row_weight(largest))
            largest = &rows[i];
        rows[i].selected =
            view_filter_process(c, &rows[i].facts) && view_filter_device(c, rows[i].device);
    }
    largest->main = true;
    for (size_t i = 0; i < count; i++)
        rows[i].main_device = largest->device;
    return 0;
}

/* A row beside the main one is foreign when its device is the main device of another process: a
 * context that belongs to another rank's card. */
static void foreign_mark(struct view_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++) {
        struct view_row *row = &rows->items[i];
        for (size_t k = 0; k < rows->count && !row->main && !row->foreign; k++)
            row->foreign = rows->items[k].main && rows->items[k].device == row->device &&
                           rows->items[k].facts.tgid != row->facts.tgid;
    }
}

int view_rows_collect(const struct ledger *l, const struct view_context *c, struct view_rows *ret)
{
    struct view_rows rows = {0};
    struct collect s = {.ledger = l, .context = c, .rows = &rows};
    int r = ledger_each_process(l, on_process, &s);

    if (r) {
        view_rows_done(&rows);
        return r;
    }
    foreign_mark(&rows);
    *ret = rows;
    return 0;
}

void view_rows_done(struct view_rows *rows)
{
    for (size_t i = 0; i < rows->count; i++)
        free(rows->items[i].pools);
    free(rows->items);
    *rows = (struct view_rows){0};
}

uint64_t view_wall_ns(const struct view_context *c, uint64_t boot_ns)
{
    if (boot_ns == 0)
        return 0;
    if (boot_ns >= c->boot_ns) /* an event that came in while the document was being made */
        return c->wall_ns + (boot_ns - c->boot_ns);
    uint64_t ago = c->boot_ns - boot_ns;
    return ago < c->wall_ns ? c->wall_ns - ago : 0;
}
