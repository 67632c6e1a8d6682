/* SPDX-License-Identifier: Apache-2.0 */
/*
 * statements.c - the statements of the scenario language, one row each.
 *
 * Owns the spelling and the parameters; what they do is in do_*.c (C) and npusim_run.py (Python).
 * Invariant: a row's parameter order is the order of struct op.args.
 */
#include <string.h>

#include "scenario.h"

/* clang-format off */
#define E(n) {n, PARAM_EXPR, false, NULL}
#define D(n) {n, PARAM_DURATION, false, NULL}
#define R(n) {n, PARAM_REF, false, NULL}
#define N(n) {n, PARAM_NEW, false, NULL}
#define T(n) {n, PARAM_TEXT, false, NULL}
#define V(n) {n, PARAM_VAR, false, NULL}
#define C(n, w) {n, PARAM_CHOICE, false, w}
#define E_(n) {n, PARAM_EXPR, true, NULL}
#define D_(n) {n, PARAM_DURATION, true, NULL}
#define R_(n) {n, PARAM_REF, true, NULL}
#define T_(n) {n, PARAM_TEXT, true, NULL}
#define V_(n) {n, PARAM_VAR, true, NULL}
#define C_(n, w) {n, PARAM_CHOICE, true, w}
#define POLICIES "huge_first|huge_only|normal_only|huge_first_p2p|huge_only_p2p|normal_only_p2p|huge1g_only|huge1g_only_p2p"
#define APIS "align32|malloc|cached|cfg|ts|managed"

static const struct statement statements[] = {
    {"end", OP_END, 0, {{0}}},
    {"repeat", OP_REPEAT, STATEMENT_OPENS, {E("count"), V_("as")}},
    {"phase", OP_PHASE, STATEMENT_OPENS, {T("name")}},
    {"frames", OP_FRAMES, STATEMENT_OPENS, {T("frames")}},
    {"thread", OP_THREAD, STATEMENT_OPENS, {T("name"), E_("count")}},
    {"fork", OP_FORK, STATEMENT_OPENS, {T("name")}},
    {"if", OP_IF, STATEMENT_OPENS, {E("condition")}},
    {"let", OP_LET, 0, {V("name"), E("value")}},
    {"seed", OP_SEED, 0, {E("value")}},
    {"sleep", OP_SLEEP, 0, {D("time")}},
    {"barrier", OP_BARRIER, 0, {T("name"), E_("count")}},
    {"checkpoint", OP_CHECKPOINT, 0, {T("name")}},
    {"hold", OP_HOLD, 0, {D_("time"), T_("file"), T_("flag")}},
    {"join", OP_JOIN, 0, {{0}}},
    {"wait", OP_WAIT, 0, {{0}}},
    {"exit", OP_EXIT, 0, {E("code")}},
    {"abort", OP_ABORT, 0, {{0}}},
    {"kill", OP_KILL, 0, {{0}}},
    {"print", OP_PRINT, 0, {T("text")}},
    {"device", OP_DEVICE, STATEMENT_EXPECT, {E("device")}},
    {"device_reset", OP_DEVICE_RESET, STATEMENT_EXPECT, {E("device")}},
    {"context", OP_CONTEXT, STATEMENT_EXPECT, {N("id"), E("device")}},
    {"context_use", OP_CONTEXT_USE, STATEMENT_EXPECT, {R("id")}},
    {"context_destroy", OP_CONTEXT_DESTROY, STATEMENT_EXPECT | STATEMENT_ALL, {R("id")}},
    {"malloc", OP_MALLOC, STATEMENT_EXPECT, {N("id"), E("size"), C_("api", APIS), C_("policy", POLICIES), E_("module"), E_("device")}},
    {"free", OP_FREE, STATEMENT_EXPECT | STATEMENT_ALL, {R("id"), E_("sync")}},
    {"free_address", OP_FREE_ADDRESS, STATEMENT_EXPECT, {E("address"), E_("host")}},
    {"host", OP_HOST, STATEMENT_EXPECT, {N("id"), E("size"), C_("api", "host|cfg")}},
    {"register", OP_REGISTER, STATEMENT_EXPECT, {N("id"), E("size"), C_("api", "v1|v2")}},
    {"unregister", OP_UNREGISTER, STATEMENT_EXPECT | STATEMENT_ALL, {R("id")}},
    {"forget", OP_FORGET, STATEMENT_ALL, {R("id")}},
    {"touch", OP_TOUCH, STATEMENT_ALL, {N("id"), E("size")}},
    {"reserve", OP_RESERVE, STATEMENT_EXPECT, {N("id"), E("size"), E_("flags")}},
    {"release", OP_RELEASE, STATEMENT_EXPECT | STATEMENT_ALL, {R("id")}},
    {"create", OP_CREATE, STATEMENT_EXPECT, {N("id"), E("size"), C_("where", "device|host"), E_("attribute")}},
    {"destroy", OP_DESTROY, STATEMENT_EXPECT | STATEMENT_ALL, {R("id")}},
    {"map", OP_MAP, STATEMENT_EXPECT, {R("range"), E("offset"), R("handle")}},
    {"unmap", OP_UNMAP, STATEMENT_EXPECT, {R("range"), E("offset")}},
    {"retain", OP_RETAIN, STATEMENT_EXPECT, {N("id"), R("range"), E("offset")}},
    {"export", OP_EXPORT, STATEMENT_EXPECT, {R("handle"), T("key"), C_("api", "v1|v2")}},
    {"import", OP_IMPORT, STATEMENT_EXPECT, {N("id"), T("key"), C_("api", "v1|v2")}},
    {"ipc_export", OP_IPC_EXPORT, STATEMENT_EXPECT, {R("id"), T("key")}},
    {"ipc_open", OP_IPC_OPEN, STATEMENT_EXPECT, {N("id"), T("key")}},
    {"ipc_close", OP_IPC_CLOSE, STATEMENT_EXPECT, {R("id"), T("key")}},
    {"segment", OP_SEGMENT, STATEMENT_EXPECT, {N("id"), E("reserve"), E("granule")}},
    {"grow", OP_GROW, STATEMENT_EXPECT, {R("id"), E("granules")}},
    {"shrink", OP_SHRINK, STATEMENT_EXPECT, {R("id"), E("granules")}},
    {"segment_free", OP_SEGMENT_FREE, STATEMENT_EXPECT | STATEMENT_ALL, {R("id")}},
    {"pool", OP_POOL, STATEMENT_EXPECT, {N("id"), E_("max")}},
    {"pool_malloc", OP_POOL_MALLOC, STATEMENT_EXPECT, {N("id"), E("size"), R("pool"), R("stream")}},
    {"pool_free", OP_POOL_FREE, STATEMENT_EXPECT | STATEMENT_ALL, {R("id"), R("stream")}},
    {"pool_trim", OP_POOL_TRIM, STATEMENT_EXPECT, {R("pool"), E("keep")}},
    {"pool_destroy", OP_POOL_DESTROY, STATEMENT_EXPECT | STATEMENT_ALL, {R("id")}},
    {"stream", OP_STREAM, STATEMENT_EXPECT, {N("id"), C_("api", "plain|config")}},
    {"stream_destroy", OP_STREAM_DESTROY, STATEMENT_EXPECT | STATEMENT_ALL, {R("id"), E_("force")}},
    {"sync", OP_SYNC, STATEMENT_EXPECT, {R_("stream")}},
    {"hccl", OP_HCCL, STATEMENT_EXPECT, {N("id"), E_("rank"), E_("ranks"), E_("buffer"), T_("name"), C_("api", "config|root")}},
    {"hccl_destroy", OP_HCCL_DESTROY, STATEMENT_EXPECT | STATEMENT_ALL, {R("id")}},
    {"allreduce", OP_ALLREDUCE, STATEMENT_EXPECT, {R("comm"), R("block"), E("count")}},
    {"copy", OP_COPY, STATEMENT_EXPECT, {C("kind", "h2h|h2d|d2h|d2d"), R("to"), R("from"), E("size"), R_("stream")}},
    {"memset", OP_MEMSET, STATEMENT_EXPECT, {R("id"), E("value"), E("size")}},
    {"meminfo", OP_MEMINFO, STATEMENT_EXPECT, {V("free"), V("total")}},
    {"atb", OP_ATB, STATEMENT_EXPECT, {C("call", "setup|execute"), E("workspace"), R_("block")}},
    {"operator", OP_OPERATOR, STATEMENT_EXPECT, {C("api", "aclnn|atb"), R("a"), R_("b"), R_("c"), E_("offset")}},
    {"call", OP_CALL, STATEMENT_EXPECT, {T("symbol"), E_("a"), E_("b"), E_("c"), E_("d"), E_("e"), E_("f")}},
    {"tensor", OP_TENSOR, STATEMENT_EXPECT, {N("id"), E("size"), R_("stream"), E_("external"), E_("device")}},
    {"del", OP_DEL, STATEMENT_EXPECT | STATEMENT_ALL, {R("id")}},
    {"record_stream", OP_RECORD_STREAM, STATEMENT_EXPECT | STATEMENT_ALL, {R("id"), R("stream")}},
    {"stream_done", OP_STREAM_DONE, STATEMENT_EXPECT, {R("stream")}},
    {"empty_cache", OP_EMPTY_CACHE, STATEMENT_EXPECT, {{0}}},
    {"workspace", OP_WORKSPACE, STATEMENT_EXPECT, {E("size"), R_("stream")}},
};
/* clang-format on */

_Static_assert(sizeof(statements) / sizeof(statements[0]) == OP_COUNT, "one row per operation");

const struct statement *statement_find(const char *name)
{
    for (size_t i = 0; i < OP_COUNT; i++) {
        if (!strcmp(statements[i].name, name))
            return &statements[i];
    }
    return NULL;
}

const struct statement *statement_of(enum op_code code)
{
    return &statements[code];
}
