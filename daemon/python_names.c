/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python_names.c - code objects and stacks to names; see python_internal.h.
 *
 * A code object is named as soon as the first stack that has it arrives, and told to the kernel
 * programs; of a failed call its memory arrives before the stack. Its memory may become another
 * code object later: the programs compare the name's address where it means a phase, names_check()
 * that of all.
 */
#include <bpf/bpf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "python_internal.h"

#define TEXT_MAX (2 * PYTHON_NAME_MAX + 32)
#define CHUNK_SHIFT 8
#define CHECK_BATCH 512

void names_init(struct python_process *pp)
{
    map_init(&pp->codes, sizeof(struct code_slot), CHUNK_SHIFT, NULL);
    map_init(&pp->stacks, sizeof(struct stack_slot), CHUNK_SHIFT, NULL);
}

void names_done(struct python_process *pp)
{
    for (uint32_t n = 0; (n = map_next(&pp->stacks, n));)
        free(((struct stack_slot *)map_at(&pp->stacks, n))->names);
    for (uint32_t i = 1; i <= pp->name_count; i++)
        free(pp->names[i].text);
    free(pp->names);
    map_clear(&pp->codes);
    map_clear(&pp->stacks);
}

static void code_tell(struct python *p, const struct python_process *pp,
                      const struct python_name *name)
{
    struct nm_py_code_key key = {.code = name->code, .tgid = pp->tgid};
    struct nm_py_code value = {.name = name->pointer, .verdict = name->verdict};

    bpf_map_update_elem(p->codes_fd, &key, &value, BPF_ANY);
}

/* "Class.method (file.py:12)" */
static char *code_text(const struct python_code *code)
{
    const char *file = strrchr(code->file, '/');
    char text[TEXT_MAX];

    snprintf(text, sizeof(text), "%s (%s:%u)", code->has_qualified ? code->qualified : code->name,
             file ? file + 1 : code->file, code->line);
    return strdup(text);
}

/* Number of a new name of a code object, 0 if it cannot be kept. */
static uint32_t name_add(struct python *p, struct python_process *pp, uint64_t address,
                         const struct python_code *code)
{
    struct phase_code what = {code->has_qualified ? code->qualified : NULL, code->name, code->file};
    uint32_t slot = map_find(&pp->codes, address, 0);
    struct code_slot *s;
    char *text;

    if (pp->name_count == PYTHON_NAMES_MAX)
        return 0;
    if (pp->name_count + 1 >= pp->name_capacity) {
        uint32_t capacity = pp->name_capacity ? 2 * pp->name_capacity : 256;
        struct python_name *names = reallocarray(pp->names, capacity, sizeof(*names));
        if (!names)
            return 0;
        pp->names = names;
        pp->name_capacity = capacity;
    }
    text = code_text(code);
    if (!text || (!slot && map_add(&pp->codes, address, 0, &slot) < 0)) {
        free(text);
        return 0;
    }
    s = map_at(&pp->codes, slot);
    if (s->name)
        pp->names[s->name].current = false;
    s->name = ++pp->name_count;
    pp->names[s->name] = (struct python_name){
        .code = address,
        .pointer = code->name_pointer,
        .verdict = phase_verdict(p->phases, &what),
        .text = text,
        .current = true,
    };
    code_tell(p, pp, &pp->names[s->name]);
    return s->name;
}

/* By what the process has there now. */
static uint32_t name_read(struct python *p, struct python_process *pp, uint64_t address)
{
    struct python_code code;

    return python_code_read(&pp->runtime, address, &code) < 0 ? 0 : name_add(p, pp, address, &code);
}

void names_code(struct python *p, struct python_process *pp, uint64_t address,
                const struct nm_code_memory *memory)
{
    uint32_t slot = map_find(&pp->codes, address, 0);
    uint32_t name = slot ? ((struct code_slot *)map_at(&pp->codes, slot))->name : 0;
    struct python_code code;

    if (pp->has_runtime && python_code_decode(&pp->runtime, address, memory, &code) >= 0 &&
        (!name || pp->names[name].pointer != code.name_pointer))
        name_add(p, pp, address, &code);
}

static uint32_t name_of(struct python *p, struct python_process *pp, uint64_t code)
{
    uint32_t slot = map_find(&pp->codes, code, 0);
    return slot ? ((struct code_slot *)map_at(&pp->codes, slot))->name : name_read(p, pp, code);
}

/* Whether a code object still has the name it was told by. */
static bool name_is_current(const struct python_process *pp, const struct python_name *name)
{
    const struct memory_reader *reader = &pp->runtime.reader;
    uint64_t pointer;

    return reader->read(reader->userdata, name->code + pp->runtime.layout.walk.code_name, &pointer,
                        sizeof(pointer)) < 0 ||
           pointer == name->pointer;
}

void names_stack(struct python *p, struct python_process *pp, const struct nm_stack *stack,
                 const struct nm_stack_frame *frames)
{
    uint32_t number = map_find(&pp->stacks, stack->stack, 0);
    struct stack_slot *s;
    uint32_t *names;

    if (!pp->has_runtime)
        return;
    names = calloc(stack->count ? stack->count : 1, sizeof(*names));
    if (!names)
        return;
    for (uint32_t i = 0; i < stack->count; i++) {
        const struct nm_stack_frame *f = &frames[i];
        names[i] = name_of(p, pp, f->code);
        /* the name that it had then is it, whatever is there now */
        if (names[i] && f->name != pp->names[names[i]].pointer &&
            !name_is_current(pp, &pp->names[names[i]]))
            names[i] = name_read(p, pp, f->code);
        if (!names[i])
            continue;
        if (f->name && f->name != pp->names[names[i]].pointer)
            names[i] = 0; /* what ran is gone, and another code object lies there */
        else if (f->name) /* the kernel's map may have dropped it */
            code_tell(p, pp, &pp->names[names[i]]);
    }
    if (!number && (pp->stacks.count == PYTHON_STACKS_MAX ||
                    map_add(&pp->stacks, stack->stack, 0, &number) < 0)) {
        free(names);
        return;
    }
    s = map_at(&pp->stacks, number);
    free(s->names);
    s->names = names;
    s->count = stack->count;
    s->flags = stack->flags;
}

/* Makes the kernel send every stack again. */
static void stacks_untell(const struct python *p, const struct python_process *pp)
{
    for (uint32_t n = 0; (n = map_next(&pp->stacks, n));) {
        const struct stack_slot *s = map_at(&pp->stacks, n);
        struct nm_py_stack_key key = {.tgid = pp->tgid, .stack = (uint32_t)s->stack};
        bpf_map_delete_elem(p->stacks_fd, &key);
    }
}

void names_untell(struct python *p, struct python_process *pp)
{
    for (uint32_t n = 0; (n = map_next(&pp->codes, n));) {
        const struct code_slot *s = map_at(&pp->codes, n);
        struct nm_py_code_key key = {.code = s->code, .tgid = pp->tgid};
        bpf_map_delete_elem(p->codes_fd, &key);
    }
    stacks_untell(p, pp);
    map_clear(&pp->codes);
}

/* Many words of the process in one call; those that cannot be read keep their value. */
static void words_read(const struct python_process *pp, const uint64_t *at, uint64_t *words,
                       size_t n)
{
    struct iovec local[CHECK_BATCH], remote[CHECK_BATCH];

    for (size_t done = 0; done < n;) {
        size_t count = n - done < CHECK_BATCH ? n - done : CHECK_BATCH;
        ssize_t got;
        for (size_t i = 0; i < count; i++) {
            local[i] = (struct iovec){&words[done + i], sizeof(words[0])};
            remote[i] = (struct iovec){(void *)at[done + i], sizeof(words[0])};
        }
        got = process_vm_readv(pp->tgid, local, count, remote, count, 0);
        if (got < 0)
            got = 0;
        done += (size_t)got / sizeof(words[0]);
        if ((size_t)got < count * sizeof(words[0]))
            done++; /* this one cannot be read */
    }
}

bool names_check(struct python *p, struct python_process *pp)
{
    size_t count = 0, most = pp->codes.count;
    _cleanup_free_ uint64_t *at = calloc(most + 1, sizeof(*at));
    _cleanup_free_ uint64_t *words = calloc(most + 1, sizeof(*words));
    _cleanup_free_ uint32_t *numbers = calloc(most + 1, sizeof(*numbers));
    bool changed = false;

    if (!at || !words || !numbers)
        return false;
    for (uint32_t n = 0; count < most && (n = map_next(&pp->codes, n));) {
        uint32_t name = ((struct code_slot *)map_at(&pp->codes, n))->name;
        numbers[count] = name;
        words[count] = pp->names[name].pointer;
        at[count++] = pp->names[name].code + pp->runtime.layout.walk.code_name;
    }
    words_read(pp, at, words, count);
    for (size_t i = 0; i < count; i++)
        if (words[i] != pp->names[numbers[i]].pointer) {
            name_read(p, pp, pp->names[numbers[i]].code);
            changed = true;
        }
    if (changed)
        stacks_untell(p, pp);
    return changed;
}
