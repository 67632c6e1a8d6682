#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time of `torch.empty` of 700 KiB and `del`, in ns of this thread's CPU time per pair.

    micro.py [--pairs N]       prints {"ready": pid}, then for each line on its input one result

The caller says when a round begins, so that rounds of two processes, one bare and one observed,
interleave in one run.
"""
import argparse
import json
import os
import sys
import time

import torch
import torch_npu  # noqa: F401

SIZE = 700 << 10


def round_ns(pairs):
    start = time.thread_time_ns()
    for _ in range(pairs):
        tensor = torch.empty(SIZE, dtype=torch.uint8, device="npu")
        del tensor
    return (time.thread_time_ns() - start) / pairs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=20000)
    parser.add_argument("--device", type=int, default=0)
    args = parser.parse_args()
    torch.npu.set_device(args.device)
    round_ns(1000)
    print(json.dumps({"ready": os.getpid()}), flush=True)
    for _ in sys.stdin:
        print(json.dumps({"ns_per_pair": round_ns(args.pairs), "pairs": args.pairs}), flush=True)


if __name__ == "__main__":
    main()
