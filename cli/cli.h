/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cli.h - what every part of the command shares: exit codes, parsed arguments, the tables.
 */
#ifndef NPUMEM_CLI_H
#define NPUMEM_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "cleanup.h"
#include "err.h"
#include "units.h"

/* Exit codes; a promise to scripts. */
enum cli_exit {
    EXIT_DONE = 0,
    EXIT_RUNTIME = 1,
    EXIT_USAGE = 2,
    EXIT_NO_DAEMON = 3,
    EXIT_NOT_FOUND = 4,
    EXIT_NOT_PERMITTED = 5,
    EXIT_INCOMPLETE = 6,
};

enum option_group {
    GROUP_GLOBAL = 1 << 0,
    GROUP_OUTPUT = 1 << 1,
    GROUP_FILTER = 1 << 2,
    GROUP_WATCH = 1 << 3,
    GROUP_LS = 1 << 4,
    GROUP_EVENTS = 1 << 5,
    GROUP_SCAN = 1 << 6,
    GROUP_MOMENT = 1 << 7,
    GROUP_TRACE = 1 << 8,
    GROUP_REQUEST = 1 << 9,
    GROUP_WINDOW = 1 << 10,
    GROUP_DIFF = 1 << 11,
    GROUP_MARK = 1 << 12,
    GROUP_PERIOD = 1 << 13,
    GROUP_CYCLE = 1 << 14,
    GROUP_IDLE = 1 << 15,
    GROUP_STEPS = 1 << 16,
};

enum option_id {
#define OPTION(id, short_name, name, argument, group, values, example, help) OPTION_##id,
#include "options.def"
#undef OPTION
    OPTION_COUNT
};

struct option_row {
    char short_name;
    const char *name, *argument, *values, *example, *help;
    unsigned groups;
};
extern const struct option_row option_rows[OPTION_COUNT];

enum format { FORMAT_TABLE, FORMAT_JSON, FORMAT_JSONL, FORMAT_CSV };
enum color { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER };

/* A repeatable option's values: numbers or borrowed words. */
#define CLI_LIST_MAX 64
struct cli_numbers {
    int64_t items[CLI_LIST_MAX];
    size_t count;
};
struct cli_words {
    const char *items[CLI_LIST_MAX];
    size_t count;
};

struct args {
    const struct verb_row *verb; /* NULL: none given */
    const char *operands[CLI_LIST_MAX];
    size_t operand_count;
    enum format format;
    enum units_scale units;
    enum color color;
    struct cli_numbers tgids, ranks, devices;
    struct cli_words containers, owners, levels, fields;
    const char *socket;
    const char *from;  /* a recorded trace, diff: one side; NULL none */
    const char *to;    /* the other side */
    uint64_t watch_ns; /* 0: once */
    uint64_t for_ns;   /* 0: not said */
    uint64_t steps;    /* 0: not said */
    uint64_t timeout_ns;
    uint64_t limit; /* UINT64_MAX: the verb's default */
    uint64_t min_size_bytes;
    uint64_t request_bytes;     /* 0 none */
    uint64_t idle_ns;           /* 0: the verb's default */
    uint64_t operations;        /* UINT64_MAX: the verb's default */
    struct cli_numbers streams; /* the handles' 64 bits */
    int64_t since_ns, until_ns; /* wall clock; 0 none */
    char at[80];                /* "" now; as the daemon takes it */
    /* As they were written: of a recording they count from its end. NULL: not said */
    const char *at_text, *since_text, *until_text;
    const char *mark; /* NULL none */
    bool tree, equal;
    bool begin, end;
    bool no_header, no_pager, quiet, verbose, strict, help, version;
};

struct verb_row {
    const char *name, *arguments;
    unsigned least, most;
    unsigned groups;
    const char *summary, *text, *examples;
    int (*run)(const struct args *args); /* returns an exit code */
};
extern const struct verb_row verb_rows[];
extern const size_t verb_count;

#define VERB(name, ...) int verb_##name(const struct args *args);
#include "verbs.def"
#undef VERB

const struct verb_row *verb_find(const char *name);

/* Parses argv; options may stand before or after the verb. argv is changed (lists are
 * divided at commas) and must outlive ret. Returns 0; -EINVAL with the error set. */
int args_parse(int argc, char **argv, struct args *ret, struct error *reterr);

/* A moment as the daemon takes it: local time is the caller's, so it becomes a number. Returns 0;
 * -EINVAL with the error set. */
int args_moment(enum option_id id, const char *value, char *ret, size_t size, struct error *reterr);

/* The nearest of the candidates, NULL if none is near enough to be meant. */
const char *suggest(const char *word, const char *const *candidates, size_t count);
/* The same over words that are divided by '|'; the answer is copied to ret. */
bool suggest_values(const char *word, const char *values, char *ret, size_t size);

/* Prints `npumem: WHAT: WHY; try: FIX` to stderr. Returns exit_code, so that it can be returned. */
int fail(int exit_code, const struct error *e);
__attribute__((format(printf, 2, 3))) int fail_with(int exit_code, const char *format, ...);
/* Exit code of a negative errno of client.h or args.h. */
int exit_code_of(int r);

/* Text of help and of completion, into stdout. */
void help_overview(void);
void help_verb(const struct verb_row *verb);

#endif
