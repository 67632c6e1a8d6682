#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Six programs that use memory in different ways; what the real allocator reserved for each.

    whatif.py OUT [--traces DIR] [--fraction F]

OUT gets one JSON object: {program: {peak_reserved_bytes, segments, calls}}. With --traces, DIR/PROGRAM.trace
is the record (schema/trace.h) of what was asked for, from the allocator's own history.
"""
import argparse
import json
import os
import random
import struct

import torch
import torch_npu

MIB = 1 << 20
MAGIC = 0x31435254554d504e
KINDS = {"alloc": 1, "free_requested": 2, "free_completed": 3, "segment_alloc": 4, "segment_free": 5,
         "segment_map": 4, "segment_unmap": 5}


def empty(size):
    return torch.empty(size, dtype=torch.uint8, device="npu")


def churn(rng):
    """Sizes from 0.5 to 200 MiB, half of them alive."""
    live = {}
    for _ in range(600):
        slot = rng.randrange(40)
        if live.pop(slot, None) is None:
            live[slot] = empty(int(MIB * 0.5 * 400 ** rng.random()))
    live.clear()


def server(rng):
    """Weights, a KV cache, then steps of activations whose number of tokens changes."""
    weights = [empty(rng.choice((8, 24, 56, 112, 200)) * MIB) for _ in range(60)]
    profile = [empty(n * 37 * MIB) for n in range(1, 6)]
    del profile
    kv = [empty(160 * MIB) for _ in range(32)]
    for _ in range(120):
        tokens = rng.randrange(1, 512)
        hidden = empty(tokens * 8192 * 2)
        for _ in range(6):
            qkv = empty(tokens * 3 * 8192 * 2)
            mlp = empty(tokens * 28672 * 2)
            del qkv
            hidden = empty(tokens * 8192 * 2)
            del mlp
        logits = empty(tokens * 15200 * 4)
        del logits, hidden
    del weights, kv


def images(rng):
    """Pictures of any size, one after another, three at a time."""
    for _ in range(150):
        three = [empty(rng.randrange(20 * MIB, 900 * MIB)) for _ in range(3)]
        del three


def small(rng):
    """Many tensors below 2 MiB."""
    live = []
    for _ in range(4000):
        if live and rng.random() < 0.48:
            live.pop(rng.randrange(len(live)))
        else:
            live.append(empty(int(512 * 4096 ** rng.random())))
    live.clear()


def growing(rng):
    """A sequence that grows: every step a little more than the last one, as in a long prompt."""
    kept = [empty(30 * MIB) for _ in range(10)]
    last = empty(10 * MIB)
    for step in range(1, 160):
        new = empty(10 * MIB + step * (MIB + 4096))
        del last
        last = new
        if step % 40 == 0:
            kept.append(empty(25 * MIB))
    del last, kept, new


def emptied(rng):
    """Work in phases with an emptied cache between them, small tensors left over in the segments."""
    left = []
    for phase in range(6):
        many = [empty(rng.randrange(5 * MIB, 120 * MIB)) for _ in range(30)]
        left.append(empty(3 * MIB))
        del many
        left.append(empty(700 << 10))
        torch.npu.empty_cache()
    left.clear()


PROGRAMS = (churn, server, images, small, growing, emptied)


def write_trace(path, entries, card_bytes):
    with open(path, "wb") as f:
        conf = os.environ.get("PYTORCH_NPU_ALLOC_CONF", "").encode()
        f.write(struct.pack("<QIIIIQQQQIiII256s16sQQ", MAGIC, 1, 360, 56, 0, 0, 0, card_bytes, 0, os.getpid(), -1,
                            0, 0, conf, b"whatif.py", 0, 0))
        for number, e in enumerate(entries):
            kind = KINDS.get(e["action"])
            if kind:
                f.write(struct.pack("<QQQQQIBBHII", number, e["addr"], e["size"], e["size"] if kind == 1 else 0,
                                    e["stream"], 1, kind, 0, 0, 0, 0))


def stat(name):
    return torch.npu.memory_stats().get(name, 0)


def run(program, traces):
    torch.npu.empty_cache()
    torch.npu.reset_peak_memory_stats()
    before = {n: stat(n) for n in ("num_device_alloc", "num_device_free", "num_alloc_retries")}
    if traces:
        torch_npu.npu.memory._record_memory_history(max_entries=1 << 20, context=None, stacks="python")
    program(random.Random(program.__name__))
    result = {"peak_reserved_bytes": stat("reserved_bytes.all.peak"), "segments": stat("segment.all.peak"),
              "peak_allocated_bytes": stat("allocated_bytes.all.peak")}
    result.update({n: stat(n) - v for n, v in before.items()})
    if traces:
        entries = torch_npu.npu.memory._snapshot()["device_traces"][torch.npu.current_device()]
        torch_npu.npu.memory._record_memory_history(enabled=None)
        write_trace(os.path.join(traces, program.__name__ + ".trace"), entries, torch.npu.mem_get_info()[1])
    return result


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--traces")
    parser.add_argument("--fraction", type=float)
    args = parser.parse_args()
    torch.npu.set_device(0)
    if args.fraction:
        torch.npu.set_per_process_memory_fraction(args.fraction, 0)
    empty(1)
    with open(args.out, "w", encoding="utf-8") as f:
        json.dump({p.__name__: run(p, args.traces) for p in PROGRAMS}, f, indent=1)


if __name__ == "__main__":
    main()
