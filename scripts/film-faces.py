#!/usr/bin/env python3
"""Records the video of a live call with each avatar, as a browser decodes it.

    .cache/venv/bin/python scripts/film-faces.py [FOLDER [NAME…]]

FOLDER is docs/faces by default. Without NAME all stock avatars are recorded. In each call, of one
minute, the agent speaks, listens, thinks and answers. NAME-call.webm is the video, scaled down and
without sound. NAME-call.webp is a contact sheet: one frame every two seconds, row by row.
films.json contains the statistics of the browser. Needs everything that `make test` installs, and
the release binary.
"""

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
VIDEO_SIDE, VIDEO_BITRATE = 200, 90_000
SPEECH = (
    "Good morning, and welcome. The first room shows the old clocks, and the oldest of them was "
    "built by Thomas Tompion in sixteen seventy six. Five of its wheels are made of pear wood."
)
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


def main(folder: str = str(ROOT / "docs" / "faces"), *names: str):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, sync_playwright() as playwright:
        server = Server(pathlib.Path(data), name="film").read_first_start().wait_ready()
        flags = [*calls.FLAGS, calls.FAKE_DEVICE]
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=flags)
        try:
            avatars = server.request("GET", "/v1/ext/avatars").json()
            path = folder / "films.json"
            statistics = json.loads(path.read_text()) if path.exists() else {}
            for avatar in avatars:
                name = avatar["avatar_key_id"]
                if not names or name in names:
                    statistics[name] = record_avatar(browser, server, avatar, folder)
            path.write_text(json.dumps(statistics, indent=1) + "\n")
        finally:
            browser.close()
            server.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
