"""The program that draws avatars: its processes, and a shortcut to a finished avatar."""

import os
import pathlib
import signal

from .polling import wait_until
from .server import ROOT

#: Timeout in seconds for actions that take no time on an idle machine.
TEST_TIMEOUT = 120


def process_fields(process):
    """Fields of a process from its state on (proc(5)); empty once it is gone."""
    try:
        return pathlib.Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None


def has_exited(process):
    fields = process_fields(process)
    return not fields or fields[0] == "Z"


def child_processes(server):
    """The living child processes of a server."""
    processes = {
        path.name: process_fields(path.name) for path in pathlib.Path("/proc").glob("[0-9]*")
    }
    return [
        process
        for process, fields in processes.items()
        if fields and fields[0] != "Z" and int(fields[1]) == server.process.pid
    ]


def wait_for(wanted, what):
    """The first true value of `wanted()`."""
    return wait_until(wanted, what, TEST_TIMEOUT)


def finish_drawing(server, avatar, character):
    """Puts the shipped pose set of `character` where the program that draws this avatar stores
    finished sets, and makes the server start that program again."""
    parts = server.data / "bakes" / avatar / "parts"
    (cache_folder,) = wait_for(
        lambda: parts.exists() and list(parts.iterdir()), "the drawing begins"
    )
    for suffix in ("webp", "poses"):
        (cache_folder / suffix).write_bytes(
            (ROOT / "assets" / "avatars" / f"{character}.512.{suffix}").read_bytes()
        )
    # Previews are drawn by other children.
    [child] = [
        process
        for process in child_processes(server)
        if str(parts) in pathlib.Path(f"/proc/{process}/cmdline").read_text()
    ]
    os.kill(int(child), signal.SIGKILL)
