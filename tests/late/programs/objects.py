# SPDX-License-Identifier: Apache-2.0
"""An object graph of every form that lib/pyobj reads: prints what it is, then sleeps."""
import json
import sys
import threading
import time


class Slots:
    __slots__ = ("first", "second", "unset")

    def __init__(self):
        self.first = "one"
        self.second = [1, 2]


class SlotsChild(Slots):
    __slots__ = ("third",)

    def __init__(self):
        super().__init__()
        self.third = ("x",)


class Plain:
    """Attributes in the keys that instances of the class share."""

    def __init__(self):
        self.a = 1
        self.b = "zwei"
        self.c = None


class Odd(Plain):
    """One more attribute, and the dict made real."""

    def __init__(self):
        super().__init__()
        self.extra = {"k": [1, ("t",)]}
        self.same = len(self.__dict__)


class Deleted(Plain):
    def __init__(self):
        super().__init__()
        del self.b
        self.d = 4


class Mixin:
    pass


class Derived(Mixin, dict):
    def __init__(self):
        super().__init__(p=1)
        self.note = "an attribute of a dict"


def make():
    holes = {i: i for i in range(20)}
    for i in range(0, 20, 2):
        del holes[i]
    return {"plain": Plain(), "odd": Odd(), "deleted": Deleted(), "slots": Slots(),
            "child": SlotsChild(), "derived": Derived(), "list": [0, -1, [2, []]],
            "tuple": (1, ("a",)), "big": {f"key{i}": i for i in range(300)},
            "general": {1: "int", "s": 2, -5: "minus", 1 << 40: "large"}, "holes": holes,
            "latin": "gr\u00fc\u00df", "wide": "\u4f60\u597d", "astral": "x\U0001f600y",
            "empty": {}, "none": None,
            "numbers": [0, 1, 2 ** 30 - 1, 2 ** 30, -(2 ** 45), 2 ** 59]}


def describe(value):
    """The same form as dump_objects.c prints."""
    if isinstance(value, (str, int)):
        return value
    if isinstance(value, (list, tuple)):
        return {"list": [describe(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[describe(key), describe(item)] for key, item in value.items()]}
    if type(value).__module__ != "__main__":
        return {"other": type(value).__name__}
    said = {"type": type(value).__name__}
    if hasattr(value, "__dict__"):
        said["attributes"] = [[name, describe(item)] for name, item in value.__dict__.items()]
    if isinstance(value, Slots):
        said["slots"] = [[name, describe(getattr(value, name))] for one in type(value).__mro__
                         for name in getattr(one, "__slots__", ()) if hasattr(value, name)]
    return said


class Holder:
    def work(self, value, captured):
        def inner():
            return captured
        ready.set()
        time.sleep(300)
        return inner(), value


ready = threading.Event()
# described are twins: describing the objects themselves would make dicts of their attributes
print(json.dumps({"value": describe(make()), "captured": describe(make()["odd"]),
                  "function": "Holder.work" if sys.version_info >= (3, 11) else "work"}), flush=True)
threading.Thread(target=Holder().work, args=(make(), make()["odd"]), daemon=True).start()
ready.wait()
print("ready", flush=True)
time.sleep(300)
