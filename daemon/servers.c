/* SPDX-License-Identifier: Apache-2.0 */
/*
 * servers.c - see servers.h.
 *
 * Must not: connect to anything (the service has no network), or guess a port.
 */
#include "servers.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "analysis.h"
#include "procfacts.h"
#include "procfs.h"
#include "proctcp.h"

/* Sockets of a network namespace: 150 bytes each. */
#define NET_BYTES_MAX (16u << 20)

struct line {
    uint32_t tgid, start_ticks, server_tgid;
    char *text;
};

struct servers {
    struct line lines[SERVERS_LINES_MAX]; /* the oldest first */
    size_t count;
};

int servers_new(struct servers **ret)
{
    struct servers *s = calloc(1, sizeof(*s));

    if (!s)
        return -ENOMEM;
    *ret = s;
    return 0;
}

struct servers *servers_free(struct servers *s)
{
    if (!s)
        return NULL;
    for (size_t i = 0; i < s->count; i++)
        free(s->lines[i].text);
    free(s);
    return NULL;
}

static char *line_read(uint32_t tgid)
{
    _cleanup_free_ char *text = NULL;
    ssize_t n = procfs_read_some(tgid, "cmdline", SERVERS_LINE_BYTES, &text);
    char *line = n > 0 ? malloc((size_t)n + 1) : NULL;

    if (line)
        title_from_cmdline(text, (size_t)n, line, (size_t)n + 1);
    return line;
}

static struct line *line_find(const struct servers *s, uint32_t tgid)
{
    for (size_t i = s->count; i-- > 0;)
        if (s->lines[i].tgid == tgid)
            return (struct line *)&s->lines[i];
    return NULL;
}

void servers_note(struct servers *s, const struct process_facts *facts)
{
    struct line *l = line_find(s, facts->tgid);
    uint32_t server = facts->server_tgid ? facts->server_tgid : facts->tgid;
    char *text;

    if (l && l->start_ticks == facts->start_ticks && l->server_tgid == server)
        return;
    text = line_read(server);
    if (!text)
        return;
    if (!l && s->count == SERVERS_LINES_MAX) {
        free(s->lines[0].text);
        memmove(&s->lines[0], &s->lines[1], (SERVERS_LINES_MAX - 1) * sizeof(s->lines[0]));
        s->count--;
    }
    if (!l)
        l = &s->lines[s->count++];
    else
        free(l->text);
    *l = (struct line){facts->tgid, facts->start_ticks, server, text};
}

const char *servers_line(const struct servers *s, uint32_t tgid)
{
    const struct line *l = line_find(s, tgid);
    return l ? l->text : NULL;
}

const char *servers_framework(const char *line)
{
    static const char *const names[] = {"vllm", "sglang"};

    for (size_t i = 0; line && i < ARRAY_SIZE(names); i++)
        if (analysis_runs(line, names[i]))
            return names[i];
    return NULL;
}

/* Sources: vLLM's and sglang's argument parsers. */
static unsigned port_of(const char *line)
{
    const char *framework = servers_framework(line);
    char value[16], *end;

    if (analysis_option(line, "--port", value, sizeof(value))) {
        unsigned long port = strtoul(value, &end, 10);
        return *end == '\0' && port <= UINT16_MAX ? port : 0;
    }
    return !framework ? 0 : strcmp(framework, "sglang") == 0 ? 30000 : 8000;
}

static bool listens(uint32_t tgid, unsigned port, uint64_t *ret_inode)
{
    static const char *const names[] = {"net/tcp", "net/tcp6"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        _cleanup_free_ char *text = NULL;
        ssize_t n = procfs_read_some(tgid, names[i], NET_BYTES_MAX, &text);
        if (n > 0 && proctcp_listener(text, (size_t)n, (uint16_t)port, ret_inode))
            return true;
    }
    return false;
}

/* Whether the socket is an open file of the process itself. */
static bool holds_socket(uint32_t tgid, uint64_t inode)
{
    char path[64], wanted[64], target[64];
    struct dirent *d;
    bool found = false;
    size_t seen = 0;

    snprintf(path, sizeof(path), "/proc/%u/fd", tgid);
    snprintf(wanted, sizeof(wanted), "socket:[%llu]", (unsigned long long)inode);
    DIR *dir = opendir(path);
    while (dir && !found && (d = readdir(dir)) && seen++ < SERVERS_FDS_MAX) {
        ssize_t n = readlinkat(dirfd(dir), d->d_name, target, sizeof(target) - 1);
        target[n > 0 ? n : 0] = '\0';
        found = strcmp(target, wanted) == 0;
    }
    if (dir)
        closedir(dir);
    return found;
}

void servers_find_port(const struct servers *s, uint32_t worker_tgid, uint32_t server_tgid,
                       struct budget_server *ret)
{
    const char *line = servers_line(s, worker_tgid);
    unsigned port = line ? port_of(line) : 0;
    char path[64];
    uint64_t inode;

    *ret = (struct budget_server){.tgid = server_tgid};
    snprintf(path, sizeof(path), "/proc/%u/ns/net", server_tgid);
    ssize_t n = readlink(path, ret->network, sizeof(ret->network) - 1);
    ret->network[n > 0 ? n : 0] = '\0';
    if (!port)
        ret->reason = "its command line names no port";
    else if (!listens(server_tgid, port, &inode))
        ret->reason = "nothing listens on loopback at the port of its command line";
    else if (!holds_socket(server_tgid, inode))
        ret->reason = "the port of its command line is another process's";
    else
        ret->port = (uint16_t)port;
}
