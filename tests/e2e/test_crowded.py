"""A call whose server shares two processors with six busy programs: what it needs itself, and what it waits for a processor.

The figures are the server's own: its sample clock stands for the caller's, so a caller that is late does not count. The time in which its
threads could run and had no processor is the kernel's (`schedstat`).
"""

import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

from kit import facts, talk, voice
from kit.peer import run
from kit.report import spread
from kit.server import binary

pytestmark = pytest.mark.long("load")

QUESTIONS = ["Please tell me about the old clocks.", "Tell me about the garden behind the house.", "What is there to eat in the restaurant?"]
TURNS = 22
BUSY = 6
#: Seconds of an answer after which the next question cuts in.
INTO = 1.2
#: Barge-in to silence, p95, s: with the right to raise the priority of media threads, and without.
BARGE_IN = {True: 0.40, False: 0.60}
#: The program's own share, what its threads waited for a processor taken off; p95, s.
OWN_BARGE_IN = 0.30
OWN_ANSWER = 0.90


@pytest.fixture
def crowd():
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    yield
    for process in busy:
        process.kill()
        process.wait()


@pytest.fixture
def humble(monkeypatch, tmp_path):
    """Servers started from now on may not raise a priority."""
    if os.geteuid() == 0:
        wrapper = tmp_path / "visavis"
        wrapper.write_text(f'#!/bin/sh\nexec setpriv --bounding-set=-sys_nice --inh-caps=-sys_nice "{binary()}" "$@"\n')
        wrapper.chmod(0o755)
        monkeypatch.setenv("VISAVIS_BIN", str(wrapper))


class Threads:
    """The threads of a server by their names."""

    def __init__(self, server):
        tasks = pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()
        self.tasks = [(task, (task / "comm").read_text().strip()) for task in tasks]

    def waited(self, *names) -> float:
        """Seconds so far in which threads of these names could run and had no processor."""
        return sum(int((task / "schedstat").read_text().split()[1]) for task, name in self.tasks if name.startswith(names)) / 1e9

    def nice(self, name) -> set[int]:
        return {int((task / "stat").read_text().rsplit(")", 1)[1].split()[16]) for task, found in self.tasks if found.startswith(name)}


def sounds():
    for text in QUESTIONS:
        samples, rate = voice.flite(text, "rms")
        samples = voice.trim(samples)
        at = np.arange(int(len(samples) * 48_000 / rate)) * rate / 48_000
        yield np.interp(at, np.arange(len(samples)), samples).astype(np.int16)


def measured(server, report, name, raised):
    agent = server.agent(name="Crowded", knowledge=facts.LONG, avatar={"idle_timeout": {"timeout": 0}, "exit_message": {"max_call_duration": 1800}},
                         turn={"min_interruption_duration": 0.25, "backchannels": False, "stop_words": False})  # fmt: skip
    conversation = server.conversation(agent["id"])
    threads = Threads(server)
    assert threads.nice("media-") == ({-10} if raised else {0}) and threads.nice("model-") == {5}
    said = list(sounds())
    waits = []

    async def calling():
        client = await talk.Talk(server, conversation).begin()
        started = lambda: len(client.events("agent.started_speaking"))  # noqa: E731
        committed = lambda: len(client.events("utterance_committed"))  # noqa: E731
        for number in range(TURNS):
            sound = said[number % len(said)]
            before, turn, answers = threads.waited("media-"), committed(), started()
            client.mouth.queue = sound
            await client.until(lambda: not len(client.mouth.queue), what="the question is said")
            ended = threads.waited("media-", "model-", "net")
            barged = threads.waited("media-") - before
            await client.until(lambda: committed() > turn, what="the turn")
            await client.until(lambda: started() > answers, what="the answer")
            waits.append((barged, threads.waited("media-", "model-", "net") - ended))
            # Sound and not time: so much of the answer was heard.
            heard = sum(len(part) for part in client.heard)
            await client.until(lambda: sum(len(part) for part in client.heard) >= heard + INTO * 48_000, what="a part of the answer")
        await client.leave()

    run(calling())
    server.until(conversation["id"], "ENDED")
    turns = server.turns(conversation["id"], TURNS)
    # The voice that cut the answer of a turn is that of the next.
    barge_ins = [(turn["barge_in"], waits[number + 1][0]) for number, turn in enumerate(turns[: TURNS - 1]) if turn["barge_in"] is not None]
    answers = [(turn["voice_to_voice"], waits[number][1]) for number, turn in enumerate(turns[:TURNS]) if turn["voice_to_voice"] is not None]
    assert len(barge_ins) >= TURNS - 4 and len(answers) >= TURNS - 4, turns
    own = lambda pairs: spread([max(0.0, took - waited) for took, waited in pairs])  # noqa: E731
    found = {"barge-in to silence": spread([took for took, _ in barge_ins]), "its own share": own(barge_ins),
             "end of speech to first sound": spread([took for took, _ in answers]), "the answer's own share": own(answers),
             "nice of media threads": sorted(threads.nice("media-")), "every barge-in": barge_ins, "every answer": answers}  # fmt: skip
    report.add(name, found)
    report.promise(f"{name}: barge-in to silence, p95, s", found["barge-in to silence"]["p95"], BARGE_IN[raised])
    report.promise(f"{name}: the program's own share of it, p95, s", found["its own share"]["p95"], OWN_BARGE_IN)
    report.promise(f"{name}: the program's own share of an answer, p95, s", found["the answer's own share"]["p95"], OWN_ANSWER)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs the right to raise a priority")
def test_six_busy_programs_delay_a_barge_in_little(start, crowd, report):
    measured(start("crowded").first_start().ready(), report, "beside six busy programs, with the right to raise priorities", True)


@pytest.mark.skipif(os.geteuid() == 0 and not shutil.which("setpriv"), reason="needs setpriv to give up the right")
def test_without_the_right_to_raise_priorities_a_barge_in_still_silences_soon(start, humble, crowd, report):
    measured(start("humble").first_start().ready(), report, "beside six busy programs, without that right", False)
