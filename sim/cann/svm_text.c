/* SPDX-License-Identifier: Apache-2.0 */
/*
 * svm_text.c - the text files of svm_text.h. Owns the mappings of this process's blocks; callers
 * hold the lock that orders updates of one process. A failure here loses text, never memory.
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

#include "svm_text.h"

enum {
    LINE = 128,
    BLOCK = 4096,
    HEAD_LINES = 4,
    ROW_LINES = BLOCK / LINE - HEAD_LINES,
};

/* Column starts and widths of the numbers that change. */
enum { COL_CURRENT = 47, COL_PEAK = 67, COL_ALLOCS = 87, COL_FREES = 107, COL_WIDTH = 19 };
enum { PAGE_LABEL = 14, PAGE_STRIDE = 36 };

static int task_fd = -1;
static char *task_map;
static int own_slot;
static int own_pid;
static int task_blocks;
static char *task_block[BOOK_DEVICES_MAX];
static char *dev_block[BOOK_DEVICES_MAX];

static bool enabled(void)
{
    const char *text = getenv("NPUSIM_SVM");

    return !text || strcmp(text, "0");
}

static void make_dirs(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0777) == 0)
            (void)!chmod(path, 0777);
        *slash = '/';
    }
}

static int open_text(const char *name)
{
    char path[4096];
    int fd;

    book_path(path, sizeof(path), name);
    make_dirs(path);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd >= 0)
        (void)!fchmod(fd, 0666);
    return fd;
}

static void task_name(char *name, size_t size, int pid, const char *leaf)
{
    snprintf(name, size, "proc/svm/task/%d%s", pid, leaf);
}

void svm_text_open(int slot, int pid)
{
    char name[64];

    svm_text_forget();
    if (!enabled())
        return;
    task_name(name, sizeof(name), pid, "/summary");
    task_fd = open_text(name);
    if (task_fd < 0 || ftruncate(task_fd, 0) < 0)
        return;
    task_map = mmap(NULL, BLOCK * BOOK_DEVICES_MAX, PROT_READ | PROT_WRITE, MAP_SHARED, task_fd, 0);
    if (task_map == MAP_FAILED)
        task_map = NULL;
    own_slot = slot;
    own_pid = pid;
}

static void blank(char *block)
{
    memset(block, ' ', BLOCK);
    for (int i = LINE - 1; i < BLOCK; i += LINE)
        block[i] = '\n';
}

static void put_text(char *line, const char *text, size_t length)
{
    memcpy(line, text, length < LINE - 1 ? length : LINE - 1);
}

static void put_number(char *at, uint64_t value)
{
    char text[COL_WIDTH + 1];
    char digits[24];
    int count = 0;

    do
        digits[count++] = (char)('0' + value % 10);
    while (value /= 10);
    memset(text, ' ', sizeof(text));
    for (int i = 0; i < count && i < COL_WIDTH; i++)
        text[i] = digits[count - 1 - i];
    memcpy(at, text, COL_WIDTH);
}

/* Both summaries begin with whose rows follow, in the words that the driver has for each. */
static void put_head(char *block, int device, bool of_task)
{
    static const char *const kinds[] = {"used", "peak"};
    char text[LINE + 1];
    int length;

    blank(block);
    length = of_task ? snprintf(text, sizeof(text), "hostpid=%d devpid=%d devid=%d", own_pid,
                                own_pid, device)
                     : snprintf(text, sizeof(text), "Hostpid=%d", own_pid);
    put_text(block, text, (size_t)length);
    for (int i = 0; i < 2; i++) {
        char *line = block + (i + 1) * LINE;

        length = snprintf(text, sizeof(text), "%s_page_4K: %-21d %s_page_2M: %-21d %s_page_1G: 0",
                          kinds[i], 0, kinds[i], 0, kinds[i]);
        put_text(line, text, (size_t)length);
    }
    length = snprintf(text, sizeof(text), "%-6s%-18s%-12s%-10s %-20s%-20s%-20s%s", "Devid",
                      "Mem_type", "Module_name", "Module_id", "Current_alloced_size",
                      "Alloced_peak_size", "Alloc_cnt", "Free_cnt");
    put_text(block + 3 * LINE, text, (size_t)length);
}

/* The card's file has one block per slot; earlier slots that never used the card read blank. */
static char *map_dev_block(int device)
{
    char name[64];
    char block[BLOCK];
    char *map = NULL;
    struct stat st;
    int fd;

    snprintf(name, sizeof(name), "proc/svm/dev%d/summary", device);
    fd = open_text(name);
    if (fd < 0)
        return NULL;
    flock(fd, LOCK_EX);
    blank(block);
    if (fstat(fd, &st) == 0)
        for (off_t at = st.st_size; at <= (off_t)own_slot * BLOCK; at += BLOCK)
            if (pwrite(fd, block, BLOCK, at) != BLOCK)
                goto out;
    map = mmap(NULL, BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)own_slot * BLOCK);
    if (map == MAP_FAILED)
        map = NULL;
    else
        put_head(map, device, false);
out:
    flock(fd, LOCK_UN); /* closing would not: the mapping keeps the file open */
    close(fd);
    return map;
}

static bool device_open(int device)
{
    if (task_block[device])
        return true;
    if (!task_map || ftruncate(task_fd, (off_t)BLOCK * (task_blocks + 1)) < 0)
        return false;
    task_block[device] = task_map + (size_t)BLOCK * (size_t)task_blocks++;
    put_head(task_block[device], device, true);
    dev_block[device] = map_dev_block(device);
    return true;
}

static const char *module_name(int module)
{
    static const struct {
        int id;
        const char *name;
    } names[] = {{3, "HCCL"}, {6, "DVPP"},      {7, "RUNTIME"}, {9, "HDC"},
                 {10, "DRV"}, {22, "DEVMM"},    {28, "HCCP"},   {31, "PROFILING"},
                 {33, "APP"}, {36, "AICPU"},    {38, "TDT"},    {39, "FE"},
                 {45, "GE"},  {48, "ASCENDCL"}, {62, "FFTS"},   {63, "OP"}};

    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].id == module)
            return names[i].name;
    return "UNKNOWN";
}

static void put_row(char *block, const struct book_slot *slot, const struct book_row *row)
{
    static const char *const types[] = {"MEM_DEV_SMALL_HBM", "MEM_DEV_HUGE_HBM",
                                        "MEM_DEV_HUGE_HBM"};
    char *line = block + (HEAD_LINES + row->line) * LINE;

    if (row->line >= ROW_LINES)
        return;
    if (line[0] == ' ') {
        char text[LINE + 1];
        int length = snprintf(text, sizeof(text), "dev%-3u%-18s%-12s%-11u", row->device,
                              types[row->page], module_name(row->module), row->module);

        put_text(line, text, (size_t)length);
    }
    put_number(line + COL_CURRENT, row->current_bytes);
    put_number(line + COL_PEAK, row->peak_bytes);
    put_number(line + COL_ALLOCS, row->alloc_count);
    put_number(line + COL_FREES, row->free_count);
    put_number(block + LINE + PAGE_LABEL + PAGE_STRIDE * row->page,
               slot->pages[row->device][row->page]);
    put_number(block + 2 * LINE + PAGE_LABEL + PAGE_STRIDE * row->page,
               slot->pages_peak[row->device][row->page]);
}

void svm_text_update(const struct book_slot *slot, uint32_t index)
{
    const struct book_row *row = &slot->rows[index];

    if (!task_map || !device_open(row->device))
        return;
    put_row(task_block[row->device], slot, row);
    if (dev_block[row->device])
        put_row(dev_block[row->device], slot, row);
}

static void blank_dev_blocks(int slot)
{
    char block[BLOCK];

    blank(block);
    for (int i = 0; i < BOOK_DEVICES_MAX; i++) {
        char name[64], path[4096];
        struct stat st;
        int fd;

        snprintf(name, sizeof(name), "proc/svm/dev%d/summary", i);
        book_path(path, sizeof(path), name);
        fd = open(path, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            continue;
        flock(fd, LOCK_EX);
        if (fstat(fd, &st) == 0 && st.st_size == (off_t)(slot + 1) * BLOCK)
            (void)!ftruncate(fd, (off_t)slot * BLOCK);
        else if (st.st_size > (off_t)slot * BLOCK)
            (void)!pwrite(fd, block, BLOCK, (off_t)slot * BLOCK);
        close(fd);
    }
}

void svm_text_remove(int slot, int pid)
{
    char name[64], path[4096];

    if (task_map && pid == own_pid)
        svm_text_forget();
    task_name(name, sizeof(name), pid, "/summary");
    book_path(path, sizeof(path), name);
    if (unlink(path) < 0 && errno == ENOENT)
        return;
    task_name(name, sizeof(name), pid, "");
    book_path(path, sizeof(path), name);
    rmdir(path);
    blank_dev_blocks(slot);
}

void svm_text_forget(void)
{
    if (task_map)
        munmap(task_map, BLOCK * BOOK_DEVICES_MAX);
    if (task_fd >= 0)
        close(task_fd);
    for (int i = 0; i < BOOK_DEVICES_MAX; i++) {
        if (dev_block[i])
            munmap(dev_block[i], BLOCK);
        dev_block[i] = NULL;
        task_block[i] = NULL;
    }
    task_map = NULL;
    task_fd = -1;
    task_blocks = 0;
}
