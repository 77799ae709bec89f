"""Videos in the console: the form with its preview, the list with its progress, the player. One
test makes a video with the real server; the others get invented records."""

import json
import re

import numpy as np
import pytest

from kit import speech
from kit.console import (
    FIND_LOW_CONTRAST,
    FIND_OVERFLOW,
    FIND_UNNAMED_ELEMENTS,
    IS_FOCUS_VISIBLE,
    resize,
)
from kit.video_records import UNFINISHED, VideoRecords, video_record

#: Seconds until a video of a sentence is rendered, at the lowest priority beside the other tests.
RENDERING_TIME = 180
CREATE = "Create video"
TEXT, AUDIO = "#f-text", "#f-audio"
PREVIEW = ".sentence-preview"
#: Samples and their rate.
SILENCE = (np.zeros(16_000, np.int16), 16_000)


@pytest.fixture
def server(workspace):
    """The shared server with a new, empty workspace."""
    return workspace


@pytest.fixture
def with_videos(console):
    """Opens a page of the console with invented videos: `(console, records)`."""

    def make(path, *videos, **options):
        console_page = console(**options).login()
        records = VideoRecords(console_page.page, list(videos))
        return console_page.open(path), records

    return make


def create(page):
    """Sends the form; returns the request."""
    with page.expect_request(lambda sent: sent.method == "POST" and "/video" in sent.url) as sent:
        page.get_by_role("button", name=CREATE).press("Enter")
    return sent.value


def test_a_text_is_written_heard_made_watched_downloaded_and_deleted(server, console):
    console_page = console().login().open("videos")
    page = console_page.page
    page.get_by_text("No videos yet").wait_for()
    page.get_by_role("link", name="New video").first.click()
    page.get_by_role("heading", name="New video").wait_for()
    page.get_by_role("radio", name="Martin").check()
    page.get_by_label("Provider", exact=True).select_option("flite")
    page.get_by_label("Voice", exact=True).fill("rms")
    page.get_by_label("Captions").select_option("vtt")
    page.get_by_label("Title").fill("Opening hours")
    page.focus(TEXT)
    page.keyboard.type("We are open from nine to five. Come in.")
    page.keyboard.press("Home")
    page.wait_for_selector(f"{PREVIEW}:has-text('“We are open from nine to five.”')")
    with page.expect_response(re.compile("/provider/flite/sample")) as sample:
        page.get_by_role("button", name="Preview the sentence").click()
    assert sample.value.headers["content-type"] == "audio/wav"
    sent = json.loads(sample.value.request.post_data)
    assert (sent["text"], sent["voice_id"]) == ("We are open from nine to five.", "rms")

    request = create(page)
    assert re.fullmatch("[0-9a-f]{32}", request.headers["idempotency-key"])
    page.get_by_role("heading", name="Opening hours").wait_for()
    page.wait_for_selector(".pill:has-text('Ready')", timeout=1000 * RENDERING_TIME)
    [video] = server.request("GET", "/v1/ext/videos").json()
    assert (video["status"], video["avatar_key_id"]) == ("COMPLETED", "martin")
    assert (video["tts"]["provider"], video["tts"]["voice_id"]) == ("flite", "rms")
    console_page.wait_for("document.querySelector('video').readyState >= 2")
    assert page.evaluate("document.querySelector('video').duration") == pytest.approx(
        video["duration"], abs=0.1
    )
    # The captions are those of the video.
    console_page.wait_for("document.querySelector('video').textTracks.length === 1")
    page.evaluate("document.querySelector('video').textTracks[0].mode = 'showing'")
    console_page.wait_for("document.querySelector('video').textTracks[0].cues?.length > 0")
    cues = page.evaluate(
        "[...document.querySelector('video').textTracks[0].cues].map((cue) => cue.text).join(' ')"
    )
    assert cues.split() == "We are open from nine to five. Come in.".split()
    for name, ending in (("Download", "webm"), ("Download captions", "vtt")):
        with page.expect_download() as download:
            page.get_by_role("link", name=name, exact=True).click()
        assert download.value.suggested_filename == f"{video['id']}.{ending}"
    console_page.save_screenshot("console-video")

    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    page.get_by_text("No videos yet").wait_for()
    assert server.request("GET", "/v1/ext/videos").json() == []


def test_without_a_voice_the_preview_has_the_voice_of_the_avatar_as_the_video(server, console):
    # The voices differ in speed. Their noise is random.
    def duration(voice: str) -> int:
        body = {"text": "Come in.", "voice_id": voice}
        reply = server.request("POST", "/v1/ext/provider/flite/sample", body)
        assert reply.status == 200, reply
        return len(reply.body)

    own, default = duration("awb"), duration("slt")
    assert own != default
    console_page = console().login().open("videos/new?avatar=theo")
    page = console_page.page
    heard = []

    def listen(route):
        # The browser does not give the body of a response that a page reads as a blob.
        reply = route.fetch()
        heard.append(len(reply.body()))
        route.fulfill(response=reply)

    page.route("**/sample", listen)
    page.focus(TEXT)
    page.keyboard.type("Come in.")
    preview = page.get_by_role("button", name="Preview the sentence")
    # Theo's voice is awb, Mei's is heart, which flite does not have.
    for avatar, provider, expected in [
        ("Theo", "", own),
        ("Theo", "flite", own),
        ("Mei", "flite", default),
    ]:
        page.get_by_role("radio", name=avatar).check()
        page.get_by_label("Provider", exact=True).select_option(provider)
        with page.expect_response("**/sample"):
            preview.click()
        assert heard[-1] == expected, (avatar, provider)
    page.get_by_label("Voice", exact=True).fill("nobody")
    with console_page.expect_status(400):
        preview.click()
        page.get_by_text("The voice is not a voice of this provider.").wait_for()


def test_directions_are_inserted_with_the_keyboard_and_not_spoken(console):
    page = console().login().open("videos/new?avatar=mei").page
    assert page.is_checked("input[value=mei]")
    page.focus(TEXT)
    page.keyboard.type("One. Two is here")
    page.wait_for_selector(f"{PREVIEW}:has-text('“Two is here”')")
    page.keyboard.press("Shift+Tab")
    assert page.evaluate("document.activeElement.textContent") == "Calm"
    assert page.evaluate(IS_FOCUS_VISIBLE)
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == TEXT[1:]
    page.keyboard.type("and there.")
    assert page.input_value(TEXT) == "One. Two is here [calm] and there."
    page.wait_for_selector(f"{PREVIEW}:has-text('“Two is here and there.”')")
    page.keyboard.press("Control+a")
    page.wait_for_selector(f"{PREVIEW}:has-text('“One. Two is here and there.”')")
    assert page.inner_text(".counter") == "34 of 20,000 characters"
    # What is written is not lost by accident.
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("dialog", name="Leave without saving?").wait_for()
    page.get_by_role("button", name="Stay here").click()
    assert page.input_value(TEXT).startswith("One.")


def test_an_error_of_the_server_appears_at_the_field(console):
    console_page = console().login().open("videos/new")
    page = console_page.page
    keys = []

    def refused(field, text):
        with console_page.expect_status(400):
            keys.append(create(page).headers["idempotency-key"])
            fault = page.locator(f"#f-{field}-fault")
            fault.filter(has_text=text).wait_for()
        assert page.evaluate("document.activeElement.id") == f"f-{field}"
        assert page.evaluate(IS_FOCUS_VISIBLE)

    refused("text", "is required if there is no audio")
    page.fill(TEXT, "[warm] [nod]")
    refused("text", "contains nothing to speak")
    page.fill(TEXT, "Hello.")
    page.fill("#f-frame-rate", "31")
    refused("frame-rate", "Pictures per second must be between 10 and 30.")
    page.fill("#f-frame-rate", "30")
    page.fill("#f-tts-voice-id", "nobody")
    refused("tts-voice-id", "is not a voice of this provider")
    # The same request once more has the same key; each other one had another key.
    refused("tts-voice-id", "is not a voice of this provider")
    assert keys[-1] == keys[-2] and len(set(keys)) == 4, keys
    page.fill("#f-tts-voice-id", "")
    page.locator("#webhook > summary").click()
    page.fill("#f-callback-url", "ftp://x")
    page.locator("#webhook > summary").click()
    refused("callback-url", "must be a valid http(s) URL")


def test_a_request_that_got_no_answer_creates_one_video(server, console):
    console_page = console().login().open("videos/new")
    page = console_page.page
    page.get_by_label("Provider", exact=True).select_option("flite")
    page.fill(TEXT, "Hello.")

    def lose_answer(route):
        assert route.fetch().status == 201
        route.abort()

    console_page.expected_errors.append("net::ERR_FAILED")
    page.route("**/v1/ext/video", lose_answer, times=1)
    create(page)
    page.get_by_text("The server cannot be reached.").wait_for()
    create(page)
    page.get_by_role("heading", name=re.compile("^Video of ")).wait_for()
    [video] = server.request("GET", "/v1/ext/videos").json()
    assert server.request("DELETE", f"/v1/ext/video/{video['id']}").status == 200


def test_a_sound_file_is_chosen_and_sent_with_its_progress(server, console):
    console_page = console().login().open("videos/new")
    page = console_page.page
    page.get_by_role("radio", name="A sound file").check()
    for hidden in ("#voice", TEXT, "#f-captions"):
        assert page.is_hidden(hidden), hidden
    page.get_by_role("button", name=CREATE).press("Enter")
    page.wait_for_selector(f"{AUDIO}-fault:has-text('Choose a sound file.')")
    assert page.evaluate("document.activeElement.id") == AUDIO[1:]
    for name, content, problem in (
        ("a.flac", b"fLaC", "Choose a WAV, MP3 or Ogg file."),
        ("a.wav", b"", "The file is empty."),
    ):
        page.set_input_files(AUDIO, {"name": name, "mimeType": "", "buffer": content})
        page.wait_for_selector(f".drop .fault:has-text('{problem}')")
    # The server looks into the file.
    wrong = {"name": "a.wav", "mimeType": "audio/wav", "buffer": b"no sound"}
    page.set_input_files(AUDIO, wrong)
    with console_page.expect_status(400):
        create(page)
        page.wait_for_selector(f"{AUDIO}-fault:has-text('must be WAV, MP3 or Ogg')")
    sound = speech.wav_bytes(*speech.flite("Hello from a file.", "slt"))
    page.set_input_files(AUDIO, {"name": "a.wav", "mimeType": "audio/wav", "buffer": sound})
    page.wait_for_selector(".drop .name:has-text('a.wav, ')")
    console_page.wait_for("document.querySelector('.drop audio').duration > 0.5")
    request = create(page)
    assert request.headers["content-type"].startswith("multipart/form-data")
    page.get_by_role("heading", name=re.compile("^Video of ")).wait_for()
    page.get_by_text("A sound file").wait_for()
    [video] = server.request("GET", "/v1/ext/videos").json()
    assert (video["tts"], video["size"]) == (None, "512x512")
    assert server.request("DELETE", f"/v1/ext/video/{video['id']}").status == 200


def test_the_secret_of_the_webhook_is_shown_once(server, console, webhooks):
    page = console().login().open("videos/new").page
    page.get_by_label("Provider", exact=True).select_option("flite")
    page.fill(TEXT, "Hello.")
    page.locator("#webhook > summary").click()
    page.get_by_label("Address").fill(webhooks.url)
    page.get_by_label("Your own data").fill('{"order": 7}')
    create(page)
    dialog = page.get_by_role("dialog", name="The secret of the webhook")
    assert dialog.locator("code").inner_text().startswith("whsec_")
    dialog.get_by_role("button", name="Continue").click()
    page.get_by_role("heading", name=re.compile("^Video of ")).wait_for()
    [video] = server.request("GET", "/v1/ext/videos").json()
    assert video["meta_data"] == {"order": 7}
    assert server.request("DELETE", f"/v1/ext/video/{video['id']}").status == 200


def test_what_needs_ffmpeg_cannot_be_selected_without_it(with_videos):
    console_page, records = with_videos("videos/new")
    page = console_page.page

    def disabled():
        return page.locator("option:disabled").all_inner_texts()

    needs = " (needs ffmpeg on the server)"
    assert disabled() == [f"MP4{needs}", f"Part of the picture{needs}"]
    records.formats, records.captions = ["mp4"], ["burned"]
    console_page.open("videos/new")
    assert disabled() == []


def test_the_list_follows_the_progress_and_keeps_the_focus(with_videos):
    first = video_record(1, title="First")
    second = video_record(2, status="PROCESSING", progress=0.2, **UNFINISHED)
    failed = video_record(3, status="FAILED", error="The voice of x failed: no key.", **UNFINISHED)
    waiting = video_record(4, status="QUEUED", waiting="The disk is full.", **UNFINISHED)
    console_page, records = with_videos("videos", waiting, failed, second, first)
    page = console_page.page
    states = page.locator(".videos .pill").all_inner_texts()
    assert states == ["Waiting", "Failed", "In progress", "Ready"]
    page.get_by_text("The voice of x failed: no key.").wait_for()
    page.get_by_text("The disk is full.").wait_for()
    bar = page.locator(f"progress[data-of='{second['id']}']")
    assert bar.evaluate("(bar) => bar.value") == 0.2
    page.focus(f"#see-{second['id']}")
    second["progress"] = 0.7
    console_page.wait_for(f"document.querySelector('[data-of=\"{second['id']}\"]').value === 0.7")
    assert page.evaluate("document.activeElement.id") == f"see-{second['id']}"
    assert page.evaluate(IS_FOCUS_VISIBLE)
    second |= video_record(2)
    page.wait_for_selector(f"li[data-id='{second['id']}'] .pill:has-text('Ready')")
    assert page.evaluate("document.activeElement.id") == f"see-{second['id']}"
    page.get_by_role("button", name="Delete First").click()
    page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Delete First").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    page.wait_for_selector(f"li[data-id='{first['id']}']", state="detached")
    assert not records.find(first["id"])


def test_the_page_of_a_video_follows_its_progress_until_it_can_be_played(with_videos):
    video = video_record(1, status="QUEUED", progress=0, **UNFINISHED)
    console_page, _ = with_videos(f"videos/{video['id']}", video)
    page = console_page.page
    status = ".async-panel [role=status]"
    page.wait_for_selector(f"{status}:has-text('It waits for its turn.')")
    video |= {"status": "PROCESSING", "progress": 0.43}
    page.wait_for_selector(f"{status}:has-text('40 %')")
    video |= {"waiting": "The video waits for the storage: it refuses."}
    page.wait_for_selector(f"{status}:has-text('waits for the storage')")
    # No poster: it is optional.
    video |= {**video_record(1), "poster_url": ""}
    page.wait_for_selector(".toast:has-text('is ready')")
    console_page.wait_for("document.querySelector('video').readyState >= 2")
    assert page.is_hidden(status)


def test_an_expired_link_is_replaced_once(with_videos):
    video = video_record(1)
    console_page, records = with_videos(f"videos/{video['id']}", video)
    page = console_page.page
    console_page.wait_for("document.querySelector('video').readyState >= 2")
    old = page.get_attribute("video", "src")
    records.first_valid = records.reads + 1
    with console_page.expect_status(403):
        page.evaluate("document.querySelector('video').load()")
        console_page.wait_for(
            f"document.querySelector('video').getAttribute('src') !== '{old}'"
            " && document.querySelector('video').readyState >= 2"
        )
    with page.expect_download() as download:
        page.get_by_role("link", name="Download", exact=True).click()
    assert download.value.url.endswith(f"={records.reads}"), "a new link"
    # A file that cannot be read is not asked for again and again.
    records.file = b"no video"
    reads = records.reads
    page.evaluate("document.querySelector('video').load()")
    page.get_by_role("alert").filter(has_text="The video cannot be played.").wait_for()
    assert records.reads == reads + 1


def test_a_similar_video_starts_from_the_settings_of_another(with_videos):
    video = video_record(1, background="#102030", size="720x1280", frame_rate=30)
    console_page, _ = with_videos(f"videos/{video['id']}", video)
    page = console_page.page
    page.get_by_role("link", name="Make a similar one").click()
    page.get_by_role("heading", name="New video").wait_for()
    for field, value in (
        ("text", video["text"]),
        ("tts-voice-id", "heart"),
        ("size", "720x1280"),
        ("frame-rate", "30"),
        ("background-colour", "#102030"),
        ("captions", "vtt"),
    ):
        assert page.input_value(f"#f-{field}") == value, field
    assert page.is_checked("input[value=clara]")


def test_a_key_that_may_only_read_cannot_make_or_delete_a_video(server, with_videos):
    video = video_record(1, title="First")
    console_page, _ = with_videos("videos", video)
    page = console_page.page
    key = server.request("POST", "/v1/ext/apikey", {"name": "r", "scope": "read"}).json()["key"]
    page.click("text=Log out")
    page.wait_for_selector("#key")
    console_page.login(key).open("videos")
    assert page.is_disabled("button[aria-label='Delete First']")
    assert page.get_by_role("link", name="New video").get_attribute("aria-disabled") == "true"
    console_page.open(f"videos/{video['id']}")
    assert page.is_disabled("button:has-text('Delete')")
    page.get_by_role("link", name="Download", exact=True).wait_for()


def test_the_pages_of_videos_are_accessible_at_every_width(with_videos):
    long = "A title that goes on for some time, to see how it wraps in a narrow window"
    videos = [
        video_record(1, title=long),
        video_record(2, status="PROCESSING", progress=0.4, background="#dfe6e3", **UNFINISHED),
        video_record(3, status="FAILED", error="The audio is damaged.", tts=None, **UNFINISHED),
    ]
    console_page, _ = with_videos("videos", *videos)
    page, wrong = console_page.page, {}
    paths = ["videos", "videos/new", *(f"videos/{video['id']}" for video in videos)]
    for path in [*paths, "audio"]:
        console_page.open("videos/new" if path == "audio" else path)
        if path == "audio":
            page.get_by_role("radio", name="A sound file").check()
            wav = {"name": "a.wav", "mimeType": "audio/wav", "buffer": speech.wav_bytes(*SILENCE)}
            page.set_input_files(AUDIO, wav)
            page.wait_for_selector(".drop .name:has-text('a.wav')")
        if found := page.evaluate(FIND_UNNAMED_ELEMENTS):
            wrong[path] = found
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            if found := page.evaluate(FIND_LOW_CONTRAST):
                wrong[f"{path} in {scheme}"] = found
        for width in (320, 390, 768, 861, 1440):
            resize(page, width)
            if found := page.evaluate(FIND_OVERFLOW):
                wrong[f"{path} at {width}"] = found
    assert not wrong, "\n".join(f"{what}: {found}" for what, found in wrong.items())
