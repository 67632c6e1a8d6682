# SPDX-License-Identifier: Apache-2.0
"""How full the KV cache of the real server was, as npumem read it of its scheduler, against the server's own /metrics."""
import concurrent.futures
import re
import threading
import time

import make_model
from harness import CheckError, wait_for

REQUESTS, PROMPT_TOKENS = 12, 1500
# Answers that take a small host some 10 s: /metrics may wait 2 s for the prompts, a reading is 1 s old, and two of all requests are wanted.
ANSWER_TOKENS = 480
BLOCK_TOKENS = 128
# Blocks that come between two looks at a server that serves: one per BLOCK_TOKENS of each request, and what /metrics,
# which is told after a step, is behind.
SLACK_BLOCKS = REQUESTS // 2
# All requests at their end. /metrics may be asked too seldom to see it, but none can hold more.
MOST_BLOCKS = REQUESTS * -(-(PROMPT_TOKENS + ANSWER_TOKENS) // BLOCK_TOKENS)
READ_EVERY_S = 1.0  # store.kv_interval


def metric(text, name):
    found = re.search(rf"^vllm:{name}{{[^}}]*}} (\S+)$", text, re.M)
    return float(found[1]) if found else None


def history(daemon, server):
    rows = [row for row in daemon.ask("budget")["kv_history"] if row["server_tgid"] == server.pid]
    return rows[0] if len(rows) == 1 else None


def load(server, done):
    """Requests that share no prefix."""
    with concurrent.futures.ThreadPoolExecutor(REQUESTS) as pool:
        list(pool.map(lambda i: server.complete(chr(97 + i) * PROMPT_TOKENS, ANSWER_TOKENS), range(REQUESTS)))
    done.set()


def watch(daemon, server):
    """(time, blocks used as /metrics says) and (time, time, as npumem says in between) while requests run, and a little after."""
    done, said, read = threading.Event(), [], []
    thread = threading.Thread(target=load, args=(server, done))
    blocks = history(daemon, server)["blocks"]

    def ask_server():
        text = server.request("/metrics", method="GET")
        said.append((time.monotonic(), metric(text, "kv_cache_usage_perc") * blocks))
        return said[-1][0]
    before = ask_server()
    thread.start()
    until = None
    while until is None or before < until:
        row = history(daemon, server)
        after = ask_server()
        read.append((before, after, row["usage_ratio"] * blocks))
        before = after
        if until is None and done.is_set():
            until = before + 2 * READ_EVERY_S
    thread.join()
    return said, read


def check_while_serving(checks, name, said, read):
    """Each figure of npumem's is one that the server told within the time between two readings, or, where it told of an
    end within that time, one on the way to it."""
    wrong, full = [], 0
    for before, after, blocks in read:
        since = before - 3 * READ_EVERY_S
        then = [one for at, one in said if at <= since][-1:] + [one for at, one in said if since < at <= after]
        is_end = any(b < a for a, b in zip(then, then[1:]))
        if not min(then) - SLACK_BLOCKS <= blocks <= (MOST_BLOCKS if is_end else max(then) + SLACK_BLOCKS):
            wrong.append((blocks, min(then), max(then)))
        full += blocks > REQUESTS * (PROMPT_TOKENS // BLOCK_TOKENS)
    checks.true(f"{name}: {len(read)} looks, {full} of them with all requests: as the server's own", full >= 2 and not wrong,
                f"{wrong[:5]} of {len(read)}, {full} full: {said[:40]} {read[:40]}")


def check_kv_history(checks, name, daemon, server):
    label = f"{name}: KV cache over time"
    try:
        wait_for(lambda: (known := history(daemon, server)) and known["most_ratio"] is not None, 30, "a reading of the scheduler")
        time.sleep(2 * READ_EVERY_S)  # a request that was answered just now may be in the last reading
        row = history(daemon, server)
    except CheckError as error:
        checks.fail(label, f"{error}: {history(daemon, server)}")
        return
    checks.equal(f"{label}: idle", (row["usage_ratio"], row["reason"], row["model_len"]), (0, None, make_model.POSITIONS))
    logged = re.search(r"KV cache size: ([\d,]+) tokens", server.text())
    usage = [one for one in daemon.ask("budget")["kv_usage"] if one["server_tgid"] == server.pid][0]
    same = ("usage_ratio", "tokens", "reserved_bytes", "fits_model_len")
    checks.equal(f"{label}: as the command itself reads /metrics, {logged and logged[1]} tokens", {key: row[key] for key in same},
                 {key: usage[key] for key in same})
    said, read = watch(daemon, server)
    check_while_serving(checks, label, said, read)
    row = history(daemon, server)
    # between two readings, a second apart, each request may have got a block more, and ended
    most, highest = round(row["most_ratio"] * row["blocks"]), max(one for _, one in said)
    checks.true(f"{label}: fullest {most} of {row['blocks']} blocks, {row['most_running']} requests",
                highest - SLACK_BLOCKS - REQUESTS <= most <= MOST_BLOCKS and 0 < row["most_running"] <= REQUESTS and row["most_waiting"] >= 0,
                f"the server said {highest}: {row}")
    checks.equal(f"{label}: idle again", row["usage_ratio"], 0)
