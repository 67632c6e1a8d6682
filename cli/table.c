/* SPDX-License-Identifier: Apache-2.0 */
/*
 * table.c - keeps rows of cells, then prints them aligned.
 *
 * Invariants: a cell is clean (no control characters) from the moment it is kept; numbers are never
 * shortened, only columns that were declared to shrink.
 */
#include <errno.h>
#include <string.h>

#include "table.h"

#define GAP_COLUMNS 2
#define SHRINK_LEAST 8
#define CELL_MAX_BYTES 1024

struct cell {
    char *text;
    enum out_style style;
};

struct row {
    struct cell *cells;
    enum out_style style;
};

struct table {
    size_t columns, row_count, row_capacity;
    bool *right, *shrinks;
    struct row *rows;
    int error;
};

struct table *table_new(size_t columns)
{
    struct table *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->columns = columns;
    t->right = calloc(columns + 1, sizeof(*t->right));
    t->shrinks = calloc(columns + 1, sizeof(*t->shrinks));
    return t->right && t->shrinks ? t : table_free(t);
}

struct table *table_free(struct table *t)
{
    if (!t)
        return NULL;
    for (size_t i = 0; i < t->row_count; i++) {
        for (size_t k = 0; k < t->columns; k++)
            free(t->rows[i].cells[k].text);
        free(t->rows[i].cells);
    }
    free(t->rows);
    free(t->right);
    free(t->shrinks);
    free(t);
    return NULL;
}

void table_column(struct table *t, size_t column, bool right, bool shrinks)
{
    t->right[column] = right;
    t->shrinks[column] = shrinks;
}

void table_row(struct table *t, enum out_style style)
{
    if (t->row_count == t->row_capacity) {
        size_t capacity = t->row_capacity ? 2 * t->row_capacity : 32;
        struct row *rows = reallocarray(t->rows, capacity, sizeof(*rows));
        if (!rows) {
            t->error = -ENOMEM;
            return;
        }
        t->rows = rows;
        t->row_capacity = capacity;
    }
    struct cell *cells = calloc(t->columns + 1, sizeof(*cells));
    if (!cells) {
        t->error = -ENOMEM;
        return;
    }
    t->rows[t->row_count++] = (struct row){.cells = cells, .style = style};
}

void table_cell_styled(struct table *t, size_t column, const char *text, enum out_style style)
{
    char clean[CELL_MAX_BYTES];

    if (t->error || t->row_count == 0 || column >= t->columns)
        return;
    struct cell *cell = &t->rows[t->row_count - 1].cells[column];
    char *copy = strdup(out_clean(clean, sizeof(clean), text));
    if (!copy) {
        t->error = -ENOMEM;
        return;
    }
    free(cell->text);
    *cell = (struct cell){.text = copy, .style = style};
}

void table_cell(struct table *t, size_t column, const char *text)
{
    table_cell_styled(t, column, text, STYLE_PLAIN);
}

static size_t column_width(const struct table *t, size_t column)
{
    size_t width = 0;
    for (size_t i = 0; i < t->row_count; i++) {
        const char *text = t->rows[i].cells[column].text;
        size_t columns = text ? out_columns(text) : 0;
        if (columns > width)
            width = columns;
    }
    return width;
}

size_t table_width(const struct table *t)
{
    size_t width = 0;
    for (size_t k = 0; k < t->columns; k++)
        width += column_width(t, k) + (k ? GAP_COLUMNS : 0);
    return width;
}

size_t table_least_width(const struct table *t)
{
    size_t width = 0;
    for (size_t k = 0; k < t->columns; k++) {
        size_t column = column_width(t, k);
        width += t->shrinks[k] && column > SHRINK_LEAST ? SHRINK_LEAST : column;
        width += k ? GAP_COLUMNS : 0;
    }
    return width;
}

/* Takes what is too much from the columns that may shrink, the widest first. */
static void shrink(const struct table *t, size_t *widths, size_t limit)
{
    for (size_t total = table_width(t); limit && total > limit; total--) {
        size_t widest = t->columns;
        for (size_t k = 0; k < t->columns; k++) {
            if (t->shrinks[k] && widths[k] > SHRINK_LEAST &&
                (widest == t->columns || widths[k] > widths[widest]))
                widest = k;
        }
        if (widest == t->columns)
            return;
        widths[widest]--;
    }
}

/* Cuts clean text to a width, with "..." at the end. */
static void cut(char *text, size_t width)
{
    size_t keep = width > 3 ? width - 3 : 0;

    if (out_columns(text) <= width)
        return;
    char *end = text + strlen(text);
    while (end > text && out_columns(text) > keep) {
        do
            end--;
        while (end > text && ((unsigned char)*end & 0xc0) == 0x80);
        *end = '\0';
    }
    memcpy(end, "...", sizeof("...")); /* at least as much was taken away */
}

static void print_row(const struct table *t, const struct out *o, const struct row *row,
                      const size_t *widths)
{
    size_t pending = 0; /* blanks that wait for a text after them */

    for (size_t k = 0; k < t->columns; k++) {
        char text[CELL_MAX_BYTES];
        snprintf(text, sizeof(text), "%s", row->cells[k].text ? row->cells[k].text : "");
        cut(text, widths[k]);
        size_t fill = widths[k] - out_columns(text), blanks = 0;
        while (text[0] && text[strlen(text) - 1] == ' ') {
            text[strlen(text) - 1] = '\0';
            blanks++;
        }
        enum out_style style =
            row->cells[k].style != STYLE_PLAIN ? row->cells[k].style : row->style;

        pending += k ? GAP_COLUMNS : 0;
        if (t->right[k])
            pending += fill;
        if (text[0]) {
            printf("%*s%s%s%s", (int)pending, "", out_on(o, style), text, out_off(o, style));
            pending = 0;
        }
        pending += blanks + (t->right[k] ? 0 : fill);
    }
    putchar('\n');
}

int table_print(const struct table *t, const struct out *o)
{
    if (t->error)
        return t->error;
    _cleanup_free_ size_t *widths = calloc(t->columns + 1, sizeof(*widths));
    if (!widths)
        return -ENOMEM;
    for (size_t k = 0; k < t->columns; k++)
        widths[k] = column_width(t, k);
    shrink(t, widths, o->width);
    for (size_t i = 0; i < t->row_count; i++)
        print_row(t, o, &t->rows[i], widths);
    return 0;
}
