#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs out of device memory for real: `oom.py caught` handles it and goes on, `oom.py uncaught`
dies of it. NPUSIM_HBM (set by the test) makes the device small."""
import sys

import torch
import torch_npu  # noqa: F401

MIB = 1 << 20


def fill(kept):
    """Takes 100 MiB at a time until the device has no more."""
    while True:
        kept.append(torch.empty(100 * MIB, dtype=torch.uint8, device="npu"))


def main():
    torch.npu.set_device(0)
    # torch_npu's queue thread starts with the first operator and sets the device for itself. A process that
    # ends while it does so aborts, with a daemon or without: let it be up first.
    torch.zeros(16, device="npu").add_(1)
    torch.npu.synchronize()
    # A cached segment that is free: the allocator gives it back and tries again before it raises.
    spare = torch.empty(40 * MIB, dtype=torch.uint8, device="npu")
    del spare
    kept = []
    if sys.argv[1] == "uncaught":
        fill(kept)
    for _ in range(3):
        try:
            fill(kept)
        except RuntimeError as error:
            print("caught:", str(error).split("\n")[0], flush=True)
            del kept[-2:]
    stats = torch.npu.memory_stats()
    print(len(kept), stats["allocated_bytes.all.current"], stats["reserved_bytes.all.current"],
          stats["num_alloc_retries"], stats["num_ooms"], flush=True)
    kept.clear()
    torch.npu.empty_cache()
    print(torch.npu.memory_reserved(), flush=True)


if __name__ == "__main__":
    main()
