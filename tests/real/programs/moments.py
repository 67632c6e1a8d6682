# SPDX-License-Identifier: Apache-2.0
"""What every program of this group shares: stop at a moment, say what torch itself counts, go on.

At a moment the program writes DIR/RANK.N.json and waits for the file DIR/go.N; without a
directory it prints the line and goes on. The figures come from torch.npu.memory_stats() and
aclrtGetMemInfo alone, so that the observer under test has no part in them.
"""
import json
import os
import pathlib
import sys
import time

import torch
import torch_npu  # noqa: F401  (registers the npu device)

STATS = {"allocated": "allocated_bytes.all.current", "reserved": "reserved_bytes.all.current",
         "active": "active_bytes.all.current", "blocks": "allocation.all.current",
         "segments": "segment.all.current", "retries": "num_alloc_retries", "ooms": "num_ooms"}
# A test that forgets a program must not leave it behind for ever.
GIVE_UP_S = 300


def truth():
    """What torch and the driver call count on the current device, in bytes and in pieces."""
    stats = torch.npu.memory_stats()
    free, total = torch.npu.mem_get_info()
    figures = {name: stats.get(key, 0) for name, key in STATS.items()}
    return figures | {"device_used": total - free, "device_total": total}


class Moments:
    """The stops of one process."""

    def __init__(self, rank, device, directory=None):
        self.rank, self.device = rank, device
        self.directory = pathlib.Path(directory) if directory else None
        self.number = 0

    def stop(self, name, **more):
        torch.npu.synchronize()
        self.number += 1
        line = {"moment": self.number, "name": name, "pid": os.getpid(), "rank": self.rank,
                "device": self.device, **truth(), **more}
        text = json.dumps(line)
        if not self.directory:
            print(text, flush=True)
            return
        path = self.directory / f"{self.rank}.{self.number}.json"
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").rename(path)
        until = time.monotonic() + GIVE_UP_S
        while not (self.directory / f"go.{self.number}").exists():
            if time.monotonic() > until or os.getppid() == 1:
                sys.exit(f"rank {self.rank}: nobody released moment {self.number}")
            time.sleep(0.01)
