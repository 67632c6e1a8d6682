#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds 300 tensors of 300 different sizes of at least 1 MiB, says so, and waits to be killed."""
import argparse

import torch

from moments import Moments

MIB = 1 << 20
COUNT = 300


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--moments")
    args = parser.parse_args()
    torch.npu.set_device(0)
    moments = Moments(0, 0, args.moments)
    tensors = [torch.empty(MIB + i * 512, dtype=torch.uint8, device="npu") for i in range(COUNT)]
    segments = [[s["address"], s["total_size"]] for s in torch.npu.memory_snapshot()]
    moments.stop("held", addresses=[[t.data_ptr(), t.nbytes] for t in tensors],
                 segment_list=segments)


if __name__ == "__main__":
    main()
