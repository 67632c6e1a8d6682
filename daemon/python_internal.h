/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python_internal.h - what the python*.c files share. Nobody else includes it.
 *
 *   python.c          processes, events, upkeep
 *   python_find.c     the interpreter among a process's mappings
 *   python_threads.c  thread ids of versions that do not keep them
 *   python_names.c    code objects and stacks to names
 */
#ifndef NPUMEM_DAEMON_PYTHON_INTERNAL_H
#define NPUMEM_DAEMON_PYTHON_INTERNAL_H

#include "map.h"
#include "python.h"
#include "python_layout.h"

/* What is in an interpreter's file. */
struct python_file {
    uint64_t dev, ino, size_bytes, mtime_ns;
    uint64_t runtime_vaddr, code_type_vaddr; /* 0: not there */
    unsigned minor;
    struct python_file *next;
};

/* A code object under a name; a replaced one gets a new number, so that stacks keep theirs. */
struct python_name {
    char *text;
    uint64_t code, pointer; /* as struct nm_py_code */
    uint32_t verdict;
    bool current;
};

struct code_slot {
    uint64_t code; /* struct map_key */
    uint32_t zero, name;
};

struct stack_slot {
    uint64_t stack; /* struct map_key */
    uint32_t zero, count;
    uint32_t *names;
    uint64_t flags;
};

struct python_process {
    uint32_t tgid;
    bool alive;
    bool has_runtime; /* checked, and known to the kernel programs */
    bool is_refused;  /* it will never fit */
    int mem_fd;       /* /proc/TGID/mem, which stays that of this program image */
    struct python_runtime runtime;
    struct nm_py_process told;
    uint32_t tid_offset; /* of the kernel's thread id in struct pthread, 0 not found yet */
    char error[160];
    struct python_name *names; /* from 1 on */
    uint32_t name_count, name_capacity;
    struct map codes;  /* struct code_slot */
    struct map stacks; /* struct stack_slot */
    struct python_process *next;
};

struct python {
    struct probe_set *set;
    const struct phase_table *phases;
    int processes_fd, threads_fd, codes_fd, stacks_fd, blocks_fd;
    struct python_file *files;
    struct python_process *first;
    unsigned dead_count, turn;
};

/* python_find.c: fills pp->runtime. Returns 1 found and fits; 0 no interpreter, or not up yet;
 * negative errno with pp->error. */
int python_find(struct python *p, struct python_process *pp, const char *maps, size_t bytes);

/* python_threads.c: tells the kernel which thread state each thread has. tid: a thread that was
 * asked for, which is told to have none if it is not found; 0: nobody asked. */
void python_threads_tell(struct python *p, struct python_process *pp, uint32_t tid);

/* python_names.c */
void names_init(struct python_process *pp);
void names_done(struct python_process *pp);
/* Reads and tells what code objects mean, and keeps them as a stack. */
void names_stack(struct python *p, struct python_process *pp, const struct nm_stack *stack,
                 const struct nm_stack_frame *frames);
/* Takes and tells what a code object means by the memory of it that came along. */
void names_code(struct python *p, struct python_process *pp, uint64_t address,
                const struct nm_code_memory *memory);
/* Takes every code object of the process out of the kernel's map. */
void names_untell(struct python *p, struct python_process *pp);
/* Looks whether code objects still are what they were. Returns whether one is not. */
bool names_check(struct python *p, struct python_process *pp);

#endif
