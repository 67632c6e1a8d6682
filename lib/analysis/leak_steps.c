/* SPDX-License-Identifier: Apache-2.0 */
/*
 * leak_steps.c - see leak_steps.h.
 *
 * Step i lies between marks i and i + 1; with n marks the last whose survivors can be told is
 * n - 3, because step n - 2 has ended at mark n - 1.
 */
#include "leak_steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "owner.h"
#include "view_rows.h"

struct add {
    struct leak_steps *steps;
    const struct ledger *l;
    const struct process_facts *facts;
};

void leak_steps_init(struct leak_steps *s, const uint64_t *marks, size_t count)
{
    size_t most = sizeof(s->marks) / sizeof(s->marks[0]);

    memset(s, 0, sizeof(*s));
    map_init(&s->survivors, sizeof(struct leak_survivor), 4, NULL);
    s->mark_count = count < most ? count : most;
    memcpy(s->marks, marks + (count - s->mark_count), s->mark_count * sizeof(*marks));
}

static uint32_t step_count(const struct leak_steps *s)
{
    return s->mark_count > 3 ? (uint32_t)s->mark_count - 3 : 0;
}

/* Steps count from 0: the one behind the second mark. -1: in none that can be told. */
static int step_of(const struct leak_steps *s, uint64_t time_ns)
{
    size_t low = 1, high = 1 + step_count(s);

    if (!step_count(s) || time_ns < s->marks[low] || time_ns >= s->marks[high])
        return -1;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (time_ns >= s->marks[middle])
            low = middle;
        else
            high = middle;
    }
    return (int)low - 1;
}

static int on_entry(void *userdata, const struct ledger_entry *e)
{
    struct add *a = userdata;
    int step = step_of(a->steps, e->allocated_ns);
    bool is_block = e->level == LEVEL_BLOCK && e->owner != OWNER_ID_PTA_WORKSPACE;
    bool is_physical = e->level == LEVEL_PHYSICAL && e->owner != OWNER_ID_PTA_POOL;

    if (step < 0 || (!is_block && !is_physical))
        return 0;
    uint64_t key = (uint64_t)e->tgid << 32 | e->owner;
    uint32_t key_b =
        (e->stack & 0xffffff) | (uint32_t)(e->device & 0x3f) << 25 | (uint32_t)is_physical << 24;
    uint32_t n = map_find(&a->steps->survivors, key, key_b);
    if (!n) {
        int r = map_add(&a->steps->survivors, key, key_b, &n);
        if (r < 0)
            return r;
        struct leak_survivor *v = map_at(&a->steps->survivors, n);
        v->of = (struct leak_series){.tgid = e->tgid,
                                     .rank = a->facts->rank,
                                     .device =
                                         is_block ? view_device_of(a->facts, e->device) : e->device,
                                     .native_device = e->device,
                                     .source = LEAK_OWNER,
                                     .owner = ledger_owner_name(a->l, e->owner),
                                     .level = level_name(e->level)};
        v->first_ns = e->allocated_ns;
    }
    struct leak_survivor *v = map_at(&a->steps->survivors, n);
    v->blocks++;
    v->bytes += e->size_bytes;
    v->step_bytes[step] += e->size_bytes;
    if (e->allocated_ns < v->first_ns)
        v->first_ns = e->allocated_ns;
    return 0;
}

int leak_steps_add(struct leak_steps *s, const struct ledger *l, const struct ledger_process *p)
{
    struct add a = {s, l, &p->facts};
    return step_count(s) ? ledger_each_entry(l, p->facts.tgid, on_entry, &a) : 0;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void leak_steps_end(struct leak_steps *s)
{
    uint32_t count = step_count(s);

    for (uint32_t n = 0; (n = map_next(&s->survivors, n));) {
        struct leak_survivor *v = map_at(&s->survivors, n);
        uint64_t sorted[LEAK_STEPS_MAX];
        memcpy(sorted, v->step_bytes, sizeof(sorted));
        qsort(sorted, count, sizeof(sorted[0]), compare_u64);
        v->step_count = count;
        for (uint32_t i = 0; i < count; i++)
            v->steps += v->step_bytes[i] != 0;
        v->bytes_per_step = sorted[count / 2];
        v->step_ns = (s->marks[count + 1] - s->marks[1]) / count;
        v->is_leak = v->steps >= LEAK_STEPS_LEAST && v->steps * 2 >= count;
    }
}

void leak_steps_done(struct leak_steps *s)
{
    map_clear(&s->survivors);
}
