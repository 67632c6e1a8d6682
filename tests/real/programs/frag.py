#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tears holes into torch_npu's pools and says what its own memory_snapshot() knows of them.

Prints `ready`, and after a line of input (so that it can be observed first, or late) one JSON line with the
segments; then sleeps until its input ends.
"""
import json
import sys

import torch
import torch_npu  # noqa: F401

MIB = 1 << 20


def tensor(size):
    return torch.empty(size, dtype=torch.uint8, device="npu")


def main():
    torch.npu.set_device(0)
    torch.zeros(16, device="npu").add_(1)
    torch.npu.synchronize()
    torch.npu.empty_cache()
    print("ready", flush=True)
    sys.stdin.readline()
    kept = [tensor(3 * MIB + 5000 * i) for i in range(30)]
    del kept[1::3]
    small = [tensor(20_000 + 700 * i) for i in range(200)]
    del small[::2]
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        kept += [tensor(7 * MIB), tensor(900 * MIB)]
        del kept[-2]
    big = tensor(600 * MIB)  # of which a small tensor will be all that is left
    del big
    kept.append(tensor(12 * MIB))
    segments = [{"address": s["address"], "size": s["total_size"], "type": s["segment_type"],
                 "blocks": [[b["size"], b["state"]] for b in s["blocks"]]}
                for s in torch.npu.memory_snapshot()]
    stats = torch.npu.memory_stats()
    print(json.dumps({"segments": segments, "reserved": stats["reserved_bytes.all.current"],
                      "allocated": stats["allocated_bytes.all.current"]}), flush=True)
    sys.stdin.readline()
    return kept, small


main()
