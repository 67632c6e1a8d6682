/* SPDX-License-Identifier: Apache-2.0 */
/*
 * do_memory.c - device, host and registered memory, and memory of other processes.
 *
 * Invariant: a slot is filled only after its call returned 0, and emptied only after the free did.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "run.h"

enum { API_ALIGN32, API_MALLOC, API_CACHED, API_CFG, API_TS, API_MANAGED };

#define NEED(function)                                                                             \
    do {                                                                                           \
        if (!t->process->acl.function)                                                             \
            return EXPECT_MISSING;                                                                 \
    } while (0)

/* What the runtime asks the driver for: the next multiple of 32; aclrtMalloc adds 32 before. */
static int64_t hal_bytes(int64_t api, int64_t bytes)
{
    bool padded = api == API_MALLOC || api == API_CACHED;
    return (bytes + (padded ? 63 : 31)) / 32 * 32;
}

static int malloc_call(const struct acl *acl, int64_t api, void **ret, size_t bytes, int policy,
                       int64_t module, int64_t device)
{
    struct sim_malloc_attr attributes[2];
    struct sim_malloc_cfg cfg = {attributes, 0};

    memset(attributes, 0, sizeof(attributes));
    attributes[cfg.num_attrs].attr = SIM_CFG_MODULE_ID;
    attributes[cfg.num_attrs++].value.module_id = (uint16_t)module;
    if (device >= 0) {
        attributes[cfg.num_attrs].attr = SIM_CFG_DEVICE_ID;
        attributes[cfg.num_attrs++].value.device_id = (uint32_t)device;
    }
    switch (api) {
    case API_ALIGN32:
        return acl->aclrtMallocAlign32 ? acl->aclrtMallocAlign32(ret, bytes, policy)
                                       : EXPECT_MISSING;
    case API_MALLOC:
        return acl->aclrtMalloc(ret, bytes, policy);
    case API_CACHED:
        return acl->aclrtMallocCached ? acl->aclrtMallocCached(ret, bytes, policy) : EXPECT_MISSING;
    case API_CFG:
        return acl->aclrtMallocWithCfg ? acl->aclrtMallocWithCfg(ret, bytes, policy, &cfg)
                                       : EXPECT_MISSING;
    case API_TS:
        return acl->aclrtMallocForTaskScheduler
                   ? acl->aclrtMallocForTaskScheduler(ret, bytes, policy, &cfg)
                   : EXPECT_MISSING;
    default:
        return acl->aclrtMemAllocManaged ? acl->aclrtMemAllocManaged(ret, bytes, 0)
                                         : EXPECT_MISSING;
    }
}

HANDLER(do_malloc)
{
    void *address = NULL;
    int64_t bytes, module, device, api = operand_choice(op, 2, API_ALIGN32);
    struct slot *slot = slot_new(t, op, 0);

    if (!slot || !operand_size(t, op, 1, &bytes) ||
        !operand_int(t, op, 4, SIM_MODULE_APP, &module) || !operand_int(t, op, 5, -1, &device))
        return RUN_FAILED;
    if ((op->args[4].kind || op->args[5].kind) && api != API_CFG && api != API_TS)
        return thread_fail(t, op, "module= and device= need api=cfg or api=ts");
    int r = malloc_call(&t->process->acl, api, &address, (size_t)bytes,
                        (int)operand_choice(op, 3, SIM_HUGE_FIRST), module, device);
    if (r == 0)
        slot_book(t, slot, SLOT_DEVICE, TRUTH_DEVICE, (unsigned)module,
                  (unsigned)(device >= 0 ? device : t->device), (uint64_t)address, bytes,
                  hal_bytes(api, bytes));
    return r;
}

HANDLER(do_free)
{
    const struct acl *acl = &t->process->acl;
    struct slot *slot = slot_any(t, op, 0);
    int64_t sync;
    int r;

    if (!slot || !operand_int(t, op, 1, 0, &sync))
        return RUN_FAILED;
    void *address = (void *)slot->value;
    switch (slot->kind) {
    case SLOT_DEVICE:
        if (sync)
            NEED(aclrtFreeWithDevSync);
        r = sync ? acl->aclrtFreeWithDevSync(address) : acl->aclrtFree(address);
        break;
    case SLOT_HOST:
        r = acl->aclrtFreeHost(address);
        break;
    case SLOT_TOUCHED:
        munmap(address, (size_t)slot->bytes);
        r = 0;
        break;
    default:
        return thread_fail(t, op, "it holds %s, not device, host or touched memory",
                           slot_kind_name(slot->kind));
    }
    if (r == 0)
        slot_clear(t, slot);
    return r;
}

HANDLER(do_free_address)
{
    int64_t address, host;
    if (!operand_int(t, op, 0, 0, &address) || !operand_int(t, op, 1, 0, &host))
        return RUN_FAILED;
    return host ? t->process->acl.aclrtFreeHost((void *)address)
                : t->process->acl.aclrtFree((void *)address);
}

HANDLER(do_host)
{
    void *address = NULL;
    int64_t bytes;
    int r;
    struct slot *slot = slot_new(t, op, 0);

    if (!slot || !operand_size(t, op, 1, &bytes))
        return RUN_FAILED;
    if (operand_choice(op, 2, 0)) {
        struct sim_malloc_attr attribute = {.attr = SIM_CFG_VA_FLAG, .value = {.va_flag = 1}};
        struct sim_malloc_cfg cfg = {&attribute, 1};
        NEED(aclrtMallocHostWithCfg);
        r = t->process->acl.aclrtMallocHostWithCfg(&address, (uint64_t)bytes, &cfg);
    } else {
        r = t->process->acl.aclrtMallocHost(&address, (size_t)bytes);
    }
    if (r == 0)
        slot_book(t, slot, SLOT_HOST, TRUTH_HOST, SIM_MODULE_APP, 0, (uint64_t)address, bytes,
                  bytes);
    return r;
}

static void *host_map(struct thread *t, const struct op *op, int64_t bytes)
{
    void *address = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address != MAP_FAILED)
        return address;
    thread_fail(t, op, "no host memory: %s", strerror(errno));
    return NULL;
}

HANDLER(do_register)
{
    void *device_address = NULL;
    int64_t bytes;
    struct slot *slot = slot_new(t, op, 0);
    if (!slot || !operand_size(t, op, 1, &bytes))
        return RUN_FAILED;
    if (operand_choice(op, 2, 0))
        NEED(aclrtHostRegisterV2);
    void *address = host_map(t, op, bytes);
    if (!address)
        return RUN_FAILED;
    int r = operand_choice(op, 2, 0)
                ? t->process->acl.aclrtHostRegisterV2(address, (uint64_t)bytes, 0)
                : t->process->acl.aclrtHostRegister(address, (uint64_t)bytes, 0, &device_address);
    if (r == 0)
        slot_book(t, slot, SLOT_REGISTERED, TRUTH_REGISTERED, SIM_MODULE_APP, 0, (uint64_t)address,
                  bytes, bytes);
    else
        munmap(address, (size_t)bytes);
    return r;
}

HANDLER(do_unregister)
{
    struct slot *slot = slot_get(t, op, 0, SLOT_REGISTERED);
    if (!slot)
        return RUN_FAILED;
    int r = t->process->acl.aclrtHostUnregister((void *)slot->value);
    if (r == 0) {
        munmap((void *)slot->value, (size_t)slot->bytes);
        slot_clear(t, slot);
    }
    return r;
}

/* The memory stays and stays booked; only the name is free for something else. */
HANDLER(do_forget)
{
    struct slot *slot = slot_any(t, op, 0);
    if (!slot)
        return RUN_FAILED;
    *slot = (struct slot){0};
    return 0;
}

HANDLER(do_touch)
{
    int64_t bytes;
    struct slot *slot = slot_new(t, op, 0);
    if (!slot || !operand_size(t, op, 1, &bytes))
        return RUN_FAILED;
    void *address = host_map(t, op, bytes);
    if (!address)
        return RUN_FAILED;
    memset(address, 1, (size_t)bytes);
    slot_book(t, slot, SLOT_TOUCHED, TRUTH_TOUCHED, 0, 0, (uint64_t)address, bytes, bytes);
    return 0;
}

HANDLER(do_ipc_export)
{
    char key[SCENARIO_LINE_MAX], file[256], name[256] = "";
    struct slot *slot = slot_get(t, op, 0, SLOT_DEVICE);
    NEED(aclrtIpcMemGetExportKey);
    if (!slot || !operand_text(t, op, 1, key, sizeof(key)))
        return RUN_FAILED;
    int r = t->process->acl.aclrtIpcMemGetExportKey((void *)slot->value, (size_t)slot->bytes, name,
                                                    sizeof(name), 0);
    if (r)
        return r;
    control_name(key);
    snprintf(file, sizeof(file), "key.%.200s", key);
    r = control_put(&t->process->control, file, name, sizeof(name));
    return r < 0 ? thread_fail(t, op, "key cannot be written: %s", strerror(-r)) : 0;
}

static int ipc_name(struct thread *t, const struct op *op, char name[static 256])
{
    char key[SCENARIO_LINE_MAX];
    if (!operand_text(t, op, 1, key, sizeof(key)))
        return -EINVAL;
    control_name(key);
    int r = control_get_key(&t->process->control, key, name, 256);
    if (r < 0)
        thread_fail(t, op, "key %s: %s", key, strerror(-r));
    name[255] = '\0';
    return r < 0 ? r : 0;
}

HANDLER(do_ipc_open)
{
    char name[256] = "";
    void *address = NULL;
    struct slot *slot = slot_new(t, op, 0);
    NEED(aclrtIpcMemImportByKey);
    if (!slot || ipc_name(t, op, name) < 0)
        return RUN_FAILED;
    int r = t->process->acl.aclrtIpcMemImportByKey(&address, name, 0);
    if (r == 0)
        slot_book(t, slot, SLOT_OPENED, TRUTH_IMPORTED, 0, (unsigned)t->device, (uint64_t)address,
                  0, 0);
    return r;
}

HANDLER(do_ipc_close)
{
    char name[256] = "";
    struct slot *slot = slot_get(t, op, 0, SLOT_OPENED);
    NEED(aclrtIpcMemClose);
    if (!slot || ipc_name(t, op, name) < 0)
        return RUN_FAILED;
    int r = t->process->acl.aclrtIpcMemClose(name);
    if (r == 0)
        slot_clear(t, slot);
    return r;
}
