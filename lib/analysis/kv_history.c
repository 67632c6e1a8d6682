/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_history.c - see kv_history.h.
 */
#include "kv_history.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "kv_metrics.h"

/* Fill that a span may move by, of the pool: below, a row per reading would say no more. */
#define MOVED_PARTS 100u

static bool is_full(const struct kv_pool_reading *r)
{
    return r->used_blocks * 100 >= r->usable_blocks * KV_HISTORY_FULL_PERCENT;
}

/* Rounded up: what is used at all is not 0. */
static size_t percent_of(const struct kv_pool_reading *r)
{
    return (size_t)((r->used_blocks * 100 + r->usable_blocks - 1) / r->usable_blocks);
}

static struct kv_span span_begin(const struct kv_pool_reading *r, uint64_t begin_ns,
                                 uint64_t now_ns)
{
    struct kv_span s = {
        .begin_wall_ns = begin_ns,
        .end_wall_ns = now_ns,
        .readings = 1,
        .usable_blocks = r->usable_blocks,
        .least_blocks = r->used_blocks,
        .most_blocks = r->used_blocks,
        .last_blocks = r->used_blocks,
        .most_wall_ns = now_ns,
        .running = r->running,
        .waiting = r->waiting,
        .full_ns = is_full(r) ? now_ns - begin_ns : 0,
    };

    s.fills[percent_of(r)] = 1;
    return s;
}

bool kv_span_take(struct kv_span *s, const struct kv_pool_reading *r, uint64_t wall_ns,
                  const struct kv_span_rule *rule, struct kv_span *ret_next)
{
    if (!s->readings || s->usable_blocks != r->usable_blocks || wall_ns < s->end_wall_ns ||
        wall_ns - s->end_wall_ns > rule->gap_ns) {
        *ret_next = span_begin(r, wall_ns, wall_ns);
        return false;
    }
    uint64_t least = r->used_blocks < s->least_blocks ? r->used_blocks : s->least_blocks;
    uint64_t most = r->used_blocks > s->most_blocks ? r->used_blocks : s->most_blocks;
    uint64_t lasted = s->end_wall_ns - s->begin_wall_ns;
    if (lasted >= rule->longest_ns ||
        (lasted >= rule->shortest_ns && (most - least) * MOVED_PARTS > r->usable_blocks)) {
        *ret_next = span_begin(r, s->end_wall_ns, wall_ns);
        return false;
    }
    if (is_full(r))
        s->full_ns += wall_ns - s->end_wall_ns;
    if (r->used_blocks > s->most_blocks) {
        s->most_wall_ns = wall_ns;
        s->running = r->running;
        s->waiting = r->waiting;
    }
    s->least_blocks = least;
    s->most_blocks = most;
    s->last_blocks = r->used_blocks;
    s->end_wall_ns = wall_ns;
    s->readings++;
    s->fills[percent_of(r)]++;
    return true;
}

static double fill_of(const struct kv_span *s)
{
    return s->usable_blocks ? (double)s->most_blocks / (double)s->usable_blocks : 0;
}

void kv_history_add(struct kv_history *h, const struct kv_span *s)
{
    uint64_t lasted = s->end_wall_ns - s->begin_wall_ns;

    if (!s->readings || !s->usable_blocks || s->most_blocks > s->usable_blocks ||
        s->end_wall_ns < s->begin_wall_ns)
        return;
    if (!h->readings || s->begin_wall_ns < h->first_wall_ns)
        h->first_wall_ns = s->begin_wall_ns;
    if (!h->readings || s->end_wall_ns > h->last_wall_ns) {
        h->last_wall_ns = s->end_wall_ns;
        h->newest = *s;
    }
    h->known_ns += lasted;
    h->readings += s->readings;
    h->full_ns += s->full_ns < lasted ? s->full_ns : lasted;
    for (size_t i = 0; i < KV_HISTORY_FILLS; i++)
        h->fills[i] += s->fills[i];
    if (!h->most.readings || fill_of(s) > fill_of(&h->most))
        h->most = *s;
}

double kv_history_percentile(const struct kv_history *h, double part)
{
    uint64_t all = 0, below = 0;

    for (size_t i = 0; i < KV_HISTORY_FILLS; i++)
        all += h->fills[i];
    for (size_t i = 0; all && i < KV_HISTORY_FILLS; i++) {
        below += h->fills[i];
        if ((double)below >= part * (double)all)
            return (double)i / 100;
    }
    return -1;
}

void kv_span_fills_write(const struct kv_span *span, char *text)
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t i = 0; i < KV_HISTORY_FILLS; i++)
        if (span->fills[i])
            used += (size_t)snprintf(text + used, KV_HISTORY_TEXT_BYTES - used, "%s%zu:%u",
                                     used ? " " : "", i, span->fills[i]);
}

int kv_span_fills_parse(const char *text, struct kv_span *ret)
{
    uint64_t sum = 0;

    while (*text) {
        char *end;
        unsigned long percent = strtoul(text, &end, 10), count;
        if (end == text || *end != ':' || percent >= KV_HISTORY_FILLS || ret->fills[percent])
            return -EBADMSG;
        text = end + 1;
        count = strtoul(text, &end, 10);
        if (end == text || (*end && *end != ' ') || !count || count > UINT32_MAX)
            return -EBADMSG;
        ret->fills[percent] = (uint32_t)count;
        sum += count;
        text = end + (*end == ' ');
    }
    return sum == ret->readings ? 0 : -EBADMSG;
}

static void write_fit(const struct kv_history *h, const struct kv_history_rank *rank,
                      struct json *j)
{
    const struct kv_span *newest = &h->newest;
    struct kv_engine engine = {0};
    struct kv_fit fit;

    if (newest->block_tokens)
        engine.tokens = (newest->usable_blocks + 1) * newest->block_tokens;
    kv_fit_compute(&engine, fill_of(&h->most), rank->kv_bytes, rank->total_bytes, rank->utilization,
                   &fit);
    json_ku64_or_null(j, "tokens", engine.tokens != 0, engine.tokens);
    json_ku64_or_null(j, "model_len", newest->model_len != 0, newest->model_len);
    json_ku64_or_null(j, "reserved_bytes", rank->kv_bytes != 0, rank->kv_bytes);
    json_ku64_or_null(j, "most_bytes", rank->kv_bytes != 0, fit.used_bytes);
    json_ku64_or_null(j, "fits_bytes", fit.needed_bytes != 0, fit.needed_bytes);
    json_ku64_or_null(j, "fits_model_len", fit.model_len != 0, fit.model_len);
    json_kdouble_or_null(j, "fits_utilization", fit.utilization > 0, fit.utilization);
}

void kv_history_write(const struct kv_history_row *row, const struct kv_history_rank *rank,
                      struct json *j)
{
    const struct kv_history *h = &row->history;
    bool is_known = h->readings != 0;

    json_object(j);
    json_ku64(j, "server_tgid", row->server_tgid);
    json_ku64(j, "tgid", row->tgid);
    json_kindex(j, "replica", row->replica);
    json_kstr(j, "state", row->is_alive ? "running" : "exited");
    json_ku64_or_null(j, "since_ns", is_known, h->first_wall_ns);
    json_ku64_or_null(j, "until_ns", is_known, h->last_wall_ns);
    json_ku64(j, "known_ns", h->known_ns);
    json_ku64(j, "samples", h->readings);
    json_ku64(j, "interval_ns", row->interval_ns);
    json_ku64_or_null(j, "blocks", is_known, h->newest.usable_blocks);
    json_kdouble_or_null(j, "usage_ratio", is_known && row->is_alive,
                         is_known ? (double)h->newest.last_blocks / (double)h->newest.usable_blocks
                                  : 0);
    json_kdouble_or_null(j, "most_ratio", is_known, fill_of(&h->most));
    json_ku64_or_null(j, "most_ns", is_known, h->most.most_wall_ns);
    json_ku64_or_null(j, "most_running", is_known && h->most.running != KV_POOL_UNKNOWN,
                      h->most.running);
    json_ku64_or_null(j, "most_waiting", is_known && h->most.waiting != KV_POOL_UNKNOWN,
                      h->most.waiting);
    json_kdouble_or_null(j, "p50_ratio", is_known, kv_history_percentile(h, 0.50));
    json_kdouble_or_null(j, "p95_ratio", is_known, kv_history_percentile(h, 0.95));
    json_kdouble_or_null(j, "p99_ratio", is_known, kv_history_percentile(h, 0.99));
    json_ku64(j, "full_ns", h->full_ns);
    write_fit(h, rank, j);
    json_kstr(j, "reason", is_known ? NULL : row->reason ? row->reason : "not read yet");
    json_end(j);
}
