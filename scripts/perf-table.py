#!/usr/bin/env python3
"""Writes the tables of measurements in docs/performance.md and docs/speech.md from the JSON files
in docs/results/: the files of `visavis load --out`, benches.json (`scripts/budgets.py --out`),
profile.json (`scripts/profile.py --out`), providers.json (`benches/tests/providers.rs`),
end-to-end.json, and peers.json (other engines).

  scripts/perf-table.py               replaces each table between its two markers
  scripts/perf-table.py --check       exit code 1 if the document differs from the files
  scripts/perf-table.py --keep REPORT stores the promised figures of a run of the end-to-end tests
                                      (target/e2e/report.json) as end-to-end.json

Every figure of these tables comes from a file, and every file has a row.
"""

import argparse
import json
import re
import sys
from pathlib import Path

from budgets import cpu_model, git_commit

ROOT = Path(__file__).resolve().parent.parent
BENCHES, PROFILE, PROVIDERS = "benches.json", "profile.json", "providers.json"
PROMISES, PEERS = "end-to-end.json", "peers.json"
# Kind of the runs of `visavis load --record`, which have a table of their own.
RECORDING = "recording"
# Limits of the cost of a recording in ms of CPU time per second of a call: on the media threads,
# during the call, and in the child process. tests/e2e/test_load_calls.py checks them, too.
RECORDING_LIMITS = (0.3, 1, 10)
NOT_LOAD_RUNS = {BENCHES, PROFILE, PROVIDERS, PROMISES, PEERS}
# Prefix of a promised figure in the report of the end-to-end tests.
PROMISE_PREFIX = "promise: "
NO_VALUE = "–"


def format_ms(value, digits=0):
    return NO_VALUE if value is None else f"{value:.{digits}f} ms"


def percentile_column(name):
    """A column with the median and the 95th percentile."""

    def cell(run):
        figure = run["ms"][name]
        return NO_VALUE if not figure["n"] else f"{figure['p50']:.0f} / {figure['p95']:.0f} ms"

    return cell


def p95_column(name):
    """A column with the 95th percentile."""
    return lambda run: format_ms(run["ms"][name]["p95"])


def format_share(value, total):
    return NO_VALUE if value is None or total is None else f"{value} of {total}"


def late_frames_cell(run):
    return format_share(run["late_audio_frames"], run["audio_frames"])


def turns_cell(run):
    return format_share(run["turns"]["wrong"] + run["turns"]["missing"], run["turns"]["expected"])


def events_cell(run):
    return format_share(run["events"]["missing"], run["events"]["expected"])


def format_mib(value):
    return NO_VALUE if value is None else f"{value / 2**20:.2f} MiB"


def format_number(value, unit=""):
    return NO_VALUE if value is None else f"{value:g}{unit}"


def growth_cell(run):
    share = run["soak"]["rss_growth"]
    return NO_VALUE if share is None else f"{100 * share:.1f} %"


def format_pair(values):
    return " → ".join(format_number(value) for value in values)


def calls_cell(run):
    failed = run.get("failed", 0)
    return f"{run['calls']}, {failed} failed" if failed else str(run["calls"])


FIRST_COLUMNS = [("calls", calls_cell)]
LAST_COLUMNS = [("JSON", lambda run: f"[{run['file']}](results/{run['file']})")]
# For each kind of run, the heading and the columns of its table.
RUN_KINDS = {
    "engine-only": (
        "The engine alone (`--engine-only`)",
        [
            ("overhead p50 / p95", percentile_column("overhead")),
            ("barge-in p50 / p95", percentile_column("barge_in")),
            ("ducked p95", p95_column("duck")),
            ("late frames", late_frames_cell),
            ("turns wrong or missing", turns_cell),
            (
                "media thread, CPU a call-second",
                lambda run: format_ms(run["engine"]["media_ms_per_call_second"], 2),
            ),
            ("models", lambda run: format_ms(run["engine"]["models_ms_per_call_second"], 2)),
        ],
    ),
    "webrtc": (
        "A server over WebRTC",
        [
            ("voice-to-voice p50 / p95", percentile_column("voice_to_voice")),
            ("overhead p50 / p95", percentile_column("overhead")),
            ("barge-in p50 / p95", percentile_column("barge_in")),
            ("ducked p95", p95_column("duck")),
            ("first picture p95", p95_column("ttff")),
            ("late frames", late_frames_cell),
            ("turns wrong or missing", turns_cell),
            ("webhooks missing", events_cell),
            (
                "pictures a second, speaking",
                lambda run: format_number(run["video"]["fps_speaking"]),
            ),
            ("freezes", lambda run: format_number(run["video"]["freezes"])),
            (
                "server, CPU a call-second",
                lambda run: format_ms(run["server"]["cpu_ms_per_call_second"], 2),
            ),
            (
                "memory a call beyond the first",
                lambda run: format_mib(run["server"]["rss_bytes_per_call"]),
            ),
        ],
    ),
    "speech": (
        "A server with the built-in models, over WebRTC",
        [
            ("voice-to-voice p50 / p95", percentile_column("voice_to_voice")),
            ("late frames", late_frames_cell),
            ("unanswered", lambda run: format_number(run["turns"]["unanswered"])),
            (
                "pictures a second, speaking",
                lambda run: format_number(run["video"]["fps_speaking"]),
            ),
            (
                "server, CPU a call-second",
                lambda run: format_ms(run["server"]["cpu_ms_per_call_second"], 2),
            ),
            ("memory of the server", lambda run: format_mib(run["server"]["rss_bytes"])),
            (
                "memory a call beyond the first",
                lambda run: format_mib(run["server"]["rss_bytes_per_call"]),
            ),
        ],
    ),
    "soak": (
        "Calls that come and go (`make soak`)",
        [
            ("came and went", lambda run: format_number(run["soak"]["calls"])),
            ("memory grew over the last half", growth_cell),
            ("threads", lambda run: format_pair(run["soak"]["threads"])),
            ("files", lambda run: format_pair(run["soak"]["files"])),
            ("late frames", late_frames_cell),
            ("webhooks missing", events_cell),
        ],
    ),
}


def run_kind(run):
    # The report does not tell scripted models from built-in ones, so the file's name does.
    if run["file"].startswith("speech-"):
        return "speech"
    if run.get("recording"):
        return RECORDING
    return "soak" if run.get("soak") else run["mode"]


def read_runs(results):
    """Reads the result files of `visavis load`."""
    for path in sorted(results.glob("*.json")):
        # Results of `make test-long` are lists of tests.
        if path.name not in NOT_LOAD_RUNS and not path.name.startswith("long-"):
            try:
                yield json.loads(path.read_text()) | {"file": path.name}
            except (TypeError, ValueError) as error:
                sys.exit(f"{path.name} is not a result of `visavis load`: {error!r}")


def load_tables(results):
    """The tables of load runs, one for each kind."""
    rows = []
    for run in read_runs(results):
        if run_kind(run) == RECORDING:
            continue
        try:
            heading, columns = RUN_KINDS[run_kind(run)]
            columns = FIRST_COLUMNS + columns + LAST_COLUMNS
            order = (list(RUN_KINDS).index(run_kind(run)), run["calls"], run["file"])
            rows.append((*order, heading, columns, [cell(run) for _, cell in columns]))
        except (KeyError, TypeError, ValueError) as error:
            sys.exit(f"{run['file']} is not a result of `visavis load`: {error!r}")
    text, previous_heading = "", None
    for _, _, _, heading, columns, cells in sorted(rows, key=lambda row: row[:3]):
        if heading != previous_heading:
            text += f"\n**{heading}**\n\n" + table_row(name for name, _ in columns)
            text += "|" + "---|" * len(columns) + "\n"
            previous_heading = heading
        text += table_row(cells)
    return text + "\n"


def recording_table(results):
    """The table of the cost of recordings, with the limits in its last row."""
    runs = [run for run in read_runs(results) if run_kind(run) == RECORDING]
    rows = []
    for run in sorted(runs, key=lambda run: (run["asked"]["record"], run["calls"], run["file"])):
        try:
            cost = run["recording"]
            rows.append(
                (
                    calls_cell(run),
                    run["asked"]["record"],
                    format_ms(cost["media_ms_per_call_second"], 3),
                    format_ms(cost["disk_ms_per_call_second"], 3),
                    format_ms(cost["call_ms_per_call_second"], 3),
                    format_ms(cost["delivery_ms_per_call_second"], 2),
                    format_number(cost["bytes_per_call_second"]),
                    format_number(cost["dropped_packets"]),
                    LAST_COLUMNS[0][1](run),
                )
            )
        except (KeyError, TypeError, ValueError) as error:
            sys.exit(f"{run['file']} is not a result of `visavis load --record`: {error!r}")
    media, call, delivery = (f"≤ {limit:g} ms" for limit in RECORDING_LIMITS)
    none = NO_VALUE
    rows.append(("limit", none, media, none, call, delivery, none, "0", none))
    head = (
        *("calls", "channels", "media threads", "disk thread", "both, during the call"),
        *("child process afterwards", "bytes", "packets dropped", "JSON"),
    )
    separator = "|" + "---|" * len(head) + "\n"
    return "\n" + table_row(head) + separator + "".join(map(table_row, rows)) + "\n"


def bench_table(results):
    """The table of the benches."""
    path = results / BENCHES
    run = json.loads(path.read_text()) if path.exists() else {"median_ns": {}}
    counts = run.get("instructions")
    if counts is None:
        rows = [(bench, format_time(ns)) for bench, ns in run["median_ns"].items()]
        return "\n| bench | CPU time |\n|---|---|\n" + "".join(map(table_row, rows)) + "\n"
    rows = [
        (
            bench,
            format_time(ns),
            # Thousands are separated by a narrow no-break space.
            f"{counts[bench]:,}".replace(",", "\u202f") if bench in counts else NO_VALUE,
        )
        for bench, ns in run["median_ns"].items()
    ]
    head = "\n| bench | CPU time | instructions |\n|---|---|---|\n"
    return head + "".join(map(table_row, rows)) + "\n"


def save_promises(report_path, results):
    """Stores the promised figures of a report of the end-to-end tests."""
    try:
        report = json.loads(report_path.read_text())
    except (OSError, ValueError) as error:
        sys.exit(f"{report_path}: {error}")
    promises = {
        name.removeprefix(PROMISE_PREFIX): figure
        for name, figure in report.items()
        if name.startswith(PROMISE_PREFIX)
    }
    if not promises:
        sys.exit(f"{report_path} contains no promised figure")
    summary = {
        "mode": "end-to-end",
        "promises": promises,
        "machine": report.get("machine"),
        "commit": git_commit(),
        "cpu_model": cpu_model(),
    }
    (results / PROMISES).write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")


def promise_table(results):
    """The table of the promised figures of the end-to-end tests."""
    path = results / PROMISES
    promises = json.loads(path.read_text())["promises"] if path.exists() else {}
    rows = [
        (name, f"{figure['measured']:.4g}", f"{figure['promised']:g}")
        for name, figure in promises.items()
    ]
    return "\n| | measured | promised |\n|---|---|---|\n" + "".join(map(table_row, rows)) + "\n"


def format_range(values, unit=""):
    """Formats the range from a minimum to a maximum."""
    low, high = values
    return f"{low:g}{unit}" if low == high else f"{low:g}–{high:g}{unit}"


def format_both(values):
    return " / ".join(f"{value:.0f}" for value in values) + " ms"


def comparison_table(results):
    """The targets and the figures of other engines, beside our largest runs of each kind in which
    no call failed."""
    path = results / PEERS
    if not path.exists():
        return "\n"
    peers = json.loads(path.read_text())["peers"]
    # In a soak, callers that were rejected and called again do not matter.
    runs = [run for run in read_runs(results) if not run["failed"] or run_kind(run) == "soak"]
    engine_runs, webrtc_runs, soaks = (
        sorted((run for run in runs if run_kind(run) == kind), key=lambda run: run["calls"])
        for kind in ("engine-only", "webrtc", "soak")
    )
    rows = []

    def peer_figures(name):
        return [peer[name] for peer in peers.values()]

    if engine_runs:
        one_call = engine_runs[0]["ms"]
        # The largest run whose p95 overhead is at most 100 ms above that of one call, and that has
        # no late frame.
        many_calls = [
            run
            for run in engine_runs
            if not run["late_audio_frames"]
            and run["ms"]["overhead"]["p95"] <= one_call["overhead"]["p95"] + 100
        ][-1]
        for label, name, target in (
            ("overhead", "overhead", "≤ 30 / 40 ms"),
            ("barge-in to silence", "barge_in", "≤ 260 / 280 ms"),
        ):
            ours, theirs = (
                (one_call[name]["p50"], one_call[name]["p95"]),
                peer_figures(f"{name}_ms"),
            )
            best = [min(values) for values in zip(*theirs, strict=True)]
            ratios = " / ".join(f"{b / o:.3g}" for b, o in zip(best, ours, strict=True))
            rows.append(
                (
                    f"{label} of one call, p50 / p95",
                    target,
                    format_both(ours),
                    *map(format_both, theirs),
                    ratios,
                )
            )
        no_ducking = ["do not duck"] * len(peers)
        duck_p95 = format_ms(one_call["duck"]["p95"])
        rows.append(("ducked, p95", "≤ 150 ms", duck_p95, *no_ducking, NO_VALUE))
        theirs = peer_figures("calls_per_core")
        rows.append(
            (
                "calls on one core without a late frame",
                "≥ 800",
                str(many_calls["calls"]),
                *map(format_range, theirs),
                f"{many_calls['calls'] / max(map(max, theirs)):.2g}",
            )
        )
        ours, theirs = (
            many_calls["server"]["cpu_ms_per_call_second"],
            peer_figures("cpu_ms_per_call_second"),
        )
        rows.append(
            (
                f"CPU a call-second, {many_calls['calls']} calls, scripted models with it",
                "≤ 1 ms",
                format_ms(ours, 2),
                *(format_range(values, " ms") for values in theirs),
                f"{min(map(min, theirs)) / ours:.2g}",
            )
        )
    if webrtc_runs:
        largest, no_video = webrtc_runs[-1], ["no face without a GPU"] * len(peers)
        video, server = largest["video"], largest["server"]
        rows.append(
            (
                "full calls on one core: WebRTC, Opus both ways, a 512² face at 25 fps",
                "≥ 120",
                str(largest["calls"]),
                *no_video,
                NO_VALUE,
            )
        )
        rows.append(
            (
                "their CPU a call-second",
                "≤ 8.3 ms",
                format_ms(server["cpu_ms_per_call_second"], 1),
                *no_video,
                NO_VALUE,
            )
        )
        rows.append(
            (
                "their pictures a second while speaking; sound late",
                "≥ 24; < .1 %",
                f"{video['fps_speaking']:g}; {100 * largest['late_audio']:.2g} %",
                *no_video,
                NO_VALUE,
            )
        )
        theirs = peer_figures("memory_mb_per_call")
        rows.append(
            (
                "their memory a call, beyond the first",
                "≤ 1.5 MB",
                f"{server['rss_bytes_per_call'] / 1e6:.2f} MB",
                *(format_range(values, " MB") + ", no face" for values in theirs),
                NO_VALUE,
            )
        )
    if soaks:
        rows.append(
            (
                f"growth of memory over the last half of {soaks[-1]['soak']['calls']} calls",
                "≤ 5 %",
                growth_cell(soaks[-1]),
                *["leaks are reported"] * len(peers),
                NO_VALUE,
            )
        )
    promises_path = results / PROMISES
    promises = json.loads(promises_path.read_text())["promises"] if promises_path.exists() else {}
    start = promises.get("from exec to listening, s")
    if start:
        theirs = peer_figures("start_s")
        rows.append(
            (
                "from exec to listening (others: to the first session)",
                "≤ .2 s",
                f"{start['measured']:.2g} s",
                *(f"{seconds:g} s" for seconds in theirs),
                f"{min(theirs) / start['measured']:.2g}",
            )
        )
    head = ("", "target", "Visavis", *peers, "ratio")
    separator = "|" + "---|" * len(head) + "\n"
    return "\n" + table_row(head) + separator + "".join(map(table_row, rows)) + "\n"


def profile_tables(results):
    """The tables with the CPU time of threads."""
    path = results / PROFILE
    if not path.exists():
        return "\n"
    run, text = json.loads(path.read_text()), ""
    titles = {"media": "Media thread", "net": "The scripted models' threads"}
    for thread, groups in run["threads"].items():
        title = f"{titles.get(thread, thread)}, {run['calls']} calls"
        text += f"\n| {title} | share of its CPU time | the most of it |\n|---|---|---|\n"
        for name, group in groups.items():
            symbols = ", ".join(f"`{short_symbol(symbol)}`" for symbol in group["most"][:2])
            text += table_row((name, f"{100 * group['share']:.0f} %", symbols))
    return text + "\n"


def short_symbol(symbol):
    """The beginning of a symbol's name, without its hash."""
    return re.sub(r"::h[0-9a-f]{16}$", "", symbol).replace("|", "\\|")[:60]


# Runs over HTTP requests that a report contains.
REQUEST_RUNS = (("openai", "openai", "openai"), ("groq", "anthropic", "custom"))


def latency_cell(figure):
    return f"{figure['p50']:.2f} / {figure['p95']:.2f} ms" if figure else NO_VALUE


def provider_rows(report, runs, kinds, directions):
    """The rows of runs of one transport, with the limits in the last one."""
    rows = []
    for run in runs:
        # A run that was not measured has names only.
        cpu, latencies = run.get("cpu_ms_per_call_second"), run.get("ms", {})
        rows.append(
            (
                ", ".join(run[kind] for kind in kinds),
                {True: "yes", False: "no"}.get(run.get("tls"), NO_VALUE),
                format_ms(cpu and cpu["sum"], 2),
                format_ms(cpu and cpu["media"], 2),
                *(latency_cell(latencies.get(name)) for name in directions.values()),
            )
        )
    limits = report["limits"]
    cpu_limits = " / ".join(f"{limit:g}" for limit in limits["cpu"])
    latency = f"≤ {limits['p50']:g} / {limits['p95']:g} ms"
    rows.append(("limit", "no / yes", f"≤ {cpu_limits} ms", NO_VALUE, *[latency] * len(directions)))
    head = (
        ", ".join(kind.upper() for kind in kinds),
        "TLS, resampling",
        "CPU a call-second",
        "of it media thread",
        *(f"{name} p50 / p95" for name in directions),
    )
    return [head, *rows]


def markdown_table(rows):
    separator = "|" + "---|" * len(rows[0]) + "\n"
    return table_row(rows[0]) + separator + "".join(map(table_row, rows[1:])) + "\n"


def provider_table(results):
    """The tables of the adapters of hosted providers, one for each transport."""
    path = results / PROVIDERS
    if not path.exists():
        return "\n"
    report = json.loads(path.read_text())
    stt = {"user's audio": "stt_out", "transcripts": "stt_in"}
    llm = {"questions": "llm_out", "answers": "llm_in"}
    tts = {"agent's text": "tts_out", "agent's speech": "tts_in"}
    sockets = [run for run in report["runs"] if not run.get("llm")]
    rows = provider_rows(report, sockets, ("stt", "tts"), stt | tts)
    packings = [run["ms"]["stt_packing"] for run in sockets]
    packing_cells = [f"{packing['p50']:.0f} / {packing['p95']:.0f} ms" for packing in packings]
    cells = ["packing p50 / p95", *packing_cells, NO_VALUE]
    text = markdown_table([(*row, cell) for row, cell in zip(rows, cells, strict=True)])
    kinds = ("stt", "llm", "tts")
    requests = [run for run in report["runs"] if run.get("llm")]
    requests = requests or [dict(zip(kinds, names, strict=True)) for names in REQUEST_RUNS]
    rows = provider_rows(report, requests, kinds, stt | llm | tts)
    return f"\n**Over WebSockets**\n\n{text}**Over HTTP requests**\n\n" + markdown_table(rows)


def provider_latency_table(results):
    """One row for each adapter: the latency that it adds to and from the vendor."""
    path = results / PROVIDERS
    if not path.exists():
        return "\n"
    latencies = {}
    for run in json.loads(path.read_text())["runs"]:
        for kind in ("stt", "llm", "tts"):
            figures = [run["ms"].get(f"{kind}_{direction}") for direction in ("out", "in")]
            if run[kind] and run["tls"] and all(figures):
                transport = "HTTP requests" if run["llm"] else "WebSocket"
                latencies.setdefault((kind, run[kind]), (transport, *figures))
    rows = [
        (kind.upper(), f"`{provider}`", transport, *map(latency_cell, figures))
        for (kind, provider), (transport, *figures) in sorted(latencies.items())
    ]
    head = ("kind", "provider", "transport", "to the vendor p50 / p95", "from the vendor p50 / p95")
    return "\n" + markdown_table([head, *rows])


def format_time(ns):
    """Formats a time with two digits."""
    for unit, size in (("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.{1 if ns < 10 * size else 0}f} {unit}"
    return f"{ns:.0f} ns"


def table_row(cells):
    return "| " + " | ".join(cells) + " |\n"


def replace_section(document, name, text):
    """Returns the document with `text` between the two markers of this name."""
    begin, end = f"<!-- {name}: written by `make perf-table` -->\n", f"<!-- end of {name} -->"
    has_markers = document.count(begin) == 1 and document.count(end) == 1
    if not has_markers or document.index(begin) > document.index(end):
        sys.exit(f"the document needs each marker once, in this order: {begin.strip()} {end}")
    return document.split(begin)[0] + begin + text + end + document.split(end)[1]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--keep", type=Path, metavar="REPORT")
    parser.add_argument("--document", type=Path, action="append")
    parser.add_argument("--results", type=Path, default=ROOT / "docs" / "results")
    arguments = parser.parse_args()
    if arguments.keep:
        save_promises(arguments.keep, arguments.results)
    for document in arguments.document or [ROOT / "docs" / name for name in SECTIONS]:
        write_document(document, arguments.results, arguments.check)


def write_document(document, results, is_check):
    """Replaces the tables of a document, or ends the script if one differs."""
    try:
        old = new = document.read_text()
    except OSError as error:
        sys.exit(str(error))
    if document.name not in SECTIONS:
        sys.exit(f"{document} has no tables: the documents are {', '.join(SECTIONS)}")
    for name, write_table in SECTIONS[document.name].items():
        new = replace_section(new, name, write_table(results))
    if not is_check:
        document.write_text(new)
    elif new != old:
        sys.exit(f"{document} differs from the files in {results}: run `make perf-table`")


# The documents in docs/, with the function that writes each table.
SECTIONS = {
    "performance.md": {
        "load runs": load_tables,
        "beside others": comparison_table,
        "benches": bench_table,
        "profile": profile_tables,
        "providers": provider_table,
        "recordings": recording_table,
        "promises": promise_table,
    },
    "speech.md": {"added latency": provider_latency_table},
}


if __name__ == "__main__":
    main()
