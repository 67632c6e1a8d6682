/* SPDX-License-Identifier: Apache-2.0 */
/* parse.c - sizes in environment variables, for every library of the node. */
#include <stdlib.h>

#include "book.h"

uint64_t book_parse_bytes(const char *text, uint64_t fallback)
{
    char *end;
    double value;

    if (!text || !*text)
        return fallback;
    value = strtod(text, &end);
    if (end == text || value < 0)
        return fallback;
    switch (*end) {
    case 'G':
        value *= 1073741824.0;
        break;
    case 'M':
        value *= 1048576.0;
        break;
    case 'K':
        value *= 1024.0;
        break;
    default:
        break;
    }
    return (uint64_t)value;
}
