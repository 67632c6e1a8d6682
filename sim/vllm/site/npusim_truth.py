# SPDX-License-Identifier: Apache-2.0
"""What a worker of the server says about its own memory: `--worker-extension-cls npusim_truth.Truth`."""
import collections
import json
import os

import torch
import torch_npu  # noqa: F401


def storages(tensors):
    """{name: [bytes, address]} of tensors on the device; of a shared storage only its first name."""
    seen, named = set(), {}
    for name, tensor in tensors:
        if tensor.device.type != "npu":
            continue
        storage = tensor.untyped_storage()
        if storage.data_ptr() and storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            named[name] = [storage.nbytes(), storage.data_ptr()]
    return named


def caches(kv_caches):
    """(name, tensor) of the list in which each layer's entry is a tensor or a tuple of some."""
    for layer, entry in enumerate(kv_caches):
        for part, tensor in enumerate(entry if isinstance(entry, (tuple, list)) else (entry,)):
            yield f"kv_caches[{layer}][{part}]", tensor


class Truth:
    """Mixed into vLLM's worker; called through POST /collective_rpc. Results are JSON text, because
    the server would turn anything that it does not know into a string of its own form."""

    def npusim_truth(self):
        device = torch.npu.current_device()
        stats = torch.npu.memory_stats(device)
        sums = collections.Counter()
        for segment in torch.npu.memory_snapshot():
            sums["segments"] += 1
            sums["total_bytes"] += segment["total_size"]
            for block in segment["blocks"]:
                if block["state"] == "active_allocated":
                    sums["allocated_blocks"] += 1
                    sums["allocated_bytes"] += block["size"]
                    sums["requested_bytes"] += block.get("requested_size", 0)
        return json.dumps({
            "pid": os.getpid(),
            "rank": self.rank,
            "local_rank": self.local_rank,
            "device": device,
            "visible_devices": os.environ.get("ASCEND_RT_VISIBLE_DEVICES"),
            "stats": {what: stats.get(f"{what}_bytes.all.current", 0)
                      for what in ("allocated", "reserved", "active")},
            "snapshot": sums,
        })

    def npusim_names(self):
        """Names and sizes of parameters, buffers and caches, as the model itself has them."""
        runner = self.model_runner
        model = runner.get_model()
        return json.dumps({
            "state_dict": {name: [tensor.untyped_storage().nbytes(), tensor.data_ptr(), str(tensor.dtype)]
                           for name, tensor in model.state_dict().items()},
            "parameters": storages(model.named_parameters()),
            "buffers": storages(model.named_buffers()),
            "kv_caches": storages(caches(runner.kv_caches)),
        })

    def npusim_sleeping(self):
        """{tag: bytes} of what sleep mode's allocator holds or, asleep, would take again."""
        from vllm_ascend.device_allocator.camem import CaMemAllocator

        sums = collections.Counter()
        for data in CaMemAllocator.get_instance().pointer_to_data.values():
            sums[data.tag] += data.handle[1]
        return json.dumps(sums)

    def npusim_sleeping_sizes(self):
        """The same piece by piece."""
        from vllm_ascend.device_allocator.camem import CaMemAllocator

        return json.dumps([data.handle[1]
                           for data in CaMemAllocator.get_instance().pointer_to_data.values()])

    def npusim_blocks(self):
        """Every block of the allocator's own table: [address, bytes, requested, state]."""
        return json.dumps([[block.get("address", 0), block["size"], block.get("requested_size", 0),
                            block["state"]]
                           for segment in torch.npu.memory_snapshot() for block in segment["blocks"]])
