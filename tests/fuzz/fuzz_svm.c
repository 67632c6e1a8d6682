/* SPDX-License-Identifier: Apache-2.0 */
/* Any text as the driver's memory tables. */
#include <stdlib.h>
#include <string.h>

#include "svm.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct svm_reader r;
    struct svm_row row;
    svm_reader_init(&r, (const char *)data, size);
    while (svm_next(&r, &row)) {
        svm_row_is_device(&row);
        if (strlen(row.module_name) >= SVM_NAME_MAX || strlen(row.mem_type) >= SVM_NAME_MAX)
            abort();
    }
    return 0;
}
