/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_host.c - the NPU driver, the daemon and the processes of this host.
 */
#include <dirent.h>
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ask.h"
#include "check.h"
#include "client.h"
#include "procmaps.h"

/* More than any process has; a longer one is read up to here. */
#define MAPS_MAX_BYTES (16u << 20)

void check_driver(const struct args *args, struct finding *f)
{
    struct stat st;

    if (stat("/proc/svm", &st) == 0)
        finding_set(f, STATE_OK, NULL, "/proc/svm gives per-process figures");
    else if (stat("/dev/davinci_manager", &st) == 0)
        finding_set(f, STATE_INFO, NULL,
                    "an NPU driver without /proc/svm: what a process held before attach is known "
                    "from its allocator only");
    else
        finding_set(f, STATE_INFO, "npumem demo", "no NPU driver on this host");
}

void check_daemon(const struct args *args, struct finding *f)
{
    _cleanup_(client_freep) struct client *client = NULL;
    struct error error = {0};

    if (client_connect(ask_socket(args), args->timeout_ns, &client, &error) == 0)
        finding_set(f, STATE_OK, NULL, "serves %s", ask_socket(args));
    else /* the check is about what the daemon needs, not whether it was started */
        finding_set(f, STATE_INFO, error.fix, "%s", error.what);
}

/* Whether a process maps a CANN library. Returns 1 yes with its name, 0 no, negative: not readable.
 */
static int maps_cann(const char *tgid, const char **ret_name)
{
    char path[64], block[8192];
    _cleanup_free_ char *text = NULL;
    size_t used = 0, n;

    snprintf(path, sizeof(path), "/proc/%.20s/maps", tgid);
    _cleanup_fclose_ FILE *f = fopen(path, "re");
    if (!f)
        return -errno;
    while ((n = fread(block, 1, sizeof(block), f)) > 0 && used < MAPS_MAX_BYTES) {
        char *grown = realloc(text, used + n);
        if (!grown)
            return -ENOMEM;
        text = grown;
        memcpy(text + used, block, n);
        used += n;
    }
    if (used == 0) /* a kernel thread, or one that ended meanwhile */
        return ferror(f) && errno != ESRCH ? -errno : 0;

    struct maps_reader reader;
    struct maps_entry entry;
    maps_reader_init(&reader, text, used);
    while (maps_next(&reader, &entry)) {
        int id = library_match(entry.path);
        if (id >= 0) {
            *ret_name = library_name(id);
            return 1;
        }
    }
    return 0;
}

void check_processes(const struct args *args, struct finding *f)
{
    DIR *proc = opendir("/proc");
    unsigned found = 0, hidden = 0;
    char list[200] = "";

    if (!proc) {
        finding_set(f, STATE_MISSING, "mount /proc", "/proc: %s", strerror(errno));
        return;
    }
    for (struct dirent *d; (d = readdir(proc));) {
        const char *name = NULL;
        if (d->d_name[0] < '0' || d->d_name[0] > '9')
            continue;
        int r = maps_cann(d->d_name, &name);
        hidden += r == -EACCES || r == -EPERM;
        if (r <= 0)
            continue;
        if (found++ < 8)
            snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%.20s",
                     list[0] ? ", " : "", d->d_name);
    }
    closedir(proc);
    if (found)
        finding_set(f, STATE_OK, NULL, "%u map a CANN library: %s%s", found, list,
                    found > 8 ? ", ..." : "");
    else if (hidden)
        finding_set(f, STATE_INFO, geteuid() ? "sudo npumem check" : NULL,
                    "none of those that this user may look at maps a CANN library");
    else
        finding_set(f, STATE_INFO, "npumem demo", "none maps a CANN library");
}
