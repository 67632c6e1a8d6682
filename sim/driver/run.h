/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.h - one rank's process executing its part of a scenario.
 *
 * A handler does one statement and returns the library's code (0 success); where the scenario
 * itself is wrong (an empty block is freed, a number is out of range) it reports with thread_fail
 * and returns RUN_FAILED. The interpreter compares the code with what the statement expects.
 */
#ifndef NPUSIM_RUN_H
#define NPUSIM_RUN_H

#include <pthread.h>
#include <signal.h>

#include "acl.h"
#include "control.h"
#include "scenario.h"
#include "truth.h"

#define RUN_FAILED INT64_MIN

enum slot_kind {
    SLOT_EMPTY,
    SLOT_DEVICE,
    SLOT_HOST,
    SLOT_REGISTERED,
    SLOT_TOUCHED,
    SLOT_RANGE,
    SLOT_HANDLE,
    SLOT_SEGMENT,
    SLOT_POOL,
    SLOT_POOL_BLOCK,
    SLOT_STREAM,
    SLOT_COMM,
    SLOT_TENSOR,
    SLOT_CONTEXT,
    SLOT_OPENED, /* memory of another process, opened by key */
    SLOT_KINDS,
};

/* What a name of the scenario holds in this process. */
struct slot {
    enum slot_kind kind;
    uint32_t cell;            /* truth cell, where kind has one */
    uint64_t value;           /* address, handle, stream, ... */
    int64_t bytes, hal_bytes; /* as booked */
    int64_t map_bytes;        /* HANDLE: what `map` maps, also of memory that another rank owns */
    void *more;               /* SEGMENT: struct segment */
};

enum { BARRIERS_PER_THREAD = 64, THREADS_MAX = 1024 };

struct process {
    const struct scenario *scenario;
    const struct rank *rank;
    char name[SCENARIO_NAME_MAX * 2]; /* rank name; RANK.FORK in a forked child */
    struct acl acl;
    struct torch torch;
    struct control control;
    struct slot *slots;
    struct truth *truth;
    const char *truth_directory; /* NULL: no truth files */
    int64_t device;              /* -1: none */
    bool has_torch;
    volatile sig_atomic_t stop; /* SIGTERM or SIGINT came */
};

struct thread {
    struct process *process;
    int64_t vars[SCENARIO_VARS_MAX];
    uint64_t random;
    int64_t device; /* current device of this thread */
    unsigned phase;
    unsigned number; /* of its kind of thread */
    char name[16];
    uint32_t begin, end;
    pthread_t *children;
    size_t child_count;
    uint32_t all_slot; /* slot that name[*] stands for right now */
    struct slot anonymous;
    struct {
        char name[SCENARIO_NAME_MAX];
        unsigned times;
    } meetings[BARRIERS_PER_THREAD]; /* barriers and checkpoints already passed */
    size_t meeting_count;
};

/* Reports "file:line: statement: what" on stderr. Returns RUN_FAILED. */
__attribute__((format(printf, 3, 4))) int64_t thread_fail(struct thread *t, const struct op *op,
                                                          const char *format, ...);

/* Value of an expression operand; `absent` when it was not given. Negative results of evaluation
 * end the statement: returns false after reporting. */
bool operand_int(struct thread *t, const struct op *op, unsigned index, int64_t absent,
                 int64_t *ret);
bool operand_size(struct thread *t, const struct op *op, unsigned index, int64_t *ret); /* > 0 */
bool operand_text(struct thread *t, const struct op *op, unsigned index, char *out, size_t size);
int64_t operand_choice(const struct op *op, unsigned index, int64_t absent);

/* The slot of a reference: empty (slot_new) or of that kind (slot_get). NULL after reporting. */
struct slot *slot_new(struct thread *t, const struct op *op, unsigned index);
struct slot *slot_get(struct thread *t, const struct op *op, unsigned index, enum slot_kind kind);
struct slot *slot_any(struct thread *t, const struct op *op, unsigned index);
const char *slot_kind_name(enum slot_kind kind);

/* Books memory into truth and into the slot. */
void slot_book(struct thread *t, struct slot *slot, enum slot_kind slot_kind,
               enum truth_kind truth_kind, unsigned module, unsigned device, uint64_t value,
               int64_t bytes, int64_t hal_bytes);
void slot_clear(struct thread *t, struct slot *slot);

/* Sets the thread's device, as each thread of a rank with a device does first. */
int thread_device(struct thread *t, int64_t device);

/* Writes the truth of the process: into its truth file and, by checkpoints, the control directory.
 * Returns 0 or a negative errno. */
int truth_report(struct thread *t, const char *checkpoint, char **ret_text, size_t *ret_size);

/* Runs the main thread of a rank. Returns the exit code. */
int process_run(struct process *process);

typedef int64_t (*op_handler)(struct thread *t, const struct op *op);
extern const op_handler op_handlers[OP_COUNT];

#define HANDLER(name) int64_t name(struct thread *t, const struct op *op)
HANDLER(do_let);
HANDLER(do_seed);
HANDLER(do_sleep);
HANDLER(do_barrier);
HANDLER(do_checkpoint);
HANDLER(do_hold);
HANDLER(do_wait);
HANDLER(do_exit);
HANDLER(do_abort);
HANDLER(do_kill);
HANDLER(do_print);
HANDLER(do_device);
HANDLER(do_device_reset);
HANDLER(do_context);
HANDLER(do_context_use);
HANDLER(do_context_destroy);
HANDLER(do_malloc);
HANDLER(do_free);
HANDLER(do_free_address);
HANDLER(do_host);
HANDLER(do_register);
HANDLER(do_unregister);
HANDLER(do_forget);
HANDLER(do_touch);
HANDLER(do_reserve);
HANDLER(do_release);
HANDLER(do_create);
HANDLER(do_destroy);
HANDLER(do_map);
HANDLER(do_unmap);
HANDLER(do_retain);
HANDLER(do_export);
HANDLER(do_import);
HANDLER(do_ipc_export);
HANDLER(do_ipc_open);
HANDLER(do_ipc_close);
HANDLER(do_segment);
HANDLER(do_grow);
HANDLER(do_shrink);
HANDLER(do_segment_free);
HANDLER(do_pool);
HANDLER(do_pool_malloc);
HANDLER(do_pool_free);
HANDLER(do_pool_trim);
HANDLER(do_pool_destroy);
HANDLER(do_stream);
HANDLER(do_stream_destroy);
HANDLER(do_sync);
HANDLER(do_hccl);
HANDLER(do_hccl_destroy);
HANDLER(do_allreduce);
HANDLER(do_copy);
HANDLER(do_memset);
HANDLER(do_meminfo);
HANDLER(do_atb);
HANDLER(do_operator);
HANDLER(do_call);
HANDLER(do_tensor);
HANDLER(do_del);
HANDLER(do_record_stream);
HANDLER(do_stream_done);
HANDLER(do_empty_cache);
HANDLER(do_workspace);

#endif
