#!/usr/bin/env python3
"""Writes the measured tables in docs/performance.md from the JSON files in docs/results/: those of `visavis load --out`, benches.json
(`scripts/budgets.py --out`), profile.json (`scripts/profile.py --out`), end-to-end.json, and peers.json (others' engines).

  scripts/perf-table.py               writes each between its two marks
  scripts/perf-table.py --check       exit code 1 where the document does not say what the files say
  scripts/perf-table.py --keep REPORT keeps what a run of the end-to-end tests promised (target/e2e/report.json) as end-to-end.json

So every number of these tables has its file, and every file its row.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from budgets import commit, cpu_model

ROOT = Path(__file__).resolve().parent.parent
BENCHES, PROFILE, PROMISES, PEERS = "benches.json", "profile.json", "end-to-end.json", "peers.json"
OTHERS = {BENCHES, PROFILE, PROMISES, PEERS}
# How the report of the end-to-end tests names a promised number.
PROMISE = "promise: "
NONE = "–"


def ms(value, digits=0):
    return NONE if value is None else f"{value:.{digits}f} ms"


def spread(name):
    """Median and 95th percentile."""

    def cell(run):
        found = run["ms"][name]
        return NONE if not found["n"] else f"{found['p50']:.0f} / {found['p95']:.0f} ms"

    return cell


def p95(name):
    return lambda run: ms(run["ms"][name]["p95"])


def of(value, whole):
    return NONE if value is None or whole is None else f"{value} of {whole}"


def late(run):
    return of(run["late_audio_frames"], run["audio_frames"])


def turns(run):
    return of(run["turns"]["wrong"] + run["turns"]["missing"], run["turns"]["expected"])


def events(run):
    return of(run["events"]["missing"], run["events"]["expected"])


def mebibytes(value):
    return NONE if value is None else f"{value / 2**20:.2f} MiB"


def plain(value, unit=""):
    return NONE if value is None else f"{value:g}{unit}"


def growth(run):
    share = run["soak"]["rss_growth"]
    return NONE if share is None else f"{100 * share:.1f} %"


def pair(values):
    return " → ".join(plain(value) for value in values)


def calls(run):
    failed = run.get("failed", 0)
    return f"{run['calls']}, {failed} failed" if failed else str(run["calls"])


FIRST = [("calls", calls)]
LAST = [("JSON", lambda run: f"[{run['file']}](results/{run['file']})")]
# By kind of run: its heading, and what its columns hold.
KINDS = {
    "engine-only": ("The engine alone (`--engine-only`)", [
        ("overhead p50 / p95", spread("overhead")),
        ("barge-in p50 / p95", spread("barge_in")),
        ("ducked p95", p95("duck")),
        ("late frames", late),
        ("turns wrong or missing", turns),
        ("media thread, CPU a call-second", lambda run: ms(run["engine"]["media_ms_per_call_second"], 2)),
        ("models", lambda run: ms(run["engine"]["models_ms_per_call_second"], 2)),
    ]),
    "webrtc": ("A server over WebRTC", [
        ("voice-to-voice p50 / p95", spread("voice_to_voice")),
        ("overhead p50 / p95", spread("overhead")),
        ("barge-in p50 / p95", spread("barge_in")),
        ("ducked p95", p95("duck")),
        ("first picture p95", p95("ttff")),
        ("late frames", late),
        ("turns wrong or missing", turns),
        ("webhooks missing", events),
        ("pictures a second, speaking", lambda run: plain(run["video"]["fps_speaking"])),
        ("freezes", lambda run: plain(run["video"]["freezes"])),
        ("server, CPU a call-second", lambda run: ms(run["server"]["cpu_ms_per_call_second"], 2)),
        ("memory a call beyond the first", lambda run: mebibytes(run["server"]["rss_bytes_per_call"])),
    ]),
    "soak": ("Calls that come and go (`make soak`)", [
        ("came and went", lambda run: plain(run["soak"]["calls"])),
        ("memory grew over the last half", growth),
        ("threads", lambda run: pair(run["soak"]["threads"])),
        ("files", lambda run: pair(run["soak"]["files"])),
        ("late frames", late),
        ("webhooks missing", events),
    ]),
}  # fmt: skip


def kind(run):
    return "soak" if run.get("soak") else run["mode"]


def runs_of(results):
    """What `visavis load` found, run by run."""
    for path in sorted(results.glob("*.json")):
        # Results of `make test-long` are lists of tests.
        if path.name not in OTHERS and not path.name.startswith("long-"):
            try:
                yield json.loads(path.read_text()) | {"file": path.name}
            except (TypeError, ValueError) as error:
                sys.exit(f"{path.name} is no result of `visavis load`: {error!r}")


def loads(results):
    """The tables of load runs, one for each kind."""
    runs = []
    for run in runs_of(results):
        try:
            heading, columns = KINDS[kind(run)]
            columns = FIRST + columns + LAST
            runs.append((list(KINDS).index(kind(run)), run["calls"], run["file"], heading, columns, [cell(run) for _, cell in columns]))
        except (KeyError, TypeError, ValueError) as error:
            sys.exit(f"{run['file']} is no result of `visavis load`: {error!r}")
    text, before = "", None
    for _, _, _, heading, columns, cells in sorted(runs, key=lambda run: run[:3]):
        if heading != before:
            text += f"\n**{heading}**\n\n" + row(name for name, _ in columns) + "|" + "---|" * len(columns) + "\n"
            before = heading
        text += row(cells)
    return text + "\n"


def steps(results):
    """The table of the benches."""
    path = results / BENCHES
    run = json.loads(path.read_text()) if path.exists() else {"median_ns": {}}
    counts = run.get("instructions")
    if counts is None:
        return "\n| bench | CPU time |\n|---|---|\n" + "".join(row((bench, shown(ns))) for bench, ns in run["median_ns"].items()) + "\n"
    # Thousands are apart by a space that breaks no line.
    cells = ((bench, shown(ns), f"{counts[bench]:,}".replace(",", "\u202f") if bench in counts else NONE) for bench, ns in run["median_ns"].items())
    return "\n| bench | CPU time | instructions |\n|---|---|---|\n" + "".join(map(row, cells)) + "\n"


def keep(report, results):
    """Of an end-to-end run's report what is promised."""
    try:
        found = json.loads(report.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"{report}: {error}")
    promises = {name.removeprefix(PROMISE): of for name, of in found.items() if name.startswith(PROMISE)}
    if not promises:
        sys.exit(f"{report} holds no promised number")
    kept = {"mode": "end-to-end", "promises": promises, "machine": found.get("machine"), "commit": commit(), "cpu_model": cpu_model()}
    (results / PROMISES).write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")


def promises(results):
    """The table of the end-to-end tests' numbers."""
    path = results / PROMISES
    found = json.loads(path.read_text())["promises"] if path.exists() else {}
    return "\n| | measured | promised |\n|---|---|---|\n" + "".join(
        row((what, f"{of['measured']:.4g}", f"{of['promised']:g}")) for what, of in found.items()
    ) + "\n"  # fmt: skip


def range_of(values, unit=""):
    """From the least to the most."""
    least, most = values
    return f"{least:g}{unit}" if least == most else f"{least:g}–{most:g}{unit}"


def both(values):
    return " / ".join(f"{value:.0f}" for value in values) + " ms"


def beside(results):
    """What the issue asks and others reach, beside the largest runs of each kind that lost nothing."""
    path = results / PEERS
    if not path.exists():
        return "\n"
    peers = json.loads(path.read_text())["peers"]
    # Of a soak it does not matter that some callers were told to come again.
    whole = [run for run in runs_of(results) if not run["failed"] or kind(run) == "soak"]
    found = {of: sorted((run for run in whole if kind(run) == of), key=lambda run: run["calls"]) for of in KINDS}
    alone, full, soaks = (found[of] for of in ("engine-only", "webrtc", "soak"))
    rows = []
    if alone:
        one = alone[0]["ms"]
        # As many as answer within a tenth of a second of one call, and hand out no frame late.
        many = [run for run in alone if not run["late_audio_frames"] and run["ms"]["overhead"]["p95"] <= one["overhead"]["p95"] + 100][-1]
        for what, name, target in (("overhead", "overhead", "≤ 30 / 40 ms"), ("barge-in to silence", "barge_in", "≤ 260 / 280 ms")):
            ours, theirs = (one[name]["p50"], one[name]["p95"]), [peer[f"{name}_ms"] for peer in peers.values()]
            better = [min(values) for values in zip(*theirs)]
            rows.append((f"{what} of one call, p50 / p95", target, both(ours), *map(both, theirs), " / ".join(f"{b / o:.3g}" for b, o in zip(better, ours))))
        rows.append(("ducked, p95", "≤ 150 ms", ms(one["duck"]["p95"]), *["do not duck"] * len(peers), NONE))
        theirs = [peer["calls_per_core"] for peer in peers.values()]
        rows.append(("calls on one core without a late frame", "≥ 800", str(many["calls"]), *map(range_of, theirs), f"{many['calls'] / max(map(max, theirs)):.2g}"))
        ours, theirs = many["server"]["cpu_ms_per_call_second"], [peer["cpu_ms_per_call_second"] for peer in peers.values()]
        rows.append((f"CPU a call-second, {many['calls']} calls, scripted models with it", "≤ 1 ms", ms(ours, 2), *(range_of(of, " ms") for of in theirs), f"{min(map(min, theirs)) / ours:.2g}"))
    if full:
        most, none = full[-1], ["no face without a GPU"] * len(peers)
        video, server = most["video"], most["server"]
        rows.append(("full calls on one core: WebRTC, Opus both ways, a 512² face at 25 fps", "≥ 120", str(most["calls"]), *none, NONE))
        rows.append(("their CPU a call-second", "≤ 8.3 ms", ms(server["cpu_ms_per_call_second"], 1), *none, NONE))
        rows.append(("their pictures a second while speaking; sound late", "≥ 24; < .1 %", f"{video['fps_speaking']:g}; {100 * most['late_audio']:.2g} %", *none, NONE))
        theirs = [peer["memory_mb_per_call"] for peer in peers.values()]
        rows.append(("their memory a call, beyond the first", "≤ 1.5 MB", f"{server['rss_bytes_per_call'] / 1e6:.2f} MB", *(range_of(of, " MB") + ", no face" for of in theirs), NONE))
    if soaks:
        rows.append((f"growth of memory over the last half of {soaks[-1]['soak']['calls']} calls", "≤ 5 %", growth(soaks[-1]), *["leaks are reported"] * len(peers), NONE))
    kept = results / PROMISES
    start = json.loads(kept.read_text())["promises"].get("from exec to listening, s") if kept.exists() else None
    if start:
        theirs = [peer["start_s"] for peer in peers.values()]
        rows.append(("from exec to listening (others: to the first session)", "≤ .2 s", f"{start['measured']:.2g} s", *(f"{of:g} s" for of in theirs), f"{min(theirs) / start['measured']:.2g}"))
    heads = ("", "target", "Visavis", *peers, "ratio")
    return "\n" + row(heads) + "|" + "---|" * len(heads) + "\n" + "".join(map(row, rows)) + "\n"


def profile(results):
    """The tables of where threads spend their time."""
    path = results / PROFILE
    if not path.exists():
        return "\n"
    run, text = json.loads(path.read_text()), ""
    names = {"media": "Media thread", "net": "The scripted models' threads"}
    for thread, parts in run["threads"].items():
        text += f"\n| {names.get(thread, thread)}, {run['calls']} calls | share of its CPU time | the most of it |\n|---|---|---|\n"
        text += "".join(row((part, f"{100 * of['share']:.0f} %", ", ".join(f"`{brief(symbol)}`" for symbol in of["most"][:2]))) for part, of in parts.items())
    return text + "\n"


def brief(symbol):
    """A symbol's name without its types and hash."""
    return re.sub(r"::h[0-9a-f]{16}$", "", symbol).replace("|", "\\|")[:60]


def shown(ns):
    """A time of some ns, to two digits."""
    for unit, size in (("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.{1 if ns < 10 * size else 0}f} {unit}"
    return f"{ns:.0f} ns"


def row(cells):
    return "| " + " | ".join(cells) + " |\n"


def between(document, name, text):
    """The document with this text between the marks of this name."""
    begin, end = f"<!-- {name}: written by `make perf-table` -->\n", f"<!-- end of {name} -->"
    if document.count(begin) != 1 or document.count(end) != 1 or document.index(begin) > document.index(end):
        sys.exit(f"the document needs each mark once, in this order: {begin.strip()} {end}")
    return document.split(begin)[0] + begin + text + end + document.split(end)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--keep", type=Path, metavar="REPORT")
    parser.add_argument("--document", type=Path, default=ROOT / "docs" / "performance.md")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results")
    arguments = parser.parse_args()
    if arguments.keep:
        keep(arguments.keep, arguments.results)
    try:
        old = new = arguments.document.read_text()
    except OSError as error:
        sys.exit(str(error))
    for name, table in {"load runs": loads, "beside others": beside, "benches": steps, "profile": profile, "promises": promises}.items():
        new = between(new, name, table(arguments.results))
    if not arguments.check:
        arguments.document.write_text(new)
    elif new != old:
        sys.exit(f"{arguments.document} does not say what the files in {arguments.results} say: run `make perf-table`")


if __name__ == "__main__":
    main()
