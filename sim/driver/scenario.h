/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scenario.h - a scenario text as a program: flat operations with jumps, names resolved to slots.
 *
 * The grammar is docs/SCENARIOS.md; the statements are the table in statements.c, from which the
 * parser, the C interpreter and the JSON form (for the Python driver) are driven. A parsed scenario
 * is read-only and shared by all threads of a rank.
 *
 * Bounds (a scenario may come from anywhere): text 4 MiB, line 4095 bytes, 65536 operations,
 * nesting 64, 256 ranks, 256 variables, 1024 names, 4 Mi slots, 254 phases.
 */
#ifndef NPUSIM_SCENARIO_H
#define NPUSIM_SCENARIO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SCENARIO_TEXT_MAX = 4 << 20,
    SCENARIO_LINE_MAX = 4096,
    SCENARIO_OPS_MAX = 65536,
    SCENARIO_DEPTH_MAX = 64,
    SCENARIO_RANKS_MAX = 256,
    SCENARIO_VARS_MAX = 256,
    SCENARIO_NAMES_MAX = 1024,
    SCENARIO_SLOTS_MAX = 4 << 20,
    SCENARIO_PHASES_MAX = 254,
    SCENARIO_ENV_MAX = 64,
    SCENARIO_NAME_MAX = 64,
    OP_ARGS_MAX = 7,
    EXPR_ITEMS_MAX = 64,
    EXPR_STACK_MAX = 32,
};

/* Two results that no library returns: the function is absent in this layout; any code will do. */
#define EXPECT_MISSING 999999
#define EXPECT_ANY 999998

/* Variables that exist without `let`. */
enum { VAR_RANK, VAR_RANKS, VAR_DEVICE, VAR_THREAD, VAR_USER };

enum op_code {
#define OP(code) OP_##code,
#include "ops.def"
#undef OP
    OP_COUNT
};

enum expr_code {
    EXPR_PUSH,
    EXPR_VAR,
    EXPR_ADDRESS, /* value is a slot reference index */
    EXPR_ADD,
    EXPR_SUB,
    EXPR_MUL,
    EXPR_DIV,
    EXPR_MOD,
    EXPR_EQ,
    EXPR_NE,
    EXPR_LT,
    EXPR_LE,
    EXPR_GT,
    EXPR_GE,
    EXPR_RAND,   /* low high -> uniform in [low, high] */
    EXPR_CHOICE, /* value operands -> one of them */
};

struct expr_item {
    enum expr_code code;
    int64_t value;
};

struct expr {
    struct expr_item *items;
    uint32_t count;
    bool constant;
    int64_t value; /* when constant */
};

enum operand_kind { OPERAND_NONE, OPERAND_EXPR, OPERAND_REF, OPERAND_CHOICE, OPERAND_TEXT };

struct operand {
    enum operand_kind kind;
    bool anonymous;   /* REF written as - */
    bool all;         /* REF written as name[*] */
    uint32_t slot;    /* REF: first slot of the name */
    uint32_t slots;   /* REF: its number of slots */
    struct expr expr; /* EXPR; index of a REF (count 0: the name is no array) */
    int64_t value;    /* CHOICE: position in the list, or the number given */
    char *text;       /* TEXT, and the word of a CHOICE */
};

struct op {
    enum op_code code;
    uint32_t line;
    uint32_t jump;  /* opening statements: index of their END */
    uint32_t phase; /* PHASE, FRAMES: index into phases */
    int64_t expect;
    struct operand args[OP_ARGS_MAX];
};

enum param_kind {
    PARAM_END,
    PARAM_EXPR,     /* a number or size */
    PARAM_DURATION, /* a number with a time unit, in ns */
    PARAM_REF,      /* name, name[expr], name[*] where the statement allows it */
    PARAM_NEW,      /* name to be filled: name, name[expr], - */
    PARAM_CHOICE,   /* one of `words`, or a number */
    PARAM_TEXT,     /* one word, $variables replaced when it runs */
    PARAM_VAR,      /* name of a variable to set */
};

struct param {
    const char *name;
    enum param_kind kind;
    bool optional;     /* given as name=value */
    const char *words; /* CHOICE: a|b|c */
};

enum { STATEMENT_OPENS = 1, STATEMENT_ALL = 2, STATEMENT_TOP = 4, STATEMENT_EXPECT = 8 };

struct statement {
    const char *name;
    enum op_code code;
    unsigned flags;
    struct param params[OP_ARGS_MAX + 1];
};

/* Returns the statement of that name, NULL when there is none. */
const struct statement *statement_find(const char *name);
const struct statement *statement_of(enum op_code code);

struct scenario_name {
    char name[SCENARIO_NAME_MAX];
    uint32_t slot, slots;
    bool array;
};

struct rank {
    char *name, *title, *comm, *parent; /* texts with $variables; NULL when not given */
    struct expr device;
    bool has_device;
    int64_t number;      /* value of $rank */
    uint32_t begin, end; /* operations */
    uint32_t line;
    char *env[SCENARIO_ENV_MAX];
    uint32_t envs;
};

struct scenario {
    char *path;
    struct op *ops;
    uint32_t op_count;
    struct rank *ranks;
    uint32_t rank_count;
    struct scenario_name *names;
    uint32_t name_count;
    uint32_t slot_count;
    char vars[SCENARIO_VARS_MAX][SCENARIO_NAME_MAX];
    int64_t var_values[SCENARIO_VARS_MAX];
    bool var_is_param[SCENARIO_VARS_MAX];
    uint32_t var_count;
    char phases[SCENARIO_PHASES_MAX + 1][SCENARIO_NAME_MAX]; /* 0: none */
    uint32_t phase_count;
    struct operand *refs; /* references from expressions (EXPR_ADDRESS) */
    uint32_t ref_count;
    int64_t seed, devices, device_bytes, baseline_bytes; /* 0: not given */
    bool uses_torch, uses_hccl, uses_atb, uses_nnop;
};

/* Reads and compiles a scenario; defines ("name=value") replace params.
 * Returns 0, or -EINVAL / another errno with "file:line: what" in message (never longer than size).
 * Owns: *ret is the caller's, freed by scenario_free. */
int scenario_load(const char *path, char *const *defines, size_t define_count,
                  struct scenario **ret, char *message, size_t size);
struct scenario *scenario_free(struct scenario *scenario);

/* Writes the compiled form as one JSON document, the input of sim/python/npusim_run.py. */
void scenario_dump(const struct scenario *scenario, void *stream);

/* What an expression needs at run time. */
struct expr_context {
    const struct scenario *scenario;
    const int64_t *vars;
    uint64_t *random;
    /* address of a slot reference; NULL where addresses are not allowed */
    int (*address)(void *userdata, const struct operand *ref, int64_t *ret);
    void *userdata;
};

/* Evaluates; returns 0, or -ERANGE (overflow), -EDOM (division by zero, empty range),
 * or what address() returned. Cost: one loop over the items, no allocation. */
int expr_eval(const struct expr *expr, const struct expr_context *context, int64_t *ret);

/* Next value of a generator (splitmix64); the Python driver has the same one. */
uint64_t random_next(uint64_t *state);

/* Replaces $name and ${name} by values of variables. Returns 0, -EINVAL for an unknown name,
 * -ENAMETOOLONG. */
int text_expand(const struct scenario *scenario, const int64_t *vars, const char *text, char *out,
                size_t size);

#endif
