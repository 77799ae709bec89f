#!/usr/bin/env python3
"""Breaks the rules of turn-taking one by one and sees whether the tests notice. Outside CI: `make mutants`.

    scripts/mutants.py [--rules] [K/N]     the K-th of N shards, from 0; --rules: only the mutants of rules, which need no `cargo mutants`

The mutants are those that `cargo mutants` lists for the files below, and one for each rule of the page (engine/conversation/mutants/rules.toml).
They are built once, all together: a function with mutants becomes a choice between its text and theirs, made by the environment variable
VISAVIS_MUTANT. A mutant that does not compile is dropped, told as unviable, and the rest is built again.
Works on a copy in target/mutants. What came of it stands in engine/conversation/mutants: rules.txt, mutants.txt. Exits with 1 if a mutant survives
that has no reason in survivors.txt.
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
COPY = WORK / "src"
CRATE = Path("engine/conversation")
KEPT = ROOT / CRATE / "mutants"
# The sources by file name, which no two of them share.
PATHS = {path.name: path.relative_to(ROOT) for path in (ROOT / CRATE / "src").rglob("*.rs") if path.name != "mod.rs"}
FILES = ["barge_in", "endpoint", "floor", "reply", "history"]
# In the order in which most is caught soonest.
TESTS = ["scenarios", "worked", "live", "conversation", "oracle", "laws", "replay", "chaos"]
# A rule is for the scenarios and the laws to keep: the others are asked only where neither notices.
OF_RULES = ["scenarios", "laws", "oracle", "worked", "live", "conversation", "replay", "chaos"]
BUILD = os.environ | {"CARGO_PROFILE_DEV_DEBUG": "0", "CARGO_PROFILE_DEV_OPT_LEVEL": "1", "CARGO_TARGET_DIR": str(WORK / "target")}
# These take a second; a mutant that runs for ever does so in them, too.
QUICK = ["scenarios", "worked", "live", "conversation"]
# A short run of the laws and the oracle.
RUN = os.environ | {"VISAVIS_LAWS_INPUTS": "60000", "RUST_BACKTRACE": "0"}
LOCK = Lock()
CHOICE = """
/// Which mutant this is.
pub(crate) fn mutant() -> u32 {
    static CHOSEN: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *CHOSEN.get_or_init(|| std::env::var("VISAVIS_MUTANT").map_or(0, |n| n.parse().unwrap()))
}
"""


def limited():
    """A mutant may grow without end."""
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    os.nice(int(os.environ.get("NICE", "19")))


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, **options)


class Mutant:
    """`text[begin:end]` of a file becomes `new`, in the function whose body is text[body:close]."""

    def __init__(self, name, rule, file, begin, end, new, body, close):
        self.name, self.rule, self.file, self.begin, self.end, self.new, self.body, self.close = name, rule, file, begin, end, new, body, close


def offsets(text):
    """Byte offsets have no use here: columns count characters, lines and columns from 1."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    return lambda place: starts[place["line"] - 1] + place["column"] - 1


def listed(texts):
    """What cargo mutants would do."""
    select = [word for name in FILES for word in ("--file", str(CRATE / f"src/machine/{name}.rs"))]
    done = run("cargo", "mutants", "--list", "--json", "--package", "visavis-conversation", *select, cwd=ROOT, check=True)
    alike = {}
    for found in sorted(json.loads(done.stdout), key=lambda found: (found["file"], found["span"]["start"]["line"], found["span"]["start"]["column"])):
        text = texts[Path(found["file"]).name]
        at = offsets(text)
        begin, end = at(found["span"]["start"]), at(found["span"]["end"])
        whole = at(found["function"]["span"]["start"]), at(found["function"]["span"]["end"])
        body = text.index("{", whole[0]) + 1
        # Without the place, which any edit moves; of several alike in one function, the first, the second.
        name = re.sub(r":\d+:\d+:", ":", found["name"].removeprefix(f"{CRATE}/src/machine/"))
        alike[name] = alike.get(name, 0) + 1
        name += f" ({alike[name]})" * (alike[name] > 1)
        yield Mutant(name, None, Path(found["file"]).name, begin, end, found["replacement"], body, whole[1] - 1)


def ruled(texts):
    for rule in tomllib.loads((KEPT / "rules.toml").read_text())["rule"]:
        text, old, new = texts[rule["file"]], rule["old"], rule["new"]
        if text.count(old) != 1:
            sys.exit(f"{rule['rule']}: {old!r} stands {text.count(old)} times in {rule['file']}")
        begin = text.index(old)
        # The innermost function around it, if it is within one.
        heads = [m for m in re.finditer(r"^( *)(?:pub(?:\(crate\))? )?fn ", text, re.M) if m.start() < begin]
        body = close = None
        if heads:
            close = text.index(f"\n{heads[-1][1]}}}", heads[-1].end()) + 1 + len(heads[-1][1])
            body = text.index("{\n", heads[-1].end()) + 1
        if not heads or close < begin + len(old):
            body = close = None
        yield Mutant(f"{rule['of']}: {rule['rule']}", rule["rule"], rule["file"], begin, begin + len(old), new, body, close)


def weave(text, mutants):
    """The file with all of its mutants, and the lines of each."""
    out, at, lines = "", 0, {}
    for body, close in sorted({(m.body, m.close) for m in mutants}):
        out += text[at:body] + "\nmatch crate::mutant() {\n"
        for m in (m for m in mutants if m.body == body):
            first = out.count("\n") + 1
            out += f"{m.id} => {{{text[body:m.begin]}{m.new}{text[m.end:close]}}}\n"
            lines[m] = (first, out.count("\n") + 1)
        out += f"_ => {{{text[body:close]}}}\n}}\n"
        at = close
    return out + text[at:], lines


def build(texts, mutants):
    """The test programs, and the mutants that are in them; those that are not do not compile."""
    tests = [word for name in TESTS if name != "conversation" for word in ("--test", name)]
    while True:
        lines = {}
        for file, text in texts.items():
            woven, of = weave(text, [m for m in mutants if m.file == file])
            lines |= of
            path = COPY / PATHS[file]
            woven += CHOICE if file == "lib.rs" else ""
            if path.read_text() != woven:
                path.write_text(woven)
        done = run("cargo", "test", "--package", "visavis-conversation", "--package", "visavis-conversation-tests", "--lib", *tests, "--no-run", "--message-format", "json", cwd=COPY, env=BUILD | {"RUSTFLAGS": "--cap-lints=allow"})
        programs, wrong = {}, set()
        for line in done.stdout.splitlines():
            message = json.loads(line)
            if message.get("executable"):
                programs[message["target"]["name"]] = message["executable"]
            elif message.get("reason") == "compiler-message" and message["message"]["level"] == "error":
                for span in message["message"]["spans"]:
                    wrong |= {m for m, (a, b) in lines.items() if span["file_name"].endswith("/" + m.file) and a <= span["line_start"] <= b}
        if done.returncode == 0:
            return programs, mutants
        if not wrong:
            sys.exit(done.stdout + done.stderr)
        print("unviable:", *sorted(m.name for m in wrong), sep="\n  ", flush=True)
        mutants = [m for m in mutants if m not in wrong]


def play(programs, mutant):
    """Which tests and scenarios of the first program that notices do."""
    noticed = []
    for name in OF_RULES if mutant.rule else TESTS:
        try:
            done = run(programs[name], env=RUN | {"VISAVIS_MUTANT": str(mutant.id)}, cwd=COPY / CRATE, preexec_fn=limited, timeout=20 if name in QUICK else 120)
        except subprocess.TimeoutExpired:
            noticed.append(f"{name}: time-out")
            break
        said = done.stdout + done.stderr
        if done.returncode != 0:
            failed = re.findall(r"^test (\S+) \.\.\. FAILED", said, re.M)
            noticed += [f"{name}::{test}" for test in failed] or [f"{name}: died"]
            stories = sorted(set(re.findall(r"^(\S+)\.json: ", said, re.M)))
            if stories:
                noticed.append(f"{len(stories)} scenarios: {', '.join(stories[:3])}{', …' * (len(stories) > 3)}")
            break
    return noticed


def keep(file, outcomes):
    """Replaces the lines of these mutants and keeps the others, which were another shard's."""
    path = KEPT / file
    old = dict(line.split("\t", 1) for line in path.read_text().splitlines()) if path.exists() else {}
    path.write_text("".join(f"{name}\t{outcome}\n" for name, outcome in sorted((old | outcomes).items())))


def forget(file, names):
    """Drops the lines of mutants that the sources have no more."""
    path = KEPT / file
    if path.exists():
        path.write_text("".join(line for line in path.read_text().splitlines(keepends=True) if line.split("\t", 1)[0] in names))


def main():
    words = sys.argv[1:]
    only_rules = "--rules" in words
    shards = [word for word in words if word != "--rules"]
    shard, of = map(int, shards[0].split("/")) if shards else (0, 1)
    for name in filter(None, run("git", "ls-files", "-coz", "--exclude-standard", cwd=ROOT, check=True).stdout.split("\0")):
        old, new = COPY / name, (ROOT / name).read_bytes()
        woven = Path(name) in PATHS.values()
        if not woven and (not old.exists() or old.read_bytes() != new) or not old.exists():
            old.parent.mkdir(parents=True, exist_ok=True)
            old.write_bytes(new)
    texts = {name: (ROOT / path).read_text() for name, path in PATHS.items()}
    mutants = [*ruled(texts), *([] if only_rules else listed(texts))]
    for file, of_rules in (("rules.txt", True), ("mutants.txt", False))[: 1 if only_rules else 2]:
        forget(file, {m.name for m in mutants if bool(m.rule) == of_rules})
    mutants = mutants[shard::of]
    for number, mutant in enumerate(mutants, 1):
        mutant.id = number
    apart = [m for m in mutants if m.body is None]
    mutants = [m for m in mutants if m.body is not None]
    outcomes = {}
    programs, viable = build(texts, mutants)
    outcomes |= {m: "unviable" for m in mutants if m not in viable}
    for file, of_rules in (("rules.txt", True), ("mutants.txt", False)):
        keep(file, {m.name: outcome for m, outcome in outcomes.items() if bool(m.rule) == of_rules})

    def tell(mutant, noticed):
        outcomes[mutant] = "caught by " + "; ".join(noticed) if noticed else "SURVIVES"
        with LOCK:
            keep("rules.txt" if mutant.rule else "mutants.txt", {mutant.name: outcomes[mutant]})
        print(mutant.name, "->", outcomes[mutant], flush=True)

    unbroken = Mutant("", None, "", 0, 0, "", None, None)
    unbroken.id = 0
    if noticed := play(programs, unbroken):
        sys.exit(f"fails without any mutant: {noticed}")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda m: tell(m, play(programs, m)), viable))
    # What is no function's text is built alone.
    for mutant in apart:
        text = texts[mutant.file]
        programs, _ = build(texts | {mutant.file: text[: mutant.begin] + mutant.new + text[mutant.end :]}, [])
        tell(mutant, play(programs, mutant))
    reasons = {line.split("\t")[0] for line in (KEPT / "survivors.txt").read_text().splitlines()}
    survivors = [m.name for m, outcome in outcomes.items() if outcome == "SURVIVES" and m.name not in reasons]
    print(f"{len(outcomes)} mutants, {sum(o == 'SURVIVES' for o in outcomes.values())} survive, {len(survivors)} of them without a reason", *survivors, sep="\n  ")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
