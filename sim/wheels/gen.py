#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the libraries that the unmodified wheels want and the simulated node does not have.

    gen.py --site-packages DIR --sim-lib DIR --out DIR [--cc CC]

Nothing is taken from CANN or CUDA: names come from the wheels' own dynamic symbols and text
constants, and every function made here returns 0, or what names.def says for it.
  * A shared object that a wheel's library NEEDs and that neither the wheel, the system nor the
    simulated node has is made, with every symbol (and version) that is imported from it.
  * An unversioned import that nobody defines goes into the made library that the importer NEEDs
    and whose prefix rule fits, else into the first one that it NEEDs.
  * libopapi.so is opened lazily: its names are the aclnn* constants of the wheel.
`report.json` in the output lists what was made and which names, looked up lazily in libascendcl.so,
the node does not define (torch_npu tolerates that, within names that docs/REAL_WHEELS.md gives).
"""
import argparse
import collections
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

from elf import Elf

HERE = pathlib.Path(__file__).resolve().parent
SYSTEM = re.compile(r"(libc|libm|libdl|librt|libpthread|libutil|libstdc\+\+|libgcc_s|libgomp|"
                    r"ld-linux[-\w]*)\.so(\.\d+)*$")
INTERPRETER = re.compile(r"_?Py")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*$")
ACLNN = re.compile(r"acl(nn[A-Z0-9]\w*|Rfft1D|Stft)$")
# Where an unversioned import belongs; the first rule that fits a library the importer NEEDs.
HOMES = [(r"nccl", "libnccl"), (r"cusparseLt", "libcusparseLt"), (r"cuFile", "libcufile"),
         (r"cudnn", "libcudnn"), (r"cu[A-Z]", "libcuda.so"), (r"Hccl", "libhccl"),
         (r"_Z\w*3atb", "libatb"), (r"acltdt", "libacl_tdt_channel"),
         (r"_ZN?K?2ge", "libge_runner"), (r"acl", "libacl_op_compiler")]
# Looked up lazily in libacl_op_compiler.so.
OP_COMPILER = re.compile(r"acl(op[A-Z]\w+|[SG]etCompileopt\w*|GenGraphAndDumpForOp|rt[SG]etSysParamOpt|"
                         r"(Create|Destroy)GraphDumpOpt)$")
# Constructors of opaque handles: the caller takes NULL for a failure.
CREATES = re.compile(r"acl(op|tdt)?Create")


class Library:
    """One shared object to make: symbols by version (None: unversioned)."""

    def __init__(self, soname):
        self.soname = soname
        self.versions = collections.defaultdict(set)
        self.objects = set()

    def names(self):
        return {name for names in self.versions.values() for name in names}


def read_names():
    """names.def: what a function does beside returning 0, see that file."""
    constants, workspaces = {}, {}
    for line in (HERE / "names.def").read_text().splitlines():
        words = line.split("#")[0].split()
        if not words:
            continue
        (constants if words[0] == "RETURNS" else workspaces)[words[1]] = int(words[2])
    return constants, workspaces


def read_wheels(site):
    paths = [p for top in ("torch", "torch_npu") for p in sorted((site / top).rglob("*.so*"))
             if p.is_file() and not p.is_symlink() and "/test/" not in str(p)]
    # vllm_ascend's own operators for real hardware, in folders below, are left alone: without their
    # libraries its wheel falls back to names that libopapi.so has.
    paths += sorted((site / "vllm_ascend").glob("*.so"))
    if not any(p.name == "libtorch_npu.so" for p in paths):
        raise SystemExit(f"gen.py: {site} has no torch_npu/lib/libtorch_npu.so")
    return [Elf(p) for p in paths]


def read_system(elfs, cc):
    """Names defined by the C and C++ run time that the wheels are linked against."""
    names = set()
    for soname in sorted({n for elf in elfs for n in elf.needed if SYSTEM.match(n)}):
        path = subprocess.run([cc, f"-print-file-name={soname}"], check=True, text=True,
                              stdout=subprocess.PIPE).stdout.strip()
        if os.path.isabs(path):
            names |= {s.name for s in Elf(path).symbols if s.defined}
    return names


def home_of(name, reachable, made):
    """The made library that takes an unversioned import, or None."""
    for pattern, stem in HOMES:
        if re.match(pattern, name):
            for soname in reachable:
                if soname in made and soname.startswith(stem):
                    return soname
    return next((soname for soname in reachable if soname in made), None)


def reachable_from(elf, by_soname):
    """SONAMEs that the loader brings in for `elf`, breadth first."""
    order, queue = [], list(elf.needed)
    while queue:
        soname = queue.pop(0)
        if soname not in order:
            order.append(soname)
            queue += by_soname[soname].needed if soname in by_soname else []
    return order


def plan(elfs, sim, system):
    """{soname: Library} for everything that has to be made, and what found no home."""
    by_soname = {elf.soname: elf for elf in elfs}
    have = set(by_soname) | {os.path.basename(e.path) for e in elfs} | set(sim)
    defined = {s.name for elf in elfs for s in elf.symbols if s.defined} | system
    in_sim = {name for names in sim.values() for name in names}
    made, homeless = {}, set()
    for elf in elfs:
        for soname in elf.needed:
            if soname not in have and not SYSTEM.match(soname):
                made.setdefault(soname, Library(soname))
    for elf in elfs:
        reachable = reachable_from(elf, by_soname)
        for symbol in elf.symbols:
            if symbol.defined or symbol.weak:
                continue
            if symbol.library in made:
                made[symbol.library].versions[symbol.version].add(symbol.name)
                continue
            if symbol.library or symbol.name in defined or symbol.name in in_sim or \
                    INTERPRETER.match(symbol.name):
                continue
            home = home_of(symbol.name, reachable, made)
            if home:
                made[home].versions[None].add(symbol.name)
            else:
                homeless.add(symbol.name)
    return made, homeless


def source_of(library, constants, workspaces, run_through):
    """C text of one library."""
    text = ["#include <stdint.h>", "#include <stddef.h>", "#include <stdlib.h>",
            "typedef uint64_t u64;", "static long npusim_zero(void) { return 0; }",
            "static char npusim_handle[64];",
            "static long npusim_new(void) { return (long)(intptr_t)npusim_handle; }"]
    if run_through:
        text.append("#define NPUSIM_HAVE_EXECUTOR 1")
    own = HERE / library.soname.replace(".so", ".inc")
    written = set()
    if own.exists():
        text.append(own.read_text())
        written = set(re.findall(r"^\w+ (\w+)\(", text[-1], re.MULTILINE))
    for name in sorted(library.names() - written):
        if not IDENTIFIER.match(name):
            raise SystemExit(f"gen.py: cannot make a symbol named {name!r}")
        stem = name.removesuffix("GetWorkspaceSize")
        if re.match(r"_ZT[VIST]", name):
            text.append(f"char {name}[256];")
        elif name in constants:
            text.append(f"long {name}(void) {{ return {constants[name]}; }}")
        elif name in workspaces:
            at = workspaces[name]
            words = ", ".join(f"u64 a{i}" for i in range(at + 1))
            text.append(f"long {name}({words})\n{{ return npusim_workspace(a{at}); }}")
        else:
            does = "npusim_zero"
            if CREATES.match(name):
                does = "npusim_new"
            elif ACLNN.match(name) and stem == name:
                does = "npusim_run"
            text.append(f'long {name}(void) __attribute__((alias("{does}")));')
    return "\n".join(text) + "\n"


def version_script(library):
    """A GNU version script where a wheel imports by version, else None."""
    nodes = {v: names for v, names in library.versions.items() if v}
    if not nodes:
        return None
    return "".join(f"{v} {{ global: {' '.join(n + ';' for n in sorted(names))} }};\n"
                   for v, names in sorted(nodes.items()))


def build(library, out, cc, link, constants, workspaces):
    work = out / "src"
    source = work / f"{library.soname}.c"
    source.write_text(source_of(library, constants, workspaces, bool(link)))
    argv = [cc, "-shared", "-fPIC", "-O1", "-w", "-fno-builtin", f"-Wl,-soname,{library.soname}",
            "-Wl,-z,noexecstack", "-o", out / "lib" / library.soname, source]
    script = version_script(library)
    if script:
        path = work / f"{library.soname}.map"
        path.write_text(script)
        argv.append(f"-Wl,--version-script={path}")
    if library.soname == "libopapi.so":
        argv += ["-Wl,--no-as-needed", *link]
    subprocess.run(argv, check=True)


def build_preload(torch_npu, out):
    """Path of what has to be preloaded, see allocator_keys.cpp; None: nothing."""
    if not any("AcceleratorAllocatorConfig14getMutableKeys" in s.name and not s.defined
               for s in torch_npu.symbols):
        return None
    path = out / "preload" / "allocator_keys.so"
    path.parent.mkdir()
    subprocess.run([os.environ.get("CXX", "c++"), "-std=c++17", "-shared", "-fPIC", "-O1", "-o", path,
                    HERE / "allocator_keys.cpp"], check=True)
    return str(path)


def generate(site, sim_lib, out, cc="cc"):
    """Makes out/lib; returns the report. Does nothing when the inputs are those of last time."""
    elfs = read_wheels(site)
    sim = {}
    for path in sorted(sim_lib.glob("*.so*")):
        sim[path.name] = {s.name for s in Elf(path).symbols if s.defined}
    if "libascendcl.so" not in sim:
        raise SystemExit(f"gen.py: {sim_lib} has no libascendcl.so: build the simulated node first")
    inputs = [str(sorted((k, sorted(v)) for k, v in sim.items())), str(site)]
    inputs += [p.read_text() for p in sorted(HERE.glob("*")) if p.suffix in (".py", ".def", ".inc", ".cpp")]
    stamp = hashlib.sha256("\0".join(inputs).encode()).hexdigest()
    report_path = out / "report.json"
    if report_path.exists():
        report = json.loads(report_path.read_text())
        if report["stamp"] == stamp:
            return report
    shutil.rmtree(out, ignore_errors=True)
    (out / "lib").mkdir(parents=True)
    (out / "src").mkdir()
    constants, workspaces = read_names()
    made, homeless = plan(elfs, sim, read_system(elfs, cc))
    if homeless:
        raise SystemExit(f"gen.py: nobody defines {' '.join(sorted(homeless))}")
    torch_npu = next(e for e in elfs if e.soname == "libtorch_npu.so")
    in_sim = {name for names in sim.values() for name in names}
    opapi = made.setdefault("libopapi.so", Library("libopapi.so"))
    lazy = {n for e in elfs if "/torch_npu/" in e.path or "/vllm_ascend/" in e.path
            for n in e.constants(rb"(?:acl|_)[A-Za-z0-9_]{2,90}")}
    for name in sorted(n for n in lazy if ACLNN.match(n)):
        opapi.versions[None].add(name)
        if not name.endswith("GetWorkspaceSize"):
            opapi.versions[None].add(name + "GetWorkspaceSize")
    opapi.versions[None] |= set(workspaces)
    made["libacl_op_compiler.so"].versions[None] |= {n for n in lazy if OP_COMPILER.match(n)}
    opapi.versions[None] |= {n for n in lazy if re.match(r"acl(Create|Destroy)(\w*Array|Scalar|"
                             r"ScalarList|Tensor|TensorList)$", n)} - in_sim
    link = [sim_lib / n for n, names in sim.items() if "CommonOpExecutorRun" in names][:1]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [pool.submit(build, library, out, cc, link, constants, workspaces)
                     for library in made.values()]:
            done.result()
    preload = build_preload(torch_npu, out)
    imported = {s.name for e in elfs for s in e.symbols if not s.defined}
    report = {"stamp": stamp,
              "made": {n: len(made[n].names()) for n in sorted(made)},
              "made_for_cann": sorted(n for lib in made.values() if lib.soname != "libopapi.so"
                                      for n in lib.names() if re.match(r"acl|Hccl|_ZN3atb", n)),
              "lazy_absent": sorted(n for n in lazy if re.match(r"acl(rt|mdl|sys)[A-Z]", n) and
                                    n not in in_sim and n not in imported),
              "torch_npu": torch_npu.path, "preload": preload}
    report_path.write_text(json.dumps(report, indent=1) + "\n")
    return report


def main():
    parser = argparse.ArgumentParser(description="make stand-in libraries for the real wheels")
    parser.add_argument("--site-packages", type=pathlib.Path, required=True)
    parser.add_argument("--sim-lib", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--cc", default=os.environ.get("CC", "cc"))
    args = parser.parse_args()
    report = generate(args.site_packages, args.sim_lib.resolve(), args.out.resolve(), args.cc)
    made = report["made"]
    print(f"{args.out}/lib: {len(made)} libraries, {sum(made.values())} symbols")
    print("CANN symbols made here:", " ".join(report["made_for_cann"]) or "none")
    print("looked up lazily, absent:", " ".join(report["lazy_absent"]) or "none")


if __name__ == "__main__":
    sys.exit(main())
