/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target_facts: how old it may be what is known of processes: children of this test, one of which
 * writes a title over its arguments as setproctitle does, which no record tells.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "clock.h"
#include "target.h"

#define CHILDREN 200
#define AGE_NS (CHILDREN * 1000000ull) /* as target.h says: 1 ms a target */
#define MAX_NS 1000000000ull

static char **arguments;
static pid_t children[CHILDREN];

static void on_title(int number)
{
    static const char title[] = "VLLM::Worker_TP3";
    memset(arguments[0], 0, strlen(arguments[0])); /* the name of this program is longer */
    memcpy(arguments[0], title, sizeof(title) - 1);
}

static void child_start(pid_t *ret)
{
    *ret = fork();
    assert_true(*ret >= 0);
    if (*ret == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;)
            pause();
    }
}

static void on_target(void *userdata, struct target *t)
{
}

static void on_maps(void *userdata, uint32_t tgid, const char *maps, size_t bytes)
{
}

static void wait_until(uint64_t ns)
{
    while (clock_ns(CLOCK_BOOTTIME) < ns)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static bool title_is_there(pid_t tgid)
{
    char path[64], text[256] = "";

    snprintf(path, sizeof(path), "/proc/%d/cmdline", tgid);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    size_t bytes = fread(text, 1, sizeof(text) - 1, f);
    fclose(f);
    return bytes && strcmp(text, "VLLM::Worker_TP3") == 0;
}

static void test_age(void **state)
{
    static const struct targets_handler handler = {
        .exited = on_target, .added = on_target, .mapped = on_maps};
    struct attach *attach;
    struct targets *ts;
    sd_event *event;
    struct error error;

    assert_true(sd_event_new(&event) >= 0);
    assert_int_equal(attach_new(event, NULL, 0, &attach), 0);
    assert_int_equal(targets_new(event, attach, &handler, NULL, &ts), 0);
    signal(SIGUSR1, on_title); /* here, so that a child that has not run yet has it, too */
    for (int i = 0; i < CHILDREN; i++) {
        child_start(&children[i]);
        assert_int_equal(targets_scan(ts, (uint32_t)children[i], SCAN_BY_HAND, &error), 1);
    }
    assert_int_equal(targets_count(ts), CHILDREN);
    struct target *t = targets_find(ts, (uint32_t)children[7]);
    assert_non_null(t);

    uint64_t before = clock_ns(CLOCK_BOOTTIME);
    assert_false(targets_refresh(ts)); /* reads all; nothing has changed */
    kill(children[7], SIGUSR1);
    while (!title_is_there(children[7]))
        ;
    bool changed = targets_refresh(ts);
    if (clock_ns(CLOCK_BOOTTIME) - before < AGE_NS)
        assert_false(changed); /* too early to look again; a busy host may have been slower */
    wait_until(clock_ns(CLOCK_BOOTTIME) + (AGE_NS < MAX_NS ? AGE_NS : MAX_NS));
    assert_true(targets_refresh(ts) || changed);
    assert_string_equal(t->told.title, "VLLM::Worker_TP3");

    targets_free(ts);
    attach_free(attach);
    sd_event_unref(event);
    for (int i = 0; i < CHILDREN; i++) {
        kill(children[i], SIGKILL);
        waitpid(children[i], NULL, 0);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_age)};

    arguments = argv;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
