/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger_named.c - what a thread allocates for: a communicator, a tag of its own, a graph; and the
 * communicators themselves.
 *
 * Owns: the open scopes of threads and the list of communicators of a process.
 * Must not: trust a name; keep a scope after events were lost, since its end may be among them.
 * Invariants: at most SCOPES_MAX open scopes and COMMS_MAX communicators per process; the innermost
 * scope of a thread is the last of its entries.
 */
#include "ledger_internal.h"

#include <errno.h>
#include <string.h>

#define SCOPES_MAX 256u
#define COMMS_MAX 1024u
#define NAME_MAX_BYTES 48u
/* A communicator has a buffer for each way, and something beside them (1 MiB by default). Source:
 * CANN HCCL, ccl_buffer_manager: in + out + extension in one piece. */
#define COMM_BUFFERS 2u
#define COMM_EXTRA_BYTES ((uint64_t)16 << 20)

struct scope {
    uint32_t tid, type, owner;
    uint32_t comm; /* number in comms + 1, COMM only */
};

struct named {
    struct scope scopes[SCOPES_MAX];
    uint32_t scope_count;
    struct ledger_comm *comms;
    uint32_t comm_count, comm_capacity, comm_serial;
};

struct named *named_free(struct ledger *l, struct named *n)
{
    if (!n)
        return NULL;
    ledger_memory(l, -(int64_t)(sizeof(*n) + n->comm_capacity * sizeof(*n->comms)));
    free(n->comms);
    free(n);
    return NULL;
}

static struct named *named_get(struct ledger *l, struct process *p)
{
    if (!p->named) {
        p->named = calloc(1, sizeof(*p->named));
        if (p->named)
            ledger_memory(l, sizeof(*p->named));
    }
    return p->named;
}

/* A name as it may stand in an owner: printable, cut, and ended. */
static void name_clean(const char *from, size_t bytes, char ret[NAME_MAX_BYTES])
{
    size_t n = strnlen(from, bytes < NAME_MAX_BYTES - 1 ? bytes : NAME_MAX_BYTES - 1);
    for (size_t i = 0; i < n; i++)
        ret[i] = (unsigned char)from[i] < ' ' || from[i] == 0x7f ? '?' : from[i];
    ret[n] = '\0';
}

static struct ledger_comm *comm_add(struct ledger *l, struct named *n)
{
    if (n->comm_count == COMMS_MAX)
        return NULL;
    if (n->comm_count == n->comm_capacity) {
        uint32_t capacity = n->comm_capacity ? n->comm_capacity * 2 : 8;
        struct ledger_comm *comms = realloc(n->comms, capacity * sizeof(*comms));
        if (!comms)
            return NULL;
        ledger_memory(l, (int64_t)((capacity - n->comm_capacity) * sizeof(*comms)));
        n->comms = comms;
        n->comm_capacity = capacity;
    }
    struct ledger_comm *c = &n->comms[n->comm_count++];
    *c = (struct ledger_comm){.rank = -1, .world_size = -1, .index = n->comm_serial++};
    return c;
}

/* Owner of what is allocated for a communicator: by its name, else by its place in the order. */
static uint32_t comm_owner(struct ledger *l, struct ledger_comm *c, const struct nm_scope *s)
{
    char owner[80];
    name_clean(s->name, sizeof(s->name), c->name);
    if (c->name[0])
        snprintf(owner, sizeof(owner), "CANN@HCCL@%s", c->name);
    else
        snprintf(owner, sizeof(owner), "CANN@HCCL@%u", c->index);
    return owner_intern(l, owner, OWNER_ID_HCCL);
}

static uint32_t scope_owner(struct ledger *l, const struct nm_scope *s)
{
    char name[NAME_MAX_BYTES];
    if (s->type == NM_SCOPE_GRAPH)
        return OWNER_ID_PTA_GRAPH_POOL;
    name_clean(s->name, s->value, name);
    return name[0] ? owner_find(l, name) : OWNER_ID_UNKNOWN;
}

static void scope_remove(struct named *n, uint32_t at)
{
    memmove(&n->scopes[at], &n->scopes[at + 1], (--n->scope_count - at) * sizeof(n->scopes[0]));
}

/* Takes away the innermost scope of a type of a thread. Returns its communicator's number + 1. */
static uint32_t scope_close(struct named *n, uint32_t tid, uint32_t type)
{
    for (uint32_t i = n ? n->scope_count : 0; i-- > 0;) {
        uint32_t comm = n->scopes[i].comm;
        if (n->scopes[i].tid != tid || n->scopes[i].type != type)
            continue;
        scope_remove(n, i);
        return comm;
    }
    return 0;
}

int named_begin(struct ledger *l, struct process *p, const struct nm_event *event)
{
    const struct nm_scope *s = &event->scope;
    struct named *n = named_get(l, p);
    if (s->type < NM_SCOPE_COMM || s->type > NM_SCOPE_GRAPH)
        return -EBADMSG;
    if (!n) {
        l->stats.dropped_entries++;
        return NOT_APPLIED;
    }
    struct scope scope = {.tid = event->tid, .type = s->type};
    if (s->type == NM_SCOPE_COMM) {
        scope_close(n, event->tid, NM_SCOPE_COMM); /* one whose end was never seen */
        struct ledger_comm *c = comm_add(l, n);
        if (c) {
            c->buffer_bytes = (uint64_t)s->value << 20;
            c->time_ns = event->time_ns;
            scope.owner = c->owner = comm_owner(l, c, s);
            scope.comm = n->comm_count;
        } else {
            scope.owner = OWNER_ID_HCCL;
        }
    } else {
        scope.owner = scope_owner(l, s);
    }
    if (n->scope_count == SCOPES_MAX)
        scope_remove(n, 0); /* the oldest: a thread that ended inside it */
    n->scopes[n->scope_count++] = scope;
    return 0;
}

int named_end(struct ledger *l, struct process *p, const struct nm_event *event)
{
    scope_close(p->named, event->tid, event->scope.type);
    return 0;
}

/* The scope of a thread that names what it allocates; tags outrank what libraries do inside. */
static const struct scope *scope_of(const struct process *p, uint32_t tid, bool tag)
{
    const struct named *n = p->named;
    for (uint32_t i = n ? n->scope_count : 0; i-- > 0;)
        if (n->scopes[i].tid == tid && (n->scopes[i].type == NM_SCOPE_TAG) == tag)
            return &n->scopes[i];
    return NULL;
}

/* What the user said: the thread's own tag, else the label that the process has, or all have. */
static uint32_t said_owner(const struct ledger *l, const struct process *p,
                           const struct nm_event *event)
{
    const struct scope *tag = scope_of(p, event->tid, true);
    if (tag && tag->owner != OWNER_ID_UNKNOWN)
        return tag->owner;
    const struct label *label = p->label.owner ? &p->label : &l->label;
    return event->time_ns >= label->begin_ns ? label->owner : OWNER_ID_UNKNOWN;
}

static uint64_t owner_held(const struct process *p, uint32_t owner)
{
    uint64_t bytes = 0;
    for (uint32_t n = 0; (n = map_next(&p->rows, n));) {
        const struct row *row = map_at(&p->rows, n);
        if (row->key >> 32 == owner && row->key_b == LEVEL_PHYSICAL)
            bytes += row->bytes;
    }
    return bytes;
}

/* Whether a communicator could be taking a piece of that size for its buffers. */
static bool comm_wants(const struct process *p, const struct ledger_comm *c, uint64_t bytes)
{
    uint64_t most = COMM_BUFFERS * c->buffer_bytes + COMM_EXTRA_BYTES;
    if (!c->buffer_bytes)
        return true; /* the default, which the environment may say */
    return bytes >= c->buffer_bytes && owner_held(p, c->owner) + bytes <= most;
}

/* Whether HCCL held memory before attach: for communicators that nobody saw. */
static bool has_unseen_comms(const struct process *p)
{
    for (uint32_t i = 0; i < p->device_count; i++)
        for (uint32_t k = 0; k < p->devices[i].module_count; k++)
            if (p->devices[i].modules[k].module == OWNER_MODULE_HCCL &&
                p->devices[i].modules[k].before_bytes)
                return true;
    return false;
}

/*
 * The communicator that HCCL allocates for outside its making, when it is used first: the only one
 * of the process, or the only one whose buffers have that size and are missing. OWNER_ID_UNKNOWN:
 * it could be several.
 */
static uint32_t comm_by_size(const struct process *p, uint64_t bytes)
{
    const struct named *n = p->named;
    uint32_t only = OWNER_ID_UNKNOWN, fits = OWNER_ID_UNKNOWN;
    bool several = false, several_fit = false;
    if (!n || !n->comm_count || has_unseen_comms(p))
        return OWNER_ID_UNKNOWN;
    for (uint32_t i = 0; i < n->comm_count; i++) {
        const struct ledger_comm *c = &n->comms[i];
        if (!c->handle)
            continue; /* being made: its thread says what is its */
        several |= only && only != c->owner;
        only = c->owner;
        if (!comm_wants(p, c, bytes))
            continue;
        several_fit |= fits && fits != c->owner;
        fits = c->owner;
    }
    if (!several)
        return only;
    return several_fit ? OWNER_ID_UNKNOWN : fits;
}

void named_call(const struct ledger *l, const struct process *p, const struct nm_event *event,
                struct owner_verdict *v)
{
    uint32_t owner = said_owner(l, p, event);
    if (owner != OWNER_ID_UNKNOWN && v->segment == OWNER_SEGMENT_NONE) {
        /* a segment is the pool's, whatever block it is taken for */
        *v = (struct owner_verdict){.id = owner};
        return;
    }
    if (v->id != OWNER_ID_HCCL)
        return;
    const struct scope *other = scope_of(p, event->tid, false);
    if (other && other->type == NM_SCOPE_COMM) {
        *v = (struct owner_verdict){.id = other->owner};
        return;
    }
    owner =
        comm_by_size(p, event->call.requested ? event->call.requested : event->call.physical_bytes);
    if (owner != OWNER_ID_UNKNOWN)
        *v = (struct owner_verdict){.id = owner, .inferred = true};
}

uint32_t named_block(const struct ledger *l, const struct process *p, const struct nm_event *event,
                     uint32_t by_phase)
{
    uint32_t owner = said_owner(l, p, event);
    const struct scope *other;
    if (owner != OWNER_ID_UNKNOWN)
        return owner;
    if (by_phase)
        return by_phase;
    other = scope_of(p, event->tid, false);
    return other && other->type == NM_SCOPE_GRAPH ? other->owner : OWNER_ID_UNKNOWN;
}

int named_memory(struct ledger *l, struct process *p, const struct nm_event *event)
{
    const struct nm_scope *s = &event->scope;
    uint32_t owner = scope_owner(l, s), number = 0;
    if (owner == OWNER_ID_UNKNOWN || !s->address)
        return -EBADMSG;
    for (uint16_t device = 0; device < POOL_DEVICE_LIMIT && !number; device++)
        if (pool_find(p, device, NM_BLOCK_CACHING))
            number = map_find(&p->entries, s->address, SPACE_KEY(SPACE_BLOCK, device));
    if (!number)
        number = map_find(&p->entries, s->address, SPACE_MEMORY);
    if (!number || !entry_at(p, number)->row)
        return NOT_APPLIED; /* not a block of its own, or from before attach */
    return entry_reown(l, p, number, owner, false, event->time_ns);
}

void named_comm_made(struct ledger *l, struct process *p, const struct nm_event *event)
{
    struct named *n = p->named;
    uint32_t number = scope_close(n, event->tid, NM_SCOPE_COMM);
    if (!number)
        return;
    struct ledger_comm *c = &n->comms[number - 1];
    if (event->result != 0) {
        /* what was allocated for it has been freed again; only the newest can be the failed one */
        if (number == n->comm_count)
            n->comm_count--;
        return;
    }
    c->handle = event->call.handle;
    c->rank = (int32_t)event->call.flags;
    c->world_size = event->call.flags >> 32 ? (int32_t)(event->call.flags >> 32) : -1;
}

void named_comm_gone(struct process *p, uint64_t handle)
{
    struct named *n = p->named;
    for (uint32_t i = 0; n && i < n->comm_count; i++) {
        if (n->comms[i].handle != handle)
            continue;
        memmove(&n->comms[i], &n->comms[i + 1], (--n->comm_count - i) * sizeof(*n->comms));
        for (uint32_t k = 0; k < n->scope_count; k++)
            if (n->scopes[k].comm > i + 1)
                n->scopes[k].comm--;
        return;
    }
}

void named_forget_scopes(struct process *p)
{
    if (p->named)
        p->named->scope_count = 0;
}

int ledger_each_comm(const struct ledger *l, uint32_t tgid,
                     int (*fn)(void *, const struct ledger_comm *), void *userdata)
{
    const struct process *p = process_find(l, tgid);
    const struct named *n = p ? p->named : NULL;
    for (uint32_t i = 0; n && i < n->comm_count; i++) {
        int r = fn(userdata, &n->comms[i]);
        if (r)
            return r;
    }
    return 0;
}
