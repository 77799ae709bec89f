"""Videos of a text or of a sound, made by the real server: what the files contain, what a browser
shows of them, and what is left after a kill and after a deletion. `tests/videos.rs` tests the
program, and `control-api/tests/api/videos*.rs` test the requests, with a fake of the program."""

import base64
import hashlib
import itertools
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
from standardwebhooks import Webhook

from kit import audio_match, provider_call, providers, speech
from kit.polling import wait_until
from kit.receivers import MockServer
from kit.recording_file import Recording
from kit.seeking import misses, pictures_of, seek_in_browser, seek_times
from kit.server import ROOT

VIDEO = "/v1/ext/video"
#: Seconds until a video is made: it has the lowest priority beside the other tests.
RENDERING_TIME = 180
#: Seconds for the drawing of an avatar from a photo.
DRAWING_TIME = 300
SENTENCES = (
    "Welcome to the museum of old clocks.",
    "Most of them still run, and strike every hour of the day and of the night.",
)
TEXT = f"[warm] {SENTENCES[0]}\n\n[pause 0.5] {SENTENCES[1]}"
VOICES = {"clara": "slt", "martin": "rms", "mei": "slt"}
SPOKEN = "This sound was recorded somewhere else, and now it has a face that speaks it."
#: The longest time for which a picture of a video is shown.
MAX_GAP = 0.25


@pytest.fixture(scope="module")
def server(start_server):
    return start_server("video").read_first_start().wait_ready()


def create(server, headers=None, **body) -> dict:
    reply = server.request("POST", VIDEO, body, headers=headers)
    assert reply.status == 201, reply
    return reply.json()


def read(server, video: dict) -> dict:
    reply = server.request("GET", f"{VIDEO}/{video['id']}")
    assert reply.status == 200, reply
    return reply.json()


def wait_for(server, video: dict, status="COMPLETED", timeout=RENDERING_TIME) -> dict:
    record = video

    def has_ended():
        nonlocal record
        record = read(server, video)
        return record["status"] in ("COMPLETED", "FAILED") and record

    ended = wait_until(has_ended, lambda: f"the video; so far: {record}", timeout)
    assert ended["status"] == status, ended
    return ended


def follow(server, link: str, kind: str) -> bytes:
    reply = server.request("GET", link, key=None)
    assert reply.status == 200, reply
    assert reply.headers["content-type"] == kind
    return reply.body


def download(server, record: dict) -> Recording:
    """The file of a completed video, which agrees with the record."""
    data = follow(server, record["url"], "video/webm")
    part = server.request("GET", record["url"], key=None, headers={"range": "bytes=10-19"})
    assert (part.status, part.body) == (206, data[10:20])
    recording = Recording(data)
    assert recording.duration == pytest.approx(record["duration"], abs=0.1)
    gaps = np.diff(recording.pictures)
    assert recording.pictures[0] < 0.05 and gaps.max() < MAX_GAP, gaps.max()
    (_, first), *_ = recording.frames(0, 0.1)
    assert (first.width, first.height) == (record["width"], record["height"])
    check_with_ffprobe(data)
    return recording


def check_with_ffprobe(data: bytes):
    """PyAV has read the file; where ffprobe is installed, it must find no error, either."""
    if ffprobe := shutil.which("ffprobe"):
        command = [ffprobe, "-v", "error", "-show_streams", "-of", "json", "-"]
        done = subprocess.run(command, input=data, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b""), done
        kinds = {stream["codec_name"] for stream in json.loads(done.stdout)["streams"]}
        assert kinds == {"vp8", "opus"}


def expect_speech(recording: Recording, sentences, voice: str):
    """The sentences are in the sound of a video, in their order."""
    places = []
    for sentence in sentences:
        sent, rate = speech.flite(sentence, voice)
        found = audio_match.match(audio_match.resample(sent, rate), recording.agent)
        audio_match.expect_arrival(found, sentence)
        places.append(found.at)
    assert places == sorted(places), places


def stored_files(server, video: dict) -> list:
    return [path for path in server.data.rglob("*") if video["id"] in path.name]


def cues(captions: str) -> list[tuple[float, float, str]]:
    """Begin, end and text of each cue of a WebVTT file."""
    head, *blocks = captions.strip().split("\n\n")
    assert head.startswith("WEBVTT"), captions
    found = []
    for block in blocks:
        times, *lines = block.split("\n")
        begin, end = (
            sum(float(part) * 60**i for i, part in enumerate(reversed(time.split(":"))))
            for time in times.split(" --> ")
        )
        assert len(lines) <= 2 and all(len(line) <= 42 for line in lines), block
        found.append((begin, end, " ".join(lines)))
    return found


@pytest.fixture(scope="module")
def videos(server):
    """The records of videos of three people, by their avatars, and of a sound; all in one queue."""
    created = {
        avatar: create(
            server,
            avatar_key_id=avatar,
            text=TEXT,
            tts={"provider": "flite", "voice_id": voice},
            captions="vtt",
            title=f"Clocks of {avatar}",
        )
        for avatar, voice in VOICES.items()
    }
    sound = base64.b64encode(speech.wav_bytes(*speech.flite(SPOKEN, "rms"))).decode()
    created["sound"] = create(server, avatar_key_id="theo", audio=f"data:audio/wav;base64,{sound}")
    return {name: wait_for(server, video) for name, video in created.items()}


def test_three_people_speak_a_text(server, videos):
    for avatar, voice in VOICES.items():
        record = videos[avatar]
        assert (record["progress"], record["error"], record["warnings"]) == (1, None, [])
        assert (record["width"], record["height"], record["format"]) == (512, 512, "webm")
        recording = download(server, record)
        assert record["bytes"] >= len(recording.data)
        expect_speech(recording, SENTENCES, voice)
        shown = follow(server, record["poster_url"], "image/webp")
        assert shown[:4] == b"RIFF" and shown[8:12] == b"WEBP"
        found = cues(follow(server, record["captions_url"], "text/vtt; charset=utf-8").decode())
        assert " ".join(text for *_, text in found) == " ".join(SENTENCES)
        times = [time for begin, end, _ in found for time in (begin, end)]
        assert times == sorted(times) and times[0] > 0 and times[-1] <= record["duration"], times
    assert len(server.request("GET", "/v1/ext/videos?search=clocks").json()) == len(VOICES)


def test_an_uploaded_sound_has_a_face(server, videos):
    record = videos["sound"]
    assert (record["text"], record["tts"], record["captions_url"]) == (None, None, "")
    recording = download(server, record)
    expect_speech(recording, [SPOKEN], "rms")
    _, digests = pictures_of(recording)
    assert len(set(digests)) > 12, "the lips move"


@pytest.mark.parametrize("name", [*VOICES, "sound"])
def test_a_browser_plays_and_seeks(server, browser, videos, rng, name):
    expect_seeking(server, browser, videos[name], rng)


def expect_seeking(server, browser, record, rng):
    recording = download(server, record)
    pictures = pictures_of(recording)
    times = seek_times(pictures, rng)
    seen = seek_in_browser(browser, server, record["url"], times)
    assert seen["duration"] == seen["seekable"] == pytest.approx(recording.duration, abs=0.001)
    assert misses(pictures, seen["shown"]) == []


def test_equal_requests_give_equal_bytes(server, videos):
    first = videos["clara"]
    same = {name: first[name] for name in ("avatar_key_id", "text", "tts", "captions")}
    files = ["url", "poster_url", "captions_url"]

    def digests(record):
        replies = [server.request("GET", record[name], key=None) for name in files]
        assert [reply.status for reply in replies] == [200, 200, 200]
        return [hashlib.sha256(reply.body).hexdigest() for reply in replies]

    again = wait_for(server, create(server, **same, title="Another title"))
    assert again["id"] != first["id"] and digests(again) == digests(first)
    other = wait_for(server, create(server, **{**same, "text": f"{TEXT} Do come in."}))
    assert digests(other)[0] != digests(first)[0]


class Receiver(MockServer):
    """Stores the webhooks that it gets."""

    def __init__(self):
        super().__init__()
        self.received = []

    def handle(self, request, body):
        with self.changed:
            self.received.append((body, dict(request.headers.items())))
            self.changed.notify_all()
        self.reply(request, 204)

    def first(self):
        return self.wait_until(
            lambda: self.received and self.received[0], RENDERING_TIME, "a webhook"
        )


@pytest.fixture
def receiver():
    created = Receiver()
    yield created
    created.close()


def test_the_webhook_of_a_video_is_signed_and_a_repeated_request_makes_no_second_one(
    server, receiver
):
    body = {
        "avatar_key_id": "raj",
        "text": "Hello.",
        "tts": {"provider": "flite"},
        "title": "Greeting",
        "callback_url": receiver.url,
        "meta_data": {"order": 7},
    }
    headers = {"idempotency-key": "order-7"}
    created = create(server, headers, **body)
    assert re.fullmatch(r"whsec_[A-Za-z0-9+/]{32,}=*", created["webhook_secret"])
    assert create(server, headers, **body) == created
    conflict = server.request("POST", VIDEO, {**body, "title": "Other"}, headers=headers)
    assert conflict.status == 409, conflict
    record = wait_for(server, created)
    assert "webhook_secret" not in record
    event = Webhook(created["webhook_secret"]).verify(*receiver.first())
    assert (event["type"], event["video_id"]) == ("video", created["id"])
    assert event["event"] == {
        "name": "video_completed",
        "payload": {
            "meta_data": {"order": 7},
            **{
                name: record[name]
                for name in ("duration", "width", "height", "bytes", "format", "title")
            },
        },
    }
    listed = server.request("GET", "/v1/ext/videos?search=greeting").json()
    assert [video["id"] for video in listed] == [created["id"]]

    assert stored_files(server, created)
    assert server.request("DELETE", f"{VIDEO}/{created['id']}").status == 200
    assert server.request("GET", f"{VIDEO}/{created['id']}").status == 404
    assert server.request("GET", record["url"], key=None).status == 404
    wait_until(lambda: not stored_files(server, created), "the files to be removed")


def test_a_damaged_sound_fails_with_a_sentence(server, receiver):
    sound = b"RIFF\xff\xff\xff\xffWAVE" + bytes(range(256)) * 8
    video = create(
        server,
        avatar_key_id="nia",
        audio=base64.b64encode(sound).decode(),
        callback_url=receiver.url,
    )
    record = wait_for(server, video, "FAILED")
    assert record["error"] == "The audio is damaged."
    assert (record["url"], record["duration"], record["bytes"]) == ("", None, None)
    event = Webhook(video["webhook_secret"]).verify(*receiver.first())
    payload = {"error": record["error"], "title": None, "meta_data": None}
    assert event["event"] == {"name": "video_failed", "payload": payload}
    wait_until(lambda: not stored_files(server, video), "the files to be removed")


def test_a_hosted_voice_speaks_each_sentence_once_with_its_word_times(start_server, vendor):
    fake = vendor(providers.ElevenLabsFake)
    account = {"ELEVENLABS_API_KEY": fake.key, "ELEVENLABS_BASE_URL": fake.base_url}
    server = start_server("hosted-voice", env=account).read_first_start().wait_ready()
    tts = {"provider": fake.provider, "voice_id": "a-voice"}
    video = create(server, avatar_key_id="raj", text=TEXT, tts=tts, captions="vtt")
    record = wait_for(server, video)
    assert (record["tts"]["voice_id"], record["warnings"]) == ("a-voice", [])
    recording = download(server, record)
    expect_speech(recording, SENTENCES, provider_call.FAKE_VOICE)
    assert fake.spoken == list(SENTENCES)
    found = cues(follow(server, record["captions_url"], "text/vtt; charset=utf-8").decode())
    assert " ".join(text for *_, text in found) == " ".join(SENTENCES)
    provider_call.check_protocols([fake])
    assert fake.key not in server.log.read_text(errors="replace")
    for answer in (record, server.request("GET", "/v1/ext/videos").json()):
        assert fake.key not in json.dumps(answer)


def test_a_killed_server_completes_its_video(start_server, tmp_path):
    first = start_server("renderer", data=tmp_path).read_first_start().wait_ready()
    # Minutes of speech, so that the server is killed while they are rendered.
    text = " ".join(itertools.islice(itertools.cycle(SENTENCES), 60))
    body = {"avatar_key_id": "leo", "text": text, "tts": {"provider": "flite", "voice_id": "rms"}}
    video = create(first, **body)
    record = video

    def is_rendered():
        nonlocal record
        record = read(first, video)
        assert record["status"] in ("QUEUED", "PROCESSING"), record
        return record["progress"] > 0

    wait_until(is_rendered, lambda: f"some progress: {record}", RENDERING_TIME)
    first.kill()
    second = start_server("renderer", data=tmp_path)
    second.key = first.key
    second.wait_ready()
    ended = wait_for(second, video)
    recording = download(second, ended)
    assert recording.duration > 120
    work = tmp_path / "videos"
    wait_until(lambda: not any(work.rglob("*.new")), "no partial files")
    assert server_has_one_copy(second, ended)


def server_has_one_copy(server, record: dict) -> bool:
    """Whether the storage alone has the file of a video."""

    def copies():
        return [path for path in server.data.rglob("*.webm") if path.stat().st_size]

    return wait_until(lambda: len(copies()) == 1, lambda: f"one copy: {copies()}") and all(
        record["id"] in path.name for path in copies()
    )


@pytest.mark.long("recording")
def test_an_avatar_from_a_photo_speaks_a_text(server, browser, rng):
    photo = (ROOT / "assets" / "avatars" / "mei.512.webp").read_bytes()
    uri = f"data:image/webp;base64,{base64.b64encode(photo).decode()}"
    body = {"avatar_name": "Mia", "gender": "female", "input_image": uri, "consent": True}
    reply = server.request("POST", "/v2/custom-avatar", body)
    assert reply.status == 200, reply
    # It is still being drawn: the video waits for it.
    voice = {"provider": "flite", "voice_id": "slt"}
    video = create(server, avatar_key_id=reply.json()["id"], text=TEXT, tts=voice)
    record = wait_for(server, video, timeout=DRAWING_TIME)
    expect_speech(download(server, record), SENTENCES, "slt")
    expect_seeking(server, browser, record, rng)


@pytest.mark.long("recording")
@pytest.mark.parametrize(("size", "background"), [("720x1280", None), ("512x512", "#c0906f")])
def test_a_size_or_a_colour_that_was_never_drawn_is_drawn_first(server, size, background):
    voice = {"provider": "flite", "voice_id": "rms"}
    video = create(
        server, avatar_key_id="martin", text=TEXT, tts=voice, size=size, background=background
    )
    progress = [0.0]

    def has_ended():
        record = read(server, video)
        progress.append(record["progress"])
        return record["status"] in ("COMPLETED", "FAILED")

    wait_until(has_ended, lambda: f"the video: {progress[-1]}", 4 * DRAWING_TIME)
    assert progress == sorted(progress), "progress never decreases"
    record = wait_for(server, video)
    assert record["size"] == size
    recording = download(server, record)
    if background:
        (_, frame), *_ = recording.frames(0, 0.1)
        corner = frame.to_ndarray(format="rgb24")[:16, :16].mean(axis=(0, 1))
        assert np.abs(corner - [0xC0, 0x90, 0x6F]).max() < 16, corner
