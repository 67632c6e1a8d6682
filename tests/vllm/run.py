#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The group `vllm`: npumem against the unmodified vLLM and vllm-ascend serving on the simulated node.

    run.py BUILD_DIR [--only WORD]... [--demand] [--keep]

--only    runs whose name contains the word: "eager early", "eager late"; with it, or with --demand,
          also those run on demand: graphs, replicas (DP=2 x TP=2), sleep, oom (in wake_up)
--keep    leaves the scratch directories

Oracles: the workers' own torch.npu.memory_stats() and memory_snapshot(), asked through the server;
the simulated driver's text; vLLM's own log. Ends with one line "N passed, N failed, N skipped".
"""
import argparse
import concurrent.futures
import contextlib
import pathlib
import re
import signal
import sqlite3
import sys
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path[:0] = [str(ROOT / "tests" / "real"), str(ROOT / "sim" / "vllm"), str(ROOT / "sim" / "wheels")]

import harness  # noqa: E402
import kv_history  # noqa: E402
import serve  # noqa: E402
from harness import CheckError, Checks, Daemon, Scratch  # noqa: E402

SETTLE_S = 20
# Until one engine answers, on a machine that is busy with much else.
READY_S = 420
TOKENS = 8
# Tokens of the answers that are being written while the daemon starts.
LONG = 200
# libatb's context in each worker: a buffer of 3 MiB by aclrtMalloc, which adds 32 bytes.
ATB_CONTEXT_BYTES = (3 << 20) + 32
# One communicator with vLLM's buffer size of 200 MB: one buffer each way, and 1 MiB.
HCCL_BYTES = (2 * 200 + 1) << 20
KV_OWNER = "PTA@vllm@kv_cache"
WEIGHTS_OWNER = "PTA@vllm@weights"
# What each start of a server does; what it took then has a row, also when it is freed again.
PHASES = ("init", "weights", "profile", "kv_cache", "warmup", "serve")
# Sleeping empties what is free in them.
POOLS = ("PTA@pool", "PTA_WORKSPACE")
# Blocks from this size on are listed one by one.
LISTED_BYTES = 1 << 20
# A byte of so many in a hundred has an owner that says whose it is.
OWNED_PERCENT = 99
DRIVER_ROW = re.compile(r"dev(\d+)\s+\S*HBM\s+(\S+)\s+\d+\s+(\d+)\s")

# name: (options of the server, part of CI)
CONFIGURATIONS = {
    "eager": ({"tp": 2}, True),
    "graphs": ({"tp": 2, "graphs": True}, False),
    "replicas": ({"tp": 2, "dp": 2}, False),
    "sleep": ({"tp": 2, "sleep": True}, False),
    "oom": ({"tp": 2, "sleep": True}, False),
}
# Settings of the daemon beside the defaults: here every block is listed.
SETS = {"graphs": ("probes.block_detail=all",)}


def driver_figures(scratch, tgid):
    """{(device, module): bytes} from the simulated driver's own text."""
    return {(int(row[0]), row[1]): int(row[2])
            for row in DRIVER_ROW.findall(harness.driver_text(scratch, tgid))}


def device_of(truth):
    """The card a worker means: its own number, through the list of cards that it may see."""
    visible = truth["visible_devices"]
    return int(visible.split(",")[truth["device"]]) if visible else truth["device"]


def check_answer(checks, name, server, replicas=1):
    """Several questions at once reach every replica; one after the other they all go to the first that is idle."""
    with concurrent.futures.ThreadPoolExecutor(4 * replicas) as pool:
        count = 4 * replicas if replicas > 1 else 1
        answers = list(pool.map(lambda _: server.complete("hello", TOKENS * replicas), range(count)))
    wrong = [answer for answer in answers if not re.fullmatch("[a-z]{%d}" % (TOKENS * replicas), answer)]
    checks.true(name, not wrong, f"the completion is not that many letters: {wrong}")


def check_books(checks, name, scratch, truth):
    """The two sources of truth agree: what the driver counts is what the allocator holds, and what is
    known to be outside it."""
    driver, device = driver_figures(scratch, truth["pid"]), device_of(truth)
    checks.equal(f"{name}: driver's APP bytes", driver.get((device, "APP")),
                 truth["snapshot"]["total_bytes"] + ATB_CONTEXT_BYTES)
    checks.equal(f"{name}: driver's HCCL bytes", driver.get((device, "HCCL")), HCCL_BYTES)
    checks.equal(f"{name}: snapshot and statistics", truth["snapshot"]["allocated_bytes"],
                 truth["stats"]["allocated"])


def rows_of(daemon, tgid):
    return [row for row in daemon.ask("breakdown")["ranks"] if row["tgid"] == tgid]


def figures_of(row):
    caching = next((pool for pool in row["pools"] if pool["component"] == "caching"), {})
    return {"rank": row["rank"], "title": row["title"], "device": row["device"],
            "physical": row["physical_bytes"],
            "reserved": caching.get("reserved_bytes"), "active": caching.get("active_bytes"),
            "allocated": caching.get("allocated_bytes"),
            "workspace_reserved": (row["reserved_bytes"] or 0) - caching.get("reserved_bytes", 0),
            "unbalanced": [check["level"] for check in row["checks"] if not check["balanced"]]}


def wanted_of(scratch, truth, title):
    device = device_of(truth)
    physical = sum(size for (card, _), size in driver_figures(scratch, truth["pid"]).items()
                   if card == device)
    return {"rank": truth["rank"], "title": title, "device": device, "physical": physical,
            **truth["stats"], "unbalanced": [],
            # memory_stats() leaves the workspace pool out, the snapshot has it
            "workspace_reserved": truth["snapshot"]["total_bytes"] - truth["stats"]["reserved"]}


def check_worker(checks, name, daemon, scratch, truth, title):
    """The worker's row is the worker's own figures, as soon as its last events have arrived; memory
    that it holds on other cards has rows of its own."""
    wanted = wanted_of(scratch, truth, title)
    until = time.monotonic() + SETTLE_S
    while True:
        rows = rows_of(daemon, truth["pid"])
        main = [row for row in rows if row["main"]]
        got = figures_of(main[0]) if len(main) == 1 else None
        if got == wanted or time.monotonic() > until:
            break
        time.sleep(0.1)
    if got is None:
        checks.fail(name, f"{len(main)} main rows of {len(rows)} of this process")
        return
    for what, value in wanted.items():
        checks.equal(f"{name}: {what}", got[what], value)
    driver = driver_figures(scratch, truth["pid"])
    elsewhere = {card: 0 for card, _ in driver if card != wanted["device"]}
    for (card, _), size in driver.items():
        if card in elsewhere:
            elsewhere[card] += size
    checks.equal(f"{name}: on other cards",
                 {row["device"]: row["physical_bytes"] for row in rows if not row["main"]},
                 elsewhere)


def check_listing(checks, name, daemon, workers, truths):
    """`npumem ps` has each worker with its title, and on the right card where that is known."""
    main = {row["tgid"]: row for row in daemon.ask("ps")["ranks"] if row["main"]}
    checks.equal(f"{name}: titles in ps",
                 {tgid: main.get(tgid, {}).get("title") for tgid in workers}, workers)
    cards = {truth["pid"]: device_of(truth) for truth in truths}
    checks.equal(f"{name}: cards in ps",
                 {tgid: main.get(tgid, {}).get("device") for tgid in cards}, cards)
    checks.equal(f"{name}: no card twice",
                 len({main.get(tgid, {}).get("device") for tgid in workers}), len(workers))


def owners_of(row, level):
    return {owner["owner"]: owner for owner in row["owners"] if owner["level"] == level}


def check_owners(checks, name, daemon, server, truths, configuration):
    """Each phase of the start has a row; the parameters, by the model's own word, are weights; what the
    queue's thread takes, which no frame tells, is by its component."""
    names, tables = server.ask_workers("names"), server.ask_workers("blocks")
    phases = PHASES + ("graph",) * (configuration == "graphs")
    least = 0 if configuration in SETS else LISTED_BYTES
    for truth, named, table in zip(truths, names, tables):
        label = f"{name} rank {truth['rank']}"
        row = next(row for row in rows_of(daemon, truth["pid"]) if row["main"])
        allocated, physical = owners_of(row, "allocated"), owners_of(row, "physical")
        checks.equal(f"{label}: phases without a row",
                     [word for word in phases if f"PTA@vllm@{word}" not in allocated], [])
        checks.equal(f"{label}: PTA_WORKSPACE", physical.get("PTA_WORKSPACE", {}).get("bytes"),
                     truth["snapshot"]["total_bytes"] - truth["stats"]["reserved"])
        checks.equal(f"{label}: HCCL by communicator",
                     sum(owner["bytes"] for text, owner in physical.items()
                         if text.startswith("CANN@HCCL@")), HCCL_BYTES)
        owned = sum(owner["bytes"] for text, owner in allocated.items()
                    if text.startswith("PTA@vllm@") and not owner["inferred"])
        share = 100 * owned / truth["stats"]["allocated"]
        checks.true(f"{label}: {share:.3f} % of the allocated bytes have an owner",
                    share >= OWNED_PERCENT)
        listed = {block["address"]: block["owner"] for block in daemon.ask(
            "ls", "--pid", str(truth["pid"]), "--level", "allocated", "--limit", "0")["blocks"]}
        held = {"parameters": WEIGHTS_OWNER, "kv_caches": KV_OWNER}
        sizes = {block[0]: block[1] for block in table}
        for what, owner in held.items():
            blocks = [address for size, address in named[what].values()
                      if sizes.get(address, 0) >= max(least, 1)]
            wrong = {listed.get(hex(address)) for address in blocks} - {owner}
            checks.equal(f"{label}: other owners of {len(blocks)} blocks of {what}", wrong, set())
        parameters = sum(sizes.get(address, 0) for _, address in named["parameters"].values())
        checks.true(f"{label}: weights hold the parameters' {parameters} bytes",
                    allocated[WEIGHTS_OWNER]["bytes"] >= parameters)


def check_kv_cache(checks, name, daemon, server, truths):
    """The owner's bytes are those of the blocks that hold vLLM's caches, and the figure of its log."""
    label = f"{name}: kv_cache"
    owned = {truth["pid"]: sum(owner["bytes"] for row in rows_of(daemon, truth["pid"])
                               for owner in row["owners"]
                               if owner["owner"].startswith(KV_OWNER)
                               and owner["level"] == "allocated") for truth in truths}
    if not any(owned.values()):
        checks.skip(label, f"no owner {KV_OWNER}*: owners by phase are not there yet")
        return
    names, blocks = server.ask_workers("names"), server.ask_workers("blocks")
    logged = re.findall(r"Available KV cache memory: ([0-9.]+) GiB", server.text())
    for truth, named, table in zip(truths, names, blocks):
        held = {address for _, address in named["kv_caches"].values()}
        size = sum(block[1] for block in table if block[0] in held)
        checks.equal(f"{label} of rank {truth['rank']}", owned[truth["pid"]], size)
    checks.equal(f"{label} in vLLM's log", {f"{size / (1 << 30):.2f}" for size in owned.values()},
                 set(logged))


# vLLM's own words on its plan, by each worker: figures in GiB with two digits, and two sizes in bytes.
PLAN = re.compile(r"\(Worker_TP(\d+)[^)]*\).*Free memory on device \(([\d.]+)/([\d.]+) GiB\) on startup\..*"
                  r"\(([\d.]+), ([\d.]+) GiB\)\. Actual usage: ([\d.]+) GiB for weights, ([\d.]+) GiB for peak activation, "
                  r"(-?[\d.]+) GiB for non-torch memory, (-?[\d.]+) GiB for NPU graph memory\..*?--kv-cache-memory=(-?\d+)`"
                  r".*?--kv-cache-memory=(-?\d+)`.*Current KV cache memory: ([\d.]+) GiB")
# What vLLM keeps back when it suggests a size; a step of its two digits; what blocks below 1 MiB may hide of a peak.
PLAN_RESERVE_BYTES, PLAN_STEP_BYTES, PLAN_SMALL_BYTES = 150 << 20, (1 << 30) // 100, 3 << 20


def check_budget(checks, name, daemon, server, truths):
    """npumem budget has the terms that the workers logged of their own plan."""
    logged = {int(m.group(1)): m.groups()[1:] for m in PLAN.finditer(server.text())}
    own = server.workers()  # there may be other servers on this host
    rows = {row["rank"]: row for row in daemon.ask("budget")["ranks"]
            if row["verdict"] != "INCOMPLETE" and row["tgid"] in own}
    checks.equal(f"{name}: plans in the log and in budget", sorted(rows), sorted(logged))
    for rank, words in logged.items():
        row, label = rows.get(rank, {}), f"{name} rank {rank}: budget"
        free, total, utilization, requested, weights, peak, non_torch, graph = map(float, words[:8])
        by_plan, by_card, current = int(words[8]), int(words[9]), float(words[10])
        checks.equal(f"{label}: verdict and utilization", (row.get("verdict"), row.get("utilization")),
                     ("FITS", utilization))
        for term, gib in (("card_total", total), ("budget", requested), ("weights", weights), ("profile_peak", peak),
                          ("non_torch", non_torch), ("graph", graph), ("kv_cache", current)):
            got = row.get(f"{term}_bytes")
            checks.true(f"{label}: {term}", got is not None and abs(got - gib * (1 << 30)) <= PLAN_STEP_BYTES,
                        f"{got}, vLLM says {gib} GiB")
        # to the byte, but for blocks that send no event
        checks.equal(f"{label}: free at start less the budget",
                     row.get("free_at_start_bytes", 0) - row.get("budget_bytes", 0), by_card - by_plan)
        used = sum(row.get(f"{term}_bytes") or 0
                   for term in ("weights", "loaded_beside_weights", "profile_peak", "non_torch", "graph"))
        wanted = row.get("budget_bytes", 0) - PLAN_RESERVE_BYTES - by_plan
        checks.true(f"{label}: all terms but KV, {used - wanted} from vLLM's {wanted}",
                    abs(used - wanted) <= PLAN_SMALL_BYTES, f"{used}")


def check_kv_usage(checks, name, daemon, server):
    """The server's own /metrics: found, asked, and the size of the cache as its log says it."""
    usage = [row for row in daemon.ask("budget")["kv_usage"] if row["server_tgid"] == server.pid]
    tokens = re.search(r"KV cache size: ([\d,]+) tokens", server.text())
    checks.equal(f"{name}: servers that tell the use of their cache",
                 [(row["engine"], row["reason"]) for row in usage if row["usage_ratio"] == 0], [(0, None)])
    logged = int(tokens.group(1).replace(",", "")) if tokens else 0
    checks.true(f"{name}: tokens of the cache", logged and all(abs(row["tokens"] - logged) <= logged // 1000 for row in usage),
                f"{usage}, vLLM says {logged}")


def check_all(checks, name, daemon, scratch, server):
    """The server is idle: its own figures, and npumem's if there is a daemon."""
    workers, truths = server.workers(), server.ask_workers("truth")
    checks.equal(f"{name}: worker processes", len(workers), server.worker_count)
    for truth in truths:
        label = f"{name} rank {truth['rank']}"
        check_books(checks, label, scratch, truth)
        if daemon:
            check_worker(checks, label, daemon, scratch, truth, workers.get(truth["pid"]))
    if daemon:
        check_listing(checks, name, daemon, workers, truths)
    return truths


def check_replicas(checks, name, daemon, server):
    """Four workers of two titles: told apart by their engine, on the cards that they were given."""
    rows = {row["tgid"]: row for row in daemon.ask("ps")["ranks"] if row["main"]}
    got = {}
    for tgid, title in server.workers().items():
        engine = serve.title_of(serve.parent_of(tgid))
        replica, place = int(engine.rpartition("_DP")[2]), int(title.rpartition("_TP")[2])
        cards = next(word for word in serve.read_proc(tgid, "environ").split(b"\0")
                     if word.startswith(b"ASCEND_RT_VISIBLE_DEVICES=")).partition(b"=")[2]
        row = rows.get(tgid, {})
        got[replica, place] = (row.get("replica"), row.get("rank"), row.get("world_size"),
                               row.get("server_rank"), row.get("server_size"), row.get("device"),
                               int(cards.split(b",")[place]))
    wanted = {(replica, place): (replica, place, 2, 2 * replica + place, 4, 2 * replica + place,
                                 2 * replica + place) for replica in (0, 1) for place in (0, 1)}
    checks.equal(f"{name}: replica, rank, world, place, places, card by npumem and by the worker", got,
                 wanted)


def check_sleeping_owners(checks, name, daemon, server, truths):
    """What sleep mode frees, what stays, what it takes again: by owner, against the allocator's own tags.
    And the peak, which was before: its owners are kept as they were."""
    tags = server.ask_workers("sleeping")

    def physical(tgid, *words):
        row = next(row for row in daemon.ask("breakdown", *words)["ranks"]
                   if row["tgid"] == tgid and row["main"])
        return {text: owner["bytes"] for text, owner in owners_of(row, "physical").items()
                if owner["bytes"]}, row["physical_bytes"]

    before = {truth["pid"]: physical(truth["pid"]) for truth in truths}
    peaks = {truth["pid"]: physical(truth["pid"], "--peak") for truth in truths}
    server.sleep()
    asleep = {truth["pid"]: physical(truth["pid"]) for truth in truths}
    server.wake_up()
    again = {truth["pid"]: physical(truth["pid"]) for truth in truths}
    for truth, held in zip(truths, tags):
        tgid, label = truth["pid"], f"{name} rank {truth['rank']}"
        own = {WEIGHTS_OWNER: held["weights"], KV_OWNER: held["kv_cache"]}
        checks.equal(f"{label}: awake", {text: before[tgid][0].get(text) for text in own}, own)
        kept = {text: size for text, size in before[tgid][0].items() if text not in (*own, *POOLS)}
        checks.equal(f"{label}: asleep, beside the pools",
                     {text: size for text, size in asleep[tgid][0].items() if text not in POOLS}, kept)
        checks.true(f"{label}: asleep, the pools hold no more than before",
                    all(asleep[tgid][0].get(text, 0) <= before[tgid][0].get(text, 0) for text in POOLS),
                    f"{asleep[tgid][0]}")
        checks.equal(f"{label}: awake again", {text: again[tgid][0].get(text) for text in own}, own)
        checks.equal(f"{label}: the peak's owners add up", sum(peaks[tgid][0].values()), peaks[tgid][1])
        now = physical(tgid, "--peak")
        if now[1] == peaks[tgid][1]:
            checks.equal(f"{label}: the peak's owners after sleep and wake", now, peaks[tgid])
        else:
            checks.true(f"{label}: a higher peak since", now[1] > peaks[tgid][1])


def check_sleep(checks, name, daemon, scratch, server):
    """Sleeping gives the cards' memory back, waking takes it again; npumem follows the driver. The
    workers' statistics do not: they count what sleeps as allocated."""
    workers = server.workers()

    def of_driver():
        return {tgid: sum(driver_figures(scratch, tgid).values()) for tgid in workers}

    def of_npumem():
        return {tgid: sum(row["physical_bytes"] or 0 for row in rows_of(daemon, tgid))
                for tgid in workers}

    awake = of_driver()
    server.sleep()
    asleep = of_driver()
    checks.true(f"{name}: asleep, workers hold less", all(asleep[t] < awake[t] // 2 for t in workers),
                f"awake {awake}, asleep {asleep}")
    if daemon:
        checks.equal(f"{name}: asleep", settled(of_npumem, asleep), asleep)
    server.wake_up()
    check_answer(checks, f"{name}: completion after waking", server)
    check_all(checks, f"{name}: awake again", daemon, scratch, server)


def check_report(checks, name, daemon, worker, hog, taken, sizes, late):
    """The daemon's record of the death: request, rank, holders of the card, phase and frames."""
    reports = [one for one in daemon.ask("oom", "list")["reports"] if one["tgid"] == worker]
    checks.equal(f"{name}: reports of the worker", len(reports), 1)
    if not reports:
        return
    report = daemon.ask("oom", "show", str(reports[0]["id"]))
    checks.equal(f"{name}: report: rank, device, code, call",
                 (report["rank"], report["device"], report["code"], report["api"]),
                 (0, 0, 207001, "aclrtMallocPhysical"))
    checks.true(f"{name}: report: request of {report['requested_bytes']} bytes is one of the allocator's",
                report["requested_bytes"] in sizes, f"{sizes}")
    holders = {one["tgid"]: one["bytes"] for one in report["holders"]}
    checks.equal(f"{name}: report: holder", holders.get(hog), taken)
    # What was there before attach and was freed since shrinks with the driver's next figure only.
    checks.true(f"{name}: report: the worker, asleep, held {holders.get(worker, 0) >> 20} MiB",
                0 < holders.get(worker, 0) < HCCL_BYTES + (sum(sizes) if late else max(sizes)))
    checks.equal(f"{name}: report: phase", report["phase"], "wake_up")
    checks.equal(f"{name}: report: innermost frames",
                 [frame.partition(" ")[0] for frame in report["frames"][:2]],
                 ["create_and_map", "CaMemAllocator.wake_up"])
    checks.true(f"{name}: report: {len(report['frames'])} frames to the worker's loop",
                any("WorkerProc.worker_busy_loop" in frame for frame in report["frames"]),
                f"{report['frames']}")


def check_oom(checks, name, node, daemon, scratch, server, late):
    """Another process takes card 0 while the server sleeps: waking ends the worker there by SIGABRT,
    without a traceback, and so the server. The record of the failed call is in npumem's store."""
    worker = next(truth["pid"] for truth in server.ask_workers("truth") if truth["device"] == 0)
    sizes = server.ask_workers("sleeping_sizes")[0]
    server.sleep()
    with harness.Program(node, scratch, "hog", [serve.HERE / "hog.py", 0]) as hog:
        harness.wait_for(lambda: hog.out.read_bytes().endswith(b"\n"), 30, "the hog", hog.alive)
        woke = True
        try:
            server.wake_up(60)
        except serve.ServerError:
            woke = False
        checks.equal(f"{name}: woke up", woke, False)
        harness.wait_for(lambda: serve.title_of(worker) == "", 30, "the end of the worker")
        text = server.text()
        checks.true(f"{name}: ended by std::terminate", "terminate called" in text, server.tail())
        checks.equal(f"{name}: the worker's own last words",
                     re.findall(r"^\(Worker_TP0[^)]*\) (?:ERROR|Traceback).*", text, re.MULTILINE), [])
        if not daemon:
            return
        rows = {row["tgid"]: row for row in daemon.ask("breakdown")["ranks"] if row["main"]}
        taken = sum(driver_figures(scratch, hog.pid).values())
        checks.equal(f"{name}: the holder of the card",
                     (rows[hog.pid]["device"], rows[hog.pid]["physical_bytes"]), (0, taken))
        check_report(checks, name, daemon, worker, hog.pid, taken, sizes, late)
    checks.equal(f"{name}: exit code of npumemd", daemon.stop(), 0)
    with contextlib.closing(sqlite3.connect(daemon.store())) as store:
        failed = store.execute("SELECT result, requested_bytes > 0 FROM event WHERE tgid = ? AND "
                               "kind = 'failed_call'", (worker,)).fetchall()
    checks.equal(f"{name}: the worker's failed call in the store", failed, [(207001, 1)])


def settled(ask, wanted):
    """What `ask` gives once it is `wanted`, or when the time is up."""
    until = time.monotonic() + SETTLE_S
    while (got := ask()) != wanted and time.monotonic() < until:
        time.sleep(0.1)
    return got


def attach_while_serving(checks, name, scratch, binaries, server):
    """Starts the daemon while answers are being written; each must come out whole."""
    answers, enough = [], threading.Event()

    def client():
        while not enough.is_set():
            try:
                answers.append(server.complete("long", LONG))
            except serve.ServerError as error:
                answers.append(str(error))
                return

    thread = threading.Thread(target=client)
    thread.start()
    daemon = None
    try:
        daemon = Daemon(binaries, scratch)
        took = daemon.wait_blocks(list(server.workers()), 60)
        print(f"      attached {took:.2f} s after its socket answered", flush=True)
    except CheckError:
        if daemon:
            daemon.stop()
        raise
    finally:
        enough.set()
        thread.join()
    cut = [answer for answer in answers if not re.fullmatch("[a-z]{%d}" % LONG, answer)]
    checks.true(f"{name}: {len(answers)} answers across the attach", answers and not cut, f"{cut}")
    return daemon


def run(checks, node, binaries, configuration, late, keep):
    """One server. Without binaries: the server and the node's books alone."""
    name = configuration + (" late" if late else " early") if binaries else configuration
    daemon = None
    with Scratch(keep) as scratch:
        try:
            state = scratch.make("node")
            if binaries and not late:
                daemon = Daemon(binaries, scratch, SETS.get(configuration, ()))
            with serve.Server(node, scratch.make("server"), state=state, NPUSIM_BASELINE=0,
                              **CONFIGURATIONS[configuration][0]) as server:
                replicas = CONFIGURATIONS[configuration][0].get("dp", 1)
                patience = READY_S * replicas
                print(f"      {name}: up in {server.wait_ready(patience):.0f} s", flush=True)
                check_answer(checks, f"{name}: completion", server, replicas)
                if late:
                    daemon = attach_while_serving(checks, name, scratch, binaries, server)
                    check_answer(checks, f"{name}: completion when attached", server, replicas)
                truths = check_all(checks, name, daemon, scratch, server)
                if daemon and not late:
                    check_kv_cache(checks, name, daemon, server, truths)
                    check_budget(checks, name, daemon, server, truths)
                    check_owners(checks, name, daemon, server, truths, configuration)
                if daemon and configuration == "replicas":
                    check_replicas(checks, name, daemon, server)
                if daemon and configuration == "eager":
                    check_kv_usage(checks, name, daemon, server)
                    kv_history.check_kv_history(checks, name, daemon, server)
                if configuration == "sleep":
                    check_sleep(checks, name, daemon, scratch, server)
                    if daemon and not late:
                        check_sleeping_owners(checks, name, daemon, server, truths)
                if daemon:
                    answer = daemon.ask("breakdown")
                    checks.equal(f"{name}: lost and complete",
                                 (answer["lost_events"], answer["complete"]), (0, True))
                if configuration == "oom":
                    check_oom(checks, name, node, daemon, scratch, server, late)
                else:
                    check_answer(checks, f"{name}: completion at the end", server)
                    checks.equal(f"{name}: exit code of the server", server.stop(), 0)
        except (CheckError, serve.ServerError) as error:
            checks.fail(name, error)
        finally:
            if daemon and daemon.stop() != 0:
                checks.fail(f"{name}: exit code of npumemd", daemon.last_words())


def chosen(args):
    for configuration, (_, in_ci) in CONFIGURATIONS.items():
        for late in (False, True):
            name = f"{configuration} {'late' if late else 'early'}"
            if any(word in name for word in args.only) if args.only else in_ci or args.demand:
                yield configuration, late


def main():
    parser = argparse.ArgumentParser(description="npumem against the real vLLM server")
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--demand", action="store_true")
    parser.add_argument("--layout", default="8.1")
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    checks = Checks()
    start = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # servers are stopped on the way out
    try:
        node = serve.make_node(args.build, args.layout)
    except serve.make_venv.WheelsError as error:
        node = None
        checks.skip("vllm", error)
    binaries = harness.find_binaries(args.build)
    why = harness.may_observe() if binaries else f"no npumemd and npumem in {args.build}"
    if node and why:
        checks.skip("npumem beside the server", why)
        binaries = None
    for configuration, late in chosen(args) if node else ():
        if binaries or not late:
            run(checks, node, binaries, configuration, late, args.keep)
    print(f"      {time.monotonic() - start:.0f} s", flush=True)
    print(f"{checks.passed} passed, {checks.failed} failed, {checks.skipped} skipped", flush=True)
    sys.exit(1 if checks.failed else 0)


if __name__ == "__main__":
    main()
