/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_file.c - see trace_file.h. Read, not mapped: what is mapped counts as memory, and a disk
 * that fails would end the program.
 */
#include "trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int64_t read_part(void *userdata, uint64_t offset, void *data, size_t bytes)
{
    const struct trace_file *f = userdata;
    size_t at = 0;

    while (at < bytes) {
        ssize_t n = pread(f->fd, (char *)data + at, bytes - at, (off_t)(offset + at));
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        at += (size_t)n;
    }
    return (int64_t)at;
}

int trace_file_open(const char *path, struct trace_file *ret, struct error *reterr)
{
    struct error why = {0};
    struct stat st;
    int r = 0;

    *ret = (struct trace_file)TRACE_FILE_NONE;
    ret->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (ret->fd < 0 || fstat(ret->fd, &st) < 0)
        r = error_set(&why, errno, "%s", strerror(errno));
    else if (!S_ISREG(st.st_mode))
        r = error_set(&why, EINVAL, "not a regular file");
    if (r == 0)
        r = trace_open_window(read_part, ret, (uint64_t)st.st_size, &ret->reader, &why);
    if (r == 0)
        return 0;
    trace_file_close(ret);
    error_set(reterr, r, "%.100s: %.120s", path, why.what);
    return error_fix(reterr, r, "a file that npumem record made (npumem record ls)");
}

void trace_file_close(struct trace_file *f)
{
    trace_close(&f->reader);
    if (f->fd >= 0)
        close(f->fd);
    f->fd = -1;
}
