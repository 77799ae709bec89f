#!/usr/bin/env python3
"""Runs the benches and holds what they measure against benches/budgets.toml.

  scripts/budgets.py run        runs them, prints the table; exit code 1 where a budget is broken, or a bench and its budget do not come together
  scripts/budgets.py            holds what the last run measured, without running anything
  --quick                       less of each bench: for CI
  --slack FACTOR                budgets that much larger, for a machine that is not the one they were made on
  --out FILE                    keeps what was measured, for scripts/perf-table.py

The medians of criterion's samples count. What else a machine does only adds to a time, so that a bench over its budget is run again, at most
twice, and its least median counts. Where the host gave more than a tenth of the machine to others meanwhile, a broken budget is told, and is
no failure (decision 5). Results are in $CRITERION_HOME, else in criterion/ of $CARGO_TARGET_DIR, else of target/.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# The features are those of `make test`, so that nothing is built twice.
BENCHES = [
    *(os.environ.get("CARGO", "cargo"), "bench", "--locked", "--workspace", "--features", "visavis/load", "--bench", "steps", "--bench", "conversation"),
    "--",
]
QUICK = ["--warm-up-time", "0.2", "--measurement-time", "0.5", "--sample-size", "10"]
TRIES = 3
# Share of the machine that the host may give to others.
STOLEN = 0.1
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
    """Limits in ns by bench."""
    try:
        return {bench: limit(text) for bench, text in tomllib.loads(path.read_text())["cpu_time"].items()}
    except (OSError, KeyError, TypeError, ValueError) as error:
        sys.exit(f"{path}: {error}")


def measured(home):
    """Medians in ns by bench."""
    found = {}
    for estimates in sorted(home.glob("**/new/estimates.json")):
        bench = json.loads((estimates.parent / "benchmark.json").read_text())["full_id"]
        found[bench] = json.loads(estimates.read_text())["median"]["point_estimate"]
    return found


def shown(ns):
    """A time for people, three digits."""
    unit = next(unit for unit in ("s", "ms", "µs", "ns") if ns >= UNITS[unit] or unit == "ns")
    value = ns / UNITS[unit]
    return f"{value:.{max(0, 2 - len(str(int(value))) + 1)}f} {unit}"


def table(rows):
    heads = ("bench", "measured", "budget", "share")
    cells = [heads, *((bench, shown(ns), shown(most), f"{100 * ns / most:.0f} %") for bench, ns, most in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    for name, *numbers in cells:
        print("  ".join([name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(numbers, widths[1:]))]))


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


def machine_time():
    """What all processors did since the start of the machine, in ticks: all of it, and what the host gave to others."""
    try:
        # user nice system idle iowait irq softirq steal; what follows is part of user and nice.
        spent = [int(n) for n in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
        return sum(spent), spent[7]
    except (OSError, ValueError, IndexError):
        return 0, 0


def bench(most, quick):
    """Runs the benches; the least medians by bench, and the share of the machine that was others'."""
    home, options, found, before = results(), QUICK if quick else [], {}, machine_time()
    again = []
    for _ in range(TRIES):
        forget(home)
        # All of them, or those that took too long.
        only = ["^(" + "|".join(map(re.escape, again)) + ")$"] if again else []
        ran = subprocess.run([*BENCHES, *options, *only], cwd=ROOT)
        if ran.returncode:
            sys.exit(ran.returncode)
        for name, ns in measured(home).items():
            found[name] = min(ns, found.get(name, ns))
        again = [name for name, ns in found.items() if ns > most.get(name, ns)]
        if not again:
            break
        print("over budget, and measured again:", ", ".join(again), flush=True)
    whole, stolen = (after - first for after, first in zip(machine_time(), before))
    return found, stolen / max(whole, 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["check", "run"], default="check")
    parser.add_argument("--budgets", type=Path, default=ROOT / "benches" / "budgets.toml")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--slack", type=float, default=1.0)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    if not 0 < arguments.slack < float("inf"):
        parser.error("--slack must be a number over 0")
    if arguments.quick and arguments.what != "run":
        parser.error("--quick is of a run")
    if arguments.out and not arguments.out.parent.is_dir():
        parser.error(f"--out {arguments.out}: there is no such folder")
    most = {name: ns * arguments.slack for name, ns in budgets(arguments.budgets).items()}
    found, stolen = bench(most, arguments.quick) if arguments.what == "run" else (measured(results()), 0.0)
    # In the order of the file, which is that of the path.
    both = [name for name in most if name in found]
    table([(name, found[name], most[name]) for name in both])
    if arguments.out:
        kept = {"mode": "benches", "median_ns": {name: round(found[name], 1) for name in both}, "commit": commit(), "cpu_model": cpu_model()}
        arguments.out.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
    broken = [f"BROKEN  {name}: {shown(found[name])}, its budget is {shown(most[name])}" for name in both if found[name] > most[name]]
    wrong = [f"MISSED  {name}: a budget, but no bench of this name was run" for name in most if name not in found]
    wrong += [] if most else [f"MISSED  {arguments.budgets.name} holds no budget"]
    wrong += [f"FREE    {name}: a bench without a budget in {arguments.budgets.name}" for name in sorted(found) if name not in most]
    print(*broken, *wrong, sep="\n")
    if broken and stolen > STOLEN:
        print(f"the host gave {stolen:.0%} of this machine to others meanwhile: not judged")
        broken = []
    sys.exit(bool(broken or wrong))


if __name__ == "__main__":
    main()
