/* SPDX-License-Identifier: Apache-2.0 */
/*
 * json_write.h - streaming JSON writer into a growing buffer: exact 64-bit integers, no object
 * model.
 *
 * Misuse (a value without a key in an object, an unclosed container) and out of memory set a sticky
 * error that json_finish() returns. Strings may hold any bytes: invalid UTF-8 becomes U+FFFD,
 * control characters are escaped.
 */
#ifndef NPUMEM_JSON_WRITE_H
#define NPUMEM_JSON_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json {
    char *data;
    size_t length, capacity;
    int error;
    int depth;
    uint64_t in_array, has_item, want_value; /* one bit per depth, 64 deep */
};

void json_done(struct json *j); /* frees the buffer; the struct may be reused after zeroing */

void json_object(struct json *j); /* { as a value */
void json_array(struct json *j);  /* [ as a value */
void json_end(struct json *j);    /* closes the innermost container */
void json_key(struct json *j, const char *key);
void json_str(struct json *j, const char *value); /* NULL writes null */
void json_strn(struct json *j, const char *value, size_t length);
void json_u64(struct json *j, uint64_t value);
void json_i64(struct json *j, int64_t value);
void json_double(struct json *j, double value); /* non-finite writes null */
void json_bool(struct json *j, bool value);
void json_null(struct json *j);

/* key + value in one */
void json_kobject(struct json *j, const char *key);
void json_karray(struct json *j, const char *key);
void json_kstr(struct json *j, const char *key, const char *value);
void json_ku64(struct json *j, const char *key, uint64_t value);
void json_ki64(struct json *j, const char *key, int64_t value);
void json_kdouble(struct json *j, const char *key, double value);
void json_kbool(struct json *j, const char *key, bool value);
void json_khex(struct json *j, const char *key, uint64_t value); /* "0x..." */
/* null unless the value is known */
void json_ki64_or_null(struct json *j, const char *key, bool is_known, int64_t value);
void json_ku64_or_null(struct json *j, const char *key, bool is_known, uint64_t value);
void json_kdouble_or_null(struct json *j, const char *key, bool is_known, double value);
/* a rank, a device, a place: null below 0 */
void json_kindex(struct json *j, const char *key, int64_t value);

/* Returns 0 and a NUL-terminated text in j->data; -ENOMEM, or -EINVAL for misuse. */
int json_finish(struct json *j);

#endif
