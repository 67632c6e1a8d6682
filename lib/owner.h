/* SPDX-License-Identifier: Apache-2.0 */
/*
 * owner.h - whose memory a call took: pure rules over one event and the library of its caller.
 *
 * In order of trust: module id in the HAL flag word, then library of the caller, then policy and
 * API. Where the last decides alone, or a library stands for a module that was not seen, the
 * verdict is "inferred". Source of the module ids and policies: schema/owners.def, event.h.
 */
#ifndef NPUMEM_OWNER_H
#define NPUMEM_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include "event.h"

enum owner_id {
#define NM_OWNER(id, name) OWNER_ID_##id,
#define NM_OWNER_MODULE(module, id)
#include "owners.def"
#undef NM_OWNER
#undef NM_OWNER_MODULE
    OWNER_ID_COUNT
};

/* Module ids that rules elsewhere need. */
#define OWNER_MODULE_HCCL 3u
#define OWNER_MODULE_APP 33u

/* Which pool of torch_npu a piece of device memory is a segment of. */
enum owner_segment {
    OWNER_SEGMENT_NONE = 0,
    OWNER_SEGMENT_CACHING = 1,
    OWNER_SEGMENT_WORKSPACE = 2
};

struct owner_verdict {
    uint32_t id;     /* enum owner_id */
    bool by_library; /* the owner is "APP@<library>"; id is APP until somebody interns it */
    bool inferred;   /* a rule guessed */
    enum owner_segment segment;
};

/* Name of a fixed owner, NULL for a number outside the table. */
const char *owner_fixed_name(uint32_t id);

/* Module id that the event carries, 0 if none. */
uint8_t owner_module(const struct nm_call *call);

/* Whose memory an allocating call took. is_host: pinned or registered host memory. library: short
 * name of the caller's library, "" or NULL unknown. Any kind but NM_EVENT_BLOCK. */
struct owner_verdict owner_of_call(const struct nm_event *event, const char *library, bool is_host);

/* Whether an owner says no more than that some application code took the memory. */
bool owner_is_application(uint32_t id);

/* Owner of a block at block level, by component and allocator type. */
uint32_t owner_of_block(const struct nm_block *block);

#endif
