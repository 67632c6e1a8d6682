/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view_rows.h - the rows that ps and breakdown share: one per process and device.
 *
 * Private to lib/view_*.c.
 */
#ifndef NPUMEM_VIEW_ROWS_H
#define NPUMEM_VIEW_ROWS_H

#include "view.h"

#define VIEW_NO_DEVICE (-1)

struct view_pool {
    uint8_t component;
    uint16_t torch_device; /* as the process counts */
    int64_t allocated_bytes, reserved_bytes, active_bytes;
    int64_t known_bytes, small_bytes, before_attach_bytes; /* the last two: never below 0 here */
};

struct view_row {
    struct process_facts facts;
    bool alive;
    uint64_t host_bytes;
    int device;          /* driver logical id, VIEW_NO_DEVICE: none known yet */
    int visible_device;  /* the process's own number of it, -1 unknown */
    bool main;           /* the row of the process with the most memory: host memory stands here */
    bool foreign;        /* a context on another process's main device */
    int main_device;     /* device of the main row, VIEW_NO_DEVICE */
    bool selected;       /* passes the filters */
    bool has_use;        /* `use` is filled: the driver level was seen or asked */
    bool physical_known; /* false: late attach and the driver gives no figure */
    struct ledger_device_use use;
    struct view_pool *pools; /* several torch devices or components may map to one device */
    size_t pool_count, pool_capacity;
    struct view_coverage coverage;
};

/* Sums over a row's pools; meaningless when pool_count is 0. */
struct view_pool_sum {
    int64_t allocated_bytes, reserved_bytes, active_bytes, known_bytes, small_bytes,
        before_attach_bytes;
};

struct view_rows {
    struct view_row *items;
    size_t count, capacity;
};

/* Collects the rows of all processes (exited ones only when the context asks for them), selected or
 * not. Order: processes by first sight, devices by id. Owns: view_rows_done(). */
int view_rows_collect(const struct ledger *l, const struct view_context *c, struct view_rows *ret);
void view_rows_done(struct view_rows *rows);

struct view_pool_sum view_row_pools(const struct view_row *row);

/* Driver logical id of a process's own device number, VIEW_NO_DEVICE if it has no such device. */
int view_device_of(const struct process_facts *facts, uint16_t torch_device);
/* Whether level counts devices as the process does (blocks) and not as the driver does. */
bool view_level_is_torch(enum ledger_level level);
/* Whether an owner total or entry belongs to a row. */
bool view_row_has(const struct view_row *row, enum ledger_level level, uint16_t device);

bool view_filter_process(const struct view_context *c, const struct process_facts *facts);
bool view_filter_device(const struct view_context *c, int device);

/* Writes the fields that ps and breakdown have in common into the object that is open. */
void view_row_write(const struct view_context *c, const struct view_row *row, struct json *j);

/* "communicators": those of a main row's process, with what they hold. */
int view_comms_write(const struct ledger *l, const struct view_context *c,
                     const struct view_row *row, struct json *j);

/* Wall clock of a moment of the ledger's clock; 0 for 0, and for moments that the context's clocks
 * cannot reach. */
uint64_t view_wall_ns(const struct view_context *c, uint64_t boot_ns);

/* Texts of the reasons, one wording each. */
extern const char view_reason_no_pool[];
extern const char view_reason_late[];
extern const char view_reason_no_driver[];
extern const char view_reason_peak[];

#endif
