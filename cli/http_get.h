/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_get.h - one GET from this host's loopback address, bounded in time and size.
 */
#ifndef NPUMEM_CLI_HTTP_GET_H
#define NPUMEM_CLI_HTTP_GET_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "err.h"

#define HTTP_GET_TIMEOUT_NS 1000000000ull
#define HTTP_GET_BYTES_MAX (4u << 20)

/* The body of http://127.0.0.1:PORT/PATH into *ret (NUL-terminated, caller frees). Returns its
 * length; -ECONNREFUSED nobody listens; -ETIMEDOUT not within a second; -EBADMSG another answer
 * than 200, or no HTTP; -EFBIG. reterr says which. */
ssize_t http_get(uint16_t port, const char *path, char **ret, struct error *reterr);

#endif
