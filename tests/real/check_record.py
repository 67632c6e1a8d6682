# SPDX-License-Identifier: Apache-2.0
"""record, whatif and diff on the real torch_npu: against the allocator's own history and the models' own state_dict()."""
import contextlib
import json
import pathlib
import subprocess
import sys

from harness import PROGRAMS, CheckError, Daemon, Scratch, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "kernel"))
from trace_reader import Trace  # noqa: E402

DOUBLED = "3.up.weight"
PEAK_PERCENT = 1.0
MIB = 1 << 20


class Rank:
    """One of the two ranks, and what it says."""

    def __init__(self, node, scratch, number, doubled):
        self.err = scratch.path / f"rank{number}.err"
        self.process = subprocess.Popen(
            [str(node.python), str(PROGRAMS / "record.py"), str(doubled)], cwd=PROGRAMS, stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=open(self.err, "wb"), text=True,
            env=node.environment(scratch.make("node"), ASCEND_RT_VISIBLE_DEVICES=str(number), RANK=str(number),
                                 LOCAL_RANK=str(number), WORLD_SIZE="2"))
        self.pid = self.process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def hear(self):
        line = self.process.stdout.readline()
        if not line:
            raise CheckError(f"record.py: {self.err.read_text(errors='replace')[-1200:]}")
        return json.loads(line)

    def tell(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.hear()


def check_history(checks, daemon, rank):
    """Every block in the allocator's own order; the replay reserves what the process really did."""
    rank.tell("work")
    wait_for(lambda: daemon.rank_row(rank.pid), 20, "the rank")
    before = sum(o["bytes"] for o in daemon.rank_row(rank.pid)["owners"] if o["owner"] == "before_attach")
    path = daemon.ask("record", "start", "--pid", str(rank.pid))["recordings"][0]["path"]
    said = rank.tell("go")
    row = daemon.ask("record", "stop", "--pid", str(rank.pid))["recordings"][0]
    trace = Trace(path)
    done = [[r.kind, r.address, r.size] for r in trace.of("malloc", "free")
            if r.time_ns > trace.begin_boot_ns and r.component == 0]
    checks.equal("record: lost events", (row["lost_events"], trace.lost_events), (0, 0))
    checks.equal(f"record: {len(done)} blocks against the allocator's history",
                 [r[:2] for r in done] == [e[:2] for e in said["history"]], True)
    # the history names requests: a block is up to 512 bytes larger, or has a rest that is not split off
    bad = [(r, e) for r, e in zip(done, said["history"]) if not 0 <= r[2] - e[2] <= (544 if r[2] < MIB else MIB)]
    checks.equal("record: sizes that do not fit the request", bad[:3], [])
    checks.true("record: frames of what is kept",
                any(r.stack and r.stack.split(";")[0].startswith("empty (") for r in trace.of("malloc")),
                {r.stack for r in trace.records})
    replay = daemon.ask("whatif", "expandable_segments:True", "--from", path)
    real, model = said["peak_reserved_bytes"], replay["baseline"]["peak_reserved_bytes"]
    checks.true(f"record: peak reserved in the replay: {model} against {real}",
                abs(model - real) <= real * PEAK_PERCENT / 100, (model, real))
    events = daemon.ask("status")["events"]
    checks.equal("record: lost, odd", (events["lost"], events["decode_errors"]), (0, 0))
    owners = {o["owner"]: o["bytes"] for o in daemon.rank_row(rank.pid)["owners"] if o["level"] == "allocated"}
    checks.equal(f"record: the owners after it: {owners}", sum(owners.values()),
                 daemon.rank_row(rank.pid)["allocated_bytes"])
    checks.equal("record: before attach, as before it", owners.get("before_attach", 0), before)
    grown = daemon.ask("diff", "--from", path)
    level = [row for row in grown["levels"] if row["level"] == "allocated"][0]
    checks.equal("record: grown within it", level["delta_bytes"], said["grown_bytes"])


def check_ranks(checks, daemon, ranks):
    """The doubled weight stands out, and nothing else does."""
    first, second = (rank.tell("hold") for rank in ranks)
    wait_for(lambda: all(daemon.rank_row(rank.pid) for rank in ranks), 20, "both ranks")
    for sides in (["--from", f"pid:{ranks[0].pid}", "--to", f"pid:{ranks[1].pid}"], # others may have ranks on this host
                  ["--from", "rank:0", "--to", "rank:1", "--pid", f"{ranks[0].pid},{ranks[1].pid}"]):
        what = f"record: diff {sides[1].split(':')[0]}"
        document = daemon.ask("diff", *sides)
        parameters = document["parameters"] or {"tensors": [], "equal": 0, "verdict": None}
        checks.equal(f"{what}: tensors that differ",
                     [(t["name"], t["kind"], t["from_bytes"], t["to_bytes"]) for t in parameters["tensors"]],
                     [(DOUBLED, "larger", first[DOUBLED], second[DOUBLED])])
        checks.equal(f"{what}: equal ones", parameters["equal"], len(first) - 1)
        checks.true(f"{what}: {parameters['verdict']}", DOUBLED in (parameters["verdict"] or ""), parameters)


def run(checks, node, binaries, keep=False):
    try:
        with Scratch(keep) as scratch, Daemon(binaries, scratch) as daemon, contextlib.ExitStack() as stack:
            ranks = [stack.enter_context(Rank(node, scratch, n, doubled)) for n, doubled in enumerate((-1, 3))]
            for rank in ranks:
                rank.hear()
            check_ranks(checks, daemon, ranks)
            check_history(checks, daemon, ranks[0])
    except CheckError as error:
        checks.fail("record", error)
