# SPDX-License-Identifier: Apache-2.0
"""The one thing that vLLM must be given beside its files: kernels that do nothing without triton.

Without triton, vLLM's own placeholder leaves a function decorated by `triton.jit` as it is, and a
function has no `kernel[grid](...)`; vllm-ascend 0.23 launches one kernel that way in every step.
Python imports this file by itself at start, in every process of the server, so that no file of the
wheels is changed. The placeholder class is amended when its module is imported.
"""
import importlib.abc
import importlib.machinery
import sys

TARGET = "vllm.triton_utils.importing"


class Kernel:
    """A kernel that is launched and does nothing; called plainly, it is the function it was."""

    def __init__(self, function):
        self.function = function
        self.__name__ = function.__name__

    def __getitem__(self, grid):
        return lambda *args, **kwargs: None

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def jit(*args, **_options):
    """Both `@jit` and `@jit(option=...)`."""
    return Kernel(args[0]) if args and callable(args[0]) else Kernel


def amend(module):
    made = module.TritonPlaceholder.__init__

    def init(self):
        made(self)
        self.jit = jit

    module.TritonPlaceholder.__init__ = init


class Finder(importlib.abc.MetaPathFinder):
    """Lets the ordinary finder find the target and adds `amend` to what its loader does."""

    def find_spec(self, name, path, target=None):
        if name != TARGET:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec:
            load = spec.loader.exec_module
            spec.loader.exec_module = lambda module: (load(module), amend(module))
        return spec


sys.meta_path.insert(0, Finder())
