#!/usr/bin/env python3
"""Runs the fuzz targets: every parser that reads from the network (tests/fuzz), and the pure conversation (engine/conversation/fuzz).

    scripts/fuzz.py [--minutes N] [TARGET ...]            under libFuzzer; needs the nightly toolchain and cargo-fuzz
    scripts/fuzz.py --stable [--minutes N] [TARGET ...]   mutations of the seeds with the stable compiler; network targets only

Without TARGET each runs in turn, N minutes long. Exits with 1 if one finds something, and says where the input is.
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
NETWORK = ROOT / "tests/fuzz/libfuzzer"
CONVERSATION = ROOT / "engine/conversation/fuzz"
#: An input that takes longer, in s, is a finding.
SLOW = 25


@dataclass
class Target:
    name: str
    #: Package of the fuzzers.
    folder: Path
    seeds: list[Path]
    #: Longest input, bytes.
    longest: int


def network(name: str, longest: int) -> Target:
    return Target(name, NETWORK, [ROOT / "tests/fuzz/seeds" / name], longest)


def conversation(name: str, longest: int, *more: Path) -> Target:
    return Target(name, CONVERSATION, [CONVERSATION / "seeds" / name, *more], longest)


TARGETS = [
    network("demux", 16_384),
    network("rtp", 16_384),
    network("sdp", 32_768),
    network("rtvi", 70_000),
    network("trickle", 32_768),
    network("tcp", 16_384),
    conversation("history", 4_096),
    conversation("call", 2_048),
    conversation("scenario", 65_536, CONVERSATION.parent / "tests/scenarios"),
    conversation("trace", 65_536),
]


def missing() -> str | None:
    """What libFuzzer needs and is not here, in one sentence."""
    otherwise = "; without it, `make fuzz ARGS=--stable` mutates the seeds with the stable compiler"
    if not shutil.which("rustup") or not any(line.startswith("nightly") for line in toolchains()):
        return "the nightly toolchain is missing: rustup toolchain install nightly" + otherwise
    if subprocess.run([CARGO, "fuzz", "--version"], capture_output=True).returncode:
        return "cargo-fuzz is missing: cargo install cargo-fuzz" + otherwise
    return None


def toolchains() -> list[str]:
    return subprocess.run(["rustup", "toolchain", "list"], capture_output=True, text=True).stdout.splitlines()


def libfuzzer(target: Target, minutes: int) -> bool:
    """Runs one target; whether it found nothing."""
    corpus = target.folder / "corpus" / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    command = [CARGO, "+nightly", "fuzz", "run", "--fuzz-dir", target.folder, target.name, corpus, *target.seeds, "--",
               f"-max_total_time={60 * minutes}", f"-max_len={target.longest}", f"-timeout={SLOW}"]  # fmt: skip
    return subprocess.run(command, cwd=ROOT).returncode == 0


def stable(targets: list[Target], minutes: int) -> list[str]:
    """Runs the tests that mutate the seeds; the names of those that fail."""
    failed = []
    for target in targets:
        command = [CARGO, "test", "--release", "--locked", "--package", "visavis-fuzz", "--test", "seeds", "--",
                   "--ignored", "--exact", "--show-output", f"long_fuzz_{target.name}"]  # fmt: skip
        if subprocess.run(command, cwd=ROOT, env={**os.environ, "VISAVIS_FUZZ_MINUTES": str(minutes)}).returncode:
            failed.append(target.name)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(target.name for target in TARGETS))
    parser.add_argument("--minutes", type=int, default=10, help="of each target")
    parser.add_argument("--stable", action="store_true")
    arguments = parser.parse_args()
    known = [target for target in TARGETS if not arguments.stable or target.folder == NETWORK]
    if unknown := [name for name in arguments.targets if name not in [target.name for target in known]]:
        parser.error(f"there is no target {unknown[0]}: {', '.join(target.name for target in known)}")
    if arguments.minutes < 1:
        parser.error("--minutes must be at least 1")
    chosen = [target for target in known if not arguments.targets or target.name in arguments.targets]
    if arguments.stable:
        failed = stable(chosen, arguments.minutes)
    elif why := missing():
        print(f"fuzz: {why}", file=sys.stderr)
        return 1
    else:
        # What ships is what is fuzzed: the same versions of all dependencies.
        shutil.copy(ROOT / "Cargo.lock", NETWORK / "Cargo.lock")
        failed = [target.name for target in chosen if not libfuzzer(target, arguments.minutes)]
    for name in failed:
        print(f"FAILED {name}: put the input that is named above among the seeds of its target", file=sys.stderr)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
