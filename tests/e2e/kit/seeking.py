"""Seeking in a file: which pictures it contains, and which one Chromium shows at a time."""

import bisect
import hashlib

SEEKS = 20
#: Shows the file at each of these times: the time of its picture in seconds, and the SHA-256 of its
#: planes.
SEEK_SCRIPT = """async ([link, times]) => {
  const video = document.createElement('video');
  document.body.append(video);
  const until = (name) => new Promise((done, fail) => {
    video.addEventListener(name, done, { once: true });
    video.addEventListener('error', () => fail(new Error(video.error.message)), { once: true });
  });
  // A busy browser reports the end of a seek before it shows the picture.
  const presented = () => new Promise((done) => video.requestVideoFrameCallback(done));
  video.muted = true;
  const loaded = [until('loadeddata'), presented()];
  video.src = link;
  await Promise.all(loaded);
  const found = [];
  for (const time of times) {
    const sought = [until('seeked'), presented()];
    video.currentTime = time;
    await Promise.all(sought);
    const frame = new VideoFrame(video);
    const planes = new Uint8Array(frame.allocationSize());
    await frame.copyTo(planes);
    const digest = new Uint8Array(await crypto.subtle.digest('SHA-256', planes));
    const text = [...digest].map((byte) => byte.toString(16).padStart(2, '0')).join('');
    found.push({ format: frame.format, at: frame.timestamp / 1e6, digest: text });
    frame.close();
  }
  return { duration: video.duration, seekable: video.seekable.end(0), found }; }"""


def seek_in_browser(browser, server, link: str, times: list[float]) -> dict:
    """What Chromium shows of a file on the server: its `duration`, the end of what is `seekable`,
    and the time that was sought with the SHA-256 of the picture that was `shown`, for each time."""
    context = browser.new_context()
    try:
        page = context.new_page()
        # A page of the server's origin may read the pictures.
        page.route("**/seeking", lambda route: route.fulfill(body="<body>"))
        page.goto(f"{server.url}/seeking")
        seen = page.evaluate(SEEK_SCRIPT, [link, times])
    finally:
        context.close()
    found = seen.pop("found")
    assert {one["format"] for one in found} == {"I420"}
    shown = [(at, one["digest"]) for at, one in zip(times, found, strict=True)]
    return {**seen, "shown": shown}


def pictures_of(recording) -> tuple[list[float], list[str]]:
    """The pictures of a file in order, decoded from its begin: times and SHA-256."""
    frames = recording.frames(0, recording.duration)
    assert [at for at, _ in frames] == recording.pictures
    return recording.pictures, [digest_of(frame) for _, frame in frames]


def digest_of(frame) -> str:
    """The SHA-256 of the planes of a picture, without the padding of their rows."""
    return hashlib.sha256(frame.to_ndarray(format="yuv420p").tobytes()).hexdigest()


def seek_times(pictures, rng) -> list[float]:
    """Random times in a file. Its pictures recur, but at most one wrong picture of five may pass
    for the right one."""
    times, digests = pictures
    passing = [digests.count(digest) for i in range(len(times)) for digest in near(digests, i)]
    mistaken = sum(passing) / len(times) ** 2
    assert len(times) > 60 and mistaken < 0.2, (len(times), mistaken)
    return [rng.uniform(0, times[-1]) for _ in range(SEEKS)]


def near(digests: list[str], place: int) -> set[str]:
    """The picture at a place and those beside it."""
    return set(digests[max(0, place - 1) : place + 2])


def misses(pictures, shown: list[tuple[float, str]]) -> list[str]:
    """The seeks that showed neither the picture of their time nor one beside it."""
    times, digests = pictures
    found = []
    for at, digest in shown:
        expected = bisect.bisect_right(times, at) - 1
        if digest not in near(digests, expected):
            shown_at = [times[i] for i, one in enumerate(digests) if one == digest]
            found.append(f"{at:.3f}: expected {times[expected]}, shown {shown_at or 'no picture'}")
    return found
