/* SPDX-License-Identifier: Apache-2.0 */
/*
 * book.c - the node's shared book. Owns the mapping and the two descriptors of this process, which
 * stay open for its life: closing any descriptor of `alive` would drop the process's POSIX lock.
 * Invariant: under devices[d].lock, used_bytes is the sum of mapped_bytes[d] of all slots; a
 * process that dies inside the lock leaves the sum to the next owner (robust mutex).
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "book.h"
#include "svm_text.h"

#define BOOK_MAGIC 0x6b6f6f62u
#define BOOK_VERSION 2
#define DEFAULT_HBM_BYTES (64ull << 30)
#define DEFAULT_DEVICES 8

static int alive_fd = -1;
static struct book *mapped;

uint64_t book_page_bytes(enum book_page page)
{
    return page == BOOK_PAGE_1G ? 1ull << 30 : page == BOOK_PAGE_2M ? 2ull << 20 : 4096;
}

void book_path(char *path, size_t size, const char *name)
{
    const char *dir = getenv("NPUSIM_DIR");
    int used;

    if (dir && *dir)
        used = snprintf(path, size, "%s/%s", dir, name);
    else
        used = snprintf(path, size, "/dev/shm/npusim-%u/%s", (unsigned)getuid(), name);
    if (used < 0 || (size_t)used >= size)
        path[0] = '\0';
}

static int open_shared(const char *name)
{
    char path[4096];
    int fd;

    book_path(path, sizeof(path), name);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0)
        (void)!fchmod(fd, 0666); /* other users' processes share the cards; not ours: as it is */
    return fd;
}

static void device_lock(struct book *book, int device)
{
    struct book_device *dev = &book->devices[device];

    if (pthread_mutex_lock(&dev->lock) == EOWNERDEAD) {
        dev->used_bytes = 0;
        for (uint32_t i = 0; i < BOOK_SLOTS_MAX; i++)
            dev->used_bytes += book->slots[i].mapped_bytes[device];
        pthread_mutex_consistent(&dev->lock);
    }
}

static void device_unlock(struct book *book, int device)
{
    pthread_mutex_unlock(&book->devices[device].lock);
}

static struct flock slot_range(short type, off_t start, off_t length)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
}

static bool slot_try_lock(int slot)
{
    struct flock range = slot_range(F_WRLCK, slot, 1);

    return fcntl(alive_fd, F_SETLK, &range) == 0;
}

static void slot_unlock(int slot)
{
    struct flock range = slot_range(F_UNLCK, slot, 1);

    (void)fcntl(alive_fd, F_SETLK, &range);
}

/* What tells this process from another with the same pid (reused, or of another namespace). */
static uint64_t self_token(void)
{
    static _Atomic uint64_t cached;
    static _Atomic int cached_pid;
    unsigned long long start = 0;
    int pid = (int)getpid();
    char text[1024];
    char *name_end;
    FILE *in;

    if (cached_pid == pid)
        return cached;
    in = fopen("/proc/self/stat", "re");
    if (in && fgets(text, sizeof(text), in) && (name_end = strrchr(text, ')')))
        /* The start time is the 22nd field, the 20th after the name. */
        (void)!sscanf(name_end + 1,
                      "%*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                      "%*s %llu",
                      &start);
    if (in)
        fclose(in);
    cached = start << 24 ^ (uint64_t)pid;
    cached_pid = pid;
    return cached;
}

static bool others_live(void)
{
    struct flock range = slot_range(F_WRLCK, 0, BOOK_SLOTS_MAX);

    return fcntl(alive_fd, F_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

static void book_format(struct book *book)
{
    pthread_mutexattr_t attr;

    if (book->magic)
        memset(book, 0, sizeof(*book)); /* another version's; a new file is zero as it is */
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    for (int i = 0; i < BOOK_DEVICES_MAX; i++)
        pthread_mutex_init(&book->devices[i].lock, &attr);
    pthread_mutexattr_destroy(&attr);
    book->device_count = DEFAULT_DEVICES;
    book->hbm_bytes = DEFAULT_HBM_BYTES;
    book->version = BOOK_VERSION;
    book->magic = BOOK_MAGIC;
}

static void book_configure(struct book *book, bool fresh)
{
    uint64_t devices = book_parse_bytes(getenv("NPUSIM_DEVICES"), book->device_count);

    if (!fresh && others_live())
        return;
    if (devices > 0 && devices <= BOOK_DEVICES_MAX)
        book->device_count = (uint32_t)devices;
    book->hbm_bytes = book_parse_bytes(getenv("NPUSIM_HBM"), book->hbm_bytes);
    book->baseline_bytes = book_parse_bytes(getenv("NPUSIM_BASELINE"), book->baseline_bytes);
}

struct book *book_open(void)
{
    char path[4096];
    struct book *book = MAP_FAILED;
    bool fresh;
    int fd;

    if (mapped)
        return mapped;
    book_path(path, sizeof(path), "");
    if (mkdir(path, 0777) == 0)
        (void)!chmod(path, 0777);
    fd = open_shared("book");
    if (alive_fd < 0)
        alive_fd = open_shared("alive");
    if (fd < 0 || alive_fd < 0)
        goto fail;
    flock(fd, LOCK_EX);
    if (ftruncate(fd, sizeof(struct book)) < 0)
        goto fail;
    book = mmap(NULL, sizeof(struct book), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (book == MAP_FAILED)
        goto fail;
    fresh = book->magic != BOOK_MAGIC || book->version != BOOK_VERSION;
    if (fresh)
        book_format(book);
    book_configure(book, fresh);
    flock(fd, LOCK_UN); /* closing would not: the mapping keeps the file open */
    close(fd);
    mapped = book;
    return book;
fail:
    fprintf(stderr, "npusim: %sbook: %s\n", path, strerror(errno));
    if (fd >= 0) {
        flock(fd, LOCK_UN);
        close(fd);
    }
    return NULL;
}

static void slot_clear(struct book *book, int slot)
{
    struct book_slot *own = &book->slots[slot];

    svm_text_remove(slot, own->pid);
    for (int i = 0; i < BOOK_DEVICES_MAX; i++) {
        if (!own->mapped_bytes[i])
            continue;
        device_lock(book, i);
        book->devices[i].used_bytes -= own->mapped_bytes[i];
        own->mapped_bytes[i] = 0;
        device_unlock(book, i);
    }
    memset(own, 0, sizeof(*own));
}

int book_reap(struct book *book, int own)
{
    int dead = 0;

    for (int i = 0; i < (int)book->slot_high; i++) {
        struct book_slot *slot = &book->slots[i];

        /* Our own lock never conflicts with us, so the token has to tell (another library of this
         * process may own the slot). */
        if (i == own || !slot->pid || slot->token == self_token())
            continue;
        if (!slot_try_lock(i))
            continue;
        if (slot->pid) {
            slot_clear(book, i);
            dead++;
        }
        slot_unlock(i);
    }
    return dead;
}

int book_slot_acquire(struct book *book)
{
    /* A slot that this process had before exec: its lock went with the old image. */
    for (int i = 0; i < (int)book->slot_high; i++)
        if (book->slots[i].pid && book->slots[i].token == self_token() && slot_try_lock(i)) {
            slot_clear(book, i);
            slot_unlock(i);
        }
    for (int i = 0; i < BOOK_SLOTS_MAX; i++) {
        if (!slot_try_lock(i))
            continue;
        if ((uint32_t)i >= book->slot_high)
            book->slot_high = (uint32_t)i + 1;
        if (book->slots[i].pid)
            slot_clear(book, i);
        book_reap(book, i);
        book->slots[i].token = self_token();
        book->slots[i].pid = (int)getpid();
        return i;
    }
    return -EAGAIN;
}

void book_slot_release(struct book *book, int slot)
{
    slot_clear(book, slot);
    slot_unlock(slot);
}

int book_slot_pid(struct book *book, int slot)
{
    struct flock range = slot_range(F_WRLCK, slot, 1);
    int pid = book->slots[slot].pid;

    if (!pid || book->slots[slot].token == self_token())
        return pid;
    if (fcntl(alive_fd, F_GETLK, &range) < 0 || range.l_type == F_UNLCK)
        return 0;
    return range.l_pid > 0 ? range.l_pid : pid;
}

static bool device_take(struct book *book, int slot, int device, uint64_t bytes)
{
    struct book_device *dev = &book->devices[device];
    uint64_t limit = book->hbm_bytes - book->baseline_bytes;
    bool fits;

    device_lock(book, device);
    fits = bytes <= limit && dev->used_bytes <= limit - bytes;
    if (fits) {
        book->slots[slot].mapped_bytes[device] += bytes;
        dev->used_bytes += bytes;
    }
    device_unlock(book, device);
    return fits;
}

int book_charge(struct book *book, int slot, int device, uint64_t mapped_bytes)
{
    if (device_take(book, slot, device, mapped_bytes))
        return 0;
    if (book_reap(book, slot) > 0 && device_take(book, slot, device, mapped_bytes))
        return 0;
    return -ENOMEM;
}

void book_uncharge(struct book *book, int slot, int device, uint64_t mapped_bytes)
{
    device_lock(book, device);
    book->slots[slot].mapped_bytes[device] -= mapped_bytes;
    book->devices[device].used_bytes -= mapped_bytes;
    device_unlock(book, device);
}

int book_row_index(struct book *book, int slot, int device, enum book_page page, int module)
{
    struct book_slot *own = &book->slots[slot];
    uint8_t line = 0;

    for (uint32_t i = 0; i < own->row_count; i++) {
        struct book_row *row = &own->rows[i];

        if (row->device == device && row->page == page && row->module == module)
            return (int)i;
        line = (uint8_t)(line + (row->device == device));
    }
    if (own->row_count == BOOK_ROWS_MAX)
        return -ENOSPC;
    own->rows[own->row_count] = (struct book_row){
        .device = (uint8_t)device, .page = (uint8_t)page, .module = (uint8_t)module, .line = line};
    return (int)own->row_count++;
}

uint64_t book_used_bytes(struct book *book, int device)
{
    uint64_t used;

    device_lock(book, device);
    used = book->devices[device].used_bytes;
    device_unlock(book, device);
    return used + book->baseline_bytes;
}
