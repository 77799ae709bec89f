"""Running the load generator, and what its report must hold."""

import json
import subprocess
from pathlib import Path

from .server import binary

KEYS = {
    "ms": {"join", "voice_to_voice", "overhead", "barge_in", "duck", "ttff"},
    "video": {"fps_speaking", "freezes", "skew_ms"},
    "turns": {"expected", "right", "wrong", "missing"},
    "events": {"expected", "missing", "out_of_order"},
    "server": {"cpu_ms_per_call_second", "rss_bytes", "rss_bytes_per_call", "cores"},
}
NUMBERS = {"calls", "seconds", "late_audio_frames", "audio_frames", "concealed_ms"}


def load(*arguments, timeout=60):
    return subprocess.run([binary(), "load", *arguments], capture_output=True, text=True, timeout=timeout)


def found_in(out: Path) -> dict:
    """The report in a file, with all that any report has."""
    found = json.loads(out.read_text())
    assert NUMBERS <= {key for key, value in found.items() if isinstance(value, int | float)}
    for group, keys in KEYS.items():
        assert keys <= found[group].keys(), group
    return found
