"""The document of measured figures agrees with its files, and a broken budget is reported."""

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

TABLE, BUDGETS = ROOT / "scripts" / "perf-table.py", ROOT / "scripts" / "budgets.py"


def run(script, *arguments, **env):
    return subprocess.run(
        [sys.executable, script, *map(str, arguments)], capture_output=True, text=True, env=os.environ | env, timeout=60
    )


def test_the_document_says_what_the_measured_files_say():
    checked = run(TABLE, "--check")
    assert checked.returncode == 0, checked.stderr


def test_a_document_that_says_something_else_is_noticed_and_mended(tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    found = json.loads((ROOT / "docs" / "results" / "engine-only-1.json").read_text())
    found["ms"]["overhead"] |= {"p50": 12.4, "p95": 34.6}
    (results / "other.json").write_text(json.dumps(found))
    (results / "long-faces.json").write_text(json.dumps({"part": "faces", "tests": {}}))
    (results / "benches.json").write_text(
        json.dumps({"mode": "benches", "median_ns": {"a step": 12345.6, "other": 1}, "instructions": {"a step": 98765}})
    )
    document = tmp_path / "performance.md"
    document.write_text((ROOT / "docs" / "performance.md").read_text())
    where = ("--document", document, "--results", results)
    assert run(TABLE, "--check", *where).returncode == 1
    assert run(TABLE, *where).returncode == 0 and run(TABLE, "--check", *where).returncode == 0
    text = document.read_text()
    assert (
        "| 1 | 12 / 35 ms |" in text and "| a step | 12 µs | 98\u202f765 |" in text and "| other | 1 ns | – |" in text
    )
    (results / "benches.json").write_text(json.dumps({"mode": "benches", "median_ns": {"a step": 12345.6}}))
    assert run(TABLE, *where).returncode == 0 and "| a step | 12 µs |\n" in document.read_text()


def dump(folder, counts):
    """What Callgrind writes for benches of ten iterations, and at a program's end."""
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    triggers = {f"Client Request: 10 x {bench}": round(10 * count) for bench, count in counts.items()} | {
        "Program termination": 10**12
    }
    for number, (trigger, count) in enumerate(triggers.items()):
        (folder / f"7.{number}").write_text(
            f"version: 1\ncmd: steps --bench\ndesc: Trigger: {trigger}\n\nevents: Ir\nsummary: 0\n\nfn=(1) a\n+3 12\n\ntotals: {count}\n"
        )


@pytest.fixture
def benches(tmp_path):
    """Criterion's files of a run in which every bench took half of its budget."""

    def measure(bench, ns):
        new = tmp_path / str(len(list(tmp_path.iterdir()))) / "new"
        new.mkdir(parents=True)
        (new / "benchmark.json").write_text(json.dumps({"full_id": bench}))
        (new / "estimates.json").write_text(json.dumps({"median": {"point_estimate": ns}}))
        return new

    def compiled_by(version):
        measure.rustc.write_text(f"#!/bin/sh\necho 'rustc {version} (0123456 2026-01-01)'\n")
        measure.rustc.chmod(0o755)

    measure.compiled_by = compiled_by
    tables = tomllib.loads((ROOT / "benches" / "budgets.toml").read_text())
    measure.limits, measure.counts = tables["cpu_time"], tables["instructions"]
    units = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
    measure.new = {}
    for bench, text in measure.limits.items():
        value, unit = text.split()
        measure.new[bench] = measure(bench, float(value) * units[unit] / 2)
    measure.dump = lambda counts: dump(tmp_path / "instructions", counts)
    measure.rustc = tmp_path / "rustc"
    measure.compiled_by(tables["rustc"])
    measure.check = lambda *arguments: run(BUDGETS, *arguments, CRITERION_HOME=str(tmp_path), RUSTC=str(measure.rustc))
    return measure


def test_kept_budgets_are_told(benches):
    result = benches.check()
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(" 50 %") == len(benches.limits) > 20


def test_a_broken_budget_and_a_bench_or_budget_alone_are_told(benches):
    first, second, *_ = benches.limits
    (benches.new[first] / "estimates.json").write_text(json.dumps({"median": {"point_estimate": 1e12}}))
    (benches.new[second] / "estimates.json").unlink()
    benches("nobody's", 1)
    result = benches.check()
    assert result.returncode == 1
    for line in (f"BROKEN  {first}: ", f"MISSED  {second}: ", "FREE    nobody's: "):
        assert result.stdout.count(line) == 1, result.stdout


def test_counted_instructions_are_held_against_limits_of_their_own(benches):
    first, second, third, *_ = benches.counts
    benches.dump({name: limit / 2 for name, limit in benches.counts.items()})
    result = benches.check()
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count(" 50 %") == len(benches.limits) + len(benches.counts)
    # A tenth too many is enough, and there is no slack.
    benches.dump({first: benches.counts[first] * 1.1, second: benches.counts[second], "nobody's": 1})
    result = benches.check("--slack", "3")
    assert result.returncode == 1
    for line in (
        f"BROKEN  {first}: ",
        f"MISSED  {third}: a limit of instructions",
        "FREE    nobody's: a bench without a limit of instructions",
    ):
        assert result.stdout.count(line) == 1, result.stdout
    assert f"  {second}: " not in result.stdout


def test_counts_of_another_compiler_are_told_and_not_judged(benches):
    first, *_ = benches.counts
    benches.dump(benches.counts | {first: benches.counts[first] * 1.1})
    benches.compiled_by("1.0.0")
    result = benches.check()
    assert (
        result.returncode == 0
        and result.stdout.count(f"BROKEN  {first}: ") == 1
        and "this is 1.0.0: not judged" in result.stdout
    ), result.stdout


def test_new_limits_of_instructions_have_room(benches):
    first, *_ = benches.limits
    benches.dump({first: 1000, "nobody's": 123_456})
    result = benches.check("--limits").stdout
    assert tomllib.loads(result[result.index("[instructions]") :].split("\nMISSED")[0]) == {
        "instructions": {first: 1120, "nobody's": 139_000}
    }


@pytest.fixture
def runner(benches, tmp_path):
    """A `cargo` that measures what the test tells it: the time of each bench in each of its runs,
    in ns, and under a `valgrind` the instructions."""

    def run_benches(*runs, counts=None, what="run"):
        (tmp_path / "runs.json").write_text(json.dumps(runs))
        (tmp_path / "counts.json").write_text(json.dumps(counts))
        programs = tmp_path / "programs"
        programs.mkdir()
        (programs / "git").symlink_to(shutil.which("git"))
        for name in ["cargo"] if counts is None else ["cargo", "valgrind"]:
            (programs / name).write_text(f"#!{sys.executable}\n{inspect.getsource(dump)}{RUNNER}")
            (programs / name).chmod(0o755)
        result = run(
            BUDGETS,
            what,
            "--out",
            tmp_path / "found.json",
            CRITERION_HOME=str(tmp_path),
            PATH=str(programs),
            RUSTC=str(benches.rustc),
        )
        run_benches.stored = json.loads((tmp_path / "found.json").read_text())
        arguments_file = tmp_path / "asked.json"
        return (
            result,
            run_benches.stored["median_ns"],
            json.loads(arguments_file.read_text()) if arguments_file.exists() else [],
        )

    return run_benches


# Writes what Criterion would write, for all benches or for those that the last argument names.
# Records the arguments.
RUNNER = """
import json, os, pathlib, re, sys
home = pathlib.Path(os.environ["CRITERION_HOME"])
if "--config" in sys.argv:
    runner = json.loads(sys.argv[sys.argv.index("--config") + 1].split("runner=")[1])
    out = pathlib.Path(runner[-1].removeprefix("--callgrind-out-file="))
    counts = json.loads((home / "counts.json").read_text())
    sys.exit(counts if isinstance(counts, int) else dump(out.parent, counts))
asked = home / "asked.json"
before = json.loads(asked.read_text()) if asked.exists() else []
asked.write_text(json.dumps([*before, sys.argv[sys.argv.index("--") + 1:]]))
only = re.compile(sys.argv[-1] if sys.argv[-1].startswith("^") else "")
for bench, ns in json.loads((home / "runs.json").read_text())[len(before)].items():
    if only.search(bench):
        new = home / str(abs(hash(bench))) / "new"
        new.mkdir(parents=True)
        (new / "benchmark.json").write_text(json.dumps({"full_id": bench}))
        (new / "estimates.json").write_text(json.dumps({"median": {"point_estimate": ns}}))
"""


def test_a_bench_over_its_budget_is_run_again_and_only_that(benches, runner):
    first, *others = benches.limits
    fast = dict.fromkeys(benches.limits, 1)
    result, found, run_arguments = runner(fast | {first: 1e12}, fast | {first: 2.0, others[0]: 3.0}, {})
    assert result.returncode == 0, result.stdout + result.stderr
    assert len(run_arguments) == 2 and run_arguments[0] == [] and re.fullmatch(run_arguments[1][0], first), (
        run_arguments
    )
    assert found[first] == 2.0 and found[others[0]] == 1, "what was not run again keeps its time"


def test_a_bench_that_stays_over_its_budget_fails(benches, runner):
    first = next(iter(benches.limits))
    slow = dict.fromkeys(benches.limits, 1) | {first: 1e12}
    result, found, run_arguments = runner(slow, slow, slow | {first: 1e11})
    assert result.returncode == 1, result.stdout
    assert result.stdout.count(f"BROKEN  {first}: ") == 1 and len(run_arguments) == 3 and found[first] == 1e11


def test_what_an_earlier_run_measured_is_forgotten(benches, runner):
    result, found, _ = runner({"nobody's": 1})
    assert result.returncode == 1 and result.stdout.count("MISSED") == len(benches.limits), result.stdout


def test_without_valgrind_a_sentence_says_that_nothing_is_counted(benches, runner):
    result, _, _ = runner(dict.fromkeys(benches.limits, 1))
    assert result.returncode == 0, result.stdout + result.stderr
    assert result.stdout.count("Valgrind is not installed: no instructions are counted") == 1
    assert "instructions" not in runner.stored


needs_x86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="instructions are counted on x86-64")


@needs_x86
def test_with_valgrind_instructions_are_counted_and_kept(benches, runner):
    first, *_ = benches.counts
    benches.dump({"of an earlier run": 1})
    result, _, run_arguments = runner(dict.fromkeys(benches.limits, 1), counts=benches.counts)
    assert result.returncode == 0, result.stdout + result.stderr
    assert (
        len(run_arguments) == 1
        and runner.stored["instructions"] == benches.counts
        and "not installed" not in result.stdout
    )


@needs_x86
def test_a_run_under_valgrind_that_counts_nothing_fails(benches, runner):
    result, _, _ = runner(dict.fromkeys(benches.limits, 1), counts={})
    assert result.returncode == 1 and result.stdout.count("MISSED") == len(benches.counts), result.stdout


@needs_x86
def test_a_broken_limit_of_instructions_fails_and_is_named(benches, runner):
    first, *_ = benches.counts
    result, _, _ = runner(dict.fromkeys(benches.limits, 1), counts=benches.counts | {first: benches.counts[first] + 1})
    assert result.returncode == 1 and result.stdout.count("BROKEN") == result.stdout.count(f"BROKEN  {first}: ") == 1, (
        result.stdout
    )


@needs_x86
def test_instructions_alone_are_judged_without_a_time(benches, runner):
    first, *_ = benches.counts
    result, found, run_arguments = runner(counts=benches.counts | {first: benches.counts[first] + 1}, what="count")
    assert result.returncode == 1 and result.stdout.count("BROKEN") == result.stdout.count(f"BROKEN  {first}: ") == 1, (
        result.stdout
    )
    assert "MISSED" not in result.stdout and not found and not run_arguments, "a time was measured"


@needs_x86
def test_without_valgrind_a_count_fails_and_says_what_to_install(benches):
    result = run(BUDGETS, "count", CRITERION_HOME=str(benches.rustc.parent), PATH="/nowhere")
    assert result.returncode == 1 and "apt-get install valgrind" in result.stderr, result
