#!/usr/bin/env python3
"""Runs the benches and holds what they measure against benches/budgets.toml.

  scripts/budgets.py run        runs them, prints the table; exit code 1 where a budget is broken, or a bench and its budget do not come together
  scripts/budgets.py count      counts instructions only, which other work on the machine does not change: what `make test` does
  scripts/budgets.py            holds what the last run measured, without running anything
  --slack FACTOR                budgets of CPU time that much larger, for a machine that is not the one they were made on
  --out FILE                    keeps what was measured, for scripts/perf-table.py
  --limits                      prints an [instructions] table for benches/budgets.toml, with some room over what was counted

The medians of criterion's samples count. What else a machine does only adds to a time, so that a bench over its budget is run again, at most
twice, and its least median counts (decision 5).

Where Valgrind is installed, the benches also run under it, each for a fixed number of iterations, and their instructions are held against
their limits. Other work does not change counts: they are not repeated, and no slack is given. Results are in $CRITERION_HOME, else in criterion/ of $CARGO_TARGET_DIR, else of target/.
"""

import argparse
import json
import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BENCHES = [*(os.environ.get("CARGO", "cargo"), "bench", "--locked", "--package", "visavis-benches", "--bench", "steps", "--bench", "conversation"), "--"]
# benches/src/instructions.rs turns counting on and off.
CALLGRIND = ["valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no", "--quiet"]
# Of a new limit over what was counted.
ROOM = 1.12
# The folder of what was counted, among criterion's.
COUNTS = "instructions"
TRIES = 3
UNITS = {"ns": 1, "µs": 1e3, "us": 1e3, "ms": 1e6, "s": 1e9}


def results():
    """Where criterion puts what it measures."""
    home, target = os.environ.get("CRITERION_HOME"), os.environ.get("CARGO_TARGET_DIR")
    return Path(home) if home else (Path(target) if target else ROOT / "target") / "criterion"


def limit(text):
    """A time like "1.5 µs" in ns."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-zµ]+)", text)
    if not found or found[2] not in UNITS or not float(found[1]):
        raise ValueError(f"{text!r} is no time like \"1.5 µs\"")
    return float(found[1]) * UNITS[found[2]]


def budgets(path):
    """Limits in ns, and in instructions, by bench; and the compiler of the latter."""
    try:
        tables = tomllib.loads(path.read_text())
        return {bench: limit(text) for bench, text in tables["cpu_time"].items()}, {bench: int(most) for bench, most in tables["instructions"].items()}, str(tables["rustc"])
    except (OSError, KeyError, TypeError, ValueError) as error:
        sys.exit(f"{path}: {error}")


def measured(home):
    """Medians in ns by bench."""
    found = {}
    for estimates in sorted(home.glob("**/new/estimates.json")):
        bench = json.loads((estimates.parent / "benchmark.json").read_text())["full_id"]
        found[bench] = json.loads(estimates.read_text())["median"]["point_estimate"]
    return found


def counted(home):
    """Instructions of an iteration by bench, from what Callgrind wrote last."""
    found = {}
    for path in (home / COUNTS).glob("*"):
        text = path.read_text()
        # Its last file, of the end of a program, belongs to no bench.
        if bench := re.search(r"^desc: Trigger: Client Request: (\d+) x (.+)$", text, re.M):
            found[bench[2]] = int(re.search(r"^totals: (\d+)", text, re.M)[1]) / int(bench[1])
    return found


def compiler():
    """The version of the Rust compiler."""
    try:
        return subprocess.run([os.environ.get("RUSTC", "rustc"), "--version"], capture_output=True, text=True).stdout.split()[1]
    except (OSError, IndexError):
        return "unknown"


def count(home):
    """Runs the benches under Callgrind, where that is possible; whether it is."""
    shutil.rmtree(home / COUNTS, ignore_errors=True)
    if not shutil.which(CALLGRIND[0]):
        print("Valgrind is not installed: no instructions are counted")
        return False
    if platform.machine() != "x86_64":
        print("the limits of instructions are those of x86-64: none are counted")
        return False
    (home / COUNTS).mkdir(parents=True)
    runner = [*CALLGRIND, f"--callgrind-out-file={(home / COUNTS).resolve()}/%p"]
    config = ["--config", f"target.'cfg(all())'.runner={json.dumps(runner)}"]
    ran = subprocess.run([*BENCHES[:2], *config, *BENCHES[2:]], cwd=ROOT)
    if ran.returncode:
        sys.exit(f"the benches failed under Valgrind: exit code {ran.returncode}")
    return True


def shown(ns):
    """A time for people, three digits."""
    unit = next(unit for unit in ("s", "ms", "µs", "ns") if ns >= UNITS[unit] or unit == "ns")
    value = ns / UNITS[unit]
    return f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f} {unit}"


def whole(n):
    """A number of instructions for people."""
    return f"{n:,.0f}"


def table(what, found, most, show):
    """Prints what of these was measured, in the order of the file, which is that of the path."""
    both = [name for name in most if name in found]
    cells = [("bench", what, "limit", "share"), *((name, show(found[name]), show(most[name]), f"{100 * found[name] / most[name]:.0f} %") for name in both)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    for name, *numbers in cells:
        print("  ".join([name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(numbers, widths[1:]))]))


def over(found, most, show, what):
    return [f"BROKEN  {name}: {show(found[name])} {what}, its limit is {show(most[name])}" for name in most if found.get(name, 0) > most[name]]


def alone(found, most, what):
    """Benches and limits of one table that do not come together."""
    wrong = [f"MISSED  {name}: a limit of {what}, but no bench of this name was run" for name in most if name not in found]
    wrong += [] if most else [f"MISSED  there is no limit of {what} at all"]
    return wrong + [f"FREE    {name}: a bench without a limit of {what}" for name in sorted(found) if name not in most]


def limits(found, order):
    """A new table of limits, to three digits."""
    print("[instructions]")
    for name in sorted(found, key=lambda name: (order + [name]).index(name)):
        step = 10 ** max(0, len(str(int(ROOM * found[name]))) - 3)
        print(f"{json.dumps(name)} = {math.ceil(ROOM * found[name] / step) * step:_}")


def cpu_model():
    names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M) if Path("/proc/cpuinfo").exists() else []
    return names[0] if names else ""


def commit():
    asked = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return asked.stdout.strip()


def forget(home):
    """Forgets what earlier runs measured, so that none of it is mistaken for this one's. What criterion compares with is beside it, and stays."""
    for old in list(home.glob("**/new")):
        shutil.rmtree(old)


def bench(most):
    """Runs the benches; the least medians by bench."""
    home, found = results(), {}
    again = []
    for _ in range(TRIES):
        forget(home)
        # All of them, or those that took too long.
        only = ["^(" + "|".join(map(re.escape, again)) + ")$"] if again else []
        ran = subprocess.run([*BENCHES, *only], cwd=ROOT)
        if ran.returncode:
            sys.exit(ran.returncode)
        for name, ns in measured(home).items():
            found[name] = min(ns, found.get(name, ns))
        again = [name for name, ns in found.items() if ns > most.get(name, ns)]
        if not again:
            break
        print("over budget, and measured again:", ", ".join(again), flush=True)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["check", "run", "count"], default="check")
    parser.add_argument("--budgets", type=Path, default=ROOT / "benches" / "budgets.toml")
    parser.add_argument("--slack", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--limits", action="store_true")
    arguments = parser.parse_args()
    if not 0 < arguments.slack < float("inf"):
        parser.error("--slack must be a number over 0")
    if arguments.out and not arguments.out.parent.is_dir():
        parser.error(f"--out {arguments.out}: there is no such folder")
    times, most_counts, counted_by = budgets(arguments.budgets)
    most = {name: ns * arguments.slack for name, ns in times.items()}
    timed = arguments.what != "count"
    found = bench(most) if arguments.what == "run" else measured(results()) if timed else {}
    # A run under Valgrind that counts nothing is an error; that an earlier run was without it is none.
    judged = arguments.what != "check" and count(results())
    if not (timed or judged):
        sys.exit(platform.machine() == "x86_64" and "Valgrind counts the instructions: install it (apt-get install valgrind)" or 0)
    counts = counted(results())
    wrong = []
    if timed:
        table("CPU time", found, most, shown)
        wrong = alone(found, most, "CPU time")
    if judged or counts:
        table("instructions", counts, most_counts, whole)
        above = over(counts, most_counts, whole, "instructions")
        wrong += alone(counts, most_counts, "instructions")
        if above and compiler() != counted_by:
            print(*above, f"the limits of instructions are those of rustc {counted_by}, and this is {compiler()}: not judged", sep="\n")
            above = []
        wrong += above
    if arguments.out:
        kept = {"mode": "benches", "median_ns": {name: round(found[name], 1) for name in most if name in found}}
        kept |= {"instructions": {name: round(counts[name]) for name in most if name in counts}} if counts else {}
        arguments.out.write_text(json.dumps(kept | {"commit": commit(), "cpu_model": cpu_model()}, indent=2, ensure_ascii=False) + "\n")
    if arguments.limits:
        limits(counts, list(most))
    broken = over(found, most, shown, "CPU time")
    print(*broken, *wrong, sep="\n")
    sys.exit(bool(broken or wrong))


if __name__ == "__main__":
    main()
