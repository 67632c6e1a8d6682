# SPDX-License-Identifier: Apache-2.0
"""A small process to record for the fuzzer (tests/fuzz/record.sh): prints "ready" and sleeps.

    small.py torch    with tensors on the device; plain: objects of every form only
"""
import sys
import time


class Slots:
    __slots__ = ("one", "two")

    def __init__(self):
        self.one, self.two = [1, "zwei"], {"k": (3,)}


class Part:
    def __init__(self, value):
        self.value, self.parts, self.table = value, [], {}


class Runner:
    """What the rows of record.sh lead to."""

    def __init__(self, with_torch):
        self.model = make_model() if with_torch else make_parts(3)
        self.slots = Slots()
        self.words = {"a": 1, 2: "b", "list": [None, True, "\u00e4\u4e2d\U0001f600"]}
        self.cycle = [self]
        self.kv_caches = make_caches() if with_torch else []

    def loop(self):
        print("ready", flush=True)
        time.sleep(600)


def make_parts(depth):
    part = Part(depth)
    if depth:
        part.parts = [make_parts(depth - 1) for _ in range(2)]
        part.table = {"self": part, "n": depth}
    return part


def make_model():
    import torch
    import torch_npu  # noqa: F401

    class Layer(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.up = torch.nn.Linear(64, 256)
            self.register_buffer("scale", torch.ones(4))

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = torch.nn.ModuleList(Layer() for _ in range(2))

    return Model().to("npu")


def make_caches():
    import torch
    caches = [torch.empty(2, 1 << 20, dtype=torch.float16, device="npu") for _ in range(3)]
    return [*caches[:2], caches[0][0]]  # a hole, and a view


Runner(sys.argv[1] == "torch").loop()
