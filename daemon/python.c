/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python.c - see python.h. The parts are listed in python_internal.h.
 *
 * Invariant: what the kernel's maps say of a tgid is of the record in the list that is alive; when
 * the process ends, every key of it is taken out, so that a reused pid inherits nothing.
 */
#include "python.h"

#include <bpf/bpf.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "log.h"
#include "procfs.h"
#include "python_internal.h"

#define MAPS_BYTES_MAX (64u << 20)
#define STATUS_BYTES_MAX (64u << 10)
#define PHASES_BYTES_MAX (1u << 20)
#define BLOCKS_BATCH 8192
#define CHECK_TURNS 5 /* seconds between two looks at all code objects */

int python_new(struct probe_set *set, const struct phase_table *phases, struct python **ret)
{
    struct python *p = calloc(1, sizeof(*p));

    if (!p)
        return -ENOMEM;
    p->set = set;
    p->phases = phases;
    p->processes_fd = probe_set_map_fd(set, "py_processes");
    p->threads_fd = probe_set_map_fd(set, "py_threads");
    p->codes_fd = probe_set_map_fd(set, "py_codes");
    p->stacks_fd = probe_set_map_fd(set, "py_stacks");
    p->blocks_fd = probe_set_map_fd(set, "py_blocks");
    *ret = p;
    return 0;
}

static void process_free(struct python_process *pp)
{
    names_done(pp);
    if (pp->mem_fd >= 0)
        close(pp->mem_fd);
    free(pp);
}

struct python *python_free(struct python *p)
{
    if (!p)
        return NULL;
    while (p->first) {
        struct python_process *next = p->first->next;
        process_free(p->first);
        p->first = next;
    }
    while (p->files) {
        struct python_file *next = p->files->next;
        free(p->files);
        p->files = next;
    }
    free(p);
    return NULL;
}

static int conf_only(const struct dirent *d)
{
    size_t length = strlen(d->d_name);
    return d->d_name[0] != '.' && length > 5 && strcmp(d->d_name + length - 5, ".conf") == 0;
}

void python_phases_read(struct phase_table *t, const char *config_dir)
{
    struct dirent **names = NULL;
    char dir[512], path[1024];
    int count;

    snprintf(dir, sizeof(dir), "%s/phases.d", config_dir);
    count = scandir(dir, &names, conf_only, alphasort);
    for (int i = 0; i < count; i++) {
        _cleanup_free_ char *text = NULL;
        struct error error = {};
        ssize_t n;

        snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
        free(names[i]);
        n = procfs_read_file(path, PHASES_BYTES_MAX, &text);
        if (n < 0)
            error_set(&error, n, "%s: %s", path, strerror(-n));
        else
            n = phase_table_parse(t, text, n, path, &error);
        if (n < 0)
            log_warning("%s; the phases of this file are not used", error.what);
    }
    free(names);
}

/* The newest record of a tgid. */
static struct python_process *process_find(struct python *p, uint32_t tgid)
{
    struct python_process *pp = p->first;

    while (pp && pp->tgid != tgid)
        pp = pp->next;
    return pp;
}

static int memory_read(void *userdata, uint64_t address, void *buffer, size_t bytes)
{
    const struct python_process *pp = userdata;
    ssize_t n = pread(pp->mem_fd, buffer, bytes, address);

    return n == (ssize_t)bytes ? 0 : n < 0 ? -errno : -EFAULT;
}

static struct python_process *process_new(struct python *p, uint32_t tgid)
{
    struct python_process *pp = calloc(1, sizeof(*pp));
    char path[64];

    if (!pp)
        return NULL;
    snprintf(path, sizeof(path), "/proc/%u/mem", tgid);
    pp->tgid = tgid;
    pp->alive = true;
    pp->mem_fd = open(path, O_RDONLY | O_CLOEXEC);
    pp->runtime.reader = (struct memory_reader){memory_read, pp};
    names_init(pp);
    pp->next = p->first;
    p->first = pp;
    return pp;
}

/* Which pid namespace its thread ids are of, if not the host's own. */
static void namespace_read(struct python_process *pp)
{
    _cleanup_free_ char *text = NULL;
    char path[64], *line;
    struct stat st;
    unsigned levels = 0;

    if (procfs_read(pp->tgid, "status", STATUS_BYTES_MAX, &text) <= 0)
        return;
    line = strstr(text, "\nNSpid:");
    for (char *c = line ? line + 7 : NULL; c && *c && *c != '\n'; c++)
        levels += *c >= '0' && *c <= '9' && (c[-1] < '0' || c[-1] > '9');
    snprintf(path, sizeof(path), "/proc/%u/ns/pid", pp->tgid);
    if (levels < 2 || stat(path, &st) < 0)
        return;
    /* as the kernel keeps it, which is not as stat(2) gives it */
    pp->told.ns_dev = (uint64_t)major(st.st_dev) << 20 | minor(st.st_dev);
    pp->told.ns_ino = st.st_ino;
}

static void process_tell(struct python *p, struct python_process *pp)
{
    pp->told = (struct nm_py_process){
        .interpreters = pp->runtime.address + pp->runtime.layout.runtime_interpreters,
        .layout = pp->runtime.layout.walk,
    };
    struct python_collector collector;
    if (python_collector_read(&pp->runtime, &collector) < 0)
        pp->told.layout.interpreter_gc = 0; /* as if it were not known */
    namespace_read(pp);
    pp->has_runtime = true;
    python_threads_tell(p, pp, 0);
    if (bpf_map_update_elem(p->processes_fd, &pp->tgid, &pp->told, BPF_ANY) < 0) {
        snprintf(pp->error, sizeof(pp->error), "too many Python processes: no phases");
        pp->has_runtime = false;
        return;
    }
    probe_set_python_changed(p->set);
    log_debug("process %u: CPython 3.%u%s", pp->tgid, pp->runtime.layout.minor,
              pp->told.ns_ino ? " in a pid namespace" : "");
}

void python_look(struct python *p, uint32_t tgid, const char *maps, size_t bytes)
{
    struct python_process *pp = process_find(p, tgid);
    int r;

    if (pp && pp->alive && pp->has_runtime)
        return;
    if (!pp || !pp->alive)
        pp = process_new(p, tgid);
    if (!pp)
        return;
    if (!probe_set_has_python(p->set)) {
        if (memmem(maps, bytes, "python3.", 8))
            snprintf(pp->error, sizeof(pp->error), "Python frames are not looked at: no phases");
        return;
    }
    if (pp->mem_fd < 0) {
        snprintf(pp->error, sizeof(pp->error), "cannot read its memory: no phases");
        return;
    }
    r = python_find(p, pp, maps, bytes);
    if (r > 0)
        process_tell(p, pp);
    else if (r < 0)
        log_debug("process %u: %s", tgid, pp->error);
}

/* Ended processes are at the end of the list, as far as it matters; the oldest goes. */
static void dead_limit(struct python *p)
{
    struct python_process **last = NULL;

    if (++p->dead_count <= PYTHON_DEAD_MAX)
        return;
    for (struct python_process **at = &p->first; *at; at = &(*at)->next)
        if (!(*at)->alive)
            last = at;
    if (last) {
        struct python_process *pp = *last;
        *last = pp->next;
        process_free(pp);
        p->dead_count--;
    }
}

/* Makes room in the kernel's table of small blocks. Cost: about 10 ms. */
static void blocks_forget(const struct python *p, uint32_t tgid)
{
    _cleanup_free_ struct nm_py_block_key *keys = calloc(BLOCKS_BATCH, sizeof(*keys));
    _cleanup_free_ uint32_t *values = calloc(BLOCKS_BATCH, sizeof(*values));
    uint32_t at = 0, count;
    int r = 0;

    for (bool first = true; keys && values && r == 0; first = false) {
        count = BLOCKS_BATCH;
        r = bpf_map_lookup_batch(p->blocks_fd, first ? NULL : &at, &at, keys, values, &count, NULL);
        if (r < 0 && errno != ENOENT) /* that is the end of the table */
            break;
        for (uint32_t i = 0; i < count; i++)
            if (keys[i].tgid == tgid)
                bpf_map_delete_elem(p->blocks_fd, &keys[i]);
    }
}

void python_forget(struct python *p, uint32_t tgid)
{
    struct python_process *pp = process_find(p, tgid);

    if (!pp || !pp->alive)
        return;
    bpf_map_delete_elem(p->processes_fd, &tgid);
    probe_set_python_changed(p->set);
    if (pp->stacks.count)
        blocks_forget(p, tgid);
    names_untell(p, pp);
    pp->alive = false;
    pp->has_runtime = false;
    if (pp->mem_fd >= 0)
        close(pp->mem_fd);
    pp->mem_fd = -1;
    dead_limit(p);
}

void python_maintain(struct python *p)
{
    bool changed = false, check = ++p->turn % CHECK_TURNS == 0;

    for (struct python_process *pp = p->first; pp; pp = pp->next) {
        if (!pp->alive)
            continue;
        if (!pp->has_runtime && !pp->is_refused && pp->mem_fd >= 0) {
            _cleanup_free_ char *maps = NULL;
            ssize_t n = procfs_read(pp->tgid, "maps", MAPS_BYTES_MAX, &maps);
            if (n > 0)
                python_look(p, pp->tgid, maps, n);
        }
        if (!pp->has_runtime)
            continue;
        python_threads_tell(p, pp, 0);
        if (check)
            changed |= names_check(p, pp);
    }
    if (changed)
        probe_set_python_changed(p->set);
}

void python_event(struct python *p, const struct nm_event *event, size_t size)
{
    struct python_process *pp = process_find(p, event->tgid);

    if (!pp || !pp->alive)
        return;
    if (event->kind == NM_EVENT_THREAD) {
        python_threads_tell(p, pp, event->tid);
        return;
    }
    if (event->kind == NM_EVENT_CODE) {
        if (size >= sizeof(*event) + sizeof(struct nm_code_memory))
            names_code(p, pp, event->code.code, (const struct nm_code_memory *)(event + 1));
        return;
    }
    if (event->stack.count > NM_STACK_FRAMES ||
        size < sizeof(*event) + event->stack.count * sizeof(struct nm_stack_frame))
        return;
    names_stack(p, pp, &event->stack, (const struct nm_stack_frame *)(event + 1));
}

static const struct stack_slot *stack_find(struct python *p, uint32_t tgid, uint32_t stack,
                                           struct python_process **ret)
{
    struct python_process *pp = process_find(p, tgid);
    uint32_t number = pp ? map_find(&pp->stacks, stack, 0) : 0;

    *ret = pp;
    return number ? map_at(&pp->stacks, number) : NULL;
}

uint32_t python_phase(struct python *p, uint32_t tgid, uint32_t stack, uint32_t phase)
{
    struct python_process *pp;
    const struct stack_slot *s = stack ? stack_find(p, tgid, stack, &pp) : NULL;
    struct phase_walk walk = {};

    if (!s) /* a class with an unknown frame outside it is marked so already */
        return phase & ~NM_PHASE_UNNAMED;
    for (uint32_t i = 0; i < s->count; i++)
        phase_walk_frame(&walk, s->names[i] ? pp->names[s->names[i]].verdict : 0);
    return phase_walk_end(&walk, s->flags & NM_STACK_CUT) & ~NM_PHASE_UNNAMED;
}

size_t python_stack(struct python *p, uint32_t tgid, uint32_t stack, const char **ret, size_t max)
{
    struct python_process *pp;
    const struct stack_slot *s = stack ? stack_find(p, tgid, stack, &pp) : NULL;
    size_t n = 0;

    for (; s && n < s->count && n < max; n++)
        ret[n] = s->names[n] ? pp->names[s->names[n]].text : "?";
    return n;
}

bool python_has_summed(struct python *p, uint32_t tgid, uint32_t start_ticks, uint16_t device,
                       uint64_t address)
{
    struct nm_py_block_key key = {
        .address = address, .tgid = tgid, .life = start_ticks << 6 | device};
    uint32_t phase;

    return p->blocks_fd >= 0 && bpf_map_lookup_elem(p->blocks_fd, &key, &phase) == 0 &&
           phase != NM_PY_FOLLOWED;
}

const char *python_reason(struct python *p, uint32_t tgid)
{
    struct python_process *pp = process_find(p, tgid);
    return pp && pp->alive && pp->error[0] ? pp->error : NULL;
}

bool python_collector(struct python *p, uint32_t tgid, struct python_collector *ret)
{
    struct python_process *pp = p ? process_find(p, tgid) : NULL;

    return pp && pp->alive && pp->has_runtime && pp->told.layout.interpreter_gc &&
           python_collector_read(&pp->runtime, ret) == 0;
}
