/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procfacts.h - who a process is, from the text of its files under /proc.
 *
 * The text is given; nothing is opened here, nothing is allocated. All of it is hostile: a process
 * chooses its name, title and environment.
 *
 * How a rank is decided, first that knows wins (struct rank_facts.source names it):
 *   1. hccl     the rank given to HCCL when a communicator was made (seen live; not read here)
 *   2. title    VLLM::Worker_DP0_TP1_EP1 and older forms, with the parent's title
 *   3. environ  RANK, WORLD_SIZE (torchrun, Ray, external launchers)
 *   4. cmdline  --rank N, else --local-rank N
 * A title gives ranks inside groups. It gives a rank of the whole server only where the groups
 * that it names decide it; see title_rank().
 */
#ifndef NPUMEM_PROCFACTS_H
#define NPUMEM_PROCFACTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* /proc/PID/stat */
struct stat_facts {
    char comm[64]; /* 15 bytes for a user process; cut */
    char state;    /* 'R', 'S', 'Z' zombie, 'X' dead ... */
    uint32_t ppid;
    uint64_t start_ticks; /* field 22: clock ticks since boot */
};
/* Errors: -EBADMSG. The comm may hold blanks, parentheses and newlines. */
int stat_parse(const char *text, size_t bytes, struct stat_facts *ret);

/* /proc/PID/status */
struct status_facts {
    uint32_t uid;      /* real */
    uint32_t ns_tgid;  /* in the innermost pid namespace; equals tgid on the host */
    uint32_t ns_depth; /* pid namespaces below the reader's; 0 the same */
};
/* Errors: -EBADMSG no Uid line. A kernel without NSpid gives ns_tgid 0. */
int status_parse(const char *text, size_t bytes, struct status_facts *ret);

/* /proc/PID/cmdline as one line: NULs become blanks, trailing ones go, control characters become
 * '?'; cut to ret_bytes - 1. Bytes above 127 stay. */
void title_from_cmdline(const char *text, size_t bytes, char *ret, size_t ret_bytes);

/* /proc/PID/cgroup, v1 or v2. */
struct container_facts {
    char id[65];      /* 64 hex digits, "" on the host; of nested ones the innermost */
    char pod_uid[37]; /* "" no pod */
    char runtime[12]; /* docker, containerd, cri-o, podman, "" not told */
};
/* Returns 1 in a container, 0 not. */
int cgroup_parse(const char *text, size_t bytes, struct container_facts *ret);

/* Value of `name` in NUL-separated "NAME=value" text; the first one, as getenv() does.
 * Returns its length; -ENOENT; -ENOBUFS it does not fit (then nothing is written). */
int environ_get(const char *text, size_t bytes, const char *name, char *ret, size_t ret_bytes);

/*
 * ASCEND_RT_VISIBLE_DEVICES: entry i is the driver's logical id of what the process calls device i.
 * The runtime wants ids ascending and without duplicates, and takes what comes before the first
 * that is not; here a malformed list is not used at all (identity) and says so.
 * Returns the number of entries; 0: not set or empty, identity; -EINVAL malformed, identity.
 */
#define VISIBLE_DEVICES_MAX 64
int visible_devices_parse(const char *value, uint16_t ret[VISIBLE_DEVICES_MAX]);

/* What a title says a process is. */
enum title_kind {
    TITLE_OTHER = 0,
    TITLE_WORKER = 1,      /* VLLM::Worker..., VllmWorker rank=n */
    TITLE_ENGINE = 2,      /* VLLM::EngineCore...: holds device memory when it has no workers */
    TITLE_API_SERVER = 3,  /* VLLM::APIServer... */
    TITLE_COORDINATOR = 4, /* VLLM::DPCoordinator */
    TITLE_RAY = 5,         /* ray::RayWorkerWrapper...: rank only in the environment */
};
/* Groups of vLLM's ranks, in the order in which they nest (outermost first), EP across them. */
enum title_group { GROUP_DP, GROUP_PP, GROUP_PCP, GROUP_TP, GROUP_DCP, GROUP_EP, GROUP_COUNT };

struct title_facts {
    enum title_kind kind;
    int32_t group[GROUP_COUNT]; /* index in each group, -1 not in the title (size 1, or unknown) */
    int32_t rank;               /* "rank=n" said literally, else -1 */
    bool unread;                /* more follows that is not understood: cut off, or a new group */
};
/* Any title is fine. The prefix before "::" may be another (VLLM_PROCESS_NAME_PREFIX). */
void title_parse(const char *title, struct title_facts *ret);
const char *title_group_name(enum title_group group); /* "DP" ... */

/*
 * Rank in the server, from the title alone and the parent's title (NULL: not known).
 * -1: the title does not decide it. *ret_inferred: it holds only if what the title leaves out has
 * its usual meaning.
 *   rank=n                         n
 *   a rest that is not understood  -1: a cut title must not name another worker
 *   no group                       0, the only worker
 *   EP, no PP                      the EP index: expert groups span DP, PCP and TP in rank order
 *   one of DP, PP, PCP, TP         its index
 *   several of them, no EP         -1: the sizes are not in the title; see title_rank_sized()
 * A dense replica is a world of its own: its workers' titles say TP only, and the DP index is in
 * the parent's title (title_replica()).
 */
int32_t title_rank(const struct title_facts *t, bool *ret_inferred);

/* The same, with group sizes (0 unknown) that siblings' titles gave: DP, PP, PCP and TP nest. */
int32_t title_rank_sized(const struct title_facts *t, const int32_t size[GROUP_COUNT]);

/* DP index: the title's own, else that of the parent's title; -1 none. */
int32_t title_replica(const struct title_facts *t, const struct title_facts *parent);

/* What is known of a process's place among its ranks. */
struct rank_inputs {
    int32_t hccl_rank, hccl_world_size; /* -1 not seen */
    const char *title;                  /* cmdline as title_from_cmdline() gives it; NULL unknown */
    const char *environ_text;           /* NULL unreadable */
    size_t environ_bytes;
};
struct rank_facts {
    int32_t rank, world_size, local_rank; /* -1 unknown */
    char source[16];                      /* "hccl", "title", "environ", "cmdline", "" unknown */
    bool inferred;
};
/* Decides by the order above. Fields that the winner does not know are filled from later ones. */
void rank_decide(const struct rank_inputs *in, struct rank_facts *ret);

#endif
