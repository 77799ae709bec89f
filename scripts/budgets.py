#!/usr/bin/env python3
"""Holds what the last run of the benches measured against benches/budgets.toml.

  scripts/budgets.py            prints the table; exit code 1 where a budget is broken, or a bench and its budget do not come together
  scripts/budgets.py --out FILE keeps what was measured, for scripts/perf-table.py
  scripts/budgets.py forget     before a run: forgets what earlier ones measured, so that none of it is mistaken for this one's

The medians of criterion's samples count. Results are in $CRITERION_HOME, else in criterion/ of $CARGO_TARGET_DIR, else of target/.
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
UNITS = {"ns": 1, "µs": 1e3, "us": 1e3, "ms": 1e6, "s": 1e9}


def results():
    """Where criterion puts what it measures."""
    home, target = os.environ.get("CRITERION_HOME"), os.environ.get("CARGO_TARGET_DIR")
    return Path(home) if home else (Path(target) if target else ROOT / "target") / "criterion"


def limit(text):
    """A time like "1.5 µs" in ns."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?) ?([a-zµ]+)", text)
    if not found or found[2] not in UNITS:
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


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["check", "forget"], default="check")
    parser.add_argument("--budgets", type=Path, default=ROOT / "benches" / "budgets.toml")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    home = results()
    if arguments.what == "forget":
        # What criterion compares the next run with is beside it, and stays.
        for old in list(home.glob("**/new")):
            shutil.rmtree(old)
        return
    most, found = budgets(arguments.budgets), measured(home)
    # In the order of the file, which is that of the path.
    both = [bench for bench in most if bench in found]
    table([(bench, found[bench], most[bench]) for bench in both])
    if arguments.out:
        kept = {"mode": "benches", "median_ns": {bench: round(found[bench], 1) for bench in both}, "commit": commit(), "cpu_model": cpu_model()}
        arguments.out.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
    wrong = [f"BROKEN  {bench}: {shown(found[bench])}, its budget is {shown(most[bench])}" for bench in both if found[bench] > most[bench]]
    wrong += [f"MISSED  {bench}: a budget, but no bench of this name was run" for bench in most if bench not in found]
    wrong += [f"FREE    {bench}: a bench without a budget in {arguments.budgets.name}" for bench in sorted(found) if bench not in most]
    print(*wrong, sep="\n")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
