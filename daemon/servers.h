/* SPDX-License-Identifier: Apache-2.0 */
/*
 * servers.h - command lines of the servers that observed processes belong to, and where those
 * answer HTTP.
 *
 * A worker's own title says nothing of gpu_memory_utilization: it is on the command line of the
 * process that started its engine. Lines are kept when processes have ended, within a bound. They
 * hold secrets (--api-key) and are looked at here only, never answered to anybody.
 */
#ifndef NPUMEM_DAEMON_SERVERS_H
#define NPUMEM_DAEMON_SERVERS_H

#include "budget_view.h"
#include "cleanup.h"
#include "ledger.h"

#define SERVERS_LINES_MAX 256 /* processes whose line is kept; the one noted first goes */
#define SERVERS_LINE_BYTES 16384
#define SERVERS_FDS_MAX 65536
#define SERVERS_SHOWN_MAX 64

struct servers;

/* Errors: -ENOMEM. Owns: the caller frees with servers_free(). */
int servers_new(struct servers **ret);
struct servers *servers_free(struct servers *s);
DEFINE_CLEANUP(struct servers *, servers_free)

/* A process is known, or known better: takes the line of its server (its own where it has none).
 * Cost: one file of /proc. */
void servers_note(struct servers *s, const struct process_facts *facts);

/* The line of a process's server, arguments divided by blanks; NULL not known. Borrowed until the
 * next servers_note(). */
const char *servers_line(const struct servers *s, uint32_t tgid);

/* The framework whose command a line is, "vllm" or "sglang"; NULL another program, or line NULL. */
const char *servers_framework(const char *line);

/* Where a server answers HTTP: the port of its command line (else its framework's default), if the
 * process itself listens there and loopback reaches it. Nothing is connected to. Cost: its open
 * files and its network namespace's sockets. */
void servers_find_port(const struct servers *s, uint32_t worker_tgid, uint32_t server_tgid,
                       struct budget_server *ret);

#endif
