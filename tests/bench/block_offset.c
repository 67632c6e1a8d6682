/* SPDX-License-Identifier: Apache-2.0 */
/* block_offset.c - prints where the daemon would probe a libtorch_npu.so: the file offset in hex.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "blockfn.h"

int main(int argc, char **argv)
{
    static struct elf_image image;
    struct blockfn found;
    struct error error = {};
    struct stat st;
    int fd = argc > 1 ? open(argv[1], O_RDONLY) : -1;
    void *data = fd >= 0 && fstat(fd, &st) == 0
                     ? mmap(NULL, st.st_size, PROT_READ, MAP_PRIVATE, fd, 0)
                     : MAP_FAILED;

    if (data == MAP_FAILED || elf_image_init(&image, data, st.st_size, &error) < 0 ||
        blockfn_find(&image, &found, &error) < 0) {
        fprintf(stderr, "%s\n", error.what);
        return 1;
    }
    printf("%llx\n", (unsigned long long)found.probe_offset);
    return 0;
}
