#!/usr/bin/env python3
"""Counts the words of the sentences in the documents: `make lint` fails if one is too long.

  scripts/prose.py [--list N] [FILE ...]

Without files, all Markdown files of the repository are read. Not counted: tables, code, headings,
addresses of links, and list items without a full stop (lists of names). `--list N` prints the
sentences of more than N words. The exit code is 1 if a sentence has more than 40 words, if the
median of all sentences is above 14, or if a line of prose is longer than 100 columns.
"""

import argparse
import re
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
#: Limits of a sentence, in words, and of a line of prose, in columns.
MAX_WORDS, MAX_MEDIAN, MAX_COLUMNS = 40, 14, 100
#: Abbreviations whose full stop ends no sentence.
ABBREVIATIONS = re.compile(r"\b(e\.g|i\.e|etc|vs|cf|approx|no|fig|sec)\.$", re.IGNORECASE)
#: The end of a sentence, with a closing bracket or quote behind it.
SENTENCE_END = re.compile(r"(?<=[.!?])[)\"”»]*\s+(?=[\"“«(\[*]*[A-Z0-9])")


def paragraphs(text: str):
    """Paragraphs and list items of a Markdown text, as (line number, text)."""
    fence = comment = False
    block, start = [], 0
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith(("```", "~~~")):
            fence = not fence
        comment = (comment or stripped.startswith("<!--")) and "-->" not in line
        is_break = (
            fence
            or comment
            or not stripped
            or stripped.startswith(("#", "|", "```", "~~~", "<", "!["))
            or re.fullmatch(r"[-=*_ ]{3,}", stripped)
        )
        is_item = re.match(r"\s*([-*+]|\d+[.)])\s+", line)
        if (is_break or is_item) and block:
            yield start, " ".join(block)
            block = []
        if not is_break:
            if not block:
                start = number
            block.append(re.sub(r"^([-*+]|\d+[.)])\s+", "", stripped))
    if block:
        yield start, " ".join(block)


def plain(text: str) -> str:
    """The text of a paragraph: links as their words, code as one word."""
    text = re.sub(r"!?\[([^\]]*)\](\([^)]*\)|\[[^\]]*\])", r"\1", text)
    text = re.sub(r"``?[^`]+``?", "Code", text)
    return re.sub(r"[*_]{1,3}", "", text)


def sentences(paragraph: str) -> list[str]:
    """The sentences of a paragraph."""
    parts, found = SENTENCE_END.split(plain(paragraph)), []
    for part in parts:
        if found and ABBREVIATIONS.search(found[-1]):
            found[-1] += " " + part
        else:
            found.append(part)
    return [sentence for sentence in found if sentence.strip()]


def word_count(sentence: str) -> int:
    """Words of a sentence. Punctuation, arrows and dashes that stand alone are none."""
    return sum(1 for word in sentence.split() if re.search(r"\w", word))


def documents() -> list[Path]:
    # The demo's knowledge is data: what an agent is asked about.
    patterns = ["*.md", ":!control-api/src/resources/demo", ":!models/tests/answers"]
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listed.stdout.split()]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--list", type=int, metavar="N", help="print the sentences of more than N words"
    )
    parser.add_argument("files", nargs="*", type=Path)
    options = parser.parse_args()
    counts, faults = [], []
    for path in options.files or documents():
        name = path.resolve().relative_to(ROOT) if path.resolve().is_relative_to(ROOT) else path
        for number, paragraph in paragraphs(path.read_text()):
            for sentence in sentences(paragraph):
                # A list of names has no sentence.
                if not re.search(r"[.!?]", sentence[-2:]) and word_count(sentence) <= MAX_WORDS:
                    continue
                count = word_count(sentence)
                counts.append(count)
                if options.list is not None and count > options.list:
                    print(f"{name}:{number}: {count}: {sentence}")
                if count > MAX_WORDS:
                    faults.append(
                        f"{name}:{number}: a sentence of {count} words (at most {MAX_WORDS})"
                    )
        fence = False
        for number, line in enumerate(path.read_text().splitlines(), 1):
            fence ^= line.strip().startswith("```")
            is_prose = (
                not fence
                and not line.lstrip().startswith(("|", "#", "<", "["))
                and " " in line.strip()
            )
            # A link cannot be broken.
            if (
                is_prose
                and len(line) > MAX_COLUMNS
                and len(re.sub(r"\([^)\s]*\)", "", line)) > MAX_COLUMNS
            ):
                faults.append(
                    f"{name}:{number}: a line of {len(line)} columns (at most {MAX_COLUMNS})"
                )
    median = statistics.median(counts) if counts else 0
    if median > MAX_MEDIAN:
        faults.append(f"the median sentence has {median:g} words (at most {MAX_MEDIAN})")
    print(
        "\n".join(
            [
                *faults,
                (
                    f"{len(counts)} sentences, median {median:g} words, longest "
                    f"{max(counts, default=0)}"
                ),
            ]
        )
    )
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
