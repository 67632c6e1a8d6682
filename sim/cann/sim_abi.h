/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim_abi.h - the functions that the simulated CANN libraries export, for programs that call them.
 *
 * Clean-room prototypes: names, argument order, argument widths, enum values and struct offsets of
 * the public ABI, nothing else of CANN. Each table (*.def) has one row per function, from which
 * this header makes the prototypes and the libraries make the exported functions, the tail-call
 * wrappers and the call log:
 *   FN(return type, symbol, out, size, (parameters), (arguments), body)
 *   out/size   index of the argument that points to the produced 64-bit value / is the size, or -1
 * Opaque handles (stream, context, event, physical handle, pool, communicator, tensor) are void *.
 * Define SIM_ABI_WEAK before including to get weak references (a program that runs on all layouts
 * tests a function for NULL before it calls it).
 */
#ifndef SIM_ABI_H
#define SIM_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Return codes of aclrt and rt functions. */
enum {
    SIM_ACL_OK = 0,
    SIM_ACL_INVALID_PARAM = 100000,    /* the ACL layer refused an argument */
    SIM_RT_PARAM_INVALID = 107000,     /* the runtime layer refused an argument */
    SIM_RT_INVALID_DEVICE = 107001,    /* device id out of range */
    SIM_RT_CONTEXT_NULL = 107002,      /* the thread has no device (no aclrtSetDevice yet) */
    SIM_RT_STREAM_CONTEXT = 107003,    /* not a stream of this process */
    SIM_RT_FEATURE = 207000,           /* feature not supported */
    SIM_RT_MEMORY_ALLOCATION = 207001, /* out of memory, and only that */
    SIM_RT_MEMORY_FREE = 207002,       /* free of an address that was not allocated */
    SIM_RT_DRV_INTERNAL = 507899,      /* any other driver error */
};

/* Return codes of hal functions (drvError_t). */
enum {
    SIM_DRV_OK = 0,
    SIM_DRV_INVALID_DEVICE = 2,
    SIM_DRV_INVALID_VALUE = 3,
    SIM_DRV_INVALID_HANDLE = 4,
    SIM_DRV_OUT_OF_MEMORY = 6,
    SIM_DRV_INNER_ERR = 7,
    SIM_DRV_PARA_ERROR = 8,
};

/* aclrtMemMallocPolicy */
enum {
    SIM_HUGE_FIRST = 0,
    SIM_HUGE_ONLY = 1,
    SIM_NORMAL_ONLY = 2,
    SIM_HUGE_FIRST_P2P = 3,
    SIM_HUGE_ONLY_P2P = 4,
    SIM_NORMAL_ONLY_P2P = 5,
    SIM_HUGE1G_ONLY = 6,
    SIM_HUGE1G_ONLY_P2P = 7,
    SIM_TYPE_LOW_BAND_WIDTH = 0x100,
    SIM_TYPE_HIGH_BAND_WIDTH = 0x1000,
    SIM_USER_SPACE_READONLY = 0x100000,
};

/* aclrtMemAttr */
enum {
    SIM_ATTR_DDR = 0,
    SIM_ATTR_HBM = 1,
    SIM_ATTR_HBM_HUGE = 4,
    SIM_ATTR_HBM_NORMAL = 5,
    SIM_ATTR_P2P_HUGE = 8,
    SIM_ATTR_P2P_NORMAL = 9,
    SIM_ATTR_HUGE1G = 10,
    SIM_ATTR_P2P_HUGE1G = 11,
};

/* aclrtMemcpyKind, aclrtMemLocationType */
enum { SIM_COPY_H2H, SIM_COPY_H2D, SIM_COPY_D2H, SIM_COPY_D2D, SIM_COPY_DEFAULT };
enum { SIM_LOCATION_HOST, SIM_LOCATION_DEVICE, SIM_LOCATION_UNREGISTERED };

/* Module ids in bits 56-63 of the flag of halMemAlloc. */
enum {
    SIM_MODULE_HCCL = 3,
    SIM_MODULE_DVPP = 6,
    SIM_MODULE_RUNTIME = 7,
    SIM_MODULE_APP = 33,
    SIM_MODULE_GE = 45,
};

/* Bits of the flag of halMemAlloc: bits 0-9 are the driver's logical device id. */
#define SIM_FLAG_DEVICE_MASK 0x3ffu
#define SIM_FLAG_VIRT_SHIFT 10 /* 1 device, 2 host, 6 host uva, 7 managed */
#define SIM_FLAG_PHYS_SHIFT 14 /* 0 DDR, 1 HBM */
#define SIM_FLAG_HUGE (1ull << 17)
#define SIM_FLAG_P2P (1ull << 25)
#define SIM_FLAG_TS (1ull << 27)
#define SIM_FLAG_READONLY (1ull << 29)
#define SIM_FLAG_GIANT (1ull << 31)
#define SIM_FLAG_MODULE_SHIFT 56
enum { SIM_VIRT_SVM, SIM_VIRT_DEV, SIM_VIRT_HOST, SIM_VIRT_HOST_UVA = 6, SIM_VIRT_UVM = 7 };

/* aclrtPhysicalMemProp: offsets 0, 4, 8, 12 (id), 16 (type), 24. */
struct sim_acl_location {
    uint32_t id;
    int32_t type;
};
struct sim_acl_phys_prop {
    int32_t handle_type;
    int32_t allocation_type;
    int32_t mem_attr;
    struct sim_acl_location location;
    uint64_t reserve;
};

/* drv_mem_prop: five 32-bit values, reserve at 24. */
struct sim_drv_prop {
    uint32_t side;
    uint32_t devid;
    uint32_t module_id;
    uint32_t pg_type;  /* 0 4 KiB, 1 2 MiB, 2 1 GiB */
    uint32_t mem_type; /* 0 HBM, 1 DDR, 2 P2P HBM */
    uint64_t reserve;
};

/* aclrtMallocConfig */
enum { SIM_CFG_MODULE_ID = 1, SIM_CFG_DEVICE_ID = 2, SIM_CFG_VA_FLAG = 3 };
struct sim_malloc_attr {
    int32_t attr;
    union {
        uint16_t module_id;
        uint32_t device_id;
        uint32_t va_flag;
        uint8_t rsv[8];
    } value;
};
struct sim_malloc_cfg {
    struct sim_malloc_attr *attrs;
    size_t num_attrs;
};

struct sim_access_desc {
    int32_t flags; /* 0 none, 1 read, 3 read and write */
    struct sim_acl_location location;
    uint8_t rsv[12];
};

/* aclrtMemUsageInfo */
struct sim_mem_usage {
    char name[32];
    uint64_t cur_bytes;
    uint64_t peak_bytes;
    size_t reserved[8];
};

/* aclrtPtrAttributes */
struct sim_ptr_attributes {
    struct sim_acl_location location;
    uint32_t page_bytes;
    uint32_t rsv[4];
};

/* Properties of aclrtMemPoolCreate, as far as the simulated pool reads them. */
struct sim_pool_props {
    int32_t alloc_type;
    int32_t handle_type;
    struct sim_acl_location location;
    size_t max_bytes; /* 0: the card's size */
    uint8_t rsv[32];
};

/* HCCL */
struct sim_hccl_root_info {
    char internal[4108];
};
struct sim_hccl_config { /* HcclCommConfig: bufferSize (MB) at 24, name at 32 */
    char head[24];
    uint32_t buffer_mb; /* 0xffffffff: not set */
    uint32_t deterministic;
    char name[128];
    char rest[256];
};

/* mstx */
struct sim_mstx_heap_desc {
    int32_t usage;
    int32_t type;
    const void *type_specific_desc;
};
struct sim_mstx_range_desc {
    uint32_t device_id;
    const void *ptr;
    uint64_t size;
};
struct sim_mstx_register_batch {
    void *heap;
    int32_t type;
    size_t count;
    const void *descs;
    void **handles;
};
struct sim_mstx_region_ref {
    int32_t ref_type; /* 0 pointer, 1 handle */
    union {
        const void *ptr;
        void *handle;
    } u;
};
struct sim_mstx_unregister_batch {
    size_t count;
    const struct sim_mstx_region_ref *refs;
};

/* DCMI */
struct sim_dcmi_hbm_info {
    uint64_t memory_mb;
    uint32_t freq;
    uint64_t used_mb;
    int32_t temperature;
    uint32_t bandwidth_rate;
};
struct sim_dcmi_proc_mem {
    int32_t proc_id;
    unsigned long used_bytes;
};
struct sim_dcmi_memory_info { /* dcmi_get_memory_info_stru, 96 bytes */
    uint64_t memory_mb;
    uint64_t available_mb;
    uint32_t freq;
    uint32_t hugepagesize_kb;
    uint64_t hugepages_total;
    uint64_t hugepages_free;
    uint32_t utilization;
    uint8_t rsv[60 - 8];
};

#ifdef SIM_ABI_WEAK
#define SIM_ABI_LINK __attribute__((weak))
#else
#define SIM_ABI_LINK
#endif
#define FN(ret, sym, out, size, params, args, body) SIM_ABI_LINK ret sym params;
#include "acl.def"
#include "rt.def"
#include "hal.def"
#include "hccl.def"
#include "nnop.def"
#include "mstx.def"
#include "dcmi.def"
#undef FN

#ifdef __cplusplus
}
#endif

#endif
