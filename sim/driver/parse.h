/* SPDX-License-Identifier: Apache-2.0 */
/*
 * parse.h - shared by the parser's files: the text being read and where it is.
 *
 * Errors: the first one is kept in parser.message as "file:line: what"; functions return -EINVAL.
 */
#ifndef NPUSIM_PARSE_H
#define NPUSIM_PARSE_H

#include "scenario.h"

enum { PARSE_WORDS_MAX = 64, PARSE_PARENTHESES_MAX = 64 };

struct parser {
    struct scenario *scenario;
    char *const *defines;
    size_t define_count;
    bool *define_used;
    uint32_t line;
    char *words[PARSE_WORDS_MAX];
    size_t word_count;
    struct {
        uint32_t op;
        bool rank; /* opened by `rank` */
    } open[SCENARIO_DEPTH_MAX];
    size_t depth;
    uint32_t op_capacity, rank_capacity, ref_capacity;
    struct rank *rank; /* being filled; NULL at the top */
    char *message;
    size_t message_size;
};

/* Sets the error (the first wins) and returns -EINVAL. */
__attribute__((format(printf, 2, 3))) int parse_error(struct parser *p, const char *format, ...);

/* Splits a line in place into p->words: blanks separate, "..." groups, # starts a comment. */
int line_split(struct parser *p, char *line);

/* What units a number carried. */
enum parse_unit { UNIT_NONE, UNIT_SIZE, UNIT_TIME };

/* Compiles one word as an expression. times says whether time units are wanted. */
int expr_parse(struct parser *p, const char *word, bool times, struct expr *ret);

/* Compiles name, name[expr], name[*] or - into a reference. */
int ref_parse(struct parser *p, const char *word, bool may_define, bool may_all,
              struct operand *ret);

/* Index of a variable; defined on the way when define is set. */
int var_find(struct parser *p, const char *name, bool define, uint32_t *ret);

/* Declares a name with a number of slots. */
int name_add(struct parser *p, const char *name, int64_t slots, bool array,
             const struct scenario_name **ret);
bool name_valid(const char *name);

/* Parses a whole text of length bytes followed by a NUL; changes it in place. */
int scenario_parse(struct parser *p, char *text, size_t length);

/* Parses parameters (words from first on) of a statement into op. */
int statement_parse(struct parser *p, const struct statement *statement, size_t first,
                    struct op *op);

#endif
