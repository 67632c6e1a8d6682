#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the conditions that `npumem advise` has rules for, one after the other, on the real torch_npu.

    advise.py DEVICE FRAMES MOMENT... [--follow] [--fraction F]

FRAMES: the folder of npusim_frames.py. At each MOMENT it prints one JSON line with what torch itself counts, and
goes on when it is given a line. Settings of the environment are the caller's; --follow does what advice asks of the
program itself, --fraction calls set_per_process_memory_fraction().
"""
import argparse
import gc
import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch_npu  # noqa: F401

MIB, GIB = 1 << 20, 1 << 30
COMMUNICATORS = 4
ROUNDS, GARBAGE = 16, 64 * MIB
COLLECTIONS = 15


def tensor(size):
    return torch.empty(size, dtype=torch.uint8, device="npu")


def say(moment, **more):
    """Current bytes, and the highest of this moment."""
    torch.npu.synchronize()
    stats = torch.npu.memory_stats()
    figures = {name: stats.get(f"{name}_bytes.all.current", 0) for name in ("allocated", "reserved", "active")}
    peaks = {f"peak_{name}": stats.get(f"{name}_bytes.all.peak", 0) for name in figures}
    free, total = torch.npu.mem_get_info()
    line = {"moment": moment, **figures, **peaks, "retries": stats.get("num_alloc_retries", 0), "used": total - free,
            **more}
    print(json.dumps(line), flush=True)
    sys.stdin.readline()


class Program:
    """One method per moment; what lives longer than its moment is in `kept`."""

    def __init__(self, args):
        self.args, self.kept = args, []

    def up(self):
        """A program in order: weights, a cache, a step of which nothing is left; no setting would help it."""
        self.kept += [tensor(900 * MIB - 512), tensor(700 * MIB - 512)]
        step = tensor(64 * MIB - 512)
        del step
        say("up")

    def hccl(self):
        """Communicators whose size HCCL_BUFFSIZE decides."""
        dist.init_process_group("hccl", store=dist.HashStore(), rank=0, world_size=1)
        groups = [None] + [dist.new_group([0]) for _ in range(COMMUNICATORS - 1)]
        word = torch.ones(1024, device="npu")
        for group in groups:
            dist.all_reduce(word, group=group)
        say("hccl")

    def streams(self):
        """Collectives whose input is dropped before the wait, faster than the stream is done with them."""
        whole = tensor(100 * MIB)
        for _ in range(4):
            part = tensor(100 * MIB)
            work = dist.all_gather_into_tensor(whole, part, async_op=True)
            del part
            work.wait()
        del work, whole
        say("streams")

    def record_stream(self):
        """The program's own record_stream(), and what does without it."""
        other = torch.npu.Stream()
        for _ in range(4):
            part = tensor(100 * MIB)
            with torch.npu.stream(other):
                part.fill_(1)
            if self.args.follow:
                torch.npu.current_stream().wait_stream(other)
            else:
                part.record_stream(other)
            del part
        say("record_stream")

    def queue(self):
        """Operators with a workspace (NPUSIM_WORKSPACE_KB), and what else they need."""
        layer = torch.nn.Linear(64, 64).to("npu")
        with torch.no_grad():
            layer(torch.ones(4, 64, device="npu"))
        say("queue")

    def slack(self):
        """Small blocks left in large segments; then, what the whole cache can give back."""
        held = []
        for _ in range(8):
            big = tensor(300 * MIB - 512)
            del big
            held += [tensor(40 * MIB - 512), tensor(252 * MIB - 512)]
        mine = held[::2]
        del held
        say("slack")
        torch.npu.empty_cache()
        say("slack_emptied")
        del mine
        torch.npu.empty_cache()

    def cycles(self):
        """Requests whose tensors are in a cycle, beside objects that live on: the collector comes late."""
        gc.collect()
        before, history = gc.get_stats()[2]["collections"], []
        for _ in range(ROUNDS):
            request = [tensor(GARBAGE - 512)]
            request.append(request)
            history.append([[] for _ in range(12_000)])
            del request
            if self.args.follow:
                gc.collect()
        say("cycles", collections=gc.get_stats()[2]["collections"] - before)
        del history
        gc.collect()
        torch.npu.empty_cache()

    def garbage(self):
        """An object that the collector cannot free; needs CPython's own test module."""
        try:
            from _testcapi import with_tp_del
        except ImportError:
            return say("garbage", uncollectable=None)

        @with_tp_del
        class Stuck:
            def __tp_del__(self):
                pass
        stuck = Stuck()
        stuck.self = None if self.args.follow else stuck
        del stuck
        gc.collect()
        return say("garbage", uncollectable=gc.get_stats()[2]["uncollectable"])

    def freeze(self):
        """Full collections of many objects, how long one takes; and the same once they are frozen."""
        for moment in ("freeze", "frozen"):
            start = time.perf_counter()
            for _ in range(COLLECTIONS):
                gc.collect()
            say(moment, collection_ms=1000 * (time.perf_counter() - start) / COLLECTIONS)
            gc.freeze()

    def retries(self):
        """Requests of ever other sizes: what the cache has fits none of them, until the card is full."""
        for number in range(24):
            request = tensor((500 + 37 * number) * MIB)
            del request
        say("retries")
        torch.npu.empty_cache()

    def sleep(self):
        """vLLM's sleep, after which the cache keeps its segments."""
        from npusim_frames import PHASES, frames_call
        parts = [tensor(200 * MIB - 512) for _ in range(3)]

        def sleep():
            host = torch.empty(MIB, dtype=torch.uint8, pin_memory=True)  # where the weights would go
            parts.clear()
            del host
            if self.args.follow:
                torch.npu.empty_cache()
        frames_call(PHASES["sleep"], sleep)
        say("sleep")
        torch.npu.empty_cache()
        say("sleep_emptied")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("device", type=int)
    parser.add_argument("frames", type=pathlib.Path)
    parser.add_argument("moments", nargs="+")
    parser.add_argument("--follow", action="store_true")
    parser.add_argument("--fraction", type=float)
    args = parser.parse_args()
    sys.path.insert(0, str(args.frames))
    torch.npu.set_device(args.device)
    if args.fraction:
        torch.npu.set_per_process_memory_fraction(args.fraction, args.device)
    torch.zeros(16, device="npu").add_(1)
    torch.npu.synchronize()
    program = Program(args)
    say("ready")
    for moment in args.moments:
        torch.npu.reset_peak_memory_stats()
        getattr(program, moment)()
    sys.stdout.flush()
    os._exit(0)  # communicators of one rank need no farewell


if __name__ == "__main__":
    main()
