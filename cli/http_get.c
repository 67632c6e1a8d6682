/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http_get.c - see http_get.h.
 *
 * HTTP/1.0: the answer ends with the connection, in one piece. What answers is hostile.
 */
#include "http_get.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cleanup.h"

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int wait_for(int fd, short events, uint64_t deadline_ns)
{
    for (;;) {
        uint64_t now = now_ns();
        struct pollfd p = {.fd = fd, .events = events};
        if (now >= deadline_ns)
            return -ETIMEDOUT;
        int r = poll(&p, 1, (int)((deadline_ns - now) / 1000000) + 1);
        if (r > 0)
            return 0;
        if (r < 0 && errno != EINTR)
            return -errno;
    }
}

static int connected(int fd, uint16_t port, uint64_t deadline_ns)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int error = 0, r;
    socklen_t length = sizeof(error);

    if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
        return 0;
    if (errno != EINPROGRESS)
        return -errno;
    r = wait_for(fd, POLLOUT, deadline_ns);
    if (r == 0 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length) < 0)
        return -errno;
    return r < 0 ? r : -error;
}

static int send_all(int fd, const char *text, size_t bytes, uint64_t deadline_ns)
{
    while (bytes) {
        ssize_t n = send(fd, text, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return -errno;
        if (n < 0) {
            int r = wait_for(fd, POLLOUT, deadline_ns);
            if (r < 0)
                return r;
            continue;
        }
        text += n;
        bytes -= (size_t)n;
    }
    return 0;
}

static ssize_t receive_all(int fd, char *buffer, size_t size, uint64_t deadline_ns)
{
    size_t used = 0;

    for (;;) {
        if (used == size)
            return -EFBIG;
        ssize_t n = recv(fd, buffer + used, size - used, 0);
        if (n == 0)
            return (ssize_t)used;
        if (n > 0) {
            used += (size_t)n;
            continue;
        }
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        int r = wait_for(fd, POLLIN, deadline_ns);
        if (r < 0)
            return r;
    }
}

static ssize_t exchange(uint16_t port, const char *path, char *buffer, size_t size)
{
    _cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    uint64_t deadline = now_ns() + HTTP_GET_TIMEOUT_NS;
    char request[256];

    if (fd < 0)
        return -errno;
    int length = snprintf(request, sizeof(request),
                          "GET %s HTTP/1.0\r\nHost: localhost\r\nAccept: text/plain\r\n\r\n", path);
    if (length < 0 || (size_t)length >= sizeof(request))
        return -EINVAL;
    int r = connected(fd, port, deadline);
    if (r == 0)
        r = send_all(fd, request, (size_t)length, deadline);
    return r < 0 ? r : receive_all(fd, buffer, size, deadline);
}

ssize_t http_get(uint16_t port, const char *path, char **ret, struct error *reterr)
{
    _cleanup_free_ char *buffer = malloc(HTTP_GET_BYTES_MAX + 1);
    unsigned minor, status = 0;

    if (!buffer)
        return -ENOMEM;
    ssize_t n = exchange(port, path, buffer, HTTP_GET_BYTES_MAX);
    if (n < 0)
        return error_set(reterr, (int)n, "127.0.0.1:%u%s: %s", port, path, strerror((int)-n));
    buffer[n] = '\0';
    char *body = strstr(buffer, "\r\n\r\n");
    if (!body || sscanf(buffer, "HTTP/1.%1u %3u", &minor, &status) != 2 || status != 200)
        return error_set(reterr, EBADMSG,
                         status ? "127.0.0.1:%u%s: answers %u" : "127.0.0.1:%u%s: no HTTP", port,
                         path, status);
    body += 4;
    n -= body - buffer;
    *ret = strdup(body);
    return *ret ? n : -ENOMEM;
}
