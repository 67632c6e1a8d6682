/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scan_image.h - a process made of bytes: CPython 3.11 objects, torch 2.7 tensors and torch_npu's
 * allocator, for tests and the fuzzer of scans.
 *
 * The offsets are written down here a second time, as numbers from the headers of CPython, torch
 * and torch_npu, not from the tables of the code under test.
 */
#ifndef NPUMEM_TESTS_SCAN_IMAGE_H
#define NPUMEM_TESTS_SCAN_IMAGE_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "image_read.h"

#define FAKE_HEAP 0x10000000ull
#define FAKE_HEAP_BYTES 0x40000u
#define FAKE_LIB 0x20000000ull /* code; from 0x20010000 on data */
#define FAKE_TABLE (FAKE_LIB + 0x10100)
#define FAKE_DELETER (FAKE_LIB + 0x200)
#define FAKE_WEAK_DELETER 0x30000100ull /* in libc10.so */
#define FAKE_MAPS                                                                                  \
    "10000000-10040000 rw-p 00000000 00:00 0 [heap]\n"                                             \
    "20000000-20010000 r-xp 00000000 08:01 77 /opt/libtorch_npu.so\n"                              \
    "20010000-20020000 r--p 00010000 08:01 77 /opt/libtorch_npu.so\n"                              \
    "30000000-30010000 r-xp 00000000 08:01 78 /opt/libc10.so\n"
#define FAKE_BLOCKS_MAX 64
#define FAKE_DEVICE_MEMORY 0x700000000000ull

/* Flags of a type. */
#define FAKE_MANAGED_DICT (1ull << 4)
#define FAKE_HEAPTYPE (1ull << 9)
#define FAKE_READY (1ull << 12)
#define FAKE_LIST (1ull << 25)
#define FAKE_TUPLE (1ull << 26)
#define FAKE_STR (1ull << 28)
#define FAKE_DICT (1ull << 29)
#define FAKE_TYPE (1ull << 31)

struct fake {
    unsigned char bytes[FAKE_HEAP_BYTES];
    uint64_t used;
    /* types */
    uint64_t type, str, dict, list, tuple, code, module, tensor, parameter, nn_module;
    /* allocator */
    uint64_t allocator, device_allocator, large_pool, small_pool;
    uint64_t records[FAKE_BLOCKS_MAX];
    unsigned record_count;
    uint64_t next_device_address;
    /* interpreter */
    uint64_t runtime;
};

static inline uint64_t fake_alloc(struct fake *f, uint64_t bytes)
{
    uint64_t at = (f->used + 15) & ~15ull;
    f->used = at + bytes;
    return f->used <= FAKE_HEAP_BYTES ? FAKE_HEAP + at : 0;
}

static inline void fake_put(struct fake *f, uint64_t address, const void *data, size_t bytes)
{
    if (address >= FAKE_HEAP && address - FAKE_HEAP + bytes <= FAKE_HEAP_BYTES)
        memcpy(f->bytes + (address - FAKE_HEAP), data, bytes);
}

static inline void fake_u64(struct fake *f, uint64_t address, uint64_t value)
{
    fake_put(f, address, &value, 8);
}

static inline void fake_u32(struct fake *f, uint64_t address, uint32_t value)
{
    fake_put(f, address, &value, 4);
}

static inline void fake_u8(struct fake *f, uint64_t address, uint8_t value)
{
    fake_put(f, address, &value, 1);
}

static inline uint64_t fake_get(const struct fake *f, uint64_t address)
{
    uint64_t value = 0;
    if (address >= FAKE_HEAP && address - FAKE_HEAP + 8 <= FAKE_HEAP_BYTES)
        memcpy(&value, f->bytes + (address - FAKE_HEAP), 8);
    return value;
}

static inline int fake_read(void *userdata, uint64_t address, void *buffer, size_t bytes)
{
    const struct fake *f = userdata;
    if (address < FAKE_HEAP || address - FAKE_HEAP + bytes > FAKE_HEAP_BYTES)
        return -EFAULT;
    memcpy(buffer, f->bytes + (address - FAKE_HEAP), bytes);
    return 0;
}

static inline uint64_t fake_object(struct fake *f, uint64_t type, uint64_t bytes)
{
    uint64_t o = fake_alloc(f, 32 + bytes) + 32; /* room for what lies before instances */
    fake_u64(f, o, 1);
    fake_u64(f, o + 8, type);
    return o;
}

static inline uint64_t fake_type(struct fake *f, const char *name, uint64_t flags, uint64_t base)
{
    uint64_t t = fake_object(f, f->type, 928), text = fake_alloc(f, strlen(name) + 1), mro;
    unsigned count = base ? 2 : 1;

    fake_put(f, text, name, strlen(name) + 1);
    fake_u64(f, t + 24, text);
    fake_u64(f, t + 32, 48);
    fake_u64(f, t + 168, flags | FAKE_READY);
    fake_u64(f, t + 256, base);
    mro = fake_object(f, f->tuple, 24 + 16);
    fake_u64(f, mro + 16, count);
    fake_u64(f, mro + 24, t);
    fake_u64(f, mro + 32, base);
    fake_u64(f, t + 344, mro);
    return t;
}

static inline uint64_t fake_str(struct fake *f, const char *text)
{
    uint64_t s = fake_object(f, f->str, 48 + strlen(text) + 1);
    fake_u64(f, s + 16, strlen(text));
    fake_u8(f, s + 32, 1 << 2 | 1 << 5 | 1 << 6 | 1 << 7);
    fake_put(f, s + 48, text, strlen(text) + 1);
    return s;
}

static inline uint64_t fake_sequence(struct fake *f, bool is_list, unsigned count,
                                     const uint64_t *items)
{
    uint64_t o = fake_object(f, is_list ? f->list : f->tuple, 24 + 8 * count);
    uint64_t at = is_list ? fake_alloc(f, 8 * count + 8) : o + 24;
    fake_u64(f, o + 16, count);
    if (is_list)
        fake_u64(f, o + 24, at);
    for (unsigned i = 0; i < count; i++)
        fake_u64(f, at + 8 * i, items[i]);
    return o;
}

/* A table of str keys: log2 size 3, one byte per index. */
static inline uint64_t fake_dict(struct fake *f, unsigned count, const char *const *names,
                                 const uint64_t *values)
{
    uint64_t keys = fake_alloc(f, 32 + 8 + 16 * 8), d = fake_object(f, f->dict, 48);
    fake_u64(f, keys, 1);
    fake_u8(f, keys + 8, 3);
    fake_u8(f, keys + 9, 3);
    fake_u8(f, keys + 10, 1);
    fake_u64(f, keys + 24, count);
    for (unsigned i = 0; i < count; i++) {
        fake_u64(f, keys + 40 + 16 * i, fake_str(f, names[i]));
        fake_u64(f, keys + 48 + 16 * i, values[i]);
    }
    fake_u64(f, d + 16, count);
    fake_u64(f, d + 32, keys);
    return d;
}

static inline uint64_t fake_instance(struct fake *f, uint64_t type, uint64_t dict)
{
    uint64_t o = fake_object(f, type, 64);
    fake_u64(f, o - 24, dict);
    return o;
}

/* --- torch --- */

struct fake_tensor_spec {
    uint64_t data, storage_bytes;
    int64_t rows, columns;
    uint8_t dtype;
    int8_t device_type, device;
    bool is_weak;
    uint64_t storage; /* of another tensor: a view of it; 0: its own */
};

static inline uint64_t fake_tensor(struct fake *f, uint64_t type, const struct fake_tensor_spec *s)
{
    uint64_t o = fake_object(f, type, 48), t = fake_alloc(f, 208), st = s->storage;

    fake_u64(f, o + 24, t);
    fake_u64(f, t, FAKE_TABLE);
    if (!st) {
        st = fake_alloc(f, 112);
        fake_u64(f, st, FAKE_TABLE + 64);
        fake_u64(f, st + 16, s->data);
        fake_u64(f, st + 24, s->is_weak ? FAKE_WEAK_DELETER : FAKE_DELETER);
        fake_u64(f, st + 32, s->is_weak ? 0 : s->data);
        fake_u8(f, st + 40, (uint8_t)s->device_type);
        fake_u8(f, st + 41, (uint8_t)s->device);
        fake_u64(f, st + 48, s->storage_bytes);
        fake_u64(f, st + 64, f->allocator);
    }
    fake_u64(f, t + 16, st);
    fake_u64(f, t + 56, o | 1);
    fake_u64(f, t + 64, 2);
    fake_u64(f, t + 72, (uint64_t)s->rows);
    fake_u64(f, t + 80, (uint64_t)s->columns);
    fake_u64(f, t + 112, (uint64_t)s->columns);
    fake_u64(f, t + 120, 1);
    fake_u64(f, t + 160, (uint64_t)(s->rows * s->columns));
    fake_u8(f, t + 168, s->dtype);
    fake_u8(f, t + 170, (uint8_t)s->device_type);
    fake_u8(f, t + 171, (uint8_t)s->device);
    return o;
}

static inline uint64_t fake_storage_of(const struct fake *f, uint64_t tensor)
{
    return fake_get(f, fake_get(f, tensor + 24) + 16);
}

/* --- torch_npu's allocator --- */

/* One segment of blocks in a row; sizes below 0 are free ones. Returns the address of the first. */
static inline uint64_t fake_segment(struct fake *f, uint64_t pool, unsigned count,
                                    const int64_t *sizes)
{
    uint64_t first = f->next_device_address, previous = 0;

    for (unsigned i = 0; i < count && f->record_count < FAKE_BLOCKS_MAX; i++) {
        uint64_t b = fake_alloc(f, 160);
        uint64_t bytes = (uint64_t)(sizes[i] < 0 ? -sizes[i] : sizes[i]);
        fake_u32(f, b, 0);
        fake_u64(f, b + 8, 0x5151);
        fake_u64(f, b + 48, bytes);
        fake_u64(f, b + 56, sizes[i] < 0 ? 0 : bytes - 100);
        fake_u64(f, b + 64, pool);
        fake_u64(f, b + 72, f->next_device_address);
        fake_u8(f, b + 80, sizes[i] > 0);
        fake_u8(f, b + 81, 1);
        fake_u64(f, b + 88, previous);
        if (previous)
            fake_u64(f, previous + 96, b);
        f->records[f->record_count++] = b;
        f->next_device_address += bytes;
        previous = b;
    }
    f->next_device_address += 1 << 20;
    return first;
}

static inline bool fake_is_live(const struct fake *f, unsigned i)
{
    return f->bytes[f->records[i] - FAKE_HEAP + 80];
}

/* The set of free blocks of a pool as one chain to the right, and the empty one of unmapped blocks.
 */
static inline void fake_pool(struct fake *f, uint64_t pool, bool is_small)
{
    uint64_t header = pool + 8, parent = header, slot = pool + 16, count = 0;

    fake_u64(f, pool, FAKE_LIB + 0x100);
    fake_u64(f, pool + 48, FAKE_LIB + 0x120);
    fake_u64(f, pool + 72, pool + 56);
    fake_u64(f, pool + 80, pool + 56);
    fake_u8(f, pool + 96, is_small);
    fake_u64(f, pool + 24, header);
    fake_u64(f, pool + 32, header);
    for (unsigned i = 0; i < f->record_count; i++) {
        if (fake_is_live(f, i) || fake_get(f, f->records[i] + 64) != pool)
            continue;
        uint64_t node = fake_alloc(f, 48);
        fake_u64(f, slot, node);
        fake_u64(f, node + 8, parent);
        fake_u64(f, node + 32, f->records[i]);
        parent = node;
        slot = node + 24;
        count++;
    }
    fake_u64(f, pool + 40, count);
}

static inline void fake_stat(struct fake *f, uint64_t at, uint64_t now)
{
    for (unsigned pool = 0; pool < 2; pool++) { /* all, and the large ones */
        fake_u64(f, at + 32 * (2 * pool), now);
        fake_u64(f, at + 32 * (2 * pool) + 8, now + 512);
        fake_u64(f, at + 32 * (2 * pool) + 16, 3 * now);
        fake_u64(f, at + 32 * (2 * pool) + 24, 2 * now);
    }
}

/* Makes the allocator object over all segments: hash table, device, pools, statistics. */
static inline void fake_allocator_finish(struct fake *f)
{
    uint64_t slots = 127, lookups = 7, entries = fake_alloc(f, 24 * (slots + lookups + 1));
    uint64_t live = 0, live_bytes = 0, all_bytes = 0, vector = fake_alloc(f, 16);
    float load = 0.5f;

    for (uint64_t i = 0; i < slots + lookups; i++)
        fake_u8(f, entries + 24 * i, 0xff);
    for (unsigned i = 0; i < f->record_count; i++) {
        uint64_t bytes = fake_get(f, f->records[i] + 48);
        all_bytes += bytes;
        if (!fake_is_live(f, i))
            continue;
        uint64_t slot = 3 * live; /* any place will do: it is only listed */
        fake_u8(f, entries + 24 * slot, 0);
        fake_u64(f, entries + 24 * slot + 8, fake_get(f, f->records[i] + 72));
        fake_u64(f, entries + 24 * slot + 16, f->records[i]);
        live++;
        live_bytes += bytes;
    }
    fake_u64(f, f->allocator, FAKE_TABLE + 128);
    fake_u64(f, f->allocator + 48, entries);
    fake_u64(f, f->allocator + 56, slots);
    fake_u8(f, f->allocator + 64, 57);
    fake_u8(f, f->allocator + 65, (uint8_t)lookups);
    fake_put(f, f->allocator + 68, &load, 4);
    fake_u64(f, f->allocator + 72, live);
    fake_u64(f, vector, f->device_allocator);
    fake_u64(f, f->allocator + 80, vector);
    fake_u64(f, f->allocator + 88, vector + 8);
    fake_u64(f, f->allocator + 96, vector + 8);
    fake_pool(f, f->large_pool, false);
    fake_pool(f, f->small_pool, true);
    uint64_t stats = f->device_allocator + 48;
    const uint64_t figures[] = {live, 0, live, 0, live_bytes, all_bytes, live_bytes, 0};
    for (unsigned i = 0; i < 8; i++)
        fake_stat(f, stats + 96 * i, figures[i]);
}

/* --- a process --- */

static inline void fake_init(struct fake *f)
{
    memset(f, 0, sizeof(*f));
    f->used = 64;
    f->next_device_address = FAKE_DEVICE_MEMORY;
    f->type = fake_object(f, 0, 928); /* the type of types is its own type */
    fake_u64(f, f->type + 8, f->type);
    fake_u64(f, f->type + 168, FAKE_TYPE | FAKE_READY);
    fake_u64(f, f->type + 32, 880);
    f->tuple = fake_type(f, "tuple", FAKE_TUPLE, 0);
    f->str = fake_type(f, "str", FAKE_STR, 0);
    f->dict = fake_type(f, "dict", FAKE_DICT, 0);
    f->list = fake_type(f, "list", FAKE_LIST, 0);
    f->code = fake_type(f, "code", 0, 0);
    f->module = fake_type(f, "module", 0, 0);
    uint64_t base = fake_type(f, "torch._C.TensorBase", 0, 0);
    f->tensor = fake_type(f, "Tensor", FAKE_HEAPTYPE, base);
    f->parameter = fake_type(f, "Parameter", FAKE_HEAPTYPE, base);
    f->nn_module = fake_type(f, "Module", FAKE_HEAPTYPE | FAKE_MANAGED_DICT, 0);
    f->allocator = fake_alloc(f, 2048);
    f->device_allocator = fake_alloc(f, 8192);
    f->large_pool = f->device_allocator + 992;
    f->small_pool = f->device_allocator + 1128;
}

/* A thread in function(name) with one local, and the modules builtins and __main__ (empty). */
static inline void fake_interpreter(struct fake *f, const char *function, const char *local,
                                    uint64_t value)
{
    uint64_t interpreter = fake_alloc(f, 1024), thread = fake_alloc(f, 256);
    uint64_t cframe = fake_alloc(f, 32), frame = fake_alloc(f, 96);
    uint64_t code = fake_object(f, f->code, 160), name = fake_str(f, local);
    uint64_t builtins = fake_object(f, f->module, 32), main = fake_object(f, f->module, 32);

    f->runtime = fake_alloc(f, 128);
    fake_u64(f, f->runtime + 40, interpreter);
    fake_u64(f, interpreter + 16, thread);
    fake_u64(f, thread + 16, interpreter);
    fake_u64(f, thread + 56, cframe);
    fake_u64(f, cframe + 8, frame);
    fake_u64(f, frame + 32, code);
    fake_u64(f, frame + 72, value);
    fake_u64(f, code + 128, fake_str(f, function));
    fake_u64(f, code + 96, fake_sequence(f, false, 1, &name));
    fake_u32(f, code + 76, 1);
    fake_u64(f, builtins + 16, fake_dict(f, 0, NULL, NULL));
    fake_u64(f, main + 16, fake_dict(f, 0, NULL, NULL));
    const char *const names[] = {"builtins", "__main__"};
    const uint64_t modules[] = {builtins, main};
    fake_u64(f, interpreter + 888, fake_dict(f, 2, names, modules));
}

static inline uint64_t fake_nn_module(struct fake *f, uint64_t parameters, uint64_t buffers,
                                      uint64_t modules)
{
    const char *const names[] = {"_parameters", "_buffers", "_modules"};
    const uint64_t values[] = {parameters, buffers, modules};
    return fake_instance(f, f->nn_module, fake_dict(f, 3, names, values));
}

/*
 * A worker of a server: WorkerProc.worker_busy_loop's self.worker.model_runner has a model
 * (layer.weight, layer.scale), kv_caches (two), a view of the first, a weak output of a graph, and
 * one tensor in host memory. Nine blocks: six live (one of them nobody's), three free.
 */
static inline void fake_worker(struct fake *f)
{
    static const int64_t large[] = {4 << 20, 4 << 20, -(2 << 20), 1 << 20, -(1 << 20)};
    static const int64_t small[] = {512, 1024, -1536, 2048};
    uint64_t at, kv[2], view, weight, scale, weak, host;

    fake_init(f);
    at = fake_segment(f, f->large_pool, 5, large);
    uint64_t s = fake_segment(f, f->small_pool, 4, small);
    struct fake_tensor_spec spec = {at, (4 << 20) - 512, 1024, 1024, 5, 20, 0, false, 0};
    for (unsigned i = 0; i < 2; i++) {
        spec.data = at + i * (4ull << 20);
        kv[i] = fake_tensor(f, f->tensor, &spec);
    }
    spec.storage = fake_storage_of(f, kv[0]);
    spec.rows = 16;
    view = fake_tensor(f, f->tensor, &spec);
    spec = (struct fake_tensor_spec){at + (10ull << 20), 1 << 20, 512, 512, 6, 20, 0, false, 0};
    weight = fake_tensor(f, f->parameter, &spec);
    spec = (struct fake_tensor_spec){s, 256, 8, 8, 6, 20, 0, false, 0};
    scale = fake_tensor(f, f->tensor, &spec);
    spec = (struct fake_tensor_spec){at + (8ull << 20), 4096, 32, 32, 6, 20, 0, true, 0};
    weak = fake_tensor(f, f->tensor, &spec);
    spec = (struct fake_tensor_spec){FAKE_HEAP + 64, 64, 4, 4, 6, 0, -1, false, 0};
    host = fake_tensor(f, f->tensor, &spec);

    uint64_t empty = fake_dict(f, 0, NULL, NULL);
    const char *const weight_name[] = {"weight"}, *const scale_name[] = {"scale"};
    const char *const layer_name[] = {"layer"};
    uint64_t layer = fake_nn_module(f, fake_dict(f, 1, weight_name, &weight),
                                    fake_dict(f, 1, scale_name, &scale), empty);
    uint64_t model = fake_nn_module(f, empty, empty, fake_dict(f, 1, layer_name, &layer));
    const char *const names[] = {"view", "model", "kv_caches", "outputs", "host"};
    const uint64_t values[] = {view, model, fake_sequence(f, true, 2, kv),
                               fake_sequence(f, false, 1, &weak), host};
    uint64_t plain = fake_type(f, "Runner", FAKE_HEAPTYPE | FAKE_MANAGED_DICT, 0);
    uint64_t runner = fake_instance(f, plain, fake_dict(f, 5, names, values));
    const char *const runner_name[] = {"model_runner"}, *const worker_name[] = {"worker"};
    uint64_t worker = fake_instance(f, plain, fake_dict(f, 1, runner_name, &runner));
    uint64_t self = fake_instance(f, plain, fake_dict(f, 1, worker_name, &worker));
    fake_allocator_finish(f);
    fake_interpreter(f, "WorkerProc.worker_busy_loop", "self", self);
}

static inline struct memory_reader fake_reader(struct fake *f)
{
    return (struct memory_reader){.read = fake_read, .userdata = f};
}

#endif
