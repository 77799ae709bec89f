#!/usr/bin/env python3
"""Records the video of a live call with each avatar, as a browser decodes it.

    .cache/venv/bin/python scripts/film-faces.py [FOLDER [NAME…]]
    .cache/venv/bin/python scripts/film-faces.py --clips FOLDER

FOLDER is docs/faces by default. Without NAME all stock avatars are recorded. In each call, of one
minute, the agent speaks, listens, thinks and answers. NAME-call.webm is the video, scaled down and
without sound. NAME-call.webp is a contact sheet: one frame every two seconds, row by row.
films.json contains the statistics of the browser.

`--clips` records ten muted clips for somebody who shall name the expression of each: a person says
one sentence without feeling, twice with each expression. clip-N.webm is the video, clip-N.webp a
contact sheet of two frames a second, and clips.json has the answers.

Needs everything that `make test` installs, and the release binary.
"""

import argparse
import base64
import contextlib
import itertools
import json
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from playwright.sync_api import sync_playwright  # noqa: E402

from kit import call as calls  # noqa: E402
from kit.report import percentiles  # noqa: E402
from kit.server import Server  # noqa: E402

#: Duration of a recording, in s.
RECORDING_SECONDS = 60
#: The contact sheet: interval between frames in s, frames in a row, width of a frame in pixels.
SHEET_INTERVAL, SHEET_COLUMNS, SHEET_SIDE = 2, 10, 160
#: The video: width in pixels, and bits per second.
VIDEO_SIDE, VIDEO_BITRATE = 400, 500_000
SPEECH = (
    "Good morning, and welcome. The first room shows the old clocks, and the oldest of them was "
    "built by Thomas Tompion in sixteen seventy six. Five of its wheels are made of pear wood."
)
#: What is said in the clips. The order of people and expressions is arbitrary.
CLIP_TEXT = "The second room on the left is open today, and the lift takes you to the upper floor."
CLIPS = (
    ("theo", "curious"),
    ("clara", "calm"),
    ("raj", "glad"),
    ("martin", "concerned"),
    ("nia", "warm"),
    ("leo", "calm"),
    ("mei", "curious"),
    ("amina", "concerned"),
    ("ingrid", "warm"),
    ("nia", "glad"),
)
#: A clip: duration in s; its contact sheet: interval between frames in s, frames in a row, width of
#: a frame in pixels; the video: width in pixels, bits per second.
CLIP_SECONDS = 6
CLIP_SHEET = (0.5, 6, 256)
CLIP_VIDEO = (400, 600_000)
QUESTION = "That is beautiful. How long does it run when somebody winds it up?"
# Records the avatar: draws a frame into the contact sheet at regular intervals, and every frame
# into the video.
CAPTURE_SCRIPT = """([seconds, interval, columns, side, videoSide, bitrate]) => {
  const avatar = document.querySelector("#face");
  const rows = Math.ceil(seconds / interval / columns);
  const sheet = new OffscreenCanvas(columns * side, rows * side);
  const sheetContext = sheet.getContext("2d");
  sheetContext.imageSmoothingQuality = "high";
  // Draws the square in the middle of the current frame.
  const drawSquare = (context, x, y, size) => {
    const margin = (avatar.videoWidth - avatar.videoHeight) / 2;
    context.drawImage(
      avatar, margin, 0, avatar.videoHeight, avatar.videoHeight, x, y, size, size,
    );
  };
  let count = 0;
  const addToSheet = () => {
    drawSquare(sheetContext, (count % columns) * side, Math.floor(count / columns) * side, side);
    if (++count * interval >= seconds) clearInterval(timer);
  };
  const timer = setInterval(addToSheet, interval * 1000);
  const canvas = document.createElement("canvas");
  Object.assign(canvas, { width: videoSide, height: videoSide });
  const canvasContext = canvas.getContext("2d");
  canvasContext.imageSmoothingQuality = "high";
  const recordFrame = () => {
    drawSquare(canvasContext, 0, 0, videoSide);
    avatar.requestVideoFrameCallback(recordFrame);
  };
  recordFrame();
  const options = { mimeType: "video/webm;codecs=vp9", videoBitsPerSecond: bitrate };
  const recorder = new MediaRecorder(canvas.captureStream(), options), chunks = [];
  recorder.ondataavailable = ({ data }) => chunks.push(data);
  recorder.start();
  setTimeout(() => recorder.state === "recording" && recorder.stop(), seconds * 1000);
  const stopped = new Promise((resolve) => { recorder.onstop = resolve; });
  const toBase64 = async (blob) => {
    const bytes = new Uint8Array(await blob.arrayBuffer());
    return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  };
  window.recording = async () => {
    await stopped;
    const image = await sheet.convertToBlob({ type: "image/webp", quality: 0.7 });
    return [await toBase64(image), await toBase64(new Blob(chunks))];
  };
}"""


class VideoMeter:
    """Video bytes and frames that the browser received, grouped by the agent's activity."""

    def __init__(self, page):
        self.page, self.sums = page, {}
        self.last = self.read()

    def read(self):
        """Now in s, and the bytes and decoded frames so far."""
        video = self.page.video_stats()
        return (
            self.page.audio_clock(),
            video["bytesReceived"] + video["headerBytesReceived"],
            video["framesDecoded"],
        )

    def attribute_to(self, activity: str):
        """Attributes everything received since the last call to this activity of the agent."""
        previous, self.last = self.last, self.read()
        sums = self.sums.setdefault(activity, [0, 0, 0])
        for i, (now, before) in enumerate(zip(self.last, previous, strict=True)):
            sums[i] += now - before

    def summary(self):
        """The duration and the rates of each activity."""
        return {
            activity: {
                "seconds": round(seconds, 1),
                "kbit/s": round(size * 8 / seconds / 1000, 1),
                "frames/s": round(frames / seconds, 1),
            }
            for activity, (seconds, size, frames) in self.sums.items()
        }


def record_avatar(browser, server, avatar: dict, folder: pathlib.Path) -> dict:
    """Records a call with an avatar. Returns the statistics of the browser."""
    name = avatar["avatar_key_id"]
    # The agent has no voice of its own, so it speaks with the voice of the avatar.
    avatar_config = {"avatar_key_id": name, "config": {"tts": {"provider": "flite"}}}
    agent = server.create_agent(name=avatar["avatar_name"], greeting="", avatar=avatar_config)
    conversation = server.create_conversation(agent["id"])
    page = calls.BrowserCall(browser)
    with contextlib.closing(page):
        page.open(conversation["join_link"])
        page.join()
        sheet_options = [RECORDING_SECONDS, SHEET_INTERVAL, SHEET_COLUMNS, SHEET_SIDE]
        page.page.evaluate(CAPTURE_SCRIPT, [*sheet_options, VIDEO_SIDE, VIDEO_BITRATE])
        started_at, meter, gaps = page.audio_clock(), VideoMeter(page), []
        # The key frame arrives only once.
        page.page.wait_for_timeout(1000)
        meter.attribute_to("arrival")
        while (remaining := RECORDING_SECONDS - (page.audio_clock() - started_at)) > 0:
            page.page.wait_for_timeout(1000 * min(remaining, 4))
            meter.attribute_to("at rest")
            mark = page.message_count()
            speak_url = f"/v1/conversation/{conversation['id']}/speak"
            assert server.request("PUT", speak_url, {"text": SPEECH}).status == 200
            started = page.wait_for_event("agent.started_speaking", mark, timeout=20)
            meter.attribute_to("between")
            stopped = page.wait_for_event("agent.stopped_speaking", mark, timeout=60)
            meter.attribute_to("talking")
            frames = page.displayed_frames(started["t"] + 0.5, stopped["t"] - 0.5)
            gaps += [after[0] - before[0] for before, after in itertools.pairwise(frames)]
            # The avatar smiles, then leans toward the user.
            page.page.wait_for_timeout(7000)
            meter.attribute_to("behind a speech")
            mark = page.message_count()
            page.speak(QUESTION)
            page.wait_for_event("agent.stopped_speaking", mark, timeout=60)
            meter.attribute_to("between")
        video = page.video_stats()
        files = page.page.evaluate("recording()")
        sheet, recording = (base64.b64decode(file) for file in files)
    (folder / f"{name}-call.webp").write_bytes(sheet)
    (folder / f"{name}-call.webm").write_bytes(recording)
    size = f"{video['frameWidth']}x{video['frameHeight']}"
    statistics = {
        "size": size,
        **meter.summary(),
        "between two pictures of speech": percentiles(gaps),
        "pli": video["pliCount"],
    }
    sizes = f"{len(sheet) // 1000} and {len(recording) // 1000} KB"
    print(name, json.dumps(statistics), sizes, flush=True)
    return statistics


def record_clip(browser, server, name: str, expression: str, path: pathlib.Path):
    """Records a person that speaks with an expression, into PATH.webm and PATH.webp."""
    avatar_config = {"avatar_key_id": name, "config": {"tts": {"provider": "flite"}}}
    agent = server.create_agent(name="Clip", greeting="", avatar=avatar_config)
    conversation = server.create_conversation(agent["id"])
    page = calls.BrowserCall(browser)
    with contextlib.closing(page):
        page.open(conversation["join_link"])
        page.join()
        page.page.wait_for_timeout(2000)
        page.page.evaluate(CAPTURE_SCRIPT, [CLIP_SECONDS, *CLIP_SHEET, *CLIP_VIDEO])
        message = {"text": CLIP_TEXT, "expression": expression}
        speak_url = f"/v1/conversation/{conversation['id']}/speak"
        assert server.request("PUT", speak_url, message).status == 200
        files = page.page.evaluate("recording()")
    for suffix, file in zip((".webp", ".webm"), files, strict=True):
        path.with_suffix(suffix).write_bytes(base64.b64decode(file))


def record_clips(browser, server, folder: pathlib.Path):
    for number, (name, expression) in enumerate(CLIPS, 1):
        record_clip(browser, server, name, expression, folder / f"clip-{number}")
        print(f"clip {number} of {len(CLIPS)}", flush=True)
    answers = {f"clip-{number}": clip for number, clip in enumerate(CLIPS, 1)}
    (folder / "clips.json").write_text(json.dumps(answers, indent=1) + "\n")


def record_calls(browser, server, folder: pathlib.Path, names: list[str]):
    path = folder / "films.json"
    statistics = json.loads(path.read_text()) if path.exists() else {}
    for avatar in server.request("GET", "/v1/ext/avatars").json():
        name = avatar["avatar_key_id"]
        if not names or name in names:
            statistics[name] = record_avatar(browser, server, avatar, folder)
    path.write_text(json.dumps(statistics, indent=1) + "\n")


def main():
    parser = argparse.ArgumentParser(description="Records the video of live calls.")
    parser.add_argument("--clips", action="store_true", help="ten muted clips")
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=ROOT / "docs" / "faces")
    parser.add_argument("names", nargs="*", metavar="NAME")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, sync_playwright() as playwright:
        server = Server(pathlib.Path(data), name="film").read_first_start().wait_ready()
        flags = [*calls.FLAGS, calls.FAKE_DEVICE]
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=flags)
        try:
            if arguments.clips:
                record_clips(browser, server, arguments.folder)
            else:
                record_calls(browser, server, arguments.folder, arguments.names)
        finally:
            browser.close()
            server.stop()


if __name__ == "__main__":
    main()
