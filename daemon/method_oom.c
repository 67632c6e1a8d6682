/* SPDX-License-Identifier: Apache-2.0 */
/*
 * method_oom.c - the methods OomList and OomShow: reports on disk, and those that wait for it.
 */
#include <stdlib.h>
#include <string.h>

#include "method_context.h"
#include "methods.h"

#define FILTER_MAX 64

struct list {
    struct json *j;
    uint64_t tgids[FILTER_MAX], ranks[FILTER_MAX], devices[FILTER_MAX];
    size_t tgid_count, rank_count, device_count;
    uint64_t limit;
    const struct oom_log *log;
};

static bool fits(const uint64_t *values, size_t count, int64_t value)
{
    for (size_t i = 0; i < count; i++)
        if ((int64_t)values[i] == value)
            return true;
    return count == 0;
}

static int list_row(struct list *list, const struct store_oom *o)
{
    struct json *j = list->j;

    if (!fits(list->tgids, list->tgid_count, o->tgid) ||
        !fits(list->ranks, list->rank_count, o->rank) ||
        !fits(list->devices, list->device_count, o->device))
        return 0;
    if (list->limit == 0)
        return 1;
    list->limit--;
    json_object(j);
    json_ki64(j, "id", o->id);
    json_ku64(j, "failed_ns", o->wall_ns);
    json_ku64(j, "tgid", o->tgid);
    json_kindex(j, "rank", o->rank);
    json_kindex(j, "device", o->device);
    json_kstr(j, "comm", o->comm);
    json_kstr(j, "verdict", o->verdict);
    json_kbool(j, "recovered", o->is_recovered);
    json_ku64(j, "failures", o->failures);
    analysis_u64(j, "requested_bytes", o->requested_bytes);
    json_kstr(j, "reason", o->reason);
    json_end(j);
    return 0;
}

static const struct oom_unsaved *find_unsaved(const struct oom_log *log, int64_t id)
{
    size_t count;
    const struct oom_unsaved *unsaved = oom_log_unsaved(log, &count);

    for (size_t i = 0; i < count; i++)
        if (unsaved[i].row.id == id)
            return &unsaved[i];
    return NULL;
}

static int on_saved(void *userdata, const struct store_oom *o)
{
    struct list *list = userdata;
    return find_unsaved(list->log, o->id) ? 0 : list_row(list, o); /* the newer text was shown */
}

int method_oom_list(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    const struct oom_unsaved *unsaved;
    struct view_context c;
    struct json j = {};
    size_t count;
    struct list list = {.j = &j, .limit = STORE_OOM_ROWS_MAX, .log = m->oom};
    int r = api_param_u64s(call, "tgid", UINT32_MAX, list.tgids, FILTER_MAX, &list.tgid_count);

    if (r >= 0)
        r = api_param_u64s(call, "rank", INT32_MAX, list.ranks, FILTER_MAX, &list.rank_count);
    if (r >= 0)
        r = api_param_u64s(call, "device", UINT16_MAX, list.devices, FILTER_MAX,
                           &list.device_count);
    if (r >= 0)
        r = api_param_u64(call, "limit", STORE_OOM_ROWS_MAX, &list.limit);
    if (r >= 0)
        r = method_begin(call, m, NULL, METHOD_LEDGER, &c);
    if (r <= 0)
        return r;
    oom_log_turn(m->oom);
    unsaved = oom_log_unsaved(m->oom, &count);
    method_document_begin(&j);
    json_object(&j);
    view_header(&c, &j);
    json_karray(&j, "reports");
    while (count-- > 0)
        list_row(&list, &unsaved[count].row);
    r = store_oom_each(m->store, on_saved, &list);
    json_end(&j);
    json_end(&j);
    return method_document_reply(call, &j, r < 0 ? r : 0);
}

static int reply_document(struct api_call *call, const struct view_context *c, const char *members)
{
    struct json j = {};
    char *text = NULL;
    int r;

    json_object(&j);
    view_header(c, &j);
    json_end(&j);
    r = json_finish(&j);
    if (r == 0 &&
        asprintf(&text, "{\"document\":%.*s,%s}}", (int)j.length - 1, j.data, members) < 0)
        r = -ENOMEM;
    json_done(&j);
    if (r == 0)
        r = api_reply(call, text);
    free(text);
    return r;
}

int method_oom_show(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    const struct oom_unsaved *unsaved;
    struct view_context c;
    char message[64], *document = NULL;
    uint64_t id = 0;
    int r = api_param_u64(call, "id", INT64_MAX, &id);

    if (r >= 0)
        r = method_begin(call, m, NULL, METHOD_LEDGER, &c);
    if (r <= 0)
        return r;
    oom_log_turn(m->oom);
    if (!id) /* the newest */
        id = (uint64_t)oom_log_last_id(m->oom);
    unsaved = find_unsaved(m->oom, (int64_t)id);
    if (unsaved)
        return reply_document(call, &c, unsaved->document);
    r = store_oom_document(m->store, (int64_t)id, &document);
    if (r == -ENOENT) {
        snprintf(message, sizeof(message), "out-of-memory report %llu: there is none",
                 (unsigned long long)id);
        api_error(call, "NoSuchProcess", message, "npumem oom list");
        return 0;
    }
    r = r < 0 ? r : reply_document(call, &c, document);
    free(document);
    return r;
}
