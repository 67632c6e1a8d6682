/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proctitle.c - ranks from process titles, environment and command line.
 *
 * Owns nothing. Must not guess silently: what follows only from usual meanings is marked inferred,
 * and what a title does not decide stays -1.
 */
#include <stdio.h>
#include <string.h>

#include "procfacts.h"

static const char *const group_names[GROUP_COUNT] = {"DP", "PP", "PCP", "TP", "DCP", "EP"};

const char *title_group_name(enum title_group group)
{
    return group_names[group];
}

/* A decimal number below 1e6 at p; *ret_end behind it. -1: none. */
static int32_t index_read(const char *p, const char **ret_end)
{
    int32_t value = 0;
    unsigned digits = 0;
    while (p[digits] >= '0' && p[digits] <= '9' && digits < 7)
        value = value * 10 + (p[digits++] - '0');
    if (digits == 0 || digits == 7)
        return -1;
    *ret_end = p + digits;
    return value;
}

/* One "TP3" at p: reads it into *ret. NULL: it is none. */
static const char *group_read(const char *p, struct title_facts *ret)
{
    for (unsigned g = 0; g < GROUP_COUNT; g++) {
        size_t bytes = strlen(group_names[g]);
        const char *end;
        if (strncmp(p, group_names[g], bytes) != 0)
            continue;
        int32_t index = index_read(p + bytes, &end);
        if (index < 0)
            return NULL;
        ret->group[g] = index;
        return end;
    }
    return NULL;
}

/* "_DP0_TP1", " TP0", "_0": everything behind the name. */
static void groups_read(const char *p, struct title_facts *ret)
{
    while (*p == '_' || *p == ' ') {
        const char *end;
        while (*p == '_' || *p == ' ')
            p++;
        if (*p >= '0' && *p <= '9') { /* EngineCore_0: the engine's number, 0 without DP */
            int32_t index = index_read(p, &end);
            if (index < 0)
                break;
            if (ret->kind == TITLE_ENGINE && index > 0)
                ret->group[GROUP_DP] = index;
        } else {
            end = group_read(p, ret);
            if (!end)
                break;
        }
        p = end;
    }
    ret->unread = *p != '\0';
}

static const struct {
    const char *name;
    enum title_kind kind;
} names[] = {
    {"Worker", TITLE_WORKER},
    {"EngineCore", TITLE_ENGINE},
    {"APIServer", TITLE_API_SERVER},
    {"DPCoordinator", TITLE_COORDINATOR},
};

/* The name ends where a group or the title ends: "WorkerDict" is not "Worker". */
static bool name_ends(char c)
{
    return c == '\0' || c == '_' || c == ' ';
}

void title_parse(const char *title, struct title_facts *ret)
{
    const char *end, *colons = strstr(title, "::"), *blank = strchr(title, ' ');

    *ret = (struct title_facts){.kind = TITLE_OTHER, .rank = -1};
    for (unsigned g = 0; g < GROUP_COUNT; g++)
        ret->group[g] = -1;

    if (strncmp(title, "VllmWorker", 10) == 0) {
        const char *rank = strstr(title, "rank=");
        ret->kind = TITLE_WORKER;
        if (rank)
            ret->rank = index_read(rank + 5, &end);
        else if (title[10] == '-')
            ret->rank = index_read(title + 11, &end);
        ret->unread = ret->rank < 0;
        return;
    }
    if (!colons || (blank && blank < colons)) /* the prefix is one word, and the first */
        return;
    if (strncmp(title, "ray::", 5) == 0) {
        if (strncmp(title + 5, "RayWorkerWrapper", 16) == 0)
            ret->kind = TITLE_RAY;
        return;
    }
    for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        size_t bytes = strlen(names[i].name);
        const char *name = colons + 2;
        if (strncmp(name, names[i].name, bytes) != 0 || !name_ends(name[bytes]))
            continue;
        ret->kind = names[i].kind;
        groups_read(name + bytes, ret);
        /* vLLM 0.10: a worker appended its group to the engine's title */
        if (ret->kind == TITLE_ENGINE && (ret->group[GROUP_TP] >= 0 || ret->group[GROUP_PP] >= 0))
            ret->kind = TITLE_WORKER;
        return;
    }
}

int32_t title_rank(const struct title_facts *t, bool *ret_inferred)
{
    static const enum title_group nesting[] = {GROUP_DP, GROUP_PP, GROUP_PCP, GROUP_TP};
    int32_t only = -1;
    unsigned groups = 0;

    *ret_inferred = false;
    if (t->rank >= 0)
        return t->rank;
    if ((t->kind != TITLE_WORKER && t->kind != TITLE_ENGINE) || t->unread)
        return -1;
    for (unsigned i = 0; i < 4; i++) {
        if (t->group[nesting[i]] < 0)
            continue;
        only = t->group[nesting[i]];
        groups++;
    }
    *ret_inferred = t->kind == TITLE_ENGINE; /* only if it has no workers */
    if (groups <= 1)
        return groups == 1 ? only : 0;
    if (t->group[GROUP_EP] >= 0 && t->group[GROUP_PP] < 0) {
        *ret_inferred = true;
        return t->group[GROUP_EP];
    }
    return -1;
}

int32_t title_rank_sized(const struct title_facts *t, const int32_t size[GROUP_COUNT])
{
    int64_t rank = 0;

    if (t->rank >= 0 || t->unread)
        return t->rank;
    for (int g = GROUP_DP; g <= GROUP_TP; g++) {
        int32_t index = t->group[g] >= 0 ? t->group[g] : 0;
        int32_t members = size[g] > 0 ? size[g] : (t->group[g] >= 0 ? 0 : 1);
        if (members == 0) { /* not known: harmless only in the outermost group present */
            if (rank != 0)
                return -1;
            for (int outer = GROUP_DP; outer < g; outer++)
                if (t->group[outer] >= 0)
                    return -1;
            members = index + 1;
        }
        if (index >= members)
            return -1;
        rank = rank * members + index;
        if (rank > INT32_MAX)
            return -1;
    }
    return (int32_t)rank;
}

int32_t title_replica(const struct title_facts *t, const struct title_facts *parent)
{
    if (t->group[GROUP_DP] >= 0)
        return t->group[GROUP_DP];
    return parent && parent->kind == TITLE_ENGINE ? parent->group[GROUP_DP] : -1;
}

static int32_t environ_index(const struct rank_inputs *in, const char *name)
{
    char value[16];
    const char *end;
    if (!in->environ_text ||
        environ_get(in->environ_text, in->environ_bytes, name, value, sizeof(value)) <= 0)
        return -1;
    int32_t index = index_read(value, &end);
    return index >= 0 && *end == '\0' ? index : -1;
}

/* "--rank 3" or "--rank=3" as a word of its own. */
static int32_t option_index(const char *title, const char *option)
{
    size_t bytes = strlen(option);
    for (const char *p = strstr(title, option); p; p = strstr(p + 1, option)) {
        const char *end;
        if ((p > title && p[-1] != ' ') || (p[bytes] != ' ' && p[bytes] != '='))
            continue;
        int32_t index = index_read(p + bytes + 1, &end);
        if (index >= 0 && (*end == '\0' || *end == ' '))
            return index;
    }
    return -1;
}

static void rank_set(struct rank_facts *ret, int32_t rank, const char *source, bool inferred)
{
    if (rank < 0 || ret->rank >= 0)
        return;
    ret->rank = rank;
    ret->inferred = inferred;
    snprintf(ret->source, sizeof(ret->source), "%s", source);
}

void rank_decide(const struct rank_inputs *in, struct rank_facts *ret)
{
    struct title_facts title;
    bool inferred;

    *ret = (struct rank_facts){.rank = -1, .world_size = in->hccl_world_size, .local_rank = -1};
    rank_set(ret, in->hccl_rank, "hccl", false);
    if (in->title) {
        title_parse(in->title, &title);
        int32_t rank = title_rank(&title, &inferred);
        rank_set(ret, rank, "title", inferred);
    }
    rank_set(ret, environ_index(in, "RANK"), "environ", false);
    if (ret->world_size < 0)
        ret->world_size = environ_index(in, "WORLD_SIZE");
    ret->local_rank = environ_index(in, "LOCAL_RANK");
    if (!in->title)
        return;
    int32_t local = option_index(in->title, "--local-rank");
    if (local < 0)
        local = option_index(in->title, "--local_rank"); /* before torch 2.0 */
    if (ret->local_rank < 0)
        ret->local_rank = local;
    rank_set(ret, option_index(in->title, "--rank"), "cmdline", false);
    rank_set(ret, local, "cmdline", true); /* right on one node */
}
