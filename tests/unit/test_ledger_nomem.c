/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Out of memory at every single allocation of a run, one after the other: the ledger stays
 * consistent, counts what it could not keep, and leaks nothing (seen by the address sanitizer's
 * build).
 *
 * The sources are compiled into this file with malloc and its family replaced.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static long fail_at; /* allocations until one fails; negative: never */

static int fails(void)
{
    return fail_at >= 0 && fail_at-- == 0;
}

static void *test_malloc(size_t bytes)
{
    return fails() ? NULL : malloc(bytes);
}

static void *test_calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : calloc(count, bytes);
}

static void *test_realloc(void *old, size_t bytes)
{
    return fails() ? NULL : realloc(old, bytes);
}

static char *test_strdup(const char *text)
{
    return fails() ? NULL : strdup(text);
}

#include "cleanup.h"
#undef strdup
#define malloc test_malloc
#define calloc test_calloc
#define realloc test_realloc
#define strdup test_strdup
#include "../../lib/map.c"
#include "../../lib/ledger.c"
#include "../../lib/ledger_process.c"
#include "../../lib/ledger_entry.c"
#include "../../lib/ledger_call.c"
#include "../../lib/ledger_vmm.c"
#include "../../lib/ledger_scope.c"
#include "../../lib/ledger_block.c"
#include "../../lib/ledger_driver.c"
#include "../../lib/ledger_view.c"
#undef malloc
#undef calloc
#undef realloc
#undef strdup

#include "test_ledger.h"

static void sum_entry_level(uint64_t *sums, const struct ledger *l)
{
    for (unsigned level = 0; level < LEVEL_COUNT; level++) {
        struct level_sum s = {.level = (enum ledger_level)level};
        ledger_each_entry(l, TGID, level_sum_entry, &s);
        sums[level] = s.bytes;
    }
}

/* A short life with every kind of table in it. */
static void life(struct world *w)
{
    struct process_facts facts = {.tgid = TGID, .rank = -1};
    ledger_process_update(w->ledger, &facts, 1);
    for (uint64_t i = 1; i <= 40; i++) {
        struct nm_event e = event_alloc(w, i * 0x1000, 100, 100, (unsigned)i % 3);
        e.call.caller = i % 2 ? CALLER_CAMEM : CALLER_TORCH;
        e.call.flags = hal_flags((unsigned)i % 3, i % 5 ? 33 : 3);
        e.cpu = (uint16_t)(i * 40);
        send(w, &e);
        do_block(w, NM_BLOCK_MALLOC, i * 512, 512, (struct totals){512, 4096, 512});
        do_vmm(w, NM_EVENT_CREATE, i, 0, 2 * MIB, CALLER_TORCH);
        do_vmm(w, NM_EVENT_MAP, i, i * 0x10000, 2 * MIB, CALLER_TORCH);
    }
    for (uint64_t i = 1; i <= 30; i++) {
        do_block(w, NM_BLOCK_FREE, i * 512, 512, (struct totals){0, 4096, 512});
        do_vmm(w, NM_EVENT_UNMAP, 0, i * 0x10000, 0, CALLER_TORCH);
        do_free(w, i * 0x1000);
    }
    struct nm_small_key key = {.tgid = TGID, .stream = 5};
    struct nm_small_totals small = {.malloc_count = 1, .malloc_bytes = 100};
    ledger_small_totals(w->ledger, &key, &small);
    ledger_driver_usage(w->ledger, TGID, 5, 33, 100, w->now_ns);
    ledger_card_usage(w->ledger, 2, 10, 5);
}

static void any_one_allocation_may_fail(void **state)
{
    long runs = 0;
    for (long at = 0;; at++, runs++) {
        struct world w = {.now_ns = 1000};
        struct ledger_config config = {.caller_fn = world_caller, .notice_fn = world_notice};
        config.userdata = &w;
        fail_at = at;
        int r = ledger_new(&config, &w.ledger);
        if (r < 0) {
            assert_int_equal(r, -ENOMEM);
            continue;
        }
        life(&w);
        bool reached = fail_at < 0;
        fail_at = -1;
        /* whatever failed, totals and entries agree */
        uint64_t sums[LEVEL_COUNT], known = 0;
        sum_entry_level(sums, w.ledger);
        for (unsigned level = 0; level < LEVEL_COUNT; level++) {
            uint64_t rows = owner_sum(&w, (enum ledger_level)level, NULL).bytes;
            uint64_t extra = 0;
            if (level == LEVEL_BLOCK)
                extra = owner_sum(&w, LEVEL_BLOCK, "before_attach").bytes +
                        owner_sum(&w, LEVEL_BLOCK, "PTA@small").bytes;
            if (level == LEVEL_PHYSICAL)
                extra = owner_sum(&w, LEVEL_PHYSICAL, "before_attach").bytes;
            assert_int_equal(rows, sums[level] + extra);
        }
        for (uint16_t device = 0; device < 6; device++)
            known += device_of(&w, device).known_bytes;
        assert_int_equal(known, sums[LEVEL_PHYSICAL]);
        ledger_free(w.ledger);
        if (!reached)
            break; /* the life needed fewer allocations than that */
    }
    assert_true(runs > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(any_one_allocation_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
