/* SPDX-License-Identifier: Apache-2.0 */
/*
 * driver_usage.c - see driver_usage.h.
 */
#include "driver_usage.h"

#include <stdio.h>
#include <string.h>

#include "procfs.h"
#include "svm.h"

#define SUMMARY_BYTES_MAX (16u << 20)
#define SUMS_MAX 1024 /* devices x modules of one process */

struct usage_sum {
    uint16_t device;
    uint8_t module;
    uint64_t bytes;
};

int driver_usage_read(const char *dir, uint32_t tgid, struct ledger *ledger, uint64_t now_ns)
{
    _cleanup_free_ char *text = NULL;
    static struct usage_sum sums[SUMS_MAX];
    struct svm_reader reader;
    struct svm_row row;
    char path[320];
    size_t count = 0;
    ssize_t n;

    snprintf(path, sizeof(path), "%s/task/%u/summary", dir, tgid);
    n = procfs_read_file(path, SUMMARY_BYTES_MAX, &text);
    if (n <= 0)
        return 0;
    svm_reader_init(&reader, text, n);
    while (svm_next(&reader, &row) > 0) {
        size_t i = 0;
        if (!svm_row_is_device(&row))
            continue;
        while (i < count && (sums[i].device != row.device || sums[i].module != row.module_id))
            i++;
        if (i == SUMS_MAX)
            continue;
        if (i == count)
            sums[count++] = (struct usage_sum){.device = row.device, .module = row.module_id};
        sums[i].bytes += row.current_bytes;
    }
    for (size_t i = 0; i < count; i++)
        ledger_driver_usage(ledger, tgid, sums[i].device, sums[i].module, sums[i].bytes, now_ns);
    return 1;
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
