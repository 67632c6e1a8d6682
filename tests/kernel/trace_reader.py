# SPDX-License-Identifier: Apache-2.0
"""A reader of recorded traces that shares nothing with lib/trace_io: what docs/FORMATS.md says, in Python."""
import collections
import struct

KINDS = {1: "malloc", 2: "free", 3: "done", 4: "segment", 5: "segment_free", 6: "failed", 7: "empty_cache", 8: "lost", 9: "name", 10: "map",
         11: "mark"}
LATE, NO_SMALL, OPEN, FULL = 1, 2, 4, 8
Record = collections.namedtuple("Record", "time_ns address size requested stream tid kind component device owner stack")


class Trace:
    def __init__(self, path):
        with open(path, "rb") as f:
            data = f.read()
        magic, version, self.header_bytes, self.record_bytes, self.flags = struct.unpack_from("<8sIIII", data)
        assert magic == b"NPMUTRC1" and version == 1, (magic, version)
        (self.begin_wall_ns, self.begin_boot_ns, self.card_bytes, self.available_bytes, self.tgid, self.rank,
         self.device) = struct.unpack_from("<QQQQIiI", data, 24)
        self.conf = data[72:328].split(b"\0")[0].decode()
        self.comm = data[328:344].split(b"\0")[0].decode()
        self.end_boot_ns, self.lost_events = struct.unpack_from("<QQ", data, 344)
        self.names, self.records = {}, []
        for at in range(self.header_bytes, len(data) - self.record_bytes + 1, self.record_bytes):
            kind = KINDS[data[at + 44]]
            if kind == "name":
                number, left = struct.unpack_from("<IH", data, at)
                self.names[number] = self.names.get(number, "") + data[at + 8:at + 8 + min(left, 36)].decode()
                continue
            time_ns, address, size, requested, stream, tid, _, component, device, owner, stack = struct.unpack_from("<QQQQQIBBHII", data, at)
            self.records.append(Record(time_ns, address, size, requested, stream, tid, kind, component, device,
                                       self.names.get(owner), self.names.get(stack)))

    def of(self, *kinds):
        return [r for r in self.records if r.kind in kinds]
