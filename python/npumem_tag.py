# SPDX-License-Identifier: Apache-2.0
"""npumem_tag - a program says itself whose device memory it allocates.

    from npumem_tag import describe

    with describe("UserDefined@vllm@kvcache"):        # what this thread allocates inside
        cache = torch.empty(...)

    @describe("UserDefined@vllm@draft")               # what a function allocates
    def load_draft(): ...

    tag = describe("UserDefined@vllm@warmup")         # or by hand
    tag.start(); ...; tag.stop()

    describe("UserDefined@vllm@embedding", tensor)    # a tensor that is there already

Tags hold for the calling thread and nest; a generator or coroutine that is suspended inside one must not
be resumed by another thread. They outrank everything else that npumem knows of an allocation. Names are
FRAMEWORK@COMPONENT@DETAIL, cut at 47 bytes.

Standard library only; no daemon is needed. Without libnpumem_tag.so (beside this file, in the loader's path, or named
by NPUMEM_TAG_LIBRARY) nothing happens at all. With it, a tag costs one empty call; npumemd puts probes on
that call while it watches the process.
"""
import ctypes
import functools
import os

__all__ = ["describe", "available"]

NAME_BYTES = 47


def _load():
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "libnpumem_tag.so")
    for path in (os.environ.get("NPUMEM_TAG_LIBRARY"), beside, "libnpumem_tag.so"):
        if not path:
            continue
        try:
            library = ctypes.PyDLL(path)
            library.npumem_tag_push.argtypes = [ctypes.c_char_p, ctypes.c_size_t]
            library.npumem_tag_pop.argtypes = []
            library.npumem_tag_memory.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
            for function in (library.npumem_tag_push, library.npumem_tag_pop, library.npumem_tag_memory):
                function.restype = None
            return library
        except (OSError, AttributeError):
            continue
    return None


_library = _load()


def available():
    """Whether tags can be seen: the library with the probe points is there."""
    return _library is not None


class describe:
    """describe(owner): a context manager, a decorator, and start() and stop().
    describe(owner, tensor): names the memory of a tensor (anything with data_ptr(), or an address)."""

    def __init__(self, owner, tensor=None):
        name = owner.encode("utf-8", "replace")[:NAME_BYTES]
        if not name or b"\0" in name:
            raise ValueError("an owner is a text of at least one character, without NUL")
        self.name = name
        if tensor is not None and _library is not None:
            address = tensor.data_ptr() if hasattr(tensor, "data_ptr") else int(tensor)
            _library.npumem_tag_memory(address, name, len(name))

    def start(self):
        if _library is not None:
            _library.npumem_tag_push(self.name, len(self.name))
        return self

    def stop(self):
        if _library is not None:
            _library.npumem_tag_pop()

    def __enter__(self):
        return self.start()

    def __exit__(self, *exception):
        self.stop()
        return False

    def __call__(self, function):
        @functools.wraps(function)
        def described(*arguments, **options):
            with self:
                return function(*arguments, **options)
        return described
