# SPDX-License-Identifier: Apache-2.0
"""Statements that call the libraries; docs/SCENARIOS.md says what they do."""
import ctypes
import mmap

from npusim_core import MISSING, STATEMENTS, U64, Slot, file_name, libc

# devices, contexts, streams

def do_device(t, op):
    device = t.number(op, "device")
    code = t.call("aclrtSetDevice", device)
    if code == 0:
        t.device = device
    return code


def do_device_reset(t, op):
    return t.call("aclrtResetDevice", t.number(op, "device"))


def make(t, op, kind, call, *arguments, **slot):
    place, out = t.place(op, "id"), ctypes.c_void_p()
    code = t.call(call, ctypes.byref(out), *arguments)
    if code == 0:
        t.fill(place, Slot(kind, out.value or 0, **slot))
    return code


def drop(t, op, kind, call, name="id"):
    code = t.call(call, t.get(op, name, kind).value)
    if code == 0:
        t.empty(op, name)
    return code


def do_context(t, op):
    device = t.number(op, "device")
    code = make(t, op, "context", "aclrtCreateContext", device, size=device)
    if code == 0:
        t.device = device
    return code


def do_context_use(t, op):
    slot = t.get(op, "id", "context")
    code = t.call("aclrtSetCurrentContext", slot.value)
    if code == 0:
        t.device = slot.bytes
    return code


def do_context_destroy(t, op):
    return drop(t, op, "context", "aclrtDestroyContext")


def do_stream(t, op):
    if t.choice(op, "api", 1):
        return make(t, op, "stream", "aclrtCreateStreamWithConfig", 0, 3)
    return make(t, op, "stream", "aclrtCreateStream")


def do_stream_destroy(t, op):
    force = t.number(op, "force")
    return drop(t, op, "stream", "aclrtDestroyStreamForce" if force else "aclrtDestroyStream")


def do_sync(t, op):
    if op["args"].get("stream") is None:
        return t.call("aclrtSynchronizeDevice")
    return t.call("aclrtSynchronizeStream", t.get(op, "stream", "stream").value)


# memory

class MallocAttribute(ctypes.Structure):
    _fields_ = [("attr", ctypes.c_int32), ("value", ctypes.c_uint8 * 8)]


class MallocConfig(ctypes.Structure):
    _fields_ = [("attrs", ctypes.POINTER(MallocAttribute)), ("count", ctypes.c_size_t)]


def config_make(pairs):
    attributes = (MallocAttribute * max(1, len(pairs)))()
    for attribute, (number, value) in zip(attributes, pairs):
        attribute.attr = number
        attribute.value[:] = (value & 0xFFFFFFFF).to_bytes(8, "little")
    return MallocConfig(attributes, len(pairs))


MALLOCS = ["aclrtMallocAlign32", "aclrtMalloc", "aclrtMallocCached", "aclrtMallocWithCfg",
           "aclrtMallocForTaskScheduler", "aclrtMemAllocManaged"]


def do_malloc(t, op):
    place, size, api = t.place(op, "id"), t.size(op, "size"), t.choice(op, "api")
    module, device = t.number(op, "module", 33), t.number(op, "device", -1)
    configured = api in (3, 4)
    if not configured and (op["args"].get("module") is not None or device >= 0):
        raise t.error(op, "module= and device= need api=cfg or api=ts")
    out, arguments = ctypes.c_void_p(), [t.choice(op, "policy")]
    if configured:
        config = config_make([(1, module)] + ([(2, device)] if device >= 0 else []))
        arguments.append(ctypes.byref(config))
    code = t.call(MALLOCS[api], ctypes.byref(out), size, *arguments)
    if code == 0:
        hal = (size + (63 if api in (1, 2) else 31)) // 32 * 32
        t.fill(place, Slot("device", out.value, size, hal),
               ("device", module, device if device >= 0 else t.device))
    return code


def do_free(t, op):
    slot = t.get(op, "id", "device", "host", "touched")
    if slot.kind == "device":
        sync = t.number(op, "sync")
        code = t.call("aclrtFreeWithDevSync" if sync else "aclrtFree", slot.value)
    elif slot.kind == "host":
        code = t.call("aclrtFreeHost", slot.value)
    else:
        code = libc.munmap(slot.value, slot.bytes)
    if code == 0:
        t.empty(op, "id")
    return code


def do_free_address(t, op):
    return t.call("aclrtFreeHost" if t.number(op, "host") else "aclrtFree", t.number(op, "address"))


def do_host(t, op):
    place, size, out = t.place(op, "id"), t.size(op, "size"), ctypes.c_void_p()
    if t.choice(op, "api"):
        config = config_make([(3, 1)])
        code = t.call("aclrtMallocHostWithCfg", ctypes.byref(out), size, ctypes.byref(config))
    else:
        code = t.call("aclrtMallocHost", ctypes.byref(out), size)
    if code == 0:
        t.fill(place, Slot("host", out.value, size, size), ("host", 33, 0))
    return code


def host_map(t, op, size):
    address = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, 0x4022, -1, 0)
    if address is None or address == 2 ** 64 - 1:
        raise t.error(op, "no host memory")
    return address


def do_register(t, op):
    place, size, out = t.place(op, "id"), t.size(op, "size"), ctypes.c_void_p()
    address = host_map(t, op, size)
    if t.choice(op, "api"):
        code = t.call("aclrtHostRegisterV2", address, size, 0)
    else:
        code = t.call("aclrtHostRegister", address, size, 0, ctypes.byref(out))
    if code == 0:
        t.fill(place, Slot("registered", address, size, size), ("registered", 33, 0))
    else:
        libc.munmap(address, size)
    return code


def do_unregister(t, op):
    slot = t.get(op, "id", "registered")
    code = t.call("aclrtHostUnregister", slot.value)
    if code == 0:
        libc.munmap(slot.value, slot.bytes)
        t.empty(op, "id")
    return code


def do_forget(t, op):
    t.rank.slots[t.index(op, op["args"]["id"])] = None


def do_touch(t, op):
    place, size = t.place(op, "id"), t.size(op, "size")
    address = host_map(t, op, size)
    ctypes.memset(address, 1, size)
    t.fill(place, Slot("touched", address, size, size), ("touched", 0, 0))


# virtual memory management

class Prop(ctypes.Structure):
    _fields_ = [("handle_type", ctypes.c_int32), ("allocation_type", ctypes.c_int32),
                ("attribute", ctypes.c_int32), ("id", ctypes.c_uint32), ("type", ctypes.c_int32),
                ("reserve", ctypes.c_uint64)]


def do_reserve(t, op):
    place, size, out = t.place(op, "id"), t.size(op, "size"), ctypes.c_void_p()
    code = t.call("aclrtReserveMemAddress", ctypes.byref(out), size, 0, None,
                  t.number(op, "flags"))
    if code == 0:
        t.fill(place, Slot("range", out.value, size, size), ("range", 0, t.device))
    return code


def do_release(t, op):
    return drop(t, op, "range", "aclrtReleaseMemAddress")


def handle_create(t, size, host, attribute):
    out = ctypes.c_void_p()
    prop = Prop(0, 0, attribute, 0 if host else t.device, 0 if host else 1, 0)
    code = t.call("aclrtMallocPhysical", ctypes.byref(out), size, ctypes.byref(prop), 0)
    return code, out.value


def do_create(t, op):
    place, size, host = t.place(op, "id"), t.size(op, "size"), t.choice(op, "where")
    code, value = handle_create(t, size, host, t.number(op, "attribute", 0 if host else 4))
    if code == 0:
        t.fill(place, Slot("physical handle", value, size, size, more=size),
               ("host", 33, 0) if host else ("handle", 33, t.device))
    return code


def do_destroy(t, op):
    return drop(t, op, "physical handle", "aclrtFreePhysical")


def do_map(t, op):
    where, handle = t.get(op, "range", "range"), t.get(op, "handle", "physical handle")
    return t.call("aclrtMapMem", where.value + t.size(op, "offset"), handle.more or 0, 0,
                  handle.value, 0)


def do_unmap(t, op):
    return t.call("aclrtUnmapMem", t.get(op, "range", "range").value + t.size(op, "offset"))


def do_retain(t, op):
    place, out = t.place(op, "id"), ctypes.c_void_p()
    address = t.get(op, "range", "range").value + t.size(op, "offset")
    code = t.call("aclrtMemRetainAllocationHandle", address, ctypes.byref(out))
    if code == 0:
        t.fill(place, Slot("physical handle", out.value), ("imported", 0, t.device))
    return code


def do_export(t, op):
    slot, out = t.get(op, "handle", "physical handle"), (ctypes.c_uint64 * 16)()
    if t.choice(op, "api"):
        code = t.call("aclrtMemExportToShareableHandleV2", slot.value, 0, 1, ctypes.byref(out))
    else:
        code = t.call("aclrtMemExportToShareableHandle", slot.value, 0, 0, ctypes.byref(out))
    if code == 0:
        out[15] = slot.more or 0
        t.rank.put("key." + file_name(t.text(op, "key")), bytes(out))
    return code


def do_import(t, op):
    place, out = t.place(op, "id"), ctypes.c_void_p()
    data = t.rank.key(file_name(t.text(op, "key")), t, op)
    if t.choice(op, "api"):
        shared = (ctypes.c_uint8 * 128).from_buffer_copy(data[:128].ljust(128, b"\0"))
        code = t.call("aclrtMemImportFromShareableHandleV2", ctypes.byref(shared), 1, 0,
                      ctypes.byref(out))
    else:
        code = t.call("aclrtMemImportFromShareableHandle", int.from_bytes(data[:8], "little"),
                      t.device, ctypes.byref(out))
    if code == 0:
        t.fill(place, Slot("physical handle", out.value, more=int.from_bytes(data[120:128], "little")),
               ("imported", 0, t.device))
    return code


def do_ipc_export(t, op):
    slot, name = t.get(op, "id", "device"), ctypes.create_string_buffer(256)
    code = t.call("aclrtIpcMemGetExportKey", slot.value, slot.bytes, name, 256, 0)
    if code == 0:
        t.rank.put("key." + file_name(t.text(op, "key")), name.raw)
    return code


def do_ipc_open(t, op):
    place, out = t.place(op, "id"), ctypes.c_void_p()
    name = ctypes.create_string_buffer(t.rank.key(file_name(t.text(op, "key")), t, op), 257)
    code = t.call("aclrtIpcMemImportByKey", ctypes.byref(out), name, 0)
    if code == 0:
        t.fill(place, Slot("opened", out.value), ("imported", 0, t.device))
    return code


def do_ipc_close(t, op):
    t.get(op, "id", "opened")
    name = ctypes.create_string_buffer(t.rank.key(file_name(t.text(op, "key")), t, op), 257)
    code = t.call("aclrtIpcMemClose", name)
    if code == 0:
        t.empty(op, "id")
    return code


def do_segment(t, op):
    place, size, granule = t.place(op, "id"), t.size(op, "reserve"), t.size(op, "granule")
    if not granule or size % granule or size // granule > 1 << 20:
        raise t.error(op, "the granule must divide the reserved size, at most 1048576 times")
    out = ctypes.c_void_p()
    code = t.call("aclrtReserveMemAddress", ctypes.byref(out), size, 0, None, 1)
    if code == 0:
        t.fill(place, Slot("segment", out.value, size, size, more=[granule, []]),
               ("range", 0, t.device))
    return code


def do_grow(t, op):
    slot, count, code, fresh = t.get(op, "id", "segment"), t.size(op, "granules"), 0, []
    granule, granules = slot.more
    left = slot.bytes // granule - len(granules)
    if count > left:
        raise t.error(op, "%d granules, but only %d are left of the reserved range" % (count, left))
    while len(fresh) < count and code == 0:
        code, value = handle_create(t, granule, False, 4)
        if code == 0:
            cell = ("handle", 33, t.device, t.phase)
            t.rank.truth.add(cell, granule, granule)
            fresh.append((value, cell))
    if code:
        for value, cell in fresh:
            if t.call("aclrtFreePhysical", value) == 0:
                t.rank.truth.remove(cell, granule, granule)
        return code
    for value, cell in fresh:
        code = t.call("aclrtMapMem", slot.value + len(granules) * granule, granule, 0, value, 0)
        if code:
            return code
        granules.append((value, cell))
    return 0


def segment_shrink(t, slot, count):
    granule, granules = slot.more
    for _ in range(count):
        value, cell = granules[-1]
        code = t.call("aclrtUnmapMem", slot.value + (len(granules) - 1) * granule)
        code = code or t.call("aclrtFreePhysical", value)
        if code:
            return code
        granules.pop()
        t.rank.truth.remove(cell, granule, granule)
    return 0


def do_shrink(t, op):
    slot, count = t.get(op, "id", "segment"), t.size(op, "granules")
    if count > len(slot.more[1]):
        raise t.error(op, "the segment has fewer granules")
    return segment_shrink(t, slot, count)


def do_segment_free(t, op):
    slot = t.get(op, "id", "segment")
    code = segment_shrink(t, slot, len(slot.more[1]))
    return code or drop(t, op, "segment", "aclrtReleaseMemAddress")


class PoolProps(ctypes.Structure):
    _fields_ = [("alloc_type", ctypes.c_int32), ("handle_type", ctypes.c_int32),
                ("id", ctypes.c_uint32), ("type", ctypes.c_int32), ("max_bytes", ctypes.c_size_t),
                ("rsv", ctypes.c_uint8 * 32)]


def do_pool(t, op):
    props = PoolProps(0, 0, t.device, 1, t.number(op, "max"))
    return make(t, op, "pool", "aclrtMemPoolCreate", ctypes.byref(props))


def do_pool_malloc(t, op):
    place, size, out = t.place(op, "id"), t.size(op, "size"), ctypes.c_void_p()
    code = t.call("aclrtMemPoolMallocAsync", ctypes.byref(out), size,
                  t.get(op, "pool", "pool").value, t.get(op, "stream", "stream").value)
    if code == 0:
        t.fill(place, Slot("pool memory", out.value, size, size), ("pool", 33, t.device))
    return code


def do_pool_free(t, op):
    code = t.call("aclrtMemPoolFreeAsync", t.get(op, "id", "pool memory").value,
                  t.get(op, "stream", "stream").value)
    if code == 0:
        t.empty(op, "id")
    return code


def do_pool_trim(t, op):
    return t.call("aclrtMemPoolTrimTo", t.get(op, "pool", "pool").value, t.size(op, "keep"))


def do_pool_destroy(t, op):
    return drop(t, op, "pool", "aclrtMemPoolDestroy")


# HCCL, copies, ATB, calls by name

def do_hccl(t, op):
    place, out = t.place(op, "id"), ctypes.c_void_p()
    rank, ranks = t.number(op, "rank", t.values[0]), t.number(op, "ranks", t.values[1])
    buffer = t.number(op, "buffer", 200 << 20)
    name = file_name(t.text(op, "name")) if op["args"].get("name") is not None else ""
    if not 0 <= rank < ranks or buffer < 0 or buffer % (1 << 20):
        raise t.error(op, "rank %d of %d, buffer of %d (whole MiB)" % (rank, ranks, buffer))
    root = ctypes.create_string_buffer(4108)
    key = "hccl." + (name or "default")[:100]
    if rank == 0:
        code = t.call("HcclGetRootInfo", root)
        if code:
            return code
        if ranks > 1:
            t.rank.put("key." + key, root.raw)
    else:
        ctypes.memmove(root, t.rank.key(key, t, op), 4108)
    if t.choice(op, "api"):
        code = t.call("HcclCommInitRootInfo", ranks, root, rank, ctypes.byref(out))
    else:
        config = ctypes.create_string_buffer(24 + 4 + 4 + 128 + 256)
        config[24:28] = (buffer >> 20).to_bytes(4, "little")
        text = name.encode()[:100]
        config[32:32 + len(text)] = text
        code = t.call("HcclCommInitRootInfoConfig", ranks, root, rank, config, ctypes.byref(out))
    if code == 0:
        t.fill(place, Slot("communicator", out.value))
    return code


def do_hccl_destroy(t, op):
    return drop(t, op, "communicator", "HcclCommDestroy")


def memory_of(t, op, name, size):
    slot = t.get(op, name, "device", "host", "registered", "touched", "tensor", "pool memory")
    if size > slot.bytes:
        raise t.error(op, "%s is smaller than %d bytes" % (name, size))
    if slot.kind == "tensor":
        pointer = t.rank.torch._ZN7c10_npu19NPUCachingAllocator11GetBlockPtrEPKv
        pointer.restype = ctypes.c_void_p
        return pointer(U64(slot.value))
    return slot.value


def do_allreduce(t, op):
    count = t.size(op, "count")
    memory = memory_of(t, op, "block", count * 4)
    return t.call("HcclAllReduce", memory, memory, count, 4, 0,
                  t.get(op, "comm", "communicator").value, None)


def do_copy(t, op):
    size, kind = t.size(op, "size"), op["args"]["kind"]
    to, source = memory_of(t, op, "to", size), memory_of(t, op, "from", size)
    if op["args"].get("stream") is None:
        return t.call("aclrtMemcpy", to, size, source, size, kind)
    return t.call("aclrtMemcpyAsync", to, size, source, size, kind,
                  t.get(op, "stream", "stream").value)


def do_memset(t, op):
    size = t.size(op, "size")
    return t.call("aclrtMemset", memory_of(t, op, "id", size), size, t.number(op, "value"), size)


def do_meminfo(t, op):
    available, total = ctypes.c_size_t(), ctypes.c_size_t()
    code = t.call("aclrtGetMemInfo", 1, ctypes.byref(available), ctypes.byref(total))
    if code == 0:
        t.values[op["args"]["free"]], t.values[op["args"]["total"]] = available.value, total.value
    return code


def do_atb(t, op):
    size = t.size(op, "workspace")
    operation, variants, context = ((ctypes.c_uint64 * n)() for n in (512, 1696, 512))
    operation[2] = size  # sim/cann/atb.cpp: what the operation asks for
    memory = memory_of(t, op, "block", size) if op["args"].get("block") is not None else None
    if op["args"]["call"]:
        return t.call("_ZN3atb13OperationBase7ExecuteERKNS_11VariantPackEPhmPNS_7ContextE",
                      operation, variants, memory, size, context)
    workspace = ctypes.c_uint64(size)
    return t.call("_ZN3atb13OperationBase5SetupERKNS_11VariantPackERmPNS_7ContextE", operation,
                  variants, ctypes.byref(workspace), context)


def do_operator(t, op):
    offset = t.number(op, "offset")
    memory = [memory_of(t, op, name, offset + 1) + offset for name in "abc" if op["args"].get(name) is not None]
    if op["args"]["api"]:  # the parts of atb::VariantPack that the ABI fixes, see do_device.c
        operation, variants, context = ((ctypes.c_uint64 * n)() for n in (512, 1696, 512))
        for i, address in enumerate(memory):
            last = i == len(memory) - 1
            at, index = (848, 0) if last else (0, i)
            variants[at + 1], variants[at + 2 + (index * 104 + 80) // 8] = index + 1, address
        return t.call("_ZN3atb13OperationBase7ExecuteERKNS_11VariantPackEPhmPNS_7ContextE", operation, variants,
                      None, 0, context)
    create = t.rank.function("aclCreateTensor")
    create.restype = ctypes.c_void_p
    one = ctypes.c_int64(1)
    tensors = [create(ctypes.byref(one), U64(1), 0, ctypes.byref(one), U64(0), 2, ctypes.byref(one), U64(1),
                      U64(address)) for address in memory]
    code = t.call("CommonOpExecutorRun", None, 0, U64(1), None)
    for tensor in tensors:
        t.call("aclDestroyTensor", U64(tensor))
    return code


def do_call(t, op):
    return t.call(t.text(op, "symbol"), *[t.number(op, name) for name in "abcdef"])


# the stand-in torch_npu

def stream_of(t, op, name="stream"):
    if op["args"].get(name) is None:
        return U64(0)
    return U64(t.get(op, name, "stream").value)


def torch_of(t):
    return t.rank.torch or t.torch


def do_tensor(t, op):
    place, size, block = t.place(op, "id"), t.size(op, "size"), ctypes.c_void_p()
    device = t.number(op, "device", t.device)
    if device < 0:
        raise t.error(op, "the thread has no device")
    torch = torch_of(t)
    code = torch.npusim_torch_malloc(U64(size), stream_of(t, op), device,
                                     int(t.number(op, "external") != 0), ctypes.byref(block))
    if code == 0:
        size_of = torch._ZN7c10_npu19NPUCachingAllocator12GetBlockSizeEPKv
        size_of.restype = ctypes.c_size_t
        t.fill(place, Slot("tensor", block.value, size, size_of(U64(block.value))),
               ("tensor", 0, device))
    return code


def do_del(t, op):
    code = torch_of(t).npusim_torch_free(U64(t.get(op, "id", "tensor").value))
    if code == 0:
        t.empty(op, "id")
    return code


def do_record_stream(t, op):
    return torch_of(t).npusim_torch_record_stream(U64(t.get(op, "id", "tensor").value),
                                                  stream_of(t, op))


def do_stream_done(t, op):
    return torch_of(t).npusim_torch_stream_done(t.device, stream_of(t, op))


def do_empty_cache(t, _op):
    return torch_of(t).npusim_torch_empty_cache(t.device)


def do_workspace(t, op):
    if t.device < 0:
        raise t.error(op, "the thread has no device")
    return torch_of(t).npusim_torch_workspace(U64(t.size(op, "size")), stream_of(t, op), t.device)


STATEMENTS.update({name[3:]: function for name, function in list(globals().items())
                   if name.startswith("do_")})
