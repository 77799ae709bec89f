"""A call while the server shares two CPUs with six busy programs: what the call itself needs, and
how long it waits for a CPU.

The caller is the load generator. It has a higher priority than the busy programs, so no figure
contains its own waits. The times are the server's own, for each turn. The kernel provides the time
in which the server's threads were runnable and had no CPU (`schedstat`).
"""

import contextlib
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

from kit import sample_knowledge, speech
from kit.load_generator import generator_command
from kit.report import percentiles
from kit.server import ROOT, binary

pytestmark = [
    pytest.mark.long("load"),
    pytest.mark.skipif(
        os.geteuid() != 0 or not shutil.which("setpriv"),
        reason="needs root, so that the caller runs before the busy programs, and setpriv",
    ),
]

QUESTIONS = [
    "Please tell me about the old clocks.",
    "Tell me about the garden behind the house.",
    "What is there to eat in the restaurant?",
]
TURNS = 18
#: Seconds of silence after each question. The next one interrupts the answer.
SILENCE = 8.0
RATE = 16_000
BUSY_PROGRAMS = 6
#: `nice` of the caller and of the sampler.
CALLER_NICE = -15
#: The interval in seconds between two samples of the threads.
SAMPLE_INTERVAL = 0.01
#: Beginnings of the names of threads that a user waits for.
THREADS = ("media-", "model-", "net")
#: Barge-in to silence, p95, s: with the right to raise the priority of media threads, and without.
BARGE_IN = {True: 0.40, False: 0.60}
#: The program's own share without the CPU waits of its threads; p95, s.
OWN_BARGE_IN = 0.30
OWN_ANSWER = 0.90


@pytest.fixture
def busy_programs():
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY_PROGRAMS)
    ]
    yield
    for process in busy:
        process.kill()
        process.wait()


@pytest.fixture
def without_nice_permission(monkeypatch, tmp_path):
    """Servers that are started from now on may not raise a priority."""
    wrapper = tmp_path / "visavis"
    wrapper.write_text(
        f'#!/bin/sh\nexec setpriv --bounding-set=-sys_nice --inh-caps=-sys_nice "{binary()}" "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("VISAVIS_BIN", str(wrapper))


class CpuWaits(threading.Thread):
    """Samples how long the threads of a server waited for a CPU."""

    def __init__(self, server):
        super().__init__(daemon=True)
        tasks = pathlib.Path(f"/proc/{server.process.pid}/task").iterdir()
        named = [(task, (task / "comm").read_text().strip()) for task in tasks]
        self.tasks = [(task, name) for task, name in named if name.startswith(THREADS)]
        self.times: list[float] = []
        self.waited: list[list[int]] = []
        self.ran: list[list[int]] = []
        self.over = threading.Event()

    def run(self):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), CALLER_NICE)
        files = [(task / "schedstat").open() for task, _ in self.tasks]
        ran, waited = [0] * len(files), [0] * len(files)
        while not self.over.wait(SAMPLE_INTERVAL):
            for column, file in enumerate(files):
                # Threads of the pool for blocking work end after some idle time. They keep their
                # last value.
                with contextlib.suppress(ProcessLookupError):
                    ran[column], waited[column] = map(
                        int, os.pread(file.fileno(), 64, 0).split()[:2]
                    )
            self.times.append(time.time())
            self.waited.append(waited.copy())
            self.ran.append(ran.copy())

    def nice(self, name) -> set[int]:
        return {
            int((task / "stat").read_text().rsplit(")", 1)[1].split()[16])
            for task, found in self.tasks
            if found.startswith(name)
        }

    def stop(self):
        self.over.set()
        self.join()
        self.waits = np.diff(np.array(self.waited), axis=0) / 1e9
        self.runs = np.diff(np.array(self.ran), axis=0) / 1e9

    def waited_between(self, begin: float, end: float, *names) -> float:
        """Seconds from `begin` to `end` (times of day) in which a thread with one of these names
        waited. Simultaneous waits of several threads count once. The kernel counts a wait when it
        ends."""
        columns = [n for n, (_, name) in enumerate(self.tasks) if name.startswith(names)]
        spans = []
        for step, column in zip(*np.nonzero(self.waits[:, columns]), strict=True):
            over = self.times[step + 1]
            spans.append((max(begin, over - self.waits[step, columns[column]]), min(end, over)))
        total, covered_until = 0.0, begin
        for first, last in sorted(spans):
            first = max(first, covered_until)
            if last > first:
                total, covered_until = total + last - first, last
        return total

    def backlog(self, onset: float, end: float, answer: float) -> float:
        """Seconds for which speech-to-text ran after the `end` of speech because it had waited for
        a CPU during the speech."""
        columns = [n for n, (_, name) in enumerate(self.tasks) if name.startswith("model-stt")]
        times = np.array(self.times)

        def during(begin, end):
            return (times[:-1] >= begin) & (times[1:] <= end)

        waited = self.waits[during(onset, end)][:, columns].sum()
        ran = self.runs[during(end, answer)][:, columns].sum()
        return float(min(waited, ran))


def workload(folder: pathlib.Path) -> list[str]:
    """What the caller says, in the format of the load generator."""
    script = json.loads((ROOT / "benches/load/workload/workload.json").read_text())
    script["utterances"], sound = [], [np.zeros(RATE, np.int16)]
    for number, text in enumerate(QUESTIONS):
        samples, rate = speech.flite(text, "rms")
        samples = speech.trim_silence(samples)
        at = np.arange(int(len(samples) * RATE / rate)) * rate / RATE
        onset = sum(map(len, sound)) / RATE
        sound += [
            np.interp(at, np.arange(len(samples)), samples).astype(np.int16),
            np.zeros(int(SILENCE * RATE), np.int16),
        ]
        script["utterances"].append(
            {
                "id": number,
                "onset_s": onset,
                "end_s": onset + len(at) / RATE,
                "transcript": text,
                "reply": "Yes.",
                "barge_in": False,
            }
        )
    (folder / "said.wav").write_bytes(speech.wav_bytes(np.concatenate(sound), RATE))
    (folder / "said.json").write_text(json.dumps(script))
    rounds = TURNS / len(QUESTIONS) * sum(map(len, sound)) / RATE
    return [
        "--speech",
        str(folder / "said.wav"),
        "--workload",
        str(folder / "said.json"),
        "--duration",
        f"{rounds:.0f}",
    ]


def measure(server, folder, report, name, raised):
    agent = server.create_agent(
        name="Crowded",
        knowledge=sample_knowledge.LONG_TEXT,
        avatar={"idle_timeout": {"timeout": 0}, "exit_message": {"max_call_duration": 1800}},
        turn={"min_interruption_duration": 0.25, "backchannels": False, "stop_words": False},
    )
    waits = CpuWaits(server)
    assert waits.nice("media-") == ({-10} if raised else {0}) and waits.nice("model-") == {5}, (
        waits.tasks
    )
    waits.start()
    command = [
        "nice",
        "-n",
        str(CALLER_NICE),
        *generator_command(),
        "--server",
        server.url,
        "--key",
        server.key,
        "--agent",
        agent["id"],
        "--calls",
        "1",
        *workload(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    waits.stop()
    assert done.returncode == 0, done.stdout + done.stderr
    (conversation,) = server.request("GET", "/v1/ext/conversation").json()
    turns = server.wait_turns(conversation["id"])
    started_at = datetime.datetime.fromisoformat(conversation["joined_at"]).timestamp()

    def pairs(first, last, duration_field, names):
        """For each turn with both times: its latency, and how long threads with these names waited
        in it."""
        known = [
            turn
            for turn in turns
            if turn[duration_field] is not None and turn["timeline"][last] is not None
        ]
        begins = [
            turn["timeline"][last] - turn[duration_field]
            if first is None
            else turn["timeline"][first]
            for turn in known
        ]
        return [
            (
                turn[duration_field],
                waits.waited_between(
                    started_at + begin, started_at + turn["timeline"][last], *names
                ),
            )
            for turn, begin in zip(known, begins, strict=True)
        ]

    # A recognizer without a CPU is behind when the speech ends, and then catches up.
    longest = (
        max(len(speech.trim_silence(speech.flite(text, "rms")[0])) for text in QUESTIONS) / RATE
    )
    barge_ins = pairs(None, "heard_end", "barge_in", ("media-",))
    # Words that come many seconds late may end a reply that began after their speech. Nobody spoke
    # over the agent then.
    spoken_over = [
        turn["timeline"]["interrupted"] >= turn["timeline"]["first_sample"]
        for turn in turns
        if turn["barge_in"] is not None and turn["timeline"]["heard_end"] is not None
    ]
    barge_ins = [pair for pair, counts in zip(barge_ins, spoken_over, strict=True) if counts]
    answers = []
    for turn in turns:
        at = turn["timeline"]
        if turn["voice_to_voice"] is not None and at["first_sample"] is not None:
            end, answer = started_at + at["speech_end"], started_at + at["first_sample"]
            answers.append(
                (
                    turn["voice_to_voice"],
                    waits.waited_between(end, answer, *THREADS)
                    + waits.backlog(end - longest, end, answer),
                )
            )

    def own(pairs):
        return percentiles([max(0.0, duration - waited) for duration, waited in pairs])

    found = {
        "barge-in to silence": percentiles([duration for duration, _ in barge_ins]),
        "its own share": own(barge_ins),
        "end of speech to first sound": percentiles([duration for duration, _ in answers]),
        "the answer's own share": own(answers),
        "every barge-in": barge_ins,
        "every answer": answers,
        "turns": turns,
    }
    report.add(name, found)
    assert len(barge_ins) >= TURNS * 2 // 3 and len(answers) >= TURNS * 2 // 3, found
    report.check_target(
        f"{name}: barge-in to silence, p95, s",
        found["barge-in to silence"]["p95"],
        BARGE_IN[raised],
    )
    report.check_target(
        f"{name}: the program's own share of it, p95, s",
        found["its own share"]["p95"],
        OWN_BARGE_IN,
    )
    report.check_target(
        f"{name}: the program's own share of an answer, p95, s",
        found["the answer's own share"]["p95"],
        OWN_ANSWER,
    )


def test_a_barge_in_with_six_busy_programs(start_server, busy_programs, tmp_path, report):
    measure(
        start_server("crowded").read_first_start().wait_ready(),
        tmp_path,
        report,
        "beside six busy programs, with the right to raise priorities",
        True,
    )


def test_without_the_right_to_raise_priorities_a_barge_in_still_silences_soon(
    start_server, without_nice_permission, busy_programs, tmp_path, report
):
    measure(
        start_server("humble").read_first_start().wait_ready(),
        tmp_path,
        report,
        "beside six busy programs, without that right",
        False,
    )
