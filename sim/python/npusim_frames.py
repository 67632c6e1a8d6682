# SPDX-License-Identifier: Apache-2.0
"""Phases as nested Python functions named like vLLM-Ascend's classes and methods.

The chains are those seen on a running server; only the names matter to an observer, so the functions
do nothing but call the next one. No lambda or helper frame stands between them.
"""
import functools

PHASES = {
    "init": ["NPUWorker.init_device", "NPUModelRunner.__init__"],
    "weights": ["NPUWorker.load_model", "NPUModelRunner.load_model"],
    "draft": ["NPUWorker.load_model", "NPUModelRunner.load_model",
              "AscendSpecDecodeBaseProposer.load_model"],
    "profile": ["NPUWorker.determine_available_memory", "NPUModelRunner.profile_run",
                "GPUModelRunner.profile_run", "NPUModelRunner._dummy_run",
                "NPUModelRunner._model_forward"],
    "kv_cache": ["NPUWorker.initialize_from_config", "NPUModelRunner.initialize_kv_cache",
                 "NPUModelRunner.initialize_kv_cache_tensors",
                 "NPUModelRunner._allocate_kv_cache_tensors"],
    "kv_transfer": ["NPUWorker.load_model", "ensure_kv_transfer_initialized",
                    "MooncakeConnectorWorker.register_kv_caches"],
    "warmup": ["NPUWorker.compile_or_warm_up_model", "NPUWorker._warm_up_atb"],
    "graph": ["NPUWorker.compile_or_warm_up_model", "NPUModelRunner.capture_model",
              "GPUModelRunner.capture_model", "GPUModelRunner._capture_cudagraphs",
              "NPUModelRunner._dummy_run", "NPUModelRunner._model_forward",
              "ACLGraphWrapper.__call__"],
    "activation": ["NPUModelRunner.execute_model", "NPUModelRunner._model_forward"],
    "sampler": ["NPUModelRunner.sample_tokens", "NPUModelRunner._sample",
                "AscendSampler.greedy_sample"],
    "multimodal": ["NPUModelRunner.execute_model", "GPUModelRunner._execute_mm_encoder"],
    "sleep": ["NPUWorker.sleep", "CaMemAllocator.sleep"],
    "wake": ["NPUWorker.wake_up", "CaMemAllocator.wake_up"],
    "eplb": ["NPUModelRunner.eplb_warmup"],
    "lora": ["NPUWorker.add_lora", "NPUModelRunner.load_lora_model"],
}

FILES = {
    "NPUWorker": "vllm_ascend/worker/worker.py",
    "NPUModelRunner": "vllm_ascend/worker/model_runner_v1.py",
    "GPUModelRunner": "vllm/v1/worker/gpu_model_runner.py",
    "WorkerProc": "vllm/v1/executor/multiproc_executor.py",
    "ACLGraphWrapper": "vllm_ascend/compilation/acl_graph.py",
    "AscendSampler": "vllm_ascend/sample/sampler.py",
    "MooncakeConnectorWorker": "vllm_ascend/distributed/mooncake_connector.py",
    "CaMemAllocator": "vllm_ascend/device_allocator/camem.py",
}


@functools.lru_cache(maxsize=None)
def function_named(qualified):
    """A function whose code object has this qualified name; it calls its argument."""
    owner, _, name = qualified.rpartition(".")
    if not all(part.isidentifier() for part in qualified.split(".")):
        name, owner = "phase", ""
    source = "def %s(then):\n    return then()\n" % name
    scope = {}
    if owner:
        parts = owner.split(".")
        lines = ["%sclass %s:" % ("    " * depth, part) for depth, part in enumerate(parts)]
        indent = "    " * len(parts)
        lines += [indent + "@staticmethod"] + [indent + line for line in source.splitlines()]
        source = "\n".join(lines) + "\n"
    exec(compile(source, FILES.get(owner, "scenario.py"), "exec"), scope)
    for part in (owner + "." + name if owner else name).split("."):
        scope = scope[part] if isinstance(scope, dict) else getattr(scope, part)
    return scope


def frames_call(names, body):
    """Calls body() below functions of these names, outermost first."""
    for name in reversed(names):
        body = functools.partial(function_named(name), body)
    return body()


def frames_of(op, text):
    """The chain of a phase or frames statement."""
    if op == "frames":
        return [name for name in text.split(">") if name] or ["phase"]
    return PHASES.get(text) or [text if text.isidentifier() else "phase"]
