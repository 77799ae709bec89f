"""docs/performance.md agrees with the result files, and a bench over its limit is reported."""

import inspect
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib

import pytest

from kit.server import ROOT

PERF_TABLE_SCRIPT = ROOT / "scripts" / "perf-table.py"
BUDGETS_SCRIPT = ROOT / "scripts" / "budgets.py"


def run(script, *arguments, **env):
    """Runs a script with additional environment variables."""
    return subprocess.run(
        [sys.executable, script, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=os.environ | env,
        timeout=60,
        check=False,
    )


def test_the_document_agrees_with_the_result_files():
    result = run(PERF_TABLE_SCRIPT, "--check")
    assert result.returncode == 0, result.stderr


def test_an_outdated_document_is_detected_and_rewritten(tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    load_run = json.loads((ROOT / "docs" / "results" / "engine-only-1.json").read_text())
    load_run["ms"]["overhead"] |= {"p50": 12.4, "p95": 34.6}
    (results / "other.json").write_text(json.dumps(load_run))
    recorded_run = load_run | {
        "mode": "webrtc",
        "asked": load_run["asked"] | {"record": "split"},
        "recording": {
            "media_ms_per_call_second": 0.0123,
            "disk_ms_per_call_second": 0.2,
            "call_ms_per_call_second": 0.2123,
            "delivery_ms_per_call_second": 7.345,
            "bytes_per_call_second": 20123,
            "dropped_packets": 0,
        },
    }
    (results / "recorded-1.json").write_text(json.dumps(recorded_run))
    (results / "long-faces.json").write_text(json.dumps({"part": "faces", "tests": {}}))
    (results / "benches.json").write_text(
        json.dumps(
            {
                "mode": "benches",
                "median_ns": {"a step": 12345.6, "other": 1},
                "instructions": {"a step": 98765},
            }
        )
    )
    providers = json.loads((ROOT / "docs" / "results" / "providers.json").read_text())
    providers["runs"][0]["cpu_ms_per_call_second"] |= {"sum": 0.123, "media": 0.045}
    (results / "providers.json").write_text(json.dumps(providers))
    document = tmp_path / "performance.md"
    document.write_text((ROOT / "docs" / "performance.md").read_text())
    paths = ("--document", document, "--results", results)
    assert run(PERF_TABLE_SCRIPT, "--check", *paths).returncode == 1
    assert (
        run(PERF_TABLE_SCRIPT, *paths).returncode == 0
        and run(PERF_TABLE_SCRIPT, "--check", *paths).returncode == 0
    )
    text = document.read_text()
    assert (
        "| 1 | 12 / 35 ms |" in text
        and "| deepgram, elevenlabs | no | 0.12 ms | 0.04 ms |" in text
        and "| 1 | split | 0.012 ms | 0.200 ms | 0.212 ms | 7.34 ms | 20123 | 0 |" in text
        and text.count("recorded-1.json](") == 1
        and "| a step | 12 µs | 98\u202f765 |" in text
        and "| other | 1 ns | – |" in text
    )
    (results / "benches.json").write_text(
        json.dumps({"mode": "benches", "median_ns": {"a step": 12345.6}})
    )
    assert (
        run(PERF_TABLE_SCRIPT, *paths).returncode == 0
        and "| a step | 12 µs |\n" in document.read_text()
    )


def write_callgrind_files(folder, counts):
    """Writes the files of Callgrind: one per bench of ten iterations, one at the end of the
    program."""
    folder.mkdir(exist_ok=True)
    for file in folder.iterdir():
        file.unlink()
    totals = {
        f"Client Request: 10 x {bench}": round(10 * count) for bench, count in counts.items()
    } | {"Program termination": 10**12}
    for number, (trigger, total) in enumerate(totals.items()):
        (folder / f"7.{number}").write_text(
            f"version: 1\ncmd: steps --bench\ndesc: Trigger: {trigger}\n\nevents: Ir\n"
            f"summary: 0\n\nfn=(1) a\n+3 12\n\ntotals: {total}\n"
        )


@pytest.fixture
def bench_results(tmp_path):
    """Criterion's files of a run in which every bench took half of its limit."""

    def add_bench(bench, ns):
        """Adds a measured bench. Returns its folder."""
        folder = tmp_path / str(len(list(tmp_path.iterdir()))) / "new"
        folder.mkdir(parents=True)
        (folder / "benchmark.json").write_text(json.dumps({"full_id": bench}))
        (folder / "estimates.json").write_text(json.dumps({"median": {"point_estimate": ns}}))
        return folder

    def set_compiler(version):
        """Sets the version that the compiler prints."""
        add_bench.rustc.write_text(f"#!/bin/sh\necho 'rustc {version} (0123456 2026-01-01)'\n")
        add_bench.rustc.chmod(0o755)

    add_bench.set_compiler = set_compiler
    tables = tomllib.loads((ROOT / "benches" / "budgets.toml").read_text())
    add_bench.limits, add_bench.count_limits = tables["cpu_time"], tables["instructions"]
    units = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
    add_bench.folders = {}
    for bench, text in add_bench.limits.items():
        value, unit = text.split()
        add_bench.folders[bench] = add_bench(bench, float(value) * units[unit] / 2)
    add_bench.write_counts = lambda counts: write_callgrind_files(tmp_path / "instructions", counts)
    add_bench.rustc = tmp_path / "rustc"
    add_bench.set_compiler(tables["rustc"])
    environment = {"CRITERION_HOME": str(tmp_path), "RUSTC": str(add_bench.rustc)}
    add_bench.check = lambda *arguments: run(BUDGETS_SCRIPT, *arguments, **environment)
    return add_bench


def test_a_run_within_its_limits_passes(bench_results):
    result = bench_results.check()
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(" 50 %") == len(bench_results.limits) > 20


def test_an_exceeded_limit_and_a_bench_or_limit_without_the_other_are_reported(bench_results):
    first, second, *_ = bench_results.limits
    (bench_results.folders[first] / "estimates.json").write_text(
        json.dumps({"median": {"point_estimate": 1e12}})
    )
    (bench_results.folders[second] / "estimates.json").unlink()
    bench_results("unlisted", 1)
    result = bench_results.check()
    assert result.returncode == 1
    for line in (
        f"EXCEEDED  {first}: ",
        f"NOT RUN   {second}: ",
        "NO LIMIT  unlisted: ",
    ):
        assert result.stdout.count(line) == 1, result.stdout


def test_instruction_counts_have_limits_of_their_own(bench_results):
    first, second, third, *_ = bench_results.count_limits
    bench_results.write_counts(
        {name: limit / 2 for name, limit in bench_results.count_limits.items()}
    )
    result = bench_results.check()
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(" 50 %") == len(bench_results.limits) + len(
        bench_results.count_limits
    )
    # A count of 1.1 times the limit fails: slack does not apply to counts.
    bench_results.write_counts(
        {
            first: bench_results.count_limits[first] * 1.1,
            second: bench_results.count_limits[second],
            "unlisted": 1,
        }
    )
    result = bench_results.check("--slack", "3")
    assert result.returncode == 1
    for line in (
        f"EXCEEDED  {first}: ",
        f"NOT RUN   {third}: a limit of instructions",
        "NO LIMIT  unlisted: a bench without a limit of instructions",
    ):
        assert result.stdout.count(line) == 1, result.stdout
    assert f"  {second}: " not in result.stdout


def test_counts_of_another_compiler_are_printed_but_not_checked(bench_results):
    first, *_ = bench_results.count_limits
    bench_results.write_counts(
        bench_results.count_limits | {first: bench_results.count_limits[first] * 1.1}
    )
    bench_results.set_compiler("1.0.0")
    result = bench_results.check()
    assert (
        result.returncode == 0
        and result.stdout.count(f"EXCEEDED  {first}: ") == 1
        and "this is 1.0.0: not checked" in result.stdout
    ), result.stdout


def test_new_instruction_limits_have_a_margin(bench_results):
    first, *_ = bench_results.limits
    bench_results.write_counts({first: 1000, "unlisted": 123_456})
    result = bench_results.check("--limits").stdout
    assert tomllib.loads(result[result.index("[instructions]") :].split("\nNOT RUN")[0]) == {
        "instructions": {first: 1120, "unlisted": 139_000}
    }


@pytest.fixture
def fake_cargo(bench_results, tmp_path):
    """Runs the script with a fake `cargo`, which reports given times and instruction counts."""

    def run_benches(*runs, counts=None, what="run"):
        """`runs`: the time in ns of each bench, by run. `counts`: the instructions of each bench
        under a fake `valgrind`, or the exit code; without it Valgrind is not installed. Returns the
        result of the script, the stored medians and the arguments of each run."""
        (tmp_path / "runs.json").write_text(json.dumps(runs))
        (tmp_path / "counts.json").write_text(json.dumps(counts))
        programs = tmp_path / "programs"
        programs.mkdir()
        (programs / "git").symlink_to(shutil.which("git"))
        for name in ["cargo"] if counts is None else ["cargo", "valgrind"]:
            (programs / name).write_text(
                f"#!{sys.executable}\n{inspect.getsource(write_callgrind_files)}{FAKE_CARGO}"
            )
            (programs / name).chmod(0o755)
        result = run(
            BUDGETS_SCRIPT,
            what,
            "--out",
            tmp_path / "stored.json",
            CRITERION_HOME=str(tmp_path),
            PATH=str(programs),
            RUSTC=str(bench_results.rustc),
        )
        run_benches.stored = json.loads((tmp_path / "stored.json").read_text())
        arguments_file = tmp_path / "arguments.json"
        return (
            result,
            run_benches.stored["median_ns"],
            json.loads(arguments_file.read_text()) if arguments_file.exists() else [],
        )

    return run_benches


# Writes the files that Criterion writes, for all benches or for those that match the last argument,
# and records the arguments.
FAKE_CARGO = """
import json, os, pathlib, re, sys
home = pathlib.Path(os.environ["CRITERION_HOME"])
if "--config" in sys.argv:
    runner = json.loads(sys.argv[sys.argv.index("--config") + 1].split("runner=")[1])
    out = pathlib.Path(runner[-1].removeprefix("--callgrind-out-file="))
    counts = json.loads((home / "counts.json").read_text())
    sys.exit(counts if isinstance(counts, int) else write_callgrind_files(out.parent, counts))
recorded = home / "arguments.json"
earlier_runs = json.loads(recorded.read_text()) if recorded.exists() else []
recorded.write_text(json.dumps([*earlier_runs, sys.argv[sys.argv.index("--") + 1:]]))
selected = re.compile(sys.argv[-1] if sys.argv[-1].startswith("^") else "")
for bench, ns in json.loads((home / "runs.json").read_text())[len(earlier_runs)].items():
    if selected.search(bench):
        folder = home / str(abs(hash(bench))) / "new"
        folder.mkdir(parents=True)
        (folder / "benchmark.json").write_text(json.dumps({"full_id": bench}))
        (folder / "estimates.json").write_text(json.dumps({"median": {"point_estimate": ns}}))
"""


def test_only_a_bench_over_its_limit_runs_again(bench_results, fake_cargo):
    first, *others = bench_results.limits
    fast = dict.fromkeys(bench_results.limits, 1)
    result, medians, run_arguments = fake_cargo(
        fast | {first: 1e12}, fast | {first: 2.0, others[0]: 3.0}, {}
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert (
        len(run_arguments) == 2
        and run_arguments[0] == []
        and re.fullmatch(run_arguments[1][0], first)
    ), run_arguments
    assert medians[first] == 2.0 and medians[others[0]] == 1, (
        "a bench that did not run again keeps its time"
    )


def test_a_bench_over_its_limit_in_all_runs_fails(bench_results, fake_cargo):
    first = next(iter(bench_results.limits))
    slow = dict.fromkeys(bench_results.limits, 1) | {first: 1e12}
    result, medians, run_arguments = fake_cargo(slow, slow, slow | {first: 1e11})
    assert result.returncode == 1, result.stdout
    assert (
        result.stdout.count(f"EXCEEDED  {first}: ") == 1
        and len(run_arguments) == 3
        and medians[first] == 1e11
    )


def test_measurements_of_an_earlier_run_are_deleted(bench_results, fake_cargo):
    result, _, _ = fake_cargo({"unlisted": 1})
    assert result.returncode == 1 and result.stdout.count("NOT RUN") == len(bench_results.limits), (
        result.stdout
    )


def test_without_valgrind_a_message_says_that_no_instructions_are_counted(
    bench_results, fake_cargo
):
    result, _, _ = fake_cargo(dict.fromkeys(bench_results.limits, 1))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("Valgrind is not installed: no instructions are counted") == 1
    assert "instructions" not in fake_cargo.stored


needs_x86 = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="instructions are counted on x86-64"
)


@needs_x86
def test_with_valgrind_instructions_are_counted_and_stored(bench_results, fake_cargo):
    assert bench_results.count_limits
    bench_results.write_counts({"of an earlier run": 1})
    result, _, run_arguments = fake_cargo(
        dict.fromkeys(bench_results.limits, 1), counts=bench_results.count_limits
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert (
        len(run_arguments) == 1
        and fake_cargo.stored["instructions"] == bench_results.count_limits
        and "not installed" not in result.stdout
    )


@needs_x86
def test_a_run_under_valgrind_that_counts_nothing_fails(bench_results, fake_cargo):
    result, _, _ = fake_cargo(dict.fromkeys(bench_results.limits, 1), counts={})
    assert result.returncode == 1 and result.stdout.count("NOT RUN") == len(
        bench_results.count_limits
    ), result.stdout


@needs_x86
def test_an_exceeded_instruction_limit_fails_and_is_named(bench_results, fake_cargo):
    first, *_ = bench_results.count_limits
    result, _, _ = fake_cargo(
        dict.fromkeys(bench_results.limits, 1),
        counts=bench_results.count_limits | {first: bench_results.count_limits[first] + 1},
    )
    assert (
        result.returncode == 1
        and result.stdout.count("EXCEEDED") == result.stdout.count(f"EXCEEDED  {first}: ") == 1
    ), result.stdout


@needs_x86
def test_counting_instructions_measures_no_time(bench_results, fake_cargo):
    first, *_ = bench_results.count_limits
    result, medians, run_arguments = fake_cargo(
        counts=bench_results.count_limits | {first: bench_results.count_limits[first] + 1},
        what="count",
    )
    assert (
        result.returncode == 1
        and result.stdout.count("EXCEEDED") == result.stdout.count(f"EXCEEDED  {first}: ") == 1
    ), result.stdout
    assert "NOT RUN" not in result.stdout and not medians and not run_arguments, (
        "a time was measured"
    )


@needs_x86
def test_without_valgrind_a_count_fails_and_names_the_package(bench_results):
    result = run(
        BUDGETS_SCRIPT, "count", CRITERION_HOME=str(bench_results.rustc.parent), PATH="/nowhere"
    )
    assert result.returncode == 1 and "apt-get install valgrind" in result.stderr, result
