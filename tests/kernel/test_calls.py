# SPDX-License-Identifier: Apache-2.0
"""One event for one fact: every row of schema/probes.def, against the simulated libraries' call log."""
from harness import LAYOUTS, MIB, check, equal, hal_address, probe_rows, wait_for

# symbol -> code that makes exactly one successful call of it; the dict `t` says what was asked for.
# `a` is any earlier state of the process: each entry cleans up after itself in a later entry.
ROWS = [
    ("aclrtMalloc", "r = amalloc('p1', 'aclrtMalloc', 3 * MIB + 5, 0); t = dict(requested=3 * MIB + 5, address=p1)"),
    ("aclrtMallocAlign32", "r = amalloc('p2', 'aclrtMallocAlign32', 3 * MIB, 1); t = dict(requested=3 * MIB, address=p2)"),
    ("aclrtMallocCached", "r = amalloc('p3', 'aclrtMallocCached', 8192, 2); t = dict(requested=8192, address=p3)"),
    ("aclrtMallocWithCfg", "u = U64(); r = call('aclrtMallocWithCfg', u, 12345, 0, None);"
     "p4 = u.v; t = dict(requested=12345, address=p4)"),
    ("aclrtMallocForTaskScheduler", "u = U64(); r = call('aclrtMallocForTaskScheduler', u, 4096, 2, None);"
     "p5 = u.v; t = dict(requested=4096, address=p5)"),
    ("aclrtMemAllocManaged", "u = U64(); r = call('aclrtMemAllocManaged', u, MIB, 0); p6 = u.v;"
     "t = dict(requested=MIB, address=p6)"),
    ("aclrtFree", "r = free(p1); t = dict(address=p1)"),
    ("aclrtFreeWithDevSync", "r = free(p2, 'aclrtFreeWithDevSync'); t = dict(address=p2)"),
    ("aclrtMallocHost", "u = U64(); r = call('aclrtMallocHost', u, 1000); h1 = u.v;"
     "t = dict(requested=1000, address=h1, host=True)"),
    ("aclrtMallocHostWithCfg", "u = U64(); r = call('aclrtMallocHostWithCfg', u, 2000, None); h2 = u.v;"
     "t = dict(requested=2000, address=h2, host=True)"),
    ("aclrtFreeHost", "r = call('aclrtFreeHost', h1); t = dict(address=h1, host=True)"),
    ("aclrtFreeHostWithDevSync", "r = call('aclrtFreeHostWithDevSync', h2); t = dict(address=h2, host=True)"),
    ("aclrtAllocBuf", "u = U64(); r = call('aclrtAllocBuf', u, 4096); b1 = u.v; t = dict(requested=4096, address=b1)"),
    ("aclrtFreeBuf", "r = call('aclrtFreeBuf', b1); t = dict(address=b1)"),
    # virtual memory management
    ("aclrtReserveMemAddress", "u = U64(); r = call('aclrtReserveMemAddress', u, 64 * MIB, 0, None, 1); v1 = u.v;"
     "t = dict(requested=64 * MIB, address=v1)"),
    ("aclrtReserveMemAddressNoUCMemory", "u = U64(); r = call('aclrtReserveMemAddressNoUCMemory', u, 4 * MIB, 0, None, 1);"
     "v2 = u.v; t = dict(requested=4 * MIB, address=v2)"),
    ("aclrtMallocPhysical", "u = U64(); prop = AclProp(mem_attr=4, type=1, id=0);"
     "r = call('aclrtMallocPhysical', u, 20 * MIB, prop, 0); k1 = u.v; t = dict(requested=20 * MIB, handle=k1)"),
    ("aclrtMapMem", "r = call('aclrtMapMem', v1, 20 * MIB, 0, k1, 0); t = dict(address=v1, handle=k1, requested=20 * MIB)"),
    ("aclrtMemRetainAllocationHandle", "u = U64(); r = call('aclrtMemRetainAllocationHandle', v1, u); k2 = u.v;"
     "t = dict(address=v1, handle=k2)"),
    ("aclrtMemMapNoAccess", "u = U64(); prop = AclProp(mem_attr=4, type=1, id=0);"
     "call('aclrtMallocPhysical', u, 4 * MIB, prop, 0); k3 = u.v;"
     "r = call('aclrtMemMapNoAccess', v2, 4 * MIB, 0, k3, 0); t = dict(address=v2, handle=k3, requested=4 * MIB)"),
    ("aclrtUnmapMem", "r = call('aclrtUnmapMem', v1); t = dict(address=v1)"),
    ("aclrtFreePhysical", "r = call('aclrtFreePhysical', k2); t = dict(handle=k2)"),
    ("aclrtReleaseMemAddress", "r = call('aclrtReleaseMemAddress', v1); t = dict(address=v1)"),
    # share: the process imports what it exported
    ("aclrtMemImportFromShareableHandle", "s = U64(); call('aclrtMemExportToShareableHandle', k1, 0, 0, s); u = U64();"
     "r = call('aclrtMemImportFromShareableHandle', s.v, 0, u); k4 = u.v; t = dict(handle=k4)"),
    ("aclrtMemImportFromShareableHandleV2", "s = ctypes.create_string_buffer(256);"
     "call('aclrtMemExportToShareableHandleV2', k1, 0, 0, s); u = U64();"
     "r = call('aclrtMemImportFromShareableHandleV2', s, 0, 0, u); k5 = u.v; t = dict(handle=k5)"),
    ("aclrtIpcMemImportByKey", "key = ctypes.create_string_buffer(128); p7 = malloc(2 * MIB);"
     "call('aclrtIpcMemGetExportKey', p7, 2 * MIB, key, 128, 0); u = U64();"
     "r = call('aclrtIpcMemImportByKey', u, key, 0); t = dict(address=u.v)"),
    ("aclrtIpcMemClose", "r = call('aclrtIpcMemClose', key); t = dict()"),
    ("aclrtHostRegister", "hb = ctypes.create_string_buffer(1 << 16); ha = ctypes.addressof(hb); u = U64();"
     "r = call('aclrtHostRegister', ha, 1 << 16, 0, u); t = dict(address=ha, requested=1 << 16, host=True)"),
    ("aclrtHostUnregister", "r = call('aclrtHostUnregister', ha); t = dict(address=ha, host=True)"),
    ("aclrtHostRegisterV2", "r = call('aclrtHostRegisterV2', ha, 1 << 16, 1); t = dict(address=ha, requested=1 << 16, host=True)"),
    # stream-ordered pools
    ("aclrtCreateStream", "u = U64(); r = call('aclrtCreateStream', u); st = u.v; t = dict(handle=st)"),
    ("aclrtMemPoolCreate", "props = (ctypes.c_uint8 * 128)(); struct.pack_into('<iiIi', props, 0, 0, 0, 0, 1); u = U64();"
     "r = call('aclrtMemPoolCreate', u, props); mp = u.v; t = dict(handle=mp)"),
    ("aclrtMemPoolMallocAsync", "u = U64(); r = call('aclrtMemPoolMallocAsync', u, 5 * MIB, mp, st); m1 = u.v;"
     "t = dict(requested=5 * MIB, address=m1, handle=mp)"),
    ("aclrtMemPoolFreeAsync", "r = call('aclrtMemPoolFreeAsync', m1, st); t = dict(address=m1)"),
    ("aclrtMemPoolTrimTo", "r = call('aclrtMemPoolTrimTo', mp, 0); t = dict(handle=mp)"),
    ("aclrtMemPoolDestroy", "r = call('aclrtMemPoolDestroy', mp); t = dict(handle=mp)"),
    # the driver's own level, called by nobody above
    ("halMemAlloc", "u = U64(); r = call('halMemAlloc', u, 6 * MIB, (3 << 56) | (1 << 14) | (1 << 10) | (1 << 17) | 0);"
     "d1 = u.v; t = dict(requested=6 * MIB, address=d1)"),
    ("halMemFree", "r = call('halMemFree', d1); t = dict(address=d1)"),
    ("halMemCreate", "u = U64(); prop = DrvProp(side=1, devid=0, module_id=33, pg_type=1, mem_type=0);"
     "r = call('halMemCreate', u, 2 * MIB, prop, 0); k6 = u.v; t = dict(requested=2 * MIB, handle=k6)"),
    ("halMemAddressReserve", "u = U64(); r = call('halMemAddressReserve', u, 8 * MIB, 0, None, 1); v3 = u.v;"
     "t = dict(requested=8 * MIB, address=v3)"),
    ("halMemMap", "r = call('halMemMap', v3, 2 * MIB, 0, k6, 0); t = dict(address=v3, handle=k6, requested=2 * MIB)"),
    ("halMemUnmap", "r = call('halMemUnmap', v3); t = dict(address=v3)"),
    ("halMemMapNoAccess", "r = call('halMemMapNoAccess', v3, 2 * MIB, 0, k6, 0); t = dict(address=v3, handle=k6, requested=2 * MIB)"),
    ("halMemImportFromShareableHandle", "s = U64(); call('halMemExportToShareableHandle', k6, 0, 0, s); u = U64();"
     "r = call('halMemImportFromShareableHandle', s.v, 0, u); k7 = u.v; t = dict(handle=k7)"),
    ("halMemRelease", "r = call('halMemRelease', k7); t = dict(handle=k7)"),
    ("halMemAddressFree", "call('halMemUnmap', v3); r = call('halMemAddressFree', v3); t = dict(address=v3)"),
    ("halHostUnregister", "r = call('halHostUnregister', ha, 0); t = dict(address=ha, host=True)"),
    ("halHostRegister", "u = U64(); r = call('halHostRegister', ha, 1 << 16, 0, 0, u); t = dict(address=ha, requested=1 << 16, host=True)"),
    ("halShmemOpenHandle", "nm = ctypes.create_string_buffer(b'shm-a', 64); d2 = malloc(2 * MIB);"
     "call('halShmemCreateHandle', d2, 2 * MIB, nm, 64); u = U64(); r = call('halShmemOpenHandle', nm, u); q1 = u.v; t = dict(address=q1)"),
    ("halShmemCloseHandle", "r = call('halShmemCloseHandle', q1); t = dict(address=q1)"),
    ("halShmemOpenHandleByDevId", "u = U64(); r = call('halShmemOpenHandleByDevId', 0, nm, u); t = dict(address=u.v)"),
    # device, context, stream
    ("aclrtSetDevice", "r = call('aclrtSetDevice', 1); t = dict(flags=1)"),
    ("aclrtCreateContext", "u = U64(); r = call('aclrtCreateContext', u, 1); cx = u.v; t = dict(handle=cx, flags=1)"),
    ("aclrtDestroyContext", "r = call('aclrtDestroyContext', cx); t = dict(handle=cx)"),
    ("aclrtCreateStreamWithConfig", "call('aclrtSetDevice', 0); u = U64();"
     "r = call('aclrtCreateStreamWithConfig', u, 0, 3); s2 = u.v; t = dict(handle=s2)"),
    ("aclrtDestroyStream", "r = call('aclrtDestroyStream', st); t = dict(handle=st)"),
    ("aclrtDestroyStreamForce", "r = call('aclrtDestroyStreamForce', s2); t = dict(handle=s2)"),
    ("aclrtGetMemInfo", "u = U64(); v = U64(); r = call('aclrtGetMemInfo', 1, u, v); t = dict(free=u.v, total=v.v)"),
    # HCCL
    ("HcclCommInitRootInfo", "ri = ctypes.create_string_buffer(4108); call('HcclGetRootInfo', ri); u = U64();"
     "r = call('HcclCommInitRootInfo', 1, ri, 0, u); c1 = u.v; t = dict(handle=c1, rank=0, world=1)"),
    ("HcclCommInitRootInfoConfig", "call('HcclGetRootInfo', ri); cf = ctypes.create_string_buffer(512);"
     "call('HcclCommConfigInit', cf) if has('HcclCommConfigInit') else struct.pack_into('<Q3I2I', cf, 0, 168, 0xf0f0f0f0, 8, 0, 0xffffffff, 0xffffffff);"
     "u = U64(); r = call('HcclCommInitRootInfoConfig', 1, ri, 0, cf, u); c2 = u.v; t = dict(handle=c2, rank=0, world=1)"),
    ("HcclCreateSubCommConfig", "u = U64(); parent = U64(); parent.c.value = c1; ids = (ctypes.c_uint32 * 1)(0);"
     "r = call('HcclCreateSubCommConfig', parent, 1, ids, 77, 0, cf, u); c3 = u.v; t = dict(handle=c3, rank=0, world=1)"),
    ("HcclCommInitClusterInfo", "rt = make_rank_table(); u = U64(); r = call('HcclCommInitClusterInfo', rt.encode(), 0, u);"
     "c4 = u.v; t = dict(handle=c4, rank=0, world=0)"),
    ("HcclCommInitClusterInfoConfig", "u = U64(); r = call('HcclCommInitClusterInfoConfig', rt.encode(), 0, cf, u);"
     "c5 = u.v; t = dict(handle=c5, rank=0, world=0)"),
    ("HcclCommDestroy", "r = call('HcclCommDestroy', c1); t = dict(handle=c1)"),
    ("aclrtResetDevice", "call('aclrtSetDevice', 2); r = call('aclrtResetDevice', 2); t = dict(flags=2)"),
    ("aclrtResetDeviceForce", "call('aclrtSetDevice', 3); r = call('aclrtResetDeviceForce', 3); t = dict(flags=3)"),
]

PREPARE = """
import struct, tempfile
MIB = 1 << 20
def amalloc(name, api, size, policy):
    u = U64()
    r = call(api, u, size, policy)
    globals()[name] = u.v
    return r
def make_rank_table():
    f = tempfile.NamedTemporaryFile('w', suffix='.json', delete=False)
    json.dump({"status": "completed", "version": "1.0", "server_count": "1", "server_list": [
        {"server_id": "10.0.0.1", "device": [{"device_id": "0", "rank_id": "0", "device_ip": "192.168.1.1"}]}]}, f)
    f.close()
    return f.name
"""


def flags_of(row, line):
    """The flag word of a driver's line, as an event carries it."""
    return line["args"][2] if line["symbol"] == "halMemAlloc" else None


def file_at(pid, address):
    """Name of the file that a process has mapped at an address."""
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps:
        for line in maps:
            begin, end = (int(word, 16) for word in line.split()[0].split("-"))
            if begin <= address < end:
                return line.split()[-1].rpartition("/")[2]
    return ""


def check_row(agent, events, rows, symbol, code, where):
    level, kind, call_flags = rows[symbol]
    agent.calls()
    # earlier calls of the entry are told apart by the mark before the last statement
    head, _, last = code.rpartition("r = ")
    head and agent(head.rstrip("; "))
    agent("mark()")
    events.until_mark(agent.pid)
    agent.calls()
    t = agent("r = " + last + "; out = dict(t, r=r)")
    lines = agent.calls()
    agent("mark()")
    group = events.until_mark(agent.pid)
    where = f"{where}, {symbol}"
    equal(t["r"], 0, f"{where}: result of the call")
    own = [e for e in group if e.get("api", e.get("hal")) == symbol and (level != "HAL" or "api" not in e)]
    check(len(own) == 1, f"{where}: {len(own)} events", group, lines)
    e = own[0]
    equal(e["kind"], kind, f"{where}: kind")
    equal(e["result"], 0, f"{where}: result")
    hal = [line for line in lines if line["symbol"] in rows and rows[line["symbol"]][0] == "HAL"]
    for key in ("address", "handle"):
        if key in t:
            equal(hal_address(e, key), t[key], f"{where}: {key}")
    if "requested" in t:
        equal(e["requested_bytes"], t["requested"], f"{where}: requested_bytes")
    if "flags" in t:
        equal(hal_address(e, "flags"), t["flags"], f"{where}: flags")
    if "free" in t:
        equal((e["free_bytes"], e["total_bytes"]), (t["free"], t["total"]), f"{where}: what the driver said")
    if "rank" in t:
        equal((e["rank"], e["world_size"]), (t["rank"], t["world"]), f"{where}: rank and world size")
    if kind != "mem_info":  # ctypes makes its calls from libffi
        caller = file_at(agent.pid, int(e["caller"], 16))
        check(caller.startswith("libffi"), f"{where}: the caller is in {caller!r}", e)
    if level in ("ACL", "HAL"):
        equal(e["host_memory"], bool(t.get("host")), f"{where}: host_memory")
    # what the driver was asked for, and nothing of it twice
    inner = [line for line in hal if rows[line["symbol"]][1] == kind and line["symbol"] != symbol]
    if level == "ACL" and "NM_CALL_POOL" not in call_flags and inner:
        good = [line for line in inner if line["result"] == 0]
        equal(e.get("hal"), good[-1]["symbol"], f"{where}: hal")
        if kind in ("alloc", "create", "host_register", "reserve"):
            equal(e["physical_bytes"], good[-1]["size"], f"{where}: physical_bytes")
        if flags_of(e, good[-1]) is not None:
            equal(hal_address(e, "flags"), flags_of(e, good[-1]), f"{where}: flag word")
    if symbol == "halMemAlloc":
        equal(e["physical_bytes"], t["requested"], f"{where}: physical_bytes")
    others = [x for x in group if x is not e and x["kind"] not in ("device_set", "scope_begin")]
    expected = [line for line in hal if line["symbol"] != symbol] if level != "ACL" or "POOL" in call_flags \
        else [line for line in hal if rows[line["symbol"]][1] != kind]
    equal(sorted(x.get("hal", x.get("api")) for x in others), sorted(line["symbol"] for line in expected),
          f"{where}: events beside the call's own")


def every_row(scratch, layout, links):
    rows = probe_rows()
    daemon = scratch.daemon(links=links)
    libs = ["libascendcl.so", "libruntime.so", "libascend_hal.so"]
    libs += ["libhccl.so"] if scratch_has(layout, "libhccl.so") else []
    agent = scratch.agent(layout, libs=libs)
    daemon.wait_target(agent.pid, "physical")
    events = daemon.events("--pid", str(agent.pid))
    agent(PREPARE)
    tried, absent = set(), []
    for symbol, code in ROWS:
        if not agent(f"out = has({symbol!r})"):
            absent.append(symbol)
            continue
        check_row(agent, events, rows, symbol, code, f"layout {layout}, {links}")
        tried.add(symbol)
    left = set(rows) - tried - set(absent)
    check(not left, "rows of probes.def that no test calls", sorted(left))
    status = daemon.status()["events"]
    equal(status["lost"], 0, "lost events")
    equal(status["decode_errors"], 0, "decode errors")
    return absent


def scratch_has(layout, name):
    import os
    from harness import lib_dir
    return os.path.exists(os.path.join(lib_dir(layout), name))


def test_every_row(scratch, layout, links):
    absent = every_row(scratch, layout, links)
    equal(absent, [], "functions that are in no library of this layout")


test_every_row.variants = [(layout, "multi") for layout in LAYOUTS] + [("8.1", "perf"), ("9.2", "perf-legacy")]


# --- failures, wrappers, calls that never return ---

def failing(agent, events, code):
    """Runs code between two marks: its value, the events, the lines of the call log."""
    agent("mark()")
    events.until_mark(agent.pid)
    agent.calls()
    value = agent(code)
    lines = agent.calls()
    agent("mark()")
    return value, events.until_mark(agent.pid), lines


def held(daemon, tgid):
    return {hal_address(b): b["size_bytes"] for b in daemon.blocks(tgid, "physical") if b["owner"] != "CANN@RUNTIME"}


def setup_allocations(scratch, layout="8.1"):
    """How often halMemAlloc is called until a process has set the devices that these tests use."""
    agent = scratch.agent(layout)
    agent("mark()")
    count = len([line for line in agent.calls() if line["symbol"] == "halMemAlloc"])
    agent.end()
    return count


def test_retry_that_fails(scratch, layout):
    """Huge pages first, then small ones, both refused: one event, the failing calls counted."""
    daemon = scratch.daemon()
    before = setup_allocations(scratch, layout)
    agent = scratch.agent(layout, fail=",".join(f"halMemAlloc:{before + i}:6" for i in range(1, 5)))
    daemon.wait_target(agent.pid)
    events = daemon.events("--pid", str(agent.pid))
    r, group, lines = failing(agent, events, "out = malloc(30 << 20)")
    equal(r, -207001, "result in the process")
    refused = [line for line in lines if line["symbol"] == "halMemAlloc"]
    check(len(refused) >= 2, "the runtime did not try again", lines)
    equal([(e["kind"], e["result"], e["requested_bytes"], e["failed_calls"], e["api"]) for e in group],
          [("alloc", 207001, 30 << 20, len(refused), "aclrtMallocAlign32")], "events")
    equal(held(daemon, agent.pid), {}, "live blocks")
    rows = daemon.sql("SELECT * FROM event WHERE kind = 'failed_call' AND tgid = ?", agent.pid)
    equal([(r["result"], r["requested_bytes"]) for r in rows], [(207001, 30 << 20)], "failed calls in the store")


test_retry_that_fails.variants = [(layout,) for layout in LAYOUTS]


def test_retry_that_succeeds(scratch):
    """Huge pages refused, small ones given: one event of success that says so, counted once."""
    daemon = scratch.daemon()
    agent = scratch.agent(fail=f"halMemAlloc:{setup_allocations(scratch) + 1}:6")
    daemon.wait_target(agent.pid)
    events = daemon.events("--pid", str(agent.pid))
    address, group, lines = failing(agent, events, "out = malloc(30 << 20)")
    check(address > 0, "the call failed", address)
    results = [line["result"] for line in lines if line["symbol"] == "halMemAlloc"]
    equal(results, [6, 0], "what the driver said")
    equal([(e["kind"], e["result"], e["failed_calls"], hal_address(e), e["physical_bytes"]) for e in group],
          [("alloc", 0, 1, address, 30 << 20)], "events")
    equal(held(daemon, agent.pid), {address: 30 << 20}, "live blocks")


def test_free_that_fails(scratch, where):
    """A free whose call did not return 0 freed nothing."""
    daemon = scratch.daemon()
    agent = scratch.agent(fail=f"{where}:1:507899")
    daemon.wait_target(agent.pid)
    events = daemon.events("--pid", str(agent.pid))
    agent("p = malloc(8 << 20, 1)")
    address = agent("out = p")
    r, group, _ = failing(agent, events, "out = free(p)")
    check(r != 0, "the free succeeded", r)
    equal([(e["kind"], e["result"]) for e in group], [("free", r)], "events")
    equal(held(daemon, agent.pid), {address: 8 << 20}, "live blocks after a free that failed")
    equal(agent("out = free(p)"), 0, "second free")
    equal(held(daemon, agent.pid), {}, "live blocks after a free that succeeded")


test_free_that_fails.variants = [("halMemFree",), ("aclrtFree",)]


def fake(scratch, links="auto"):
    import os
    from harness import Holder, fake_lib
    daemon = scratch.daemon(links=links, sets=["daemon.discovery=no"])
    holder = Holder(scratch, fake_lib(scratch))
    daemon.wait_target(holder.pid, "physical")
    return daemon, holder


def test_tail_call_wrapper(scratch, links):
    """A wrapper that is one jump has the same frame as what it jumps to: counted once."""
    daemon, holder = fake(scratch, links)
    events = daemon.events("--pid", str(holder.pid))
    holder.mark()
    events.until_mark(holder.pid, 1)
    address = holder.malloc(5000, "w")
    holder.mark()
    group = events.until_mark(holder.pid, 1)
    equal([(e["kind"], hal_address(e), e["requested_bytes"]) for e in group], [("alloc", address, 5000)], "events of one call")
    equal(len(daemon.blocks(holder.pid)), 1, "live blocks")


test_tail_call_wrapper.variants = [("multi",), ("perf",)]


def test_call_inside_a_call(scratch, links):
    """A probed call that makes another: the outermost is the fact, with what it was asked for."""
    daemon, holder = fake(scratch, links)
    events = daemon.events("--pid", str(holder.pid))
    holder.mark()
    events.until_mark(holder.pid, 1)
    address = holder.malloc(5000, "o")
    holder.mark()
    group = events.until_mark(holder.pid, 1)
    equal([(e["kind"], e["api"], hal_address(e), e["requested_bytes"]) for e in group],
          [("alloc", "aclrtMallocAlign32", address, 5000)], "events of one call")


test_call_inside_a_call.variants = [("multi",), ("perf-legacy",)]


def test_calls_that_never_return(scratch, links):
    """longjmp and pthread_exit out of a probed call: counted as stale, later calls are right."""
    daemon, holder = fake(scratch, links)
    first = holder.malloc(4096)
    for _ in range(3):
        holder.ask("j 7777")
    second = holder.malloc(8192)
    for _ in range(3):
        holder.ask("t 9999")
    third = holder.malloc(12288)
    got = {hal_address(b): b["requested_bytes"] for b in daemon.blocks(holder.pid)}
    equal(got, {first: 4096, second: 8192, third: 12288}, "live blocks")
    equal(holder.ask(f"f {second}"), ["0"], "free")
    equal(len(daemon.blocks(holder.pid)), 2, "live blocks after a free")
    # a jump is found out at the next call from further up the stack; a thread that is gone makes none
    check(daemon.status()["events"]["stale_calls"] >= 1, "stale calls are not counted", daemon.status()["events"])


test_calls_that_never_return.variants = [("multi",), ("perf-legacy",)]


def test_throw(scratch, links):
    """C++ exceptions through every probed C++ function: the process catches them and lives."""
    import os
    import subprocess
    from harness import fake_lib, program
    daemon = scratch.daemon(links=links, sets=["daemon.discovery=no"])
    library = fake_lib(scratch, "libatb.so")
    env = scratch.environment(LD_LIBRARY_PATH=os.path.dirname(library))
    # the program's own run path would find the library of the build
    p = subprocess.Popen([program("tests/kernel/throws"), "200"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    scratch.at_end(p.kill)
    equal(p.stdout.readline(), "ready\n", "first line")
    with open(f"/proc/{p.pid}/maps") as f:
        mapped = {line.split()[-1] for line in f if line.rstrip().endswith("libatb.so")}
    daemon.cli("attach", str(p.pid), "--timeout", "2min", timeout=130)
    check(any(library == path or path.endswith("libatb.so") for path in mapped), "libatb.so is not mapped", mapped)
    check("4 functions probed" in daemon.text(), "its functions are not probed", daemon.text()[-500:])
    events = daemon.events("--pid", str(p.pid))
    output, _ = p.communicate("go\n", timeout=30)
    equal(p.returncode, 0, "exit code of the process that throws")
    equal(output, "caught 600\n", "exceptions that were caught")
    daemon.status()

    def kinds():
        names = [e["kind"] for e in events.list]
        return names.count("atb_context_create"), names.count("atb_context_destroy")
    wait_for(lambda: kinds() == (400, 200), 5, "context events: 400 and 200 of them")


test_throw.variants = [("multi",), ("perf",)]


def test_reuse_race(scratch):
    """Two threads that allocate and free at once, addresses reused: nothing is left, nothing is lost."""
    import os
    from harness import Holder, process_used, private_libs
    daemon = scratch.daemon(sets=["daemon.discovery=no"])
    holder = Holder(scratch, os.path.join(private_libs(scratch, "8.5"), "libacl_rt.so"))
    daemon.wait_target(holder.pid, "physical")
    base = len(daemon.blocks(holder.pid, "physical"))
    equal(holder.ask("m 20000"), ["done"], "20000 pairs in each of two threads")
    status = daemon.status()["events"]
    equal(status["lost"], 0, "lost events")
    check(status["received"] >= 80000, "events received", status)
    equal(len(daemon.blocks(holder.pid, "physical")), base, "blocks that are left")
    driver = sum(process_used(scratch, holder.pid).values())
    equal(daemon.rank(holder.pid, 0)["physical_bytes"], driver, "physical bytes")
