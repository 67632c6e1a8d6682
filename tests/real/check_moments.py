# SPDX-License-Identifier: Apache-2.0
"""Two ranks, ten moments: what npumem says is what torch and the driver count, to the byte."""
import time

from harness import (MODULE_APP, PROGRAMS, CheckError, Daemon, Program, Scratch, Stops,
                     driver_bytes, driver_pages_bytes)

WORLD = 2
MOMENTS = 10
LATE = 3
SETTLE_S = 5

# Environment of each configuration; the numbers of the workspace are not multiples of a page.
CONFIGURATIONS = {
    "pool": {},
    "expandable": {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True"},
    "workspace": {"TASK_QUEUE_ENABLE": "2", "NPUSIM_WORKSPACE_KB": "3001"},
    "all": {"PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True", "TASK_QUEUE_ENABLE": "2",
            "NPUSIM_WORKSPACE_KB": "3001"},
}


def start_ranks(node, scratch, settings):
    moments = scratch.make("moments")
    programs = []
    for rank in range(WORLD):
        argv = [PROGRAMS / "workload.py", "--rank", rank, "--world", WORLD, "--moments", moments,
                "--store", scratch.path / "rendezvous"]
        programs.append(Program(node, scratch, f"rank{rank}", argv, **settings))
    return Stops(moments, programs)


def wanted_of(line, driver):
    """The figures that npumem must show: torch's counters, and the driver's for what torch does not
    count. memory_stats() leaves the workspace pool out; nothing else of a rank is of module APP, so
    that the pool is the rest of that module."""
    workspace = driver.get(MODULE_APP, 0) - line["reserved"]
    return {"physical": sum(driver.values()),
            "caching": (line["reserved"], line["allocated"], line["active"]),
            "workspace_reserved": workspace,
            "reserved": line["reserved"] + workspace,
            "allocated": line["allocated"], "active": line["active"], "rank": line["rank"],
            "device": line["device"]}


def figures_of(row):
    """The same figures from a row of the breakdown; None for what it does not have."""
    pools = {"caching": (0, 0, 0), "workspace": (0, 0, 0)}
    for pool in row.get("pools", []):
        pools[pool["component"]] = (pool["reserved_bytes"], pool["allocated_bytes"],
                                    pool["active_bytes"])
    return {"physical": row["physical_bytes"], "caching": pools["caching"],
            "workspace_reserved": pools["workspace"][0], "reserved": row["reserved_bytes"],
            "allocated": row["allocated_bytes"], "active": row["active_bytes"],
            "rank": row["rank"], "device": row["device"]}


def compare(checks, name, daemon, line, wanted):
    """Asks until the answer is right or the time is up: events travel, the process stands still."""
    until = time.monotonic() + SETTLE_S
    while True:
        row = daemon.rank_row(line["pid"])
        got = figures_of(row) if row else None
        if got == wanted or time.monotonic() > until:
            break
        time.sleep(0.05)
    label = f"{name} moment {line['moment']} ({line['name']}) rank {line['rank']}"
    if got is None:
        checks.fail(label, "no row, or more than one, of this process")
        return
    wrong = {key: (got[key], wanted[key]) for key in wanted if got[key] != wanted[key]}
    if wrong:
        checks.fail(label, "; ".join(f"{key}: npumem {g}, wanted {w}"
                                     for key, (g, w) in wrong.items()))
    else:
        checks.equal(label, (got["physical"], *got["caching"], got["workspace_reserved"]),
                     (wanted["physical"], *wanted["caching"], wanted["workspace_reserved"]))


def check_oracles(checks, name, line, driver, pages_bytes):
    """The two sources of truth agree where they must: else the test's own ground is not firm."""
    label = f"{name} moment {line['moment']} rank {line['rank']} oracles"
    if line["device_used"] != pages_bytes or pages_bytes < sum(driver.values()):
        checks.fail(label, f"aclrtGetMemInfo {line['device_used']}, driver {pages_bytes} {driver}")
    elif driver.get(MODULE_APP, 0) < line["reserved"]:
        checks.fail(label, f"torch reserved {line['reserved']}, driver {driver}")
    else:
        checks.true(label, True)


def run(checks, node, binaries, configuration, late=None, keep=False):
    """One configuration. `late` None: without a daemon, oracles only; False: daemon first; True:
    daemon started while both ranks stand at moment 3."""
    mode = {None: "oracle", False: "early", True: "late"}[late]
    name = f"{configuration} {mode}"
    # Without the node's own share, aclrtGetMemInfo counts what processes hold and nothing else.
    settings = CONFIGURATIONS[configuration] | {"NPUSIM_BASELINE": "0"}
    used_workspace = saw_delayed = False
    with Scratch(keep) as scratch:
        daemon = Daemon(binaries, scratch) if late is False else None
        stops = start_ranks(node, scratch, settings)
        try:
            for number in range(1, MOMENTS + 1):
                lines = stops.wait(number)
                for line in lines:
                    driver = driver_bytes(scratch, line["pid"])
                    wanted = wanted_of(line, driver)
                    used_workspace |= wanted["workspace_reserved"] > 0
                    saw_delayed |= line["active"] > line["allocated"]
                    check_oracles(checks, name, line, driver,
                                  driver_pages_bytes(scratch, line["pid"]))
                    if daemon and not (late and number <= LATE):
                        compare(checks, name, daemon, line, wanted)
                if late and number == LATE:
                    daemon = Daemon(binaries, scratch)
                    took = daemon.wait_blocks([line["pid"] for line in lines])
                    print(f"      attached late to {WORLD} ranks in {took:.2f} s", flush=True)
                stops.release(number)
            codes = [program.finish() for program in stops.programs]
            checks.equal(f"{name} exit codes", codes, [0] * WORLD)
            checks.equal(f"{name} used a workspace pool", used_workspace,
                         "TASK_QUEUE_ENABLE" in settings)
            checks.true(f"{name} had memory that another stream delayed", saw_delayed)
            if daemon:
                checks.equal(f"{name} lost events", daemon.ask("status")["events"]["lost"], 0)
        except CheckError as error:
            checks.fail(name, error)
        finally:
            for program in stops.programs:
                program.__exit__()
            if daemon and not daemon.stop() == 0:
                checks.fail(f"{name} exit code of npumemd", daemon.last_words())
