# SPDX-License-Identifier: Apache-2.0
"""Stand-in for CANN's Python binding, as far as vllm-ascend's sleep mode uses it: acl.rt.memcpy."""
from . import rt

__all__ = ["rt"]
