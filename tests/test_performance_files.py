"""What the document of measured numbers says is what its files say, and a broken budget is told."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TABLE, BUDGETS = ROOT / "scripts" / "perf-table.py", ROOT / "scripts" / "budgets.py"


def run(script, *arguments, **env):
    return subprocess.run([sys.executable, script, *map(str, arguments)], capture_output=True, text=True, env=os.environ | env, timeout=60)


def test_the_document_says_what_the_measured_files_say():
    checked = run(TABLE, "--check")
    assert checked.returncode == 0, checked.stderr


def test_a_document_that_says_something_else_is_noticed_and_mended(tmp_path):
    results = tmp_path / "results"
    results.mkdir()
    found = json.loads((ROOT / "docs" / "results" / "engine-only-1.json").read_text())
    found["ms"]["overhead"] |= {"p50": 12.4, "p95": 34.6}
    (results / "other.json").write_text(json.dumps(found))
    (results / "benches.json").write_text(json.dumps({"mode": "benches", "median_ns": {"a step": 12345.6}}))
    document = tmp_path / "performance.md"
    document.write_text((ROOT / "docs" / "performance.md").read_text())
    where = ("--document", document, "--results", results)
    assert run(TABLE, "--check", *where).returncode == 1
    assert run(TABLE, *where).returncode == 0 and run(TABLE, "--check", *where).returncode == 0
    text = document.read_text()
    assert "| 1 | 12 / 35 ms |" in text and "| a step | 12 µs |" in text


@pytest.fixture
def benches(tmp_path):
    """Criterion's files of a run in which every bench took half of its budget."""

    def measure(bench, ns):
        new = tmp_path / str(len(list(tmp_path.iterdir()))) / "new"
        new.mkdir(parents=True)
        (new / "benchmark.json").write_text(json.dumps({"full_id": bench}))
        (new / "estimates.json").write_text(json.dumps({"median": {"point_estimate": ns}}))
        return new

    measure.limits = tomllib.loads((ROOT / "benches" / "budgets.toml").read_text())["cpu_time"]
    units = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
    measure.new = {}
    for bench, text in measure.limits.items():
        value, unit = text.split()
        measure.new[bench] = measure(bench, float(value) * units[unit] / 2)
    measure.check = lambda *arguments: run(BUDGETS, *arguments, CRITERION_HOME=str(tmp_path))
    return measure


def test_kept_budgets_are_told(benches):
    told = benches.check()
    assert told.returncode == 0, told.stdout + told.stderr
    assert told.stdout.count(" 50 %") == len(benches.limits) > 20


def test_a_broken_budget_and_a_bench_or_budget_alone_are_told(benches):
    first, second, *_ = benches.limits
    (benches.new[first] / "estimates.json").write_text(json.dumps({"median": {"point_estimate": 1e12}}))
    (benches.new[second] / "estimates.json").unlink()
    benches("nobody's", 1)
    told = benches.check()
    assert told.returncode == 1
    for line in (f"BROKEN  {first}: ", f"MISSED  {second}: ", "FREE    nobody's: "):
        assert told.stdout.count(line) == 1, told.stdout


@pytest.fixture
def runner(benches, tmp_path):
    """A `cargo` that measures what it is told to: the time of each bench in each of its runs, in ns."""

    def made(*runs):
        (tmp_path / "runs.json").write_text(json.dumps(runs))
        program = tmp_path / "cargo"
        program.write_text(f"#!{sys.executable}\n{RUNNER}")
        program.chmod(0o755)
        told = run(BUDGETS, "run", "--out", tmp_path / "found.json", CRITERION_HOME=str(tmp_path), CARGO=str(program))
        return told, json.loads((tmp_path / "found.json").read_text())["median_ns"], json.loads((tmp_path / "asked.json").read_text())

    return made


# Writes what criterion would, of all benches or of those that the last argument names, and keeps what it was asked.
RUNNER = """
import json, os, pathlib, re, sys
home = pathlib.Path(os.environ["CRITERION_HOME"])
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
    told, found, asked = runner(fast | {first: 1e12}, fast | {first: 2.0, others[0]: 3.0}, {})
    assert told.returncode == 0, told.stdout + told.stderr
    assert len(asked) == 2 and asked[0] == [] and re.fullmatch(asked[1][0], first), asked
    assert found[first] == 2.0 and found[others[0]] == 1, "what was not run again keeps its time"


def test_a_bench_that_stays_over_its_budget_fails(benches, runner):
    first = next(iter(benches.limits))
    slow = dict.fromkeys(benches.limits, 1) | {first: 1e12}
    told, found, asked = runner(slow, slow, slow | {first: 1e11})
    assert told.returncode == 1 or "not judged" in told.stdout, told.stdout
    assert told.stdout.count(f"BROKEN  {first}: ") == 1 and len(asked) == 3 and found[first] == 1e11


def test_what_an_earlier_run_measured_is_forgotten(benches, runner):
    told, found, _ = runner({"nobody's": 1})
    assert told.returncode == 1 and told.stdout.count("MISSED") == len(benches.limits), told.stdout
