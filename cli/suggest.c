/* SPDX-License-Identifier: Apache-2.0 */
/*
 * suggest.c - the nearest word to one that does not exist.
 *
 * Owns: the distance (insert, delete, replace, swap of neighbours) and how near is near enough.
 */
#include <string.h>
#include <strings.h>

#include "cli.h"

#define WORD_MAX 32

static unsigned min3(unsigned a, unsigned b, unsigned c)
{
    unsigned m = a < b ? a : b;
    return m < c ? m : c;
}

static unsigned distance(const char *a, const char *b)
{
    size_t m = strlen(a), n = strlen(b);
    unsigned d[WORD_MAX + 1][WORD_MAX + 1];

    if (m > WORD_MAX || n > WORD_MAX)
        return WORD_MAX;
    for (size_t i = 0; i <= m; i++)
        d[i][0] = (unsigned)i;
    for (size_t j = 0; j <= n; j++)
        d[0][j] = (unsigned)j;
    for (size_t i = 1; i <= m; i++) {
        for (size_t j = 1; j <= n; j++) {
            unsigned cost = strncasecmp(&a[i - 1], &b[j - 1], 1) != 0;
            d[i][j] = min3(d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + cost);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] &&
                d[i - 2][j - 2] + 1 < d[i][j])
                d[i][j] = d[i - 2][j - 2] + 1;
        }
    }
    return d[m][n];
}

/* Two per mistake, and one more where the first letter differs: people get that one right. A
 * candidate that begins with the word is as near as one mistake. */
static unsigned remoteness(const char *word, const char *candidate)
{
    size_t length = strlen(word);
    unsigned far = distance(word, candidate);
    if (far > 1 && length >= 2 && strncasecmp(word, candidate, length) == 0)
        far = 1;
    return 2 * far + (strncasecmp(word, candidate, 1) != 0);
}

static unsigned near_enough(const char *word)
{
    size_t length = strlen(word);
    return length <= 2 ? 3 : length <= 5 ? 5 : 7; /* one, two, three mistakes */
}

const char *suggest(const char *word, const char *const *candidates, size_t count)
{
    const char *best = NULL;
    unsigned least = near_enough(word) + 1;

    for (size_t i = 0; i < count; i++) {
        unsigned far = remoteness(word, candidates[i]);
        if (far < least) {
            least = far;
            best = candidates[i];
        }
    }
    return best;
}

bool suggest_values(const char *word, const char *values, char *ret, size_t size)
{
    unsigned least = near_enough(word) + 1;
    char candidate[WORD_MAX + 1];
    bool found = false;

    for (const char *p = values; *p;) {
        size_t length = strcspn(p, "|");
        if (length <= WORD_MAX && length < size) {
            memcpy(candidate, p, length);
            candidate[length] = '\0';
            unsigned far = remoteness(word, candidate);
            if (far < least) {
                least = far;
                found = true;
                memcpy(ret, candidate, length + 1);
            }
        }
        p += length + (p[length] == '|');
    }
    return found;
}
