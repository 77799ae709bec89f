#!/usr/bin/env python3
"""Measures how much the avatars move, and what their video costs.

    scripts/motion.py [--rate FPS] [--seeds N] [--out FILE] [limits] [AVATAR...]

AVATAR is the id of a built-in avatar or a file NAME.poses; without one, all built-in avatars are
measured. Prints a table, in which "!" marks what misses its limit. The exit code is 1 if anything
does. `--out` writes the numbers as JSON. engine/examples/motion.rs defines each number.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
#: Column: its unit or meaning, whether the limit is a minimum, and the limit.
COLUMNS = {
    "moving_share": ("share of seconds of speech with motion", True, 0.30),
    "range": ("px of 512", True, 15),
    "jump": ("px of 512", False, 3),
    "speech": ("kbit/s", False, 200),
    "busiest_second": ("kbit/s", False, 350),
    "listening": ("kbit/s", False, 40),
    "idle": ("kbit/s", False, 25),
    "set_bytes": ("bytes", False, 1_000_000),
}


def parse_arguments():
    parser = argparse.ArgumentParser(description="Measures how much the avatars move.")
    parser.add_argument("avatars", nargs="*", metavar="AVATAR")
    parser.add_argument("--rate", type=int, default=25, help="frames per second")
    parser.add_argument("--seeds", type=int, default=4, help="number of minutes of each activity")
    parser.add_argument("--out", type=pathlib.Path)
    for name, (unit, is_minimum, limit) in COLUMNS.items():
        option = f"--{'min' if is_minimum else 'max'}-{name.replace('_', '-')}"
        parser.add_argument(option, dest=name, type=float, default=limit, help=unit)
    return parser.parse_args()


def measure(arguments) -> dict:
    """The numbers of each avatar by its id."""
    cargo = ["cargo", "run", "--release", "--quiet", "-p", "visavis-engine", "--example", "motion"]
    options = ["--rate", str(arguments.rate), "--seeds", str(arguments.seeds)]
    command = [*cargo, "--", *options, *arguments.avatars]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def meets(name: str, value: float, limit: float) -> bool:
    is_minimum = COLUMNS[name][1]
    return value >= limit if is_minimum else value <= limit


def main() -> int:
    arguments = parse_arguments()
    limits = {name: getattr(arguments, name) for name in COLUMNS}
    avatars = measure(arguments)
    if arguments.out:
        run = {"frame_rate": arguments.rate, "seeds": arguments.seeds, "avatars": avatars}
        arguments.out.write_text(json.dumps(run, indent=1) + "\n")
    rows = [["avatar", *COLUMNS], ["limit", *(f"{limit:g} " for limit in limits.values())]]
    failed = False
    for avatar, numbers in avatars.items():
        marks = ["" if meets(name, numbers[name], limits[name]) else "!" for name in COLUMNS]
        failed |= any(marks)
        cells = (f"{numbers[name]}{mark or ' '}" for name, mark in zip(COLUMNS, marks, strict=True))
        rows.append([avatar, *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
