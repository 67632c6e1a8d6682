/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mapped_file.c - see mapped_file.h. The handler puts a page of zeroes where one is missing, so
 * that whoever was reading goes on; a SIGBUS elsewhere ends the daemon as it would without it.
 */
#include "mapped_file.h"

#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>

#include "procfs.h"

/* The kernel delivers SIGBUS to the thread that read: no other thread's files matter. */
static _Thread_local struct mapped_file *open_files;
static uintptr_t page_bytes;

static void on_sigbus(int number, siginfo_t *info, void *context)
{
    uintptr_t address = (uintptr_t)info->si_addr;
    int saved = errno;

    (void)context;
    if (info->si_code > 0) /* of the kernel, with an address */
        for (struct mapped_file *f = open_files; f; f = f->next) {
            uintptr_t begin = (uintptr_t)f->data;
            void *page = (void *)(address & ~(page_bytes - 1));
            if (address < begin || address - begin >= f->bytes)
                continue;
            if (mmap(page, page_bytes, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) ==
                MAP_FAILED)
                break;
            f->is_torn = 1;
            errno = saved;
            return;
        }
    signal(number, SIG_DFL);
    raise(number);
}

void mapped_file_guard(void)
{
    struct sigaction action = {.sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO};

    page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}

int mapped_file_open(uint32_t tgid, const struct maps_entry *entry, struct mapped_file *ret)
{
    *ret = (struct mapped_file){.fd = procfs_open_mapping(tgid, entry)};
    if (ret->fd < 0)
        return ret->fd;
    if (fstat(ret->fd, &ret->st) < 0)
        return -errno;
    return S_ISREG(ret->st.st_mode) ? 0 : -EINVAL;
}

int mapped_file_map(struct mapped_file *f, uint64_t max_bytes)
{
    void *data;

    if (f->st.st_size <= 0)
        return -ENODATA;
    if ((uint64_t)f->st.st_size > max_bytes)
        return -EFBIG;
    /* Shared: into a private mapping the kernel writes the breakpoints of live probes, here as in
     * any process, and what is looked at would not be what the file has. */
    data = mmap(NULL, (size_t)f->st.st_size, PROT_READ, MAP_SHARED, f->fd, 0);
    if (data == MAP_FAILED)
        return -errno;
    f->data = data;
    f->bytes = (size_t)f->st.st_size;
    f->next = open_files;
    open_files = f;
    return 0;
}

int mapped_file_get(uint32_t tgid, const struct maps_entry *entry, uint64_t max_bytes,
                    struct mapped_file *ret)
{
    int r = mapped_file_open(tgid, entry, ret);

    return r < 0 ? r : mapped_file_map(ret, max_bytes);
}

void mapped_file_close(struct mapped_file *f)
{
    struct mapped_file **p = &open_files;

    if (f->data) {
        while (*p != f)
            p = &(*p)->next;
        *p = f->next;
        munmap((void *)(uintptr_t)f->data, f->bytes);
    }
    if (f->fd >= 0)
        close(f->fd);
    *f = (struct mapped_file)MAPPED_FILE_NONE;
}
