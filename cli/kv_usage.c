/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kv_usage.c - see kv_usage.h.
 *
 * Asked here and not in the daemon, which has no network. Must not: connect to a port that the
 * daemon did not find listening in the server's own process.
 */
#include "kv_usage.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "doc.h"
#include "http_get.h"
#include "kv_history_rows.h"
#include "kv_metrics.h"
#include "rows.h"

#define SAMPLE_NS 500000000ull

struct window {
    struct kv_metrics newest;
    double least[KV_ENGINES_MAX], most[KV_ENGINES_MAX], first_preemptions[KV_ENGINES_MAX];
    unsigned samples;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static bool is_here(const char *network)
{
    char own[64];
    ssize_t n = readlink("/proc/self/ns/net", own, sizeof(own) - 1);

    own[n > 0 ? n : 0] = '\0';
    return network && strcmp(own, network) == 0;
}

static int sample(uint16_t port, struct window *w, struct error *reterr)
{
    _cleanup_free_ char *text = NULL;
    struct kv_metrics m;
    ssize_t n = http_get(port, "/metrics", &text, reterr);

    if (n < 0)
        return (int)n;
    if (!kv_metrics_parse(text, (size_t)n, &m))
        return error_set(reterr, ENODATA, "127.0.0.1:%u/metrics: tells no use of a KV cache", port);
    for (size_t i = 0; i < m.count; i++) {
        double usage = m.engines[i].usage;
        bool is_first = !w->samples || i >= w->newest.count;
        if (is_first)
            w->first_preemptions[i] = m.engines[i].preemptions;
        w->least[i] = is_first || usage < w->least[i] ? usage : w->least[i];
        w->most[i] = is_first || usage > w->most[i] ? usage : w->most[i];
    }
    w->newest = m;
    w->samples++;
    return 0;
}

/* Samples until the time is over; the first failure ends it. */
static int watch(const struct args *args, uint16_t port, struct window *w, struct error *reterr)
{
    uint64_t end = now_ns() + args->for_ns;
    int r = sample(port, w, reterr);

    while (r == 0 && args->for_ns && now_ns() < end) {
        struct timespec pause = {.tv_nsec = SAMPLE_NS};
        nanosleep(&pause, NULL);
        r = sample(port, w, reterr);
    }
    return r;
}

/* The largest cache of a rank of this server, and its card. */
static void of_server(struct json_object *document, int64_t tgid, int64_t *ret_kv,
                      int64_t *ret_total, double *ret_utilization)
{
    for (size_t i = 0; i < doc_count(document, "ranks"); i++) {
        struct json_object *rank = doc_item(document, "ranks", i);
        int64_t server = 0, kv = 0;
        if (!doc_int(rank, "server_tgid", &server) || server != tgid ||
            !doc_int(rank, "kv_cache_bytes", &kv) || kv <= *ret_kv)
            continue;
        *ret_kv = kv;
        doc_int(rank, "card_total_bytes", ret_total);
        *ret_utilization = json_object_get_double(doc_get(rank, "utilization"));
    }
}

static void add_u64(struct json_object *row, const char *key, bool is_known, uint64_t value)
{
    json_object_object_add(row, key, is_known ? json_object_new_int64((int64_t)value) : NULL);
}

static void add_double(struct json_object *row, const char *key, double value)
{
    json_object_object_add(row, key, value >= 0 ? json_object_new_double(value) : NULL);
}

static void add_engine(struct json_object *rows, struct json_object *document, int64_t tgid,
                       const struct window *w, size_t i)
{
    const struct kv_engine *e = &w->newest.engines[i];
    struct json_object *row = json_object_new_object();
    int64_t kv = 0, total = 0;
    double utilization = 0;
    struct kv_fit fit;

    of_server(document, tgid, &kv, &total, &utilization);
    kv_fit_compute(e, w->most[i], (uint64_t)kv, (uint64_t)total,
                   e->utilization > 0 ? e->utilization : utilization, &fit);
    add_u64(row, "server_tgid", true, (uint64_t)tgid);
    add_u64(row, "engine", true, e->index);
    add_u64(row, "samples", true, w->samples);
    add_double(row, "usage_ratio", e->usage);
    add_double(row, "least_ratio", w->least[i]);
    add_double(row, "most_ratio", w->most[i]);
    add_u64(row, "tokens", e->tokens, e->tokens);
    add_u64(row, "reserved_bytes", kv > 0, (uint64_t)kv);
    add_u64(row, "used_bytes", kv > 0 && e->usage >= 0, (uint64_t)((double)kv * e->usage));
    add_double(row, "running", e->running);
    add_double(row, "waiting", e->waiting);
    add_double(row, "preemptions", e->preemptions - w->first_preemptions[i]);
    add_u64(row, "fits_bytes", fit.needed_bytes, fit.needed_bytes);
    add_u64(row, "fits_model_len", fit.model_len, fit.model_len);
    add_double(row, "fits_utilization", fit.utilization > 0 ? fit.utilization : -1);
    json_object_object_add(row, "reason", NULL);
    json_object_array_add(rows, row);
}

static void add_reason(struct json_object *rows, int64_t tgid, const char *reason)
{
    struct json_object *row = json_object_new_object();

    add_u64(row, "server_tgid", true, (uint64_t)tgid);
    json_object_object_add(row, "usage_ratio", NULL);
    json_object_object_add(row, "reason", json_object_new_string(reason));
    json_object_array_add(rows, row);
}

int kv_usage_add(const struct args *args, struct json_object *document, struct error *reterr)
{
    struct json_object *rows = json_object_new_array();
    struct window *w = malloc(sizeof(*w));

    for (size_t i = 0; w && i < doc_count(document, "servers"); i++) {
        struct json_object *server = doc_item(document, "servers", i);
        const char *network = doc_text(server, "network", NULL);
        struct error error = {0};
        int64_t tgid = 0, port = 0;
        doc_int(server, "tgid", &tgid);
        if (!doc_int(server, "metrics_port", &port) || port <= 0 || port > UINT16_MAX) {
            add_reason(rows, tgid, doc_text(server, "reason", "no port"));
            continue;
        }
        if (!is_here(network)) {
            add_reason(rows, tgid, "it is in another network namespace");
            continue;
        }
        memset(w, 0, sizeof(*w));
        if (watch(args, (uint16_t)port, w, &error) < 0 && !w->samples) {
            add_reason(rows, tgid, error.what);
            continue;
        }
        for (size_t k = 0; k < w->newest.count; k++)
            add_engine(rows, document, tgid, w, k);
    }
    free(w);
    json_object_object_add(document, "kv_usage", rows);
    return 0;
}

static double ratio_of(struct json_object *row, const char *key)
{
    return json_object_get_double(doc_get(row, key)) * 100;
}

static void print_engine(const struct args *args, struct json_object *row)
{
    static const struct column reserved = {"", "reserved_bytes", COLUMN_BYTES, true};
    static const struct column used = {"", "used_bytes", COLUMN_BYTES, true};
    char bytes[64], of[64];
    int64_t samples = 0;

    doc_int(row, "samples", &samples);
    printf("%.1f %% full", ratio_of(row, "usage_ratio"));
    if (doc_get(row, "used_bytes"))
        printf(" (%s of %s per rank)", rows_format(bytes, sizeof(bytes), row, &used, args->units),
               rows_format(of, sizeof(of), row, &reserved, args->units));
    if (samples > 1)
        printf(", between %.1f and %.1f %% in %lld looks", ratio_of(row, "least_ratio"),
               ratio_of(row, "most_ratio"), (long long)samples);
    if (doc_get(row, "running"))
        printf("; %.0f requests run, %.0f wait", json_object_get_double(doc_get(row, "running")),
               json_object_get_double(doc_get(row, "waiting")));
    printf("\n");
    kv_fit_print(args, row);
}

void kv_usage_print(const struct args *args, const struct out *o, struct json_object *document)
{
    char reason[256];

    for (size_t i = 0; i < doc_count(document, "kv_usage"); i++) {
        struct json_object *row = doc_item(document, "kv_usage", i);
        int64_t tgid = 0, engine;
        bool is_told = doc_get(row, "usage_ratio") != NULL;
        if (!is_told && args->quiet)
            continue;
        doc_int(row, "server_tgid", &tgid);
        printf("%s%sKV cache of server %lld", i ? "" : "\n", is_told ? "" : out_on(o, STYLE_DIM),
               (long long)tgid);
        if (doc_int(row, "engine", &engine))
            printf(", engine %lld", (long long)engine);
        if (!is_told) {
            printf(": use unknown: %s%s\n",
                   out_clean(reason, sizeof(reason), doc_text(row, "reason", "not told")),
                   out_off(o, STYLE_DIM));
            continue;
        }
        printf(": ");
        print_engine(args, row);
    }
}
