# SPDX-License-Identifier: Apache-2.0
"""Holds tensors, and frees some when it is told: lines "free big", "free small", "new big" on stdin.
After each, and at first, it prints what it holds, in whole blocks of the allocator."""
import json
import sys

import torch
import torch_npu  # noqa: F401

DEVICE = "npu"
BIG, SMALL = 4 << 20, 20 << 10  # both are whole blocks


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(BIG // 4 - 128, device=DEVICE), requires_grad=False)


def tensor(size):
    return torch.empty(size, dtype=torch.uint8, device=DEVICE)


def say(holder):
    torch.npu.synchronize()
    stats = torch.npu.memory_stats()
    print(json.dumps({"allocated": stats["allocated_bytes.all.current"],
                      "big": BIG * len(holder["big"]), "small": SMALL * len(holder["small"]),
                      "model": holder["model"].weight.untyped_storage().nbytes(), "model_block": BIG}), flush=True)


def main():
    model = Model()
    holder = {"model": model, "big": [tensor(BIG - 512) for _ in range(20)],
              "small": [tensor(SMALL - 512) for _ in range(2000)]}
    say(holder)
    for line in sys.stdin:
        what, size = line.split()
        if what == "free":
            del holder[size][::2]
        else:
            holder[size].append(tensor(BIG - 512))
        say(holder)


main()
