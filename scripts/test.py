#!/usr/bin/env python3
"""Runs the tests: `make test-fast`, `make test` and `make test-long` (CONTRIBUTING.md describes the three tiers).

  scripts/test.py fast [CRATE]      tests of one crate, or of all, that need no browser and no real time
  scripts/test.py all [--only STEP] everything that CI needs, or one step of it
  scripts/test.py long [PART ...]   statistics, soaks, sweeps and budgets of time; each part writes docs/results/long-PART.json

Every step has a budget of CPU time in tests/budgets.toml: seconds of all its processes, so other load on the machine does not count.
`all` fails if a step takes more, and prints the slowest tests. The exit code is 1 if something failed, and 3 if only a budget was exceeded.
"""

import argparse
import ctypes
import datetime
import json
import os
import re
import resource
import subprocess
import sys
import time
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from budgets import commit, cpu_model

ROOT = Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
OUT = TARGET / "tests"
#: One profile and one feature set for all builds (docs/decisions/0002).
BUILD = ["--release", "--locked"]
WHOLE = ["--workspace"]
STEPS = ("compile", "rust", "instructions", "postgres", "e2e")
PARTS = ("network", "load", "faces", "store", "editor", "providers", "fuzz")
#: Rust test programs at a time. Some of them wait for sockets, and most of them use both cores for a moment only.
AT_ONCE = 3
SLOWEST = 20
#: Seconds that a part of the long tier may take.
LONGEST_PART = 1200
#: For the time of the whole run: two steps run side by side.
STARTED = time.monotonic()
#: Output lines that are printed of a program that fails.
TAIL = 200
#: The times of single tests are an unstable output of the test harness; this makes a stable one print them.
TIMED = {"RUSTC_BOOTSTRAP": "1"}
REPORT_TIME = ["-Zunstable-options", "--report-time"]
#: Tests of the control plane that prove the store: several servers on one database, leases, the one writer, crashes, outages, the outbox of
#: webhooks, lists, workspaces. Everything else asks nothing more of the store, and is tested on SQLite.
STORE = [
    *("servers::", "lifecycle::", "crash::", "large::", "lost_commit::", "outage::"),
    "custom_avatars::a_dead_server_s_drawing_is_taken_over",
    "erasure::a_trace_goes_that_lies_on_another_server_awake_or_asleep",
    "agents::lists_are_paged_searched_and_counted",
    "fairness::",
    "conversations::of_many_deletes_at_once_one_ends_the_call",
    "keys::a_key_opens_its_own_workspace_only",
    "scopes::a_key_s_last_use_is_kept_to_the_minute",
    "webhook_receivers::a_thousand_events_at_once_all_come_in_order",
    "webhook_receivers::what_memory_does_not_hold_is_read_again_and_comes_in_order",
    "webhooks::a_dead_letter_is_listed_with_its_tries_and_delivered_again",
    "webhooks::what_was_not_delivered_is_delivered_after_a_restart",
]
#: Crates of `test-fast` by the folder's name, with the packages that hold their tests.
CRATES = {
    "conversation": ["visavis-conversation", "visavis-conversation-tests"],
    "egress": ["visavis-egress"],
    "api": ["visavis-engine-api"],
    "knowledge": ["visavis-knowledge"],
    "character": ["visavis-character", "visavis-character-tests"],
    "models": ["visavis-models", "visavis-models-tests"],
    "engine": ["visavis-engine", "visavis-engine-tests"],
    "documents": ["visavis-documents"],
    "control-api": ["visavis-control-api", "visavis-control-api-tests"],
    "load": ["visavis-load"],
    "fuzz": ["visavis-fuzz"],
    "visavis": ["visavis"],
}


class Failed(Exception):
    """A step failed; what failed has been printed."""


@dataclass
class Program:
    """A test executable."""

    name: str
    path: str
    folder: Path


@dataclass
class Test:
    name: str
    seconds: float
    outcome: str


@dataclass
class Step:
    name: str
    wall: float = 0.0
    cpu: float = 0.0
    tests: list[Test] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def reap():
    """Waits for processes whose parents have ended, so that their CPU time is counted."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def cpu() -> float:
    """CPU seconds of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Measured:
    """Measures a step."""

    def __init__(self, name: str):
        self.step = Step(name)

    def __enter__(self) -> Step:
        print(f"== {self.step.name}", flush=True)
        self.wall, self.cpu = time.monotonic(), cpu()
        return self.step

    def __exit__(self, *_):
        reap()
        self.step.wall, self.step.cpu = time.monotonic() - self.wall, cpu() - self.cpu


@dataclass
class Build:
    """Compiled test programs."""

    programs: list[Program]
    #: Number of units that cargo compiles for them, whether now or before.
    units: int
    #: Whether all dependencies were compiled before.
    warm: bool


def compile_tests(selection: list[str]) -> Build:
    """Builds test programs and binaries."""
    lines = []
    # `cargo test` builds the binaries of packages with integration tests only. `--tests` leaves the examples out; `make lint` checks them.
    for what in (["test", "--no-run", "--tests"], *([["build", "--bins"]] if selection == WHOLE else [])):
        built = subprocess.run([CARGO, *what, *BUILD, *selection, "--message-format=json-render-diagnostics"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        if built.returncode:
            raise Failed("the tests do not compile")
        lines += built.stdout.splitlines()
    programs, units, warm = [], set(), True
    for line in lines:
        message = json.loads(line)
        if message["reason"] not in ("compiler-artifact", "build-script-executed"):
            continue
        target = message.get("target", {"name": "build script", "kind": []})
        known = (message["package_id"], target["name"], *target["kind"], message.get("profile", {}).get("test"))
        if known in units:
            continue
        units.add(known)
        own = message["package_id"].startswith("path+file:")
        warm &= own or message.get("fresh", True)
        if message["reason"] == "compiler-artifact" and message["executable"] and message["profile"]["test"]:
            folder = Path(message["manifest_path"]).parent
            place = str(folder.relative_to(ROOT)).removesuffix("/tests")
            name = target["name"] if "test" in target["kind"] else "unit"
            programs.append(Program(f"{'visavis' if place == '.' else place}/{name}", message["executable"], folder))
    if not programs:
        raise Failed("there is no test program")
    return Build(programs, len(units), warm)


def run_program(program: Program, arguments: list[str], step: Step, before: list[str] = [], log: str = "") -> bool:
    """Runs one test program and reads its results. Whether it passed."""
    OUT.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    # What tests write to the standard error must not stand amid a line of results.
    ran = subprocess.run([*before, program.path, *arguments, *REPORT_TIME], cwd=program.folder, env={**os.environ, **TIMED, "CARGO_MANIFEST_DIR": str(program.folder)},
                         capture_output=True, text=True, errors="replace")  # fmt: skip
    (OUT / f"{(log or program.name).replace('/', '-')}.log").write_text(ran.stdout + ran.stderr)
    count = 0
    for name, outcome, seconds in re.findall(r"^test (\S+)(?: - should panic)? \.\.\. (?:.*?)(ok|FAILED)(?: <([\d.]+)s>)?$", ran.stdout, re.M):
        step.tests.append(Test(f"{program.name}::{name}", float(seconds or 0), outcome))
        count += 1
        if outcome == "FAILED":
            step.failed.append(f"{program.name}::{name}")
    told = re.findall(r"^test result: \w+\. (\d+) passed; (\d+) failed", ran.stdout, re.M)
    # A line may be broken by what the code under test prints.
    if ran.returncode == 0 and sum(int(passed) + int(failed) for passed, failed in told) != count:
        step.failed.append(f"{program.name}: the results of {count} tests were read, and the program counts {told}")
    print(f"{'ok    ' if ran.returncode == 0 else 'FAILED'} {log or program.name}: {count} tests, {time.monotonic() - began:.1f} s", flush=True)
    if ran.returncode:
        print(*ran.stdout.splitlines()[-TAIL:], *ran.stderr.splitlines()[-TAIL:], sep="\n", flush=True)
        if not any(name.startswith(program.name) for name in step.failed):
            step.failed.append(f"{program.name}: exit code {ran.returncode}")
    return ran.returncode == 0


def run_programs(programs: list[Program], arguments: list[str], step: Step, at_once: int = AT_ONCE):
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda program: run_program(program, arguments, step), programs))


def run_command(command: list[str], step: Step, what: str, **environment: str):
    if subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}).returncode:
        step.failed.append(what)


def report() -> Path:
    """The figures of the end-to-end tests."""
    return Path(os.environ.get("E2E_OUT") or ROOT / "target/e2e") / "report.json"


def run_e2e(arguments: list[str], step: Step):
    """Runs end-to-end tests and reads their durations."""
    durations = OUT / "e2e-durations.json"
    OUT.mkdir(parents=True, exist_ok=True)
    durations.unlink(missing_ok=True)
    report().unlink(missing_ok=True)
    code = subprocess.run(["scripts/test-e2e.sh", *arguments], cwd=ROOT, env={**os.environ, "E2E_DURATIONS": str(durations.resolve())}).returncode
    for name, found in (json.loads(durations.read_text()) if durations.exists() else {}).items():
        step.tests.append(Test(f"e2e/{name}", found["seconds"], found["outcome"]))
    failed = [test.name for test in step.tests if test.outcome in ("failed", "error")]
    step.failed += failed or ([f"end-to-end tests: exit code {code}"] if code else [])


def store(programs: list[Program], step: Step, filters: list[str], log: str):
    api = next(program for program in programs if program.name == "control-api/api")
    listed = subprocess.run([api.path, "--list"], cwd=api.folder, stdout=subprocess.PIPE, text=True).stdout
    step.failed += [f"{log}: no test is named {name}" for name in filters if not name.startswith("-") and name not in listed]
    run_program(api, filters, step, before=[str(ROOT / "scripts/with-postgres.sh")], log=log)


class Counting:
    """Counts the instructions of the benches, beside other tests: their load changes no count."""

    def __init__(self):
        print("== instructions", flush=True)
        self.step, self.began = Step("instructions"), time.monotonic()
        (OUT / "instructions.log").parent.mkdir(parents=True, exist_ok=True)
        self.log = (OUT / "instructions.log").open("w+")
        self.process = subprocess.Popen(["scripts/budgets.py", "count"], cwd=ROOT, stdout=self.log, stderr=self.log)

    def finish(self) -> Step:
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.step.wall, self.step.cpu = time.monotonic() - self.began, used.ru_utime + used.ru_stime
        self.log.seek(0)
        print(self.log.read(), flush=True)
        if self.process.returncode:
            self.step.failed.append("instructions of the benches")
        return self.step


def table(steps: list[Step], limits: dict[str, float]) -> list[str]:
    """Prints what each step took; the steps that took too much."""
    rows = [("step", "wall", "CPU", "budget")]
    over = []
    for step in steps:
        limit = limits.get(step.name)
        rows.append((step.name, f"{step.wall:.0f} s", f"{step.cpu:.0f} s", f"{limit} s" if limit else ""))
        if limit and step.cpu > limit:
            over.append(f"{step.name}: {step.cpu:.0f} s of CPU time, its budget is {limit} s (tests/budgets.toml)")
    rows.append(("all", f"{time.monotonic() - STARTED:.0f} s", f"{sum(s.cpu for s in steps):.0f} s", ""))
    print()
    for name, *figures in rows:
        print(name.ljust(14), *(figure.rjust(9) for figure in figures))
    return over


def slowest(steps: list[Step]):
    tests = sorted((test for step in steps for test in step.tests), key=lambda test: -test.seconds)
    if tests:
        print(f"\nThe slowest {SLOWEST} of {len(tests)} tests:")
    for test in tests[:SLOWEST]:
        print(f"{test.seconds:8.1f} s  {test.name}")


def verdict(steps: list[Step], over: list[str]) -> int:
    """Prints what failed and what exceeded its budget; the exit code."""
    failed = [f"FAILED {name}" for step in steps for name in step.failed]
    print("", *failed, *over, sep="\n")
    if not failed:
        print("All tests passed." if not over else "All tests passed, but a budget is exceeded.")
    return 1 if failed else 3 if over else 0


def budgets() -> dict:
    """tests/budgets.toml."""
    try:
        limits = tomllib.loads((ROOT / "tests/budgets.toml").read_text())
        numbers = [limits["units"], *limits["cpu_seconds"].values()]
        right = set(limits["cpu_seconds"]) == {*STEPS, "compile_warm"} and all(isinstance(number, int | float) for number in numbers)
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise Failed(f"tests/budgets.toml cannot be read: {error!r}") from error
    if not right:
        raise Failed(f"tests/budgets.toml must have the number `units`, and under [cpu_seconds] a number for each of compile_warm, {', '.join(STEPS)}")
    return limits


def run_fast(crate: str | None) -> int:
    selection = [word for package in CRATES[crate] for word in ("--package", package)] if crate else WHOLE
    steps = []
    with Measured("compile") as step:
        steps.append(step)
        # Integration tests of the server and its API need sockets, stores and real time.
        programs = [p for p in compile_tests(selection).programs if p.name not in ("control-api/api", "visavis/commands")]
    with Measured("rust") as step:
        steps.append(step)
        run_programs(programs, [], step)
    table(steps, {})
    return verdict(steps, over=[])


def run_all(only: list[str]) -> int:
    limits = budgets()
    chosen = [step for step in STEPS if not only or step in only]
    steps, over = [], []
    with Measured("compile") as step:
        steps.append(step)
        build = compile_tests(WHOLE)
    print(f"{build.units} units, {len(build.programs)} test programs, dependencies {'built before' if build.warm else 'built now'}")
    if build.units > limits["units"]:
        over.append(f"compile: {build.units} units, the limit is {limits['units']} (tests/budgets.toml)")
    if build.warm:
        limits["cpu_seconds"]["compile"] = limits["cpu_seconds"]["compile_warm"]
    counting = None
    for name in chosen:
        if name in ("compile", "instructions"):
            continue
        with Measured(name) as step:
            steps.append(step)
            if name == "rust":
                run_programs(build.programs, [], step)
            elif name == "postgres":
                # Half of either step is waiting, or runs on one core.
                if "instructions" in chosen:
                    counting = Counting()
                store(build.programs, step, STORE, "postgres")
                if counting:
                    steps.append(counting.finish())
            elif name == "e2e":
                run_e2e([], step)
        if name == "postgres" and counting:
            step.cpu -= counting.step.cpu
    if "instructions" in chosen and not counting:
        steps.append(Counting().finish())
    slowest(steps)
    over += table(steps, limits["cpu_seconds"])
    return verdict(steps, over=over)


def run_long(parts: list[str]) -> int:
    steps, over = [], []
    # The first part's results change the checkout.
    source = commit()
    if source.endswith("-dirty"):
        print("note: the checkout has changes that are not committed, so the results name a commit that is not what was tested")
    with Measured("compile") as step:
        steps.append(step)
        programs = compile_tests(WHOLE).programs
    for part in parts:
        with Measured(part) as step:
            steps.append(step)
            # One program and one test at a time: these tests judge times.
            run_programs(programs, ["--ignored", "--test-threads=1", "--show-output", f"long_{part}_"], step, at_once=1)
            if part == "load":
                run_command(["scripts/budgets.py", "run"], step, "CPU time of the benches")
            if part == "store":
                store(programs, step, [], "postgres")
                store(programs, step, ["--ignored", "--test-threads=1", "long_store_"], "postgres-long")
            if part == "fuzz":
                run_command(["scripts/mutants.py", "--rules"], step, "mutants of rules")
            run_e2e(["--part", part], step)
        if step.wall > LONGEST_PART:
            over.append(f"{part}: {step.wall:.0f} s, a part may take {LONGEST_PART} s")
        keep(part, step, source)
    slowest(steps)
    table(steps, {})
    return verdict(steps, over)


def keep(part: str, step: Step, source: str):
    """Writes what a part of the long tier found, in place of what its last run found."""
    found = json.loads(report().read_text()) if report().exists() else {}
    kept = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "commit": source,
        "cpu_model": cpu_model(),
        "cores": os.cpu_count(),
        "wall_seconds": round(step.wall),
        "cpu_seconds": round(step.cpu),
        "failed": step.failed,
        "tests": {test.name: {"seconds": round(test.seconds, 1), "outcome": test.outcome} for test in sorted(step.tests, key=lambda test: test.name)},
        "measured": {name: value for name, value in found.items() if name.startswith(("promise: ", "limit: "))},
    }
    (ROOT / f"docs/results/long-{part}.json").write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    tiers = parser.add_subparsers(dest="tier", required=True)
    tiers.add_parser("fast").add_argument("crate", nargs="?", choices=CRATES)
    tiers.add_parser("all").add_argument("--only", action="append", choices=STEPS, default=[])
    tiers.add_parser("long").add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    arguments = parser.parse_args()
    # Processes whose parents end become children of this one, so their CPU time is counted.
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    try:
        if arguments.tier == "fast":
            return run_fast(arguments.crate)
        if arguments.tier == "all":
            return run_all(arguments.only)
        if unknown := [part for part in arguments.parts if part not in PARTS]:
            parser.error(f"there is no part {unknown[0]}: {', '.join(PARTS)}")
        return run_long(arguments.parts or list(PARTS))
    except Failed as error:
        print(f"FAILED {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
