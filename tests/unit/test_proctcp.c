/* SPDX-License-Identifier: Apache-2.0 */
/* Listening sockets: lines of a Linux 6 host, and hostile texts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proctcp.h"

#define HEAD                                                                                       \
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "  \
    "inode\n"
/* 8000 is 1F40 */
#define LOOPBACK                                                                                   \
    "   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 "  \
    "70001 1 0000000000000000 100 0 0 10 0\n"
#define ANY                                                                                        \
    "   1: 00000000:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 "  \
    "70002 1 0000000000000000 100 0 0 10 0\n"
#define OTHER_ADDRESS                                                                              \
    "   2: 0A00000A:1F42 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 "  \
    "70003 1 0000000000000000 100 0 0 10 0\n"
#define CONNECTED                                                                                  \
    "   3: 0100007F:1F43 0100007F:C001 01 00000000:00000000 02:000A7214 00000000  1000        0 "  \
    "70004 2 0000000000000000 20 4 30 10 -1\n"
#define ANY6                                                                                       \
    "   0: 00000000000000000000000000000000:1F44 00000000000000000000000000000000:0000 0A "        \
    "00000000:00000000 00:00000000 00000000     0        0 70005 1 0000000000000000 100 0 0 10 "   \
    "0\n"
#define LOOPBACK6                                                                                  \
    "   0: 00000000000000000000000001000000:1F45 00000000000000000000000000000000:0000 0A "        \
    "00000000:00000000 00:00000000 00000000     0        0 70006 1 0000000000000000 100 0 0 10 "   \
    "0\n"
#define MAPPED6                                                                                    \
    "   0: 0000000000000000FFFF00000100007F:1F46 00000000000000000000000000000000:0000 0A "        \
    "00000000:00000000 00:00000000 00000000     0        0 70007 1 0000000000000000 100 0 0 10 "   \
    "0\n"

static const char all[] = HEAD LOOPBACK ANY OTHER_ADDRESS CONNECTED ANY6 LOOPBACK6 MAPPED6;

static uint64_t inode_of(const char *text, uint16_t port)
{
    uint64_t inode = 0;
    return proctcp_listener(text, strlen(text), port, &inode) ? inode : 0;
}

static void listeners_that_loopback_reaches(void **state)
{
    assert_int_equal(inode_of(all, 0x1f40), 70001);
    assert_int_equal(inode_of(all, 0x1f41), 70002);
    assert_int_equal(inode_of(all, 0x1f42), 0); /* on another address */
    assert_int_equal(inode_of(all, 0x1f43), 0); /* a connection */
    assert_int_equal(inode_of(all, 0x1f44), 70005);
    assert_int_equal(inode_of(all, 0x1f45), 0); /* ::1 only */
    assert_int_equal(inode_of(all, 0x1f46), 70007);
    assert_int_equal(inode_of(all, 80), 0);
    assert_int_equal(inode_of("", 80), 0);
}

static void every_prefix_and_every_changed_byte(void **state)
{
    size_t n = strlen(all);

    for (size_t i = 0; i <= n; i++) {
        char *copy = malloc(i + 1); /* exact, so that a read beyond it is seen */
        uint64_t inode;
        memcpy(copy, all, i);
        proctcp_listener(copy, i, 0x1f44, &inode);
        free(copy);
    }
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < 256; c += 37) {
            char copy[sizeof(all)];
            uint64_t inode;
            memcpy(copy, all, sizeof(all));
            copy[i] = (char)c;
            proctcp_listener(copy, n, 0x1f44, &inode);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(listeners_that_loopback_reaches),
        cmocka_unit_test(every_prefix_and_every_changed_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
