/* SPDX-License-Identifier: Apache-2.0 */
/*
 * svm.h - the driver's own account of device memory: the text of /proc/svm/task/TGID/summary and
 * /proc/svm/devN/summary.
 *
 * The text is given; nothing is opened here, nothing is allocated. A table looks like
 *   Hostpid=4711                                     (device summary only: whose rows follow)
 *   Devid   Mem_type          Module_name  Module_id  Current_alloced_size  Alloced_peak_size
 * Alloc_cnt  Free_cnt dev3    MEM_DEV_HUGE_HBM  HCCL         3          419467264 419500032 6 2 NA
 * HOST_MEM          RUNTIME      7          0                     11341824           3          3
 * and follows lines of page counts that are not read. Only rows whose peak is above 0 are printed.
 * Source: facts on the driver's svm v2 (910B) of the branches 8.5.0, 9.0.0 and later.
 */
#ifndef NPUMEM_SVM_H
#define NPUMEM_SVM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SVM_DEVICE_NONE UINT16_MAX /* "NA": host memory */
#define SVM_NAME_MAX 32

struct svm_row {
    uint32_t tgid;   /* of the last "Hostpid=" line; 0: none yet (a task's summary has none) */
    uint16_t device; /* driver logical id, or SVM_DEVICE_NONE */
    uint8_t module_id;
    char mem_type[SVM_NAME_MAX];    /* cut */
    char module_name[SVM_NAME_MAX]; /* cut */
    uint64_t current_bytes, peak_bytes, alloc_count, free_count;
};

struct svm_reader {
    const char *text;
    size_t bytes, at;
    uint32_t tgid;
};

/* Begins to read `bytes` bytes of text, which must outlive the reader. */
void svm_reader_init(struct svm_reader *r, const char *text, size_t bytes);

/* The next row: 1 and *ret, or 0 at the end. A line that is not a row is passed over. */
int svm_next(struct svm_reader *r, struct svm_row *ret);

/* Whether a row is memory of the card: on a device, and HBM, or DDR where the card has no HBM
 * (310P). Pages of the task scheduler's own DDR are not. */
bool svm_row_is_device(const struct svm_row *row);

#endif
