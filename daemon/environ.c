/* SPDX-License-Identifier: Apache-2.0 */
/*
 * environ.c - see environ.h.
 *
 * Bounds: BYTES_MAX are read of a process's memory, ENTRIES_MAX variables looked at, VALUE_MAX
 * bytes of one kept.
 */
#include "environ.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cleanup.h"
#include "elf_image.h"
#include "mapped_file.h"
#include "procfs.h"
#include "procmaps.h"

#define BYTES_MAX (16u << 20)   /* an environment of 10 MiB, and what lies between its strings */
#define COSTLY_BYTES (1u << 20) /* one that is larger is not read again at each look */
#define ENTRIES_MAX 65536u
#define VALUE_MAX 1024u
#define WINDOW_BYTES 16384u
#define MAPS_BYTES_MAX (64u << 20)
#define LIBRARY_BYTES_MAX ((uint64_t)256 << 20)

static const char *const names[] = {
#define NM_TUNING(name) name,
#define NM_IDENTITY(name) name,
#include "tunings.def"
#undef NM_TUNING
#undef NM_IDENTITY
};

#define NAMES ARRAY_SIZE(names)

/* The variable of the table that an entry sets; NAMES none. */
static size_t name_of(const char *entry, size_t bytes)
{
    const char *equals = memchr(entry, '=', bytes);
    size_t i = 0;

    if (!equals)
        return NAMES;
    while (i < NAMES && (strlen(names[i]) != (size_t)(equals - entry) ||
                         memcmp(names[i], entry, strlen(names[i])) != 0))
        i++;
    return i;
}

/* What was found of each variable. getenv() answers with the first of a name: the least place. */
struct found {
    uint32_t place;
    char entry[VALUE_MAX]; /* "" none */
};

static void found_keep(struct found *found, const char *entry, size_t bytes, uint32_t place)
{
    size_t i = bytes < VALUE_MAX ? name_of(entry, bytes) : NAMES;

    if (i == NAMES || (found[i].entry[0] && found[i].place <= place))
        return;
    memcpy(found[i].entry, entry, bytes);
    found[i].entry[bytes] = '\0';
    found[i].place = place;
}

static void found_write(const struct found *found, struct environ_text *ret)
{
    ret->bytes = 0;
    for (size_t i = 0; i < NAMES; i++) {
        size_t bytes = strlen(found[i].entry) + 1;
        if (bytes == 1 || ret->bytes + bytes > sizeof(ret->text))
            continue;
        memcpy(ret->text + ret->bytes, found[i].entry, bytes);
        ret->bytes += bytes;
    }
}

/* --- the live environment --- */

static bool is_libc(const char *path)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;

    return strncmp(name, "libc.so", 7) == 0 || strncmp(name, "libc-2.", 7) == 0 ||
           strncmp(name, "ld-musl-", 8) == 0 || strncmp(name, "libc.musl-", 10) == 0;
}

/* Address of the variable in an image of which this is a mapping; 0 none. */
static uint64_t symbol_address(const struct elf_image *e, const struct maps_entry *entry)
{
    struct elf_symbol symbol;
    uint64_t bias;

    if (elf_image_dynamic(e, "environ", &symbol) < 0 &&
        elf_image_dynamic(e, "__environ", &symbol) < 0)
        return 0;
    return elf_load_bias(e, entry, &bias) == 0 ? bias + symbol.vaddr : 0;
}

static uint64_t file_address(uint32_t tgid, const struct maps_entry *entry)
{
    _cleanup_mapped_file_ struct mapped_file file = MAPPED_FILE_NONE;
    _cleanup_free_ struct elf_image *e = calloc(1, sizeof(*e));
    uint64_t address = 0;

    if (!e || mapped_file_get(tgid, entry, LIBRARY_BYTES_MAX, &file) < 0)
        return 0;
    if (elf_image_init(e, file.data, file.bytes, NULL) == 0 && e->machine == ELF_MACHINE_HOST)
        address = symbol_address(e, entry);
    return file.is_torn ? 0 : address;
}

static void place_find(uint32_t tgid, struct environ_place *place)
{
    struct maps_reader *reader = malloc(sizeof(*reader));
    _cleanup_free_ struct maps_reader *owned = reader;
    _cleanup_free_ char *text = NULL;
    uint64_t libc_inode = 0, libc_address = 0;
    char exe[MAPS_PATH_MAX] = "";
    struct maps_entry entry;
    ssize_t n = procfs_read(tgid, "maps", MAPS_BYTES_MAX, &text);

    place->looked = true;
    if (n < 0 || !reader)
        return;
    procfs_exe(tgid, exe, sizeof(exe));
    maps_reader_init(reader, text, n);
    while (!place->address && maps_next(reader, &entry) > 0) {
        if (!entry.inode)
            continue;
        if (exe[0] && strcmp(entry.path, exe) == 0) {
            /* the executable's own copy is the one that counts where it has one */
            place->address = file_address(tgid, &entry);
            exe[0] = '\0';
        } else if (!libc_inode && is_libc(entry.path)) {
            libc_inode = entry.inode;
            libc_address = file_address(tgid, &entry);
        }
    }
    if (!place->address)
        place->address = libc_address;
}

/* A window over the process's memory: strings lie side by side. */
struct window {
    int fd;
    uint64_t start;
    size_t bytes;
    uint64_t budget;
    char data[WINDOW_BYTES];
};

/* The text at an address, at most VALUE_MAX bytes of it; NULL unreadable or the budget is spent. */
static const char *window_text(struct window *w, uint64_t address, size_t *ret_bytes)
{
    uint64_t into = address - w->start;

    if (address < w->start || into >= w->bytes ||
        (w->bytes - into < VALUE_MAX && !memchr(w->data + into, '\0', w->bytes - into))) {
        ssize_t n;
        if (w->budget < sizeof(w->data))
            return NULL;
        w->budget -= sizeof(w->data);
        w->bytes = 0;
        n = pread(w->fd, w->data, sizeof(w->data), (off_t)address);
        if (n <= 0)
            return NULL;
        w->start = address;
        w->bytes = n;
        into = 0;
    }
    *ret_bytes = strnlen(w->data + into, w->bytes - into < VALUE_MAX ? w->bytes - into : VALUE_MAX);
    return w->data + into;
}

struct pointer {
    uint64_t address;
    uint32_t place;
};

static int pointer_compare(const void *a, const void *b)
{
    const struct pointer *x = a, *y = b;
    return (x->address > y->address) - (x->address < y->address);
}

/* The array of pointers up to its NULL, ENTRIES_MAX, or where it cannot be read. Returns how many.
 */
static size_t pointers_read(int fd, uint64_t array, struct pointer *ret)
{
    uint64_t chunk[512];
    size_t count = 0;

    while (count < ENTRIES_MAX) {
        ssize_t n = pread(fd, chunk, sizeof(chunk), (off_t)(array + count * sizeof(chunk[0])));
        size_t got = n > 0 ? (size_t)n / sizeof(chunk[0]) : 0;
        if (!got)
            return count;
        for (size_t i = 0; i < got && count < ENTRIES_MAX; i++, count++) {
            if (!chunk[i])
                return count;
            ret[count] = (struct pointer){chunk[i], (uint32_t)count};
        }
    }
    return count;
}

static int live_read(uint32_t tgid, struct environ_place *place, struct found *found)
{
    _cleanup_free_ struct pointer *pointers = calloc(ENTRIES_MAX, sizeof(*pointers));
    struct window *w = calloc(1, sizeof(*w));
    _cleanup_free_ struct window *owned = w;
    uint64_t array = 0;
    size_t count;
    char path[64];

    if (!w || !pointers)
        return -ENOMEM;
    snprintf(path, sizeof(path), "/proc/%u/mem", tgid);
    _cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (pread(fd, &array, sizeof(array), (off_t)place->address) != sizeof(array) || !array)
        return -ENODATA; /* before the C library has begun, or cleared */
    w->fd = fd;
    w->budget = BYTES_MAX;
    count = pointers_read(fd, array, pointers);
    if (!count)
        return -ENODATA;
    /* in the order of addresses, so that each part of memory is read once */
    qsort(pointers, count, sizeof(*pointers), pointer_compare);
    for (size_t i = 0; i < count; i++) {
        size_t bytes = 0;
        const char *text = window_text(w, pointers[i].address, &bytes);
        if (text)
            found_keep(found, text, bytes, pointers[i].place);
    }
    place->is_costly = w->budget < BYTES_MAX - COSTLY_BYTES;
    return 0;
}

/* --- the environment given at exec --- */

/* setproctitle leaves a title and NULs there: no first entry with a name before '='. */
static bool is_intact(const char *text, size_t bytes)
{
    size_t first = strnlen(text, bytes);
    const char *equals = memchr(text, '=', first);

    if (!equals || equals == text)
        return false;
    for (const char *p = text; p < equals; p++)
        if (*p == ' ' || *p == ':')
            return false;
    return true;
}

static int exec_read(uint32_t tgid, struct found *found)
{
    _cleanup_free_ char *text = NULL;
    ssize_t n = procfs_read_some(tgid, "environ", BYTES_MAX, &text);
    uint32_t place = 0;

    if (n <= 0)
        return n < 0 ? n : -ENODATA;
    if (!is_intact(text, n))
        return -ENODATA;
    for (size_t at = 0; at < (size_t)n;) {
        size_t bytes = strnlen(text + at, n - at);
        found_keep(found, text + at, bytes, place++);
        at += bytes + 1;
    }
    return 0;
}

int environ_read(uint32_t tgid, struct environ_place *place, struct environ_text *ret)
{
    _cleanup_free_ struct found *found = NULL;
    int r = -ENODATA;

    if (place->is_costly && ret->read)
        return 0;
    found = calloc(NAMES, sizeof(*found));
    if (!found)
        return -ENOMEM;
    if (!place->looked)
        place_find(tgid, place);
    if (place->address)
        r = live_read(tgid, place, found);
    ret->live = r == 0;
    if (r < 0)
        r = exec_read(tgid, found);
    ret->read = r == 0;
    found_write(found, ret);
    return r;
}
