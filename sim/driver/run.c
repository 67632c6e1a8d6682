/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - the interpreter: blocks, loops, threads and forks; every other statement is a handler.
 *
 * Owns the flow of control of a rank. Must not parse or allocate per statement. Invariants: a
 * range of operations is always entered and left through its opening statement; the repeat stack
 * is as deep as the parser allows blocks to nest.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run.h"

int64_t thread_fail(struct thread *t, const struct op *op, const char *format, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, format);
    vsnprintf(text, sizeof(text), format, ap);
    va_end(ap);
    fprintf(stderr, "%s:%u: %s (rank %s, thread %s): %s\n", t->process->scenario->path, op->line,
            statement_of(op->code)->name, t->process->name, t->name, text);
    return RUN_FAILED;
}

struct loop {
    uint32_t op;
    int64_t left, done, variable;
};

static int range_run(struct thread *t, uint32_t begin, uint32_t end);

static int thread_main(struct thread *t)
{
    prctl(PR_SET_NAME, t->name);
    if (t->process->device >= 0) {
        int r = thread_device(t, t->process->device);
        if (r) {
            fprintf(stderr, "%s: rank %s, thread %s: aclrtSetDevice(%lld) failed: %d\n",
                    t->process->scenario->path, t->process->name, t->name,
                    (long long)t->process->device, r);
            return -1;
        }
    }
    return range_run(t, t->begin, t->end);
}

static void *thread_entry(void *userdata)
{
    struct thread *t = userdata;
    if (thread_main(t) < 0)
        _exit(1);
    free(t->children);
    free(t);
    return NULL;
}

static void threads_join(struct thread *t)
{
    for (size_t i = 0; i < t->child_count; i++)
        pthread_join(t->children[i], NULL);
    t->child_count = 0;
}

static struct thread *thread_new(const struct thread *parent, const char *name, unsigned number)
{
    struct thread *t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->process = parent->process;
    memcpy(t->vars, parent->vars, sizeof(t->vars));
    t->vars[VAR_THREAD] = number;
    t->number = number;
    t->random = parent->random + 0x5851f42d4c957f2du * (number + 1);
    t->device = -1;
    snprintf(t->name, sizeof(t->name), "%.15s", name);
    return t;
}

static int64_t threads_start(struct thread *t, const struct op *op)
{
    char name[SCENARIO_LINE_MAX];
    int64_t count;
    if (!operand_text(t, op, 0, name, sizeof(name)) || !operand_int(t, op, 1, 1, &count))
        return RUN_FAILED;
    if (count < 0 || count > THREADS_MAX - (int64_t)t->child_count)
        return thread_fail(t, op, "%lld threads: at most %d", (long long)count, THREADS_MAX);
    pthread_t *grown = realloc(t->children, (t->child_count + (size_t)count + 1) * sizeof(*grown));
    if (!grown)
        return thread_fail(t, op, "out of memory");
    t->children = grown;
    for (unsigned i = 0; i < (unsigned)count; i++) {
        struct thread *child = thread_new(t, name, i);
        if (!child)
            return thread_fail(t, op, "out of memory");
        child->begin = (uint32_t)(op - t->process->scenario->ops) + 1;
        child->end = op->jump;
        int r = pthread_create(&t->children[t->child_count], NULL, thread_entry, child);
        if (r) {
            free(child);
            return thread_fail(t, op, "thread %u cannot be made: %s", i, strerror(r));
        }
        t->child_count++;
    }
    return 0;
}

/* The child holds nothing: what its parent has on the device is not its own. */
static int fork_run(struct thread *t, const struct op *op, const char *name)
{
    struct process *process = t->process;
    size_t length = strlen(process->name);

    snprintf(process->name + length, sizeof(process->name) - length, ".%.40s", name);
    memset(process->truth, 0, sizeof(*process->truth));
    process->has_torch = false; /* the allocator of the parent, copied: not this process's truth */
    memset(process->slots, 0, (process->scenario->slot_count + 1) * sizeof(*process->slots));
    t->child_count = 0;
    t->begin = (uint32_t)(op - process->scenario->ops) + 1;
    t->end = op->jump;
    return thread_main(t) < 0 ? 1 : 0;
}

static int64_t process_fork(struct thread *t, const struct op *op)
{
    char name[SCENARIO_LINE_MAX];
    if (!operand_text(t, op, 0, name, sizeof(name)))
        return RUN_FAILED;
    fflush(NULL);
    pid_t tgid = fork();
    if (tgid < 0)
        return thread_fail(t, op, "fork: %s", strerror(errno));
    if (!tgid) {
        int code = fork_run(t, op, name);
        threads_join(t);
        fflush(NULL);
        _exit(code);
    }
    return 0;
}

static int64_t result_check(struct thread *t, const struct op *op, int64_t code)
{
    struct truth *truth = t->process->truth;
    __atomic_fetch_add((uint64_t *)&truth->calls, 1, __ATOMIC_RELAXED);
    if (code == op->expect)
        return code ? (__atomic_fetch_add((uint64_t *)&truth->failures, 1, __ATOMIC_RELAXED), 0)
                    : 0;
    if (code == RUN_FAILED)
        return RUN_FAILED;
    if (op->expect == EXPECT_ANY) {
        __atomic_fetch_add((uint64_t *)&truth->failures, code != 0, __ATOMIC_RELAXED);
        return 0;
    }
    if (code == EXPECT_MISSING)
        return thread_fail(t, op, "this layout has no such function");
    return thread_fail(t, op, "returned %lld where %lld was expected", (long long)code,
                       (long long)op->expect);
}

/* Statements on name[*]: once for every slot that holds something. */
static int64_t all_run(struct thread *t, const struct op *op)
{
    for (uint32_t i = 0; i < op->args[0].slots; i++) {
        t->all_slot = op->args[0].slot + i;
        if (t->process->slots[t->all_slot].kind == SLOT_EMPTY)
            continue;
        if (result_check(t, op, op_handlers[op->code](t, op)) == RUN_FAILED)
            return RUN_FAILED;
    }
    return 0;
}

static int64_t statement_run(struct thread *t, const struct op *op)
{
    if (op->args[0].all)
        return all_run(t, op);
    return result_check(t, op, op_handlers[op->code](t, op));
}

/* Opens a block. Returns the next operation, or 0 after an error (0 is never inside a block). */
static uint32_t block_enter(struct thread *t, const struct op *op, uint32_t at, struct loop *loops,
                            size_t *depth)
{
    int64_t value;
    switch (op->code) {
    case OP_REPEAT:
        if (!operand_int(t, op, 0, 0, &value))
            return 0;
        if (value < 0)
            return thread_fail(t, op, "a count of %lld", (long long)value), 0;
        if (!value)
            return op->jump + 1;
        loops[*depth] = (struct loop){at, value, 0, op->args[1].kind ? op->args[1].value : -1};
        if (loops[*depth].variable >= 0)
            t->vars[loops[*depth].variable] = 0;
        ++*depth;
        return at + 1;
    case OP_IF:
        if (!operand_int(t, op, 0, 0, &value))
            return 0;
        return value ? at + 1 : op->jump + 1;
    case OP_PHASE:
    case OP_FRAMES:
        t->phase = op->phase;
        return at + 1;
    case OP_THREAD:
        return threads_start(t, op) == RUN_FAILED ? 0 : op->jump + 1;
    case OP_FORK:
        return process_fork(t, op) == RUN_FAILED ? 0 : op->jump + 1;
    default:
        return 0;
    }
}

/* The phase around an operation: the innermost PHASE or FRAMES whose range holds it. */
static unsigned phase_around(const struct scenario *s, uint32_t begin, uint32_t at)
{
    for (uint32_t i = at; i-- > begin;) {
        const struct op *op = &s->ops[i];
        if ((op->code == OP_PHASE || op->code == OP_FRAMES) && op->jump > at)
            return op->phase;
    }
    return 0;
}

static uint32_t block_leave(struct thread *t, const struct op *op, uint32_t at, uint32_t begin,
                            struct loop *loops, size_t *depth)
{
    const struct op *opener = &t->process->scenario->ops[op->jump];
    if (opener->code == OP_REPEAT) {
        struct loop *loop = &loops[*depth - 1];
        bool forever = loop->left == INT64_MAX;
        loop->done++;
        if ((forever && t->process->stop) || (!forever && --loop->left == 0)) {
            --*depth;
            return at + 1;
        }
        if (loop->variable >= 0)
            t->vars[loop->variable] = loop->done;
        return loop->op + 1;
    }
    if (opener->code == OP_PHASE || opener->code == OP_FRAMES)
        t->phase = phase_around(t->process->scenario, begin, at);
    return at + 1;
}

static int range_run(struct thread *t, uint32_t begin, uint32_t end)
{
    const struct op *ops = t->process->scenario->ops;
    struct loop loops[SCENARIO_DEPTH_MAX];
    size_t depth = 0;

    for (uint32_t at = begin; at < end;) {
        const struct op *op = &ops[at];
        switch (op->code) {
        case OP_REPEAT:
        case OP_IF:
        case OP_PHASE:
        case OP_FRAMES:
        case OP_THREAD:
        case OP_FORK:
            at = block_enter(t, op, at, loops, &depth);
            if (!at)
                return -1;
            break;
        case OP_END:
            at = block_leave(t, op, at, begin, loops, &depth);
            break;
        case OP_JOIN:
            threads_join(t);
            at++;
            break;
        default:
            if (statement_run(t, op) == RUN_FAILED)
                return -1;
            at++;
        }
    }
    threads_join(t);
    return 0;
}

int process_run(struct process *process)
{
    const struct scenario *s = process->scenario;
    struct thread *t = calloc(1, sizeof(*t));
    if (!t)
        return 1;
    t->process = process;
    memcpy(t->vars, s->var_values, sizeof(t->vars));
    t->vars[VAR_RANK] = process->rank->number;
    t->vars[VAR_RANKS] = s->rank_count;
    t->vars[VAR_DEVICE] = process->device;
    t->random = (uint64_t)s->seed + 0xd1342543de82ef95u * (uint64_t)(process->rank->number + 1);
    t->device = -1;
    t->begin = process->rank->begin;
    t->end = process->rank->end;
    prctl(PR_GET_NAME, t->name);
    int r = thread_main(t);
    if (r == 0 && process->truth_directory)
        r = truth_report(t, "end", NULL, NULL);
    free(t->children);
    free(t);
    return r < 0 ? 1 : 0;
}
