#!/usr/bin/env python3
"""Runs the fuzz targets: every parser of what strangers send (tests/fuzz), and the
conversation state machine (engine/conversation/fuzz).

    scripts/fuzz.py [--minutes N] [TARGET ...]            under libFuzzer; needs the nightly
                                                          toolchain and cargo-fuzz
    scripts/fuzz.py --stable [--minutes N] [TARGET ...]   mutates the seeds with the stable
                                                          compiler; network targets only

Without TARGET all targets run in turn, N minutes each. The exit code is 1 if a target fails. The
output of the target names the file of the failing input.
"""

import argparse
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CARGO = os.environ.get("CARGO", "cargo")
NETWORK_FUZZERS = ROOT / "tests/fuzz/libfuzzer"
CONVERSATION_FUZZERS = ROOT / "engine/conversation/fuzz"
#: Maximum processing time of an input, in s. libFuzzer reports a slower input as a failure.
INPUT_TIMEOUT = 25


@dataclass
class Target:
    """A fuzz target."""

    name: str
    #: Package of the fuzzer.
    folder: Path
    seeds: list[Path]
    #: Maximum length of an input, in bytes.
    max_length: int


def network_target(name: str, max_length: int) -> Target:
    return Target(name, NETWORK_FUZZERS, [ROOT / "tests/fuzz/seeds" / name], max_length)


def conversation_target(name: str, max_length: int, *more_seeds: Path) -> Target:
    seeds = [CONVERSATION_FUZZERS / "seeds" / name, *more_seeds]
    return Target(name, CONVERSATION_FUZZERS, seeds, max_length)


TARGETS = [
    network_target("demux", 16_384),
    network_target("rtp", 16_384),
    network_target("sdp", 32_768),
    network_target("rtvi", 70_000),
    network_target("trickle", 32_768),
    network_target("tcp", 16_384),
    network_target("picture", 65_536),
    network_target("tflite", 65_536),
    network_target("audio", 8_192),
    network_target("script", 20_000),
    conversation_target("history", 4_096),
    conversation_target("call", 2_048),
    conversation_target("scenario", 65_536, CONVERSATION_FUZZERS.parent / "tests/scenarios"),
    conversation_target("trace", 65_536),
]


def missing_tools() -> str | None:
    """A sentence that names the missing requirement of libFuzzer, None if all are installed."""
    alternative = (
        "; without it, `make fuzz ARGS=--stable` mutates the seeds with the stable compiler"
    )
    has_nightly = shutil.which("rustup") and any(
        line.startswith("nightly") for line in installed_toolchains()
    )
    if not has_nightly:
        return "the nightly toolchain is missing: rustup toolchain install nightly" + alternative
    if subprocess.run([CARGO, "fuzz", "--version"], capture_output=True, check=False).returncode:
        return "cargo-fuzz is missing: cargo install cargo-fuzz" + alternative
    return None


def installed_toolchains() -> list[str]:
    command = ["rustup", "toolchain", "list"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()


def run_libfuzzer(target: Target, minutes: int) -> bool:
    """Runs one target. Returns whether it passed."""
    corpus = target.folder / "corpus" / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    command = [
        *(CARGO, "+nightly", "fuzz", "run", "--fuzz-dir", target.folder),
        *(target.name, corpus, *target.seeds, "--", f"-max_total_time={60 * minutes}"),
        *(f"-max_len={target.max_length}", f"-timeout={INPUT_TIMEOUT}"),
    ]
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def run_stable(targets: list[Target], minutes: int) -> list[str]:
    """Runs the tests that mutate the seeds. Returns the names of the targets that failed."""
    failed = []
    environment = {**os.environ, "VISAVIS_FUZZ_MINUTES": str(minutes)}
    for target in targets:
        command = [
            *(CARGO, "test", "--release", "--locked", "--package", "visavis-fuzz"),
            *("--test", "seeds", "--", "--ignored", "--exact", "--show-output"),
            f"long_fuzz_{target.name}",
        ]
        if subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode:
            failed.append(target.name)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    all_names = ", ".join(target.name for target in TARGETS)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=all_names)
    parser.add_argument("--minutes", type=int, default=10, help="duration of each target")
    parser.add_argument("--stable", action="store_true")
    arguments = parser.parse_args()
    available = [
        target for target in TARGETS if not arguments.stable or target.folder == NETWORK_FUZZERS
    ]
    names = [target.name for target in available]
    if unknown := [name for name in arguments.targets if name not in names]:
        parser.error(f"there is no target {unknown[0]}: {', '.join(names)}")
    if arguments.minutes < 1:
        parser.error("--minutes must be at least 1")
    chosen = [
        target for target in available if not arguments.targets or target.name in arguments.targets
    ]
    if arguments.stable:
        failed = run_stable(chosen, arguments.minutes)
    elif reason := missing_tools():
        print(f"fuzz: {reason}", file=sys.stderr)
        return 1
    else:
        # The fuzzers use the dependency versions of the release.
        shutil.copy(ROOT / "Cargo.lock", NETWORK_FUZZERS / "Cargo.lock")
        failed = [target.name for target in chosen if not run_libfuzzer(target, arguments.minutes)]
    for name in failed:
        print(
            f"FAILED {name}: add the input named above to the seeds of the target", file=sys.stderr
        )
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
