#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tensors of the real torch_npu, allocated below functions with the names that phases have, and what this
program itself knows of them.

    owners.py FRAMES [--seed N]       FRAMES: the folder of npusim_frames.py

Prints `ready`, waits for a line, allocates; then prints {phase: bytes} of what it holds, by the blocks
of torch's own snapshot, and waits for another line; three rounds. The phase "" has no frames.
"""
import argparse
import gc
import json
import pathlib
import random
import sys
import threading

import torch
import torch_npu  # noqa: F401

ROUNDS = 3
# Of each phase and round; on both sides of the boundaries of torch's pools and of npumem's threshold.
SIZES = [512, 3000, 70_000, 1 << 20, (1 << 20) - 600, (1 << 20) + 1, 5 << 20, 11 << 20, 33 << 20]


def block_sizes():
    """{address: bytes} of the blocks that tensors hold, as torch's allocator has them."""
    return {block["address"]: block["size"] for segment in torch.npu.memory_snapshot()
            for block in segment["blocks"] if block["state"] == "active_allocated"}


def tensors(count, rng):
    return [torch.empty(rng.choice(SIZES), dtype=torch.uint8, device="npu") for _ in range(count)]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("frames", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    sys.path.insert(0, str(args.frames))
    import npusim_frames

    rng = random.Random(args.seed)
    held = {phase: [] for phase in ("", *npusim_frames.PHASES)}
    torch.npu.set_device(0)
    print("ready", flush=True)
    sys.stdin.readline()

    def allocate(phase, count):
        if phase:
            names = npusim_frames.PHASES[phase]
            held[phase] += npusim_frames.frames_call(names, lambda: tensors(count, rng))
        else:
            held[phase] += tensors(count, rng)

    for turn in range(ROUNDS):
        order = list(held)
        rng.shuffle(order)
        for number, phase in enumerate(order):
            if number % 3 == 2:  # a thread of its own, as torch's and vLLM's are
                thread = threading.Thread(target=allocate, args=(phase, 4))
                thread.start()
                thread.join()
            else:
                allocate(phase, 6)
            if turn and held[phase]:  # freed in another phase than its own
                held[phase].pop(rng.randrange(len(held[phase])))
        gc.collect()
        sizes = block_sizes()
        truth = {phase: sum(sizes[t.data_ptr()] for t in kept) for phase, kept in held.items()}
        allocated = torch.npu.memory_stats().get("allocated_bytes.all.current", 0)
        if sum(truth.values()) != allocated:
            sys.exit(f"this program does not know its own memory: {sum(truth.values())}, {allocated}")
        print(json.dumps(truth), flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
