# SPDX-License-Identifier: Apache-2.0
"""Whose memory: what the program itself knows against the owners that npumem gives, byte by byte."""
import json

import harness
from harness import PROGRAMS, ROOT, CheckError, Daemon, Program, Scratch, driver_bytes

FRAMES = ROOT / "sim" / "python"
SETTLE_S = 5
# phase of npusim_frames.py: its owner
OWNERS = {
    "init": "PTA@vllm@init", "weights": "PTA@vllm@weights", "draft": "PTA@vllm@weights@draft",
    "profile": "PTA@vllm@profile", "kv_cache": "PTA@vllm@kv_cache",
    "kv_transfer": "PTA@vllm@kv_transfer", "warmup": "PTA@vllm@warmup", "graph": "PTA@vllm@graph",
    "activation": "PTA@vllm@serve", "sampler": "PTA@vllm@serve@sampler",
    "multimodal": "PTA@vllm@serve@encoder", "sleep": "PTA@vllm@sleep", "wake": "PTA@vllm@wake_up",
    "eplb": "PTA@vllm@eplb", "lora": "PTA@vllm@lora",
}
# Without frames that mean something: by size, or that a reading found a tensor in it.
NO_PHASE = ("PTA@block", "PTA@small", "PTA@tensor")
ROUNDS = 3
RIGHT_PERCENT = 99
TAG_OWNERS = {"weights": "PTA@vllm@weights", "kv_cache": "PTA@vllm@kv_cache"}


class Talker(Program):
    """A program that prints a line, and goes on when it is given one."""

    def __init__(self, *arguments, **settings):
        super().__init__(*arguments, **settings)
        self.seen = 0

    def line(self, seconds=90):
        def there():
            lines = self.out.read_bytes().split(b"\n")
            return lines[self.seen] if len(lines) > self.seen + 1 else None
        try:
            text = harness.wait_for(there, seconds, f"{self.name}: line {self.seen + 1}", self.alive)
        except CheckError as error:
            raise CheckError(f"{error}\n{self.tail()}") from error
        self.seen += 1
        return text.decode()

    def go_on(self):
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()


def owners_of(daemon, tgid, level):
    """({owner: bytes} of one level of the main row, the owners that are inferred)."""
    rows = [row for row in daemon.ask("breakdown")["ranks"] if row["tgid"] == tgid and row["main"]]
    owners = [o for o in rows[0]["owners"] if o["level"] == level and o["bytes"]] if rows else []
    return {o["owner"]: o["bytes"] for o in owners}, {o["owner"] for o in owners if o["inferred"]}


def settled(ask, wanted):
    """What `ask` gives once it is `wanted`, or when the time is up: events travel."""
    until = harness.time.monotonic() + SETTLE_S
    while (got := ask()) != wanted and harness.time.monotonic() < until:
        harness.time.sleep(0.05)
    return got


def check_round(checks, label, daemon, tgid, truth):
    wanted = {}
    for phase, size in truth.items():
        owner = OWNERS.get(phase, NO_PHASE[0])
        if size:
            wanted[owner] = wanted.get(owner, 0) + size

    def ask():
        got, _ = owners_of(daemon, tgid, "allocated")
        for owner in NO_PHASE[1:]:
            if owner in got:
                got[NO_PHASE[0]] = got.get(NO_PHASE[0], 0) + got.pop(owner)
        return got

    got, total = settled(ask, wanted), sum(wanted.values())
    inferred = owners_of(daemon, tgid, "allocated")[1]
    right = sum(min(got.get(owner, 0), size) for owner, size in wanted.items())
    wrong = {owner: (size, wanted.get(owner, 0)) for owner, size in got.items()
             if size > wanted.get(owner, 0) and owner not in inferred and owner != NO_PHASE[0]}
    checks.true(f"{label}: {100 * right / total:.3f} % of {total >> 20} MiB in {len(wanted)} owners",
                100 * right >= RIGHT_PERCENT * total, f"got {got}, wanted {wanted}")
    checks.equal(f"{label}: bytes with a wrong owner that is not marked as inferred", wrong, {})
    checks.equal(f"{label}: sum", sum(got.values()), total)


def run(checks, node, binaries, name, late=False, keep=False):
    """One process; `late`: the daemon starts after the first round, which then is from before attach."""
    label = f"owners {name} {'late' if late else 'early'}"
    with Scratch(keep) as scratch:
        daemon = None if late else Daemon(binaries, scratch)
        with Talker(node, scratch, "owners", [PROGRAMS / "owners.py", FRAMES],
                    NPUSIM_BASELINE=0) as program:
            try:
                program.line()
                if daemon:
                    daemon.wait_blocks([program.pid])
                before = {}
                for number in range(ROUNDS):
                    program.go_on()
                    truth = json.loads(program.line())
                    if late and number == 0:
                        daemon = Daemon(binaries, scratch)
                        daemon.wait_blocks([program.pid])
                        before = truth
                    elif late:
                        check_after(checks, f"{label}: round {number + 1}", daemon, program.pid, before,
                                    truth)
                    else:
                        check_round(checks, f"{label}: round {number + 1}", daemon, program.pid, truth)
                program.go_on()
                checks.equal(f"{label}: exit code", program.finish(), 0)
                checks.equal(f"{label}: lost events", daemon.ask("status")["events"]["lost"], 0)
            except CheckError as error:
                checks.fail(label, error)
            finally:
                if daemon and daemon.stop() != 0:
                    checks.fail(f"{label}: exit code of npumemd", daemon.last_words())


def check_after(checks, label, daemon, tgid, before, truth):
    """Attached late: no owner has more than the program says it holds; what is missing is from before
    attach."""
    def ask():
        got, _ = owners_of(daemon, tgid, "allocated")
        return sum(got.values()) == sum(truth.values()), got

    until = harness.time.monotonic() + SETTLE_S
    while True:
        whole, got = ask()
        if whole or harness.time.monotonic() > until:
            break
        harness.time.sleep(0.05)
    checks.true(f"{label}: the sum is the program's", whole, f"{sum(got.values())}, {sum(truth.values())}")
    limits = {}
    for phase, size in truth.items():
        limits[OWNERS.get(phase)] = limits.get(OWNERS.get(phase), 0) + size
    wrong = {owner: size for owner, size in got.items()
             if owner in limits and size > limits[owner]}
    checks.equal(f"{label}: owners with more than the program holds", wrong, {})
    named = sum(size for owner, size in got.items() if owner in limits)
    came = sum(truth.values()) - sum(before.values())
    checks.true(f"{label}: {named >> 20} MiB named, {got.get('before_attach', 0) >> 20} MiB from before",
                named > 0 and named + got.get("before_attach", 0) >= came * RIGHT_PERCENT // 100)


def run_camem(checks, node, binaries, cycles, keep=False):
    """vllm-ascend's own allocator: by its tags, through sleep and wake, and at its death in the last of
    these cycles: in the first the frames of waking have no names yet."""
    label = f"camem {cycles}"
    with Scratch(keep) as scratch, Daemon(binaries, scratch) as daemon:
        with Talker(node, scratch, "camem", [PROGRAMS / "camem.py", FRAMES, cycles], NPUSIM_BASELINE=0,
                    NPUSIM_HBM="2G", VLLM_CONFIGURE_LOGGING=0) as program:
            try:
                program.line()
                daemon.wait_blocks([program.pid])
                base = None
                for number in range(2 * cycles):
                    program.go_on()
                    said = json.loads(program.line())
                    base = check_moment(checks, f"{label} {number + 1} {said['moment']}", daemon, scratch,
                                        program.pid, said, base)
                check_death(checks, label, node, daemon, scratch, program, said)
            except CheckError as error:
                checks.fail(label, error)


def check_moment(checks, label, daemon, scratch, tgid, said, base):
    """Tagged bytes are those of the tag's phase while awake, and gone while asleep; all the rest stays."""
    awake = said["moment"] == "awake"
    tagged = {TAG_OWNERS[tag]: size for tag, size in said["tags"].items()} if awake else {}
    driver = sum(driver_bytes(scratch, tgid).values())

    def ask():
        got, _ = owners_of(daemon, tgid, "physical")
        return sum(got.values()), {owner: got.get(owner) for owner in tagged}

    total, got = settled(ask, (driver, tagged))
    checks.equal(f"{label}: driver's bytes", total, driver)
    checks.equal(f"{label}: tagged", got, tagged)
    physical, inferred = owners_of(daemon, tgid, "physical")
    checks.equal(f"{label}: inferred", inferred, set())
    rest = {owner: size for owner, size in physical.items() if owner not in TAG_OWNERS.values()}
    if base is not None:
        checks.equal(f"{label}: what stays", rest, base)
    return rest


def check_death(checks, label, node, daemon, scratch, program, said):
    """Another process takes the card, waking ends this one; the report says request, holders and frames."""
    hog = ROOT / "sim" / "vllm" / "hog.py"
    with Program(node, scratch, "hog", [hog, 0], NPUSIM_BASELINE=0, NPUSIM_HBM="2G") as other:
        harness.wait_for(lambda: other.out.read_bytes().endswith(b"\n"), 30, "the hog", other.alive)
        held = sum(driver_bytes(scratch, program.pid).values())
        program.go_on()
        checks.equal(f"{label}: ended by a signal", program.finish(60), -6)
        reports = [r for r in daemon.ask("oom", "list")["reports"] if r["tgid"] == program.pid]
        checks.equal(f"{label}: reports", len(reports), 1)
        report = daemon.ask("oom", "show", str(reports[0]["id"]))
        checks.true(f"{label}: request", report["requested_bytes"] in said["sizes"],
                    report["requested_bytes"])
        by_tgid = {h["tgid"]: h["bytes"] for h in report["holders"]}
        checks.true(f"{label}: the other process holds the card", by_tgid.get(other.pid, 0) > (1 << 30),
                    f"{by_tgid}")
        checks.true(f"{label}: itself it holds little", by_tgid.get(program.pid, 0) < held + (512 << 20),
                    f"{by_tgid}, {held}")
        checks.equal(f"{label}: phase", report["phase"], "wake_up")
        checks.equal(f"{label}: frames", [frame.partition(" ")[0] for frame in report["frames"][:3]],
                     ["create_and_map", "CaMemAllocator.wake_up", "NPUWorker.wake_up"])
