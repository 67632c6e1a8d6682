/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom_log.c - see oom_log.h.
 *
 * Owns: one snapshot per open failure, and the reports that are not on disk. A report is written
 * when it is decided (second failure, success, end of the process, time) and again when the burst
 * it stands for has ended.
 */
#include "oom_log.h"

#include <stdlib.h>
#include <string.h>

#include "driver_usage.h"
#include "log.h"
#include "manager.h"
#include "oom_capture.h"
#include "oom_track.h"
#include "python.h"
#include "settings.h"

#define REST_DEVICES 64
/* How often the idle baseline of cards is measured, so that it is known when a process dies at
 * once. */
#define REST_INTERVAL_NS 60000000000ull

struct open_failure {
    struct oom_snapshot snapshot;
    bool has_snapshot, has_card;
    int64_t id;                /* 0: not written yet */
    uint32_t written_failures; /* as the report says */
    char *environment;
    size_t environment_bytes;
    char *line; /* command line of its server */
};

struct latest {
    uint32_t tgid;
    bool is_recovered;
    struct budget_failure failure;
};

struct oom_log {
    struct manager *m;
    struct oom_track track;
    struct open_failure open[OOM_TRACK_SLOTS];
    struct oom_unsaved unsaved[OOM_UNSAVED_MAX]; /* oldest first */
    size_t unsaved_count;
    int64_t last_id;
    uint64_t rest_bytes[REST_DEVICES]; /* of idle cards; ANALYSIS_UNKNOWN */
    uint64_t rest_ns;                  /* when they were measured; 0 never */
    uint64_t second;                   /* of the budget of captures */
    unsigned captures;
    struct latest latest[OOM_LATEST_MAX]; /* a ring */
    uint64_t latest_count;
};

int oom_log_new(struct manager *manager, struct oom_log **ret)
{
    struct oom_log *log = calloc(1, sizeof(*log));

    if (!log)
        return -ENOMEM;
    log->m = manager;
    log->last_id = store_oom_last(manager->store);
    for (int i = 0; i < REST_DEVICES; i++)
        log->rest_bytes[i] = ANALYSIS_UNKNOWN;
    *ret = log;
    return 0;
}

/* --- at the call --- */

static void on_event(void *userdata, const struct nm_event *event)
{
    struct oom_log *log = userdata;

    oom_track_success(&log->track, event);
    if (!oom_track_waits(&log->track))
        ring_watch(log->m->ring, NULL, NULL);
}

static bool budget_take(struct oom_log *log)
{
    uint64_t second = manager_boot_ns() / 1000000000;

    if (log->second != second) {
        log->second = second;
        log->captures = 0;
    }
    return log->captures++ < OOM_CAPTURES_PER_SECOND;
}

/* What the process runs with cannot be asked for once it is dead. */
static void take_settings(struct oom_log *log, struct open_failure *f, uint32_t tgid)
{
    struct target *t = log->m->targets ? targets_find(log->m->targets, tgid) : NULL;

    if (!t || f->line)
        return;
    const char *line = servers_line(log->m->servers, tgid);
    f->line = strdup(line ? line : t->facts.title);
    if (!t->memory->environment.read)
        return;
    f->environment = malloc(t->memory->environment.bytes + 1);
    if (!f->environment)
        return;
    f->environment_bytes = t->memory->environment.bytes;
    memcpy(f->environment, t->memory->environment.text, f->environment_bytes);
}

static struct analysis_settings settings_of(const struct open_failure *f)
{
    return (struct analysis_settings){f->environment, f->environment_bytes, f->line};
}

static void take_frames(struct oom_log *log, const struct nm_event *event, struct oom_snapshot *s)
{
    const char *names[OOM_FRAMES_MAX];

    s->frame_count = 0;
    if (!NM_KIND_HAS_PHASE(event->kind) || !log->m->python)
        return;
    size_t n = python_stack(log->m->python, event->tgid, event->call.stack, names, OOM_FRAMES_MAX);
    for (; s->frame_count < n; s->frame_count++)
        snprintf(s->frames[s->frame_count], OOM_FRAME_BYTES, "%s", names[s->frame_count]);
}

void oom_log_failure(struct oom_log *log, const struct nm_event *event)
{
    bool is_new;
    int closed, at;

    if (!log)
        return;
    at = oom_track_failure(&log->track, event, &is_new, &closed);
    if (at < 0)
        return;
    struct open_failure *f = &log->open[at];
    const struct oom_track_slot *s = &log->track.slots[at];
    /* the second failure comes after the cache was emptied: what it finds is the verdict's ground
     */
    if (s->failures <= 2 && budget_take(log)) {
        take_settings(log, f, event->tgid);
        struct analysis_settings texts = settings_of(f);
        struct settings settings;
        settings_read(&texts, &settings);
        f->has_snapshot = oom_capture(log->m->ledger, event, &settings.conf, &f->snapshot) == 0;
        take_frames(log, event, &f->snapshot);
    }
    f->snapshot.failures = s->failures;
    f->snapshot.time_ns = s->first_ns;
    f->snapshot.last_time_ns = s->last_ns;
    ring_watch(log->m->ring, on_event, log);
}

/* --- afterwards --- */

static uint64_t wall_of(uint64_t boot_ns)
{
    return boot_ns + (manager_wall_ns() - manager_boot_ns());
}

static uint64_t others_on(struct manager *m, uint16_t device)
{
    uint64_t bytes;
    return driver_usage_others(m->config.daemon_svm_dir, device, m->ledger, &bytes)
               ? bytes
               : ANALYSIS_UNKNOWN;
}

/* The cards' figures first, then every event up to them. */
static void measure_rest(struct oom_log *log)
{
    struct manager *m = log->m;

    log->rest_ns = manager_boot_ns();
    card_usage_expire(m->cards);
    card_usage_update(m->cards, m->ledger, log->rest_ns);
    ring_drain(m->ring);
    for (uint16_t device = 0; device < REST_DEVICES; device++) {
        uint64_t rest = oom_card_rest(m->ledger, device, others_on(m, device));
        if (rest != ANALYSIS_UNKNOWN)
            log->rest_bytes[device] = rest;
    }
}

static void take_card(struct oom_log *log, struct open_failure *f, bool is_gone)
{
    int device = f->snapshot.device;

    if (f->has_card || device < 0 || device >= REST_DEVICES)
        return;
    f->has_card = true;
    if (!is_gone || log->rest_bytes[device] == ANALYSIS_UNKNOWN)
        measure_rest(log); /* of a process that dies the ledger has more than the card */
    oom_capture_card(log->m->ledger, others_on(log->m, (uint16_t)device), log->rest_bytes[device],
                     &f->snapshot);
}

static void keep_unsaved(struct oom_log *log, const struct store_oom *row, char *document)
{
    size_t at = 0;

    while (at < log->unsaved_count && log->unsaved[at].row.id != row->id)
        at++;
    if (at == OOM_UNSAVED_MAX) {
        free(log->unsaved[0].document);
        memmove(&log->unsaved[0], &log->unsaved[1],
                (OOM_UNSAVED_MAX - 1) * sizeof(log->unsaved[0]));
        at--;
    } else if (at == log->unsaved_count) {
        log->unsaved_count++;
    } else {
        free(log->unsaved[at].document);
    }
    log->unsaved[at] = (struct oom_unsaved){.row = *row, .document = document};
    log->unsaved[at].row.document = document;
}

static void save(struct oom_log *log)
{
    size_t done = 0;

    while (done < log->unsaved_count && store_oom_put(log->m->store, &log->unsaved[done].row) == 0)
        free(log->unsaved[done++].document);
    log->unsaved_count -= done;
    memmove(&log->unsaved[0], &log->unsaved[done], log->unsaved_count * sizeof(log->unsaved[0]));
}

/* Members of the report as text without braces; NULL out of memory. */
static char *document_text(const struct oom_snapshot *s, const struct oom_result *r)
{
    struct json j = {};
    char *text = NULL;

    json_object(&j);
    oom_write(s, r, &j);
    json_end(&j);
    if (json_finish(&j) == 0 && j.length >= 2)
        text = strndup(j.data + 1, j.length - 2);
    json_done(&j);
    return text;
}

/* Of blocks, on the way out: the ledger's clock becomes the wall's. */
static void to_wall(struct oom_snapshot *s)
{
    s->time_ns = wall_of(s->time_ns);
    s->last_time_ns = wall_of(s->last_time_ns);
    for (size_t i = 0; i < s->top_count; i++)
        s->top[i].allocated_ns = wall_of(s->top[i].allocated_ns);
    for (size_t i = 0; i < s->recent_count; i++)
        s->recent[i].allocated_ns = wall_of(s->recent[i].allocated_ns);
}

static void remember(struct oom_log *log, const struct oom_snapshot *s, const struct oom_result *r)
{
    struct latest *l = &log->latest[log->latest_count++ % OOM_LATEST_MAX];

    *l = (struct latest){
        .tgid = s->tgid,
        .is_recovered = s->is_recovered,
        .failure = {.requested_bytes = s->requested_bytes,
                    .short_bytes = r->short_bytes,
                    .physical_bytes = s->physical_bytes},
    };
    snprintf(l->failure.phase, sizeof(l->failure.phase), "%s", s->phase);
}

void oom_log_count(const struct oom_log *log, uint32_t tgid, uint64_t *ret_failures,
                   uint64_t *ret_recovered, uint64_t *ret_largest_bytes)
{
    uint64_t largest = 0;

    *ret_failures = *ret_recovered = 0;
    for (uint64_t i = 0; log && i < log->latest_count && i < OOM_LATEST_MAX; i++) {
        const struct latest *l = &log->latest[i];
        if (l->tgid != tgid)
            continue;
        ++*(l->is_recovered ? ret_recovered : ret_failures);
        if (l->is_recovered && l->failure.requested_bytes > largest)
            largest = l->failure.requested_bytes; /* the largest number is "not known" */
    }
    *ret_largest_bytes = largest ? largest : ANALYSIS_UNKNOWN;
}

bool oom_log_newest(const struct oom_log *log, uint32_t tgid, struct budget_failure *ret)
{
    for (uint64_t i = 0; log && i < log->latest_count && i < OOM_LATEST_MAX; i++) {
        const struct latest *l = &log->latest[(log->latest_count - 1 - i) % OOM_LATEST_MAX];
        if (l->tgid != tgid || l->is_recovered)
            continue;
        *ret = l->failure;
        return true;
    }
    return false;
}

static void report(struct oom_log *log, struct open_failure *f, bool is_recovered, bool is_gone)
{
    struct oom_result result;
    struct store_oom row;

    take_card(log, f, is_gone);
    struct oom_snapshot *s = malloc(sizeof(*s));
    if (!s)
        return;
    *s = f->snapshot;
    to_wall(s);
    s->is_recovered = is_recovered;
    s->id = (uint64_t)(f->id ? f->id : ++log->last_id);
    s->settings = settings_of(f);
    oom_judge(s, &result);
    if (!f->id && result.verdict != OOM_NOT_MEMORY)
        remember(log, s, &result);
    row = (struct store_oom){
        .id = (int64_t)s->id,
        .wall_ns = s->time_ns,
        .requested_bytes = s->requested_bytes,
        .tgid = s->tgid,
        .failures = s->failures,
        .rank = s->rank,
        .device = s->device,
        .is_recovered = is_recovered,
    };
    snprintf(row.comm, sizeof(row.comm), "%s", s->comm);
    snprintf(row.verdict, sizeof(row.verdict), "%s", oom_verdict_name(result.verdict));
    snprintf(row.reason, sizeof(row.reason), "%s", result.reason);
    if (!f->id)
        log_notice("process %u: %s %s: %s", s->tgid,
                   is_recovered ? "recovered after a failed allocation," : "out of memory,",
                   row.verdict, row.reason);
    f->id = row.id;
    f->written_failures = s->failures;
    char *document = document_text(s, &result);
    free(s);
    if (document)
        keep_unsaved(log, &row, document);
}

static void finish(struct oom_log *log, int at, bool is_gone)
{
    struct open_failure *f = &log->open[at];
    const struct oom_track_slot *s = &log->track.slots[at];

    bool is_noise = s->state == OOM_TRACK_RECOVERED && s->is_driver;

    if (!is_noise && f->has_snapshot && (!f->id || f->written_failures != s->failures))
        report(log, f, s->state == OOM_TRACK_RECOVERED, is_gone);
    free(f->environment);
    free(f->line);
    memset(f, 0, sizeof(*f));
    oom_track_release(&log->track, at);
}

static void turn(struct oom_log *log, bool is_gone)
{
    for (int i = 0; i < OOM_TRACK_SLOTS; i++) {
        const struct oom_track_slot *s = &log->track.slots[i];
        if (s->is_closed)
            finish(log, i, is_gone);
        else if (s->state == OOM_TRACK_REAL && log->open[i].has_snapshot && !log->open[i].id)
            report(log, &log->open[i], false, is_gone);
    }
    if (log->unsaved_count)
        save(log);
}

void oom_log_turn(struct oom_log *log)
{
    if (!log)
        return;
    while (oom_track_due(&log->track, manager_boot_ns()) >= 0)
        ;
    turn(log, false);
    if (targets_first(log->m->targets) &&
        (!log->rest_ns || manager_boot_ns() - log->rest_ns > REST_INTERVAL_NS))
        measure_rest(log);
}

void oom_log_exit(struct oom_log *log, uint32_t tgid)
{
    if (!log)
        return;
    while (oom_track_exit(&log->track, tgid) >= 0)
        ;
    turn(log, true);
}

const struct oom_unsaved *oom_log_unsaved(const struct oom_log *log, size_t *ret_count)
{
    *ret_count = log->unsaved_count;
    return log->unsaved;
}

int64_t oom_log_last_id(const struct oom_log *log)
{
    return log->last_id;
}

struct oom_log *oom_log_free(struct oom_log *log)
{
    if (!log)
        return NULL;
    oom_log_exit(log, 0);
    for (size_t i = 0; i < log->unsaved_count; i++)
        free(log->unsaved[i].document);
    free(log);
    return NULL;
}
