/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proctcp.c - see proctcp.h.
 *
 * A line: "sl local remote st tx:rx tr:when retrnsmt uid timeout inode ...", addresses as hex words
 * in host byte order. Source: Linux Documentation/networking/proc_net_tcp.
 */
#include "proctcp.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define STATE_LISTEN 0x0a
#define LINE_MAX_BYTES 256

/* An address as the kernel prints it: 1 (IPv4) or 4 (IPv6) words, whose bytes in memory are the
 * address's. */
static bool is_reached(const char *hex)
{
    static const uint8_t none[12] = {0}, mapped[12] = {[10] = 0xff, [11] = 0xff};
    size_t digits = strspn(hex, "0123456789ABCDEFabcdef");
    uint32_t words[4] = {0};
    uint8_t bytes[16];

    if ((digits != 8 && digits != 32) ||
        sscanf(hex, "%8" SCNx32 "%8" SCNx32 "%8" SCNx32 "%8" SCNx32, &words[0], &words[1],
               &words[2], &words[3]) != (int)digits / 8)
        return false;
    memcpy(bytes, words, sizeof(bytes));
    if (digits == 8)
        return words[0] == 0 || bytes[0] == 127;
    if (memcmp(bytes, mapped, sizeof(mapped)) == 0)
        return words[3] == 0 || bytes[12] == 127;
    /* any address; ::1 alone is not reached by 127.0.0.1 */
    return memcmp(bytes, none, sizeof(none)) == 0 && words[3] == 0;
}

bool proctcp_listener(const char *text, size_t bytes, uint16_t port, uint64_t *ret_inode)
{
    const char *end = text + bytes;

    for (const char *at = text; at < end;) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t length = newline ? (size_t)(newline - at) : (size_t)(end - at);
        char line[LINE_MAX_BYTES], local[40];
        unsigned local_port, state;
        uint64_t inode;
        if (length < sizeof(line)) {
            memcpy(line, at, length);
            line[length] = '\0';
            if (sscanf(line,
                       " %*[0-9]: %39[0-9A-Fa-f]:%x %*[0-9A-Fa-f]:%*x %x %*s %*s %*s %*u %*u "
                       "%" SCNu64,
                       local, &local_port, &state, &inode) == 4 &&
                state == STATE_LISTEN && local_port == port && is_reached(local)) {
                *ret_inode = inode;
                return true;
            }
        }
        at = newline ? newline + 1 : end;
    }
    return false;
}
