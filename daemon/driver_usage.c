/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver_usage.c - see driver_usage.h.
 */
#include "driver_usage.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "array.h"
#include "procfs.h"
#include "svm.h"

#define SUMMARY_BYTES_MAX (16u << 20)
#define SUMS_MAX 1024 /* devices x modules of one process */

struct usage_sum {
    uint64_t bytes, time_ns;
    uint32_t tgid;
    uint16_t device;
    uint8_t module;
};

struct usage_list {
    struct usage_sum *sums;
    size_t count, capacity;
};

int usage_list_new(struct usage_list **ret)
{
    *ret = calloc(1, sizeof(**ret));
    return *ret ? 0 : -ENOMEM;
}

struct usage_list *usage_list_free(struct usage_list *l)
{
    if (l)
        free(l->sums);
    free(l);
    return NULL;
}

static int list_add(struct usage_list *l, size_t first, uint32_t tgid, uint64_t now_ns,
                    const struct svm_row *row)
{
    for (size_t i = first; i < l->count; i++)
        if (l->sums[i].device == row->device && l->sums[i].module == row->module_id) {
            l->sums[i].bytes += row->current_bytes;
            return 0;
        }
    if (l->count - first == SUMS_MAX)
        return 0;
    if (ARRAY_ROOM(l->sums, l->capacity, l->count) < 0)
        return -ENOMEM;
    l->sums[l->count++] = (struct usage_sum){
        .bytes = row->current_bytes,
        .time_ns = now_ns,
        .tgid = tgid,
        .device = row->device,
        .module = row->module_id,
    };
    return 0;
}

bool usage_is_told(const char *dir)
{
    char path[320];

    snprintf(path, sizeof(path), "%s/task", dir);
    return access(path, R_OK | X_OK) == 0;
}

int usage_list_read(struct usage_list *l, const char *dir, uint32_t tgid, uint64_t now_ns)
{
    _cleanup_free_ char *text = NULL;
    struct svm_reader reader;
    struct svm_row row;
    size_t first = l->count;
    char path[320];
    ssize_t n;

    snprintf(path, sizeof(path), "%s/task/%u/summary", dir, tgid);
    n = procfs_read_file(path, SUMMARY_BYTES_MAX, &text);
    if (n <= 0)
        return n == -ENOMEM ? -ENOMEM : 0;
    svm_reader_init(&reader, text, n);
    while (svm_next(&reader, &row) > 0)
        if (svm_row_is_device(&row) && list_add(l, first, tgid, now_ns, &row) < 0)
            return -ENOMEM;
    return 1;
}

void usage_list_feed(struct usage_list *l, struct ledger *ledger)
{
    for (size_t i = 0; i < l->count; i++)
        ledger_driver_usage(ledger, l->sums[i].tgid, l->sums[i].device, l->sums[i].module,
                            l->sums[i].bytes, l->sums[i].time_ns);
    l->count = 0;
}

bool driver_usage_others(const char *dir, uint16_t device, const struct ledger *ledger,
                         uint64_t *ret_bytes)
{
    _cleanup_free_ char *text = NULL;
    struct svm_reader reader;
    struct svm_row row;
    char path[320];
    uint64_t bytes = 0;
    ssize_t n;

    snprintf(path, sizeof(path), "%s/dev%u/summary", dir, device);
    n = procfs_read_file(path, SUMMARY_BYTES_MAX, &text);
    if (n <= 0)
        return false;
    svm_reader_init(&reader, text, n);
    while (svm_next(&reader, &row) > 0) {
        const struct ledger_process *p = ledger_find_process(ledger, row.tgid);
        if (row.device == device && svm_row_is_device(&row) && !(p && p->alive))
            bytes += row.current_bytes;
    }
    *ret_bytes = bytes;
    return true;
}
