#!/usr/bin/env python3
"""Runs the benches and compares the measurements with the limits in benches/budgets.toml.

  scripts/budgets.py run     runs the benches and prints a table; exit code 1 if a measurement
                             exceeds its limit, a bench has no limit, or a limit has no bench
  scripts/budgets.py count   counts instructions only, which other load on the machine does not
                             change; `make test` runs this
  scripts/budgets.py         checks the measurements of the last run, without running anything
  --slack FACTOR             multiplies the limits of CPU time, for a slower machine than the one
                             they were measured on
  --out FILE                 writes the measurements to FILE, for scripts/perf-table.py
  --limits                   prints an [instructions] table for benches/budgets.toml, with a margin
                             above the counts

CPU time is the median of Criterion's samples. Other load on the machine can only increase it. A
bench that exceeds its limit therefore runs again, at most twice, and its minimum median counts
(decision 5).

If Valgrind is installed, the benches also run under it, each for a fixed number of iterations. The
instruction counts have limits of their own. Other load does not change the counts, so they are
measured once, without slack. The measurements are stored in $CRITERION_HOME, by default in
criterion/ of $CARGO_TARGET_DIR or of target/.
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
BENCH_COMMAND = [
    *(os.environ.get("CARGO", "cargo"), "bench", "--locked", "--package", "visavis-benches"),
    *("--bench", "steps", "--bench", "conversation", "--"),
]
# benches/src/instructions.rs turns the collection on and off.
CALLGRIND = [
    *("valgrind", "--tool=callgrind", "--instr-atstart=no", "--collect-atstart=no", "--quiet"),
]
# Ratio of a new limit to the count.
LIMIT_MARGIN = 1.12
# Folder of the instruction counts, inside Criterion's folder.
COUNTS_FOLDER = "instructions"
# Maximum number of runs of a bench.
MAX_RUNS = 3
UNITS = {"ns": 1, "µs": 1e3, "us": 1e3, "ms": 1e6, "s": 1e9}


def results_folder():
    """The folder in which Criterion stores its measurements."""
    home, target = os.environ.get("CRITERION_HOME"), os.environ.get("CARGO_TARGET_DIR")
    return Path(home) if home else (Path(target) if target else ROOT / "target") / "criterion"


def parse_time(text):
    """Converts a time such as "1.5 µs" to ns."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-zµ]+)", text)
    if not match or match[2] not in UNITS or not float(match[1]):
        raise ValueError(f'{text!r} is not a time such as "1.5 µs"')
    return float(match[1]) * UNITS[match[2]]


def read_budgets(path):
    """Returns the limits in ns and the limits in instructions, by bench, and the version of the
    compiler for which the latter hold."""
    try:
        tables = tomllib.loads(path.read_text())
        return (
            {bench: parse_time(text) for bench, text in tables["cpu_time"].items()},
            {bench: int(limit) for bench, limit in tables["instructions"].items()},
            str(tables["rustc"]),
        )
    except (OSError, KeyError, TypeError, ValueError) as error:
        sys.exit(f"{path}: {error}")


def read_medians(home):
    """Returns the medians in ns, by bench."""
    medians = {}
    for estimates in sorted(home.glob("**/new/estimates.json")):
        bench = json.loads((estimates.parent / "benchmark.json").read_text())["full_id"]
        medians[bench] = json.loads(estimates.read_text())["median"]["point_estimate"]
    return medians


def read_instruction_counts(home):
    """Returns the instructions of one iteration, by bench, from the last output of Callgrind."""
    counts = {}
    for path in (home / COUNTS_FOLDER).glob("*"):
        text = path.read_text()
        # The last file, written when the program ends, belongs to no bench.
        if bench := re.search(r"^desc: Trigger: Client Request: (\d+) x (.+)$", text, re.MULTILINE):
            total = re.search(r"^totals: (\d+)", text, re.MULTILINE)
            counts[bench[2]] = int(total[1]) / int(bench[1])
    return counts


def rustc_version():
    """Returns the version of the Rust compiler."""
    command = [os.environ.get("RUSTC", "rustc"), "--version"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()[
            1
        ]
    except (OSError, IndexError):
        return "unknown"


def count_instructions(home):
    """Runs the benches under Callgrind. Returns False if that is not possible here."""
    shutil.rmtree(home / COUNTS_FOLDER, ignore_errors=True)
    if not shutil.which(CALLGRIND[0]):
        print("Valgrind is not installed: no instructions are counted")
        return False
    if platform.machine() != "x86_64":
        print("the instruction limits hold for x86-64 only: no instructions are counted")
        return False
    (home / COUNTS_FOLDER).mkdir(parents=True)
    runner = [*CALLGRIND, f"--callgrind-out-file={(home / COUNTS_FOLDER).resolve()}/%p"]
    config = ["--config", f"target.'cfg(all())'.runner={json.dumps(runner)}"]
    process = subprocess.run(
        [*BENCH_COMMAND[:2], *config, *BENCH_COMMAND[2:]], cwd=ROOT, check=False
    )
    if process.returncode:
        sys.exit(f"the benches failed under Valgrind: exit code {process.returncode}")
    return True


def format_time(ns):
    """Formats a time with three digits and its unit."""
    unit = next(unit for unit in ("s", "ms", "µs", "ns") if ns >= UNITS[unit] or unit == "ns")
    value = ns / UNITS[unit]
    return f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f} {unit}"


def format_count(n):
    """Formats a number of instructions."""
    return f"{n:,.0f}"


def print_table(quantity, found, limits, format_value):
    """Prints the measurements that have a limit, in the order of benches/budgets.toml, which is the
    order of a frame's path."""
    names = [name for name in limits if name in found]
    rows = [("bench", quantity, "limit", "share")]
    for name in names:
        share = f"{100 * found[name] / limits[name]:.0f} %"
        rows.append((name, format_value(found[name]), format_value(limits[name]), share))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for name, *cells in rows:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths[1:], strict=True)]
        print("  ".join([name.ljust(widths[0]), *padded]))


def over_limit(found, limits, format_value, quantity):
    """Returns a message for each measurement that exceeds its limit."""
    return [
        f"EXCEEDED  {name}: {format_value(found[name])} {quantity}, "
        f"its limit is {format_value(limit)}"
        for name, limit in limits.items()
        if found.get(name, 0) > limit
    ]


def unmatched(found, limits, quantity):
    """Returns a message for each limit without a bench and each bench without a limit."""
    messages = [
        f"NOT RUN   {name}: a limit of {quantity}, but no bench of this name was run"
        for name in limits
        if name not in found
    ]
    messages += [] if limits else [f"NOT RUN   there is no limit of {quantity}"]
    return messages + [
        f"NO LIMIT  {name}: a bench without a limit of {quantity}"
        for name in sorted(found)
        if name not in limits
    ]


def print_limits(counts, order):
    """Prints a new table of limits, rounded up to three digits."""
    print("[instructions]")
    for name in sorted(counts, key=lambda name: ([*order, name]).index(name)):
        limit = LIMIT_MARGIN * counts[name]
        unit = 10 ** max(0, len(str(int(limit))) - 3)
        print(f"{json.dumps(name)} = {math.ceil(limit / unit) * unit:_}")


def cpu_model():
    """Returns the name of the processor, "" if it is unknown."""
    path = Path("/proc/cpuinfo")
    text = path.read_text() if path.exists() else ""
    names = re.findall(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return names[0] if names else ""


def git_commit():
    """Returns the short id of the commit, with "-dirty" if the checkout has changes."""
    command = ["git", "describe", "--always", "--dirty"]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.strip()


def clear_results(home):
    """Deletes the measurements of earlier runs, so that they are not mistaken for those of this
    run. Criterion's baselines for comparison are in other folders and stay."""
    for folder in list(home.glob("**/new")):
        shutil.rmtree(folder)


def run_benches(limits):
    """Runs the benches. Returns the minimum medians in ns, by bench."""
    home, medians = results_folder(), {}
    slow = []
    for _ in range(MAX_RUNS):
        clear_results(home)
        # The first run has all benches, a repetition only those that exceeded their limits.
        selection = ["^(" + "|".join(map(re.escape, slow)) + ")$"] if slow else []
        process = subprocess.run([*BENCH_COMMAND, *selection], cwd=ROOT, check=False)
        if process.returncode:
            sys.exit(process.returncode)
        for name, ns in read_medians(home).items():
            medians[name] = min(ns, medians.get(name, ns))
        slow = [name for name, ns in medians.items() if ns > limits.get(name, ns)]
        if not slow:
            break
        print("over the limit, measured again:", ", ".join(slow), flush=True)
    return medians


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["check", "run", "count"], default="check")
    parser.add_argument("--budgets", type=Path, default=ROOT / "benches" / "budgets.toml")
    parser.add_argument("--slack", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--limits", action="store_true")
    arguments = parser.parse_args()
    if not 0 < arguments.slack < float("inf"):
        parser.error("--slack must be a positive number")
    if arguments.out and not arguments.out.parent.is_dir():
        parser.error(f"--out {arguments.out}: the folder does not exist")
    nominal_limits, count_limits, limits_rustc = read_budgets(arguments.budgets)
    time_limits = {name: ns * arguments.slack for name, ns in nominal_limits.items()}
    measures_time = arguments.what != "count"
    if arguments.what == "run":
        medians = run_benches(time_limits)
    else:
        medians = read_medians(results_folder()) if measures_time else {}
    # If instructions were counted in this run, missing counts are an error. A check accepts an
    # earlier run without Valgrind.
    was_counted = arguments.what != "check" and count_instructions(results_folder())
    if not (measures_time or was_counted):
        needs_valgrind = platform.machine() == "x86_64"
        hint = "Valgrind counts the instructions: install it (apt-get install valgrind)"
        sys.exit(hint if needs_valgrind else 0)
    counts = read_instruction_counts(results_folder())
    failures = []
    if measures_time:
        print_table("CPU time", medians, time_limits, format_time)
        failures = unmatched(medians, time_limits, "CPU time")
    if was_counted or counts:
        print_table("instructions", counts, count_limits, format_count)
        exceeded = over_limit(counts, count_limits, format_count, "instructions")
        failures += unmatched(counts, count_limits, "instructions")
        if exceeded and rustc_version() != limits_rustc:
            print(
                *exceeded,
                f"the instruction limits hold for rustc {limits_rustc}, "
                f"but this is {rustc_version()}: not checked",
                sep="\n",
            )
            exceeded = []
        failures += exceeded
    if arguments.out:
        summary = {
            "mode": "benches",
            "median_ns": {name: round(medians[name], 1) for name in time_limits if name in medians},
        }
        if counts:
            summary["instructions"] = {
                name: round(counts[name]) for name in time_limits if name in counts
            }
        summary |= {"commit": git_commit(), "cpu_model": cpu_model()}
        arguments.out.write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    if arguments.limits:
        print_limits(counts, list(time_limits))
    slow = over_limit(medians, time_limits, format_time, "CPU time")
    print(*slow, *failures, sep="\n")
    sys.exit(bool(slow or failures))


if __name__ == "__main__":
    main()
