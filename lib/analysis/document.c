/* SPDX-License-Identifier: Apache-2.0 */
/*
 * document.c - see document.h.
 */
#include "document.h"

#include <stdlib.h>
#include <string.h>

char *document_text(const struct view_context *c, const struct json *members)
{
    struct json j = {0};
    char *text = NULL;

    json_object(&j);
    view_header(c, &j);
    json_end(&j);
    if (json_finish(&j) == 0) {
        size_t head = j.length - 1; /* without its end */
        text = malloc(head + 1 + members->length);
        if (text) {
            memcpy(text, j.data, head);
            text[head] = ',';
            memcpy(text + head + 1, members->data + 1, members->length); /* the NUL as well */
        }
    }
    json_done(&j);
    return text;
}
