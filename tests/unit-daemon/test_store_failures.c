/* SPDX-License-Identifier: Apache-2.0 */
/* The store on disks that are read-only, full, busy or broken, and files that are not its own. */
#include "store_fixture.h"

#include <dirent.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

static int open_error(struct fixture *f, const char *path, struct error *error)
{
    struct store *store = NULL;
    int r = store_open(path, &f->options, &store, error);

    assert_null(store);
    return r;
}

static char *file_read(const char *path, size_t *ret_size)
{
    FILE *file = fopen(path, "re");
    char *data = malloc(1 << 20);

    assert_non_null(file);
    *ret_size = fread(data, 1, 1 << 20, file);
    fclose(file);
    return data;
}

static void file_write(const char *path, long offset, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);

    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, data, size, offset), size);
    close(fd);
}

/* Files in the store's directory whose names begin with "store.db.corrupt-" and end with a digit.
 */
static unsigned corrupt_files(struct fixture *f)
{
    DIR *dir = opendir(f->dir);
    struct dirent *d;
    unsigned count = 0;

    while ((d = readdir(dir)))
        count += strncmp(d->d_name, "store.db.corrupt-", 17) == 0 &&
                 strspn(d->d_name + 17, "0123456789") == strlen(d->d_name + 17);
    closedir(dir);
    return count;
}

static void event_put(struct fixture *f, int expected)
{
    struct store_event e = {.kind = STORE_EVENT_GAP, .time_ns = f->boot_ns};

    assert_int_equal(store_event(f->store, &e), expected);
}

static void test_no_directory(void **state)
{
    struct fixture *f = *state;
    struct error error = {0};

    assert_int_equal(open_error(f, "/nonexistent/dir/store.db", &error), -ENOENT);
    assert_non_null(strstr(error.what, "/nonexistent/dir: No such file or directory"));
    assert_true(strlen(error.fix) > 0);
}

/* As root nothing but a read-only mount is read-only. */
static void test_read_only_directory(void **state)
{
    struct fixture *f = *state;
    int status;
    pid_t child;

    if (geteuid() != 0)
        skip();
    child = fork();
    if (child == 0) {
        struct error error = {0};
        char path[128];

        if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", f->dir, "tmpfs", MS_RDONLY, "size=1m") < 0)
            _exit(77);
        snprintf(path, sizeof(path), "%s/store.db", f->dir);
        _exit(open_error(f, path, &error) == -EROFS && strstr(error.what, "Read-only") ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_second_daemon(void **state)
{
    struct fixture *f = *state;
    struct error error = {0};

    assert_int_equal(open_error(f, f->path, &error), -EBUSY);
    assert_non_null(strstr(error.what, "another npumemd writes it"));
    event_put(f, 0);
    f->store = store_close(f->store);
    fixture_open(f);
    assert_int_equal(query(f, "SELECT count(*) FROM event"), 1);
}

static void test_newer_version_is_not_touched(void **state)
{
    struct fixture *f = *state;
    struct error error = {0};
    char *before, *after;
    size_t size_before, size_after;

    event_put(f, 0);
    f->store = store_close(f->store);
    execute(f, "PRAGMA user_version=99");
    before = file_read(f->path, &size_before);
    assert_int_equal(open_error(f, f->path, &error), -ENOTSUP);
    assert_non_null(strstr(error.what, "has schema 99, this npumemd knows up to"));
    after = file_read(f->path, &size_after);
    assert_int_equal(size_before, size_after);
    assert_memory_equal(before, after, size_before);
    free(before);
    free(after);
    assert_int_equal(corrupt_files(f), 0);
}

static void test_database_of_another_program(void **state)
{
    struct fixture *f = *state;
    struct error error = {0};
    sqlite3 *db;
    char path[128];

    snprintf(path, sizeof(path), "%s/other.db", f->dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "CREATE TABLE process (x)", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    assert_int_equal(open_error(f, path, &error), -EINVAL);
    assert_non_null(strstr(error.what, "another program"));
    assert_int_equal(query_path(path, "SELECT count(*) FROM sqlite_master"), 1);
}

/* Not a database at all; a database with a broken page: both are kept, and a new one is begun. */
static void test_corrupt_file(void **state)
{
    struct fixture *f = *state;
    char noise[8192];
    struct stat st;

    memset(noise, 0xa5, sizeof(noise));
    f->store = store_close(f->store);
    file_write(f->path, 0, noise, sizeof(noise));
    fixture_open(f);
    assert_int_equal(corrupt_files(f), 1);
    assert_int_equal(store_stats(f->store)->corrupt, 1);
    event_put(f, 0);
    assert_int_equal(query(f, "SELECT count(*) FROM event"), 1);

    f->store = store_close(f->store);
    assert_int_equal(stat(f->path, &st), 0);
    assert_true(st.st_size > 5 * 4096);
    file_write(f->path, 4 * 4096, noise, sizeof(noise));
    fixture_open(f);
    assert_int_equal(corrupt_files(f), 2);
    assert_int_equal(query(f, "SELECT count(*) FROM event"), 0);
}

static void test_truncated_file(void **state)
{
    struct fixture *f = *state;

    f->store = store_close(f->store);
    assert_int_equal(truncate(f->path, 4096 + 100), 0);
    fixture_open(f);
    assert_int_equal(corrupt_files(f), 1);
    event_put(f, 0);
    assert_int_equal(query(f, "SELECT count(*) FROM event"), 1);
}

/* A file of nothing (a crash right after it was made) is simply new. */
static void test_empty_file(void **state)
{
    struct fixture *f = *state;

    f->store = store_close(f->store);
    assert_int_equal(truncate(f->path, 0), 0);
    fixture_open(f);
    assert_int_equal(corrupt_files(f), 0);
    event_put(f, 0);
}

/* The file breaks while the daemon runs. */
static void test_corrupt_while_open(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(100, 7);
    static char noise[200 * 1024];
    struct stat st;
    size_t size;

    process_begin(f, &facts);
    for (uint64_t i = 0; i < 2000; i++)
        segment_alloc(f, 100, 0, 0x120000000000 + i * MIB, MIB);
    assert_int_equal(store_checkpoint(f->store, f->ledger), 0);
    execute(f, "PRAGMA wal_checkpoint(TRUNCATE)");
    assert_int_equal(stat(f->path, &st), 0);
    size = (size_t)st.st_size - 4096;
    memset(noise, 0xa5, sizeof(noise));
    file_write(f->path, 4096, noise, size < sizeof(noise) ? size : sizeof(noise));
    /* Small cache and all pages broken: one of the next writes meets the damage. */
    for (int i = 0; i < 20 && store_stats(f->store)->corrupt == 0; i++) {
        f->boot_ns += 100 * SECOND;
        segment_alloc(f, 100, 0, 0x130000000000 + (uint64_t)i * MIB, MIB);
        store_checkpoint(f->store, f->ledger);
        store_sample(f->store, f->ledger, f->boot_ns);
        store_maintain(f->store);
    }
    assert_int_equal(store_stats(f->store)->corrupt, 1);
    assert_int_equal(corrupt_files(f), 1);
    f->boot_ns += 100 * SECOND;
    store_checkpoint(f->store, f->ledger);
    assert_true(query(f, "SELECT count(*) FROM live_block") > 2000);
    assert_int_equal(query(f, "SELECT count(*) FROM process WHERE tgid=100"), 1);
    assert_true(store_stats(f->store)->healthy);
}

static void test_busy(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(100, 7);
    sqlite3 *db;

    process_begin(f, &facts);
    segment_alloc(f, 100, 0, 0x120000000000, MIB);
    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    event_put(f, -EBUSY);
    /* Left alone for a second: no more waiting for the lock. */
    event_put(f, -EAGAIN);
    assert_int_equal(store_process_final(f->store, f->ledger, 100, f->boot_ns, true), -EAGAIN);
    assert_int_equal(store_stats(f->store)->pending_events, 2);
    assert_int_equal(store_stats(f->store)->pending_blocks, 1);
    assert_int_equal(store_stats(f->store)->failed_busy, 1);
    assert_false(store_stats(f->store)->healthy);
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    f->boot_ns += 2 * SECOND;
    assert_int_equal(store_maintain(f->store), 0);
    assert_int_equal(query(f, "SELECT count(*) FROM event"), 2);
    assert_int_equal(query(f, "SELECT count(*) FROM live_block"), 1);
    assert_int_equal(query(f, "SELECT exit_wall_ns FROM process"), 5000 * SECOND + WALL_OFFSET);
    assert_int_equal(store_stats(f->store)->pending_events, 0);
    assert_int_equal(store_stats(f->store)->pending_blocks, 0);
    assert_true(store_stats(f->store)->healthy);
}

static void test_queue_is_bounded(void **state)
{
    struct fixture *f = *state;
    sqlite3 *db;

    assert_int_equal(sqlite3_open(f->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    for (unsigned i = 0; i < LIMIT_STORE_PENDING_EVENTS + 10; i++)
        store_event(f->store, &(struct store_event){.kind = STORE_EVENT_GAP, .time_ns = i});
    assert_int_equal(store_stats(f->store)->dropped_events, 10);
    assert_int_equal(sqlite3_exec(db, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
    /* At the end the store is written whatever the pause. */
    f->store = store_close(f->store);
    assert_int_equal(query(f, "SELECT count(*) FROM event"), LIMIT_STORE_PENDING_EVENTS);
    assert_int_equal(query(f, "SELECT min(boot_ns) FROM event"), 10);
    assert_int_equal(query(f, "SELECT max(boot_ns) FROM event"), LIMIT_STORE_PENDING_EVENTS + 9);
}

/* The store's own hard bound: the write is refused, what matters waits, retention makes room. */
static void test_full_by_its_own_bound(void **state)
{
    struct fixture *f = *state;
    struct process_facts facts = facts_make(100, 7), dead = facts_make(200, 7);
    int r = 0;

    f->store = store_close(f->store);
    f->options.max_bytes = 512 * 1024;
    fixture_open(f);
    process_begin(f, &facts);
    process_begin(f, &dead);
    segment_alloc(f, 200, 0, 0x120000000000, MIB);
    for (unsigned i = 0; r == 0 && i < 20000; i++) {
        f->boot_ns += SECOND / 10;
        segment_alloc(f, 100, 0, 0x120000000000 + i * MIB, MIB);
        r = store_sample(f->store, f->ledger, f->boot_ns);
    }
    assert_int_equal(r, -ENOSPC);
    assert_int_equal(store_stats(f->store)->failed_full, 1);
    assert_int_equal(store_stats(f->store)->dropped_samples, 1);
    assert_int_equal(store_process_final(f->store, f->ledger, 200, f->boot_ns, true), -EAGAIN);
    event_put(f, -EAGAIN);
    assert_int_equal(store_maintain(f->store), 0);
    assert_true(store_stats(f->store)->retired_samples > 0);
    assert_int_equal(query(f, "SELECT count(*) FROM event"), 1);
    assert_int_equal(
        query(f, "SELECT count(*) FROM live_block b JOIN process p ON p.id=process_id WHERE"
                 " tgid=200 AND exit_seen=1"),
        1);
    assert_int_equal(store_sample(f->store, f->ledger, f->boot_ns), 0);
}

/* In a mount namespace of its own: 1 when everything was as it should be. */
static int full_disk_child(struct fixture *f)
{
    struct process_facts facts = facts_make(100, 7);
    static const char filler_bytes[4096];
    char filler[128];
    int fd, r = 0;

    if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", f->dir, "tmpfs", 0, "size=2m") < 0)
        return 77;
    fixture_open(f);
    process_begin(f, &facts);
    for (uint64_t i = 0; i < 300; i++)
        segment_alloc(f, 100, 0, 0x120000000000 + i * MIB, MIB);
    snprintf(filler, sizeof(filler), "%s/filler", f->dir);
    fd = open(filler, O_WRONLY | O_CREAT, 0600);
    while (write(fd, filler_bytes, sizeof(filler_bytes)) > 0) {
    }
    close(fd);
    for (int i = 0; r == 0 && i < 1000; i++) {
        f->boot_ns += SECOND;
        r = store_event(f->store,
                        &(struct store_event){.kind = STORE_EVENT_GAP,
                                              .time_ns = f->boot_ns,
                                              .detail = "0123456789012345678901234567890"});
    }
    assert_int_equal(r, -ENOSPC);
    assert_int_equal(store_process_final(f->store, f->ledger, 100, f->boot_ns, true), -EAGAIN);
    assert_int_equal(store_stats(f->store)->pending_blocks, 300);
    /* Still full after the pause: tried again, still kept. */
    f->boot_ns += 6 * SECOND;
    assert_true(store_maintain(f->store) < 0);
    assert_int_equal(store_stats(f->store)->pending_blocks, 300);
    assert_int_equal(unlink(filler), 0);
    f->boot_ns += 61 * SECOND;
    assert_int_equal(store_maintain(f->store), 0);
    assert_int_equal(query(f, "SELECT count(*) FROM live_block"), 300);
    assert_int_equal(
        query(f, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check='ok'"), 1);
    assert_int_equal(store_stats(f->store)->pending_events, 0);
    f->store = store_close(f->store);
    return 0;
}

static void test_full_disk(void **state)
{
    struct fixture *f = *state;
    int status;
    pid_t child;

    if (geteuid() != 0)
        skip();
    f->store = store_close(f->store);
    child = fork();
    if (child == 0) {
        /* A failing assertion must end this child, not go on with the parent's tests. */
        _exit(setenv("CMOCKA_TEST_ABORT", "1", 1) == 0 ? full_disk_child(f) : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_STORE(test_no_directory),
        WITH_STORE(test_read_only_directory),
        WITH_STORE(test_second_daemon),
        WITH_STORE(test_newer_version_is_not_touched),
        WITH_STORE(test_database_of_another_program),
        WITH_STORE(test_corrupt_file),
        WITH_STORE(test_truncated_file),
        WITH_STORE(test_empty_file),
        WITH_STORE(test_corrupt_while_open),
        WITH_STORE(test_busy),
        WITH_STORE(test_queue_is_bounded),
        WITH_STORE(test_full_by_its_own_bound),
        WITH_STORE(test_full_disk),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
