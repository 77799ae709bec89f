"""Videos for the console: their records and files. The browser gets them in place of the server's
answers, so nothing is rendered."""

import re

from .recorded_conversation import webm
from .server import ROOT

SECONDS = 3.0
TEXT = "Hello, and welcome.\n\n[warm] We are open from nine to five."
CAPTIONS = "WEBVTT\n\n00:00:00.400 --> 00:00:02.000\nHello, and welcome.\n"
POSTER = (ROOT / "assets" / "avatars" / "clara.512.webp").read_bytes()
#: What a record has until the video is complete.
UNFINISHED = {
    "url": "",
    "poster_url": "",
    "captions_url": "",
    "duration": None,
    "bytes": None,
    "finished_at": None,
}


def video_record(number: int, **more) -> dict:
    """The record of a finished video, with other values of some fields."""
    name = f"0190e4b2-0000-7000-8000-{number:012}"
    link = f"/media/videos/{name}"
    return {
        "id": name,
        "title": None,
        "status": "COMPLETED",
        "progress": 1.0,
        "avatar_key_id": "clara",
        "text": TEXT,
        "tts": {
            "provider": "builtin",
            "model_id": None,
            "voice_id": "heart",
            "language": None,
            "custom_pronunciation": [],
        },
        "size": "512x512",
        "frame_rate": 25,
        "background": None,
        "captions": "vtt",
        "format": "webm",
        "callback_url": "",
        "meta_data": None,
        "url": f"{link}.webm?signature=0",
        "poster_url": f"{link}.webp?signature=0",
        "captions_url": f"{link}.vtt?signature=0",
        "duration": SECONDS,
        "width": 512,
        "height": 512,
        "bytes": 1_300_000,
        "error": None,
        "waiting": None,
        "warnings": [],
        "created_at": "2026-01-02T03:04:05.000Z",
        "updated_at": "2026-01-02T03:04:05.000Z",
        "finished_at": "2026-01-02T03:04:15.000Z",
        **more,
    }


class VideoRecords:
    """Answers a console's requests for videos and their files. `videos`: the records, newest
    first. A record that is read has new links."""

    def __init__(self, page, videos: list[dict]):
        self.videos = videos
        self.file = webm(seconds=SECONDS)
        #: Formats and captions that the server offers beside those that need no ffmpeg.
        self.formats, self.captions = [], []
        #: Links before this number have expired.
        self.first_valid = 0
        #: How often a record was read.
        self.reads = 0
        #: The queries of lists.
        self.queries: list[str] = []
        page.route(re.compile(r"/v1/ext/videos\?"), self._list)
        page.route(re.compile(r"/v1/ext/video/[^/]+$"), self._one)
        page.route(re.compile(r"/v1/ext/capabilities$"), self._capabilities)
        page.route("**/media/videos/*", self._media)

    def find(self, name: str) -> dict | None:
        return next((one for one in self.videos if one["id"] == name), None)

    def _capabilities(self, route):
        answer = route.fetch()
        video = {
            "available": True,
            "reason": None,
            "formats": ["webm", *self.formats],
            "captions": ["none", "vtt", *self.captions],
        }
        route.fulfill(response=answer, json={**answer.json(), "video": video})

    def _list(self, route):
        self.queries.append(route.request.url.partition("?")[2])
        items = [{k: v for k, v in one.items() if k != "text"} for one in self.videos]
        route.fulfill(json=items, headers={"x-total-count": str(len(items))})

    def _one(self, route):
        video = self.find(route.request.url.rsplit("/", 1)[1])
        if not video:
            return route.fulfill(status=404, json={"message": "Video not found"})
        if route.request.method == "DELETE":
            self.videos.remove(video)
            message = "Video deleted successfully"
            return route.fulfill(json={"id": video["id"], "message": message})
        self.reads += 1
        for field in ("url", "poster_url", "captions_url"):
            video[field] = re.sub(r"\d+$", str(self.reads), video[field])
        return route.fulfill(json=video)

    def _media(self, route):
        path, _, number = route.request.url.partition("?signature=")
        if int(number) < self.first_valid:
            return route.fulfill(status=403, json={"error": "The link has expired"})
        if path.endswith(".vtt"):
            return route.fulfill(body=CAPTIONS, content_type="text/vtt; charset=utf-8")
        if path.endswith(".webp"):
            return route.fulfill(body=POSTER, content_type="image/webp")
        return route.fulfill(body=self.file, content_type="video/webm")
