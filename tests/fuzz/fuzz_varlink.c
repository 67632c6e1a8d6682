/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_varlink.c - arbitrary bytes into the control socket: framing, JSON, parameters, replies.
 *
 * One server lives for the whole run; an input is one connection that sends it and closes its side.
 * After it no connection may be left.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "api.h"
#include "embedded.h"
#include "log.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The daemon's build embeds schema/npumem.varlink; its text does not matter here. */
const char embedded_control_interface[] = "interface io.npumem.Control\n";

static sd_event *event;
static struct api *api;
static struct sockaddr_un address = {.sun_family = AF_UNIX};
static socklen_t address_length;

static int method_all(struct api_call *call, void *userdata)
{
    const char *text = NULL, *texts[8];
    uint64_t number = 0, numbers[8];
    size_t count;
    bool flag;
    int r;

    if ((r = api_param_str(call, "s", &text)) < 0 ||
        (r = api_param_u64(call, "n", UINT64_MAX, &number)) < 0 ||
        (r = api_param_bool(call, "b", &flag)) < 0 ||
        (r = api_param_u64s(call, "a", 1u << 20, numbers, 8, &count)) < 0 ||
        (r = api_param_strs(call, "t", texts, 8, &count)) < 0 || (r = api_params_done(call)) < 0)
        return r;
    for (size_t i = 0; i < count; i++)
        if (strlen(texts[i]) > 4096)
            abort();
    if (api_call_more(call) && (r = api_reply_more(call, "{\"part\":1}")) < 0)
        return r;
    return text ? api_error(call, "NoSuchProcess", text, text) : api_reply(call, NULL);
}

static const struct api_method methods[] = {{"A", method_all, 0}, {"B", method_all, API_MORE}};

static void server_start(void)
{
    struct api_options options = {
        .methods = methods, .method_count = 2, .max_connections = 4, .max_request_bytes = 4096};
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    log_set_level(LOG_EMERG);
    /* An abstract name that the kernel chooses. */
    address_length = sizeof(sa_family_t);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, address_length) < 0 || listen(fd, 8) < 0)
        abort();
    address_length = sizeof(address);
    if (getsockname(fd, (struct sockaddr *)&address, &address_length) < 0 ||
        sd_event_new(&event) < 0 || api_new_fd(event, fd, &options, &api) < 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char replies[4096];
    int fd;

    if (!api)
        server_start();
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, address_length) < 0)
        abort();
    if (size)
        send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(fd, SHUT_WR);
    for (int i = 0; i < 20000; i++) {
        sd_event_run(event, 0);
        while (recv(fd, replies, sizeof(replies), MSG_DONTWAIT) > 0) {
        }
        if (api_stats(api)->accepted && api_stats(api)->connections == 0)
            break;
    }
    if (api_stats(api)->connections)
        abort();
    close(fd);
    return 0;
}
