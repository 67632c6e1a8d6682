# SPDX-License-Identifier: Apache-2.0
"""Reads what the generator needs from a 64-bit little-endian ELF shared object: SONAME, NEEDED,
dynamic symbols with their versions, and text constants. Standard library only; no section headers
are trusted beyond the dynamic segment, every offset is bounded by the file."""
import collections
import mmap
import os
import re
import struct

PT_LOAD, PT_DYNAMIC = 1, 2
DT_NEEDED, DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SONAME = 1, 5, 6, 10, 14
DT_HASH, DT_GNU_HASH = 4, 0x6FFFFEF5
DT_VERSYM, DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFF0, 0x6FFFFFFE, 0x6FFFFFFF
STB_WEAK, STT_OBJECT, SHN_UNDEF = 2, 1, 0
SYM = struct.Struct("<IBBHQQ")

Symbol = collections.namedtuple("Symbol", "name defined weak is_object version library")


class Elf:
    """One shared object; `symbols` is a list of Symbol, version and library None if unversioned
    (library: the file that the version is needed from)."""

    def __init__(self, path):
        self.path = str(path)
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < 64:
                raise ValueError(f"{path}: not an ELF file")
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        if self.data[:6] != b"\x7fELF\x02\x01":
            raise ValueError(f"{path}: not a 64-bit little-endian ELF file")
        phoff, = struct.unpack_from("<Q", self.data, 32)
        phentsize, phnum = struct.unpack_from("<HH", self.data, 54)
        self.loads = []
        dynamic = None
        for i in range(phnum):
            kind, _, offset, vaddr, _, filesz = struct.unpack_from(
                "<IIQQQQ", self.data, phoff + i * phentsize)
            if kind == PT_LOAD:
                self.loads.append((vaddr, filesz, offset))
            elif kind == PT_DYNAMIC:
                dynamic = (offset, filesz)
        self.dynamic = collections.defaultdict(list)
        for at in range(dynamic[0], dynamic[0] + dynamic[1], 16) if dynamic else ():
            tag, value = struct.unpack_from("<QQ", self.data, at)
            if tag == 0:
                break
            self.dynamic[tag].append(value)
        start = self.offset(self._one(DT_STRTAB, 0))
        self.strings = self.data[start:start + self._one(DT_STRSZ, 0)]
        self.needed = [self._string(v) for v in self.dynamic[DT_NEEDED]]
        self.soname = self._string(self._one(DT_SONAME, 0)) or os.path.basename(self.path)
        self.symbols = self._read_symbols() if DT_SYMTAB in self.dynamic else []

    def _one(self, tag, default):
        values = self.dynamic.get(tag)
        return values[0] if values else default

    def _string(self, at):
        return self.strings[at:self.strings.index(b"\0", at)].decode()

    def offset(self, vaddr):
        """File offset of a virtual address."""
        for base, filesz, offset in self.loads:
            if base <= vaddr < base + filesz:
                return vaddr - base + offset
        raise ValueError(f"{self.path}: address {vaddr:#x} is in no segment")

    def _symbol_count(self):
        if DT_HASH in self.dynamic:
            return struct.unpack_from("<II", self.data, self.offset(self._one(DT_HASH, 0)))[1]
        at = self.offset(self._one(DT_GNU_HASH, 0))
        buckets, first, bloom, _ = struct.unpack_from("<IIII", self.data, at)
        table = at + 16 + bloom * 8
        last = max(struct.unpack_from(f"<{buckets}I", self.data, table), default=0)
        if last < first:
            return first
        chain = table + buckets * 4
        while not struct.unpack_from("<I", self.data, chain + (last - first) * 4)[0] & 1:
            last += 1
        return last + 1

    def _needed_versions(self):
        """version index -> (version, file that defines it)"""
        versions = {}
        count = self._one(DT_VERNEEDNUM, 0)
        at = self.offset(self._one(DT_VERNEED, 0)) if count else 0
        for _ in range(count):
            _, entries, file, aux, following = struct.unpack_from("<HHIII", self.data, at)
            entry = at + aux
            for _ in range(entries):
                _, _, index, name, after = struct.unpack_from("<IHHII", self.data, entry)
                versions[index & 0x7FFF] = (self._string(name), self._string(file))
                entry += after
            at += following
        return versions

    def _read_symbols(self):
        table = self.offset(self._one(DT_SYMTAB, 0))
        versym = self._one(DT_VERSYM, 0)
        versym = self.offset(versym) if versym else 0
        versions = self._needed_versions()
        symbols = []
        for i in range(1, self._symbol_count()):
            name, info, _, section, _, _ = SYM.unpack_from(self.data, table + i * SYM.size)
            version = library = None
            if versym and section == SHN_UNDEF:
                index, = struct.unpack_from("<H", self.data, versym + 2 * i)
                version, library = versions.get(index & 0x7FFF, (None, None))
            symbols.append(Symbol(self._string(name), section != SHN_UNDEF, info >> 4 == STB_WEAK,
                                  info & 15 == STT_OBJECT, version, library))
        return symbols

    def constants(self, pattern):
        """Whole NUL-terminated constants of the file that match `pattern` (bytes, no anchors)."""
        # A trailing constant may lack its leading NUL where the linker merged strings by suffix.
        return {m.group(1).decode() for m in re.finditer(b"\0(" + pattern + b")(?=\0)", self.data)}
