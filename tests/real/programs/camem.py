#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sleep mode's allocator of the real vllm-ascend: tags, sleep, wake, and death for want of memory.

    camem.py FRAMES [CYCLES]       FRAMES: the folder of npusim_frames.py

Prints `ready`, then after each line of input the next moment: awake, and asleep, CYCLES times (2). The
figures are {tag: bytes} by the allocator's own table. It wakes at the next line: if the card is full
when it does, vllm-ascend ends the process by std::terminate.
"""
import json
import pathlib
import sys

import torch
import torch_npu  # noqa: F401
from vllm_ascend.device_allocator.camem import CaMemAllocator

MIB = 1 << 20
PLAN = {"weights": [7, 30, 64, 64], "kv_cache": [256, 256, 100]}


def say(moment, allocator):
    sums = {}
    for data in allocator.pointer_to_data.values():
        sums[data.tag] = sums.get(data.tag, 0) + data.handle[1]
    sizes = [data.handle[1] for data in allocator.pointer_to_data.values()]
    print(json.dumps({"moment": moment, "tags": sums, "sizes": sizes}), flush=True)
    sys.stdin.readline()


def main():
    sys.path.insert(0, str(pathlib.Path(sys.argv[1])))
    from npusim_frames import PHASES, frames_call

    torch.npu.set_device(0)
    warm = torch.empty(1024, dtype=torch.uint8, device="npu")
    allocator = CaMemAllocator.get_instance()
    print("ready", flush=True)
    sys.stdin.readline()
    held = [warm]

    def fill(tag):
        with allocator.use_memory_pool(tag):
            held.extend(torch.empty(size * MIB, dtype=torch.uint8, device="npu") for size in PLAN[tag])

    for tag in PLAN:
        frames_call(PHASES[tag], lambda tag=tag: fill(tag))
    say("awake", allocator)
    for _ in range(int(sys.argv[2]) if len(sys.argv) > 2 else 2):
        # as vLLM's worker does: the real allocator's frames are below it
        frames_call(["NPUWorker.sleep"], lambda: allocator.sleep("weights"))
        say("asleep", allocator)
        frames_call(["NPUWorker.wake_up"], allocator.wake_up)
        say("awake", allocator)


if __name__ == "__main__":
    main()
