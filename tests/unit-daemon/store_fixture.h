/* SPDX-License-Identifier: Apache-2.0 */
/*
 * store_fixture.h - a store in a directory of its own, a real ledger fed by hand, a second SQLite
 * connection that looks at what is on disk, and a clock that stands still.
 */
#ifndef NPUMEM_TEST_STORE_FIXTURE_H
#define NPUMEM_TEST_STORE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <fcntl.h>
#include <inttypes.h>
#include <sqlite3.h>
#include <string.h>
#include <sys/stat.h>

#include "limits.h"
#include "log.h"
#include "probes.h"
#include "store.h"

#define SECOND 1000000000ull
#define MIB 1048576ull
/* The wall clock is this much ahead of the boot clock. */
#define WALL_OFFSET (1700000000ull * SECOND)

struct fixture {
    char dir[64], path[96];
    struct store *store;
    struct store_options options;
    struct ledger *ledger;
    uint64_t boot_ns;
    uint64_t pause_ns; /* between the reading of the two clocks */
};

static inline void fixture_clock(void *userdata, uint64_t *ret_boot_ns, uint64_t *ret_wall_ns)
{
    const struct fixture *f = userdata;

    *ret_boot_ns = f->boot_ns;
    *ret_wall_ns = f->boot_ns + WALL_OFFSET + f->pause_ns;
}

static inline void fixture_open(struct fixture *f)
{
    struct error error = {0};

    if (store_open(f->path, &f->options, &f->store, &error) < 0)
        fail_msg("%s", error.what);
}

static inline int fixture_setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));

    log_set_level(LOG_EMERG);
    strcpy(f->dir, "/tmp/npumem-store-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->path, sizeof(f->path), "%s/store.db", f->dir);
    f->boot_ns = 5000 * SECOND;
    f->options = (struct store_options){.clock_fn = fixture_clock, .userdata = f};
    assert_int_equal(ledger_new(&(struct ledger_config){0}, &f->ledger), 0);
    fixture_open(f);
    *state = f;
    return 0;
}

static inline int fixture_teardown(void **state)
{
    struct fixture *f = *state;
    char command[128];

    store_close(f->store);
    ledger_free(f->ledger);
    snprintf(command, sizeof(command), "rm -rf '%s'", f->dir);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}
#define WITH_STORE(fn) cmocka_unit_test_setup_teardown(fn, fixture_setup, fixture_teardown)

/* One number of the file, through a connection of its own: only what is committed. */
static inline int64_t query_path(const char *path, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *stmt;
    int64_t value;

    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    if (sqlite3_prepare_v2(db, sql, -1, &stmt, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    if (sqlite3_step(stmt) != SQLITE_ROW)
        fail_msg("%s: no row", sql);
    value = sqlite3_column_int64(stmt, 0);
    sqlite3_finalize(stmt);
    sqlite3_close(db);
    return value;
}

static inline int64_t query(const struct fixture *f, const char *sql)
{
    return query_path(f->path, sql);
}

static inline void execute(const struct fixture *f, const char *sql)
{
    sqlite3 *db;

    assert_int_equal(sqlite3_open_v2(f->path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static inline struct process_facts facts_make(uint32_t tgid, uint32_t start_ticks)
{
    struct process_facts facts = {
        .tgid = tgid,
        .start_ticks = start_ticks,
        .start_time_ns = 1699999000ull * SECOND,
        .comm = "python3",
        .title = "VLLM::Worker_TP0",
        .container = "0123456789ab",
        .rank = 0,
        .world_size = 2,
        .rank_source = "title",
    };

    return facts;
}

static inline void process_begin(struct fixture *f, const struct process_facts *facts)
{
    assert_int_equal(ledger_process_update(f->ledger, facts, f->boot_ns), 0);
    assert_int_equal(store_process(f->store, facts), 0);
}

/* A segment: aclrtMalloc over halMemAlloc of HBM on a device. */
static inline void segment_alloc(struct fixture *f, uint32_t tgid, uint16_t device,
                                 uint64_t address, uint64_t bytes)
{
    struct nm_event e = {
        .time_ns = f->boot_ns,
        .kind = NM_EVENT_ALLOC,
        .abi = NM_EVENT_ABI,
        .tgid = tgid,
        .tid = tgid,
        .call = {.address = address,
                 .requested = bytes - 32,
                 .physical_bytes = bytes,
                 .flags = device | 1ull << 14,
                 .caller = 0x7f0000001234,
                 .api = PROBE_ACL_MALLOC,
                 .hal = PROBE_HAL_ALLOC,
                 .call_flags = NM_CALL_HAL_SEEN | NM_CALL_API_SEEN},
    };

    assert_int_equal(ledger_apply(f->ledger, &e), 0);
}

static inline void segment_free(struct fixture *f, uint32_t tgid, uint64_t address)
{
    struct nm_event e = {
        .time_ns = f->boot_ns + 1,
        .kind = NM_EVENT_FREE,
        .abi = NM_EVENT_ABI,
        .tgid = tgid,
        .tid = tgid,
        .call = {.address = address,
                 .begin_ns = f->boot_ns + 1,
                 .api = PROBE_ACL_FREE,
                 .call_flags = NM_CALL_API_SEEN | NM_CALL_HAL_SEEN},
    };

    assert_int_equal(ledger_apply(f->ledger, &e), 0);
}

/* A tensor's block of torch_npu's caching allocator. */
static inline void block_alloc(struct fixture *f, uint32_t tgid, uint64_t address, int64_t bytes,
                               int64_t total, int64_t reserved)
{
    struct nm_event e = {
        .time_ns = f->boot_ns,
        .kind = NM_EVENT_BLOCK,
        .abi = NM_EVENT_ABI,
        .tgid = tgid,
        .tid = tgid,
        .block = {.address = address,
                  .size_bytes = bytes,
                  .total_allocated_bytes = total,
                  .total_reserved_bytes = reserved,
                  .total_active_bytes = total,
                  .stream = 0x55550000,
                  .component = NM_BLOCK_CACHING,
                  .action = NM_BLOCK_MALLOC},
    };

    assert_int_equal(ledger_apply(f->ledger, &e), 0);
}

#endif
