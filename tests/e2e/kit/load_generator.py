"""Runs the load generator and checks the common fields of its report."""

import json
import subprocess
from pathlib import Path

from .server import binary

REPORT_KEYS = {
    "ms": {"join", "voice_to_voice", "overhead", "barge_in", "duck", "ttff"},
    "video": {"fps_speaking", "freezes", "skew_ms"},
    "turns": {"expected", "right", "wrong", "missing"},
    "events": {"expected", "missing", "out_of_order"},
    "server": {"cpu_ms_per_call_second", "rss_bytes", "rss_bytes_per_call", "cores"},
}
REPORT_NUMBERS = {"calls", "seconds", "late_audio_frames", "audio_frames", "concealed_ms"}


def generator_command() -> list[str]:
    """The command of the load generator, which is a separate program beside the server's."""
    own = Path(binary()).with_name("visavis-load")
    return [str(own)] if own.exists() else [binary(), "load"]


def run_load(*arguments, timeout=300):
    return subprocess.run(
        [*generator_command(), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def require_arguments(limits: list[str]) -> list[str]:
    return [word for limit in limits for word in ("--require", limit)]


def read_report(out: Path) -> dict:
    """The report in a file. Fails if a field that every report has is missing."""
    found = json.loads(out.read_text())
    assert {key for key, value in found.items() if isinstance(value, int | float)} >= REPORT_NUMBERS
    for group, keys in REPORT_KEYS.items():
        assert keys <= found[group].keys(), group
    return found
