/* SPDX-License-Identifier: Apache-2.0 */
/*
 * method_mark.c - moments with a name, and labels: names for what is allocated from one on.
 *
 * A label ends by `end`, with its process, or with the daemon; the store keeps the moments.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "method_context.h"
#include "methods.h"
#include "probe_set.h"

#define MARK_BYTES_MAX 64
/* As a tag's name (include/npumem/tag.h); a mark without '@' gets the prefix. */
#define LABEL_BYTES_MAX 47
#define LABEL_PREFIX "UserDefined@"

struct mark {
    const char *name, *label; /* label NULL: a moment alone */
    char owner[sizeof(LABEL_PREFIX) + MARK_BYTES_MAX];
    struct method_filter filter;
    uint64_t time_ns;
};

static bool mark_valid(const char *name)
{
    size_t bytes = strlen(name);

    for (size_t i = 0; i < bytes; i++)
        if ((unsigned char)name[i] < ' ' || name[i] == 0x7f)
            return false;
    return bytes > 0 && bytes <= MARK_BYTES_MAX;
}

static int tgids_read(struct api_call *call, struct method_filter *f)
{
    uint64_t values[METHOD_FILTER_MAX];
    int r = api_param_u64s(call, "tgid", INT32_MAX, values, METHOD_FILTER_MAX, &f->tgid_count);

    for (size_t i = 0; i < f->tgid_count; i++)
        f->tgids[i] = (uint32_t)values[i];
    return r;
}

/* Returns 1; 0 after the error reply; negative after it as well. */
static int mark_read(struct api_call *call, const struct manager *m, struct mark *ret)
{
    int r = api_param_str(call, "name", &ret->name);

    if (r >= 0)
        r = api_param_str(call, "label", &ret->label);
    if (r >= 0)
        r = tgids_read(call, &ret->filter);
    if (r >= 0)
        r = api_params_done(call);
    if (r < 0)
        return r;
    if (!ret->name || !mark_valid(ret->name))
        return api_error(call, "BadParameter", "name: 1 to 64 printable bytes", "before_wake_up");
    if (!m->store)
        return api_error(call, "Failed", "marks are kept in the store, and there is none",
                         "store.enabled=yes");
    if (ret->label && strcmp(ret->label, "begin") != 0 && strcmp(ret->label, "end") != 0)
        return api_error(call, "BadParameter", "label: neither begin nor end", "begin");
    if (!ret->label && ret->filter.tgid_count)
        return api_error(call, "BadParameter", "tgid: a moment is of all processes",
                         "label: begin or end");
    snprintf(ret->owner, sizeof(ret->owner), "%s%s", strchr(ret->name, '@') ? "" : LABEL_PREFIX,
             ret->name);
    if (ret->label && strlen(ret->owner) > LABEL_BYTES_MAX)
        return api_error(call, "BadParameter",
                         "name: of a label at most 47 bytes, UserDefined@ included",
                         "a shorter one");
    return 1;
}

/* Returns 1; 0 after the error reply. */
static int label_begin(struct api_call *call, struct manager *m, const struct mark *mark)
{
    size_t count = mark->filter.tgid_count;

    for (size_t i = 0; i < (count ? count : 1); i++) {
        uint32_t tgid = count ? mark->filter.tgids[i] : 0;
        bool had = tgid && ledger_label_of(m->ledger, tgid);
        int r = ledger_label_begin(m->ledger, tgid, mark->owner, mark->time_ns);
        if (r < 0) {
            api_error(call, "Failed", "too many owners have been named",
                      "restart npumemd, which keeps what it stored");
            return 0;
        }
        /* small blocks are summed in the kernel without an owner that it does not know */
        if (tgid && !had)
            probe_set_detail(m->probes, tgid, true);
    }
    return 1;
}

static int label_end(struct api_call *call, struct manager *m, const struct mark *mark)
{
    char message[120];
    int ended = 0;

    if (!mark->filter.tgid_count)
        ended = ledger_label_end(m->ledger, 0, mark->owner);
    for (struct target *t = targets_first(m->targets); t; t = t->next) {
        bool is_meant = !mark->filter.tgid_count;
        for (size_t i = 0; i < mark->filter.tgid_count; i++)
            is_meant |= mark->filter.tgids[i] == t->tgid;
        if (is_meant && ledger_label_end(m->ledger, t->tgid, mark->owner)) {
            probe_set_detail(m->probes, t->tgid, false);
            ended++;
        }
    }
    if (ended)
        return 1;
    snprintf(message, sizeof(message), "label %s: there is none", mark->owner);
    api_error(call, "NoSuchProcess", message, "npumem status lists those that hold");
    return 0;
}

void method_label_forget(struct manager *m, uint32_t tgid)
{
    const char *owner = ledger_label_of(m->ledger, tgid);

    if (owner && ledger_label_end(m->ledger, tgid, owner))
        probe_set_detail(m->probes, tgid, false);
}

/* A sample is taken at the moment, so that what was then can be shown. */
int method_mark(struct api_call *call, void *userdata)
{
    struct manager *m = userdata;
    struct mark mark = {};
    struct view_context c;
    struct json j = {};
    int r = mark_read(call, m, &mark);

    if (r <= 0)
        return r;
    manager_sync(m);
    mark.time_ns = manager_boot_ns();
    if (method_check_tgids(m->ledger, call, &mark.filter))
        return 0;
    if (mark.label &&
        (strcmp(mark.label, "begin") == 0 ? label_begin : label_end)(call, m, &mark) == 0)
        return 0;
    store_sample(m->store, m->ledger, mark.time_ns);
    struct store_event event = {
        .kind = STORE_EVENT_MARK, .time_ns = mark.time_ns, .detail = mark.name};
    store_event(m->store, &event);
    recorder_mark(m->recorder, mark.name, mark.time_ns);
    method_context_init(m, NULL, &c);
    method_document_begin(&j);
    json_object(&j);
    view_header(&c, &j);
    json_kstr(&j, "mark", mark.name);
    json_ku64(&j, "mark_time_ns", c.wall_ns - (c.boot_ns - mark.time_ns));
    json_kstr(&j, "label", mark.label);
    json_kstr(&j, "owner", mark.label ? mark.owner : NULL);
    json_end(&j);
    return method_document_reply(call, &j, 0);
}
