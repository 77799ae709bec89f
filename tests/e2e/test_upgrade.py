"""The data folder and the trace of an older program (previous_release/make.py): this program
answers the same about them, replays the call, and goes on from there."""

import json
import pathlib
import shutil
import sqlite3
import stat
import subprocess

from kit import typed_call
from kit.server import binary
from previous_release.answers import read_answers

PREVIOUS = pathlib.Path(__file__).parent / "previous_release"


def restore(folder):
    """Writes the older program's data folder; returns its key, its ids and its answers."""
    stored = json.loads((PREVIOUS / "answers.json").read_text())
    with sqlite3.connect(folder / "visavis.db") as store:
        store.executescript((PREVIOUS / "store.sql").read_text())
    store.close()
    for key in (PREVIOUS / "keys").iterdir():
        shutil.copy(key, folder / key.name)
        (folder / key.name).chmod(stat.S_IRUSR | stat.S_IWUSR)
    (folder / "traces").mkdir()
    shutil.copy(
        PREVIOUS / "trace.jsonl", folder / "traces" / f"{stored['ids']['conversation']}.jsonl"
    )
    return stored


def without_new_settings(answer, stored):
    """The answer without the properties that the older program did not know."""
    if isinstance(answer, dict) and isinstance(stored, dict):
        known = (name for name in answer if name in stored)
        return {name: without_new_settings(answer[name], stored[name]) for name in known}
    if isinstance(answer, list) and isinstance(stored, list) and len(answer) == len(stored):
        return [without_new_settings(*pair) for pair in zip(answer, stored, strict=True)]
    return answer


def test_a_data_folder_of_the_previous_release_is_read(start_server, tmp_path):
    stored = restore(tmp_path)
    server = start_server("upgrade", data=tmp_path)
    server.key = stored["key"]
    server.wait_ready()
    answers = read_answers(server, stored["ids"])
    assert set(answers) == set(stored["answers"])
    for path, answer in stored["answers"].items():
        assert without_new_settings(answers[path], answer) == answer, path

    # The agent, its secrets and its knowledge are in use, too.
    record = typed_call.run_call(server, {"id": stored["ids"]["agent"]}, ask)
    assert [entry["role"] for entry in record["transcript"]] == [
        "assistant",
        "user",
        "assistant",
    ], record
    assert "nine" in record["transcript"][2]["content"], record["transcript"]


async def ask(client):
    await client.wait_for_utterance("Welcome to the museum.")
    await client.ask("When does the museum open?", "nine")


def test_a_trace_of_the_previous_release_is_replayed():
    run = subprocess.run(
        [binary(), "replay", str(PREVIOUS / "trace.jsonl")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 0 and run.stderr.startswith("identical: "), run.stderr
