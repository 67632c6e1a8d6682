# SPDX-License-Identifier: Apache-2.0
"""whatif against reality: the same programs under each setting, and what the model said they would reserve."""
import json
import subprocess

from harness import PROGRAMS, CheckError, Program, Scratch

# The setting, and what set_per_process_memory_fraction() gets beside it.
SETTINGS = (
    ("", None), ("expandable_segments:True", None),
    ("expandable_segments:True,base_addr_aligned_kb:0", None), ("max_split_size_mb:32", None),
    ("max_split_size_mb:200", None), ("garbage_collection_threshold:0.1", 0.3),
)
PEAK_PERCENT, SEGMENT_PERCENT = 1.0, 2.0


def run_programs(node, scratch, number, setting, fraction):
    """What the real allocator counted, by program; the first run records the traces."""
    out = scratch.path / f"real.{number}.json"
    argv = [PROGRAMS / "whatif.py", out]
    if fraction:
        argv += ["--fraction", fraction]
    if number == 0:
        argv += ["--traces", scratch.make("traces")]
    environment = {"PYTORCH_NPU_ALLOC_CONF": setting} if setting else {}
    with Program(node, scratch, f"whatif{number}", argv, scratch.make(f"node{number}"), **environment) as program:
        if program.finish() != 0:
            raise CheckError(f"whatif.py under {setting!r}: {program.tail()}")
    return json.loads(out.read_text())


def predict(binaries, scratch, name):
    """What the model says for each setting."""
    confs = [s if f is None else f"{s},per_process_memory_fraction:{f}" for s, f in SETTINGS]
    out = subprocess.run([binaries / "npumem", "whatif", *confs, "--from", scratch.path / "traces" / f"{name}.trace",
                          "-o", "json"], capture_output=True, text=True, check=False)
    if out.returncode:
        raise CheckError(f"npumem whatif: {out.stderr}")
    return json.loads(out.stdout)["settings"]


def within(checks, name, got, wanted, percent):
    checks.true(f"{name}: {got} against {wanted}", abs(got - wanted) <= wanted * percent / 100,
                f"predicted {got}, really {wanted}")


def run(checks, node, binaries, keep=False):
    try:
        with Scratch(keep) as scratch:
            real = [run_programs(node, scratch, n, *s) for n, s in enumerate(SETTINGS)]
            for name in real[0]:
                for (setting, _), figures, said in zip(SETTINGS, real, predict(binaries, scratch, name)):
                    what = f"whatif {name} under {setting or 'no setting'}"
                    within(checks, f"{what}: peak reserved", said["peak_reserved_bytes"],
                           figures[name]["peak_reserved_bytes"], PEAK_PERCENT)
                    if "expandable" not in setting:  # torch counts no segments there
                        within(checks, f"{what}: segments", said["segments"], figures[name]["segments"],
                               SEGMENT_PERCENT)
    except CheckError as error:
        checks.fail("whatif", error)
