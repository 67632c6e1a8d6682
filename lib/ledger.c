/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ledger.c - life of a ledger, and the way of one event into it.
 *
 * Owns: the dispatch by event kind, the checks that hold for every event, the counters.
 * Must not: change a sum (ledger_entry.c does), or trust any field of an event.
 */
#include "ledger_internal.h"

#include <errno.h>
#include <string.h>

#include "probes.h"

#define DEFAULT_MAX_PROCESSES 4096u
#define DEFAULT_MAX_ENTRIES ((uint64_t)16 << 20)
/* Results that mean "out of memory". Source: CANN rt_error_codes.h and the HAL's drvError_t. */
#define ACL_ERROR_MEMORY_ALLOCATION 207001
#define ACL_ERROR_DEVICE_OOM 207018
#define HAL_ERROR_OUT_OF_MEMORY 6
#define TGID_CHUNK_SHIFT 6

const char *level_name(enum ledger_level level)
{
    static const char *const names[LEVEL_COUNT] = {
        [LEVEL_PHYSICAL] = "physical",       [LEVEL_HOST] = "host",
        [LEVEL_BLOCK] = "allocated",         [LEVEL_PENDING] = "pending",
        [LEVEL_RESERVED_VA] = "reserved_va", [LEVEL_POOL_SUB] = "pool_sub",
    };
    return (unsigned)level < LEVEL_COUNT ? names[level] : "unknown";
}

void ledger_memory(struct ledger *l, int64_t bytes)
{
    l->stats.memory_bytes += (uint64_t)bytes;
}

void ledger_notify(struct ledger *l, enum ledger_notice_kind kind, const struct process *p,
                   const struct nm_event *event, uint64_t time_ns)
{
    if (!l->config.notice_fn)
        return;
    struct ledger_notice notice = {
        .kind = kind,
        .time_ns = time_ns,
        .tgid = p ? p->pub.facts.tgid : 0,
        .event = event,
    };
    l->config.notice_fn(l->config.userdata, &notice);
}

int ledger_new(const struct ledger_config *config, struct ledger **ret)
{
    struct ledger *l = calloc(1, sizeof(*l));
    if (!l)
        return -ENOMEM;
    if (config)
        l->config = *config;
    if (!l->config.max_processes)
        l->config.max_processes = DEFAULT_MAX_PROCESSES;
    if (!l->config.max_entries)
        l->config.max_entries = DEFAULT_MAX_ENTRIES;
    l->stats.memory_bytes = sizeof(*l);
    map_init(&l->by_tgid, sizeof(struct tgid_slot), TGID_CHUNK_SHIFT, &l->stats.memory_bytes);
    *ret = l;
    return 0;
}

struct ledger *ledger_free(struct ledger *l)
{
    if (!l)
        return NULL;
    for (uint32_t i = 0; i < l->process_count; i++)
        process_free(l, l->processes[i]);
    for (uint32_t i = 0; i < l->owner_count; i++)
        free(l->owner_names[i]);
    map_clear(&l->by_tgid);
    free(l->processes);
    free(l->owner_names);
    free(l->cpu_next);
    free(l->cards);
    free(l);
    return NULL;
}

/* Kinds whose failure means that memory stays where it is. */
static bool is_free(uint8_t kind)
{
    switch (kind) {
    case NM_EVENT_FREE:
    case NM_EVENT_RELEASE:
    case NM_EVENT_HANDLE_FREE:
    case NM_EVENT_UNMAP:
    case NM_EVENT_HOST_UNREGISTER:
    case NM_EVENT_IPC_CLOSE:
        return true;
    default:
        return false;
    }
}

static bool is_memory_code(const struct nm_event *event)
{
    if (event->call.call_flags & NM_CALL_API_SEEN ||
        probe_row(event->call.api)->level == PROBE_LEVEL_ACL)
        return event->result == ACL_ERROR_MEMORY_ALLOCATION ||
               event->result == ACL_ERROR_DEVICE_OOM;
    return event->result == HAL_ERROR_OUT_OF_MEMORY || event->result == ACL_ERROR_MEMORY_ALLOCATION;
}

static int call_failed(struct ledger *l, struct process *p, const struct nm_event *event)
{
    p->pub.failed_calls++;
    if (is_free(event->kind))
        l->stats.failed_frees++;
    else if ((event->kind == NM_EVENT_ALLOC || event->kind == NM_EVENT_CREATE) &&
             is_memory_code(event))
        ledger_notify(l, NOTICE_OOM, p, event, event->time_ns);
    return NOT_APPLIED;
}

static int seen_only(struct ledger *l, struct process *p, const struct nm_event *event)
{
    return 0;
}

typedef int (*event_fn)(struct ledger *, struct process *, const struct nm_event *);

static const event_fn handlers[NM_EVENT_KIND_COUNT] = {
    [NM_EVENT_ALLOC] = call_alloc,
    [NM_EVENT_FREE] = call_free,
    [NM_EVENT_RESERVE] = call_reserve,
    [NM_EVENT_RELEASE] = call_release,
    [NM_EVENT_CREATE] = vmm_create,
    [NM_EVENT_HANDLE_FREE] = vmm_handle_free,
    [NM_EVENT_MAP] = vmm_map,
    [NM_EVENT_UNMAP] = vmm_unmap,
    [NM_EVENT_RETAIN] = vmm_retain,
    [NM_EVENT_IMPORT] = vmm_import,
    [NM_EVENT_HOST_REGISTER] = call_host_register,
    [NM_EVENT_HOST_UNREGISTER] = call_host_unregister,
    [NM_EVENT_IPC_OPEN] = seen_only, /* another process's memory */
    [NM_EVENT_IPC_CLOSE] = seen_only,
    [NM_EVENT_POOL_CREATE] = scope_create,
    [NM_EVENT_POOL_DESTROY] = scope_destroy,
    [NM_EVENT_POOL_TRIM] = seen_only,
    [NM_EVENT_DEVICE_SET] = scope_device_set,
    [NM_EVENT_DEVICE_RESET] = scope_device_reset,
    [NM_EVENT_CONTEXT_CREATE] = scope_create,
    [NM_EVENT_CONTEXT_DESTROY] = scope_destroy,
    [NM_EVENT_STREAM_CREATE] = scope_create,
    [NM_EVENT_STREAM_DESTROY] = scope_destroy,
    [NM_EVENT_COMM_INIT] = scope_comm_init,
    [NM_EVENT_COMM_DESTROY] = scope_destroy,
    [NM_EVENT_ATB_CONTEXT_CREATE] = scope_create,
    [NM_EVENT_ATB_CONTEXT_DESTROY] = scope_destroy,
    [NM_EVENT_BLOCK] = block_apply,
    [NM_EVENT_STACK] = seen_only, /* for whoever names frames */
    [NM_EVENT_THREAD] = seen_only,
    [NM_EVENT_SCOPE_BEGIN] = named_begin,
    [NM_EVENT_SCOPE_END] = named_end,
    [NM_EVENT_NAME] = named_memory,
    [NM_EVENT_PROCESS_GROUP] = scope_process_group,
    [NM_EVENT_MEM_INFO] = phase_mem_info,
    [NM_EVENT_ACCESS] = seen_only, /* for whoever opened the window */
    [NM_EVENT_CODE] = seen_only,   /* for whoever names frames */
};

/*
 * Counts holes in the per-CPU sequence. A program that is preempted between taking its number and
 * its ring slot arrives late: the hole that it had left is closed again.
 */
static void sequence_check(struct ledger *l, const struct nm_event *event)
{
    if (event->cpu >= l->cpu_count) {
        uint32_t count = (event->cpu | 63u) + 1;
        uint32_t *next = realloc(l->cpu_next, count * 2 * sizeof(*next));
        if (!next)
            return;
        ledger_memory(l, (int64_t)((count - l->cpu_count) * 2 * sizeof(*next)));
        memset(&next[l->cpu_count * 2], 0, (count - l->cpu_count) * 2 * sizeof(*next));
        l->cpu_next = next;
        l->cpu_count = count;
    }
    uint32_t *expected = &l->cpu_next[event->cpu * 2], *started = expected + 1;
    int32_t ahead = (int32_t)(event->seq - *expected);
    if (!*started || ahead >= 0) {
        if (*started)
            l->stats.sequence_gaps += (uint32_t)ahead;
        *started = 1;
        *expected = event->seq + 1;
    } else if (l->stats.sequence_gaps) {
        l->stats.sequence_gaps--;
    }
}

int ledger_apply(struct ledger *l, const struct nm_event *event)
{
    struct process *p;
    l->stats.events++;
    if (event->abi != NM_EVENT_ABI || event->kind >= NM_EVENT_KIND_COUNT ||
        !handlers[event->kind] || !event->tgid) {
        l->stats.decode_errors++;
        return -EBADMSG;
    }
    sequence_check(l, event);
    int r = process_for_event(l, event, &p);
    if (r)
        return r;
    p->pub.event_count++;
    if (!p->pub.first_event_ns)
        p->pub.first_event_ns = event->time_ns;
    if (event->time_ns > p->pub.last_event_ns)
        p->pub.last_event_ns = event->time_ns;
    if (event->kind == NM_EVENT_COMM_INIT)
        named_comm_made(l, p, event);
    if (event->kind != NM_EVENT_BLOCK && event->result != 0)
        return call_failed(l, p, event);
    r = handlers[event->kind](l, p, event);
    if (r < 0)
        l->stats.decode_errors++;
    else if (event->kind == NM_EVENT_CREATE || event->kind == NM_EVENT_ALLOC)
        phase_call(l, p, event);
    return r;
}

void ledger_set_lost(struct ledger *l, uint64_t lost_events)
{
    if (lost_events <= l->stats.lost_events)
        return;
    l->stats.lost_events = lost_events;
    for (uint32_t i = 0; i < l->process_count; i++)
        named_forget_scopes(l->processes[i]);
    ledger_notify(l, NOTICE_LOSS, NULL, NULL, 0);
}

const struct ledger_stats *ledger_stats(const struct ledger *l)
{
    return &l->stats;
}
