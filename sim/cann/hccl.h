/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hccl.h - inside libhccl and libhcomm: communicators. Return codes are HcclResult.
 *
 * A communicator takes one buffer when it is made and frees it when it is destroyed:
 * 2 x buffer size + 1 MiB by aclrtMallocWithCfg(HUGE_FIRST | high band width, module HCCL), where
 * buffer size is the config's, else HCCL_BUFFSIZE (MiB), else 200 MiB. Ranks do not meet: making a
 * communicator never waits, and collectives copy a rank's own data only.
 */
#ifndef SIM_HCCL_H
#define SIM_HCCL_H

#include "sim_abi.h"

enum {
    HCCL_OK = 0,
    HCCL_E_PARA = 1,
    HCCL_E_PTR = 2,
    HCCL_E_MEMORY = 3,
    HCCL_E_RUNTIME = 15,
    HCCL_E_OOM = 24,
};

#define HCCL_MAGIC 0x6c636368u

struct hccl_comm {
    uint32_t magic;
    uint32_t rank;
    uint32_t ranks;
    char name[128];
    void *buffer;
    uint64_t buffer_bytes;
};

int hccl_root_info(struct sim_hccl_root_info *root);
int hccl_init(uint32_t ranks, int complete, uint32_t rank, const struct sim_hccl_config *config,
              void **comm);
int hccl_init_cluster(const char *file, uint32_t rank, const struct sim_hccl_config *config,
                      void **comm);
int hccl_init_all(uint32_t count, const int32_t *devices, void **comms);
int hccl_rank(void *comm, uint32_t *rank);
int hccl_rank_size(void *comm, uint32_t *ranks);
int hccl_name(void *comm, char *name);
int hccl_buffer(void *comm, void **buffer, uint64_t *size);
int hccl_async_error(void *comm, int *error);
int hccl_destroy(void *comm);
int hccl_check(void *comm);
int hccl_copy(const void *send, void *recv, uint64_t count, int type, void *comm);

#endif
