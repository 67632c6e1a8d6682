/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: live_block: the checkpoint of living processes and the last state of those that died.
 * Invariants:
 *   - the rows of a process are replaced in one transaction: a reader never sees half of them;
 *   - the last state of a process is taken into memory before anything is written, so that neither
 *     the ledger's forgetting nor a full disk can take it away.
 */
#include "store_internal.h"

#include <string.h>

#define CHECKPOINT_DUTY 20 /* a process's rows are written at most 1/20 of the time */

static void block_from_entry(struct store_block *b, const struct ledger_entry *e)
{
    *b = (struct store_block){
        .address = e->address,
        .handle = e->handle,
        .size_bytes = e->size_bytes,
        .requested_bytes = e->requested_bytes,
        .allocated_ns = e->allocated_ns,
        .stream = e->stream,
        .caller = e->caller,
        .owner = e->owner,
        .device = e->device,
        .api = e->api,
        .level = (uint8_t)e->level,
    };
}

static int block_insert(struct store *s, int64_t process_id, const struct store_block *b)
{
    sqlite3_stmt *stmt = s->statements[STORE_BLOCK_INSERT];
    int64_t owner_id;
    int r = store_owner_row(s, b->owner, &owner_id);

    if (r < 0)
        return r;
    store_bind(s, STORE_BLOCK_INSERT, 12,
               (const int64_t[]){process_id, 0, b->device, (int64_t)b->address, (int64_t)b->handle,
                                 (int64_t)b->size_bytes, (int64_t)b->requested_bytes,
                                 (int64_t)b->allocated_ns, owner_id, (int64_t)b->stream,
                                 (int64_t)b->caller, b->api});
    sqlite3_bind_text(stmt, 2, level_name(b->level), -1, SQLITE_STATIC);
    r = store_run(s, STORE_BLOCK_INSERT, NULL);
    s->stats.rows_written += r == 0;
    return r;
}

static int blocks_delete(struct store *s, int64_t process_id)
{
    store_bind(s, STORE_BLOCKS_DELETE, 1, &process_id);
    return store_run(s, STORE_BLOCKS_DELETE, NULL);
}

/* Checkpoint */

struct checkpoint {
    struct store *store;
    const struct ledger *ledger;
    int64_t process_id;
    uint32_t rows, due;
    bool left; /* somebody did not get a turn in this call */
    bool all;  /* neither turns nor the limit of rows: the daemon ends */
};

static int on_entry_write(void *userdata, const struct ledger_entry *e)
{
    struct checkpoint *c = userdata;
    struct store_block b;
    int r = store_owner_note(c->store, c->ledger, e->owner);

    block_from_entry(&b, e);
    if (r == 0)
        r = block_insert(c->store, c->process_id, &b);
    c->rows++;
    return r;
}

static int process_checkpoint(struct checkpoint *c, const struct ledger_process *lp)
{
    struct store *s = c->store;
    struct store_process *p = store_find(s, lp->facts.tgid);
    uint64_t begin_ns, end_ns, wall_ns;
    int r;

    store_clock(s, &begin_ns, &wall_ns);
    r = store_begin(s);
    if (r < 0)
        return r;
    r = store_process_row(s, p);
    c->process_id = p->id;
    if (r == 0)
        r = blocks_delete(s, p->id);
    if (r == 0)
        r = ledger_each_entry(c->ledger, lp->facts.tgid, on_entry_write, c);
    if (r == 0) {
        store_bind(s, STORE_PROCESS_ALIVE, 2, (const int64_t[]){p->id, (int64_t)wall_ns});
        r = store_run(s, STORE_PROCESS_ALIVE, NULL);
    }
    r = store_end(s, r);
    if (r == 0) {
        p->event_count = lp->event_count;
        store_clock(s, &end_ns, &wall_ns);
        p->checkpoint_due_ns = end_ns + (end_ns - begin_ns) * (CHECKPOINT_DUTY - 1);
    }
    return r;
}

static int on_process(void *userdata, const struct ledger_process *lp)
{
    struct checkpoint *c = userdata;
    struct store_process *p;
    uint64_t boot_ns, wall_ns;
    int r;

    if (!lp->alive)
        return 0;
    p = store_find(c->store, lp->facts.tgid);
    if (!p) {
        /* Seen by events before the daemon read its facts. A refusal of the disk comes back below.
         */
        r = store_process(c->store, &lp->facts);
        p = store_find(c->store, lp->facts.tgid);
        if (!p)
            return r;
    }
    if (p->event_count == lp->event_count)
        return 0;
    c->due++;
    store_clock(c->store, &boot_ns, &wall_ns);
    if (!c->all &&
        (boot_ns < p->checkpoint_due_ns || p->checkpoint_round == c->store->checkpoint_round))
        return 0;
    if (!c->all && c->rows >= LIMIT_STORE_CHECKPOINT_ROWS) {
        c->left = true;
        return 0;
    }
    p->checkpoint_round = c->store->checkpoint_round;
    r = process_checkpoint(c, lp);
    if (r == 0)
        c->due--;
    return r;
}

int store_checkpoint(struct store *s, const struct ledger *ledger)
{
    struct checkpoint c = {.store = s, .ledger = ledger};
    int r;

    if (!s)
        return 0;
    r = ledger_each_process(ledger, on_process, &c);
    /* Whoever had a turn waits until everybody had one: busy processes do not starve the others. */
    if (!c.left)
        s->checkpoint_round++;
    return r < 0 ? r : (int)c.due;
}

int store_checkpoint_all(struct store *s, const struct ledger *ledger)
{
    struct checkpoint c = {.store = s, .ledger = ledger, .all = true};
    int r;

    if (!s)
        return 0;
    r = ledger_each_process(ledger, on_process, &c);
    return r < 0 ? r : 0;
}

/* The end of a process */

struct collect {
    struct store *store;
    const struct ledger *ledger;
    struct store_final *final;
    size_t capacity;
    uint64_t dropped;
};

static int on_entry_collect(void *userdata, const struct ledger_entry *e)
{
    struct collect *c = userdata;
    struct store_final *f = c->final;

    if (f->count == c->capacity) {
        size_t capacity = c->capacity ? c->capacity * 2 : 256;
        struct store_block *more = realloc(f->blocks, capacity * sizeof(*more));

        if (more) {
            f->blocks = more;
            c->capacity = capacity;
        }
    }
    if (f->count == c->capacity || store_owner_note(c->store, c->ledger, e->owner) < 0)
        c->dropped++;
    else
        block_from_entry(&f->blocks[f->count++], e);
    return 0;
}

static int final_write(struct store *s, const struct store_final *f)
{
    int64_t id;
    int r = store_begin(s);

    if (r < 0)
        return r;
    r = store_process_write(s, &f->facts, &id);
    if (r == 0)
        r = blocks_delete(s, id);
    for (size_t i = 0; r == 0 && i < f->count; i++)
        r = block_insert(s, id, &f->blocks[i]);
    if (r == 0) {
        store_bind(s, STORE_PROCESS_EXIT, 4,
                   (const int64_t[]){id, (int64_t)f->wall_ns, (int64_t)f->boot_ns, f->exit_seen});
        r = store_run(s, STORE_PROCESS_EXIT, NULL);
    }
    return store_end(s, r);
}

static void final_pop(struct store *s)
{
    struct store_final *f = s->finals;

    s->finals = f->next;
    if (!s->finals)
        s->finals_tail = &s->finals;
    s->stats.pending_blocks -= f->count;
    free(f->blocks);
    free(f);
}

int store_finals_flush(struct store *s)
{
    while (s->finals) {
        int r = final_write(s, s->finals);
        if (r < 0)
            return r;
        final_pop(s);
    }
    return 0;
}

void store_finals_clear(struct store *s)
{
    while (s->finals)
        final_pop(s);
}

int store_process_final(struct store *s, const struct ledger *ledger, uint32_t tgid,
                        uint64_t time_ns, bool exit_seen)
{
    const struct ledger_process *lp;
    const struct store_process *p;
    struct store_final *f;
    struct collect c;
    int r;

    if (!s)
        return 0;
    p = store_find(s, tgid);
    lp = ledger_find_process(ledger, tgid);
    if (!lp && !p)
        return 0;
    f = calloc(1, sizeof(*f));
    if (!f)
        return -ENOMEM;
    /* What the daemon told last is what has the row; the ledger may know a process by events alone.
     */
    f->facts = p ? p->facts : lp->facts;
    f->boot_ns = time_ns;
    f->wall_ns = store_wall_ns(s, time_ns);
    f->exit_seen = exit_seen;
    c = (struct collect){.store = s, .ledger = ledger, .final = f};
    if (lp)
        ledger_each_entry(ledger, tgid, on_entry_collect, &c);
    s->stats.dropped_blocks += c.dropped;
    store_forget(s, tgid);
    *s->finals_tail = f;
    s->finals_tail = &f->next;
    s->stats.pending_blocks += f->count;
    r = store_finals_flush(s);
    while (s->finals && s->finals->next && s->stats.pending_blocks > LIMIT_STORE_PENDING_ROWS) {
        s->stats.dropped_blocks += s->finals->count;
        final_pop(s);
    }
    return r;
}
