/* SPDX-License-Identifier: Apache-2.0 */
/*
 * diff.c - the table of two sides; see diff.h. Writing it: diff_write.c.
 *
 * Invariant: a row never moves, so that its number is a name for it.
 */
#include "diff_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "array.h"

int diff_new(struct diff **ret)
{
    struct diff *d = calloc(1, sizeof(*d));

    if (!d)
        return -ENOMEM;
    map_init(&d->names, sizeof(struct diff_text), 6, NULL);
    map_init(&d->rows, sizeof(struct diff_row_record), 6, NULL);
    *ret = d;
    return 0;
}

struct diff *diff_free(struct diff *d)
{
    if (!d)
        return NULL;
    for (uint32_t n = 0; (n = map_next(&d->names, n));)
        free(((struct diff_text *)map_at(&d->names, n))->text);
    map_clear(&d->names);
    map_clear(&d->rows);
    free(d->processes);
    free(d);
    return NULL;
}

void diff_pair(struct diff *d)
{
    d->is_pair = true;
}

static uint64_t hash_add(uint64_t hash, const void *data, size_t bytes)
{
    const unsigned char *at = data;

    while (bytes--)
        hash = (hash ^ *at++) * 1099511628211ull;
    return hash;
}

#define HASH_BEGIN 14695981039346656037ull

int64_t diff_name(struct diff *d, const char *text)
{
    uint64_t hash;
    uint32_t n, collision = 0;

    if (!text || !text[0])
        return 0;
    hash = hash_add(HASH_BEGIN, text, strlen(text));
    while ((n = map_find(&d->names, hash, collision))) {
        if (strcmp(((struct diff_text *)map_at(&d->names, n))->text, text) == 0)
            return n;
        collision++;
    }
    char *copy = strdup(text);
    if (!copy || map_add(&d->names, hash, collision, &n) < 0) {
        free(copy);
        return -ENOMEM;
    }
    ((struct diff_text *)map_at(&d->names, n))->text = copy;
    return n;
}

const char *diff_text_of(const struct diff *d, uint32_t name)
{
    return name ? ((const struct diff_text *)map_at(&d->names, name))->text : NULL;
}

/* --- processes --- */

static bool is_same_life(const struct diff_process_record *p, const struct process_facts *f)
{
    return p->tgid[DIFF_FROM] == f->tgid &&
           (!p->start_ticks || !f->start_ticks || p->start_ticks == f->start_ticks);
}

static bool is_same_rank(const struct diff_process_record *p, const struct process_facts *f)
{
    return p->rank >= 0 && p->rank == f->rank && p->world_size == f->world_size &&
           strcmp(p->comm, f->comm) == 0;
}

struct diff_process_record *diff_process_find(struct diff *d, const struct process_facts *f,
                                              bool by_rank)
{
    for (uint32_t i = 0; i < d->process_count; i++) {
        struct diff_process_record *p = &d->processes[i];
        if (p->tgid[DIFF_FROM] && (!p->tgid[DIFF_TO] || p->tgid[DIFF_TO] == f->tgid) &&
            (by_rank ? is_same_rank(p, f) : is_same_life(p, f)))
            return p;
    }
    return NULL;
}

int64_t diff_process(struct diff *d, enum diff_side side, const struct process_facts *f)
{
    struct diff_process_record *p = NULL;

    if (d->is_pair) {
        p = d->process_count ? d->processes : NULL;
    } else if (side == DIFF_TO) {
        p = diff_process_find(d, f, false);
        if (!p)
            p = diff_process_find(d, f, true);
        for (uint32_t i = 0; !p && i < d->process_count; i++)
            if (!d->processes[i].tgid[DIFF_FROM] && d->processes[i].tgid[DIFF_TO] == f->tgid)
                p = &d->processes[i];
    } else {
        for (uint32_t i = 0; !p && i < d->process_count; i++)
            if (is_same_life(&d->processes[i], f))
                p = &d->processes[i];
    }
    if (!p) {
        if (ARRAY_ROOM(d->processes, d->process_capacity, d->process_count) < 0)
            return -ENOMEM;
        p = &d->processes[d->process_count++];
        *p = (struct diff_process_record){
            .start_ticks = f->start_ticks, .rank = f->rank, .world_size = f->world_size};
        snprintf(p->comm, sizeof(p->comm), "%s", f->comm);
    }
    p->tgid[side] = f->tgid;
    return p - d->processes + 1;
}

/* --- rows --- */

int64_t diff_row(struct diff *d, const struct diff_place *place)
{
    uint64_t hash = hash_add(HASH_BEGIN, place, sizeof(*place));
    uint32_t n, collision = 0;

    while ((n = map_find(&d->rows, hash, collision))) {
        const struct diff_row_record *r = map_at(&d->rows, n);
        if (memcmp(&r->place, place, sizeof(*place)) == 0)
            return n;
        collision++;
    }
    if (map_add(&d->rows, hash, collision, &n) < 0)
        return -ENOMEM;
    ((struct diff_row_record *)map_at(&d->rows, n))->place = *place;
    return n;
}

void diff_add(struct diff *d, enum diff_side side, int64_t row, const struct diff_amount *amount)
{
    struct diff_row_record *r = map_at(&d->rows, (uint32_t)row);

    r->amount[side].bytes += amount->bytes;
    r->amount[side].blocks += amount->blocks;
    r->amount[side].peak_bytes += amount->peak_bytes;
}
