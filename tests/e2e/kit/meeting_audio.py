"""Recordings of meetings with three voices, and the sound of a meeting frame by frame.

The sentences are spoken by flite, whose voices are those of the server's own text-to-speech. A
recording is kept in target/e2e/meeting-audio.
"""

import dataclasses
import hashlib
import json
import os
import threading
import uuid

import numpy as np

from . import speech
from .providers.synthesis import resample
from .server import OUT

RATE = 16_000
#: Seconds of a frame of the services.
FRAME_SECONDS = 0.1
#: Seconds without a chunk after which Attendee throws the remainder of a frame away.
MAX_CHUNK_GAP = 0.15
#: flite's voice of each person.
VOICES = {"Maria": "slt", "Tom": "rms", "Priya": "awb"}


@dataclasses.dataclass(frozen=True)
class Line:
    """A sentence, and the silence after it in seconds. `answer` is what the agent says to it, if it
    is a question to the agent."""

    speaker: str
    text: str
    pause: float
    answer: str | None = None

    @property
    def is_question(self) -> bool:
        return self.answer is not None


@dataclasses.dataclass(frozen=True)
class Interval:
    """When a line is spoken, in seconds. It unpacks into name, start and end."""

    name: str
    start: float
    end: float
    line: Line

    def __iter__(self):
        return iter((self.name, self.start, self.end))


@dataclasses.dataclass(frozen=True)
class Recording:
    """A meeting at 16 kHz, s16le, mono: all voices mixed, and each of them. All have the same
    length."""

    mixed: bytes
    voices: dict[str, bytes]
    intervals: list[Interval]

    @property
    def seconds(self) -> float:
        return len(self.mixed) / 2 / RATE

    def questions(self) -> list[Interval]:
        """The questions to the agent."""
        return [one for one in self.intervals if one.line.is_question]


def record(lines: list[Line], voices: dict[str, str] | None = None, lead: float = 1.0) -> Recording:
    """The recording of a meeting, after `lead` seconds of silence. A negative pause makes the next
    line begin before the end of this one."""
    voices = voices or VOICES
    about = [[dataclasses.astuple(line) for line in lines], voices, lead, speech.SERVER_PROSODY]
    name = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]
    file = OUT / "meeting-audio" / f"{name}.npz"
    if not file.exists():
        _synthesize(file, lines, voices, lead)
    with np.load(file) as stored:
        spans, tracks = stored["spans"], stored["tracks"]
    mixed = np.clip(tracks.astype(np.int32).sum(axis=0), -32768, 32767).astype(np.int16)
    return Recording(
        mixed.tobytes(),
        {person: track.tobytes() for person, track in zip(voices, tracks, strict=True)},
        [
            Interval(line.speaker, float(start), float(end), line)
            for line, (start, end) in zip(lines, spans, strict=True)
        ],
    )


def _synthesize(file, lines: list[Line], voices: dict[str, str], lead: float):
    """Writes the tracks of the voices, and the times of the lines."""
    spoken, spans, at = [], [], lead
    for line in lines:
        samples, rate = speech.flite(line.text, voices[line.speaker])
        samples = resample(speech.trim_silence(samples), rate, RATE)
        first = round(at * RATE)
        spoken.append((line.speaker, first, samples))
        spans.append((first / RATE, (first + len(samples)) / RATE))
        at = spans[-1][1] + line.pause
    seconds = max(at, *(end for _, end in spans))
    tracks = np.zeros((len(voices), round(seconds * RATE)), np.int16)
    for speaker, first, samples in spoken:
        tracks[list(voices).index(speaker), first : first + len(samples)] += samples
    file.parent.mkdir(parents=True, exist_ok=True)
    # Another process may write the same file.
    unfinished = file.with_suffix(f".{os.getpid()}.npz")
    np.savez_compressed(unfinished, spans=np.array(spans), tracks=tracks)
    unfinished.replace(file)


@dataclasses.dataclass
class Participant:
    """A person in the meeting. The bot itself is none."""

    number: int
    name: str
    is_host: bool = False
    is_present: bool = True
    uuid: str = dataclasses.field(default_factory=lambda: str(uuid.uuid4()))


class MeetingSound:
    """The sound of a meeting that a bot still has to send, by person; None = nobody in particular.
    Silence follows its end."""

    def __init__(self):
        self.lock = threading.Lock()
        self.voices: dict[str | None, np.ndarray] = {}

    def _length(self) -> int:
        return max((len(samples) for samples in self.voices.values()), default=0)

    def add(self, voices: dict, rate: int, to: int) -> float:
        """Appends voices, which begin together, and changes their rate from `rate` to `to`.
        Returns the seconds of sound before them."""
        changed = {
            name: resample(np.frombuffer(bytes(pcm), np.int16), rate, to)
            for name, pcm in voices.items()
        }
        with self.lock:
            start = self._length()
            for name, samples in changed.items():
                old = self.voices.get(name, np.zeros(0, np.int16))
                gap = np.zeros(start - len(old), np.int16)
                self.voices[name] = np.concatenate([old, gap, samples])
        return start / to

    def take(self, rate: int) -> tuple[dict[str | None, np.ndarray], np.ndarray]:
        """Takes the next frame: that of each voice, and that of all together."""
        count = round(rate * FRAME_SECONDS)
        frames = {}
        with self.lock:
            for name, samples in list(self.voices.items()):
                frames[name] = np.pad(samples[:count], (0, max(0, count - len(samples))))
                self.voices[name] = samples[count:]
            self.voices = {name: rest for name, rest in self.voices.items() if len(rest)}
        mix = np.sum(list(frames.values()), axis=0, dtype=np.int32) if frames else np.zeros(count)
        return frames, np.clip(mix, -32768, 32767).astype(np.int16)

    def is_empty(self) -> bool:
        with self.lock:
            return not self.voices

    def clear(self):
        with self.lock:
            self.voices.clear()


class BotVoice:
    """What a meeting hears of a bot. With `cuts_again` the sound is cut into frames of 100 ms, as
    Attendee does: the remainder waits for the next chunk, and is thrown away if that comes too
    late. What arrives early waits in the meeting, and cannot be called back."""

    def __init__(self, *, cuts_again: bool = False):
        self.cuts_again = cuts_again
        #: Monotonic seconds and s16le samples, as they arrived.
        self.received: list[tuple[float, bytes]] = []
        #: Monotonic seconds at which the meeting hears the samples, and the samples.
        self.played: list[tuple[float, bytes]] = []
        #: Samples per second of the last chunk.
        self.rate = 0
        #: Bytes of frames that were never completed.
        self.discarded = 0
        #: Seconds of sound that waited after each chunk.
        self.ahead: list[float] = []
        self.remainder = b""
        self.last_at = self.end = 0.0

    def add(self, at: float, pcm: bytes, rate: int):
        self.received.append((at, pcm))
        if self.cuts_again and (at - self.last_at > MAX_CHUNK_GAP or rate != self.rate):
            self.discarded += len(self.remainder)
            self.remainder = b""
        self.rate, self.last_at = rate, at
        size = 2 * round(rate * FRAME_SECONDS) if self.cuts_again else len(pcm)
        waiting = self.remainder + pcm
        while size and len(waiting) >= size:
            frame, waiting = waiting[:size], waiting[size:]
            start = max(at, self.end)
            self.played.append((start, frame))
            self.end = start + len(frame) / 2 / rate
        self.remainder = waiting
        self.ahead.append(max(0.0, self.end - at))

    def heard(self, start: float, end: float) -> np.ndarray:
        """The samples that the meeting hears between two moments, at the rate of the last chunk."""
        out = np.zeros(max(0, round((end - start) * self.rate)), np.int16)
        for at, frame in self.played:
            samples = np.frombuffer(frame, np.int16)
            first = round((at - start) * self.rate)
            begin, stop = max(0, first), min(len(out), first + len(samples))
            if begin < stop:
                out[begin:stop] = samples[begin - first : stop - first]
        return out


def _lines(text: str) -> list[Line]:
    """Lines of a script: `Speaker: text | pause`, and `| answer` for a question to the agent."""
    found = []
    for line in text.strip().splitlines():
        speaker, rest = line.split(": ", 1)
        words, pause, *answer = (part.strip() for part in rest.split(" | "))
        found.append(Line(speaker.strip(), words, float(pause), answer[0] if answer else None))
    return found


#: A meeting of three people with an agent named Monica: three questions in about two minutes.
SHORT_SCRIPT = _lines("""
Maria: Good morning everybody, thank you for coming. | 1.2
Tom: Good morning. I brought the plan for the new garden. | 3.4
Priya: Wonderful. I have been waiting to see it. | 2.0
Maria: Today Monica will listen and help us with numbers. | 3.2
Tom: The garden is forty meters long and twenty meters wide. | 2.4
Maria: Monica, how large is the garden? | 11.0 | The garden has eight hundred square meters.
Priya: That is larger than I thought. | 1.2
Tom: We want to plant trees along the northern wall. | 3.4
Priya: Apple trees would be nice for the children. | 2.0
Maria: The neighbors asked for a bench near the gate. | 3.2
Tom: A bench costs about three hundred dollars. | 2.4
Tom: Monica, what do two benches cost? | 11.0 | Two benches cost six hundred dollars.
Maria: Good, that is within our budget. | 1.2
Priya: I asked Monica about the water yesterday. | 3.4
Priya: She said that the pipes are old. | 2.0
Maria: Then we have to call the plumber before summer. | 3.2
Tom: He can come on Tuesday or on Friday. | 2.4
Priya: When does the summer begin this year, Monica? | 11.0 | It begins on June twenty first.
Tom: Then Friday is early enough. | 1.2
Maria: Thank you all, this was a good start. | 3.4
""")

#: The same people for about eight minutes: twelve questions to the agent among sixty other
#: sentences. Some of them mention the agent without addressing it.
LONG_SCRIPT = SHORT_SCRIPT + _lines("""
Maria: Let us go on with the party in September. | 1.4
Priya: Last year almost ninety people came. | 5.6
Tom: And the food was gone after an hour. | 2.8
Maria: We need more tables and more chairs. | 4.6
Tom: The school can lend us thirty chairs. | 4.4
Maria: Monica, how many chairs are missing? | 11.0 | Sixty chairs are missing.
Priya: My brother has a van, he can carry them. | 1.4
Tom: That helps a lot. | 5.6
Maria: What about music? | 2.8
Priya: The band from the library would play for free. | 4.6
Tom: They were very loud last time. | 4.4
Priya: Monica, what time must the music stop? | 11.0 | The music must stop at ten in the evening.
Maria: Ten is fine for most of the families. | 1.4
Tom: I think Monica is right about that. | 5.6
Priya: Now the weather, it may rain in September. | 2.8
Maria: We could rent a large tent. | 4.6
Tom: The last tent was blue and very small. | 4.4
Tom: How much is a tent for a day, Monica? | 11.0 | A large tent is two hundred dollars for a day.
Priya: We can pay that from the ticket sales. | 1.4
Maria: Do we want to sell tickets at all? | 5.6
Tom: Two dollars for everyone above twelve. | 2.8
Priya: And children come in for free. | 4.6
Maria: I will write that down. | 4.4
Maria: Who won the quiz last year, Monica? | 11.0 | The green team won the quiz last year.
Tom: They were lucky with the last question. | 1.4
Priya: The questions were written by a teacher. | 5.6
Maria: She told me that Monica knew all of them. | 2.8
Tom: This time it should be harder. | 4.6
Priya: I will ask my aunt for some questions. | 4.4
Priya: Can you name a river in France, Monica? | 11.0 | The Loire is a river in France.
Maria: That would be a good question for the quiz. | 1.4
Tom: But not a hard one. | 5.6
Priya: The printer needs the poster by Monday. | 2.8
Maria: I have drawn a first picture of it. | 4.6
Tom: The letters could be larger. | 4.4
Tom: Monica, how many weeks are left? | 11.0 | Five weeks are left until the party.
Priya: That is not much time. | 1.4
Maria: We wrote to Monica and to the mayor last week. | 5.6
Tom: What did the mayor answer, Monica? | 11.0 | The mayor answered it with a yes.
Maria: He will open the party with a short speech. | 2.8
Priya: A very short one, I hope. | 4.6
Maria: What did the mayor drink last time, Monica? | 11.0 | The mayor drank apple juice.
Tom: Then we buy two bottles more. | 4.4
Priya: The bakery on the corner gives us bread. | 1.4
Maria: And the butcher brings the sausages. | 5.6
Tom: Somebody has to clean the grill before. | 2.8
Priya: I can do it on Thursday evening. | 4.6
Priya: When is the next meeting, Monica? | 11.0 | The next meeting is on Monday at nine.
Maria: Monday is good for me as well. | 4.4
Tom: If Monica is there, we need no paper. | 1.4
Priya: Then we have everything for today. | 5.6
Maria: Thank you Tom, thank you Priya, goodbye. | 2.8
""")
