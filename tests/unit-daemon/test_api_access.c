/* SPDX-License-Identifier: Apache-2.0 */
/* Who may come in: the socket file, other daemons, other users. */
#include "api_fixture.h"

#include <grp.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define NOBODY 65534

static void test_socket_mode(void **state)
{
    struct fixture *f = *state;
    struct stat st;

    assert_int_equal(stat(f->path, &st), 0);
    assert_true(S_ISSOCK(st.st_mode));
    assert_int_equal(st.st_mode & 07777, 0660);
}

static void test_socket_in_use(void **state)
{
    struct fixture *f = *state;
    struct api *second = NULL;
    struct error error = {0};

    assert_int_equal(api_new(f->event, f->path, &f->options, &second, &error), -EADDRINUSE);
    assert_non_null(strstr(error.what, "already running"));
    /* Without the lock too: somebody else's daemon listens there. */
    char lock[128];
    snprintf(lock, sizeof(lock), "%s.lock", f->path);
    assert_int_equal(unlink(lock), 0);
    assert_int_equal(api_new(f->event, f->path, &f->options, &second, &error), -EADDRINUSE);
    assert_non_null(strstr(error.what, "already running"));
    expect_reply(f, "{\"method\":\"io.npumem.Control.Change\"}", "{\"parameters\":{}}");
}

/* A daemon that was killed leaves its socket and its lock file. */
static void test_stale_socket(void **state)
{
    struct fixture *f = *state;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct error error = {0};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    f->api = api_free(f->api);
    assert_int_equal(access(f->path, F_OK), -1);
    strcpy(address.sun_path, f->path);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof(address)), 0);
    assert_int_equal(listen(fd, 1), 0);
    close(fd);
    assert_int_equal(access(f->path, F_OK), 0);
    assert_int_equal(api_new(f->event, f->path, &f->options, &f->api, &error), 0);
    expect_reply(f, "{\"method\":\"io.npumem.Control.Change\"}", "{\"parameters\":{}}");
}

static void test_other_things_in_the_way(void **state)
{
    struct fixture *f = *state;
    struct error error = {0};
    struct api *api = NULL;
    char path[256];
    int fd;

    snprintf(path, sizeof(path), "%s/file", f->dir);
    fd = open(path, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(api_new(f->event, path, &f->options, &api, &error), -ENOTSOCK);
    assert_non_null(strstr(error.what, "not a socket"));
    assert_int_equal(unlink(path), 0);
    strcat(path, ".lock");
    unlink(path);

    snprintf(path, sizeof(path), "%s/missing/control.sock", f->dir);
    assert_int_equal(api_new(f->event, path, &f->options, &api, &error), -ENOENT);
    snprintf(path, sizeof(path), "%s/%0*d", f->dir, 120, 0);
    assert_int_equal(api_new(f->event, path, &f->options, &api, &error), -ENAMETOOLONG);
}

/* Forks a client of another user; it asks twice and exits with a bit per success. */
static int client_as(struct fixture *f, uid_t uid, gid_t gid, gid_t extra)
{
    static const char *const requests[] = {"{\"method\":\"io.npumem.Control.Echo\"}",
                                           "{\"method\":\"io.npumem.Control.Change\"}"};
    int status;
    pid_t child = fork();

    if (child == 0) {
        int bits = 0;

        if (setgroups(extra != (gid_t)-1, &extra) < 0 || setgid(gid) < 0 || setuid(uid) < 0)
            _exit(99);
        for (int i = 0; i < 2; i++) {
            int fd = client_connect_path(f->path);
            char reply[4096];
            ssize_t n;

            if (fd == -EACCES)
                _exit(64);
            if (fd < 0 || send(fd, requests[i], strlen(requests[i]) + 1, 0) < 0)
                _exit(98);
            n = recv(fd, reply, sizeof(reply), 0);
            if (n <= 0)
                _exit(97);
            if (strncmp(reply, "{\"parameters\"", 13) == 0)
                bits |= 1 << i;
            else if (!strstr(reply, "\"error\":\"io.npumem.Control.NotPermitted\""))
                _exit(96);
            close(fd);
        }
        _exit(bits);
    }
    while (waitpid(child, &status, WNOHANG) == 0)
        pump(f, 1);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void restart_with_group(struct fixture *f, const char *group)
{
    struct error error = {0};

    f->api = api_free(f->api);
    f->options.group = group;
    assert_int_equal(api_new(f->event, f->path, &f->options, &f->api, &error), 0);
}

static void test_users_and_groups(void **state)
{
    struct fixture *f = *state;
    struct group *daemon_group = getgrnam("daemon");
    struct stat st;
    gid_t gid;

    if (geteuid() != 0 || !daemon_group)
        skip();
    gid = daemon_group->gr_gid;
    restart_with_group(f, "daemon");
    assert_int_equal(stat(f->path, &st), 0);
    assert_int_equal(st.st_gid, gid);
    /* root: both; members: reading; others: the file's mode already stops them. */
    assert_int_equal(client_as(f, 0, 0, (gid_t)-1), 3);
    assert_int_equal(client_as(f, NOBODY, gid, (gid_t)-1), 1);
    assert_int_equal(client_as(f, NOBODY, NOBODY, gid), 1);
    assert_int_equal(client_as(f, NOBODY, NOBODY, (gid_t)-1), 64);
    /* Even when somebody opened the file to everyone, the kernel's word counts. */
    assert_int_equal(chmod(f->path, 0666), 0);
    assert_int_equal(client_as(f, NOBODY, NOBODY, (gid_t)-1), 0);
    /* No such group: root alone. */
    restart_with_group(f, "no-such-group-here");
    assert_int_equal(chmod(f->path, 0666), 0);
    assert_int_equal(client_as(f, NOBODY, gid, (gid_t)-1), 0);
    assert_int_equal(client_as(f, 0, 0, (gid_t)-1), 3);
}

/* The socket comes from systemd: served as it is, and left in place at the end. */
static void test_socket_activation(void **state)
{
    struct fixture *f = *state;
    int status;
    pid_t child;

    f->api = api_free(f->api);
    child = fork();
    if (child == 0) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        int fd = socket(AF_UNIX, SOCK_STREAM, 0);
        struct error error = {0};
        sd_event *event = NULL;
        struct api *api = NULL;
        char pid[16], reply[64] = "";

        strcpy(address.sun_path, f->path);
        if (bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 || listen(fd, 5) < 0)
            _exit(1);
        if (fd != 3)
            dup2(fd, 3);
        snprintf(pid, sizeof(pid), "%d", (int)getpid());
        setenv("LISTEN_PID", pid, 1);
        setenv("LISTEN_FDS", "1", 1);
        if (sd_event_new(&event) < 0 || api_new(event, f->path, &f->options, &api, &error) < 0)
            _exit(2);
        fd = client_connect_path(f->path);
        if (fd < 0 || send(fd, "{\"method\":\"io.npumem.Control.Change\"}", 38, 0) != 38)
            _exit(3);
        for (int i = 0; i < 100 && recv(fd, reply, sizeof(reply) - 1, MSG_DONTWAIT) < 0; i++)
            sd_event_run(event, 10000);
        api_free(api);
        _exit(strcmp(reply, "{\"parameters\":{}}") == 0 && access(f->path, F_OK) == 0 ? 0 : 4);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_SOCKET(test_socket_mode),      WITH_SOCKET(test_socket_in_use),
        WITH_SOCKET(test_stale_socket),     WITH_SOCKET(test_other_things_in_the_way),
        WITH_SOCKET(test_users_and_groups), WITH_SOCKET(test_socket_activation),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
