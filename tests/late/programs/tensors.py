# SPDX-License-Identifier: Apache-2.0
"""Tensors of every kind on the device, and what torch itself says of them; then sleeps.

    tensors.py FILE    writes {"blocks", "state_dict", "stats"} as JSON, then prints "ready"
"""
import json
import sys
import time

import torch
import torch_npu  # noqa: F401

DEVICE = "npu"


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(256, 768)
        self.out = torch.nn.Linear(256, 256, bias=False)
        self.register_buffer("scale", torch.ones(4))
        self.plain = [torch.ones(16, device=DEVICE)]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Block() for _ in range(4))
        self.emb = torch.nn.Embedding(1000, 256)
        self.int8 = torch.nn.Parameter(torch.zeros(512, 512, dtype=torch.int8), requires_grad=False)
        self.tied = self.emb  # the same parameter under a second name


class Runner:
    def __init__(self):
        self.model = Model().to(DEVICE)
        self.kv_caches = [(torch.empty(2, 4, 1 << 20, dtype=torch.float16, device=DEVICE),)
                          for _ in range(4)]
        self.view = self.kv_caches[0][0][0]
        self.by_name = {"x": torch.empty(3, 5, 7, device=DEVICE), 7: torch.empty(9, device=DEVICE)}


def main():
    runner = Runner()
    stream = torch.npu.Stream()
    with torch.npu.stream(stream):
        other = torch.empty(3 << 20, dtype=torch.uint8, device=DEVICE)
    holes = [torch.empty(5 << 20, dtype=torch.uint8, device=DEVICE) for _ in range(6)]
    del holes[1::2]
    torch.npu.synchronize()
    blocks = [[block.get("address", 0), block["size"], block.get("requested_size", 0), block["state"]]
              for segment in torch.npu.memory_snapshot() for block in segment["blocks"]]
    state = {name: [tensor.data_ptr(), tensor.untyped_storage().nbytes(), str(tensor.dtype)[6:]]
             for name, tensor in runner.model.state_dict().items()}
    stats = torch.npu.memory_stats()
    with open(sys.argv[1], "w", encoding="ascii") as file:
        json.dump({"blocks": blocks, "state_dict": state,
                   "kv": sum(entry[0].untyped_storage().nbytes() for entry in runner.kv_caches),
                   "reserved": stats["reserved_bytes.all.current"],
                   "allocated": stats["allocated_bytes.all.current"]}, file)
    print("ready", flush=True)
    time.sleep(300)
    return other, holes


main()
