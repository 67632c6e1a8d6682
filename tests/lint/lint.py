#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rules of the repository that a machine can check, one function each; see run.sh.

A rule returns a list of findings (empty: passed), raises Skip with a reason, and may print notices.
"""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
BUILD = os.path.realpath(sys.argv[1] if len(sys.argv) > 1 else "build/release")
SOURCE = (".c", ".h", ".cc", ".cpp", ".def")


class Skip(Exception):
    pass


def git_files():
    out = subprocess.run(["git", "-c", "safe.directory=*", "ls-files", "-z"], cwd=ROOT,
                         capture_output=True, text=True)
    if out.returncode == 0:
        names = out.stdout.split("\0")
    else:  # a copy of the tree without its history
        names = [os.path.relpath(os.path.join(d, f), ROOT)
                 for d, dirs, files in os.walk(ROOT) for f in files
                 if not re.search(r"/(\.git|build|__pycache__)(/|$)", d)]
    return sorted(n for n in names if n and os.path.isfile(os.path.join(ROOT, n)))


FILES = git_files()


def text(name):
    with open(os.path.join(ROOT, name), encoding="utf-8", errors="replace") as f:
        return f.read()


def code(name):
    """The text of a C file with comments and the content of strings blanked, lines kept."""
    def blank(m):
        if m.group(0).startswith(("/*", "//")):
            return re.sub(r"[^\n]", " ", m.group(0))
        return m.group(0)[0] + m.group(0)[-1]
    return re.sub(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', blank, text(name),
                  flags=re.S)


def in_folder(folder, endings=SOURCE):
    return [f for f in FILES if f.startswith(folder + "/") and f.endswith(endings)]


def includes(name):
    for number, line in enumerate(text(name).splitlines(), 1):
        m = re.match(r'\s*#\s*include\s+([<"])([^>"]+)[>"]', line)
        if m:
            yield number, m.group(1), m.group(2)


# --- who may use what (docs/ARCHITECTURE.md) ---

# Headers that lib/ may have: C's own and what only describes data. No files, clock, sockets.
PURE_SYSTEM = {"assert.h", "ctype.h", "elf.h", "errno.h", "inttypes.h", "limits.h", "linux/types.h",
               "math.h", "stdarg.h", "stdbool.h", "stddef.h", "stdint.h", "stdio.h", "stdlib.h",
               "string.h", "strings.h", "sys/types.h", "float.h", "byteswap.h", "endian.h",
               "unistd.h"}
LIBRARIES = {"bpf/": "libbpf", "linux/bpf.h": "BPF", "sqlite3.h": "SQLite", "systemd/": "libsystemd",
             "json-c/": "json-c", "json.h": "json-c", "sys/socket.h": "sockets", "sys/un.h": "sockets",
             "time.h": "the clock", "microhttpd.h": "libmicrohttpd"}
MAY_NOT = {
    "schema": ["libbpf", "BPF", "SQLite", "libsystemd", "json-c", "sockets", "the clock"],
    "lib": ["libbpf", "BPF", "SQLite", "libsystemd", "json-c", "sockets", "the clock"],
    "cli": ["libbpf", "SQLite", "libsystemd"],
    "sim": ["libbpf", "BPF", "SQLite", "libsystemd", "json-c"],
    "bpf": ["SQLite", "libsystemd", "json-c", "sockets", "the clock"],
}
# npumem check asks the kernel what it has through bpf(2) alone; local_time.h is for the callers of lib/
EXCEPTIONS = {("cli/check_kernel.c", "BPF"), ("lib/local_time.h", "the clock")}
MAY_USE = {"schema": {"schema"}, "bpf": {"bpf", "schema"}, "lib": {"lib", "schema"},
           "daemon": {"daemon", "lib", "schema"}, "cli": {"cli", "lib", "schema"}, "sim": {"sim"}}
GENERATED = {"probe.skel.h": "daemon", "probe_legacy.skel.h": "daemon"}


def header_folders(header):
    base = os.path.basename(header)
    return {f.split("/")[0] for f in FILES
            if os.path.basename(f) == base and f.endswith((".h", ".def", ".inc"))}


def rule_include_direction():
    """a folder includes only what docs/ARCHITECTURE.md lets it use"""
    bad = []
    for folder, allowed in MAY_USE.items():
        for name in in_folder(folder):
            for line, quote, header in includes(name):
                if quote == '"':
                    owners = header_folders(header)
                    if not owners:
                        if GENERATED.get(header) != folder and header not in GENERATED:
                            bad.append(f"{name}:{line}: {header} is in no folder of the repository")
                        elif GENERATED.get(header) != folder:
                            bad.append(f"{name}:{line}: {header} is for {GENERATED[header]}/ only")
                    elif not owners & allowed:
                        bad.append(f"{name}:{line}: {header} belongs to {'/'.join(sorted(owners))}/, "
                                   f"{folder}/ may use {', '.join(sorted(allowed))}")
                    continue
                for prefix, what in LIBRARIES.items():
                    hit = header == prefix or (prefix.endswith("/") and header.startswith(prefix))
                    if hit and what in MAY_NOT.get(folder, []) and (name, what) not in EXCEPTIONS:
                        bad.append(f"{name}:{line}: <{header}>: {folder}/ may not use {what}")
                if folder == "lib" and header not in PURE_SYSTEM and \
                        (name, LIBRARIES.get(header)) not in EXCEPTIONS:
                    bad.append(f"{name}:{line}: <{header}> is not among the headers of a pure library")
    return bad


# What the pure core may call of libc: nothing that reaches outside the process.
REACHES_OUT = re.compile(
    r"^(open|openat|creat|fopen|fdopen|freopen|read|pread|write|pwrite|mmap|munmap|ioctl|socket|connect|"
    r"bind|listen|accept|send|recv|sendmsg|recvmsg|poll|select|epoll_\w+|bpf\w*|bpf_\w+|sqlite3_\w+|sd_\w+|"
    r"json_object_\w+|json_tokener_\w+|clock_gettime|gettimeofday|time|mktime|nanosleep|usleep|sleep|syscall|"
    r"fork|execve?|system|popen|getenv|secure_getenv|setenv|stat|fstat|lstat|readlink|opendir|unlink|"
    r"syslog|printf|puts|putchar|fprintf|perror|vprintf|exit|abort|pthread_\w+|dlopen|dlsym|rand|random|"
    r"srand|localtime|localtime_r|gmtime)(64)?$")


def nm(*arguments):
    out = subprocess.run(["nm", *arguments], capture_output=True, text=True)
    if out.returncode:
        raise Skip(out.stderr.strip() or "nm failed")
    return out.stdout


def core_library():
    path = os.path.join(BUILD, "lib/libnpumem_core.a")
    if not os.path.exists(path):
        raise Skip("no libnpumem_core.a in the build directory")
    return path


def rule_core_is_pure():
    """libnpumem_core.a calls nothing that reaches outside the process"""
    defined, undefined = set(), {}
    member = "?"
    for line in nm("-A", core_library()).splitlines():
        m = re.match(r"(?:[^:]*:)?([^:]+\.o):\s*[0-9a-f]*\s+(\w)\s+(\S+)$", line)
        if not m:
            continue
        member, kind, symbol = m.groups()
        symbol = symbol.split("@")[0]
        if kind in "Uw":
            undefined.setdefault(symbol, set()).add(member)
        else:
            defined.add(symbol)
    bad = [f"{', '.join(sorted(who))} calls {symbol}()" for symbol, who in sorted(undefined.items())
           if symbol not in defined and REACHES_OUT.match(symbol.removeprefix("__").removesuffix("_chk"))]
    if not undefined:
        bad.append("nothing was looked at")
    return bad


def rule_core_links_alone():
    """libnpumem_core.a links with libc and nothing else"""
    cc = os.environ.get("CC", "cc")
    with tempfile.TemporaryDirectory() as d:
        main = os.path.join(d, "main.c")
        with open(main, "w") as f:
            f.write("int main(void) { return 0; }\n")
        out = subprocess.run([cc, main, "-Wl,--whole-archive", core_library(), "-Wl,--no-whole-archive",
                              "-o", os.path.join(d, "a")], capture_output=True, text=True)
    return [line for line in out.stderr.splitlines() if "undefined" in line][:20] if out.returncode else []


def rule_core_has_no_state():
    """libnpumem_core.a has no writable globals"""
    bad = []
    for line in nm("-A", core_library()).splitlines():
        m = re.match(r"(?:[^:]*:)?([^:]+\.o):[0-9a-f]+\s+([bBdDC])\s+(\S+)$", line)
        # tables of pointers are relocated, and read-only afterwards: nm shows .data.rel.ro as d
        if m and m.group(2) in "bBC":
            bad.append(f"{m.group(1)}: {m.group(3)} is writable")
    return bad


# --- sizes, banned functions, headers ---

def rule_file_size():
    """no .c file over 800 lines (over 400 is a notice)"""
    bad = []
    for name in FILES:
        if not name.endswith((".c", ".cc", ".cpp")):
            continue
        lines = text(name).count("\n")
        if lines > 800:
            bad.append(f"{name}: {lines} lines")
        elif lines > 400:
            print(f"  notice: {name}: {lines} lines, over 400")
    return bad


BANNED = re.compile(r"(?<![\w.>])(strcpy|strcat|sprintf|vsprintf|gets|strtok|atoi|atol|atof|system|popen|"
                    r"alloca|tmpnam|mktemp)\s*\(")


def rule_banned_functions():
    """no function without bounds or errors in lib/, daemon/, cli/, bpf/"""
    bad = []
    for folder in ("lib", "daemon", "cli", "bpf"):
        for name in in_folder(folder):
            for number, line in enumerate(code(name).splitlines(), 1):
                for m in BANNED.finditer(line):
                    bad.append(f"{name}:{number}: {m.group(1)}()")
    return bad


COMMENTED = (".c", ".h", ".cc", ".cpp", ".def", ".inc", ".py", ".sh", ".cmake", ".sql", ".varlink",
             ".service", ".socket", ".sim", "CMakeLists.txt")
GPL_TOO = ("schema/", "bpf/")


def is_script(name):
    return "." not in os.path.basename(name) and text(name).startswith("#!")


def rule_spdx():
    """every source file names its licence; schema/ and bpf/ sources are GPL-2.0 or Apache-2.0"""
    bad = []
    for name in FILES:
        if not (name.endswith(COMMENTED) or is_script(name)):
            continue
        head = "\n".join(text(name).splitlines()[:4])
        m = re.search(r"SPDX-License-Identifier: (.+?)(?: \*/)?$", head, re.M)
        if not m:
            bad.append(f"{name}: no SPDX line")
        elif name.startswith(GPL_TOO) and name.endswith((".c", ".h", ".def", ".sql", ".varlink")):
            if m.group(1).strip() != "(GPL-2.0-only OR Apache-2.0)":
                bad.append(f"{name}: {m.group(1).strip()} instead of (GPL-2.0-only OR Apache-2.0)")
        elif m.group(1).strip() not in ("Apache-2.0", "(GPL-2.0-only OR Apache-2.0)"):
            bad.append(f"{name}: unexpected licence {m.group(1)}")
    return bad


# Written so that this file does not find itself.
PLACES = [r"/wor" r"k/", r"/roo" r"t/", r"/tmp/buil" r"d-", r"\bclau" r"de\b", r"\banthrop" r"ic\b",
          r"\bsub-?age" r"nt", r"\bhelper_com" r"mon"]
PLACES_ALLOWED = re.compile(r"GITHUB_WORKSPACE")


def rule_no_places():
    """nothing names one machine's paths"""
    bad = []
    for name in FILES:
        if name.endswith((".png", ".bin", ".gz", ".zst")) or "/seeds/" in name:
            continue
        for number, line in enumerate(text(name).splitlines(), 1):
            if re.match(r"[A-Za-z0-9_.-]+==[0-9]", line):
                continue  # a pinned package
            for pattern in PLACES:
                # a repository's own tree may have a directory of that name in the middle of a path
                if re.search(r"(?<![\w.$}])" + pattern if pattern.startswith("/") else pattern, line, re.I) \
                        and not PLACES_ALLOWED.search(line):
                    bad.append(f"{name}:{number}: {line.strip()[:80]}")
    return bad


def rule_leftovers():
    """no notes to self, conflict markers or trailing blanks in sources"""
    bad = []
    note = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b|^(<{7}|>{7}|={7})( |$)")
    for name in FILES:
        if not (name.endswith(COMMENTED) or is_script(name)):
            continue
        for number, line in enumerate(text(name).splitlines(), 1):
            if note.search(line) and "XXXXXX" not in line:
                bad.append(f"{name}:{number}: {line.strip()[:80]}")
            elif line != line.rstrip():
                bad.append(f"{name}:{number}: trailing blanks")
    return bad


# --- probes ---

def probe_rows():
    body = re.sub(r"/\*.*?\*/", "", text("schema/probes.def"), flags=re.S)
    calls = re.findall(r'NM_CALL\(\s*(\w+)\s*,\s*"([^"]+)"\s*,\s*(\w+)\s*,\s*(\w+)', body)
    entries = re.findall(r'NM_ENTRY\(\s*(\w+)\s*,\s*"([^"]+)"\s*,\s*(\w+)', body)
    return calls, entries


def rule_return_probes_are_c():
    """every return-probed function is a C function (a throw through a return probe kills the process)"""
    calls, entries = probe_rows()
    bad = [f"{id_}: {symbol} is not a plain C name" for id_, symbol, *_ in calls
           if symbol.startswith("_Z") or "::" in symbol or not re.fullmatch(r"[A-Za-z][A-Za-z0-9]*", symbol)]
    # the C interfaces of these libraries, and nothing else
    bad += [f"{id_}: {symbol} is not of the C interfaces aclrt*, rt*, hal*, Hccl*"
            for id_, symbol, *_ in calls if not re.match(r"(aclrt|rt[A-Z]|rts[A-Z]|hal[A-Z]|Hccl)", symbol)]
    if len(calls) < 50 or len(entries) < 4:
        bad.append(f"only {len(calls)} + {len(entries)} rows found")
    print(f"  return probes: {' '.join(symbol for _, symbol, *_ in calls)}")
    return bad


def elf_functions(path):
    out = subprocess.run(["readelf", "-sW", path], capture_output=True, text=True).stdout
    return set(re.findall(r"\bFUNC\s+GLOBAL\s+\S+\s+\S+\s+(\S+)", out))


def rule_return_programs():
    """the built kernel programs have a return program for C rows and for no entry-only row"""
    calls, entries = probe_rows()
    bad, seen = [], 0
    for name in ("probe", "probe_legacy"):
        path = os.path.join(BUILD, f"bpf/{name}.bpf.o")
        if not os.path.exists(path):
            raise Skip(f"no {name}.bpf.o in the build directory")
        functions = elf_functions(path)
        seen += len(functions)
        for id_, *_ in entries:
            if f"leave_{id_}" in functions:
                bad.append(f"{name}: entry-only row {id_} has a return program")
            if f"enter_{id_}" not in functions:
                bad.append(f"{name}: row {id_} has no entry program")
        for id_, *_ in calls:
            for prefix in ("enter_", "leave_"):
                if prefix + id_ not in functions:
                    bad.append(f"{name}: no {prefix}{id_}")
        known = {p + row[0] for row in calls for p in ("enter_", "leave_")} | \
            {"enter_" + row[0] for row in entries} | {"enter_all", "leave_all", "leave_any"}
        bad += [f"{name}: {f} belongs to no row" for f in sorted(functions)
                if f.startswith(("enter_", "leave_")) and f not in known]
    if seen < 200:
        bad.append(f"only {seen} programs found")
    return bad


def rule_return_attach_is_guarded():
    """user space attaches return programs only behind the test for entry-only rows"""
    body = code("daemon/probe_link.c")
    bad = []
    for m in re.finditer(r"leave_all_fd, path|link_perf_one\(set, \"\", path, points\[i\]\.row, points\[i\]\.offset", body):
        before = body[:m.start()]
        function = before[before.rfind("\n}"):]
        if "is_entry_only" not in function:
            bad.append(f"daemon/probe_link.c: a return program is linked without looking at is_entry_only")
    if "leave_all_fd, path" not in body:
        bad.append("daemon/probe_link.c: the place where return programs are linked was not found")
    return bad


def rule_event_abi():
    """sizes and offsets of the records between kernel and user space, from the built programs' BTF"""
    expected = {"nm_event": 96, "nm_call": 64, "nm_block": 64, "nm_pool_key": 8, "nm_pool_totals": 80,
                "nm_small_key": 24, "nm_small_totals": 48, "nm_atb_key": 16, "nm_atb_totals": 48,
                "nm_cpu_counters": 40, "nm_stack": 64, "nm_code": 64, "nm_code_memory": 1488, "nm_scope": 64}
    bad = []
    with tempfile.TemporaryDirectory() as d:
        main = os.path.join(d, "abi.c")
        with open(main, "w") as f:
            f.write('#include <stdio.h>\n#include "event.h"\nint main(void)\n{\n')
            for name in expected:
                f.write(f'    printf("{name} %zu\\n", sizeof(struct {name}));\n')
            f.write('    printf("time %zu\\n", offsetof(struct nm_event, time_ns));\n'
                    '    printf("abi %d\\n", NM_EVENT_ABI);\n    return 0;\n}\n')
        program = os.path.join(d, "abi")
        out = subprocess.run([os.environ.get("CC", "cc"), "-Wpadded", "-Werror=padded",
                              "-I" + os.path.join(ROOT, "schema"), main, "-o", program],
                             capture_output=True, text=True)
        if out.returncode:
            return ["schema/event.h has holes or does not compile: " + out.stderr.strip()[:300]]
        sizes = dict(line.split() for line in
                     subprocess.run([program], capture_output=True, text=True).stdout.splitlines())
    for name, size in expected.items():
        if int(sizes[name]) != size:
            bad.append(f"struct {name} is {sizes[name]} bytes, not {size}: raise NM_EVENT_ABI and this test")
    if sizes["time"] != "0" or sizes["abi"] != "4":
        bad.append("nm_event begins with time_ns and NM_EVENT_ABI is 4")
    btf = subprocess.run(["bpftool", "btf", "dump", "file", os.path.join(BUILD, "bpf/probe.bpf.o")],
                         capture_output=True, text=True,
                         env={**os.environ, "PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin"}
                         ) if os.path.exists(os.path.join(BUILD, "bpf/probe.bpf.o")) else None
    if btf and btf.returncode == 0:
        # those that are keys and values of maps are in the type information of the kernel's side
        sides = dict(re.findall(r"STRUCT '(nm_\w+)' size=(\d+)", btf.stdout))
        for name, size in expected.items():
            if name in sides and int(sides[name]) != size:
                bad.append(f"kernel side: struct {name} is {sides[name]} bytes, not {size}")
        if len(set(sides) & set(expected)) < 6:
            bad.append(f"kernel side: only {sorted(sides)} in the type information")
    return bad


# --- tables and documents ---

def def_rows(name, macro):
    body = re.sub(r"/\*.*?\*/", "", text(name), flags=re.S)
    return re.findall(macro + r"\(([^;]*?)\)\n(?=[A-Z#\n]|$)", body + "\n", flags=re.S)


def first_fields(row, count):
    return [f.strip().strip('"') for f in re.findall(r'\s*("(?:[^"\\]|\\.)*"|\'(?:[^\'\\]|\\.)*\'|[^,]+)', row)[:count]]


def manual(name):
    for path in (f"docs/man/{name}", f"docs/man/{name}.in", f"docs/man/{name}.md"):
        if path in FILES:
            return text(path).replace("\\-", "-").replace("\\fB", "").replace("\\fR", "").replace("\\fI", "")
    return None


def rule_manual_verbs():
    """npumem(1) mentions every verb and option of the tables"""
    page = manual("npumem.1")
    if page is None:
        return ["docs/man/npumem.1 does not exist"]
    bad = []
    for row in def_rows("cli/verbs.def", "VERB"):
        verb = first_fields(row, 1)[0]
        if not re.search(rf"\b{verb}\b", page):
            bad.append(f"docs/man/npumem.1: no word about the verb {verb}")
    for row in def_rows("cli/options.def", "OPTION"):
        option = first_fields(row, 3)[2]
        if f"--{option}" not in page:
            bad.append(f"docs/man/npumem.1: no word about --{option}")
    return bad


def rule_manual_daemon():
    """npumemd(8) or npumemd.conf(5) mention every option and setting"""
    pages = "\n".join(filter(None, (manual(n) for n in ("npumemd.8", "npumemd.conf.5"))))
    if not pages:
        return ["docs/man/npumemd.8 does not exist"]
    bad = []
    for option in re.findall(r'\{"([a-z-]+)", (?:required|no)_argument', text("daemon/main.c")):
        if f"--{option}" not in pages:
            bad.append(f"docs/man: no word about npumemd --{option}")
    for row in def_rows("schema/config.def", "CONFIG"):
        fields = first_fields(row, 3)
        if not re.search(rf"\b{fields[2]}\b", pages):
            bad.append(f"docs/man: no word about the setting {fields[1]}.{fields[2]}")
    return bad


def rule_help_is_the_table():
    """`npumem help` lists every verb of the table, and nothing else"""
    program = os.path.join(BUILD, "npumem")
    if not os.path.exists(program):
        raise Skip("no npumem in the build directory")
    out = subprocess.run([program, "help"], capture_output=True, text=True).stdout
    bad = []
    for row in def_rows("cli/verbs.def", "VERB"):
        verb = first_fields(row, 1)[0]
        if not re.search(rf"^\s+{verb}\b", out, re.M):
            bad.append(f"npumem help does not list {verb}")
        one = subprocess.run([program, "help", verb], capture_output=True, text=True)
        if one.returncode or verb not in one.stdout:
            bad.append(f"npumem help {verb} fails")
    return bad


def rule_sample_config():
    """systemd/npumemd.conf is what npumemd --sample-config prints"""
    program = os.path.join(BUILD, "npumemd")
    if not os.path.exists(program):
        raise Skip("no npumemd in the build directory")
    if "systemd/npumemd.conf" not in FILES:
        return ["systemd/npumemd.conf does not exist"]
    out = subprocess.run([program, "--sample-config"], capture_output=True, text=True).stdout
    return [] if out == text("systemd/npumemd.conf") else ["systemd/npumemd.conf differs; print it again"]


def rule_varlink_methods():
    """schema/npumem.varlink and the daemon's method table have the same methods"""
    declared = set(re.findall(r"^method (\w+)", text("schema/npumem.varlink"), re.M))
    served = set(re.findall(r"^METHOD\((\w+),", text("daemon/methods.def"), re.M))
    return [f"method {m} is only in one of schema/npumem.varlink and daemon/methods.def"
            for m in sorted(declared ^ served)]


def rule_documented_tables():
    """docs/ name every table of schema/, and CONTRACT fields are documented"""
    documents = "\n".join(text(f) for f in FILES if f.endswith(".md"))
    return [f"no document names {os.path.basename(f)}" for f in FILES
            if f.startswith("schema/") and f.endswith((".def", ".varlink")) and
            os.path.basename(f) not in documents]


def rule_links_in_documents():
    """relative links and named files in documents exist"""
    bad = []
    for name in (f for f in FILES if f.endswith(".md")):
        for target in re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", text(name)):
            if not os.path.exists(os.path.join(ROOT, os.path.dirname(name), target)):
                bad.append(f"{name}: {target} does not exist")
    return bad


# --- tools ---

def tool(*command):
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        raise Skip(f"{command[0]} is not installed") from None


def rule_shellcheck():
    """shell scripts pass shellcheck"""
    scripts = [f for f in FILES if f.endswith(".sh") or re.match(r"#!.*\b(ba|da)?sh\b", text(f).split("\n")[0])]
    out = tool("shellcheck", "-S", "warning", "-e", "SC1091", *scripts)
    return [line for line in out.stdout.splitlines() if line.startswith(("In ", "SC")) or "SC" in line][:20] \
        if out.returncode else []


def rule_format():
    """C sources are formatted by .clang-format"""
    out = tool("clang-format", "--version")
    if not re.search(r"version 14\b", out.stdout):
        raise Skip("clang-format 14 is not installed (other versions format differently)")
    sources = [f for f in FILES if f.endswith((".c", ".h", ".cc", ".cpp")) and "/fixtures/" not in f]
    out = tool("clang-format", "--dry-run", "--Werror", *sources)
    return sorted(set(re.findall(r"^([^:\n]+):\d+:\d+: error", out.stderr, re.M)))[:20] if out.returncode else []


def rule_python_compiles():
    """Python programs compile"""
    bad = []
    for name in (f for f in FILES if f.endswith(".py")):
        try:
            compile(text(name), name, "exec")
        except SyntaxError as e:
            bad.append(f"{name}:{e.lineno}: {e.msg}")
    return bad


def main():
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for name, rule in list(globals().items()):
        if not name.startswith("rule_"):
            continue
        try:
            bad = rule()
            result = "failed" if bad else "passed"
        except Skip as e:
            bad, result = [str(e)], "skipped"
        counts[result] += 1
        print(f"{result.upper():7} {name[5:]}: {rule.__doc__}")
        for line in bad:
            print(f"        {line}")
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
    return counts["failed"] != 0


sys.exit(main())
