/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python_find.c - from a process's mappings to an interpreter whose layout fits; see
 * python_internal.h.
 *
 * An interpreter is in libpython3.X.so* or in the executable itself. Its version comes from
 * Py_Version (3.11 and later) or the file's name, and is believed once the live structures fit its
 * layout.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "elf_image.h"
#include "log.h"
#include "mapped_file.h"
#include "procfs.h"
#include "procmaps.h"
#include "python_internal.h"

#define FILES_MAX 64
#define STATUS_BYTES_MAX (64u << 10)

static uint64_t symbol_vaddr(const struct elf_image *e, const char *name)
{
    struct elf_symbol s;

    if (elf_image_dynamic(e, name, &s) == 0 || elf_image_static(e, name, &s) == 0)
        return s.vaddr;
    return 0;
}

static void file_read(struct python_file *f, const struct elf_image *e, const char *path)
{
    uint64_t version = symbol_vaddr(e, "Py_Version");
    const uint8_t *bytes = version ? elf_image_at(e, version, sizeof(uint64_t), NULL) : NULL;

    f->runtime_vaddr = symbol_vaddr(e, "_PyRuntime");
    f->code_type_vaddr = symbol_vaddr(e, "PyCode_Type");
    f->minor = bytes ? python_minor_from_hex(image_word(bytes, 0)) : 0;
    if (!f->minor)
        f->minor = python_minor_from_path(path);
}

/* What a file has; remembered, since every process of a node has the same
 * few. */
static struct python_file *file_get(struct python *p, struct mapped_file *file, const char *path)
{
    const struct stat *st = &file->st;
    struct python_file *f, key = {.dev = st->st_dev, .ino = st->st_ino, .size_bytes = st->st_size};
    struct elf_image *e;
    unsigned count = 0;

    key.mtime_ns = st->st_mtim.tv_sec * 1000000000ull + st->st_mtim.tv_nsec;
    for (f = p->files; f; f = f->next, count++)
        if (f->dev == key.dev && f->ino == key.ino && f->size_bytes == key.size_bytes &&
            f->mtime_ns == key.mtime_ns)
            return f;
    if (count >= FILES_MAX) { /* the oldest goes */
        struct python_file **last = &p->files;
        while ((*last)->next)
            last = &(*last)->next;
        free(*last);
        *last = NULL;
    }
    f = malloc(sizeof(*f));
    e = malloc(sizeof(*e));
    if (f && e) {
        *f = key;
        if (elf_image_init(e, file->data, file->bytes, NULL) == 0 &&
            elf_image_check_host(e, NULL) == 0)
            file_read(f, e, path);
    }
    if (f && e && !file->is_torn) {
        f->next = p->files;
        p->files = f;
    } else {
        free(f);
        f = NULL;
    }
    free(e);
    return f;
}

/* Load address less linked address, from one mapping of the file. */
static int load_bias(const struct mapped_file *file, const struct maps_entry *entry, uint64_t *ret)
{
    struct elf_image *e = malloc(sizeof(*e));
    int r = -ENOEXEC;

    if (e && elf_image_init(e, file->data, file->bytes, NULL) == 0)
        r = elf_load_bias(e, entry, ret);
    free(e);
    return file->is_torn ? -EIO : r;
}

static int layout_get(struct python_process *pp, const struct python_file *f)
{
    struct python_runtime *rt = &pp->runtime;
    uint8_t bytes[PYTHON_DEBUG_OFFSETS_BYTES];
    int r = -ENODATA;

    if ((!f->minor || f->minor >= 13) &&
        rt->reader.read(rt->reader.userdata, rt->address, bytes, sizeof(bytes)) == 0)
        r = python_layout_from_runtime(bytes, sizeof(bytes), &rt->layout);
    if (r == 0)
        return 0;
    if (r != -ENOTSUP && python_layout_find(f->minor, &rt->layout))
        return 0;
    if (f->minor)
        snprintf(pp->error, sizeof(pp->error),
                 "CPython 3.%u%s: its frames are not known: no phases", f->minor,
                 r == -ENOTSUP ? " of an unknown build" : "");
    else
        snprintf(pp->error, sizeof(pp->error), "CPython of an unknown version: no phases");
    pp->is_refused = true;
    return -ENOTSUP;
}

static int mapping_try(struct python *p, struct python_process *pp, const struct maps_entry *entry)
{
    _cleanup_mapped_file_ struct mapped_file file = MAPPED_FILE_NONE;
    const struct python_file *f;
    uint64_t bias = 0;
    int r = mapped_file_get(pp->tgid, entry, UINT64_MAX, &file);

    if (r < 0) {
        snprintf(pp->error, sizeof(pp->error), "cannot open its Python: %s", strerror(-r));
        return r;
    }
    f = file_get(p, &file, entry->path);
    if (!f || !f->runtime_vaddr)
        return 0;
    r = load_bias(&file, entry, &bias);
    if (r < 0)
        return 0;
    pp->runtime.address = f->runtime_vaddr + bias;
    pp->runtime.code_type = f->code_type_vaddr ? f->code_type_vaddr + bias : 0;
    r = layout_get(pp, f);
    if (r < 0)
        return r;
    pp->runtime.is_table_exact = ELF_MACHINE_HOST == ELF_MACHINE_X86_64;
    r = python_runtime_check(&pp->runtime);
    if (r == 0 || r == -EAGAIN) {
        snprintf(pp->error, sizeof(pp->error),
                 "its Python 3.%u runs nothing yet that can be read: no phases",
                 pp->runtime.layout.minor);
        return 0;
    }
    pp->is_refused = r < 0;
    if (r < 0)
        snprintf(pp->error, sizeof(pp->error),
                 "its Python 3.%u keeps frames in another way than CPython: no phases",
                 pp->runtime.layout.minor);
    return r < 0 ? r : r > 0;
}

int python_find(struct python *p, struct python_process *pp, const char *maps, size_t bytes)
{
    struct maps_reader *reader = malloc(sizeof(*reader));
    struct maps_entry entry;
    char exe[4096];
    int r = 0;

    if (!reader)
        return -ENOMEM;
    procfs_exe(pp->tgid, exe, sizeof(exe));
    pp->error[0] = '\0';
    maps_reader_init(reader, maps, bytes);
    while (r == 0 && maps_next(reader, &entry) > 0)
        if (entry.executable && entry.inode &&
            (python_minor_from_path(entry.path) || strcmp(entry.path, exe) == 0))
            r = mapping_try(p, pp, &entry);
    free(reader);
    return r;
}
