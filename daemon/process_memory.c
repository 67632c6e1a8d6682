/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process_memory.c - see process_memory.h. Must not: stop, trace or write to the process.
 */
#include "process_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/uio.h>

#include <unistd.h>

#include "cleanup.h"

void process_memory_done(struct process_memory *m)
{
    closep(&m->fd);
    m->fd = -1;
}

int process_memory_read(void *userdata, uint64_t address, void *buffer, size_t bytes)
{
    struct process_memory *m = userdata;
    struct iovec to = {buffer, bytes}, from = {(void *)(uintptr_t)address, bytes};
    ssize_t n;

    if (m->fd < 0) {
        n = process_vm_readv((pid_t)m->tgid, &to, 1, &from, 1, 0);
        if (n >= 0 || (errno != ENOSYS && errno != EPERM))
            return n == (ssize_t)bytes ? 0 : -EFAULT;
        char path[32];
        snprintf(path, sizeof(path), "/proc/%u/mem", m->tgid);
        m->fd = open(path, O_RDONLY | O_CLOEXEC);
        if (m->fd < 0)
            return -errno;
    }
    n = pread(m->fd, buffer, bytes, (off_t)address);
    return n == (ssize_t)bytes ? 0 : -EFAULT;
}
