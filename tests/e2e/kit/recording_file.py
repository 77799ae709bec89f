"""The file of a recorded call: how it is downloaded, and what it contains."""

import io

import av
import numpy as np

from . import audio_match, lips, speech

RATE = audio_match.SAMPLE_RATE
#: Samples above this are sound.
SILENCE_LEVEL = 300
#: Snippets by which the place of each end of a text is judged. They agree on a place if they differ
#: by at most this many seconds.
END_SNIPPETS, MAX_SPREAD = 8, 0.03
#: What is audible: parts of this many seconds, with at least this share of the energy of the
#: loudest one among so many on both sides, .3 s.
AUDIBLE_PART, AUDIBLE_RATIO, NEARBY_PARTS = 0.004, 1e-4, 75
#: Minimum energy of a sound relative to the loudest one: −50 dB.
MIN_ENERGY = 1e-5
#: Bit of the first byte of a VP8 frame that says that the frame is shown (RFC 6386, section 9.1).
SHOW_FRAME = 0x10


class Recording:
    """A downloaded file: its duration in seconds, the samples of both channels at 16 kHz (16 bit),
    and the times of the pictures that are shown."""

    def __init__(self, data: bytes):
        self.data = data
        samples, self.pictures = [], []
        with av.open(io.BytesIO(data)) as file:
            self.duration = file.duration / av.time_base
            resampler = av.AudioResampler(format="s16p", layout="stereo", rate=RATE)
            for packet in file.demux():
                if packet.stream.type == "video":
                    if packet.size and bytes(packet)[0] & SHOW_FRAME:
                        self.pictures.append(float(packet.pts * packet.time_base))
                    continue
                for frame in packet.decode():
                    samples += [part.to_ndarray() for part in resampler.resample(frame)]
        self.user, self.agent = np.concatenate(samples, axis=1)

    def is_silent(self, channel: np.ndarray, start: float, end: float) -> bool:
        loudest = np.abs(channel[int(start * RATE) : int(end * RATE)]).max(initial=0)
        return bool(loudest < SILENCE_LEVEL)

    def first_sound(self, channel: np.ndarray, after: float) -> float:
        loud = np.flatnonzero(np.abs(channel[int(after * RATE) :]) > SILENCE_LEVEL)
        assert len(loud), f"no sound after {after} s"
        return after + loud[0] / RATE

    def frames(self, start: float, end: float) -> list[tuple[float, av.VideoFrame]]:
        """The pictures of this time with their times. ffmpeg seeks to the last key frame before
        it."""
        found = []
        with av.open(io.BytesIO(self.data)) as file:
            stream = file.streams.video[0]
            file.seek(round(start / stream.time_base), stream=stream)
            for frame in file.decode(stream):
                at = float(frame.pts * frame.time_base)
                if at > end:
                    break
                if at >= start:
                    found.append((at, frame))
        return found

    def brightness(self, start: float, end: float) -> tuple[np.ndarray, np.ndarray]:
        """Times and brightness (0 … 1) of the pictures of this time."""
        found = self.frames(start, end)
        luma = [frame.to_ndarray(format="gray").mean() / 255 for _, frame in found]
        return np.array([at for at, _ in found]), np.array(luma)

    def mouth_offset(self, text: str, voice: str, near: float) -> tuple[float, float]:
        """How much later the mouth of the flashing avatar (`tests/e2e/flash`) moves than the text
        sounds that it speaks near this time, and the correlation of both."""
        start, end = find_text(text, voice, self.agent, near)
        times, shown = self.brightness(start - 0.5, end + 0.5)
        jaw = lips.jaw_opening(text, voice)
        origin = start - speech_bounds(text, voice)[0]
        at = origin + lips.STEP_SECONDS * (np.arange(len(jaw)) + 0.5)
        return lips.jaw_offset(times, shown, at, jaw)


def speech_bounds(text: str, voice: str) -> tuple[float, float]:
    """Begin and end of the words in the sound of a text that flite speaks."""
    phones = lips.flite_phones(text, voice)
    begins = [0.0, *(end for _, end in phones)]
    spoken = [i for i, (name, _) in enumerate(phones) if name != "pau"]
    return begins[spoken[0]], phones[spoken[-1]][1]


def audible_bounds(text: str, voice: str) -> tuple[np.ndarray, np.ndarray]:
    """Begin and end of what can be heard of that sound, as an interval each: nobody can say where a
    sound that fades in or out begins or ends. A closure, as of the lips, is silent. What is within
    40 dB of the loudest part nearby is speech by the definition of the transcript
    (docs/decisions/0020); what is within 30 dB of the loudest sample is clear to anybody."""
    samples, rate = speech.flite(text, voice)
    clear = speech.speech_positions(samples) / rate
    part = round(AUDIBLE_PART * rate)
    parts = samples[: len(samples) // part * part].astype(float).reshape(-1, part)
    energy = (parts**2).mean(axis=1)
    padded = np.pad(energy, NEARBY_PARTS)
    peaks = np.lib.stride_tricks.sliding_window_view(padded, 2 * NEARBY_PARTS + 1).max(axis=1)
    # The sound of a whole sentence, not the noise of the synthesis around it.
    faint = np.flatnonzero((energy > AUDIBLE_RATIO * peaks) & (energy > MIN_ENERGY * energy.max()))
    begin, end = faint[0] * part / rate, (faint[-1] + 1) * part / rate
    return np.sort([begin, clear[0]]), np.sort([clear[-1], end])


def find_text(
    text: str,
    voice: str,
    channel: np.ndarray,
    near: float,
    reach: float = 1.0,
    bounds=speech_bounds,
) -> tuple[float, float]:
    """Begin and end of a text that flite spoke into a channel, at most `reach` seconds from the
    time `near`. Each is where the snippets at that end of the text agree, so a pause in between
    does not count. `bounds`: what counts as begin and end."""
    samples, rate = speech.flite(text, voice)
    assert rate == RATE, f"{voice} speaks at {rate} Hz"
    first = max(0, round((near - reach) * rate))
    last = round((near + reach) * rate) + len(samples)
    snippets = audio_match.locate_snippets(samples, channel[first:last])
    shifts = np.array([one.place - one.at for one in snippets])
    begin, end = bounds(text, voice)
    found = []
    for part, bound in ((shifts[:END_SNIPPETS], begin), (shifts[-END_SNIPPETS:], end)):
        agreed = largest_cluster(part)
        assert len(agreed) >= END_SNIPPETS / 2, f"{text!r} is not near {near} s: {snippets}"
        found.append(first / rate + float(np.median(agreed)) + bound)
    return found[0], found[1]


def largest_cluster(values: np.ndarray) -> np.ndarray:
    """The largest set of values that are near one of them."""
    clusters = [values[np.abs(values - value) <= MAX_SPREAD] for value in values]
    return max(clusters, key=len, default=values)


def download(server, record: dict) -> Recording:
    reply = server.request("GET", record["recording_url"], key=None)
    assert reply.status == 200, reply
    assert reply.headers["content-type"] == "video/webm"
    part = server.request(
        "GET", record["recording_url"], key=None, headers={"range": "bytes=10-19"}
    )
    assert (part.status, part.body) == (206, reply.body[10:20])
    return Recording(reply.body)


def wait_for_recording(server, conversation: str, timeout: float = 60) -> dict:
    """The record as soon as it has the link to the recording."""
    return server.wait_for_record(conversation, lambda record: record["recording_url"], timeout)


def messages_of(record: dict, role: str) -> list[dict]:
    return [one for one in record["chat_history"]["messages"] if one["role"] == role]
