#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fragments.py DEVICE KEEP REQUEST OTHERS - dies of a pool in pieces: a card full of segments of 300 MiB, each with
KEEP MiB in use, OTHERS of 200 MiB that are free but of a pool of their own, then a request of REQUEST MiB. Prints torch's
counters before it and, if it comes back, after it was freed."""
import json
import sys

import torch
import torch_npu  # noqa: F401

MIB = 1 << 20
SEGMENT, SEGMENTS, OTHER = 300, 24, 200
LEFT = 150  # of the card, less than a granule of 20 MiB more


def tensor(mib):
    return torch.empty(mib * MIB - 512, dtype=torch.uint8, device="npu")


def say(**more):
    print(json.dumps({"reserved": torch.npu.memory_reserved(), "allocated": torch.npu.memory_allocated(),
                      "free": torch.npu.mem_get_info()[0], **more}), flush=True)


def main():
    device, keep, request, others = (int(text) for text in sys.argv[1:])
    torch.npu.set_device(device)
    word = torch.zeros(16, device="npu").add_(1)  # stays: the segment of small blocks is never empty
    torch.npu.synchronize()
    say()
    sys.stdin.readline()
    pool = torch.npu.MemPool()
    with torch.npu.use_mem_pool(pool):
        own = [tensor(OTHER) for _ in range(others)]
    own.clear()
    filler = tensor((torch.npu.mem_get_info()[0] // MIB - SEGMENTS * SEGMENT - LEFT) // 20 * 20)
    kept = []
    for _ in range(SEGMENTS):
        whole = tensor(SEGMENT)
        del whole
        kept.append(tensor(keep))
        kept.append(tensor(SEGMENT - keep))
    del kept[1::2]
    say()
    sys.stdin.readline()
    large = tensor(request)
    say()
    del large
    torch.npu.empty_cache()
    say(kept=len(kept), filler=filler.numel(), word=word.numel(), pool=pool.id)


if __name__ == "__main__":
    main()
