/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns: how a file becomes an open, current, plausible database.
 * Must not: change a file of a newer version or of another program; delete anything.
 * Invariant: a file that cannot be read is renamed, never overwritten.
 */
#include "store_internal.h"

#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "embedded.h"
#include "log.h"

static const char *const statement_sql[] = {
#define X(name, sql) sql,
    STORE_STATEMENTS(X)
#undef X
};

int store_errno(int result)
{
    switch (result & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return 0;
    case SQLITE_FULL:
        return -ENOSPC;
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return -EBUSY;
    case SQLITE_READONLY:
        return -EROFS;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return -EUCLEAN;
    case SQLITE_NOMEM:
        return -ENOMEM;
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
        return -EACCES;
    default:
        return -EIO;
    }
}

static int database_error(struct store *s, sqlite3 *db, int result, const char *doing,
                          struct error *reterr)
{
    return error_set(reterr, store_errno(result), "store %.120s: %s: %s", s->path, doing,
                     db ? sqlite3_errmsg(db) : sqlite3_errstr(result));
}

static int pragma_read(sqlite3 *db, const char *sql, int64_t *ret)
{
    sqlite3_stmt *statement = NULL;
    int result = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);

    if (result == SQLITE_OK)
        result = sqlite3_step(statement);
    if (result == SQLITE_ROW)
        *ret = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return result == SQLITE_DONE ? SQLITE_OK : result;
}

/* Is the directory there and writable? SQLite's own words for it are of no help. */
static int directory_check(struct store *s, struct error *reterr)
{
    _cleanup_free_ char *copy = strdup(s->path);
    const char *dir;
    int code, r;

    if (!copy)
        return error_set(reterr, ENOMEM, "store: out of memory");
    dir = dirname(copy);
    if (access(dir, W_OK | X_OK) == 0)
        return 0;
    code = errno;
    r = error_set(reterr, code, "store: directory %.120s: %s", dir, strerror(code));
    return error_fix(reterr, r, "make it writable for npumemd, --state-dir, or store.enabled=no");
}

/* Whose file is it, and how new? Does not change it. Returns 0 ours or empty; -EUCLEAN no database.
 */
static int file_check(struct store *s, struct error *reterr)
{
    sqlite3 *db = NULL;
    int64_t application = 0, version = 0, tables = 0;
    int result, r = 0;

    result = sqlite3_open_v2(s->path, &db, SQLITE_OPEN_READWRITE, NULL);
    if (result == SQLITE_OK) {
        sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
        sqlite3_busy_timeout(db, LIMIT_STORE_BUSY_MS);
        result = pragma_read(db, "PRAGMA application_id", &application);
    }
    if (store_errno(result) == 0)
        result = pragma_read(db, "PRAGMA user_version", &version);
    if (store_errno(result) == 0)
        result = pragma_read(db, "SELECT count(*) FROM sqlite_master", &tables);
    if (store_errno(result) < 0)
        r = database_error(s, db, result, "open", reterr);
    else if (application != STORE_APPLICATION_ID && (application || version || tables)) {
        r = error_set(reterr, EINVAL, "store %.120s: is a database of another program", s->path);
        error_fix(reterr, r, "another --state-dir");
    } else if (version > (int64_t)embedded_migration_count) {
        r = error_set(reterr, ENOTSUP,
                      "store %.120s: has schema %" PRId64 ", this npumemd knows up to %u", s->path,
                      version, embedded_migration_count);
        error_fix(reterr, r, "upgrade npumemd, or move the file away");
    }
    sqlite3_close(db);
    return r;
}

static int migrate(struct store *s, struct error *reterr)
{
    int64_t version = 0;
    int result = pragma_read(s->db, "PRAGMA user_version", &version);

    if (store_errno(result) < 0)
        return database_error(s, s->db, result, "read version", reterr);
    for (unsigned i = (unsigned)version; i < embedded_migration_count; i++) {
        const struct embedded_migration *m = &embedded_migrations[i];
        char finish[128];

        snprintf(finish, sizeof(finish), "PRAGMA application_id=%d; PRAGMA user_version=%d; COMMIT",
                 STORE_APPLICATION_ID, m->number);
        result = sqlite3_exec(s->db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
        if (result == SQLITE_OK)
            result = sqlite3_exec(s->db, m->sql, NULL, NULL, NULL);
        if (result == SQLITE_OK)
            result = sqlite3_exec(s->db, finish, NULL, NULL, NULL);
        if (result != SQLITE_OK) {
            int r = database_error(s, s->db, result, m->name, reterr);
            sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
            return r;
        }
    }
    return 0;
}

static int on_check_row(void *userdata, int columns, char **values, char **names)
{
    *(bool *)userdata = values[0] && strcmp(values[0], "ok") == 0;
    return 0;
}

/* Pages of a small file are checked now; a large one shows its damage when it is met. */
static int content_check(struct store *s, struct error *reterr)
{
    struct stat st;
    bool ok = false;
    int result;

    if (stat(s->path, &st) < 0 || st.st_size > LIMIT_STORE_CHECK_BYTES)
        return 0;
    result = sqlite3_exec(s->db, "PRAGMA quick_check(1)", on_check_row, &ok, NULL);
    if (store_errno(result) < 0)
        return database_error(s, s->db, result, "check", reterr);
    if (!ok)
        return error_set(reterr, EUCLEAN, "store %.120s: its pages are damaged", s->path);
    return 0;
}

static int settings_apply(struct store *s, struct error *reterr)
{
    char sql[512];
    int64_t page_bytes = 4096;
    int result;

    sqlite3_busy_timeout(s->db, LIMIT_STORE_BUSY_MS);
    sqlite3_extended_result_codes(s->db, 1);
    pragma_read(s->db, "PRAGMA page_size", &page_bytes);
    /* The hard bound is a quarter above the one that retention keeps. */
    snprintf(sql, sizeof(sql),
             "PRAGMA auto_vacuum=INCREMENTAL; PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;"
             "PRAGMA foreign_keys=ON; PRAGMA temp_store=MEMORY; PRAGMA trusted_schema=OFF;"
             "PRAGMA cell_size_check=ON; PRAGMA cache_size=-4096; PRAGMA journal_size_limit=%d;"
             "PRAGMA max_page_count=%" PRIu64,
             16 << 20, s->options.max_bytes / 4 * 5 / (uint64_t)page_bytes + 1);
    result = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
    return result == SQLITE_OK ? 0 : database_error(s, s->db, result, "settings", reterr);
}

static int statements_prepare(struct store *s, struct error *reterr)
{
    for (int i = 0; i < STORE_STATEMENT_COUNT; i++) {
        int result = sqlite3_prepare_v3(s->db, statement_sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                                        &s->statements[i], NULL);
        /* Our application_id, a version that we know, and yet a table is missing: damage. */
        if (result == SQLITE_ERROR)
            return error_set(reterr, EUCLEAN, "store %.120s: %s", s->path, sqlite3_errmsg(s->db));
        if (result != SQLITE_OK)
            return database_error(s, s->db, result, "prepare", reterr);
    }
    return 0;
}

/* Processes of an earlier boot are over; when is not known better than "after it was last seen". */
static int earlier_boots_close(struct store *s, struct error *reterr)
{
    char sql[256];
    int result;

    snprintf(sql, sizeof(sql),
             "UPDATE process SET exit_wall_ns=last_wall_ns, exit_seen=0"
             " WHERE exit_wall_ns IS NULL AND boot_id <> '%s'",
             s->boot_id);
    result = sqlite3_exec(s->db, sql, NULL, NULL, NULL);
    return result == SQLITE_OK ? 0 : database_error(s, s->db, result, "earlier boots", reterr);
}

void store_database_close(struct store *s)
{
    for (int i = 0; i < STORE_STATEMENT_COUNT; i++) {
        sqlite3_finalize(s->statements[i]);
        s->statements[i] = NULL;
    }
    sqlite3_close(s->db);
    s->db = NULL;
}

/* Made here so that titles of processes are not readable for everybody; -wal and -shm get the same
 * mode from SQLite. Closed before SQLite opens it: closing any descriptor of a file drops the POSIX
 * locks that the process has on it. */
static int file_make(struct store *s, struct error *reterr)
{
    int code, fd = open(s->path, O_RDWR | O_CREAT | O_CLOEXEC, 0640);

    if (fd < 0) {
        code = errno;
        return error_set(reterr, code, "store %.120s: %s", s->path, strerror(code));
    }
    close(fd);
    return 0;
}

/* Two daemons on one store would end each other's processes. A file of its own, see file_make(). */
static int lock_take(struct store *s, struct error *reterr)
{
    char path[4096];
    int code, r, fd;

    if (s->lock_fd >= 0)
        return 0;
    snprintf(path, sizeof(path), "%s.lock", s->path);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        code = errno;
        return error_set(reterr, code, "store: %.120s: %s", path, strerror(code));
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        code = errno;
        close(fd);
        r = error_set(reterr, code == EWOULDBLOCK ? EBUSY : code, "store %.120s: %s", s->path,
                      code == EWOULDBLOCK ? "another npumemd writes it" : strerror(code));
        return error_fix(reterr, r, "npumem status, or --state-dir for a second one");
    }
    s->lock_fd = fd;
    return 0;
}

static int open_once(struct store *s, struct error *reterr)
{
    int result, r = file_make(s, reterr);

    if (r == 0)
        r = file_check(s, reterr);
    if (r < 0)
        return r;
    result = sqlite3_open_v2(s->path, &s->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    if (result != SQLITE_OK) {
        r = database_error(s, s->db, result, "open", reterr);
        store_database_close(s);
        return r;
    }
    if ((r = settings_apply(s, reterr)) < 0 || (r = content_check(s, reterr)) < 0 ||
        (r = migrate(s, reterr)) < 0 || (r = statements_prepare(s, reterr)) < 0 ||
        (r = earlier_boots_close(s, reterr)) < 0)
        store_database_close(s);
    return r;
}

static int move_aside(struct store *s, struct error *reterr)
{
    static const char *const suffixes[] = {"", "-wal", "-shm"};
    char from[4096], to[4096];
    uint64_t boot_ns, wall_ns, seconds;
    int code;

    store_clock(s, &boot_ns, &wall_ns);
    seconds = wall_ns / 1000000000;
    /* Two in one second must not overwrite each other. */
    do
        snprintf(to, sizeof(to), "%s.corrupt-%" PRIu64, s->path, seconds++);
    while (access(to, F_OK) == 0);
    seconds--;
    for (size_t i = 0; i < ARRAY_SIZE(suffixes); i++) {
        snprintf(from, sizeof(from), "%s%s", s->path, suffixes[i]);
        snprintf(to, sizeof(to), "%s.corrupt-%" PRIu64 "%s", s->path, seconds, suffixes[i]);
        if (rename(from, to) < 0 && errno != ENOENT) {
            code = errno;
            return error_set(reterr, code, "store %.120s: move aside: %s", s->path, strerror(code));
        }
    }
    s->stats.corrupt++;
    log_print(LOG_ERR, "store %s is corrupt: moved to %s.corrupt-%" PRIu64 ", a new one is begun",
              s->path, s->path, seconds);
    return 0;
}

int store_database_open(struct store *s, struct error *reterr)
{
    int r = directory_check(s, reterr);

    if (r == 0)
        r = lock_take(s, reterr);
    if (r == 0)
        r = open_once(s, reterr);
    if (r == -EUCLEAN) {
        r = move_aside(s, reterr);
        if (r == 0)
            r = open_once(s, reterr);
    }
    return r;
}
