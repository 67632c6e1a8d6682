/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target.c - the table of targets and what they map; see target.h. Who they are: target_facts.c.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

#include <unistd.h>

#include "clock.h"
#include "log.h"
#include "procfs.h"
#include "target_internal.h"

#define MAPS_BYTES_MAX (64u << 20) /* about 500,000 mappings */

int targets_new(sd_event *event, struct attach *attach, const struct targets_handler *handler,
                void *userdata, struct targets **ret)
{
    struct targets *ts = calloc(1, sizeof(*ts));
    if (!ts)
        return -ENOMEM;
    ts->event = event;
    ts->attach = attach;
    ts->handler = handler;
    ts->userdata = userdata;
    map_init(&ts->by_tgid, sizeof(struct tgid_slot), 6, NULL);
    *ret = ts;
    return 0;
}

static struct target *target_free(struct targets *ts, struct target *t)
{
    for (size_t i = 0; i < t->file_count; i++)
        attach_release(ts->attach, t->files[i]);
    sd_event_source_disable_unref(t->exit_source);
    if (t->pidfd >= 0)
        close(t->pidfd);
    caller_map_free(t->callers);
    free(t->memory);
    free(t);
    return NULL;
}

struct targets *targets_free(struct targets *ts)
{
    if (!ts)
        return NULL;
    while (ts->first) {
        struct target *next = ts->first->next;
        target_free(ts, ts->first);
        ts->first = next;
    }
    map_clear(&ts->by_tgid);
    free(ts);
    return NULL;
}

struct target *targets_find(struct targets *ts, uint32_t tgid)
{
    uint32_t number = map_find(&ts->by_tgid, tgid, 0);

    return number ? ((struct tgid_slot *)map_at(&ts->by_tgid, number))->target : NULL;
}

struct target *targets_first(struct targets *ts)
{
    return ts->first;
}

size_t targets_count(const struct targets *ts)
{
    return ts->by_tgid.count;
}

static void target_remove(struct targets *ts, struct target *t)
{
    ts->handler->exited(ts->userdata, t);
    for (struct target **p = &ts->first; *p; p = &(*p)->next)
        if (*p == t) {
            *p = t->next;
            break;
        }
    map_remove(&ts->by_tgid, map_find(&ts->by_tgid, t->tgid, 0));
    target_free(ts, t);
}

static int on_exit_fd(sd_event_source *source, int fd, uint32_t revents, void *userdata)
{
    struct targets *ts = userdata;

    for (struct target *t = ts->first; t; t = t->next)
        if (t->pidfd == fd) {
            target_remove(ts, t);
            break;
        }
    return 0;
}

static int target_new(struct targets *ts, uint32_t tgid, struct target **ret)
{
    struct target *t = calloc(1, sizeof(*t));
    uint32_t number;
    int r;

    if (!t)
        return -ENOMEM;
    t->memory = calloc(1, sizeof(*t->memory));
    t->pidfd = procfs_pidfd(tgid);
    r = t->pidfd < 0 ? t->pidfd
        : t->memory  ? procfs_facts(tgid, t->memory, NULL, &t->told)
                     : -ENOMEM;
    /* alive after the reading: the facts are of the process that the pidfd pins */
    if (r == 0 && !procfs_alive(t->pidfd))
        r = -ESRCH;
    if (r == 0)
        r = sd_event_add_io(ts->event, &t->exit_source, t->pidfd, EPOLLIN, on_exit_fd, ts);
    if (r >= 0)
        r = map_add(&ts->by_tgid, tgid, 0, &number);
    if (r < 0) {
        target_free(ts, t);
        return r;
    }
    t->tgid = tgid;
    t->facts = t->told;
    t->facts_changed = true;
    t->first_seen_ns = clock_ns(CLOCK_BOOTTIME);
    t->next = ts->first;
    ts->first = t;
    ((struct tgid_slot *)map_at(&ts->by_tgid, number))->target = t;
    *ret = t;
    return 0;
}

static uint64_t start_boot_ns(const struct target *t)
{
    return t->facts.start_ticks * (1000000000ull / sysconf(_SC_CLK_TCK));
}

void target_forget_mappings(struct targets *ts, struct target *t)
{
    while (t->file_count)
        attach_release(ts->attach, t->files[--t->file_count]);
    t->error[0] = '\0';
    t->stale_callers = true;
    t->late = false;
}

static bool target_has(const struct target *t, const struct attach_file *f)
{
    for (size_t i = 0; i < t->file_count; i++)
        if (t->files[i] == f)
            return true;
    return false;
}

static void target_take_mapping(struct targets *ts, struct target *t,
                                const struct maps_entry *entry, int library,
                                enum scan_reason reason)
{
    /* the earliest time at which it can have mapped the file */
    uint64_t mapped_ns = reason == SCAN_RECORD ? clock_ns(CLOCK_BOOTTIME) : start_boot_ns(t);
    struct attach_file *f;
    struct error error;

    if (t->file_count == TARGET_FILES_MAX)
        return;
    if (attach_mapping(ts->attach, t->tgid, entry, library, &f, &error) < 0) {
        snprintf(t->error, sizeof(t->error), "%s", error.what);
        log_warning("process %u: %s", t->tgid, error.what);
        return;
    }
    if (target_has(t, f)) {
        attach_release(ts->attach, f);
        return;
    }
    t->files[t->file_count++] = f;
    /* only what allocates can have allocated before */
    if (f->state == ATTACH_LIVE && (f->has_acl || f->has_hal || f->has_block) &&
        attach_file_original(f)->attach_ns >= mapped_ns)
        t->late = true;
}

/* A pid that is known may be another process by now. */
static struct target *find_same_process(struct targets *ts, uint32_t tgid)
{
    struct target *t = targets_find(ts, tgid);

    if (t && !procfs_alive(t->pidfd)) {
        target_remove(ts, t);
        return NULL;
    }
    return t;
}

/* Where a target may name what it allocates: its program, and the library made for that. Neither
 * makes a process a target. */
static void take_tags(struct targets *ts, struct target *t, const char *text, size_t bytes,
                      enum scan_reason reason)
{
    struct maps_reader *reader = malloc(sizeof(*reader));
    _cleanup_free_ struct maps_reader *owned = reader;
    char exe[MAPS_PATH_MAX] = "";
    struct maps_entry entry;

    if (!reader)
        return;
    procfs_exe(t->tgid, exe, sizeof(exe));
    maps_reader_init(reader, text, bytes);
    while (maps_next(reader, &entry) > 0) {
        if (!entry.executable || !entry.inode)
            continue;
        if (exe[0] && strcmp(entry.path, exe) == 0) {
            target_take_mapping(ts, t, &entry, library_by_name("program"), reason);
            exe[0] = '\0';
        } else if (library_match(entry.path) == library_by_name("npumem_tag")) {
            target_take_mapping(ts, t, &entry, library_by_name("npumem_tag"), reason);
        }
    }
}

int targets_scan(struct targets *ts, uint32_t tgid, enum scan_reason reason, struct error *reterr)
{
    struct target *t = find_same_process(ts, tgid);
    _cleanup_free_ char *text = NULL;
    struct maps_reader *reader;
    struct maps_entry entry;
    bool is_new = !t, is_told = false;
    ssize_t n = procfs_read(tgid, "maps", MAPS_BYTES_MAX, &text);
    int r;

    if (n < 0) {
        if (n == -ENOENT || n == -ESRCH)
            return error_set(reterr, ESRCH, "no process %u", tgid);
        return error_set(reterr, n, "process %u: cannot read its mappings: %s", tgid, strerror(-n));
    }
    reader = malloc(sizeof(*reader));
    if (!reader)
        return -ENOMEM;
    maps_reader_init(reader, text, n);
    while (maps_next(reader, &entry) > 0) {
        int library = entry.executable && entry.inode ? library_match(entry.path) : -1;
        if (library < 0 || library == library_by_name("npumem_tag"))
            continue;
        if (!t) {
            r = target_new(ts, tgid, &t);
            if (r < 0) {
                free(reader);
                return error_set(reterr, r, "process %u: %s", tgid, strerror(-r));
            }
        }
        if (!is_told) /* before its probes are live */
            ts->handler->mapped(ts->userdata, tgid, text, n);
        is_told = true;
        target_take_mapping(ts, t, &entry, library, reason);
    }
    free(reader);
    if (!t && reason == SCAN_BY_HAND) {
        r = target_new(ts, tgid, &t);
        if (r < 0)
            return error_set(reterr, r, "process %u: %s", tgid, strerror(-r));
    }
    if (!t)
        return 0;
    take_tags(ts, t, text, (size_t)n, reason);
    t->stale_callers = true;
    if (is_new)
        ts->handler->added(ts->userdata, t);
    return 1;
}

static int scan_one(void *userdata, uint32_t tgid)
{
    struct error error;
    int r = targets_scan(userdata, tgid, SCAN_FOUND, &error);

    if (r < 0 && r != -ESRCH)
        log_debug("%s, ignoring", error.what);
    return 0;
}

int targets_scan_all(struct targets *ts)
{
    int r = procfs_each(scan_one, ts);
    return r < 0 ? r : (int)targets_count(ts);
}

const char *target_caller(struct target *t, uint64_t address)
{
    _cleanup_free_ char *text = NULL;
    struct caller_map *fresh;
    ssize_t n;

    if (t->stale_callers || !t->callers) {
        t->stale_callers = false;
        n = procfs_read(t->tgid, "maps", MAPS_BYTES_MAX, &text);
        if (n > 0 && procfs_alive(t->pidfd) && caller_map_new(text, n, &fresh) == 0) {
            caller_map_free(t->callers);
            t->callers = fresh;
        }
    }
    return caller_map_name(t->callers, address);
}

const char *target_level(const struct target *t, const char **ret_reason)
{
    bool block = false, physical = false;
    const char *failed = NULL, *no_block = NULL;

    *ret_reason = NULL;
    if (t->excluded) {
        *ret_reason = "detached by hand";
        return "none";
    }
    for (size_t i = 0; i < t->file_count; i++) {
        const struct attach_file *f = attach_file_original(t->files[i]);
        if (f->state == ATTACH_FAILED)
            failed = f->error.what;
        if (f->state != ATTACH_FAILED && f->error.what[0])
            no_block = f->error.what;
        if (f->state != ATTACH_LIVE)
            continue;
        block |= f->has_block;
        physical |= f->has_hal || f->has_acl;
    }
    *ret_reason = failed ? failed : t->error[0] ? t->error : no_block;
    if (block && physical)
        return "blocks";
    if (!physical) {
        if (!*ret_reason)
            *ret_reason = "it maps no CANN library that could be probed";
        return "none";
    }
    return "physical";
}
