# SPDX-License-Identifier: Apache-2.0
"""Objects that hang together as in other servers, with the names that schema/roots.def knows; tensors are real.

    frameworks.py sglang|sglang_old|mindie    prints {owner: bytes} as JSON, then "ready", and sleeps
"""
import json
import sys
import threading
import time

import torch
import torch_npu  # noqa: F401


def tensor(kib):
    return torch.zeros(kib << 10, dtype=torch.uint8, device="npu")


def parameter(tensor_):
    return torch.nn.Parameter(tensor_, requires_grad=False)


class Experts(torch.nn.Module):
    """As quantised layers of vllm-ascend name them."""

    def __init__(self):
        super().__init__()
        self.w13_weight = parameter(tensor(128).view(torch.int8))
        self.w13_weight_scale = parameter(torch.zeros(1 << 10, dtype=torch.float32, device="npu"))


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.experts = Experts()
        self.q_proj = torch.nn.Module()
        self.q_proj.weight = parameter(tensor(32).view(torch.int8))
        self.q_proj.deq_scale = parameter(torch.zeros(512, dtype=torch.float32, device="npu"))


class Model(torch.nn.Module):
    """Per layer: 128 KiB of experts' int8, 4 of their scales, 32 of other int8, 2 of its scale; 64 plain."""

    def __init__(self):
        super().__init__()
        self.weight = parameter(torch.zeros(32 << 10, dtype=torch.bfloat16, device="npu"))
        self.layers = torch.nn.ModuleList(Layer() for _ in range(3))
        self.register_buffer("scale", tensor(4))


class Pool:
    def __init__(self, kib):
        self.k_buffer = [tensor(kib) for _ in range(2)]


class Sampler(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", tensor(8))


class ModelRunner:
    """sglang's, as far as it holds tensors."""

    def __init__(self):
        self.model = Model()
        self.token_to_kv_pool = Pool(512)
        self.req_to_token_pool = Pool(16)
        self.sampler = Sampler()
        self.graph_inputs = {"input_ids": tensor(32)}


class TpModelWorker:
    def __init__(self):
        self._model_runner = ModelRunner()

    @property
    def model_runner(self):
        return self._model_runner


class OldWorker:
    def __init__(self):
        self.model_runner = ModelRunner()


class Scheduler:
    def __init__(self, worker):
        self.tp_worker = worker

    def event_loop_normal(self):
        print("ready", flush=True)
        time.sleep(600)


def run_scheduler_process(worker):
    scheduler = Scheduler(worker)
    scheduler.event_loop_normal()


class AtbRunner:
    def __init__(self):
        self.model = Model()


class ModelWrapper:
    def __init__(self):
        self.model_runner = AtbRunner()


class GeneratorTorch:
    def __init__(self):
        self.model_wrapper = ModelWrapper()
        self.cache_pool = Pool(512)
        self.sampler = Sampler()
        self.extra = [tensor(32)]


class Generator:
    def __init__(self):
        self.generator_backend = GeneratorTorch()
        self.model_wrapper = self.generator_backend.model_wrapper


class RouterImpl:
    __slots__ = ("config", "generator")

    def __init__(self):
        self.generator = Generator()


class RequestRouter:
    __slots__ = ("inference_related_thread", "router_impl")

    def __init__(self):
        self.router_impl = RouterImpl()
        self.inference_related_thread = threading.Thread(target=self.do_inference)
        self.inference_related_thread.start()

    def do_inference(self):
        print("ready", flush=True)
        time.sleep(600)


def main():
    kib = 1024
    weights = (64 + 4 + 3 * (128 + 4 + 32 + 2)) * kib
    if sys.argv[1].startswith("sglang"):
        worker = OldWorker() if sys.argv[1] == "sglang_old" else TpModelWorker()
        print(json.dumps({"PTA@sglang@weights": weights, "PTA@sglang@kv_cache": 1024 * kib,
                          "PTA@sglang@input_batch": 32 * kib, "PTA@sglang@sampler": 8 * kib,
                          "PTA@sglang@buffers": 32 * kib}), flush=True)
        run_scheduler_process(worker)
    else:
        print(json.dumps({"PTA@mindie@weights": weights, "PTA@mindie@kv_cache": 1024 * kib,
                          "PTA@mindie@sampler": 8 * kib, "PTA@mindie@buffers": 32 * kib}), flush=True)
        RequestRouter()


main()
