/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan_read.c - the inputs of a scan of a live process.
 *
 * Must not: stop, trace or write to the process; trust its files' contents (elf_image.h checks
 * them).
 */
#include "scan_read.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <unistd.h>

#include "clock.h"
#include "elf_image.h"
#include "mapped_file.h"
#include "procfacts.h"
#include "process_memory.h"
#include "procfs.h"
#include "pyobj.h"
#include "scan_record.h"

#define MAPS_BYTES_MAX (16u << 20)
#define ELF_BYTES_MAX ((uint64_t)4 << 30)
#define PERMISSION_FIX "run the daemon as root or with CAP_SYS_PTRACE"
#define ROOTS_FILE_MAX (64u << 10)
#define PY_VERSION_SYMBOL "Py_Version" /* CPython 3.11 and later: the version as a number */
/* _Py_DebugOffsets at the start of _PyRuntime, 3.13 on: cookie, version, free-threaded. */
#define DEBUG_COOKIE "xdebugpy"
#define DEBUG_FREE_THREADED 16u

struct scan_source {
    uint64_t begin_ns, begin_cpu_ns;
    struct process_memory memory;
};

/* What a scan may cost is processor time: on a busy host it waits for others most of the time. Its
 * time on the wall is bounded, too. */
static uint64_t on_clock(void *userdata)
{
    const struct scan_source *s = userdata;
    uint64_t used = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - s->begin_cpu_ns;
    uint64_t waited = (clock_ns(CLOCK_MONOTONIC) - s->begin_ns) / SCAN_WALL_FACTOR;
    return used > waited ? used : waited;
}

/* Addresses of exported symbols of one file in the process; 0 where there is none. */
static bool symbols_find(uint32_t tgid, const struct image_ranges *ranges, uint32_t file,
                         const char *const *names, size_t count, uint64_t *ret)
{
    const struct image_range *first = image_ranges_first(ranges, file);
    struct maps_entry entry = {
        .start = first->start, .end = first->end, .path = image_ranges_path(ranges, file)};
    _cleanup_mapped_file_ struct mapped_file mapped = MAPPED_FILE_NONE;
    struct elf_image elf;
    uint64_t bias;
    bool found = false;

    memset(ret, 0, count * sizeof(*ret));
    if (mapped_file_get(tgid, &entry, ELF_BYTES_MAX, &mapped) < 0)
        return false;
    if (elf_image_init(&elf, mapped.data, mapped.bytes, NULL) == 0 &&
        image_ranges_bias(ranges, file, &elf, &bias) == 0)
        for (size_t i = 0; i < count; i++) {
            struct elf_symbol symbol;
            if (elf_image_dynamic(&elf, names[i], &symbol) == 0) {
                ret[i] = bias + symbol.vaddr;
                found = true;
            }
        }
    if (mapped.is_torn)
        memset(ret, 0, count * sizeof(*ret));
    return found && !mapped.is_torn;
}

static uint64_t allocator_find(uint32_t tgid, const struct image_ranges *ranges,
                               struct image *image)
{
    static const char *const names[] = {NPUALLOC_SYMBOL};
    uint32_t file = image_ranges_file(ranges, "libtorch_npu");
    uint64_t pointer, allocator;

    if (!file || !symbols_find(tgid, ranges, file, names, 1, &pointer) ||
        image_u64(image, pointer, &allocator) < 0 || !image_pointer(allocator))
        return 0;
    return allocator;
}

static bool python_try(struct scan_input *in, uint32_t tgid, uint32_t file)
{
    static const char *const names[] = {"_PyRuntime", PY_VERSION_SYMBOL};
    uint64_t symbols[2], version = 0, free_threaded;
    char cookie[8];

    if (!symbols_find(tgid, in->ranges, file, names, 2, symbols) || !symbols[0])
        return false;
    in->runtime = symbols[0];
    if (symbols[1] && image_u64(in->image, symbols[1], &version) == 0)
        in->python_minor = python_minor_from_hex(version & UINT32_MAX);
    if (!in->python_minor)
        in->python_minor = python_minor_from_path(image_ranges_path(in->ranges, file));
    if (!in->python_minor)
        in->python_why = "a CPython that does not say its version";
    else if (!pyobj_layout_find(in->python_minor))
        in->python_why = "this version of CPython is not known (3.9 to 3.13 are)";
    if (image_read(in->image, in->runtime, cookie, sizeof(cookie)) == 0 &&
        memcmp(cookie, DEBUG_COOKIE, sizeof(cookie)) == 0 &&
        image_u64(in->image, in->runtime + DEBUG_FREE_THREADED, &free_threaded) == 0 &&
        free_threaded)
        in->python_why = "a free-threaded CPython, whose objects are not known";
    if (in->python_why)
        in->python_minor = 0;
    return true;
}

/* The library of the interpreter, or the executable that has it linked in. */
static void python_find(struct scan_input *in, uint32_t tgid)
{
    const char *path;

    for (uint32_t file = 1; (path = image_ranges_path(in->ranges, file)); file++) {
        const char *name = strrchr(path, '/') + 1;
        if ((strncmp(name, "libpython3", 10) == 0 || strncmp(name, "python", 6) == 0) &&
            python_try(in, tgid, file))
            return;
    }
    /* another name: the executable is the first file of the text nearly always */
    if (image_ranges_path(in->ranges, 1))
        python_try(in, tgid, 1);
}

/* Rows of roots_dir, files in the order of their names; a bad line is reported, the rest counts. */
static int roots_load(struct roots_table *table, const char *directory, struct error *reterr)
{
    struct dirent **entries;
    int count = directory ? scandir(directory, &entries, NULL, alphasort) : 0, r = 0;

    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        size_t length = strlen(name);
        char path[4096];
        char *text;
        snprintf(path, sizeof(path), "%s/%s", directory, name);
        if (length > 5 && name[0] != '.' && strcmp(name + length - 5, ".conf") == 0) {
            ssize_t bytes = procfs_read_file(path, ROOTS_FILE_MAX, &text);
            if (bytes >= 0) {
                int n = roots_table_add(table, path, text, (size_t)bytes, reterr);
                r = n < 0 ? n : r;
                free(text);
            }
        }
        free(entries[i]);
    }
    if (count > 0)
        free(entries);
    return r;
}

static uint64_t start_ticks(uint32_t tgid)
{
    struct stat_facts stat;
    _cleanup_free_ char *text = NULL;
    ssize_t n = procfs_read(tgid, "stat", 4096, &text);

    if (n < 0 || stat_parse(text, (size_t)n, &stat) < 0)
        return 0;
    return stat.start_ticks;
}

struct scan_handle {
    struct scan_source source;
    int pidfd;
    uint64_t ticks;
    char *maps;
    size_t maps_bytes;
    struct image_ranges *ranges;
    struct roots_table *table;
    struct scan_record *record;
    struct image *image;
    struct scan_input input;
    struct error roots_error; /* of a bad line in the rows added by hand */
};

struct scan_handle *scan_close(struct scan_handle *h)
{
    if (!h)
        return NULL;
    process_memory_done(&h->source.memory);
    closep(&h->pidfd);
    image_free(h->image);
    scan_record_free(h->record);
    roots_table_free(h->table);
    image_ranges_free(h->ranges);
    free(h->maps);
    free(h);
    return NULL;
}

const struct scan_input *scan_handle_input(const struct scan_handle *h)
{
    return &h->input;
}

static int image_open(struct scan_handle *h, const struct scan_options *o)
{
    struct memory_reader reader = {.read = process_memory_read, .userdata = &h->source.memory};
    struct image_limits limits = {.now_ns = on_clock,
                                  .now_userdata = &h->source,
                                  .deadline_ns = o->time_ns ? o->time_ns : SCAN_TIME_NS,
                                  .max_bytes = SCAN_READ_BYTES_MAX,
                                  .max_pages = SCAN_PAGES_KEPT};
    int r = image_ranges_new(h->maps, h->maps_bytes, &h->ranges);

    if (r == 0)
        r = roots_table_new(&h->table);
    if (r == 0 && o->record_path)
        r = scan_record_new(&reader, &h->record);
    if (r == 0 && h->record)
        reader = scan_record_reader(h->record);
    return r < 0 ? r : image_new(&reader, &limits, &h->image);
}

/* One byte tells whether its memory may be read at all. */
static int check_readable(struct scan_handle *h, struct error *reterr)
{
    uint32_t tgid = h->source.memory.tgid;
    char byte;
    int r = process_memory_read(&h->source.memory, strtoull(h->maps, NULL, 16), &byte, 1);

    if (r != -EACCES && r != -EPERM)
        return 0;
    r = error_set(reterr, r, "process %u: its memory may not be read", tgid);
    return error_fix(reterr, r, PERMISSION_FIX);
}

int scan_open(uint32_t tgid, const struct scan_options *options, struct scan_handle **ret,
              struct error *reterr)
{
    _cleanup_(scan_closep) struct scan_handle *h = calloc(1, sizeof(*h));
    ssize_t bytes;
    int r;

    if (!h)
        return error_set(reterr, ENOMEM, "out of memory");
    h->source = (struct scan_source){.begin_ns = clock_ns(CLOCK_MONOTONIC),
                                     .begin_cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID),
                                     .memory = process_memory_init(tgid)};
    h->pidfd = procfs_pidfd(tgid);
    h->ticks = start_ticks(tgid);
    if (h->pidfd < 0 || !h->ticks || (options->start_ticks && options->start_ticks != h->ticks))
        return error_set(reterr, ESRCH, "process %u: no such process", tgid);
    bytes = procfs_read(tgid, "maps", MAPS_BYTES_MAX, &h->maps);
    if (bytes <= 0) {
        r = error_set(reterr, bytes < 0 ? (int)bytes : -ESRCH,
                      "process %u: its mappings cannot be read: %s", tgid,
                      bytes < 0 ? strerror((int)-bytes) : "it has none");
        return r == -EACCES || r == -EPERM ? error_fix(reterr, r, PERMISSION_FIX) : r;
    }
    h->maps_bytes = (size_t)bytes;
    r = check_readable(h, reterr);
    if (r < 0)
        return r;
    r = image_open(h, options);
    if (r < 0)
        return error_set(reterr, r, "out of memory");
    roots_load(h->table, options->roots_dir, &h->roots_error);
    h->input = (struct scan_input){.image = h->image,
                                   .ranges = h->ranges,
                                   .table = h->table,
                                   .is_thorough = options->is_thorough,
                                   .include_host = options->include_host};
    h->input.allocator = allocator_find(tgid, h->ranges, h->image);
    python_find(&h->input, tgid);
    *ret = TAKE_PTR(h);
    return 0;
}

int scan_read_process(uint32_t tgid, const struct scan_options *options, struct scan_result **ret,
                      struct error *reterr)
{
    _cleanup_(scan_closep) struct scan_handle *h = NULL;
    _cleanup_(scan_result_freep) struct scan_result *result = NULL;
    int r = scan_open(tgid, options, &h, reterr);

    if (r < 0)
        return r;
    r = scan_process(&h->input, &result);
    if (r < 0)
        return error_set(reterr, r, "process %u: out of memory", tgid);
    result->s.duration_ns = clock_ns(CLOCK_MONOTONIC) - h->source.begin_ns;
    result->s.cpu_ns = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - h->source.begin_cpu_ns;
    if (h->roots_error.what[0] && !result->s.names_reason[0])
        snprintf(result->s.names_reason, sizeof(result->s.names_reason), "%.230s",
                 h->roots_error.what);
    if (!procfs_alive(h->pidfd) || start_ticks(tgid) != h->ticks)
        return error_set(reterr, ESRCH, "process %u ended while it was read", tgid);
    if (h->record) {
        r = scan_record_write(h->record, options->record_path, &h->input, h->maps, h->maps_bytes,
                              reterr);
        if (r < 0)
            return r;
    }
    *ret = TAKE_PTR(result);
    return 0;
}

int scan_read_pool(uint32_t tgid, const struct scan_options *options, struct kv_pool *ret,
                   struct error *reterr)
{
    _cleanup_(scan_closep) struct scan_handle *h = NULL;
    struct error error = {0};
    int r = scan_open(tgid, options, &h, reterr);

    if (r < 0)
        return r;
    r = kv_pool_find(&h->input, ret, &error);
    if (!procfs_alive(h->pidfd) || start_ticks(tgid) != h->ticks)
        return error_set(reterr, ESRCH, "process %u ended while it was read", tgid);
    return r < 0 ? error_set(reterr, r, "%s", error.what) : 0;
}
