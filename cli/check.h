/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - the needs of npumemd, each a function that looks.
 */
#ifndef NPUMEM_CLI_CHECK_H
#define NPUMEM_CLI_CHECK_H

#include <json-c/json.h>

#include "cli.h"

enum finding_state {
    STATE_OK,
    STATE_INFO,    /* good to know, no obstacle */
    STATE_MISSING, /* npumemd cannot work */
};

/* What a look found; the text may hold bytes of the host and is cleaned where it is printed. */
struct finding {
    enum finding_state state;
    char detail[320];
    char fix[160];
};

/* Sets state, detail and fix (NULL: none). */
__attribute__((format(printf, 4, 5))) void finding_set(struct finding *f, enum finding_state state,
                                                       const char *fix, const char *format, ...);

/* time_ns and host, as documents of the daemon have them. */
void check_header(struct json_object *document);

void check_kernel(const struct args *args, struct finding *f);
void check_privileges(const struct args *args, struct finding *f);
void check_bpf(const struct args *args, struct finding *f);
void check_lockdown(const struct args *args, struct finding *f);
void check_uprobes(const struct args *args, struct finding *f);
void check_return_probes(const struct args *args, struct finding *f);
void check_uprobe_multi(const struct args *args, struct finding *f);
void check_btf(const struct args *args, struct finding *f);
void check_perf_events(const struct args *args, struct finding *f);
void check_late_attach(const struct args *args, struct finding *f);
void check_driver(const struct args *args, struct finding *f);
void check_daemon(const struct args *args, struct finding *f);
void check_processes(const struct args *args, struct finding *f);

#endif
