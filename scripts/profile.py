#!/usr/bin/env python3
"""Where the CPU time of the engine's threads goes while it holds calls: `scripts/profile.py [--calls 400] [--out FILE]`, by `perf`.

Prints the shares of a media thread's time, and of the scripted models' threads'; --out keeps them, for scripts/perf-table.py. Needs
`perf`, and the release binary with its symbols (VISAVIS_BIN, else $CARGO_TARGET_DIR or target, release/visavis).
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from budgets import commit, cpu_model

ROOT = Path(__file__).resolve().parent.parent
# From the first call to the last, and some time for all to be under way.
BEGINNING, SECONDS = 50, 20
# What a symbol belongs to: the first that fits.
PARTS = {
    "media": [
        ("the detector's network", r"models::vad::simd|vad::network::.*(dot|gemm|layer)"),
        ("its spectrum", r"realfft|rustfft|rfft"),
        ("the network's glue", r"models::vad"),
        ("hearing: windows, levels", r"hear|Windows|Level|Loudness"),
        ("the pure conversation", r"^conversation::|<conversation::"),
        ("playout", r"playout|Playout"),
        ("copies and allocation", r"memmove|memcpy|memset|malloc|cfree|free|realloc|mi_|je_"),
        ("inboxes", r"crossbeam"),
        ("the tick's own loops", r"engine::"),
        ("the kernel", r"^\[k\]"),
    ],
    "net": [
        ("the resampler to 48 kHz", r"rubato|resampl|Upsampler|realfft|rustfft"),
        ("the tone", r"models::script|Tone|sin"),
        ("copies and allocation", r"memmove|memcpy|memset|malloc|cfree|free|realloc"),
        ("waiting and waking (tokio)", r"tokio|mio|parking_lot|crossbeam"),
        ("the kernel", r"^\[k\]"),
    ],
}
REST = "the rest"


def binary():
    built = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "release" / "visavis"
    return os.environ.get("VISAVIS_BIN", str(built))


def threads(pid, prefix):
    """The process's threads of this name."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [task.name for task in tasks if (task / "comm").read_text().startswith(prefix)]


def shares(data, parts):
    """Shares of the samples by part, and the symbols of each, largest first."""
    told = subprocess.run(
        ["perf", "report", "--input", data, "--no-children", "--stdio", "--percent-limit", "0.05", "--sort", "symbol", "--call-graph", "none"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = {}
    for share, kind, symbol in re.findall(r"^\s*([\d.]+)%\s+(\[[.k]\])\s+(.+?)\s*$", told.stdout, re.M):
        # Behind a symbol are columns that belong to call graphs.
        symbol = re.split(r"\s{2,}", symbol)[0]
        name = f"[k] {symbol}" if kind == "[k]" else symbol
        part = next((part for part, fits in parts if re.search(fits, name)), REST)
        found.setdefault(part, []).append((float(share), symbol))
    # What is below the limit of the listing.
    found.setdefault(REST, []).append((100 - sum(share for all in found.values() for share, _ in all), "all that is below .05 %"))
    return {
        part: {"share": round(sum(share for share, _ in all) / 100, 3), "most": [symbol for _, symbol in sorted(all, reverse=True)[:3]]}
        for part, all in sorted(found.items(), key=lambda item: -sum(share for share, _ in item[1]))
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    load = [binary(), "load", "--engine-only", "--calls", str(arguments.calls), "--duration", str(BEGINNING + 3 * SECONDS), "--cpu", "1", "--engine-cpu", "0"]
    if not Path(load[0]).exists() or not shutil.which("perf"):
        sys.exit(f"needs perf, and {load[0]} (make build)")
    if (os.cpu_count() or 1) < 2:
        sys.exit("needs two processors: one of the engine, one of the callers")
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        with subprocess.Popen(load, stdout=subprocess.DEVNULL) as run:
            try:
                time.sleep(BEGINNING)
                if run.poll() is not None:
                    sys.exit("the calls ended before they were looked at")
                for name in PARTS:
                    tids = threads(run.pid, name)
                    data = f"{folder}/{name}"
                    recorded = subprocess.run(
                        ["perf", "record", "--freq", "1999", "--tid", ",".join(tids), "--output", data, "--", "sleep", str(SECONDS)],
                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                    )  # fmt: skip
                    if recorded.returncode:
                        sys.exit(recorded.stderr)
                    found[name] = shares(data, PARTS[name])
            finally:
                run.terminate()
    for name, parts in found.items():
        print(name)
        for part, of in parts.items():
            print(f"  {of['share']:6.1%}  {part}  ({', '.join(of['most'])[:120]})")
    if arguments.out:
        kept = {"mode": "profile", "calls": arguments.calls, "threads": found, "commit": commit(), "cpu_model": cpu_model()}
        arguments.out.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
