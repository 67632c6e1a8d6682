# SPDX-License-Identifier: Apache-2.0
"""Owners by Python frames: real interpreters run functions named as in vLLM-Ascend, and know what they allocated.

The truth is the program's own: it adds up the size of each block under the owner that its frames should give it.
"""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import time

from harness import MIB, ROOT, Skip, check, equal, lib_dir, program, wait_for

PREPARE = """
import functools, gc
sys.path.insert(0, SIM_PYTHON)
from npusim_frames import PHASES, frames_call
sys.setrecursionlimit(30000)
import builtins
kept = []  # a code object that is gone when the daemon looks has no name, which is another test
def exec(code, *scopes):
    kept.append(compile(code, '<test>', 'exec') if isinstance(code, str) else code)
    builtins.exec(kept[-1], *scopes)
truth, live = {}, {}
def size_of(handle):
    f = find("_ZN7c10_npu19NPUCachingAllocator12GetBlockSizeEPKv"); f.restype = ctypes.c_uint64
    return f(ctypes.c_uint64(handle))
def block(size, owner):
    b = U64(); r = call("npusim_torch_malloc", size, 0, 0, 0, b)
    assert r == 0, r
    live[b.v] = (size_of(b.v), owner)
    truth[owner] = truth.get(owner, 0) + live[b.v][0]
    return b.v
def drop(handle):
    size, owner = live.pop(handle)
    truth[owner] -= size
    call("npusim_torch_free", handle)
def blocks(sizes, owner):
    return [block(s, owner) for s in sizes]
def in_frames(names, owner, sizes=(3 << 20, 1000, 4096, 70000)):
    return frames_call(names, functools.partial(blocks, sizes, owner))
def in_phase(phase, owner, sizes=(3 << 20, 1000, 4096, 70000)):
    return in_frames(PHASES[phase], owner, sizes)
def class_named(name, **functions):
    return type(name, (), functions)
"""

# phase of sim/python/npusim_frames.py: its owner
OWNERS = {
    "init": "PTA@vllm@init", "weights": "PTA@vllm@weights", "draft": "PTA@vllm@weights@draft",
    "profile": "PTA@vllm@profile", "kv_cache": "PTA@vllm@kv_cache", "kv_transfer": "PTA@vllm@kv_transfer",
    "warmup": "PTA@vllm@warmup", "graph": "PTA@vllm@graph", "activation": "PTA@vllm@serve",
    "sampler": "PTA@vllm@serve@sampler", "multimodal": "PTA@vllm@serve@encoder", "sleep": "PTA@vllm@sleep",
    "wake": "PTA@vllm@wake_up", "eplb": "PTA@vllm@eplb", "lora": "PTA@vllm@lora",
}
# Before 3.11 a class is told by its file, which npusim_frames has for some classes only: no detail then.
OWNERS_BY_FILE = dict(OWNERS, draft="PTA@vllm@weights")


def interpreters():
    found = {"system": "/usr/bin/python3"}
    for path in glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3")):
        minor = int(re.search(r"/3\.(\d+)", path).group(1))
        if minor >= 9:
            found[f"3.{minor}"] = path
    return found


INTERPRETERS = interpreters()
VERSIONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "system")
NEWER = ("3.11", "3.12", "3.13")


def has_names(version):
    return version not in ("3.9", "3.10")


def owners_of(version):
    return OWNERS if has_names(version) else OWNERS_BY_FILE


def python_path(scratch, version, binary=None):
    """PATH where python3 is the interpreter of that version."""
    if version not in INTERPRETERS:
        raise Skip(f"no CPython {version} here")
    folder = scratch.path("bin-" + version)
    if not os.path.isdir(folder):
        os.mkdir(folder)
        os.symlink(binary or os.path.realpath(INTERPRETERS[version]), os.path.join(folder, "python3"))
    return folder + ":" + os.environ["PATH"]


def start(scratch, version, torch=True, prefix=(), env=None, binary=None, **options):
    libs = ["libascendcl.so"]
    if torch:
        libs.append(program("sim/torch-stripped/libtorch_npu.so"))
    more = dict(env or {}, PATH=python_path(scratch, version, binary))
    if not binary and version != "system":
        more["PYTHONHOME"] = os.path.dirname(os.path.dirname(os.path.realpath(INTERPRETERS[version])))
    agent = scratch.agent("8.1", libs=libs, log=False, prefix=prefix, env=more, **options)
    agent("SIM_PYTHON = %r" % os.path.join(ROOT, "sim/python"))
    agent(PREPARE)
    if version != "system" and not binary:
        equal(agent("out = '%d.%d' % sys.version_info[:2]"), version, "version of the interpreter")
    return agent


def allocated(daemon, tgid):
    """{owner: bytes} at the block level, and the owners that are inferred."""
    row = daemon.rank(tgid, 0)
    owners = [o for o in row["owners"] if o["level"] == "allocated" and o["bytes"]]
    return {o["owner"]: o["bytes"] for o in owners}, [o["owner"] for o in owners if o["inferred"]]


def check_truth(daemon, agent, tgid=None, inferred=()):
    """Every byte under the owner that the program knows."""
    got, marked = allocated(daemon, tgid or agent.pid)
    for small in ("PTA@small", "PTA@block"):  # without a phase it depends on the size alone which of the two
        if small in got:
            got["none"] = got.get("none", 0) + got.pop(small)
    truth = {owner: size for owner, size in agent("out = truth").items() if size}
    equal(got, truth, "bytes by owner")
    equal(marked, list(inferred), "owners marked inferred")


def run_phases(daemon, agent, version, tgid=None):
    handles = {}
    for phase, owner in owners_of(version).items():
        handles[phase] = agent(f"out = in_phase({phase!r}, {owner!r})")
    agent("block(5 << 20, 'none'); block(3000, 'none')")
    check_truth(daemon, agent, tgid)
    # freed in another phase, each from the owner it was allocated under; again, now that every name is known
    for phase, owner in owners_of(version).items():
        agent(f"frames_call(PHASES['activation'], lambda: [drop(h) for h in {handles[phase][:3]}])")
        agent(f"in_phase({phase!r}, {owner!r}, (2 << 20, 600, 30000))")
    check_truth(daemon, agent, tgid)


def test_phases(scratch, version, attach, links):
    """All phases, attached before the process starts and while it runs."""
    if attach == "early":
        daemon = scratch.daemon(links=links)
        agent = start(scratch, version)
    else:
        agent = start(scratch, version)
        agent("in_phase('weights', 'early')")  # before anybody looks: not among what is told
        agent("[drop(h) for h in list(live)]; truth.clear()")
        daemon = scratch.daemon(links=links)
    daemon.wait_target(agent.pid, "blocks", seconds=60)
    run_phases(daemon, agent, version)
    equal(daemon.target(agent.pid)["reason"], None, "reason for less than full coverage")


test_phases.variants = [(v, a, "auto") for v in VERSIONS for a in ("early", "late")] + [
    (v, "late", links) for v in ("3.10", "3.11") for links in ("perf", "perf-legacy")]


def test_frames(scratch, version):
    """ls names the frames of each block, the innermost first."""
    agent = start(scratch, version)
    daemon = scratch.daemon()
    daemon.wait_target(agent.pid, "blocks")
    agent("in_phase('kv_cache', 'PTA@vllm@kv_cache', (64 << 20,))")
    agent("in_phase('profile', 'PTA@vllm@profile', (2 << 20,))")
    names = agent("out = [PHASES['kv_cache'], PHASES['profile']]")
    shown = {b["owner"]: [f.rsplit(" (", 1) for f in b["frames"]] for b in daemon.blocks(agent.pid, "allocated")}
    for owner, chain in zip(("PTA@vllm@kv_cache", "PTA@vllm@profile"), names):
        expected = [n if has_names(version) else n.rsplit(".", 1)[-1] for n in reversed(chain)]
        check(all(len(f) == 2 for f in shown[owner]), 'every frame has a name', shown[owner])
        got = [name for name, _ in shown[owner] if name in expected]
        equal(got, expected, f"frames of {owner}")
        equal([name for name, _ in shown[owner]][-2:], ["main", "<module>"], "the root")
        check(any("model_runner" in place for _, place in shown[owner]), "files of the frames", shown[owner])
    # physical memory names its frames, too
    physical = [b for b in daemon.blocks(agent.pid, "physical") if b["frames"]]
    check(any(f.startswith("blocks (") for b in physical for f in b["frames"]), "frames of physical memory", physical)


test_frames.variants = [(v,) for v in VERSIONS]


def test_thread(scratch, version):
    """Threads started after attach, the interpreter's lock held by another one all the time."""
    agent = start(scratch, version)
    daemon = scratch.daemon()
    daemon.wait_target(agent.pid, "blocks")
    agent("""
stop = []
def spin():
    while not stop:
        sum(range(1000))
spinner = threading.Thread(target=spin); spinner.start()
""")
    if not has_names(version):  # told by the daemon when its first event asks for it
        agent("""
go = threading.Event()
def work():
    device(0); block(2 << 20, 'none'); go.wait()
    in_phase('weights', 'PTA@vllm@weights'); in_phase('sampler', 'PTA@vllm@serve@sampler')
t = threading.Thread(target=work); t.start()
""")
        time.sleep(0.5)
        agent("go.set(); t.join(); stop.append(1); spinner.join()")
    else:
        agent("""
def work():
    device(0); in_phase('weights', 'PTA@vllm@weights'); in_phase('sampler', 'PTA@vllm@serve@sampler')
for i in range(20):
    in_thread(work)
many = [threading.Thread(target=work) for i in range(40)]
[t.start() for t in many]; [t.join() for t in many]
stop.append(1); spinner.join()
""")
    check_truth(daemon, agent)


test_thread.variants = [(v,) for v in VERSIONS]


def test_depth(scratch, version, depth):
    """The phase is found at the root of a deep stack; beyond the bound nothing is guessed."""
    agent = start(scratch, version)
    daemon = scratch.daemon()
    daemon.wait_target(agent.pid, "blocks")
    agent("""
def down(n, then):
    return then() if n == 0 else down(n - 1, then)
def deep(names, depth, inner, owner):
    return frames_call(names, lambda: down(depth, lambda: frames_call(inner, lambda: blocks((2 << 20, 500), owner))))
result = []
def deep_thread(*a):
    if sys.version_info < (3, 11):  # a new thread has no frames yet at its first event there
        result.append(deep(*a))
        return
    t = threading.Thread(target=lambda: (device(0), result.append(deep(*a)))); t.start(); t.join()
""")
    if depth <= 96:
        agent(f"deep(['NPUWorker.load_model'], {depth}, [], 'PTA@vllm@weights')")
        agent(f"deep(['NPUModelRunner.profile_run'], {depth}, ['NPUModelRunner.execute_model'], 'PTA@vllm@profile')")
        check_truth(daemon, agent)
        return
    agent(f"deep_thread(['NPUWorker.load_model'], {depth}, [], 'none')")
    check_truth(daemon, agent)
    agent(f"deep_thread([], {depth}, ['NPUModelRunner.execute_model'], 'PTA@vllm@serve')")
    check_truth(daemon, agent, inferred=["PTA@vllm@serve"])
    frames = max((b["frames"] for b in daemon.blocks(agent.pid, "allocated")), key=len)
    equal(len(frames), 127, "frames that are kept of a deep stack")


test_depth.variants = [(v, d) for v in VERSIONS for d in (60, 96, 10000)]


def test_generators(scratch, version):
    """A generator's frame is where it is resumed from, not where it was made."""
    agent = start(scratch, version)
    daemon = scratch.daemon()
    daemon.wait_target(agent.pid, "blocks")
    agent("""
def produce(owner):
    for size in (2 << 20, 700, 3 << 20, 900):
        yield block(size, owner)
made = frames_call(['NPUWorker.load_model'], lambda: produce('PTA@vllm@serve'))
frames_call(['NPUModelRunner.execute_model'], lambda: list(made))
made = frames_call(['NPUModelRunner.execute_model'], lambda: produce('PTA@vllm@kv_cache'))
frames_call(['NPUModelRunner.initialize_kv_cache'], lambda: [next(made) for _ in range(3)])
def outer():
    yield from produce('PTA@vllm@weights')
frames_call(['NPUWorker.load_model'], lambda: list(outer()))
import asyncio
async def inside():
    await asyncio.sleep(0)
    return blocks((2 << 20, 800), 'PTA@vllm@profile')
frames_call(['NPUModelRunner.profile_run'], lambda: asyncio.run(inside()))
""")
    check_truth(daemon, agent)


test_generators.variants = [(v,) for v in VERSIONS]


def test_lies(scratch, version):
    """Names that are set later do not count; the code's own do."""
    agent = start(scratch, version)
    daemon = scratch.daemon()
    daemon.wait_target(agent.pid, "blocks")
    agent("""
def plain(then):
    return then()
plain.__qualname__ = 'NPUWorker.load_model'
plain.__name__ = 'load_model'
plain(lambda: blocks((2 << 20, 800), 'none'))
class Other:
    __qualname__ = 'NPUWorker'
    def helper(self, then):
        return then()
Other.__name__ = 'NPUWorker'
Other().helper(lambda: blocks((2 << 20, 800), 'none'))
class MyNPUWorker:
    def load_model(self, then):
        return then()
MyNPUWorker().load_model(lambda: blocks((2 << 20, 800), 'none'))
""")
    check_truth(daemon, agent)
    if has_names(version):
        agent("""
unicode = compile('class Größe:\\n  @staticmethod\\n  def \U00010400(then): return then()', 'x.py', 'exec')
scope = {}; exec(unicode, scope); getattr(scope['Größe'], '\U00010428', None) or 0
[v for k, v in vars(scope['Größe']).items() if isinstance(v, staticmethod)][0].__func__(lambda: blocks((8 << 20,), 'none'))
long = compile('def %s(then): return then()' % ('n' * 3000), 'y' * 3000 + '.py', 'exec')
exec(long, scope); scope['n' * 3000](lambda: blocks((9 << 20,), 'none'))
""")
        frames = [f for b in daemon.blocks(agent.pid, "allocated") for f in b["frames"]]
        check(any(f.startswith("Größe.") for f in frames), "a name outside ASCII", frames[:9])
        check(any(f.startswith("n" * 191 + " (") for f in frames), "a long name is cut", [f[:40] for f in frames])
        check_truth(daemon, agent)


test_lies.variants = [(v,) for v in VERSIONS]


def test_reuse(scratch, version):
    """A code object is freed and its memory is another one's, in both directions."""
    agent = start(scratch, version)
    daemon = scratch.daemon()
    daemon.wait_target(agent.pid, "blocks")
    agent("""
def made(name, file='vllm_ascend/worker/worker.py'):
    scope = {}
    builtins.exec(compile('class NPUWorker:\\n  @staticmethod\\n  def %s(then): return then()' % name, file, 'exec'), scope)
    return scope['NPUWorker'].__dict__[name].__func__
def reuse(first, second, owner_first, owner_second, pause=0, named=0.05):
    f = made(first)
    f(functools.partial(blocks, (2 << 20, 1500), owner_first))
    f(functools.partial(blocks, (2 << 20, 1500), owner_first))
    place = id(f.__code__)
    time.sleep(named)
    del f; gc.collect()
    others = []
    for i in range(20000):
        g = made(second)
        if id(g.__code__) == place:
            time.sleep(pause)
            g(functools.partial(blocks, (2 << 20, 1500), owner_second))
            return True
        others.append(g)
        if len(others) > 50:
            others.clear()
    return False
""")
    if not agent("out = reuse('load_model', 'other', 'PTA@vllm@weights', 'none')"):
        raise Skip("no code object came to lie where the first one was")
    check_truth(daemon, agent)
    # gone before anybody could look: not known, but never another one's
    if agent("out = reuse('load_model', 'profile_run', 'PTA@vllm@weights', 'none', 0, 0)"):
        got, _ = allocated(daemon, agent.pid)
        truth = agent("out = truth")
        check(got.get("PTA@vllm@weights", 0) <= truth["PTA@vllm@weights"], "only what is weights is called that", got, truth)
        equal(sum(got.values()), sum(truth.values()), "bytes in all")
        agent("[drop(h) for h in list(live)]; truth.clear()")
    # from nothing to a phase: noticed by the look at all code objects
    if agent("out = reuse('something', 'load_model', 'none', 'PTA@vllm@weights', 7)"):
        check_truth(daemon, agent)


test_reuse.variants = [(v,) for v in VERSIONS]


def test_exit(scratch, version):
    """Processes end in the middle of what they do; what is known of them stays sound."""
    daemon = scratch.daemon()
    pids = set()
    for i in range(6):
        agent = start(scratch, version)
        daemon.wait_target(agent.pid, "blocks")
        agent("""
def work():
    device(0)
    while True:
        [drop(h) for h in in_phase('graph', 'x')]
for _ in range(4): threading.Thread(target=work, daemon=True).start()
""")
        agent.send("while True: exec('def f(n): return in_phase(\"weights\", \"x\") and f(n - 1) if n else 0\\nf(50)', globals())")
        time.sleep(0.2)
        pids.add(agent.pid)
        os.kill(agent.pid, (signal.SIGKILL, signal.SIGTERM, signal.SIGABRT)[i % 3])
        agent.process.wait()
    wait_for(lambda: not pids & {t["tgid"] for t in daemon.status()["targets"]}, 5, "all have ended")
    status = daemon.status()
    equal((status["events"]["lost"], status["events"]["decode_errors"]), (0, 0), "lost and malformed events")
    agent = start(scratch, version)
    daemon.wait_target(agent.pid, "blocks")
    run_phases(daemon, agent, version)


test_exit.variants = [(v,) for v in ("3.10", "3.11", "3.13")]


FATAL = """
def made(name, file):
    scope = {}
    exec(compile('def %s(then):\\n  return then()' % name, file, 'exec'), scope)
    return scope[name]
def down(n, then):
    return then() if n == 0 else down(n - 1, then)
def fatal():
    frames, f = [], sys._getframe()
    while f:
        c = f.f_code
        frames.append('%s (%s:%d)' % (getattr(c, 'co_qualname', c.co_name), os.path.basename(c.co_filename), c.co_firstlineno))
        f = f.f_back
    with open(PATH, 'w') as out:
        json.dump(frames, out)
    create(handle, 1 << 40, prop, 0)
    kill(pid, 9)
odd = [made('Gr\u00f6\u00dfe', 'size.py'), made('\u6a21\u578b', '/srv/\u6743\u91cd/\u52a0\u8f7d.py'),
       made('\U00010400', 'wide.py'), made('n' * 3000, 'y.py'), made('long_path', '/d' * 2000 + '/end.py')]
def chain(depth):
    return frames_call(PHASES['wake'], lambda: down(depth, lambda: functools.reduce(lambda then, f: functools.partial(f, then), odd, fatal)()))
create, handle, prop = find('aclrtMallocPhysical'), ctypes.byref(ctypes.c_uint64()), ctypes.byref(AclProp(0, 0, 1, 0, 1, 0))
kill, pid = ctypes.CDLL(None).kill, os.getpid()
create.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint64]
"""


def check_fatal(scratch, daemon, agent, depth):
    """Ends the process in a failed call while the daemon sleeps: the report has the frames that the process saw,
    and their phase."""
    path = scratch.path("frames")
    agent(f"import json; PATH = {path!r}")
    os.kill(daemon.pid, signal.SIGSTOP)
    try:
        agent.send(f"chain({depth})")
        equal(agent.process.wait(20), -signal.SIGKILL, "end of the process")
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
    rows = wait_for(lambda: daemon.json("oom", "list", "--pid", str(agent.pid))["reports"], 10, "a report")
    report = daemon.json("oom", "show", str(rows[0]["id"]))
    with open(path) as f:
        truth = json.load(f)
    check(len(truth) > depth, "frames that the process saw", truth)
    # a name is cut to 191 bytes, and a frame to 79
    truth = [re.sub("n{192,}", "n" * 191, frame).encode()[:79].decode() for frame in truth]
    equal(report["frames"], truth[:32], "frames of the failed call")
    equal((report["phase"], report["phase_inferred"]), ("wake_up", False), "phase of the failed call")
    status = daemon.status()
    equal((status["events"]["lost"], status["events"]["decode_errors"]), (0, 0), "lost and malformed events")


def test_fatal(scratch, version, links, depth):
    """A process ends of a failed call, in frames that nobody has seen, before the daemon can look."""
    agent = start(scratch, version, torch=False)
    daemon = scratch.daemon(links=links)
    daemon.wait_target(agent.pid)
    agent(FATAL)
    check_fatal(scratch, daemon, agent, depth)


test_fatal.variants = [(v, "auto", 3) for v in VERSIONS] + [("3.11", "auto", 80), ("3.10", "perf", 3),
                                                            ("3.11", "perf-legacy", 3)]


def test_corrupt_names(scratch, version):
    """Calls fail in a frame whose code object has names that are none: lengths without end, widths and forms that
    do not exist, pointers into nothing and into the kernel. It has no name then, or the one it has had before."""
    agent = start(scratch, version, torch=False)
    daemon = scratch.daemon()
    daemon.wait_target(agent.pid)
    agent(FATAL)
    agent("""
def word(address):
    return ctypes.cast(address, ctypes.POINTER(ctypes.c_uint64))
def text(length, state):
    b = (ctypes.c_uint64 * 4096)(); b[2], b[4] = length, state
    texts.append(b)
    return ctypes.addressof(b)
texts, COMPACT, ASCII = [], 1 << 5, 1 << 6
def wrong(offset, value):
    # nothing of Python but this frame runs while the word is wrong
    at, size = word(id(sys._getframe().f_code) + offset), ctypes.c_size_t(offset << 40)
    old = at[0]
    at[0] = value; r = create(handle, size, prop, 0); at[0] = old
    assert r != 0
def with_wrong(offset, value):
    kept.append(type(wrong)(wrong.__code__.replace(co_firstlineno=len(kept)), globals()))  # not named yet
    frames_call(PHASES['wake'], lambda: kept[-1](offset, value))
    time.sleep(0.015)  # a thread sends no more than 8 in 0.1 s
values = [0, 8, 0xdead0000, 1 << 63, 0xffff800000000000, (1 << 48) - 8]
values += [text(length, state) for length in (0, 191, 1 << 20, (1 << 64) - 1)
           for state in [w << 2 | f for w in (0, 1, 2, 4, 7) for f in (0, COMPACT, COMPACT | ASCII)]]
""")
    for offset in (112, 120, 128):  # file, name, qualified
        agent(f"[with_wrong({offset}, value) for value in values]")
    reports = [daemon.json("oom", "show", str(row["id"]))["frames"] for row in
               daemon.json("oom", "list", "--pid", str(agent.pid))["reports"]]
    equal(len(reports), 3, "reports")
    for frames in reports:
        check(re.match(r"\?|wrong \(.*:\d+\)| \(", frames[0]), "the frame's name", frames)
        equal(frames[1].split(" (")[0], "with_wrong.<locals>.<lambda>", "the frame that called it")
    time.sleep(0.2)
    check_fatal(scratch, daemon, agent, 3)


test_corrupt_names.variants = [(v,) for v in NEWER]


def test_pid_namespace(scratch, version):
    """Thread ids of a container's interpreter are those of its pid namespace."""
    agent = start(scratch, version, prefix=("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"))
    tgid = int(open(f"/proc/{agent.pid}/task/{agent.pid}/children").read().split()[0])
    equal(agent("out = os.getpid()"), 1, "pid inside")
    daemon = scratch.daemon()
    daemon.wait_target(tgid, "blocks")
    run_phases(daemon, agent, version, tgid)
    if has_names(version):
        agent("in_thread(lambda: (device(0), in_phase('weights', 'PTA@vllm@weights')))")
        check_truth(daemon, agent, tgid)


test_pid_namespace.variants = [(v,) for v in VERSIONS]


def test_fork(scratch, version):
    """A forked child is a process of its own, with the same code objects."""
    agent = start(scratch, version)
    daemon = scratch.daemon()
    daemon.wait_target(agent.pid, "blocks")
    agent("in_phase('weights', 'PTA@vllm@weights')")
    agent("""
r, w = os.pipe(); r2, w2 = os.pipe()
child = os.fork()
if child == 0:
    os.close(w); os.read(r, 1)
    device(0)
    in_phase('kv_cache', 'x', (6 << 20, 900))
    os.write(w2, b'x'); os.close(w2); time.sleep(60); os._exit(0)
out = child
""")
    child = agent("out = child")
    daemon.wait_target(child)
    time.sleep(0 if has_names(version) else 1.5)
    agent("os.write(w, b'x'); os.read(r2, 1)")
    try:
        got, _ = allocated(daemon, child)
        size = agent("out = live[in_phase('kv_cache', 'PTA@vllm@kv_cache', (6 << 20,))[0]][0]")
        check(got.get("PTA@vllm@kv_cache", 0) >= size, "the child's blocks by phase", got)
        check_truth(daemon, agent)
    finally:
        os.kill(child, signal.SIGKILL)


test_fork.variants = [(v,) for v in VERSIONS]

VMM = """
prop = AclProp(0, 0, 1, 0, 1, 0)
ranges = {}
def range_new(size):
    a = U64(); assert call("aclrtReserveMemAddress", a, size, 0, None, 0) == 0
    return a.v
def fill(address, size):
    h = U64(); assert call("aclrtMallocPhysical", h, size, prop, 0) == 0
    assert call("aclrtMapMem", address, size, 0, h.v, 0) == 0
    ranges[address] = (h.v, size)
def empty(address):
    h, size = ranges[address]
    assert call("aclrtUnmapMem", address) == 0 and call("aclrtFreePhysical", h) == 0
def take(size):
    a = range_new(size); fill(a, size); return a
weights = frames_call(PHASES['weights'], lambda: [take(6 << 20), take(2 << 20)])
kv = frames_call(PHASES['kv_cache'], lambda: [take(40 << 20)])
"""


def physical(daemon, agent):
    row = daemon.rank(agent.pid, 0)
    return {o["owner"]: o["bytes"] // MIB for o in row["owners"] if o["level"] == "physical" and o["bytes"]
            and o["owner"].startswith("PTA")}


def test_sleep_mode(scratch, version):
    """Memory of the application itself: whose by phase; after a wake-up whose it was."""
    agent = start(scratch, version, torch=False)
    daemon = scratch.daemon()
    daemon.wait_target(agent.pid)
    agent(VMM)
    equal(physical(daemon, agent), {"PTA@vllm@weights": 8, "PTA@vllm@kv_cache": 40}, "MiB by owner")
    agent("frames_call(PHASES['sleep'], lambda: [empty(a) for a in weights + kv])")
    equal(physical(daemon, agent), {}, "MiB by owner while it sleeps")
    agent("frames_call(PHASES['wake'], lambda: [fill(a, ranges[a][1]) for a in weights + kv])")
    equal(physical(daemon, agent), {"PTA@vllm@weights": 8, "PTA@vllm@kv_cache": 40}, "MiB by owner after the wake-up")
    agent("frames_call(PHASES['wake'], lambda: take(4 << 20))")
    equal(physical(daemon, agent).get("PTA@vllm@wake_up"), 4, "MiB that the wake-up itself took")


test_sleep_mode.variants = [("3.11",), ("3.13",)]


def test_workspace(scratch):
    """Threads without Python: by component, never unknown."""
    agent = start(scratch, "3.11")
    daemon = scratch.daemon()
    daemon.wait_target(agent.pid, "blocks")
    agent("frames_call(PHASES['activation'], lambda: call('npusim_torch_workspace', 8 << 20, 0, 0))")
    agent("in_phase('weights', 'PTA@vllm@weights')")
    got, _ = allocated(daemon, agent.pid)
    check(set(got) <= {"PTA@vllm@weights", "PTA_WORKSPACE"}, "owners", got)
    row = daemon.rank(agent.pid, 0)
    check(any(o["owner"] == "PTA_WORKSPACE" and o["level"] == "physical" for o in row["owners"]), "workspace", row["owners"])


def test_user_table(scratch):
    """A user's own phases; a file with an error is left out and named."""
    daemon = scratch.daemon(start=False)
    os.makedirs(os.path.join(daemon.config_dir, "phases.d"))
    with open(os.path.join(daemon.config_dir, "phases.d/50-train.conf"), "w") as f:
        f.write("class optimizer PTA@train@optimizer_states\ndetail muon\n"
                "code optimizer@muon 1 Muon.*\ncode optimizer 1 *.step train\n")
    with open(os.path.join(daemon.config_dir, "phases.d/60-bad.conf"), "w") as f:
        f.write("class x PTA@x\ncode y 1 A.b\n")
    daemon.start()
    check('60-bad.conf:2: no class "y"' in daemon.text(), "the error is named", daemon.text())
    agent = start(scratch, "3.11")
    daemon.wait_target(agent.pid, "blocks")
    agent("""
scope = {}
exec(compile('class Muon:\\n  def step(self, then): return then()\\nclass Adam:\\n  def step(self, then): return then()',
             '/x/train/optim.py', 'exec'), scope)
scope['Adam']().step(functools.partial(blocks, (2 << 20, 900), 'PTA@train@optimizer_states'))
scope['Muon']().step(functools.partial(blocks, (2 << 20, 900), 'PTA@train@optimizer_states@muon'))
in_phase('weights', 'PTA@vllm@weights')
""")
    check_truth(daemon, agent)


def test_patched_interpreter(scratch, minor):
    """An interpreter that is not what it says, or of a version that nobody knows: no phases, and coverage
    says why."""
    source = os.path.realpath("/usr/bin/python3")
    out = subprocess.run(["nm", "-D", source], capture_output=True, text=True).stdout
    m = re.search(r"^([0-9a-f]+) \w Py_Version$", out, re.M)
    if not m:
        raise Skip("the system's Python has no Py_Version")
    loads = subprocess.run(["readelf", "-lW", source], capture_output=True, text=True).stdout
    for line in loads.splitlines():
        words = line.split()
        if words[:1] == ["LOAD"] and int(words[2], 16) <= int(m.group(1), 16) < int(words[2], 16) + int(words[4], 16):
            offset = int(m.group(1), 16) - int(words[2], 16) + int(words[1], 16)
    binary = scratch.path("interpreter")
    shutil.copy(source, binary)
    with open(binary, "r+b") as f:
        f.seek(offset)
        old = int.from_bytes(f.read(8), "little")
        other = minor or (12 if (old >> 16) & 0xFF == 11 else 11)
        f.seek(offset)
        f.write((0x030001F0 | other << 16).to_bytes(8, "little"))
    agent = start(scratch, "system", binary=binary, env={"PYTHONHOME": "/usr"})
    daemon = scratch.daemon()
    daemon.wait_target(agent.pid, "blocks")
    agent("in_phase('weights', 'none'); in_phase('activation', 'none')")
    check_truth(daemon, agent)
    reason = daemon.target(agent.pid)["reason"]
    check(reason and "no phases" in reason, f"coverage says it: {reason}")


test_patched_interpreter.variants = [(0,), (27,)]


def test_corrupt_frames(scratch, version):
    """Pointers that lead nowhere, into the kernel, in a circle or into other memory, in the chain of frames of
    the thread that allocates: what cannot be walked has no phase, or one that is marked as inferred."""
    agent = start(scratch, version)
    daemon = scratch.daemon()
    daemon.wait_target(agent.pid, "blocks")
    agent("PREVIOUS = %d\nCODE_NAME = %d" % ((48, 128) if version == "3.11" else (8, 128)))
    agent("""
import struct, sys
take = find("npusim_torch_malloc")
junk = ctypes.create_string_buffer(bytes(range(256)) * 64)
def word(address):
    return ctypes.cast(address, ctypes.POINTER(ctypes.c_uint64))
def frame_address():
    return word(id(sys._getframe(1)) + 24)[0]
def with_word(place, value, size, owner):
    # nothing of Python but this frame runs while the word is wrong
    b, at = ctypes.c_uint64(), word(place)
    old = at[0]
    sizes, address = ctypes.c_size_t(size), ctypes.byref(b)
    at[0] = value; r = take(sizes, None, 0, 0, address); at[0] = old
    assert r == 0, r
    live[b.value] = (size_of(b.value), owner)
    truth[owner] = truth.get(owner, 0) + live[b.value][0]
def bad_chain(value, size):
    here = frame_address()
    with_word(here + PREVIOUS, here if value == 'circle' else value, size, 'none')
""")
    # in a class: a frame above it can no longer be seen, so that its phase is an inference or none
    for value in ("8", "'circle'", "0xdead0000", "1 << 63", "0xffff800000000000", "ctypes.addressof(junk)", "(1 << 48) - 8"):
        for size in (2 << 20, 3000):
            agent(f"frames_call(['NPUWorker.load_model'], lambda: bad_chain({value}, {size}))")
    got, inferred = allocated(daemon, agent.pid)
    held = sum(agent("out = truth").values())
    equal(sum(got.values()), held, "all bytes are there")
    equal(set(got) - {"PTA@block", "PTA@small"} - set(inferred), set(), f"owners that are sure ({got})")
    agent("in_phase('weights', 'PTA@vllm@weights')")
    after, _ = allocated(daemon, agent.pid)
    check(after.get("PTA@vllm@weights", 0) > got.get("PTA@vllm@weights", 0), "phases after it", after)


test_corrupt_frames.variants = [(v,) for v in NEWER]


def test_dying_threads(scratch, version):
    """Threads that begin, allocate and end all the time, while the daemon attaches and reads their states."""
    agent = start(scratch, version)
    agent("""
stop = []
def once():
    device(0)
    for handle in in_phase('graph', 'PTA@vllm@graph', (2 << 20, 900)): drop(handle)
def churn():
    while not stop:
        ts = [threading.Thread(target=once) for _ in range(8)]
        [t.start() for t in ts]; [t.join() for t in ts]
churner = threading.Thread(target=churn); churner.start()
""")
    for _ in range(3):
        daemon = scratch.daemon()
        daemon.wait_target(agent.pid, "blocks")
        time.sleep(0.5)
        equal(daemon.status()["events"]["decode_errors"], 0, "malformed events")
        daemon.stop()
    daemon = scratch.daemon()
    daemon.wait_target(agent.pid, "blocks")
    agent("stop.append(1); churner.join()")
    before, _ = allocated(daemon, agent.pid)
    agent("in_phase('weights', 'PTA@vllm@weights')")
    after, _ = allocated(daemon, agent.pid)
    equal(after.get("PTA@vllm@weights", 0) - before.get("PTA@vllm@weights", 0),
          agent("out = truth")["PTA@vllm@weights"], "a phase after it")


test_dying_threads.variants = [(v,) for v in ("3.10", "3.11", "3.13")]


def test_no_access(scratch):
    """A daemon that may not look into the process (no CAP_SYS_PTRACE, as in a container of its own): it says so,
    and stays."""
    agent = start(scratch, "3.11")
    daemon = scratch.daemon(prefix=("setpriv", "--bounding-set", "-sys_ptrace", "--inh-caps", "-sys_ptrace"))
    wait_for(lambda: daemon.target(agent.pid), 10, "the process is listed")
    agent("in_phase('weights', 'none')")
    target = daemon.target(agent.pid)
    equal(target["level"], "none", "level")
    check("Permission denied" in (target["reason"] or ""), "coverage says it", target)
    rows = [r for r in daemon.json("ps")["ranks"] if r["tgid"] == agent.pid]
    check(all(r["allocated_bytes"] is None for r in rows), "a figure that nobody can know", rows)


def test_switched_off(scratch):
    """Without frames everything is as if there were none."""
    agent = start(scratch, "3.11")
    daemon = scratch.daemon(sets=("probes.python_frames=no",))
    daemon.wait_target(agent.pid, "blocks")
    agent("in_phase('weights', 'none')")
    check_truth(daemon, agent)
    reason = daemon.target(agent.pid)["reason"]
    check(reason and "no phases" in reason, "coverage says it", reason)


def test_not_python(scratch):
    """A process without an interpreter is told no reason."""
    lib_dir("8.1")
    daemon = scratch.daemon()
    holder = subprocess.Popen([program("tests/kernel/holder"), os.path.join(lib_dir("8.1"), "libascendcl.so")],
                              stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=scratch.environment("8.1"))
    scratch.at_end(holder.kill)
    equal(daemon.wait_target(holder.pid)["reason"], None, "reason")


def test_flood(scratch):
    """New code objects all the time: stacks are held within their bound, and no event is lost."""
    agent = start(scratch, "3.11")
    daemon = scratch.daemon(sets=("probes.ring_bytes=256KiB",))
    daemon.wait_target(agent.pid, "blocks")
    agent("""
end = time.monotonic() + 3
while time.monotonic() < end:
    scope = {"blocks": blocks, "in_frames": in_frames}
    exec(compile("def f(n): return f(n - 1) if n else in_frames(['NPUWorker.load_model'], 'PTA@vllm@weights', (600,))", "x", "exec"), scope)
    scope["f"](40)
""")
    status = daemon.status()
    equal((status["events"]["lost"], status["events"]["decode_errors"]), (0, 0), "lost and malformed events")
    got, _ = allocated(daemon, agent.pid)
    equal(sum(got.values()), sum(agent("out = truth").values()), "bytes in all")


CYCLES = """
class Held:
    def __init__(self, handle):
        self.handle, self.me = handle, self
    def __del__(self):
        drop(self.handle)
def cycles(count, size):
    for _ in range(count):
        Held(block(size, 'none'))
"""


def test_collections(scratch, version):
    """Device memory that a reference cycle held is told by the collection that gave it back; the counters are the interpreter's own."""
    daemon = scratch.daemon()
    agent = start(scratch, version)
    daemon.wait_target(agent.pid, "blocks")
    agent(CYCLES)
    agent("gc.collect(); gc.disable(); [drop(h) for h in blocks((9 << 20,), 'none')]")
    for generation, count in ((0, 3), (1, 2), (2, 5)):
        agent(f"cycles({count}, {generation + 2} << 20); gc.collect({generation})")

    def collector():
        row = daemon.json("advise", "--pid", str(agent.pid))["gc"]
        return row and row[0]["freed_blocks"] == [3, 2, 5] and row[0]
    row = wait_for(collector, 10, "what the collections gave back")
    # a block is its tensor and up to 512 bytes
    equal([size >> 20 for size in row["freed_bytes"]], [3 * 2, 2 * 3, 5 * 4], "bytes by generation")
    stats = agent("out = gc.get_stats()")
    equal(row["collections"], [s["collections"] for s in stats], "collections")
    equal(row["uncollectable"], [s["uncollectable"] for s in stats], "uncollectable")
    equal(row["enabled"], False, "enabled")
    agent("gc.enable()")
    equal(daemon.json("advise", "--pid", str(agent.pid))["gc"][0]["enabled"], True, "enabled again")


test_collections.variants = [(version,) for version in VERSIONS]
