# SPDX-License-Identifier: Apache-2.0
"""Documents as design/CONTRACT says, by hand."""

import copy

MIB = 1 << 20
GIB = 1 << 30

HEADER = {"schema_version": 1, "complete": True, "lost_events": 0, "time_ns": 1800000000123456789,
          "host": "node7"}

RANK0 = {
    "tgid": 1234, "start_time_ns": 1799999000000000000, "comm": "VLLM::Worker_TP",
    "title": "vllm serve /models/a-model --tensor-parallel-size 2", "state": "running", "rank": 0,
    "rank_source": "title", "world_size": 2, "device": 0, "physical_device": 0, "visible_device": 0,
    "main": True, "container": None, "physical_bytes": 30 * GIB, "seen_bytes": 30 * GIB,
    "reserved_bytes": 28 * GIB, "allocated_bytes": 26 * GIB + 512, "active_bytes": 27 * GIB + 512,
    "before_attach_bytes": 0, "peak_bytes": 31 * GIB, "peak_time_ns": 1799999500000000000,
    "host_bytes": 512 * MIB, "coverage": "blocks", "coverage_reason": None, "unknown": {},
}
RANK1 = {**RANK0, "tgid": 1235, "rank": 1, "device": 1, "physical_device": 1,
         "physical_bytes": None, "peak_bytes": None, "before_attach_bytes": None,
         "reserved_bytes": None, "allocated_bytes": None, "active_bytes": None,
         "coverage": "physical", "container": "4f1c0ffee",
         "unknown": {"physical_bytes": "attached late", "peak_bytes": "attached late",
                     "before_attach_bytes": "attached late", "reserved_bytes": "no torch_npu",
                     "allocated_bytes": "no torch_npu", "active_bytes": "no torch_npu"}}

PS = {**HEADER, "ranks": [RANK0, RANK1]}


def owner(name, level, size, blocks, inferred=False, source="event"):
    return {"owner": name, "level": level, "bytes": size, "blocks": blocks, "inferred": inferred,
            "source": source}


def gap(name, level, size, reason=None):
    return {"name": name, "level": level, "bytes": size, **({"reason": reason} if reason else {})}


def check(level, total, difference):
    return {"level": level, "owners_bytes": (total or 0) - (difference or 0), "total_bytes": total,
            "difference_bytes": difference,
            "balanced": None if difference is None else difference == 0}


BREAKDOWN = {**HEADER, "ranks": [
    {**RANK0,
     "owners": [owner("PTA@pool", "physical", 28 * GIB, 700),
                owner("CANN@HCCL", "physical", 2 * GIB, 4, True),
                owner("PTA@block", "allocated", 26 * GIB, 512),
                owner("PTA@small", "allocated", 512, 1),
                owner("PTA@block", "pending", GIB, 3),
                owner("PTA@pinned", "host", 512 * MIB, 2)],
     "gaps": [gap("pool_slack", "reserved", GIB - 512), gap("stream_delayed", "active", GIB),
              gap("before_attach_blocks", "allocated", 0), gap("before_attach", "physical", 0),
              gap("outside_pools", "physical", 2 * GIB), gap("driver_side", "driver", 5 * MIB),
              gap("lost", "physical", 0)],
     "pools": [], "checks": [check("physical", 30 * GIB, 0), check("allocated", 26 * GIB + 512, 0)]},
    {**RANK1, "main": True,
     "owners": [owner("CANN@HCCL", "physical", 2 * GIB, 4)],
     "gaps": [gap("pool_slack", "reserved", None, "no torch_npu"),
              gap("stream_delayed", "active", None, "no torch_npu"),
              gap("outside_pools", "physical", None, "no torch_npu"),
              gap("driver_side", "driver", None, "no driver figure"), gap("lost", "physical", 0)],
     "pools": [], "checks": [check("physical", None, None), check("allocated", None, None)]},
], "devices": [
    {"device": 0, "total_bytes": 64 * GIB, "used_bytes": 34 * GIB, "attributed_bytes": 30 * GIB,
     "other_processes_bytes": GIB, "driver_side_bytes": 5 * MIB,
     "unattributed_bytes": 3 * GIB - 5 * MIB, "balanced": True, "unknown": {}},
    {"device": 1, "total_bytes": None, "used_bytes": None, "attributed_bytes": 2 * GIB,
     "other_processes_bytes": 0, "driver_side_bytes": None, "unattributed_bytes": None,
     "balanced": None, "unknown": {"used_bytes": "no card figure"}},
]}

LS = {**HEADER, "blocks": [
    {"tgid": 1234, "rank": 0, "device": 0, "address": "0x12c041200000", "handle": None,
     "size_bytes": 9007199254740993, "requested_bytes": 20 * MIB, "owner": "PTA@pool",
     "inferred": False, "stream": None, "level": "physical", "allocated_ns": 1799999999000000000,
     "age_ns": 61000000000, "last_access_ns": None, "frames": [], "caller": "0x7f00"}],
    "totals": [{"level": "physical", "bytes": 9007199254740993, "blocks": 7}],
    "matched_blocks": 7, "truncated": True}

STATUS = {**HEADER, "daemon": {"version": "0.1.0", "uptime_ns": 200000000000, "rss_bytes": 20 * MIB,
                               "cpu_ns": 1500000000},
          "kernel": "6.6.0", "probes": [
              {"library": "libruntime.so", "symbol": "aclrtMalloc", "kind": "entry",
               "state": "attached", "hits": None, "cost_ns": None},
              {"library": "libatb.so", "symbol": "", "kind": "", "state": "missing", "hits": None,
               "cost_ns": None}],
          "targets": [{"tgid": 1234, "rank": 0, "state": "attached", "level": "blocks",
                       "coverage": "full", "reason": None, "overhead_ratio": 0.0025}],
          "events": {"received": 12345, "lost": 0, "decode_errors": 0, "unmatched_frees": 2},
          "ledger": {"live_entries": 3, "memory_bytes": 4096},
          "store": {"bytes": 4096, "oldest_ns": None}}

EVENT = {"time_ns": 1800000000000000000, "kind": "alloc", "tgid": 1234, "tid": 1240, "cpu": 1,
         "sequence": 7, "result": 0, "api": "aclrtMalloc", "address": "0x12c041200000",
         "requested_bytes": 1000, "physical_bytes": 2 * MIB, "host_memory": False}


def pool(tgid, name, reserved, allocated, holes, **more):
    free = reserved - allocated
    return {"tgid": tgid, "rank": 0, "device": 0, "pool": name, "source": "events", "source_time_ns": None,
            "complete": True, "reserved_bytes": reserved, "allocated_bytes": allocated, "segment_count": 1,
            "pending_bytes": 0, "free_bytes": free, "holes": len(holes), "largest_hole_bytes": max(holes),
            "fragmentation_ratio": 1 - max(holes) / free, "empty_segments": 0, "nearly_empty_segments": 0,
            "pinned_free_bytes": 0, "unknown": {}, "segments": [], **more}


FRAG_REASON = "blocks below the threshold are summed in the kernel"
FRAG = {**HEADER, "request_bytes": 0, "pools": [
    pool(1234, "large", 4 * GIB, 1 * GIB, [2 * GIB, 1 * GIB], nearly_empty_segments=1, pinned_free_bytes=2 * GIB,
         segments=[{"address": "0x12c041200000", "size_bytes": 2 * GIB, "used_bytes": 12 * MIB, "pending_bytes": 0,
                    "free_bytes": 2 * GIB - 12 * MIB, "holes": 1, "largest_hole_bytes": 2 * GIB - 12 * MIB,
                    "blocks": 1, "stream": "0x0",
                    "pins": [{"address": "0x12c041200000", "size_bytes": 12 * MIB, "owner": "PTA@vllm@serve",
                              "stream": "0x0", "pending": False, "age_ns": 3600 * 10**9,
                              "frames": ["execute_model (worker.py:12)"]}]}]),
    {**pool(1234, "small", 6 * MIB, 5 * MIB, [MIB]), "complete": False,
     **dict.fromkeys(("free_bytes", "holes", "largest_hole_bytes", "fragmentation_ratio"), None),
     "unknown": dict.fromkeys(("free_bytes", "holes", "largest_hole_bytes", "fragmentation_ratio"), FRAG_REASON)}]}


LEAKS = {**HEADER, "since_ns": HEADER["time_ns"] - 21600 * 10**9, "until_ns": HEADER["time_ns"], "mark": "step",
         "truncated": False, "judged": {"series": 40, "too_short": 3, "least_ns": 600 * 10**9}, "findings": [
    {"tgid": 1234, "rank": 0, "device": 0, "owner": "PTA@vllm@serve", "level": "allocated", "kind": "leak",
     "bytes_per_hour": 300 * MIB, "bytes_per_hour_low": 290 * MIB, "bytes_per_hour_high": 310 * MIB,
     "bytes_per_cycle": 5 * MIB, "cycles": 60, "cycle_source": "step", "r2": 0.99, "from_bytes": GIB,
     "to_bytes": GIB + 300 * MIB, "window_ns": 3600 * 10**9, "time_to_full_ns": 7200 * 10**9,
     "time_to_full_low_ns": 7000 * 10**9, "time_to_full_high_ns": None, "frames": ["keep (\x1b[2Jcache.py:7)"],
     "frames_bytes": 300 * MIB, "new_blocks": 60, "new_bytes": 300 * MIB, "streams": ["0x0"],
     "evidence": "the floor rose from 1.00 GiB to 1.29 GiB without coming back"}]}

INEFFICIENT = {**HEADER, "verdict": "the verdict of the window", "hidden": ["3 captured graphs \x1b[2J"],
               "window": {"tgid": 1234, "rank": 0, "begin_ns": HEADER["time_ns"] - 10**10, "end_ns": HEADER["time_ns"], "asked_ns": 10**10,
                          "work_ns": 9 * 10**9, "ended_early": True, "operations": 5000, "uses": 9000, "unknown_addresses": 0,
                          "graph_launches": 3, "opaque_calls": 0, "blocks": 12, "used_blocks": 10, "held_byte_seconds": 40 * GIB,
                          "functions": 30},
               "totals": [], "matched_findings": 7, "truncated": True, "findings": [
    {"tgid": 1234, "rank": 0, "device": 0, "address": "0x12c041200000", "size_bytes": 512 * MIB, "owner": "PTA@vllm@serve",
     "name": None, "kind": "late_deallocation", "idle_ns": 6 * 10**9, "idle_ratio": 0.75, "byte_seconds": 3 * GIB, "senses": ["operations", "time"],
     "operations": {"allocated": 10, "first": 11, "last": 900, "idle": 4100}, "uses": 17, "freed": False, "held_before": True,
     "threads": False, "inferred": True, "stream": "0x0", "allocated_ns": None, "frames": ["step (worker.py:12)", "main (run.py:1)"]},
    {"tgid": 1234, "rank": 0, "device": 0, "address": "0x12c081200000", "size_bytes": GIB, "owner": None,
     "name": "model.embed_tokens.weight", "kind": "early_allocation", "idle_ns": 2 * 10**9, "idle_ratio": 0.2, "byte_seconds": 2 * GIB, "senses": ["time"],
     "operations": {"allocated": None, "first": None, "last": None, "idle": None}, "uses": 0, "freed": True, "held_before": False,
     "threads": False, "inferred": True, "stream": "0x0", "allocated_ns": HEADER["time_ns"] - 10**10, "frames": []}]}


def term(name, size, reason=None, inferred=False):
    return {"term": name, "bytes": size, "planned": name in ("weights", "profile_peak", "non_torch"),
            "inferred": inferred, "source": None if reason else "owner", "reason": reason}


def advice(setting, to, saves, **more):
    return {"setting": setting, "from": None, "to": to, "saves_bytes": saves, "confidence": "high",
            "evidence": f"the evidence of {setting}", "verb": "whatif", **more}


ADVICE = advice("gpu_memory_utilization", "at least 0.57", None, **{"from": "0.55"})
ADVISE = {**HEADER, "advice": [{"tgid": 1234, "rank": 0, "device": 0, **ADVICE},
                               {"tgid": 1234, "rank": 0, "device": 0, **advice("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True", 8 * GIB),
                                "where": "environment", "restart": True},
                               {"tgid": 1235, "rank": None, "device": 1, **advice("HCCL_BUFFSIZE", "100", GIB)}],
          "gc": [], "processes": 3}
OOM = {**HEADER, "id": 3, "failed_ns": 1800000000 * 10**9, "failures": 2, "tgid": 1234, "rank": 0, "device": 0, "comm": "python3",
       "requested_bytes": GIB, "recovered": False, "verdict": "FRAGMENTATION", "reason": "the reason", "slack_bytes": 6 * GIB,
       "unmap_bytes": 5 * GIB, "complaint": "PYTORCH_NPU_ALLOC_CONF=x: no", "holders": [], "top_blocks": [], "recent": [], "frames": [],
       "advice": [advice("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True", 5 * GIB)]}
TERMS = [("card_total", 64 * GIB), ("budget", 35 * GIB), ("others_at_start", 0), ("weights", 30 * GIB),
         ("profile_peak", 3 * GIB), ("non_torch", 3 * GIB), ("available", -GIB), ("kv_cache", 0), ("graph", 0)]


def plan(rank, verdict, terms, **more):
    sizes = {f"{t['term']}_bytes": t["bytes"] for t in terms}
    return {"tgid": 1234 + rank, "server_tgid": 1200, "rank": rank, "device": rank, "comm": "VLLM::Worker_TP",
            "state": "running", "late": False, "verdict": verdict, "reason": f"the reason of {verdict}",
            "complaint": None, "utilization": 0.55, "utilization_source": "command line", **sizes,
            "sum_bytes": None, "unplanned_bytes": 0, "short_bytes": None, "terms": terms, "advice": [], **more}


KV_KNOWN = {"server_tgid": 1200, "tgid": 1201, "replica": None, "state": "running", "since_ns": 1799000000 * 10**9,
            "until_ns": 1800000000 * 10**9, "known_ns": 999000 * 10**9, "samples": 999001, "interval_ns": 10**9, "blocks": 1000,
            "usage_ratio": 0.031, "most_ratio": 0.5, "most_ns": 1799500000 * 10**9, "most_running": 12, "most_waiting": 3,
            "p50_ratio": 0.1, "p95_ratio": 0.42, "p99_ratio": 0.48, "full_ns": 0, "tokens": 128128, "model_len": 4096,
            "reserved_bytes": 20 * GIB, "most_bytes": 10 * GIB, "fits_bytes": 11 * GIB, "fits_model_len": 128128,
            "fits_utilization": 0.76, "reason": None}
KV_HISTORY = [KV_KNOWN, {**KV_KNOWN, "server_tgid": 1300, "replica": 1, "state": "exited", "usage_ratio": None, "most_running": None,
                         "tokens": None, "reserved_bytes": None, "most_bytes": None, "fits_bytes": None, "fits_model_len": None,
                         "fits_utilization": None},
              {"server_tgid": 1400, "tgid": 1400, "replica": None, "state": "running", "most_ratio": None, "reason": "no CPython that is known"}]
BUDGET = {**HEADER, "servers": [], "kv_history": KV_HISTORY, "ranks": [
    plan(0, "NEGATIVE", [term(*t) for t in TERMS], advice=[ADVICE]),
    plan(1, "INCOMPLETE", [term(n, s if n in ("card_total", "budget") else None,
                                None if n in ("card_total", "budget") else "attached late", n == "budget")
                           for n, s in TERMS], utilization_source="default", complaint="--gpu-memory-utilization=7: no"),
]}


def incomplete(doc):
    doc = copy.deepcopy(doc)
    doc.update(complete=False, lost_events=17)
    return doc
