/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an ELF file: no read outside, no endless search. */
#include <stdlib.h>
#include <string.h>

#include "blockfn.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const names[] = {"aclrtMalloc", "halMemAlloc", "", "environ"};
    struct elf_image e;
    struct error error;
    struct blockfn found;
    struct elf_symbol symbol;
    uint64_t offsets[4], vaddr;
    uint8_t id[ELF_BUILD_ID_MAX];
    size_t id_bytes;

    if (elf_image_init(&e, data, size, &error) < 0)
        return 0;
    elf_image_build_id(&e, id, &id_bytes);
    elf_image_symbols(&e, names, 4, offsets);
    for (unsigned i = 0; i < 4; i++) {
        if (offsets[i] == ELF_NO_OFFSET)
            continue;
        if (offsets[i] >= size || elf_offset_to_vaddr(&e, offsets[i], &vaddr) < 0)
            abort(); /* an answer is always inside the file */
        elf_probe_offset_hint(&e, offsets[i]);
        elf_probe_cost(&e, offsets[i]);
    }
    elf_image_static(&e, "main", &symbol);
    if (blockfn_find(&e, &found, &error) == 0 &&
        (found.offset >= size || found.probe_offset >= size))
        abort();
    return 0;
}
