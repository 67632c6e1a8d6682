# SPDX-License-Identifier: Apache-2.0
"""A program that knows how it uses its memory: inefficient.py DIR

It stops twice, as the ten moments do: before the window, holding what is there before, and when it
has done all that it plants. Between the two it plants blocks of each kind, beside blocks that it uses
properly; the second stop's figures say where and what they are. Work goes on in the background
of all that is planted: one block is written again and again, in place, so that nothing is allocated.
"""
import argparse
import time

import torch
import torch_npu  # noqa: F401

from moments import Moments

IDLE_S = 2.8            # the check asks for 2 s
OPERATIONS = 3200       # beyond the default of 3000
MIB = 1 << 20


def block(size):
    return torch.empty(size, dtype=torch.uint8, device="npu")


class Program:
    def __init__(self):
        self.work = torch.zeros(1024, device="npu")
        self.planted = []

    def plant(self, tensor, kind, senses):
        self.planted.append({"address": tensor.untyped_storage().data_ptr(), "kind": kind,
                             "size": tensor.nbytes, "senses": senses})

    def use_in_place(self):
        for weight in self.weights:
            weight.fill_(1)
        self.used_inside[4 * MIB:5 * MIB].copy_(self.host)

    def run(self, seconds=0.0, operations=0):
        """Work in which no block comes or goes, on all that is used properly."""
        torch.npu.synchronize()                 # what waits in the queue is a use that has yet to come
        begin, used, done = time.monotonic(), 0.0, 0
        while done < operations or time.monotonic() - begin < seconds:
            self.work.add_(1)
            if time.monotonic() - used > 0.1 or done % 500 == 0:
                self.use_in_place()
                used = time.monotonic()
            done += 1
            if done > operations:
                time.sleep(0.005)

    def held_before(self):
        self.never_used = block(5 * MIB)
        self.small_never_used = block(300_000)
        self.used_inside = block(6 * MIB)       # only ever through the middle of it
        self.weights = [block(3 * MIB) for _ in range(4)]
        self.plant(self.never_used, "temporary_idleness", ["operations", "time"])
        self.plant(self.small_never_used, "temporary_idleness", ["operations", "time"])

    def use_properly(self):
        """What a well-behaved step does: weights are used, results are used up and freed at once."""
        self.use_in_place()
        result = self.work + 1
        result.mul_(2)
        del result

    def early(self):
        other = block(7 * MIB)
        other.fill_(1)
        first = block(8 * MIB)
        self.plant(other, "late_deallocation", ["operations"])
        del other                               # the one could be in the other's place
        self.use_properly()
        first.fill_(1)
        self.plant(first, "early_allocation", ["operations"])
        del first
        second = block(9 * MIB)
        self.run(seconds=IDLE_S)                # nothing is freed meanwhile: time alone tells
        second.fill_(1)
        self.plant(second, "early_allocation", ["time"])
        del second

    def late(self):
        first = block(10 * MIB)
        first.fill_(1)
        other = block(11 * MIB)                 # could have had the first one's memory
        other.fill_(1)
        self.plant(first, "late_deallocation", ["operations"])
        del first
        del other
        second = block(12 * MIB)
        second.fill_(1)
        self.run(seconds=IDLE_S)
        self.plant(second, "late_deallocation", ["time"])
        del second

    def idle(self):
        first = block(13 * MIB)
        first.fill_(1)
        self.run(operations=OPERATIONS)
        first.fill_(1)
        self.plant(first, "temporary_idleness", ["operations"])
        del first
        second = block(14 * MIB)
        second.fill_(1)
        self.run(seconds=IDLE_S)
        second.fill_(1)
        self.plant(second, "temporary_idleness", ["time"])
        del second

    def never_freed(self):
        self.kept = block(15 * MIB)
        self.kept.fill_(1)
        self.unused = block(16 * MIB)
        # all that follows runs while they lie there
        self.plant(self.kept, "late_deallocation", ["operations", "time"])
        self.plant(self.unused, "early_allocation", ["operations", "time"])

    def reuse(self):
        """One address, one block after the other: only one of them is planted."""
        for _ in range(20):
            proper = block(17 * MIB)
            proper.fill_(1)
            del proper
        bad = block(17 * MIB)
        bad.fill_(1)
        self.run(seconds=IDLE_S)
        self.plant(bad, "late_deallocation", ["time"])
        del bad


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("directory")
    args = parser.parse_args()
    torch.npu.set_device(0)
    program = Program()
    program.host = torch.ones(MIB, dtype=torch.uint8)
    program.held_before()
    program.use_properly()                      # libraries are loaded, caches are warm
    moments = Moments(0, 0, args.directory)
    moments.stop("before")
    for step in (program.never_freed, program.early, program.late, program.idle, program.reuse):
        for _ in range(10):
            program.use_properly()
        step()
    begin = time.monotonic()
    moments.stop("planted", planted=program.planted)
    print(f"{time.monotonic() - begin:.1f} s until the end", flush=True)


if __name__ == "__main__":
    main()
