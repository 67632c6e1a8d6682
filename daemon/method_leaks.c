/* SPDX-License-Identifier: Apache-2.0 */
/*
 * method_leaks.c - the method Leaks: series of the store's samples, judged.
 *
 * Owns: the window, the marks that divide it, and what of the live ledger the judge asks for. What
 * is alive, and what a card has free, is only known of now: of when the samples are read, which
 * takes a while (series_call.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "alloc_conf.h"
#include "leak_blocks.h"
#include "leak_gather.h"
#include "leak_marks.h"
#include "leak_steps.h"
#include "method_context.h"
#include "methods.h"
#include "series_call.h"
#include "view_rows.h"

#define WINDOW_DEFAULT_NS (6 * 3600ull * 1000000000)
/* Samples that a judgement needs: less is a start-up as likely as a leak. */
#define SAMPLES_LEAST 60

struct question {
    struct manager *m;
    struct api_call *call;
    struct method_filter filter;
    struct view_context context;
    uint64_t since_ns, until_ns; /* wall */
    bool is_now;
    struct leak_gather gather;
    struct leak_marks marks;
    struct leak_steps steps;
};

/* --- marks --- */

static int on_mark_name(void *userdata, const char *name, uint64_t wall_ns, uint64_t boot_ns)
{
    struct question *q = userdata;

    if (wall_ns <= q->until_ns)
        leak_marks_name(&q->marks, name);
    return 0;
}

static int on_mark_time(void *userdata, const char *name, uint64_t wall_ns, uint64_t boot_ns)
{
    struct question *q = userdata;

    if (wall_ns <= q->until_ns)
        leak_marks_time(&q->marks, name, boot_ns);
    return 0;
}

static int marks_read(struct question *q)
{
    int r = store_marks_each(q->m->store, q->since_ns, on_mark_name, q);

    if (r < 0 || !leak_marks_choose(&q->marks))
        return r;
    return store_marks_each(q->m->store, q->since_ns, on_mark_time, q);
}

/* --- what the judge asks --- */

static uint64_t on_free(void *userdata, int32_t device)
{
    struct question *q = userdata;
    uint64_t total, used;

    if (device < 0 || !q->is_now || !ledger_card(q->m->ledger, (uint16_t)device, &total, &used))
        return ANALYSIS_UNKNOWN;
    return total > used ? total - used : 0;
}

static bool on_expandable(void *userdata, uint32_t tgid)
{
    struct question *q = userdata;
    const char *source, *text, *value;
    struct alloc_conf conf;
    size_t bytes;

    text = q->context.environment_fn(q->context.userdata, tgid, &bytes, &source);
    value = text ? alloc_conf_variable(text, bytes, ALLOC_CONF_NAME) : NULL;
    return value && alloc_conf_parse(value, &conf, NULL) == 0 && conf.is_expandable;
}

static bool on_blocks(void *userdata, const struct leak_series *s, uint64_t since_ns,
                      struct leak_blocks *ret)
{
    const struct question *q = userdata;

    return q->is_now && leak_blocks_of_series(q->m->ledger, &q->context, s, since_ns, ret);
}

/* --- the document --- */

static int on_process(void *userdata, const struct ledger_process *p)
{
    struct question *q = userdata;
    bool is_wanted = p->alive && view_filter_process(&q->context, &p->facts);
    return is_wanted ? leak_steps_add(&q->steps, q->m->ledger, p) : 0;
}

/* What earlier steps left behind can only be told of now. */
static int steps_find(struct question *q)
{
    int r = 0;

    leak_steps_init(&q->steps, q->marks.times, q->is_now ? q->marks.time_count : 0);
    if (q->is_now && q->marks.time_count)
        r = ledger_each_process(q->m->ledger, on_process, q);
    if (r == 0)
        leak_steps_end(&q->steps);
    return r;
}

static int judge(struct question *q, struct json *j)
{
    struct leak_series *list = calloc(leak_gather_count(&q->gather) + 1, sizeof(*list));
    struct leak_input in = {
        .series = list,
        .marks = q->marks.times,
        .mark_count = q->marks.time_count,
        .mark_name = q->marks.wanted,
        .steps = &q->steps,
        .least_ns = SAMPLES_LEAST * q->m->config.store_sample_interval,
        .free_fn = on_free,
        .expandable_fn = on_expandable,
        .blocks_fn = on_blocks,
        .userdata = q,
    };
    int r = list ? leak_gather_list(&q->gather, list, &in.count) : -ENOMEM;

    if (r == 0)
        r = steps_find(q);
    if (r == 0)
        r = leaks_write(&in, j);
    leak_steps_done(&q->steps);
    free(list);
    return r;
}

static int document(struct question *q, struct json *j)
{
    json_object(j);
    view_header(&q->context, j);
    json_ku64(j, "since_ns", q->since_ns);
    json_ku64(j, "until_ns", q->until_ns);
    json_kstr(j, "mark", q->marks.wanted);
    json_kbool(j, "truncated", q->gather.is_full);
    int r = judge(q, j);
    json_end(j);
    return r;
}

static struct question *question_free(struct question *q)
{
    leak_gather_done(&q->gather);
    free(q);
    return NULL;
}
DEFINE_CLEANUP(struct question *, question_free)

static int on_point(void *userdata, struct store_series *from, const struct store_point *p)
{
    struct question *q = userdata;
    return leak_gather_point(&q->gather, from, p);
}

/* The samples are read: what else is asked is asked of now. */
static void on_read(void *userdata, int r)
{
    struct question *q = userdata;
    struct json j = {};

    manager_sync_cards(q->m);
    method_context_init(q->m, &q->filter, &q->context);
    method_document_begin(&j);
    if (r == 0)
        r = document(q, &j);
    method_document_answer(q->call, "leaks", &j, r);
}

static void on_done(void *userdata)
{
    question_free(userdata);
}

/* The window, and the marks in it. Returns 1; 0 after the error reply; negative errno. */
static int window(struct question *q)
{
    bool is_asked = q->marks.wanted != NULL;
    char message[120];

    q->is_now = !q->until_ns || q->until_ns >= q->context.wall_ns;
    if (q->is_now)
        q->until_ns = q->context.wall_ns;
    if (!q->since_ns)
        q->since_ns = q->until_ns > WINDOW_DEFAULT_NS ? q->until_ns - WINDOW_DEFAULT_NS : 0;
    if (q->since_ns >= q->until_ns)
        return api_error(q->call, "BadParameter", "since: not before until, or in the future",
                         "npumem leaks --since -6h");
    int r = marks_read(q);
    if (r < 0 || !is_asked || q->marks.time_count)
        return r < 0 ? r : 1;
    snprintf(message, sizeof(message), "mark %.64s: there is none of that name in this window",
             q->marks.wanted);
    return api_error(q->call, "NoSuchProcess", message, "npumem mark NAME sets one");
}

int method_leaks(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    _cleanup_(question_freep) struct question *q = calloc(1, sizeof(*q));
    int r = q ? method_filter_read(call, &q->filter) : -ENOMEM;

    if (r >= 0)
        r = api_param_u64(call, "since_ns", INT64_MAX, &q->since_ns);
    if (r >= 0)
        r = api_param_u64(call, "until_ns", INT64_MAX, &q->until_ns);
    if (r >= 0)
        r = api_param_str(call, "mark", &q->marks.wanted);
    if (r >= 0 && !m->store)
        return api_error(call, "Failed", "leaks: there is no store to look back in",
                         "store.enabled=yes in npumemd.conf");
    if (r >= 0)
        r = method_begin(call, m, &q->filter, METHOD_WITH_CARDS, &q->context);
    if (r <= 0)
        return r;
    q->m = m;
    q->call = call;
    r = window(q);
    if (r <= 0)
        return r;
    leak_gather_init(&q->gather, &q->context, m->config.store_sample_interval, q->until_ns);
    struct series_query query = {.store = m->store,
                                 .since_wall_ns = q->since_ns,
                                 .point_fn = on_point,
                                 .ended_fn = on_read,
                                 .userdata = q};
    r = series_call_begin(m->reads, call, &query, on_done);
    if (r == 0)
        TAKE_PTR(q);
    return r;
}
