/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a return probe is survived, in a child whose filter refuses a system call. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

#include <cmocka.h>

#include "seccomp_risk.h"

static void test_unrelated(void **state)
{
    bool survives = false;
    int r = return_probe_try(SYS_getppid, &survives);

    (void)state;
    if (r < 0)
        skip(); /* no uprobes here, or not root */
    assert_true(survives);
}

/* Stands for a kernel whose way back is refused: the child cannot end as it should, and goes on. */
static void test_refused(void **state)
{
    struct timespec begin, end;
    bool survives = true;
    int r;

    (void)state;
    clock_gettime(CLOCK_MONOTONIC, &begin);
    r = return_probe_try(SYS_exit_group, &survives);
    clock_gettime(CLOCK_MONOTONIC, &end);
    if (r < 0)
        skip();
    assert_false(survives);
    assert_true(end.tv_sec - begin.tv_sec < 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unrelated),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests_name("seccomp_risk", tests, NULL, NULL);
}
