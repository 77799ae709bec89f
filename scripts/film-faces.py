#!/usr/bin/env python3
"""Films a live call with each person, as a browser decodes it: `.cache/venv/bin/python scripts/film-faces.py [FOLDER [NAME…]]`, by default everybody into docs/faces.

The agent speaks, listens, is spoken to, thinks and answers, for a minute. NAME-call.webm is the film, small and without sound; NAME-call.webp is
a strip of one picture every two seconds, row by row; films.json holds what the browser counted. Needs what `make test` installs, and the release binary.
"""

import base64
import contextlib
import json
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "e2e"))

from kit import call as calls  # noqa: E402
from kit.report import spread  # noqa: E402
from kit.server import Server  # noqa: E402
from playwright.sync_api import sync_playwright  # noqa: E402

SECONDS, EVERY, COLUMNS, SIDE = 60, 2, 10, 160
#: The film: pixels a side, and bits a second.
REEL, BITS = 200, 90_000
SPEECH = (
    "Good morning, and welcome. The first room shows the old clocks, and the oldest of them was built by Thomas Tompion in sixteen seventy six. "
    "Five of its wheels are made of pear wood."
)
QUESTION = "That is beautiful. How long does it run when somebody winds it up?"
# Takes a picture of the face at even times and puts all of them side by side, and films every picture.
CAMERA = """([seconds, every, columns, side, reel, bits]) => {
  const face = document.querySelector("#face"), rows = Math.ceil(seconds / every / columns);
  const strip = new OffscreenCanvas(columns * side, rows * side), pen = strip.getContext("2d");
  pen.imageSmoothingQuality = "high";
  let taken = 0;
  const take = () => {
    const wide = face.videoWidth - face.videoHeight;
    pen.drawImage(face, wide / 2, 0, face.videoHeight, face.videoHeight, (taken % columns) * side, Math.floor(taken / columns) * side, side, side);
    if (++taken * every >= seconds) clearInterval(timer);
  };
  const timer = setInterval(take, every * 1000);
  const frame = Object.assign(document.createElement("canvas"), { width: reel, height: reel }), brush = frame.getContext("2d");
  brush.imageSmoothingQuality = "high";
  const draw = () => {
    const wide = face.videoWidth - face.videoHeight;
    brush.drawImage(face, wide / 2, 0, face.videoHeight, face.videoHeight, 0, 0, reel, reel);
    face.requestVideoFrameCallback(draw);
  };
  draw();
  const recorder = new MediaRecorder(frame.captureStream(), { mimeType: "video/webm;codecs=vp9", videoBitsPerSecond: bits }), parts = [];
  recorder.ondataavailable = ({ data }) => parts.push(data);
  recorder.start();
  setTimeout(() => recorder.state === "recording" && recorder.stop(), seconds * 1000);
  const stopped = new Promise((resolve) => { recorder.onstop = resolve; });
  const text = async (blob) => {
    const bytes = new Uint8Array(await blob.arrayBuffer());
    return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
  };
  window.film = async () => {
    await stopped;
    return [await text(await strip.convertToBlob({ type: "image/webp", quality: 0.7 })), await text(new Blob(parts))];
  };
}"""


class Meter:
    """Bits that the browser received of the picture, apart by what the agent did."""

    def __init__(self, page):
        self.page, self.sums = page, {}
        self.last = self.read()

    def read(self):
        video = self.page.video()
        return self.page.now(), video["bytesReceived"] + video["headerBytesReceived"], video["framesDecoded"]

    def spent(self, what: str):
        """What came since the last reading came while the agent did that."""
        before, self.last = self.last, self.read()
        sums = self.sums.setdefault(what, [0, 0, 0])
        for i, (late, early) in enumerate(zip(self.last, before)):
            sums[i] += late - early

    def told(self):
        return {
            what: {"seconds": round(seconds, 1), "kbit/s": round(size * 8 / seconds / 1000, 1), "frames/s": round(frames / seconds, 1)}
            for what, (seconds, size, frames) in self.sums.items()
        }


def film(browser, server, person: dict, folder: pathlib.Path) -> dict:
    name = person["avatar_key_id"]
    # Without a voice of the agent's the person's own one speaks.
    agent = server.agent(name=person["avatar_name"], greeting="", avatar={"avatar_key_id": name, "config": {"tts": {"provider": "flite"}}})
    conversation = server.conversation(agent["id"])
    page = calls.Call(browser)
    with contextlib.closing(page):
        page.open(conversation["join_link"])
        page.join()
        page.page.evaluate(CAMERA, [SECONDS, EVERY, COLUMNS, SIDE, REEL, BITS])
        begun, meter, gaps = page.now(), Meter(page), []
        # The key comes once.
        page.page.wait_for_timeout(1000)
        meter.spent("arrival")
        while (left := SECONDS - (page.now() - begun)) > 0:
            page.page.wait_for_timeout(1000 * min(left, 4))
            meter.spent("at rest")
            mark = page.mark()
            assert server.call("PUT", f"/v1/conversation/{conversation['id']}/speak", {"text": SPEECH}).status == 200
            started = page.event("agent.started_speaking", mark, timeout=20)
            meter.spent("between")
            stopped = page.event("agent.stopped_speaking", mark, timeout=60)
            meter.spent("talking")
            shown = page.displayed_frames(started["t"] + 0.5, stopped["t"] - 0.5)
            gaps += [later[0] - earlier[0] for earlier, later in zip(shown, shown[1:])]
            # It smiles, then leans toward the user.
            page.page.wait_for_timeout(7000)
            meter.spent("behind a speech")
            mark = page.mark()
            page.speak(QUESTION)
            page.event("agent.stopped_speaking", mark, timeout=60)
            meter.spent("between")
        video = page.video()
        strip, reel = (base64.b64decode(text) for text in page.page.evaluate("film()"))
    (folder / f"{name}-call.webp").write_bytes(strip)
    (folder / f"{name}-call.webm").write_bytes(reel)
    size = f"{video['frameWidth']}x{video['frameHeight']}"
    found = {"size": size, **meter.told(), "between two pictures of speech": spread(gaps), "pli": video["pliCount"]}
    print(name, json.dumps(found), f"{len(strip) // 1000} and {len(reel) // 1000} KB", flush=True)
    return found


def main(folder: str = str(ROOT / "docs" / "faces"), *names: str):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as data, sync_playwright() as tool:
        server = Server(pathlib.Path(data), name="film").first_start().ready()
        browser = tool.chromium.launch(executable_path="/usr/bin/chromium", args=[*calls.FLAGS, calls.FAKE_DEVICE])
        try:
            people = server.call("GET", "/v1/ext/avatars").json()
            path = folder / "films.json"
            known = json.loads(path.read_text()) if path.exists() else {}
            for person in people:
                if not names or person["avatar_key_id"] in names:
                    known[person["avatar_key_id"]] = film(browser, server, person, folder)
            path.write_text(json.dumps(known, indent=1) + "\n")
        finally:
            browser.close()
            server.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
