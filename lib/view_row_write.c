/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_row_write.c - what all documents say of a row: who it is, and its figures or why they are
 * not known.
 */
#include <string.h>

#include "procfacts.h"
#include "view_rows.h"

static const char reason_workspace[] =
    "torch_npu's workspace pool was not used since npumem attached: what it holds is in "
    "before_attach, and not in reserved";

static void text_or_null(struct json *j, const char *key, const char *value)
{
    json_kstr(j, key, value && value[0] ? value : NULL);
}

static int physical_device(const struct view_context *c, const struct view_row *row)
{
    if (row->device == VIEW_NO_DEVICE)
        return -1;
    if (c->physical_device_fn)
        return c->physical_device_fn(c->userdata, &row->facts, (uint16_t)row->device);
    return row->facts.container[0] ? -1 : row->device;
}

static const char *state_name(const struct view_row *row)
{
    if (!row->alive)
        return "exited";
    if (row->facts.state == 'Z' || row->facts.state == 'X')
        return "zombie";
    return row->facts.orphan ? "orphan" : "running";
}

/* The tunings of the process, "environment": null where its environment cannot be read. */
static void write_environment(const struct view_context *c, uint32_t tgid, struct json *j)
{
    const char *text = NULL, *end, *source = NULL;
    size_t bytes = 0;

    if (c->environment_fn)
        text = c->environment_fn(c->userdata, tgid, &bytes, &source);
    json_key(j, "environment");
    if (!text) {
        json_null(j);
        json_kstr(j, "environment_source", NULL);
        return;
    }
    json_object(j);
    end = text + bytes;
    while (text < end) {
        const char *equals = memchr(text, '=', (size_t)(end - text));
        size_t length = strnlen(text, (size_t)(end - text));
        char name[64];
        if (equals && equals < text + length && (size_t)(equals - text) < sizeof(name)) {
            snprintf(name, sizeof(name), "%.*s", (int)(equals - text), text);
            json_key(j, name);
            json_strn(j, equals + 1, length - (size_t)(equals - text) - 1);
        }
        text += length + 1;
    }
    json_end(j);
    json_kstr(j, "environment_source", source);
}

static void write_identity(const struct view_context *c, const struct view_row *row, struct json *j)
{
    const struct process_facts *f = &row->facts;
    int physical = physical_device(c, row);

    json_ku64(j, "tgid", f->tgid);
    json_ki64_or_null(j, "start_time_ns", f->start_time_ns != 0, (int64_t)f->start_time_ns);
    json_key(j, "comm");
    json_strn(j, f->comm, strnlen(f->comm, sizeof(f->comm)));
    json_key(j, "title");
    json_strn(j, f->title, strnlen(f->title, sizeof(f->title)));
    json_kstr(j, "state", state_name(row));
    json_kindex(j, "rank", f->rank);
    text_or_null(j, "rank_source", f->rank_source);
    json_kbool(j, "rank_inferred", f->rank >= 0 && f->rank_inferred);
    json_kbool(j, "rank_conflict", f->rank_conflict);
    json_kindex(j, "world_size", f->world_size);
    json_kindex(j, "replica", f->replica);
    json_kindex(j, "server_rank", f->server_rank);
    json_kindex(j, "server_size", f->server_size);
    json_kindex(j, "local_rank", f->local_rank);
    json_kobject(j, "groups");
    for (int g = 0; g < GROUP_COUNT; g++)
        if (f->group[g] >= 0)
            json_ki64(j, title_group_name((enum title_group)g), f->group[g]);
    json_end(j);
    json_ki64_or_null(j, "device", row->device != VIEW_NO_DEVICE, row->device);
    json_kindex(j, "physical_device", physical);
    json_kindex(j, "visible_device", row->visible_device);
    json_kbool(j, "main", row->main);
    json_kbool(j, "foreign", row->foreign);
    json_ki64_or_null(j, "main_device", row->main_device != VIEW_NO_DEVICE, row->main_device);
    text_or_null(j, "container", f->container);
    text_or_null(j, "container_runtime", f->runtime);
    text_or_null(j, "pod_uid", f->pod_uid);
    json_ki64_or_null(j, "namespace_tgid", f->ns_tgid != 0, f->ns_tgid);
    json_ki64_or_null(j, "parent_tgid", f->parent_tgid != 0, f->parent_tgid);
    json_ki64_or_null(j, "engine_tgid", f->engine_tgid != 0, f->engine_tgid);
    json_ki64_or_null(j, "uid", f->uid != UINT32_MAX, f->uid);
    text_or_null(j, "user", f->user);
    write_environment(c, f->tgid, j);
}

/* Whether all of torch_npu's pools are known: each of its devices' workspace is from its first use.
 */
static bool knows_workspace(const struct view_row *row, int64_t *ret_bytes)
{
    bool has_any = false;

    *ret_bytes = 0;
    for (size_t i = 0; i < row->pool_count; i++) {
        if (row->pools[i].component == NM_BLOCK_WORKSPACE) {
            *ret_bytes += row->pools[i].reserved_bytes;
            has_any = true;
        }
    }
    return has_any || !row->coverage.late ||
           (row->physical_known && row->use.before_attach_bytes == 0);
}

void view_row_write(const struct view_context *c, const struct view_row *row, struct json *j)
{
    struct view_pool_sum pools = view_row_pools(row);
    bool has_pool = row->pool_count > 0, physical = row->physical_known;
    int64_t workspace_bytes;
    bool workspace = knows_workspace(row, &workspace_bytes);

    write_identity(c, row, j);
    json_ki64_or_null(j, "physical_bytes", physical, (int64_t)row->use.physical_bytes);
    json_ku64(j, "seen_bytes", row->use.known_bytes); /* by events since attach: a lower bound */
    json_ki64_or_null(j, "reserved_bytes", has_pool, pools.reserved_bytes);
    json_ki64_or_null(j, "workspace_bytes", has_pool && workspace, workspace_bytes); /* of it */
    json_ki64_or_null(j, "allocated_bytes", has_pool, pools.allocated_bytes);
    json_ki64_or_null(j, "active_bytes", has_pool, pools.active_bytes);
    json_ki64_or_null(j, "before_attach_bytes", physical, (int64_t)row->use.before_attach_bytes);
    bool driver = row->has_use && row->use.driver_bytes != UINT64_MAX;
    json_ki64_or_null(j, "driver_bytes", driver, (int64_t)row->use.driver_bytes);
    /* what the driver counts beyond (or, negative, short of) what is known: shown, never hidden */
    json_ki64_or_null(j, "drift_bytes", driver && physical,
                      (int64_t)(row->use.driver_bytes - row->use.physical_bytes));
    json_ki64_or_null(j, "peak_bytes", physical, (int64_t)row->use.peak_bytes);
    uint64_t peak_ns = physical ? view_wall_ns(c, row->use.peak_ns) : 0;
    json_ki64_or_null(j, "peak_time_ns", peak_ns != 0, (int64_t)peak_ns);
    bool host = row->main && c->moment.when == LEDGER_NOW;
    json_ki64_or_null(j, "host_bytes", host, (int64_t)row->host_bytes);
    text_or_null(j, "coverage", row->coverage.text);
    text_or_null(j, "coverage_reason", row->coverage.reason);

    json_kobject(j, "unknown");
    if (!physical) {
        json_kstr(j, "physical_bytes", view_reason_late);
        json_kstr(j, "before_attach_bytes", view_reason_late);
        json_kstr(j, "peak_bytes", view_reason_late);
    }
    if (!has_pool) {
        json_kstr(j, "reserved_bytes", view_reason_no_pool);
        json_kstr(j, "allocated_bytes", view_reason_no_pool);
        json_kstr(j, "active_bytes", view_reason_no_pool);
    }
    if (!has_pool || !workspace)
        json_kstr(j, "workspace_bytes", has_pool ? reason_workspace : view_reason_no_pool);
    if (!host)
        json_kstr(j, "host_bytes",
                  row->main ? view_reason_peak
                            : "host memory belongs to no device: it is in the process's main row");
    json_end(j);
}
