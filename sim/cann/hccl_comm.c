/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hccl_comm.c - communicators (libhccl of 8.1, libhcomm from 8.5 on). Owns their objects and
 * buffers; a destroyed communicator is recognised by its cleared magic as long as its memory is
 * not reused.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "call.h"
#include "hccl.h"

#define EXTRA_BYTES (1ull << 20)
#define NOT_SET 0xffffffffu
enum { DEFAULT_BUFFER_MB = 200 };

static uint32_t comm_next;

static struct hccl_comm *comm_of(void *pointer)
{
    struct hccl_comm *comm = pointer;

    return comm && comm->magic == HCCL_MAGIC ? comm : NULL;
}

int hccl_root_info(struct sim_hccl_root_info *root)
{
    if (!root)
        return HCCL_E_PTR;
    memset(root, 0, sizeof(*root));
    snprintf(root->internal, 64, "npusim-%d-%u", (int)getpid(),
             __atomic_add_fetch(&comm_next, 1, __ATOMIC_RELAXED));
    return HCCL_OK;
}

static uint64_t buffer_bytes(const struct sim_hccl_config *config)
{
    const char *text = getenv("HCCL_BUFFSIZE");
    uint64_t mb = text ? strtoull(text, NULL, 10) : 0;

    if (config && config->buffer_mb && config->buffer_mb != NOT_SET)
        mb = config->buffer_mb;
    return 2 * ((mb ? mb : DEFAULT_BUFFER_MB) << 20) + EXTRA_BYTES;
}

static int buffer_take(struct hccl_comm *comm, const struct sim_hccl_config *config)
{
    struct sim_malloc_attr attr = {.attr = SIM_CFG_MODULE_ID, .value.module_id = SIM_MODULE_HCCL};
    struct sim_malloc_cfg cfg = {.attrs = &attr, .num_attrs = 1};
    int r;

    comm->buffer_bytes = buffer_bytes(config);
    r = aclrtMallocWithCfg(&comm->buffer, comm->buffer_bytes,
                           SIM_TYPE_HIGH_BAND_WIDTH | SIM_HUGE_FIRST, &cfg);
    if (!r)
        return HCCL_OK;
    return r == SIM_RT_MEMORY_ALLOCATION ? HCCL_E_OOM : HCCL_E_RUNTIME;
}

int hccl_init(uint32_t ranks, int complete, uint32_t rank, const struct sim_hccl_config *config,
              void **ret)
{
    struct hccl_comm *comm;
    int r;

    if (!ret || !complete)
        return HCCL_E_PTR;
    if (!ranks || rank >= ranks)
        return HCCL_E_PARA;
    comm = calloc(1, sizeof(*comm));
    if (!comm)
        return HCCL_E_MEMORY;
    r = buffer_take(comm, config);
    if (r) {
        free(comm);
        return r;
    }
    comm->magic = HCCL_MAGIC;
    comm->rank = rank;
    comm->ranks = ranks;
    if (config && config->name[0])
        snprintf(comm->name, sizeof(comm->name), "%.127s", config->name);
    else
        snprintf(comm->name, sizeof(comm->name), "npusim_comm_%d_%u", (int)getpid(),
                 __atomic_add_fetch(&comm_next, 1, __ATOMIC_RELAXED));
    *ret = comm;
    return HCCL_OK;
}

/* Ranks of a rank table: its entries with a "rank_id". */
static uint32_t table_ranks(const char *file)
{
    char line[4096];
    uint32_t count = 0;
    FILE *in = fopen(file, "re");

    if (!in)
        return 0;
    while (fgets(line, sizeof(line), in))
        for (const char *at = line; (at = strstr(at, "\"rank_id\"")); at++)
            count++;
    fclose(in);
    return count;
}

int hccl_init_cluster(const char *file, uint32_t rank, const struct sim_hccl_config *config,
                      void **comm)
{
    uint32_t ranks;

    if (!file)
        return HCCL_E_PTR;
    ranks = table_ranks(file);
    return ranks ? hccl_init(ranks, 1, rank, config, comm) : HCCL_E_PARA;
}

int hccl_init_all(uint32_t count, const int32_t *devices, void **comms)
{
    int32_t before = -1;
    int r = HCCL_OK;

    if (!devices || !comms)
        return HCCL_E_PTR;
    (void)aclrtGetDevice(&before);
    for (uint32_t i = 0; i < count && !r; i++) {
        if (aclrtSetDevice(devices[i]))
            r = HCCL_E_RUNTIME;
        else
            r = hccl_init(count, 1, i, NULL, &comms[i]);
    }
    if (before >= 0)
        aclrtSetDevice(before);
    return r;
}

int hccl_rank(void *pointer, uint32_t *rank)
{
    struct hccl_comm *comm = comm_of(pointer);

    if (!comm || !rank)
        return HCCL_E_PTR;
    *rank = comm->rank;
    return HCCL_OK;
}

int hccl_rank_size(void *pointer, uint32_t *ranks)
{
    struct hccl_comm *comm = comm_of(pointer);

    if (!comm || !ranks)
        return HCCL_E_PTR;
    *ranks = comm->ranks;
    return HCCL_OK;
}

int hccl_name(void *pointer, char *name)
{
    struct hccl_comm *comm = comm_of(pointer);

    if (!comm || !name)
        return HCCL_E_PTR;
    memcpy(name, comm->name, sizeof(comm->name));
    return HCCL_OK;
}

int hccl_buffer(void *pointer, void **buffer, uint64_t *size)
{
    struct hccl_comm *comm = comm_of(pointer);

    if (!comm || !buffer || !size)
        return HCCL_E_PTR;
    *buffer = comm->buffer;
    *size = comm->buffer_bytes;
    return HCCL_OK;
}

int hccl_async_error(void *pointer, int *error)
{
    if (!comm_of(pointer) || !error)
        return HCCL_E_PTR;
    *error = 0;
    return HCCL_OK;
}

int hccl_destroy(void *pointer)
{
    struct hccl_comm *comm = comm_of(pointer);

    if (!comm)
        return HCCL_E_PTR;
    (void)aclrtFree(comm->buffer); /* a device that was reset has freed it already */
    comm->magic = 0;
    free(comm);
    return HCCL_OK;
}

#define SIM_HCCL_COMM
#define FN(ret, sym, out, size, params, args, body)                                                \
    SIM_FUNCTION(ret, sym, sym, out, size, params, args, body)
#include "hccl.def"
