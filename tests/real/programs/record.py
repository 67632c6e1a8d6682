# SPDX-License-Identifier: Apache-2.0
"""A rank of a small server that works when it is told: lines on stdin, one answer each.

    record.py DOUBLED    the weight with this index is held doubled; -1: none

hold   what the model holds, by name: {name: bytes of its storage}
work   serves for a while; answers with the allocator's own history and its highest figures
"""
import json
import random
import sys

import torch
import torch_npu

MIB = 1 << 20
DEVICE = "npu"


class Layer(torch.nn.Module):
    def __init__(self, doubled):
        super().__init__()
        self.qkv = torch.nn.Linear(512, 1536, bias=False)
        self.up = torch.nn.Linear(512, 4096 if doubled else 2048, bias=False)


class Runner:
    def __init__(self, doubled):
        self.model = torch.nn.ModuleList(Layer(i == doubled) for i in range(6)).to(DEVICE)
        self.kv = [torch.empty(8 * MIB, dtype=torch.uint8, device=DEVICE) for _ in range(4)]


def empty(size):
    return torch.empty(size, dtype=torch.uint8, device=DEVICE)


def work(rng):
    kept = []
    for _ in range(300):
        tokens = rng.randrange(1, 256)
        hidden = empty(tokens * 8192)
        for _ in range(3):
            more = empty(tokens * 20000)
            scratch = empty(rng.randrange(100, 60000))
            del more, scratch
        if rng.random() < 0.05:
            kept.append(empty(3 * MIB))
        del hidden
    return kept


def serve():
    torch.npu.synchronize()
    torch.npu.empty_cache()
    torch.npu.reset_peak_memory_stats()
    before = torch.npu.memory_stats()["allocated_bytes.all.current"]
    print(json.dumps("begin"), flush=True)
    sys.stdin.readline()
    torch_npu.npu.memory._record_memory_history(max_entries=1 << 20, context=None, stacks="python")
    kept = work(random.Random(5))
    entries = torch_npu.npu.memory._snapshot()["device_traces"][torch.npu.current_device()]
    torch_npu.npu.memory._record_memory_history(enabled=None)
    stats = torch.npu.memory_stats()
    kinds = {"alloc": "malloc", "free_requested": "free"}
    print(json.dumps({"history": [[kinds[e["action"]], e["addr"], e["size"]] for e in entries if e["action"] in kinds],
                      "grown_bytes": stats["allocated_bytes.all.current"] - before,
                      "peak_allocated_bytes": stats["allocated_bytes.all.peak"],
                      "peak_reserved_bytes": stats["reserved_bytes.all.peak"]}), flush=True)
    return kept


def main():
    runner, kept = Runner(int(sys.argv[1])), []
    torch.npu.synchronize()
    print(json.dumps("ready"), flush=True)
    for line in sys.stdin:
        if line.strip() == "hold":
            print(json.dumps({name: tensor.untyped_storage().nbytes()
                              for name, tensor in runner.model.state_dict().items()}), flush=True)
        else:
            kept += serve()


main()
