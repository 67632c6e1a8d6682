/* SPDX-License-Identifier: Apache-2.0 */
/*
 * find_block_function - prints where lib/blockfn finds torch_npu's block function in a library:
 *   offset=0x2e016b0 layout=component source=code symbol=none machine=x86_64 micros=812
 * `symbol` is the offset that .symtab gives, where the library is not stripped: a second witness.
 * micros is the best of three runs over the mapped file. Exit 1: not found; 2: cannot read.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>

#include "blockfn.h"
#include "cleanup.h"

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv)
{
    struct error error;
    struct elf_image e;
    struct blockfn found;
    struct elf_symbol symbol;
    struct stat st;
    uint64_t best_ns = UINT64_MAX, symbol_offset;
    int r = 0;

    if (argc != 2) {
        fprintf(stderr, "usage: %s libtorch_npu.so\n", argv[0]);
        return 2;
    }
    _cleanup_close_ int fd = open(argv[1], O_RDONLY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0) {
        perror(argv[1]);
        return 2;
    }
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED) {
        perror(argv[1]);
        return 2;
    }
    for (int i = 0; i < 3; i++) {
        uint64_t begin_ns = now_ns();
        r = elf_image_init(&e, data, (size_t)st.st_size, &error);
        if (r == 0)
            r = blockfn_find(&e, &found, &error);
        uint64_t took_ns = now_ns() - begin_ns;
        if (took_ns < best_ns)
            best_ns = took_ns;
    }
    if (r < 0) {
        fprintf(stderr, "%s: %s\n", argv[1], error.what);
        return 1;
    }
    printf("offset=0x%lx layout=%s source=%s symbol=", (unsigned long)found.offset,
           blockfn_layout_name(found.layout), blockfn_source_name(found.source));
    if (elf_image_static(&e,
                         "_ZN9torch_npu8profiler29reportMemoryDataToNpuProfilerERKNS0_"
                         "11MemoryUsageE",
                         &symbol) == 0 &&
        elf_vaddr_to_offset(&e, symbol.vaddr, &symbol_offset) == 0)
        printf("0x%lx", (unsigned long)symbol_offset);
    else
        printf("none");
    printf(" machine=%s micros=%lu first=%s\n", elf_machine_name(e.machine),
           (unsigned long)(best_ns / 1000), elf_probe_cost(&e, found.probe_offset));
    return 0;
}
