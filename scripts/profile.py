#!/usr/bin/env python3
"""Profiles the engine's threads during calls with `perf`.

    scripts/profile.py [--calls 400] [--out FILE]

Prints the shares of CPU time of a media thread and of the scripted models' threads. --out stores
them for scripts/perf-table.py. Needs `perf` and the release binary with its symbols (VISAVIS_BIN;
by default release/visavis in $CARGO_TARGET_DIR or target).
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

from budgets import cpu_model, git_commit

ROOT = Path(__file__).resolve().parent.parent
# Time from the start of the first call until all calls are running, and duration of one profile,
# in s.
WARM_UP_SECONDS, PROFILE_SECONDS = 50, 20
# For each thread, the group of a symbol: the first whose pattern matches. The names are keys of
# docs/results/profile.json.
SYMBOL_GROUPS = {
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
OTHER = "the rest"


def binary():
    """The path of the release binary."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return os.environ.get("VISAVIS_BIN", str(target / "release" / "visavis"))


def thread_ids(pid, prefix):
    """The ids of the process's threads whose names begin with `prefix`."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [task.name for task in tasks if (task / "comm").read_text().startswith(prefix)]


def sample_shares(data, groups):
    """The share of the samples in each group, and its three most frequent symbols."""
    report = subprocess.run(
        [
            *("perf", "report", "--input", data, "--no-children", "--stdio"),
            *("--percent-limit", "0.05", "--sort", "symbol", "--call-graph", "none"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    samples = {}
    report_line = r"^\s*([\d.]+)%\s+(\[[.k]\])\s+(.+?)\s*$"
    for percent, kind, symbol in re.findall(report_line, report.stdout, re.MULTILINE):
        # Columns after the symbol belong to call graphs.
        symbol = re.split(r"\s{2,}", symbol)[0]
        name = f"[k] {symbol}" if kind == "[k]" else symbol
        group = next((group for group, pattern in groups if re.search(pattern, name)), OTHER)
        samples.setdefault(group, []).append((float(percent), symbol))
    # The report omits symbols below the percent limit.
    reported = sum(percent for symbols in samples.values() for percent, _ in symbols)
    samples.setdefault(OTHER, []).append((100 - reported, "all that is below .05 %"))
    by_share = sorted(samples.items(), key=lambda item: -sum(percent for percent, _ in item[1]))
    return {
        group: {
            "share": round(sum(percent for percent, _ in symbols) / 100, 3),
            "most": [symbol for _, symbol in sorted(symbols, reverse=True)[:3]],
        }
        for group, symbols in by_share
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--calls", type=int, default=400)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    duration = WARM_UP_SECONDS + 3 * PROFILE_SECONDS
    load = [
        *(binary(), "load", "--engine-only", "--calls", str(arguments.calls)),
        *("--duration", str(duration), "--cpu", "1", "--engine-cpu", "0"),
    ]
    if not Path(load[0]).exists() or not shutil.which("perf"):
        sys.exit(f"needs perf and {load[0]} (make build)")
    if (os.cpu_count() or 1) < 2:
        sys.exit("needs two processors: one for the engine, one for the callers")
    threads = {}
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(load, stdout=subprocess.DEVNULL) as process,
    ):
        try:
            time.sleep(WARM_UP_SECONDS)
            if process.poll() is not None:
                sys.exit("the calls ended before they were profiled")
            for name in SYMBOL_GROUPS:
                ids = thread_ids(process.pid, name)
                data = f"{folder}/{name}"
                recording = subprocess.run(
                    [
                        *("perf", "record", "--freq", "1999", "--tid", ",".join(ids)),
                        *("--output", data, "--", "sleep", str(PROFILE_SECONDS)),
                    ],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    check=False,
                )
                if recording.returncode:
                    sys.exit(recording.stderr)
                threads[name] = sample_shares(data, SYMBOL_GROUPS[name])
        finally:
            process.terminate()
    for name, groups in threads.items():
        print(name)
        for group, samples in groups.items():
            symbols = ", ".join(samples["most"])[:120]
            print(f"  {samples['share']:6.1%}  {group}  ({symbols})")
    if arguments.out:
        summary = {
            "mode": "profile",
            "calls": arguments.calls,
            "threads": threads,
            "commit": git_commit(),
            "cpu_model": cpu_model(),
        }
        arguments.out.write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
