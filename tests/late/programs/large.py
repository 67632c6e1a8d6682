# SPDX-License-Identifier: Apache-2.0
"""A model of 100,000 parameters in 200 layers of modules; prints "ready" and sleeps."""
import time

import torch
import torch_npu  # noqa: F401

LAYERS, MODULES, PARAMETERS = 200, 250, 2


class Leaf(torch.nn.Module):
    def __init__(self):
        super().__init__()
        for i in range(PARAMETERS):
            self.register_parameter(f"p{i}", torch.nn.Parameter(
                torch.empty(8, dtype=torch.float32, device="npu"), requires_grad=False))


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.sub = torch.nn.ModuleList(Leaf() for _ in range(MODULES))


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))


model = Model()
torch.npu.synchronize()
print("ready", flush=True)
time.sleep(600)
