/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_event.c - one event as a JSON object, for `events` and for traces.
 *
 * Owns: the names of event kinds. Must not: keep state between events.
 */
#include <string.h>

#include "probes.h"
#include "view_rows.h"

static const char *const kind_names[NM_EVENT_KIND_COUNT] = {
    [NM_EVENT_NONE] = "none",
    [NM_EVENT_ALLOC] = "alloc",
    [NM_EVENT_FREE] = "free",
    [NM_EVENT_RESERVE] = "reserve",
    [NM_EVENT_RELEASE] = "release",
    [NM_EVENT_CREATE] = "create",
    [NM_EVENT_HANDLE_FREE] = "handle_free",
    [NM_EVENT_MAP] = "map",
    [NM_EVENT_UNMAP] = "unmap",
    [NM_EVENT_RETAIN] = "retain",
    [NM_EVENT_IMPORT] = "import",
    [NM_EVENT_HOST_REGISTER] = "host_register",
    [NM_EVENT_HOST_UNREGISTER] = "host_unregister",
    [NM_EVENT_IPC_OPEN] = "ipc_open",
    [NM_EVENT_IPC_CLOSE] = "ipc_close",
    [NM_EVENT_POOL_CREATE] = "pool_create",
    [NM_EVENT_POOL_DESTROY] = "pool_destroy",
    [NM_EVENT_POOL_TRIM] = "pool_trim",
    [NM_EVENT_DEVICE_SET] = "device_set",
    [NM_EVENT_DEVICE_RESET] = "device_reset",
    [NM_EVENT_CONTEXT_CREATE] = "context_create",
    [NM_EVENT_CONTEXT_DESTROY] = "context_destroy",
    [NM_EVENT_STREAM_CREATE] = "stream_create",
    [NM_EVENT_STREAM_DESTROY] = "stream_destroy",
    [NM_EVENT_COMM_INIT] = "comm_init",
    [NM_EVENT_COMM_DESTROY] = "comm_destroy",
    [NM_EVENT_ATB_CONTEXT_CREATE] = "atb_context_create",
    [NM_EVENT_ATB_CONTEXT_DESTROY] = "atb_context_destroy",
    [NM_EVENT_BLOCK] = "block",
    [NM_EVENT_STACK] = "stack",
    [NM_EVENT_THREAD] = "thread",
    [NM_EVENT_SCOPE_BEGIN] = "scope_begin",
    [NM_EVENT_SCOPE_END] = "scope_end",
    [NM_EVENT_NAME] = "name",
    [NM_EVENT_PROCESS_GROUP] = "process_group",
    [NM_EVENT_MEM_INFO] = "mem_info",
    [NM_EVENT_ACCESS] = "access",
    [NM_EVENT_CODE] = "code",
};

const char *view_event_kind(unsigned kind)
{
    return kind < NM_EVENT_KIND_COUNT && kind_names[kind] ? kind_names[kind] : "unknown";
}

static void hex_if(struct json *j, const char *key, uint64_t value)
{
    if (value)
        json_khex(j, key, value);
}

static void write_block(const struct nm_block *b, struct json *j)
{
    static const char *const actions[] = {"malloc", "free", "block_free"};

    json_kstr(j, "action", b->action < ARRAY_SIZE(actions) ? actions[b->action] : "unknown");
    json_kstr(j, "component",
              b->component == NM_BLOCK_CACHING     ? "caching"
              : b->component == NM_BLOCK_WORKSPACE ? "workspace"
                                                   : "other");
    json_khex(j, "address", b->address);
    json_ki64(j, "size_bytes", b->size_bytes);
    json_ku64(j, "visible_device", b->device);
    hex_if(j, "stream", b->stream);
    json_ki64(j, "total_allocated_bytes", b->total_allocated_bytes);
    json_ki64(j, "total_reserved_bytes", b->total_reserved_bytes);
    json_ki64(j, "total_active_bytes", b->total_active_bytes);
}

static void write_access(const struct nm_access *a, struct json *j)
{
    json_khex(j, "address", a->address);
    hex_if(j, "stream", a->stream);
    json_ku64(j, "uses", a->count);
    json_ku64(j, "operation", a->end_op);
}

static void write_api(const char *key, uint16_t api, struct json *j)
{
    if (api)
        json_kstr(j, key, probe_name(api));
}

static bool is_scope(unsigned kind)
{
    return kind == NM_EVENT_SCOPE_BEGIN || kind == NM_EVENT_SCOPE_END || kind == NM_EVENT_NAME;
}

static void write_scope(const struct nm_scope *s, struct json *j)
{
    static const char *const types[] = {"unknown", "communicator", "tag", "graph"};

    json_kstr(j, "scope", types[s->type < ARRAY_SIZE(types) ? s->type : 0]);
    json_key(j, "name");
    json_strn(j, s->name, strnlen(s->name, sizeof(s->name)));
    hex_if(j, "address", s->address);
}

static void write_call(const struct nm_event *event, struct json *j)
{
    const struct nm_call *call = &event->call;

    write_api("api", call->api, j);
    write_api("hal", call->hal, j);
    if (event->kind == NM_EVENT_MEM_INFO) {
        json_ku64(j, "free_bytes", call->address);
        json_ku64(j, "total_bytes", call->handle);
        return;
    }
    hex_if(j, "address", call->address);
    hex_if(j, "handle", call->handle);
    hex_if(j, "caller", call->caller);
    hex_if(j, "flags", call->flags);
    if (event->kind == NM_EVENT_COMM_INIT || event->kind == NM_EVENT_PROCESS_GROUP) {
        json_ku64(j, "rank", call->flags & UINT32_MAX);
        json_ku64(j, "world_size", call->flags >> 32);
    } else if (call->requested) {
        json_ku64(j, "requested_bytes", call->requested);
    }
    if (call->call_flags & NM_CALL_HAL_SEEN)
        json_ku64(j, "physical_bytes", call->physical_bytes);
    json_kbool(j, "host_memory", (call->call_flags & NM_CALL_HOST) != 0);
    if (call->failed_count)
        json_ku64(j, "failed_calls", call->failed_count);
    if (NM_KIND_IS_FREE(event->kind) && call->begin_ns && call->begin_ns <= event->time_ns)
        json_ku64(j, "duration_ns", event->time_ns - call->begin_ns);
}

int view_event(const struct view_context *c, const struct nm_event *event, struct json *j)
{
    json_object(j);
    json_ku64(j, "time_ns", view_wall_ns(c, event->time_ns));
    json_kstr(j, "kind", view_event_kind(event->kind));
    json_ku64(j, "tgid", event->tgid);
    json_ku64(j, "tid", event->tid);
    json_ku64(j, "cpu", event->cpu);
    json_ku64(j, "sequence", event->seq);
    json_ki64(j, "result", event->result);
    if (event->kind == NM_EVENT_BLOCK)
        write_block(&event->block, j);
    else if (is_scope(event->kind))
        write_scope(&event->scope, j);
    else if (event->kind == NM_EVENT_ACCESS)
        write_access(&event->access, j);
    else
        write_call(event, j);
    json_end(j);
    return j->error;
}
