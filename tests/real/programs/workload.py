#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One rank of a small inference-like job on the real torch_npu: two of these make the test.

    workload.py --rank R --world N --store FILE [--moments DIR]

Ten moments: communicator, weights, cache, steps with workspaces, tensors in use by another
stream, those given back, leak, holes, empty_cache, end.
"""
import argparse

import torch
import torch.distributed as dist

from moments import Moments

KIB, MIB = 1 << 10, 1 << 20
DEVICE = "npu"


def block(size_bytes):
    """A tensor of exactly that many bytes."""
    return torch.empty(size_bytes, dtype=torch.uint8, device=DEVICE)


def reduce_once(rank):
    word = torch.ones(256 * KIB // 4, device=DEVICE) * rank
    dist.all_reduce(word)
    return word


def make_weights(rank):
    """Sizes on both sides of every boundary of the allocator's pools, and a little of its own for
    each rank, so that ranks cannot be mistaken for each other."""
    sizes = [512, 3 * KIB, 700 * KIB, MIB - 32, MIB, MIB + 1, 2 * MIB, 9 * MIB, 10 * MIB - 32,
             10 * MIB, 11 * MIB, 33 * MIB]
    return [block(size) for size in sizes] + [block((rank + 1) * 1536 * KIB)]


def run_steps(steps, width):
    """Forward passes whose operators ask for workspaces."""
    layer = torch.nn.Linear(width, width).to(DEVICE)
    state = torch.ones(64, width, device=DEVICE)
    with torch.no_grad():
        for _ in range(steps):
            state = torch.relu(layer(state)) + state
    torch.npu.synchronize()
    return layer, state


def use_on_streams(streams):
    """Tensors that other streams still use when their owner drops them: active, not allocated."""
    for number, stream in enumerate(streams):
        tensor = block((number + 1) * MIB)
        with torch.npu.stream(stream):
            mine = block(2 * MIB + number * 512)
            mine.copy_(block(2 * MIB + number * 512))
        tensor.record_stream(stream)
        del tensor, mine


def work(args, moments):
    rank = args.rank
    word = reduce_once(rank)
    moments.stop("communicator")
    weights = make_weights(rank)
    run_steps(1, 512)
    moments.stop("weights")
    cache = [block(48 * MIB) for _ in range(4)]
    moments.stop("cache")
    layer, state = run_steps(8, 1024)
    moments.stop("steps")
    streams = [torch.npu.Stream() for _ in range(3)]
    use_on_streams(streams)
    moments.stop("streams")
    # The allocator looks at the streams' events when it is asked for memory.
    probe = [block(5 * MIB) for _ in range(2)]
    moments.stop("reclaimed")
    leak = [block(size) for size in (300 * KIB, 1200 * KIB) for _ in range(20 + rank)]
    moments.stop("leak")
    del cache[1::2], weights[::2], leak[1::3]
    moments.stop("holes")
    del probe, word, state
    torch.npu.empty_cache()
    moments.stop("empty_cache")
    del cache, weights, layer
    torch.npu.empty_cache()
    run_steps(1, 256)
    moments.stop("end", kept=len(leak))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--world", type=int, default=2)
    parser.add_argument("--store", required=True)
    parser.add_argument("--moments")
    args = parser.parse_args()
    torch.npu.set_device(args.rank)
    dist.init_process_group("hccl", init_method=f"file://{args.store}", rank=args.rank,
                            world_size=args.world)
    work(args, Moments(args.rank, args.rank, args.moments))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
