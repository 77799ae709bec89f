#!/usr/bin/env python3
"""Mutation tests of the turn-taking rules: breaks the rules one by one and checks that a test
fails. CI does not run them; `make mutants` does.

    scripts/mutants.py [--rules] [K/N]   --rules: only the mutants of rules, which do not need
                                         `cargo mutants`; K/N: the K-th of N shards, from 0

The mutants are those that `cargo mutants` lists for MUTATED_FILES, and one for each rule in
engine/conversation/mutants/rules.toml. All of them are built together: a function with mutants
becomes a `match` on the environment variable VISAVIS_MUTANT, which selects the original body or
that of a mutant. A mutant that does not compile is removed and reported as unviable, and the rest
is built again.
The script works on a copy in target/mutants. It writes the outcomes to rules.txt and mutants.txt in
engine/conversation/mutants. It exits with 1 if a mutant survives without a reason in survivors.txt.
"""

import json
import os
import re
import resource
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "target/mutants"
SOURCE_COPY = WORK / "src"
CRATE = Path("engine/conversation")
RESULTS = ROOT / CRATE / "mutants"
# The sources by file name, which is unique.
PATHS = {
    path.name: path.relative_to(ROOT)
    for path in (ROOT / CRATE / "src").rglob("*.rs")
    if path.name != "mod.rs"
}
MUTATED_FILES = ["barge_in", "endpointing", "floor", "reply", "history"]
# Test programs, ordered by how soon they catch a mutant.
TEST_ORDER = ["scenarios", "worked", "live", "conversation", "oracle", "laws", "replay", "chaos"]
# Scenarios, laws and the oracle should catch the mutants of rules, so the other programs run only
# if none of these fails.
RULE_TEST_ORDER = [
    *("scenarios", "laws", "oracle", "worked", "live", "conversation", "replay", "chaos"),
]
BUILD_ENV = os.environ | {
    "CARGO_PROFILE_DEV_DEBUG": "0",
    "CARGO_PROFILE_DEV_OPT_LEVEL": "1",
    "CARGO_TARGET_DIR": str(WORK / "target"),
}
# Programs that take one second. A mutant with an infinite loop hangs in one of them, so their
# timeout is short.
FAST_TESTS = ["scenarios", "worked", "live", "conversation"]
# Limits the number of inputs of the laws and the oracle.
TEST_ENV = os.environ | {"VISAVIS_LAWS_INPUTS": "60000", "RUST_BACKTRACE": "0"}
LOCK = Lock()
MUTANT_SELECTOR = """
/// The number of the selected mutant, 0 for the original code.
pub(crate) fn mutant() -> u32 {
    static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| std::env::var("VISAVIS_MUTANT").map_or(0, |n| n.parse().unwrap()))
}
"""


def limit_process():
    """Limits the memory of a test program to 4 GiB, because a mutant may allocate without end, and
    lowers its priority."""
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    os.nice(int(os.environ.get("NICE", "19")))


def run_command(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


class Mutant:
    """A mutant replaces `text[begin:end]` of a file with `new`, in the function whose body is
    `text[body:close]`; both are None outside functions. `rule` is None for a mutant of
    `cargo mutants`."""

    def __init__(self, name, rule, file, begin, end, new, body, close):
        self.name, self.rule, self.file = name, rule, file
        self.begin, self.end, self.new = begin, end, new
        self.body, self.close = body, close


def offset_lookup(text):
    """Returns a function that converts a position (line and column, both from 1) to the offset in
    `text`. Columns and offsets count characters, not bytes."""
    line_starts = [0]
    for line in text.splitlines(keepends=True):
        line_starts.append(line_starts[-1] + len(line))
    return lambda position: line_starts[position["line"] - 1] + position["column"] - 1


def cargo_mutants(texts):
    """The mutants that `cargo mutants` lists."""
    selection = [
        word for name in MUTATED_FILES for word in ("--file", str(CRATE / f"src/machine/{name}.rs"))
    ]
    process = run_command(
        *("cargo", "mutants", "--list", "--json", "--package", "visavis-conversation", *selection),
        cwd=ROOT,
        check=True,
    )

    def position(entry):
        start = entry["span"]["start"]
        return entry["file"], start["line"], start["column"]

    name_counts = {}
    for entry in sorted(json.loads(process.stdout), key=position):
        text = texts[Path(entry["file"]).name]
        offset = offset_lookup(text)
        begin, end = offset(entry["span"]["start"]), offset(entry["span"]["end"])
        function = entry["function"]["span"]
        function_start, function_end = offset(function["start"]), offset(function["end"])
        body = text.index("{", function_start) + 1
        # The name has no position, because every edit would change it. Mutants of one function with
        # the same name are numbered.
        name = re.sub(r":\d+:\d+:", ":", entry["name"].removeprefix(f"{CRATE}/src/machine/"))
        name_counts[name] = name_counts.get(name, 0) + 1
        name += f" ({name_counts[name]})" * (name_counts[name] > 1)
        file = Path(entry["file"]).name
        yield Mutant(name, None, file, begin, end, entry["replacement"], body, function_end - 1)


def rule_mutants(texts):
    """The mutants of rules.toml."""
    for rule in tomllib.loads((RESULTS / "rules.toml").read_text())["rule"]:
        text, old, new = texts[rule["file"]], rule["old"], rule["new"]
        if text.count(old) != 1:
            sys.exit(f"{rule['rule']}: {old!r} occurs {text.count(old)} times in {rule['file']}")
        begin = text.index(old)
        end = begin + len(old)
        # The innermost function that contains the text, if there is one.
        functions = [
            match
            for match in re.finditer(r"^( *)(?:pub(?:\(crate\))? )?fn ", text, re.MULTILINE)
            if match.start() < begin
        ]
        body = close = None
        if functions:
            indent = functions[-1][1]
            close = text.index(f"\n{indent}}}", functions[-1].end()) + 1 + len(indent)
            body = text.index("{\n", functions[-1].end()) + 1
        if not functions or close < end:
            body = close = None
        name = f"{rule['of']}: {rule['rule']}"
        yield Mutant(name, rule["rule"], rule["file"], begin, end, new, body, close)


def combine_mutants(text, mutants):
    """Returns the file with all of its mutants, and the lines of each mutant."""
    out, position, lines = "", 0, {}
    for body, close in sorted({(m.body, m.close) for m in mutants}):
        out += text[position:body] + "\nmatch crate::mutant() {\n"
        for m in (m for m in mutants if m.body == body):
            first_line = out.count("\n") + 1
            out += f"{m.id} => {{{text[body : m.begin]}{m.new}{text[m.end : close]}}}\n"
            lines[m] = (first_line, out.count("\n") + 1)
        out += f"_ => {{{text[body:close]}}}\n}}\n"
        position = close
    return out + text[position:], lines


def build_tests(texts, mutants):
    """Builds the test programs. Returns them and the mutants that compile."""
    test_flags = [
        word for name in TEST_ORDER if name != "conversation" for word in ("--test", name)
    ]
    while True:
        lines = {}
        for file, text in texts.items():
            combined, file_lines = combine_mutants(text, [m for m in mutants if m.file == file])
            lines |= file_lines
            path = SOURCE_COPY / PATHS[file]
            combined += MUTANT_SELECTOR if file == "lib.rs" else ""
            if path.read_text() != combined:
                path.write_text(combined)
        process = run_command(
            *("cargo", "test", "--package", "visavis-conversation"),
            *("--package", "visavis-conversation-tests", "--lib", *test_flags),
            *("--no-run", "--message-format", "json"),
            cwd=SOURCE_COPY,
            env=BUILD_ENV | {"RUSTFLAGS": "--cap-lints=allow"},
        )
        programs, unviable = {}, set()
        for line in process.stdout.splitlines():
            message = json.loads(line)
            if message.get("executable"):
                programs[message["target"]["name"]] = message["executable"]
            elif (
                message.get("reason") == "compiler-message"
                and message["message"]["level"] == "error"
            ):
                for span in message["message"]["spans"]:
                    unviable |= {
                        m
                        for m, (first_line, last_line) in lines.items()
                        if span["file_name"].endswith("/" + m.file)
                        and first_line <= span["line_start"] <= last_line
                    }
        if process.returncode == 0:
            return programs, mutants
        if not unviable:
            sys.exit(process.stdout + process.stderr)
        print("unviable:", *sorted(m.name for m in unviable), sep="\n  ", flush=True)
        mutants = [m for m in mutants if m not in unviable]


def run_tests(programs, mutant):
    """Runs the test programs in order until one fails. Returns its failed tests and scenarios."""
    failures = []
    for name in RULE_TEST_ORDER if mutant.rule else TEST_ORDER:
        try:
            process = run_command(
                programs[name],
                env=TEST_ENV | {"VISAVIS_MUTANT": str(mutant.id)},
                cwd=SOURCE_COPY / CRATE,
                preexec_fn=limit_process,
                timeout=20 if name in FAST_TESTS else 120,
            )
        except subprocess.TimeoutExpired:
            failures.append(f"{name}: time-out")
            break
        output = process.stdout + process.stderr
        if process.returncode != 0:
            failed = re.findall(r"^test (\S+) \.\.\. FAILED", output, re.MULTILINE)
            failures += [f"{name}::{test}" for test in failed] or [f"{name}: died"]
            scenarios = sorted(set(re.findall(r"^(\S+)\.json: ", output, re.MULTILINE)))
            if scenarios:
                examples = f"{', '.join(scenarios[:3])}{', …' * (len(scenarios) > 3)}"
                failures.append(f"{len(scenarios)} scenarios: {examples}")
            break
    return failures


def save_outcomes(file, outcomes):
    """Replaces the lines of these mutants and keeps all others, which belong to other shards."""
    path = RESULTS / file
    lines = path.read_text().splitlines() if path.exists() else []
    merged = dict(line.split("\t", 1) for line in lines) | outcomes
    path.write_text("".join(f"{name}\t{outcome}\n" for name, outcome in sorted(merged.items())))


def drop_outcomes(file, names):
    """Removes the lines of mutants that no longer exist; `names` are those that exist."""
    path = RESULTS / file
    if path.exists():
        lines = path.read_text().splitlines(keepends=True)
        path.write_text("".join(line for line in lines if line.split("\t", 1)[0] in names))


def copy_sources():
    """Copies changed files of the checkout to SOURCE_COPY. The sources of the crate are copied only
    once: `build_tests` overwrites them."""
    listing = run_command(
        *("git", "ls-files", "-coz", "--exclude-standard"), cwd=ROOT, check=True
    ).stdout
    for name in filter(None, listing.split("\0")):
        copy, content = SOURCE_COPY / name, (ROOT / name).read_bytes()
        is_mutated = Path(name) in PATHS.values()
        if not copy.exists() or (not is_mutated and copy.read_bytes() != content):
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(content)


def main():
    words = sys.argv[1:]
    only_rules = "--rules" in words
    shards = [word for word in words if word != "--rules"]
    shard, shard_count = map(int, shards[0].split("/")) if shards else (0, 1)
    files = (("rules.txt", True), ("mutants.txt", False))
    copy_sources()
    texts = {name: (ROOT / path).read_text() for name, path in PATHS.items()}
    mutants = [*rule_mutants(texts), *([] if only_rules else cargo_mutants(texts))]
    for file, has_rules in files[: 1 if only_rules else 2]:
        drop_outcomes(file, {m.name for m in mutants if bool(m.rule) == has_rules})
    mutants = mutants[shard::shard_count]
    for number, mutant in enumerate(mutants, 1):
        mutant.id = number
    outside_functions = [m for m in mutants if m.body is None]
    mutants = [m for m in mutants if m.body is not None]
    outcomes = {}
    programs, viable = build_tests(texts, mutants)
    outcomes |= {m: "unviable" for m in mutants if m not in viable}
    for file, has_rules in files:
        save_outcomes(
            file,
            {m.name: outcome for m, outcome in outcomes.items() if bool(m.rule) == has_rules},
        )

    def report_outcome(mutant, failures):
        outcomes[mutant] = "caught by " + "; ".join(failures) if failures else "SURVIVES"
        with LOCK:
            file = "rules.txt" if mutant.rule else "mutants.txt"
            save_outcomes(file, {mutant.name: outcomes[mutant]})
        print(mutant.name, "->", outcomes[mutant], flush=True)

    original = Mutant("", None, "", 0, 0, "", None, None)
    original.id = 0
    if failures := run_tests(programs, original):
        sys.exit(f"the tests fail without a mutant: {failures}")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda m: report_outcome(m, run_tests(programs, m)), viable))
    # A mutant outside functions is built alone.
    for mutant in outside_functions:
        text = texts[mutant.file]
        mutated = text[: mutant.begin] + mutant.new + text[mutant.end :]
        programs, _ = build_tests(texts | {mutant.file: mutated}, [])
        report_outcome(mutant, run_tests(programs, mutant))
    survivors_file = (RESULTS / "survivors.txt").read_text()
    with_reason = {line.split("\t")[0] for line in survivors_file.splitlines()}
    survivors = [m.name for m, outcome in outcomes.items() if outcome == "SURVIVES"]
    unexplained = [name for name in survivors if name not in with_reason]
    print(
        f"{len(outcomes)} mutants, {len(survivors)} survive, "
        f"{len(unexplained)} of them without a reason",
        *unexplained,
        sep="\n  ",
    )
    sys.exit(bool(unexplained))


if __name__ == "__main__":
    main()
