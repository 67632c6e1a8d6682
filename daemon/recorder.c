/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder.c - life of recordings: start, end, bounds; see recorder.h.
 *
 * Invariants: a recording takes events until is_ending; then only its writer works, and it goes
 * when that has ended. One per process takes events at a time.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "alloc_conf.h"
#include "log.h"
#include "recorder_internal.h"

int recorder_new(struct manager *manager, struct recorder **ret)
{
    struct recorder *r = calloc(1, sizeof(*r));

    if (!r)
        return -ENOMEM;
    r->m = manager;
    snprintf(r->directory, sizeof(r->directory), "%s/traces", manager->paths.state_dir);
    *ret = r;
    return 0;
}

static void recording_free(struct recording *rec)
{
    sd_event_source_disable_unref(rec->timer);
    trace_writer_free(rec->writer);
    recording_maps_done(rec);
    free(rec);
}

struct recorder *recorder_free(struct recorder *r)
{
    if (!r)
        return NULL;
    for (struct recording *rec = r->first, *next; rec; rec = next) {
        next = rec->next;
        rec->ended = NULL;
        recorder_stop(r, rec);
        recording_free(rec);
    }
    free(r);
    return NULL;
}

struct recording *recorder_first(const struct recorder *r)
{
    return r->first;
}

struct recording *recorder_next(const struct recording *rec)
{
    return rec->next;
}

uint32_t recording_tgid(const struct recording *rec)
{
    return rec->tgid;
}

bool recording_on_end(struct recording *rec,
                      void (*fn)(void *userdata, struct recording *recording), void *userdata)
{
    if (rec->ended)
        return false;
    rec->ended = fn;
    rec->ended_userdata = userdata;
    return true;
}

/* --- start --- */

static void find_conf(const struct target *t, char *ret, size_t size)
{
    const struct environ_text *e = &t->memory->environment;
    size_t length = strlen(ALLOC_CONF_NAME);

    for (size_t at = 0; e->read && at < e->bytes; at += strlen(e->text + at) + 1)
        if (strncmp(e->text + at, ALLOC_CONF_NAME, length) == 0 && e->text[at + length] == '=')
            snprintf(ret, size, "%s", e->text + at + length + 1);
}

struct held {
    uint16_t device;
    uint64_t bytes, before_bytes;
    bool has_small;
};

static int on_device(void *userdata, const struct ledger_device_use *use)
{
    struct held *h = userdata;

    if (use->known_bytes > h->bytes || (h->bytes == 0 && h->before_bytes == 0))
        h->device = use->device;
    if (use->known_bytes > h->bytes)
        h->bytes = use->known_bytes;
    h->before_bytes += use->before_attach_bytes;
    return 0;
}

static int on_pool(void *userdata, const struct ledger_pool *pool)
{
    struct held *h = userdata;

    h->has_small |= pool->small_bytes != 0 || pool->before_attach_bytes != 0;
    return 0;
}

/* 1 + the number that the process gives a device of the driver; 0: it does not see it. */
static uint32_t torch_device(const struct process_facts *facts, uint16_t device)
{
    if (!facts->visible_count)
        return device + 1u;
    for (uint32_t i = 0; i < facts->visible_count; i++)
        if (facts->visible_devices[i] == device)
            return i + 1;
    return 0;
}

static void header_fill(struct recorder *r, const struct target *t, struct nm_trace_header *h)
{
    struct held held = {};
    uint64_t total, used, mine;

    ledger_each_device(r->m->ledger, t->tgid, on_device, &held);
    ledger_each_pool(r->m->ledger, t->tgid, on_pool, &held);
    *h = (struct nm_trace_header){
        .begin_wall_ns = manager_wall_ns(),
        .begin_boot_ns = manager_boot_ns(),
        .tgid = t->tgid,
        .rank = t->facts.rank,
        .device = held.device,
        .flags = (held.bytes || held.before_bytes ? NM_TRACE_LATE : 0) |
                 (held.has_small ? NM_TRACE_NO_SMALL : 0),
    };
    h->torch_device = torch_device(&t->facts, held.device);
    snprintf(h->comm, sizeof(h->comm), "%s", t->facts.comm);
    find_conf(t, h->conf, sizeof(h->conf));
    if (!ledger_card(r->m->ledger, held.device, &total, &used))
        return;
    mine = held.bytes + held.before_bytes;
    h->card_bytes = total;
    h->available_bytes = total - (used > mine ? used - mine : 0);
}

static int check_target(struct recorder *r, const struct target *t, uint32_t tgid,
                        struct error *reterr)
{
    const char *reason;

    if (!t) {
        error_set(reterr, ESRCH, "process %u: not observed", tgid);
        return error_fix(reterr, -ESRCH, "npumem ps lists those that are");
    }
    for (struct recording *rec = r->first; rec; rec = rec->next)
        if (rec->tgid == tgid && !rec->is_ending) {
            error_set(reterr, EALREADY, "process %u: it is being recorded", tgid);
            return error_fix(reterr, -EALREADY, "npumem record stop --pid %u", tgid);
        }
    if (r->m->config.probes_block_detail == CONFIG_BLOCK_DETAIL_OFF) {
        error_set(reterr, ENODATA, "process %u: blocks are not looked at", tgid);
        return error_fix(reterr, -ENODATA, "probes.block_detail=large");
    }
    if (strcmp(target_level(t, &reason), "blocks") != 0) {
        error_set(reterr, ENODATA, "process %u: its blocks are not seen: %s", tgid,
                  reason ? reason : "it has no allocator of torch_npu yet");
        return error_fix(reterr, -ENODATA, "npumem status shows what is seen of it");
    }
    return 0;
}

/* What one more file may take, so that all of them stay within record.max_total_bytes. */
static int room_find(struct recorder *r, uint64_t *ret, struct error *reterr)
{
    uint64_t limit = r->m->config.record_max_total_bytes, taken = recorder_directory_bytes(r);
    unsigned count = 0;

    for (struct recording *rec = r->first; rec; rec = rec->next, count++) {
        struct trace_writer_stats s;
        trace_writer_stats(rec->writer, &s);
        taken += s.max_bytes - (s.bytes < s.max_bytes ? s.bytes : s.max_bytes);
    }
    *ret = limit > taken ? limit - taken : 0;
    if (*ret > r->m->config.record_max_bytes)
        *ret = r->m->config.record_max_bytes;
    if (count >= RECORDINGS_MAX) {
        error_set(reterr, ENOSPC, "%u recordings run already", count);
        return error_fix(reterr, -ENOSPC, "npumem record stop");
    }
    if (*ret >= 64u << 10)
        return 0;
    error_set(reterr, ENOSPC, "%s: recordings take all of record.max_total_bytes", r->directory);
    return error_fix(reterr, -ENOSPC, "remove old ones (npumem record ls)");
}

static int writer_open(struct recorder *r, struct recording *rec, uint64_t max_bytes,
                       void (*ended)(void *), struct error *reterr)
{
    time_t seconds = (time_t)(rec->header.begin_wall_ns / 1000000000);
    char stamp[32];
    struct tm tm;
    int k = -EEXIST;

    if (mkdir(r->directory, 0750) < 0 && errno != EEXIST)
        return error_set(reterr, errno, "%s: %s", r->directory, strerror(errno));
    gmtime_r(&seconds, &tm);
    strftime(stamp, sizeof(stamp), "%Y%m%dT%H%M%SZ", &tm);
    for (unsigned i = 0; i < 100 && k == -EEXIST; i++) {
        snprintf(rec->path, sizeof(rec->path), i ? "%s/%u-%s-%u.trace" : "%s/%u-%s.trace",
                 r->directory, rec->tgid, stamp, i);
        k = trace_writer_new(r->m->event, rec->path, &rec->header, max_bytes, ended, rec,
                             &rec->writer, reterr);
    }
    return k;
}

static void on_written(void *userdata);

static int on_time(sd_event_source *source, uint64_t usec, void *userdata)
{
    struct recording *rec = userdata;

    ring_sync(rec->recorder->m->ring);
    recorder_stop(rec->recorder, rec);
    return 0;
}

int recorder_start(struct recorder *r, uint32_t tgid, uint64_t for_ns, struct recording **ret,
                   struct error *reterr)
{
    struct target *t = targets_find(r->m->targets, tgid);
    uint64_t max_bytes = 0;
    int k = check_target(r, t, tgid, reterr);

    if (k == 0)
        k = room_find(r, &max_bytes, reterr);
    if (k < 0)
        return k;
    struct recording *rec = calloc(1, sizeof(*rec));
    if (!rec)
        return error_set(reterr, ENOMEM, "out of memory");
    rec->recorder = r;
    rec->tgid = tgid;
    rec->kernel_lost = ring_stats(r->m->ring)->kernel.lost;
    recording_maps_init(rec);
    header_fill(r, t, &rec->header);
    k = writer_open(r, rec, max_bytes, on_written, reterr);
    /* first the kernel, then what is there: a block that comes in between is in the ring */
    if (k == 0)
        k = probe_set_detail(r->m->probes, tgid, true);
    if (k == -ENOSPC)
        error_set(reterr, ENOSPC, "too many processes are looked at block by block");
    if (k == 0) {
        k = recording_snapshot(rec);
        if (k == 0 && for_ns)
            k = sd_event_add_time(r->m->event, &rec->timer, CLOCK_BOOTTIME,
                                  (rec->header.begin_boot_ns + for_ns) / 1000, 1000, on_time, rec);
        if (k < 0)
            probe_set_detail(r->m->probes, tgid, false);
    }
    if (k < 0) {
        recording_free(rec);
        return k;
    }
    rec->next = r->first;
    r->first = rec;
    r->count++;
    log_info("process %u: is recorded into %s", tgid, rec->path);
    *ret = rec;
    return 0;
}

/* --- end --- */

static void on_written(void *userdata)
{
    struct recording *rec = userdata;
    struct trace_writer_stats s;

    rec->is_written = true;
    trace_writer_stats(rec->writer, &s);
    log_info("process %u: %llu records in %s%s%s", rec->tgid, (unsigned long long)s.records,
             rec->path, s.error ? ": " : "", s.error ? strerror(-s.error) : "");
    for (struct recording **p = &rec->recorder->first; *p; p = &(*p)->next)
        if (*p == rec) {
            *p = rec->next;
            break;
        }
    if (rec->ended)
        rec->ended(rec->ended_userdata, rec);
    recording_free(rec);
}

void recorder_stop(struct recorder *r, struct recording *rec)
{
    uint64_t lost = ring_stats(r->m->ring)->kernel.lost - rec->kernel_lost;
    struct trace_writer_stats s;

    if (rec->is_ending)
        return;
    rec->is_ending = true;
    r->count--;
    probe_set_detail(r->m->probes, rec->tgid, false);
    sd_event_source_disable_unref(rec->timer);
    rec->timer = NULL;
    /* a loss that no later event has shown */
    if (lost > rec->lost_events || rec->waiting_lost)
        recording_lost(rec, lost > rec->lost_events ? lost - rec->lost_events : 0, rec->last_ns);
    trace_writer_stats(rec->writer, &s);
    rec->header.flags |= s.is_full || s.error ? NM_TRACE_FULL : 0;
    rec->header.lost_events = rec->lost_events;
    rec->header.end_boot_ns = manager_boot_ns();
    trace_writer_end(rec->writer, &rec->header);
}

void recorder_exit(struct recorder *r, uint32_t tgid)
{
    for (struct recording *rec = r->first; rec; rec = rec->next)
        if (rec->tgid == tgid)
            recorder_stop(r, rec);
}

void recorder_maintain(struct recorder *r)
{
    for (struct recording *rec = r->first; rec; rec = rec->next) {
        struct trace_writer_stats s;
        if (rec->is_ending)
            continue;
        trace_writer_flush(rec->writer);
        trace_writer_stats(rec->writer, &s);
        if (!s.is_full && !s.error)
            continue;
        log_notice("process %u: its recording ends: %s", rec->tgid,
                   s.error ? strerror(-s.error) : "it has reached its bound (record.max_bytes)");
        recorder_stop(r, rec);
    }
}

/* --- from the ring --- */

void recorder_event(struct recorder *r, const struct nm_event *event)
{
    if (!r || !r->count)
        return;
    for (struct recording *rec = r->first; rec; rec = rec->next)
        if (rec->tgid == event->tgid && !rec->is_ending)
            recording_event(rec, event);
}

void recorder_lost(struct recorder *r, uint64_t count)
{
    if (!r || !r->count)
        return;
    for (struct recording *rec = r->first; rec; rec = rec->next)
        if (!rec->is_ending)
            recording_lost(rec, count, manager_boot_ns());
}

void recorder_mark(struct recorder *r, const char *name, uint64_t time_ns)
{
    for (struct recording *rec = r ? r->first : NULL; rec; rec = rec->next)
        if (!rec->is_ending)
            recording_mark(rec, name, time_ns);
}
