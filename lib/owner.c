/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owner.c - the owner rules. Pure: no state, no names beyond the table.
 *
 * The segment rules (facts measured on the real wheels): the caching allocator takes segments of at
 * least 2 MiB by aclrtMallocAlign32 with policy HUGE_FIRST or HUGE1G_ONLY (aclrtMalloc where the
 * first is missing), or VMM handles; the workspace allocator alone uses HUGE_ONLY; NORMAL_ONLY
 * is used for event words, which belong to no pool.
 */
#include "owner.h"

#include <string.h>

#include "probes.h"

/* Smallest segment of the caching allocator (its small pool). */
#define SEGMENT_MIN_BYTES ((uint64_t)2 << 20)
/* aclrtMemMallocPolicy, low byte. */
#define POLICY_HUGE_FIRST 0
#define POLICY_HUGE_ONLY 1
#define POLICY_HUGE1G_ONLY 6
#define POLICY_UNKNOWN 0xff

static const char *const names[OWNER_ID_COUNT] = {
#define NM_OWNER(id, name) [OWNER_ID_##id] = name,
#define NM_OWNER_MODULE(module, id)
#include "owners.def"
#undef NM_OWNER
#undef NM_OWNER_MODULE
};

/* 0 (UNKNOWN) where no row names the module. */
static const uint8_t by_module[256] = {
#define NM_OWNER(id, name)
#define NM_OWNER_MODULE(module, id) [module] = OWNER_ID_##id,
#include "owners.def"
#undef NM_OWNER
#undef NM_OWNER_MODULE
};

const char *owner_fixed_name(uint32_t id)
{
    return id < OWNER_ID_COUNT ? names[id] : NULL;
}

uint8_t owner_module(const struct nm_call *call)
{
    if (call->call_flags & NM_CALL_PHYS_PROP)
        return (uint8_t)NM_PROP_MODULE(call->flags);
    if (call->call_flags & NM_CALL_HAL_SEEN)
        return (uint8_t)NM_HAL_MODULE(call->flags);
    return 0;
}

static bool begins(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static enum owner_segment segment_of_call(const struct nm_event *event, const char *library)
{
    const struct nm_call *call = &event->call;
    bool is_torch = strcmp(library, "torch_npu") == 0;
    if (event->kind == NM_EVENT_CREATE)
        return is_torch ? OWNER_SEGMENT_CACHING : OWNER_SEGMENT_NONE;
    if (event->kind != NM_EVENT_ALLOC)
        return OWNER_SEGMENT_NONE;
    /* Without a library only the API that torch_npu alone uses tells. */
    if (!(is_torch && call->api == PROBE_ACL_MALLOC) &&
        !((is_torch || !*library) && call->api == PROBE_ACL_MALLOC_ALIGN32))
        return OWNER_SEGMENT_NONE;
    uint64_t size_bytes = call->requested ? call->requested : call->physical_bytes;
    switch (call->policy) {
    case POLICY_HUGE_ONLY:
        return OWNER_SEGMENT_WORKSPACE;
    case POLICY_HUGE_FIRST:
    case POLICY_HUGE1G_ONLY:
    case POLICY_UNKNOWN:
        return size_bytes >= SEGMENT_MIN_BYTES ? OWNER_SEGMENT_CACHING : OWNER_SEGMENT_NONE;
    default:
        return OWNER_SEGMENT_NONE;
    }
}

static struct owner_verdict verdict_torch(enum owner_segment segment, bool is_host)
{
    struct owner_verdict v = {.id = OWNER_ID_PTA_OTHER, .segment = segment};
    if (segment == OWNER_SEGMENT_CACHING)
        v.id = OWNER_ID_PTA_POOL;
    else if (segment == OWNER_SEGMENT_WORKSPACE)
        v.id = OWNER_ID_PTA_WORKSPACE;
    else if (is_host)
        v.id = OWNER_ID_PTA_PINNED;
    return v;
}

/* Libraries that allocate for themselves though the module says APP, or no module was seen. */
static struct owner_verdict verdict_library(const char *library, bool module_known)
{
    struct owner_verdict v = {.id = OWNER_ID_UNKNOWN, .inferred = !module_known};
    if (strcmp(library, "atb") == 0) {
        v.id = OWNER_ID_ATB;
        v.inferred = false;
    } else if (strcmp(library, "hccl") == 0 || begins(library, "hccl_")) {
        v.id = OWNER_ID_HCCL;
        v.inferred = true;
    } else if (begins(library, "ge_") || begins(library, "graph")) {
        v.id = OWNER_ID_GE;
        v.inferred = true;
    } else if (begins(library, "ascendcl") || begins(library, "acl_rt") ||
               begins(library, "runtime") || strcmp(library, "hal") == 0) {
        /* With the ACL level unseen, every application's call comes from the runtime. */
        v.id = module_known ? OWNER_ID_APP : OWNER_ID_RUNTIME;
    } else if (*library) {
        v.id = OWNER_ID_APP;
        v.by_library = true;
        v.inferred = false;
    } else {
        v.id = module_known ? OWNER_ID_APP : OWNER_ID_UNKNOWN;
        v.inferred = false;
    }
    return v;
}

struct owner_verdict owner_of_call(const struct nm_event *event, const char *library, bool is_host)
{
    uint8_t module = owner_module(&event->call);
    if (!library)
        library = "";
    if (module && module != OWNER_MODULE_APP) {
        uint32_t id = by_module[module];
        if (id != OWNER_ID_UNKNOWN)
            return (struct owner_verdict){.id = id};
    }
    bool is_torch = strcmp(library, "torch_npu") == 0;
    enum owner_segment segment = is_host ? OWNER_SEGMENT_NONE : segment_of_call(event, library);
    if (is_torch || segment != OWNER_SEGMENT_NONE) {
        struct owner_verdict v = verdict_torch(segment, is_host);
        if (event->kind == NM_EVENT_RESERVE) /* the range that expandable segments grow in */
            v.id = OWNER_ID_PTA_POOL;
        v.inferred = !is_torch;
        return v;
    }
    return verdict_library(library, module == OWNER_MODULE_APP);
}

bool owner_is_application(uint32_t id)
{
    return id == OWNER_ID_APP || id == OWNER_ID_UNKNOWN;
}

uint32_t owner_of_block(const struct nm_block *block)
{
    if (block->component == NM_BLOCK_WORKSPACE)
        return OWNER_ID_PTA_WORKSPACE;
    return block->allocator ? OWNER_ID_PTA_EXTERNAL : OWNER_ID_PTA_BLOCK;
}
