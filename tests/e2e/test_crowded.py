"""A call whose server shares two processors with six busy programs: what it needs itself, and what it waits for a processor.

The caller is the load generator, which runs before the busy programs, so that no figure holds a wait of the caller's. The times are the
server's own, of each turn; the time in which its threads could run and had no processor is the kernel's (`schedstat`).
"""

import datetime
import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from kit import facts, voice
from kit.loading import generator
from kit.report import spread
from kit.server import ROOT, binary

pytestmark = [
    pytest.mark.long("load"),
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root, so that the caller runs before the busy programs, and setpriv"),
]

QUESTIONS = ["Please tell me about the old clocks.", "Tell me about the garden behind the house.", "What is there to eat in the restaurant?"]
TURNS = 21
#: Seconds of silence behind each question: the next one cuts into its answer.
GAP = 6.0
RATE = 16_000
BUSY = 6
#: `nice` of the caller and of the sampler.
FIRST = -15
#: Seconds between two looks at the threads.
STEP = 0.01
#: Threads by whose work a user waits, by the beginnings of their names.
THREADS = ("media-", "model-", "net")
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
    wrapper = tmp_path / "visavis"
    wrapper.write_text(f'#!/bin/sh\nexec setpriv --bounding-set=-sys_nice --inh-caps=-sys_nice "{binary()}" "$@"\n')
    wrapper.chmod(0o755)
    monkeypatch.setenv("VISAVIS_BIN", str(wrapper))


class Waits(threading.Thread):
    """How long the threads of a server waited for a processor, look by look."""

    def __init__(self, server):
        super().__init__(daemon=True)
        tasks = pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()
        named = [(task, (task / "comm").read_text().strip()) for task in tasks]
        # These live as long as the server.
        self.tasks = [(task, name) for task, name in named if name.startswith(THREADS)]
        self.times: list[float] = []
        self.waited: list[list[int]] = []
        self.over = threading.Event()

    def run(self):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), FIRST)
        files = [(task / "schedstat").open() for task, _ in self.tasks]
        while not self.over.wait(STEP):
            self.times.append(time.time())
            self.waited.append([int(os.pread(file.fileno(), 64, 0).split()[1]) for file in files])

    def nice(self, name) -> set[int]:
        return {int((task / "stat").read_text().rsplit(")", 1)[1].split()[16]) for task, found in self.tasks if found.startswith(name)}

    def stop(self):
        self.over.set()
        self.join()
        self.waits = np.diff(np.array(self.waited), axis=0) / 1e9

    def between(self, begin: float, end: float, *names) -> float:
        """Seconds from `begin` to `end`, times of day, in which a thread of these names waited. Threads that wait at the same time count once,
        and none for longer than the time between two looks."""
        columns = [n for n, (_, name) in enumerate(self.tasks) if name.startswith(names)]
        times = np.array(self.times)
        inside = (times[:-1] >= begin) & (times[1:] <= end)
        longest = self.waits[inside][:, columns].max(axis=1, initial=0)
        return float(np.minimum(longest, np.diff(times)[inside]).sum())


def workload(folder: pathlib.Path) -> list[str]:
    """What the caller says, as the load generator reads it."""
    script = json.loads((ROOT / "benches/load/workload/workload.json").read_text())
    script["utterances"], sound = [], [np.zeros(RATE, np.int16)]
    for number, text in enumerate(QUESTIONS):
        samples, rate = voice.flite(text, "rms")
        samples = voice.trim(samples)
        at = np.arange(int(len(samples) * RATE / rate)) * rate / RATE
        onset = sum(map(len, sound)) / RATE
        sound += [np.interp(at, np.arange(len(samples)), samples).astype(np.int16), np.zeros(int(GAP * RATE), np.int16)]
        script["utterances"].append({"id": number, "onset_s": onset, "end_s": onset + len(at) / RATE, "transcript": text, "reply": "Yes.", "barge_in": False})
    (folder / "said.wav").write_bytes(voice.wav(np.concatenate(sound), RATE))
    (folder / "said.json").write_text(json.dumps(script))
    rounds = TURNS / len(QUESTIONS) * sum(map(len, sound)) / RATE
    return ["--speech", str(folder / "said.wav"), "--workload", str(folder / "said.json"), "--duration", f"{rounds:.0f}"]


def measured(server, folder, report, name, raised):
    agent = server.agent(name="Crowded", knowledge=facts.LONG, avatar={"idle_timeout": {"timeout": 0}, "exit_message": {"max_call_duration": 1800}},
                         turn={"min_interruption_duration": 0.25, "backchannels": False, "stop_words": False})  # fmt: skip
    waits = Waits(server)
    assert waits.nice("media-") == ({-10} if raised else {0}) and waits.nice("model-") == {5}, waits.tasks
    waits.start()
    command = ["nice", "-n", str(FIRST), *generator(), "--server", server.url, "--key", server.key, "--agent", agent["id"], "--calls", "1", *workload(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    waits.stop()
    assert done.returncode == 0, done.stdout + done.stderr
    (conversation,) = server.call("GET", "/v1/ext/conversation").json()
    turns = server.turns(conversation["id"])
    begun = datetime.datetime.fromisoformat(conversation["joined_at"]).timestamp()
    def pairs(first, last, took, names):
        """Of each turn that has both times: how long it took, and how long of it threads of these names waited."""
        known = [turn for turn in turns if turn[took] is not None and turn["timeline"][last] is not None]
        begins = [turn["timeline"][last] - turn[took] if first is None else turn["timeline"][first] for turn in known]
        return [(turn[took], waits.between(begun + begin, begun + turn["timeline"][last], *names)) for turn, begin in zip(known, begins, strict=True)]

    barge_ins = pairs(None, "heard_end", "barge_in", ("media-",))
    answers = pairs("speech_end", "first_sample", "voice_to_voice", THREADS)
    own = lambda pairs: spread([max(0.0, took - waited) for took, waited in pairs])  # noqa: E731
    found = {"barge-in to silence": spread([took for took, _ in barge_ins]), "its own share": own(barge_ins),
             "end of speech to first sound": spread([took for took, _ in answers]), "the answer's own share": own(answers),
             "every barge-in": barge_ins, "every answer": answers, "turns": turns}  # fmt: skip
    report.add(name, found)
    assert len(barge_ins) >= TURNS - 5 and len(answers) >= TURNS - 2, found
    report.promise(f"{name}: barge-in to silence, p95, s", found["barge-in to silence"]["p95"], BARGE_IN[raised])
    report.promise(f"{name}: the program's own share of it, p95, s", found["its own share"]["p95"], OWN_BARGE_IN)
    report.promise(f"{name}: the program's own share of an answer, p95, s", found["the answer's own share"]["p95"], OWN_ANSWER)


def test_six_busy_programs_delay_a_barge_in_little(start, crowd, tmp_path, report):
    measured(start("crowded").first_start().ready(), tmp_path, report, "beside six busy programs, with the right to raise priorities", True)


def test_without_the_right_to_raise_priorities_a_barge_in_still_silences_soon(start, humble, crowd, tmp_path, report):
    measured(start("humble").first_start().ready(), tmp_path, report, "beside six busy programs, without that right", False)
