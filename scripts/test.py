#!/usr/bin/env python3
"""Runs the tests: `make test-fast`, `make test` and `make test-long`. CONTRIBUTING.md describes the
three tiers.

  scripts/test.py fast [CRATE]       tests of one crate, or of all, that need neither a browser nor
                                     real time
  scripts/test.py all [--only STEP]  everything that CI needs, or one step of it
  scripts/test.py long [PART ...]    statistics, soaks, sweeps and time budgets; each part writes
                                     docs/results/long-PART.json

Every step has a budget of CPU time in tests/budgets.toml. The budget covers all processes of the
step, so other load on the machine does not count. `all` fails if a step exceeds its budget, and
prints the slowest tests. The exit code is 1 if something failed, and 3 if only a budget was
exceeded.
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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from budgets import cpu_model, git_commit

ROOT = Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
TARGET = Path(os.environ.get("CARGO_TARGET_DIR") or ROOT / "target")
#: Folder of the test logs.
LOG_FOLDER = TARGET / "tests"
#: One profile and one feature set for all builds (docs/decisions/0002).
BUILD_FLAGS = ["--release", "--locked"]
WHOLE_WORKSPACE = ["--workspace"]
STEPS = ("compile", "rust", "instructions", "postgres", "e2e")
PARTS = ("network", "load", "faces", "store", "editor", "providers", "recording", "livekit", "fuzz")
#: Number of Rust test programs that run in parallel. Some programs wait for sockets, and most use
#: both cores only briefly.
PARALLEL_PROGRAMS = 3
#: Number of tests in the list of the slowest tests.
SLOWEST_COUNT = 20
#: Maximum duration of a part of the long tier, in s.
MAX_PART_SECONDS = 1200
#: The same for parts that take longer: `recording` contains a call of thirty minutes, `providers`
#: each fault of each provider.
MAX_SECONDS_OF_PART = {"providers": 2100, "recording": 3600}
#: Start of the whole run. Two steps run in parallel, so the sum of the steps is not its duration.
STARTED_AT = time.monotonic()
#: Number of output lines that are printed of a failed program.
TAIL_LINES = 200
#: Times of single tests are an unstable feature of the test harness. This variable enables unstable
#: features in a stable toolchain.
TIMING_ENV = {"RUSTC_BOOTSTRAP": "1"}
REPORT_TIME_FLAGS = ["-Zunstable-options", "--report-time"]
#: Tests of the control plane that depend on the store: several servers on one database, leases, the
#: single writer, crashes, outages, the outbox of webhooks, lists, workspaces. All other tests use
#: only what both stores have in common, and run on SQLite.
STORE_TESTS = [
    *(
        "servers::",
        "ownership::",
        "relay::",
        "lifecycle::",
        "crash::",
        "large::",
        "lost_commit::",
        "outage::",
    ),
    "custom_avatars::a_dead_server_s_drawing_is_taken_over",
    "backgrounds::agents_share_a_background_with_the_same_content",
    "backgrounds::calls_show_the_previous_background_until_the_new_one_is_drawn",
    "erasure::erasure_deletes_the_trace_on_another_running_or_stopped_server",
    "agents::lists_are_paged_searched_and_counted",
    "fairness::",
    "conversations::of_many_deletes_at_once_one_ends_the_call",
    "keys::a_key_opens_its_own_workspace_only",
    "scopes::a_key_s_last_use_is_kept_to_the_minute",
    "webhook_receivers::a_thousand_events_at_once_all_come_in_order",
    "webhook_receivers::deliveries_beyond_the_memory_window_are_read_and_sent_in_order",
    "webhooks::a_dead_letter_is_listed_with_its_tries_and_delivered_again",
    "webhooks::what_was_not_delivered_is_delivered_after_a_restart",
]
#: Crates of `test-fast` by folder name, with the packages that contain their tests.
CRATES = {
    "conversation": ["visavis-conversation", "visavis-conversation-tests"],
    "egress": ["visavis-egress"],
    "api": ["visavis-engine-api"],
    "knowledge": ["visavis-knowledge"],
    "character": ["visavis-character", "visavis-character-tests"],
    "photo": ["visavis-photo", "visavis-photo-tests"],
    "models": ["visavis-models", "visavis-models-tests"],
    "engine": ["visavis-engine", "visavis-engine-tests"],
    "landmarks": ["visavis-landmarks", "visavis-landmarks-tests"],
    "recording": ["visavis-recording", "visavis-recording-tests"],
    "documents": ["visavis-documents"],
    "control-api": ["visavis-control-api", "visavis-control-api-tests"],
    "load": ["visavis-load"],
    "fuzz": ["visavis-fuzz"],
    "visavis": ["visavis"],
}


class StepFailed(Exception):
    """A step cannot continue. Its details have been printed."""


@dataclass
class Program:
    """A test executable."""

    name: str
    path: str
    folder: Path


@dataclass
class Test:
    """The result of one test."""

    name: str
    seconds: float
    outcome: str


@dataclass
class Step:
    """The results of one step."""

    name: str
    wall_seconds: float = 0.0
    cpu_seconds: float = 0.0
    tests: list[Test] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)


def reap_children():
    """Waits for orphaned processes that have ended, so that their CPU time is counted."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def children_cpu_seconds() -> float:
    """CPU time of all descendants of this process that have ended, in s."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


class StepTimer:
    """Measures the wall time and the CPU time of a step."""

    def __init__(self, name: str):
        self.step = Step(name)

    def __enter__(self) -> Step:
        print(f"== {self.step.name}", flush=True)
        self.wall_start, self.cpu_start = time.monotonic(), children_cpu_seconds()
        return self.step

    def __exit__(self, *_):
        reap_children()
        self.step.wall_seconds, self.step.cpu_seconds = (
            time.monotonic() - self.wall_start,
            children_cpu_seconds() - self.cpu_start,
        )


@dataclass
class Build:
    """The compiled test programs."""

    programs: list[Program]
    #: Number of units that cargo compiles for the programs, in this build or an earlier one.
    units: int
    #: Whether all dependencies were compiled by an earlier build.
    warm: bool


def compile_tests(packages: list[str]) -> Build:
    """Builds the test programs and the binaries of the packages, given as flags of cargo."""
    lines = []
    # `cargo test` builds only the binaries of packages with integration tests. `--tests` excludes
    # the examples, which `make lint` checks.
    build_binaries = [["build", "--bins"]] if packages == WHOLE_WORKSPACE else []
    for subcommand in (["test", "--no-run", "--tests"], *build_binaries):
        build = subprocess.run(
            [
                *(CARGO, *subcommand, *BUILD_FLAGS, *packages),
                "--message-format=json-render-diagnostics",
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if build.returncode:
            raise StepFailed("the tests do not compile")
        lines += build.stdout.splitlines()
    programs, units, warm = [], set(), True
    for line in lines:
        message = json.loads(line)
        if message["reason"] not in ("compiler-artifact", "build-script-executed"):
            continue
        target = message.get("target", {"name": "build script", "kind": []})
        is_test = message.get("profile", {}).get("test")
        unit = (message["package_id"], target["name"], *target["kind"], is_test)
        if unit in units:
            continue
        units.add(unit)
        in_workspace = message["package_id"].startswith("path+file:")
        warm &= in_workspace or message.get("fresh", True)
        is_artifact = message["reason"] == "compiler-artifact"
        if is_artifact and message["executable"] and message["profile"]["test"]:
            folder = Path(message["manifest_path"]).parent
            crate_path = str(folder.relative_to(ROOT)).removesuffix("/tests")
            crate = "visavis" if crate_path == "." else crate_path
            target_name = target["name"] if "test" in target["kind"] else "unit"
            programs.append(Program(f"{crate}/{target_name}", message["executable"], folder))
    if not programs:
        raise StepFailed("there is no test program")
    return Build(programs, len(units), warm)


def run_program(
    program: Program,
    arguments: list[str],
    step: Step,
    wrapper: Sequence[str] = (),
    log_name: str = "",
) -> bool:
    """Runs one test program, through the command `wrapper` if one is given, and reads its results.
    Returns whether the program passed."""
    LOG_FOLDER.mkdir(parents=True, exist_ok=True)
    started_at = time.monotonic()
    # The two outputs are captured separately. Otherwise standard error could break a result line.
    process = subprocess.run(
        [*wrapper, program.path, *arguments, *REPORT_TIME_FLAGS],
        cwd=program.folder,
        env={**os.environ, **TIMING_ENV, "CARGO_MANIFEST_DIR": str(program.folder)},
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    log_file = f"{(log_name or program.name).replace('/', '-')}.log"
    (LOG_FOLDER / log_file).write_text(process.stdout + process.stderr)
    count = 0
    result_line = r"^test (\S+)(?: - should panic)? \.\.\. (?:.*?)(ok|FAILED)(?: <([\d.]+)s>)?$"
    for name, outcome, seconds in re.findall(result_line, process.stdout, re.MULTILINE):
        step.tests.append(Test(f"{program.name}::{name}", float(seconds or 0), outcome))
        count += 1
        if outcome == "FAILED":
            step.failed.append(f"{program.name}::{name}")
    totals = re.findall(
        r"^test result: \w+\. (\d+) passed; (\d+) failed", process.stdout, re.MULTILINE
    )
    # The code under test can print into a result line, which is then not recognized.
    if process.returncode == 0 and sum(int(ok) + int(failed) for ok, failed in totals) != count:
        step.failed.append(
            f"{program.name}: {count} results were read, but the program counts {totals}"
        )
    print(
        f"{'ok    ' if process.returncode == 0 else 'FAILED'} {log_name or program.name}: "
        f"{count} tests, {time.monotonic() - started_at:.1f} s",
        flush=True,
    )
    if process.returncode:
        print(
            *process.stdout.splitlines()[-TAIL_LINES:],
            *process.stderr.splitlines()[-TAIL_LINES:],
            sep="\n",
            flush=True,
        )
        if not any(name.startswith(program.name) for name in step.failed):
            step.failed.append(f"{program.name}: exit code {process.returncode}")
    return process.returncode == 0


def run_programs(
    programs: list[Program],
    arguments: list[str],
    step: Step,
    parallel: int = PARALLEL_PROGRAMS,
):
    """Runs test programs, `parallel` of them at a time."""
    with ThreadPoolExecutor(parallel) as pool:
        list(pool.map(lambda program: run_program(program, arguments, step), programs))


def run_command(command: list[str], step: Step, description: str, **environment: str):
    """Runs a command. If it fails, the step fails with `description`."""
    if subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, check=False).returncode:
        step.failed.append(description)


def report_path() -> Path:
    """The file with the figures of the end-to-end tests."""
    return Path(os.environ.get("E2E_OUT") or ROOT / "target/e2e") / "report.json"


def run_e2e(arguments: list[str], step: Step):
    """Runs end-to-end tests and reads their durations."""
    durations = LOG_FOLDER / "e2e-durations.json"
    LOG_FOLDER.mkdir(parents=True, exist_ok=True)
    durations.unlink(missing_ok=True)
    report_path().unlink(missing_ok=True)
    exit_code = subprocess.run(
        ["scripts/test-e2e.sh", *arguments],
        cwd=ROOT,
        env={**os.environ, "E2E_DURATIONS": str(durations.resolve())},
        check=False,
    ).returncode
    results = json.loads(durations.read_text()) if durations.exists() else {}
    for name, result in results.items():
        step.tests.append(Test(f"e2e/{name}", result["seconds"], result["outcome"]))
    failed = [test.name for test in step.tests if test.outcome in ("failed", "error")]
    without_results = [f"end-to-end tests: exit code {exit_code}"] if exit_code else []
    step.failed += failed or without_results


def run_store_tests(
    programs: list[Program], step: Step, filters: list[str], log_name: str, kind: str = "api"
):
    """Runs the tests of the control plane that match `filters` on PostgreSQL. The step fails if a
    filter matches no test. `kind`: "api" or "unit"."""
    api_tests = next(program for program in programs if program.name == f"control-api/{kind}")
    test_list = subprocess.run(
        [api_tests.path, "--list"],
        cwd=api_tests.folder,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    ).stdout
    step.failed += [
        f"{log_name}: no test is named {name}"
        for name in filters
        if not name.startswith("-") and name not in test_list
    ]
    with_postgres = [str(ROOT / "scripts/with-postgres.sh")]
    run_program(api_tests, filters, step, wrapper=with_postgres, log_name=log_name)


class InstructionCount:
    """Counts the instructions of the benches while other tests run. Their load does not change the
    counts."""

    def __init__(self):
        print("== instructions", flush=True)
        self.step, self.started_at = Step("instructions"), time.monotonic()
        (LOG_FOLDER / "instructions.log").parent.mkdir(parents=True, exist_ok=True)
        self.log = (LOG_FOLDER / "instructions.log").open("w+")
        self.process = subprocess.Popen(
            ["scripts/budgets.py", "count"], cwd=ROOT, stdout=self.log, stderr=self.log
        )

    def finish(self) -> Step:
        """Waits for the count, prints its output and returns its step."""
        _, status, usage = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self.step.wall_seconds, self.step.cpu_seconds = (
            time.monotonic() - self.started_at,
            usage.ru_utime + usage.ru_stime,
        )
        self.log.seek(0)
        print(self.log.read(), flush=True)
        if self.process.returncode:
            self.step.failed.append("instructions of the benches")
        return self.step


def print_table(steps: list[Step], budgets: dict[str, float]) -> list[str]:
    """Prints the cost of each step. Returns a message for each step that exceeded its budget."""
    rows = [("step", "wall", "CPU", "budget")]
    exceeded = []
    for step in steps:
        budget = budgets.get(step.name)
        rows.append(
            (
                step.name,
                f"{step.wall_seconds:.0f} s",
                f"{step.cpu_seconds:.0f} s",
                f"{budget} s" if budget else "",
            )
        )
        if budget and step.cpu_seconds > budget:
            exceeded.append(
                f"{step.name}: {step.cpu_seconds:.0f} s of CPU time, "
                f"its budget is {budget} s (tests/budgets.toml)"
            )
    total_wall = time.monotonic() - STARTED_AT
    total_cpu = sum(step.cpu_seconds for step in steps)
    rows.append(("all", f"{total_wall:.0f} s", f"{total_cpu:.0f} s", ""))
    print()
    for name, *figures in rows:
        print(name.ljust(14), *(figure.rjust(9) for figure in figures))
    return exceeded


def print_slowest(steps: list[Step]):
    """Prints the slowest tests of all steps."""
    tests = sorted((test for step in steps for test in step.tests), key=lambda test: -test.seconds)
    if tests:
        print(f"\nThe slowest {SLOWEST_COUNT} of {len(tests)} tests:")
    for test in tests[:SLOWEST_COUNT]:
        print(f"{test.seconds:8.1f} s  {test.name}")


def print_verdict(steps: list[Step], exceeded: list[str]) -> int:
    """Prints the failures and the exceeded budgets. Returns the exit code."""
    failed = [f"FAILED {name}" for step in steps for name in step.failed]
    print("", *failed, *exceeded, sep="\n")
    if not failed:
        print("All tests passed, but a budget is exceeded." if exceeded else "All tests passed.")
    return 1 if failed else 3 if exceeded else 0


def read_budgets() -> dict:
    """Reads and checks tests/budgets.toml."""
    try:
        limits = tomllib.loads((ROOT / "tests/budgets.toml").read_text())
        numbers = [limits["units"], *limits["cpu_seconds"].values()]
        complete = set(limits["cpu_seconds"]) == {*STEPS, "compile_warm"}
        valid = complete and all(isinstance(number, int | float) for number in numbers)
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise StepFailed(f"tests/budgets.toml cannot be read: {error!r}") from error
    if not valid:
        raise StepFailed(
            "tests/budgets.toml must have the number `units`, and under [cpu_seconds] a number "
            f"for each of compile_warm, {', '.join(STEPS)}"
        )
    return limits


def run_fast(crate: str | None) -> int:
    """Runs the fast tier of one crate, or of all crates. Returns the exit code."""
    packages = (
        [word for package in CRATES[crate] for word in ("--package", package)]
        if crate
        else WHOLE_WORKSPACE
    )
    steps = []
    with StepTimer("compile") as step:
        steps.append(step)
        # Integration tests of the server and its API need sockets, stores and real time.
        slow_programs = ("control-api/api", "visavis/commands")
        programs = [p for p in compile_tests(packages).programs if p.name not in slow_programs]
    with StepTimer("rust") as step:
        steps.append(step)
        run_programs(programs, [], step)
    print_table(steps, {})
    return print_verdict(steps, exceeded=[])


def run_all(only: list[str]) -> int:
    """Runs the steps of `make test`, or some of them. Returns the exit code."""
    limits = read_budgets()
    chosen = [step for step in STEPS if not only or step in only]
    steps, exceeded = [], []
    with StepTimer("compile") as step:
        steps.append(step)
        build = compile_tests(WHOLE_WORKSPACE)
    print(
        f"{build.units} units, {len(build.programs)} test programs, "
        f"dependencies {'were cached' if build.warm else 'were compiled'}"
    )
    if build.units > limits["units"]:
        exceeded.append(
            f"compile: {build.units} units, the limit is {limits['units']} (tests/budgets.toml)"
        )
    if build.warm:
        limits["cpu_seconds"]["compile"] = limits["cpu_seconds"]["compile_warm"]
    instruction_count = None
    for name in chosen:
        if name in ("compile", "instructions"):
            continue
        with StepTimer(name) as step:
            steps.append(step)
            if name == "rust":
                run_programs(build.programs, [], step)
            elif name == "postgres":
                # Both steps wait or use a single core for half of their time, so they run in
                # parallel.
                if "instructions" in chosen:
                    instruction_count = InstructionCount()
                run_store_tests(build.programs, step, STORE_TESTS, "postgres")
                if instruction_count:
                    steps.append(instruction_count.finish())
            elif name == "e2e":
                run_e2e([], step)
        if name == "postgres" and instruction_count:
            step.cpu_seconds -= instruction_count.step.cpu_seconds
    if "instructions" in chosen and not instruction_count:
        steps.append(InstructionCount().finish())
    print_slowest(steps)
    exceeded += print_table(steps, limits["cpu_seconds"])
    return print_verdict(steps, exceeded=exceeded)


def run_long(parts: list[str]) -> int:
    """Runs parts of the long tier. Returns the exit code."""
    steps, exceeded = [], []
    # Where tests write figures that are tables in docs/performance.md.
    os.environ["RESULTS_FOLDER"] = str(ROOT / "docs/results")
    # The commit is read first: the results of the first part change the checkout.
    commit = git_commit()
    if commit.endswith("-dirty"):
        print(
            "note: the checkout has uncommitted changes, so the commit in the results does not "
            "identify the tested sources"
        )
    # These tests measure times, so one program runs at a time, and one test in it.
    serial = ["--ignored", "--test-threads=1"]
    with StepTimer("compile") as step:
        steps.append(step)
        programs = compile_tests(WHOLE_WORKSPACE).programs
    for part in parts:
        with StepTimer(part) as step:
            steps.append(step)
            run_programs(programs, [*serial, "--show-output", f"long_{part}_"], step, parallel=1)
            if part == "load":
                run_command(["scripts/budgets.py", "run"], step, "CPU time of the benches")
            if part == "store":
                run_store_tests(programs, step, [], "postgres")
                long = [*serial, "long_store_"]
                run_store_tests(programs, step, long, "postgres-long")
                run_store_tests(programs, step, long, "postgres-unit-long", "unit")
            if part == "fuzz":
                run_command(["scripts/mutants.py", "--rules"], step, "mutants of rules")
            run_e2e(["--part", part], step)
        maximum = MAX_SECONDS_OF_PART.get(part, MAX_PART_SECONDS)
        if step.wall_seconds > maximum:
            exceeded.append(
                f"{part}: {step.wall_seconds:.0f} s, the maximum of this part is {maximum} s"
            )
        save_results(part, step, commit)
    print_slowest(steps)
    print_table(steps, {})
    return print_verdict(steps, exceeded)


def save_results(part: str, step: Step, commit: str):
    """Writes the results of a part of the long tier. They replace those of its last run."""
    report = json.loads(report_path().read_text()) if report_path().exists() else {}
    tests = sorted(step.tests, key=lambda test: test.name)
    summary = {
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d"),
        "commit": commit,
        "cpu_model": cpu_model(),
        "cores": os.cpu_count(),
        "wall_seconds": round(step.wall_seconds),
        "cpu_seconds": round(step.cpu_seconds),
        "failed": step.failed,
        "tests": {
            test.name: {"seconds": round(test.seconds, 1), "outcome": test.outcome}
            for test in tests
        },
        "measured": {
            name: figure
            for name, figure in report.items()
            if name.startswith(("promise: ", "limit: "))
        },
    }
    path = ROOT / f"docs/results/long-{part}.json"
    path.write_text(json.dumps(summary, indent=1, ensure_ascii=False) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    tiers = parser.add_subparsers(dest="tier", required=True)
    tiers.add_parser("fast").add_argument("crate", nargs="?", choices=CRATES)
    tiers.add_parser("all").add_argument("--only", action="append", choices=STEPS, default=[])
    tiers.add_parser("long").add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS))
    arguments = parser.parse_args()
    # PR_SET_CHILD_SUBREAPER: orphaned descendants become children of this process, so their CPU
    # time is counted.
    ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    try:
        if arguments.tier == "fast":
            return run_fast(arguments.crate)
        if arguments.tier == "all":
            return run_all(arguments.only)
        if unknown := [part for part in arguments.parts if part not in PARTS]:
            parser.error(f"there is no part {unknown[0]}: {', '.join(PARTS)}")
        return run_long(arguments.parts or list(PARTS))
    except StepFailed as error:
        print(f"FAILED {error}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
