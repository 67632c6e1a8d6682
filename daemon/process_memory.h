/* SPDX-License-Identifier: Apache-2.0 */
/*
 * process_memory.h - the memory of another process, read by process_vm_readv(), or /proc/PID/mem
 * where that is forbidden. Whether it is still the same process is the caller's to know.
 */
#ifndef NPUMEM_DAEMON_PROCESS_MEMORY_H
#define NPUMEM_DAEMON_PROCESS_MEMORY_H

#include <stddef.h>
#include <stdint.h>

struct process_memory {
    uint32_t tgid;
    int fd; /* of /proc/PID/mem, -1: process_vm_readv() */
};

static inline struct process_memory process_memory_init(uint32_t tgid)
{
    return (struct process_memory){.tgid = tgid, .fd = -1};
}
void process_memory_done(struct process_memory *m);

/* A reader as image_read.h wants it; userdata is a struct process_memory. Returns 0, all of it;
 * -EFAULT any of it missing; -EPERM, -EACCES. Cost: 0.5 us and what is copied. */
int process_memory_read(void *userdata, uint64_t address, void *buffer, size_t bytes);

#endif
