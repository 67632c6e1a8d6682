/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom_capture.c - see oom_capture.h.
 *
 * Must not: call a hole the largest when not all of the pool is known (attached late, small blocks
 * summed): an unknown is better than a wrong class.
 */
#include "oom_capture.h"

#include <stdio.h>
#include <string.h>

#include "cleanup.h"
#include "layout_ledger.h"
#include "probes.h"
#include "procfacts.h"

#define MIB ((uint64_t)1 << 20)
/* Equal blocks in a row that a model's layers make of a KV cache; weights and activations of equal
 * size do not come so large and so many. */
#define KV_RUN_BLOCKS 4
#define KV_RUN_PERCENT 10

struct capture {
    const struct ledger *l;
    struct oom_snapshot *s;
    const struct process_facts *victim;
    uint64_t cache_reserved_bytes, cache_allocated_bytes; /* of the caching allocator alone */
};

static int main_device_of(void *userdata, const struct ledger_device_use *d)
{
    struct ledger_device_use *best = userdata;
    if (best->device == UINT16_MAX || d->physical_bytes > best->physical_bytes)
        *best = *d;
    return 0;
}

int oom_event_device(const struct ledger *l, const struct nm_event *event)
{
    struct ledger_device_use best = {.device = UINT16_MAX};

    if (event->call.call_flags & NM_CALL_HOST)
        return -1;
    if (event->kind == NM_EVENT_CREATE && event->call.call_flags & NM_CALL_PHYS_PROP)
        return NM_PROP_HOST(event->call.flags) ? -1 : (int)NM_PROP_DEVICE(event->call.flags);
    if (event->call.call_flags & NM_CALL_HAL_SEEN && event->call.flags)
        return (int)NM_HAL_DEVICE(event->call.flags);
    ledger_each_device(l, event->tgid, main_device_of, &best);
    return best.device == UINT16_MAX ? -1 : best.device;
}

static uint16_t driver_device(const struct process_facts *facts, uint16_t device)
{
    return device < facts->visible_count ? facts->visible_devices[device] : device;
}

static void add(uint64_t *sum, int64_t bytes)
{
    if (*sum == ANALYSIS_UNKNOWN)
        *sum = 0;
    *sum += bytes > 0 ? (uint64_t)bytes : 0;
}

static int on_pool(void *userdata, const struct ledger_pool *p)
{
    struct capture *c = userdata;
    if (driver_device(c->victim, p->device) != c->s->device)
        return 0;
    add(&c->s->reserved_bytes, p->reserved_bytes);
    add(&c->s->allocated_bytes, p->allocated_bytes);
    add(&c->s->active_bytes, p->active_bytes);
    if (p->component == NM_BLOCK_CACHING) {
        add(&c->cache_reserved_bytes, p->reserved_bytes);
        add(&c->cache_allocated_bytes, p->allocated_bytes);
    }
    return 0;
}

static int on_owner(void *userdata, const struct ledger_owner_total *t)
{
    struct capture *c = userdata;
    bool is_torch = t->level == LEVEL_BLOCK || t->level == LEVEL_PENDING;
    uint16_t device = is_torch ? driver_device(c->victim, t->device) : t->device;
    struct oom_snapshot *s = c->s;

    if (device != s->device || !t->bytes || t->level == LEVEL_RESERVED_VA || t->level == LEVEL_HOST)
        return 0;
    size_t at = s->owner_count;
    if (at == OOM_OWNERS_MAX) { /* the smallest goes */
        at = 0;
        for (size_t i = 1; i < OOM_OWNERS_MAX; i++)
            if (s->owners[i].bytes < s->owners[at].bytes)
                at = i;
        if (s->owners[at].bytes >= t->bytes)
            return 0;
    } else {
        s->owner_count++;
    }
    s->owners[at] =
        (struct oom_owner){.level = level_name(t->level), .bytes = t->bytes, .blocks = t->count};
    snprintf(s->owners[at].name, sizeof(s->owners[at].name), "%s",
             ledger_owner_name(c->l, t->owner));
    return 0;
}

static void keep_block(struct oom_block *list, size_t *count, const struct oom_block *b,
                       bool by_time)
{
    size_t at = *count < OOM_BLOCKS_MAX ? (*count)++ : OOM_BLOCKS_MAX;

    while (at > 0) {
        const struct oom_block *before = &list[at - 1];
        if (by_time ? before->allocated_ns >= b->allocated_ns : before->size_bytes >= b->size_bytes)
            break;
        if (at < OOM_BLOCKS_MAX)
            list[at] = *before;
        at--;
    }
    if (at < OOM_BLOCKS_MAX)
        list[at] = *b;
}

static bool wanted(const struct oom_block *list, size_t count, uint64_t value, bool by_time)
{
    return count < OOM_BLOCKS_MAX ||
           value > (by_time ? list[count - 1].allocated_ns : list[count - 1].size_bytes);
}

/* Blocks; segments as well where no allocator reports blocks in them. */
static int on_entry(void *userdata, const struct ledger_entry *e)
{
    struct capture *c = userdata;
    struct oom_snapshot *s = c->s;
    const char *owner = ledger_owner_name(c->l, e->owner);
    bool is_block = e->level == LEVEL_BLOCK || e->level == LEVEL_PENDING;
    uint16_t device = is_block ? driver_device(c->victim, e->device) : e->device;

    if (device != s->device || (!is_block && e->level != LEVEL_PHYSICAL))
        return 0;
    if (!is_block && (strcmp(owner, "PTA@pool") == 0 || strcmp(owner, "PTA_WORKSPACE") == 0))
        return 0;
    bool top = wanted(s->top, s->top_count, e->size_bytes, false);
    bool recent = wanted(s->recent, s->recent_count, e->allocated_ns, true);
    if (!top && !recent)
        return 0;
    struct oom_block b = {.address = e->address ? e->address : e->handle,
                          .size_bytes = e->size_bytes,
                          .allocated_ns = e->allocated_ns,
                          .stream = e->stream,
                          .level = level_name(e->level)};
    snprintf(b.owner, sizeof(b.owner), "%s", owner);
    if (top)
        keep_block(s->top, &s->top_count, &b, false);
    if (recent)
        keep_block(s->recent, &s->recent_count, &b, true);
    return 0;
}

/* Holes where all of the pool is known. */
static int measure_holes(struct capture *c, const struct alloc_conf *conf)
{
    struct layout layout;
    uint64_t largest = 0, holes = 0;
    struct oom_snapshot *s = c->s;
    int r = layout_from_ledger(c->l, s->tgid, (uint16_t)s->device, &layout);

    if (r == 0)
        r = layout_measure(&layout);
    if (r == 0 && slack_measure(&layout, conf, c->cache_reserved_bytes, c->cache_allocated_bytes,
                                &s->slack)) {
        for (size_t i = 0; i < layout.segment_count; i++) {
            const struct layout_segment *g = &layout.segments[i];
            if (g->is_small && s->requested_bytes > LAYOUT_SMALL_SEGMENT_BYTES)
                continue; /* of the other pool */
            holes += g->holes;
            if (g->largest_hole_bytes > largest)
                largest = g->largest_hole_bytes;
        }
        s->largest_hole_bytes = largest;
        s->holes = holes;
    }
    layout_done(&layout);
    return r;
}

struct holder_use {
    int device;
    uint64_t physical_bytes, driver_side_bytes;
};

static int on_use(void *userdata, const struct ledger_device_use *d)
{
    struct holder_use *u = userdata;
    if (d->device != u->device)
        return 0;
    u->physical_bytes = d->physical_bytes;
    u->driver_side_bytes = d->driver_side_bytes; /* the figure itself may be of long ago */
    return 0;
}

static void insert_holder(struct oom_snapshot *s, size_t count, const struct oom_holder *h)
{
    size_t at = count;

    for (; at > 0 && s->holders[at - 1].bytes < h->bytes; at--)
        s->holders[at] = s->holders[at - 1];
    s->holders[at] = *h;
}

/* The largest first. Of more than there is room for, the smaller ones are one row that names none:
 * nobody may be advised to stop one of them for the bytes of all. */
static void add_holder(struct oom_snapshot *s, const struct oom_holder *h)
{
    size_t last = OOM_HOLDERS_MAX - 1, least = last - 1;
    struct oom_holder out = *h;

    if (s->holder_count < last) {
        insert_holder(s, s->holder_count++, h);
        return;
    }
    if (s->holders[least].is_victim)
        least--;
    if (h->is_victim || h->bytes > s->holders[least].bytes) {
        out = s->holders[least];
        if (least < last - 1)
            s->holders[least] = s->holders[least + 1];
        insert_holder(s, last - 1, h);
    }
    if (s->holder_count == last)
        s->holders[s->holder_count++] = (struct oom_holder){.rank = -1, .comm = "others"};
    s->holders[last].bytes += out.bytes;
}

static int on_process(void *userdata, const struct ledger_process *p)
{
    struct capture *c = userdata;
    struct holder_use use = {.device = c->s->device};

    if (!p->alive)
        return 0;
    ledger_each_device(c->l, p->facts.tgid, on_use, &use);
    bool is_victim = p->facts.tgid == c->s->tgid;
    if (is_victim) {
        c->s->physical_bytes = use.physical_bytes + use.driver_side_bytes;
    } else if (!use.physical_bytes && !use.driver_side_bytes) {
        return 0;
    }
    struct oom_holder h = {
        .tgid = p->facts.tgid,
        .rank = p->facts.rank,
        .is_victim = is_victim,
        .is_orphan = p->facts.orphan,
        .bytes = use.physical_bytes + use.driver_side_bytes,
    };
    snprintf(h.comm, sizeof(h.comm), "%s", p->facts.comm);
    snprintf(h.container, sizeof(h.container), "%s", p->facts.container);
    add_holder(c->s, &h);
    return 0;
}

struct held {
    const struct ledger *l;
    int device;
    uint64_t bytes;
};

static int on_held(void *userdata, const struct ledger_process *p)
{
    struct held *h = userdata;
    struct holder_use use = {.device = h->device};

    if (p->alive) {
        ledger_each_device(h->l, p->facts.tgid, on_use, &use);
        h->bytes += use.physical_bytes + use.driver_side_bytes;
    }
    return 0;
}

/* Without frames: the newest blocks are large, equal to each other and to what was asked for. */
static void phase_from_sizes(struct oom_snapshot *s)
{
    uint64_t sum = 0;
    size_t run = 0;

    while (run < s->recent_count && s->recent[run].size_bytes <= s->requested_bytes &&
           s->recent[run].size_bytes + 2 * MIB > s->requested_bytes &&
           s->recent[run].size_bytes == s->recent[0].size_bytes)
        sum += s->recent[run++].size_bytes;
    if (run < KV_RUN_BLOCKS || s->total_bytes == ANALYSIS_UNKNOWN ||
        sum < s->total_bytes / 100 * KV_RUN_PERCENT)
        return;
    snprintf(s->phase, sizeof(s->phase), "kv_cache");
    s->is_phase_inferred = true;
}

uint64_t oom_card_rest(const struct ledger *l, uint16_t device, uint64_t other_bytes)
{
    struct held now = {.l = l, .device = device};
    uint64_t total, used;

    if (!ledger_card(l, device, &total, &used))
        return ANALYSIS_UNKNOWN;
    ledger_each_process(l, on_held, &now);
    now.bytes += other_bytes == ANALYSIS_UNKNOWN ? 0 : other_bytes;
    return used > now.bytes ? used - now.bytes : 0;
}

void oom_capture_card(const struct ledger *l, uint64_t other_bytes, uint64_t rest_bytes,
                      struct oom_snapshot *s)
{
    uint64_t total, used, held = rest_bytes;

    if (s->device < 0)
        return;
    if (other_bytes && other_bytes != ANALYSIS_UNKNOWN)
        add_holder(s,
                   &(struct oom_holder){.rank = -1, .bytes = other_bytes, .comm = "not observed"});
    s->holders_known = other_bytes != ANALYSIS_UNKNOWN;
    if (!ledger_card(l, (uint16_t)s->device, &total, &used))
        return;
    s->total_bytes = total;
    if (s->holders_known)
        s->baseline_bytes = rest_bytes;
    for (size_t i = 0; i < s->holder_count; i++)
        held += s->holders[i].bytes;
    if (rest_bytes != ANALYSIS_UNKNOWN)
        s->free_bytes = total > held ? total - held : 0;
    if (!s->phase[0])
        phase_from_sizes(s);
}

/* The part of an owner that names what the process was doing, PTA@vllm@PHASE: that of the failed
 * call's frames, else of the newest block. */
static void phase_from_owner(const struct ledger *l, const struct nm_event *event,
                             struct oom_snapshot *s)
{
    static const char prefix[] = "PTA@vllm@";
    const char *owner = s->recent_count ? s->recent[0].owner : "";
    char of_call[PHASE_OWNER_MAX] = "";

    if (NM_KIND_HAS_PHASE(event->kind))
        ledger_phase_name(l, event->call.phase, of_call);
    if (of_call[0])
        owner = of_call;
    if (strncmp(owner, prefix, sizeof(prefix) - 1) == 0)
        snprintf(s->phase, sizeof(s->phase), "%.31s", owner + sizeof(prefix) - 1);
}

int oom_capture(const struct ledger *l, const struct nm_event *event, const struct alloc_conf *conf,
                struct oom_snapshot *ret)
{
    const struct ledger_process *p = ledger_find_process(l, event->tgid);
    struct capture c = {.l = l,
                        .s = ret,
                        .cache_reserved_bytes = ANALYSIS_UNKNOWN,
                        .cache_allocated_bytes = ANALYSIS_UNKNOWN};
    int r;

    if (!p)
        return -ESRCH;
    oom_snapshot_init(ret);
    c.victim = &p->facts;
    ret->tgid = event->tgid;
    ret->tid = event->tid;
    ret->rank = p->facts.rank;
    ret->is_vllm = p->facts.role != TITLE_OTHER;
    ret->time_ns = ret->last_time_ns = event->time_ns;
    ret->failures = 1;
    ret->code = event->result;
    ret->requested_bytes =
        event->call.requested ? event->call.requested : event->call.physical_bytes;
    ret->is_requested_minimum = event->kind == NM_EVENT_CREATE;
    ret->device = oom_event_device(l, event);
    snprintf(ret->comm, sizeof(ret->comm), "%s", p->facts.comm);
    snprintf(ret->api, sizeof(ret->api), "%s",
             probe_row(event->call.api ? event->call.api : event->call.hal)->symbol);
    if (ret->device < 0)
        return 0;
    ledger_each_pool(l, event->tgid, on_pool, &c);
    r = ledger_each_owner(l, event->tgid, on_owner, &c);
    if (r == 0)
        r = ledger_each_entry(l, event->tgid, on_entry, &c);
    if (r == 0)
        r = measure_holes(&c, conf);
    if (r < 0)
        return r;
    ledger_each_process(l, on_process, &c);
    phase_from_owner(l, event, ret);
    return 0;
}
