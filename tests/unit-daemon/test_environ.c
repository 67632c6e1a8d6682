/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environ: read from real processes: children of this test, whose environment it chose, changed and
 * wiped. The truth is what the child's own getenv() answers, or what was set.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "environ.h"
#include "procfacts.h"
#include "procfs.h"

extern char **environ;

/* Forks a child that runs fn and waits to be killed; returns once fn is done. */
static pid_t child_start(void (*fn)(void))
{
    int ready[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    pid_t tgid = fork();
    assert_true(tgid >= 0);
    if (tgid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when an assertion ends the test */
        fn();
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return tgid;
}

static void child_end(pid_t tgid)
{
    kill(tgid, SIGKILL);
    waitpid(tgid, NULL, 0);
}

static const char *value_of(const struct environ_text *t, const char *name)
{
    static char value[2048];
    if (environ_get(t->text, t->bytes, name, value, sizeof(value)) < 0)
        return "(none)";
    return value;
}

static void set_after_exec(void)
{
    setenv("RANK", "5", 1);
    setenv("HCCL_BUFFSIZE", "1200", 1);
    setenv("SECRET_TOKEN", "do not copy", 1);
}

static void test_what_was_set_after_exec_is_seen(void **state)
{
    struct environ_place place = {};
    struct environ_text *t = calloc(1, sizeof(*t));
    pid_t tgid = child_start(set_after_exec);
    assert_int_equal(environ_read((uint32_t)tgid, &place, t), 0);
    assert_true(t->live);
    assert_string_equal(value_of(t, "RANK"), "5");
    assert_string_equal(value_of(t, "HCCL_BUFFSIZE"), "1200");
    assert_null(memmem(t->text, t->bytes, "SECRET", 6)); /* only what the table names */
    assert_null(memmem(t->text, t->bytes, "PATH=", 5));
    child_end(tgid);
    free(t);
}

/* A large environment: 10,000 variables of 1000 bytes in front of the one that counts. */
static void set_ten_megabytes(void)
{
    char name[32], value[1000];
    memset(value, 'x', sizeof(value) - 1);
    value[sizeof(value) - 1] = '\0';
    clearenv();
    for (int i = 0; i < 9000; i++) {
        snprintf(name, sizeof(name), "FILLER_%d", i);
        setenv(name, value, 1);
    }
    setenv("TASK_QUEUE_ENABLE", "2", 1);
}

static void test_nine_megabytes_are_read_through(void **state)
{
    struct environ_place place = {};
    struct environ_text *t = calloc(1, sizeof(*t));
    pid_t tgid = child_start(set_ten_megabytes);
    assert_int_equal(environ_read((uint32_t)tgid, &place, t), 0);
    assert_true(t->live);
    assert_string_equal(value_of(t, "TASK_QUEUE_ENABLE"), "2");
    child_end(tgid);
    free(t);
}

/* An endless array: pointers without a last NULL, into unmapped memory and into one huge string. */
static char *endless[1 << 17];
static void set_hostile(void)
{
    char *huge = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(huge, 'A', 64 << 20);
    for (size_t i = 0; i < sizeof(endless) / sizeof(endless[0]); i++)
        endless[i] = i % 3 == 0 ? (char *)(uintptr_t)(i * 4096) : huge + (i * 4099) % (63 << 20);
    environ = endless;
}

static void test_a_hostile_array_is_bounded(void **state)
{
    struct environ_place place = {};
    struct environ_text *t = calloc(1, sizeof(*t));
    pid_t tgid = child_start(set_hostile);
    alarm(20);
    (void)environ_read((uint32_t)tgid, &place, t);
    alarm(0);
    assert_int_equal(t->bytes, 0);
    child_end(tgid);
    free(t);
}

static void set_wild(void)
{
    environ = (char **)(uintptr_t)0x10;
}

static void test_a_wild_pointer_falls_back_to_exec(void **state)
{
    struct environ_place place = {};
    struct environ_text *t = calloc(1, sizeof(*t));
    setenv("WORLD_SIZE", "16", 1);
    int ready[2];
    assert_int_equal(pipe(ready), 0);
    pid_t tgid = fork();
    if (tgid == 0) { /* so that WORLD_SIZE is in the environment given at exec */
        char number[16];
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        snprintf(number, sizeof(number), "%d", ready[1]);
        execl("/proc/self/exe", "test_daemon_environ", "wild", number, (char *)NULL);
        _exit(127);
    }
    char byte;
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_int_equal(environ_read((uint32_t)tgid, &place, t), 0);
    assert_false(t->live);
    assert_string_equal(value_of(t, "WORLD_SIZE"), "16");
    close(ready[0]);
    child_end(tgid);
    unsetenv("WORLD_SIZE");
    free(t);
}

/* An interpreter that is linked statically takes the variable over by a copy relocation. */
static void test_python_by_os_environ(void **state)
{
    struct environ_place place = {};
    struct environ_text *t = calloc(1, sizeof(*t));
    char line[16];
    FILE *f = popen("exec python3 -c 'import os,sys,time\n"
                    "os.environ[\"LOCAL_RANK\"]=\"3\"\n"
                    "print(os.getpid(), flush=True)\n"
                    "time.sleep(60)' 2>/dev/null",
                    "r");
    if (!f || !fgets(line, sizeof(line), f)) {
        if (f)
            pclose(f);
        free(t);
        skip();
    }
    uint32_t tgid = (uint32_t)strtoul(line, NULL, 10);
    assert_int_equal(environ_read(tgid, &place, t), 0);
    assert_true(t->live);
    assert_string_equal(value_of(t, "LOCAL_RANK"), "3");
    kill((pid_t)tgid, SIGKILL);
    pclose(f);
    free(t);
}

static void test_facts_of_this_process(void **state)
{
    struct process_facts facts;
    assert_int_equal(procfs_facts((uint32_t)getpid(), NULL, NULL, &facts), 0);
    assert_int_equal(facts.parent_tgid, getppid());
    assert_int_equal(facts.uid, getuid());
    assert_string_equal(facts.comm, "test_daemon_env");
    assert_int_equal(facts.state, 'R');
    assert_int_equal(facts.rank, -1);
    assert_int_equal(procfs_facts(0x7ffffff0, NULL, NULL, &facts), -ESRCH);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "wild") == 0) {
        set_wild();
        if (write((int)strtol(argv[2], NULL, 10), "x", 1) != 1)
            return 1;
        for (;;)
            pause();
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_was_set_after_exec_is_seen),
        cmocka_unit_test(test_nine_megabytes_are_read_through),
        cmocka_unit_test(test_a_hostile_array_is_bounded),
        cmocka_unit_test(test_a_wild_pointer_falls_back_to_exec),
        cmocka_unit_test(test_python_by_os_environ),
        cmocka_unit_test(test_facts_of_this_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
