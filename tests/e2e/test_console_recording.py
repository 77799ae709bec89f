"""The player of a recorded conversation in the console. The record and the file are the test's, so
no call is made."""

import pytest

from kit.console import (
    FIND_LOW_CONTRAST,
    FIND_OVERFLOW,
    FIND_UNNAMED_ELEMENTS,
    IS_FOCUS_VISIBLE,
    resize,
)
from kit.recorded_conversation import CUT, MESSAGES, RecordedConversation, webm

#: The position in seconds, once the browser shows it.
POSITION = "document.querySelector('video').currentTime"
#: Where the element with the focus is on the timeline: left edge and width, relative to it.
PLACE_OF_FOCUS = (
    "[document.activeElement, document.querySelector('.track')]"
    ".map((node) => node.getBoundingClientRect())"
    ".reduce((mark, track) => [(mark.left - track.left) / track.width, mark.width / track.width])"
)
IS_PAUSED = "document.querySelector('video').paused"
#: What is highlighted.
HIGHLIGHTED = "[...document.querySelectorAll('.unit.current')].map((unit) => unit.textContent)"

#: What can be clicked in a transcript.
BUTTONS = "button, [role=button]"


@pytest.fixture
def server(workspace):
    """The shared server with a new, empty workspace."""
    return workspace


@pytest.fixture(scope="module")
def recording_file():
    return webm()


@pytest.fixture
def recorded(server, console, recording_file):
    """Opens a console at a recorded conversation: `(console, conversation)`."""

    def make(*, file=recording_file, stored=True, **options):
        agent = server.create_agent(name="Ada")["id"]
        conversation = server.create_conversation(agent, user_name="Tom")["id"]
        console_page = console(**options).login()
        found = RecordedConversation(console_page.page, conversation, file=file, stored=stored)
        return console_page.open(found.path), found

    return make


def wait_until_readable(console_page):
    console_page.wait_for("document.querySelector('video').readyState >= 2")


def test_the_spoken_word_is_highlighted_and_a_click_on_a_word_seeks(recorded):
    console_page, _ = recorded()
    page = console_page.page
    wait_until_readable(console_page)
    assert page.inner_text("s.cut") == CUT
    page.click(".unit:text-is('thirty')")
    console_page.wait_for(f"{HIGHLIGHTED}.join() === 'thirty'")
    assert page.evaluate(POSITION) == pytest.approx(5.2, abs=0.001)
    # Without the times of words, the whole message is highlighted and sought.
    page.click(".unit:text-is('How much is a haircut?')")
    console_page.wait_for(f"{HIGHLIGHTED}.join() === 'How much is a haircut?'")
    assert page.evaluate(POSITION) == pytest.approx(2.5, abs=0.001)
    # Both speak at once.
    page.click("button.timestamp >> nth=3")
    console_page.wait_for(f"{HIGHLIGHTED}.join() === 'thirty,Stop. When do you open?'")
    page.click(".unit:text-is('We')")
    page.evaluate(
        "window.heard = [];"
        f"new MutationObserver(() => heard.push(...{HIGHLIGHTED}))"
        ".observe(document.querySelector('.transcript'), {attributes: true, subtree: true})"
    )
    page.click(".player button:has-text('Play')")
    console_page.wait_for(f"{POSITION} > 9.1")
    page.click(".player button:has-text('Pause')")
    heard = page.evaluate("heard.filter((word, i) => word !== heard[i - 1])")
    # A busy machine may draw no frame while a word is spoken.
    words = ["We", "open", "at", "nine."]
    assert heard == [word for word in words if word in heard] and len(heard) > 1, heard
    # Nothing is announced for each word.
    assert page.evaluate(
        "[...document.querySelectorAll('[aria-live], [role=status], [role=log], [role=alert]')]"
        ".every((region) => !region.querySelector('.unit') && !region.textContent.includes('nine'))"
    )


def test_the_player_obeys_keys_while_it_has_the_focus(recorded):
    console_page, _ = recorded()
    page = console_page.page
    wait_until_readable(console_page)
    page.keyboard.press("k")
    page.keyboard.press("l")
    assert page.evaluate(f"[{IS_PAUSED}, {POSITION}]") == [True, 0], "without the focus"
    page.focus("video")
    for key, position in (("l", 10), ("ArrowLeft", 5), ("ArrowRight", 10), ("j", 0)):
        page.keyboard.press(key)
        assert page.evaluate(POSITION) == pytest.approx(position, abs=0.001), key
    page.keyboard.press("ArrowRight")
    for key, is_paused in ((" ", False), ("k", True)):
        page.keyboard.press(key)
        console_page.wait_for(f"{IS_PAUSED} === {str(is_paused).lower()}")
    # The words: one of them is in the tab order, arrows move, Enter seeks.
    page.click(".unit:text-is('A')")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "costs"
    assert page.evaluate(IS_FOCUS_VISIBLE)
    assert page.locator(".unit[tabindex='0']").count() == 1
    page.keyboard.press("Enter")
    console_page.wait_for(f"{HIGHLIGHTED}.join() === 'costs'")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    assert page.evaluate(POSITION) == pytest.approx(5.3, abs=0.001)
    # The bars of both speakers.
    bars = page.locator(".lane button")
    said = {bar.get_attribute("aria-label"): bar for bar in bars.all()}
    assert [text for text in said if text.startswith("Caller")] == [
        "Caller at 0:02 for 1.2 s: How much is a haircut?",
        "Caller at 0:05 for 1.4 s: Stop. When do you open?",
    ]
    assert len(said) == len(MESSAGES)
    assert page.locator(".lane button[tabindex='0']").count() == 1
    bars.first.focus()
    for expected in (0.5, 4.3):
        page.keyboard.press("Home" if expected == 0.5 else "ArrowRight")
        if expected == 4.3:
            page.keyboard.press("ArrowRight")
        assert page.evaluate(IS_FOCUS_VISIBLE)
        text = page.evaluate("document.activeElement.getAttribute('aria-label')")
        assert page.inner_text(".mark-text") == text
        page.keyboard.press("Enter")
        assert page.evaluate(POSITION) == pytest.approx(expected, abs=0.001)
    page.keyboard.press("ArrowLeft")
    left, width = page.evaluate(PLACE_OF_FOCUS)
    assert left == pytest.approx(2.5 / 12, abs=0.01) and width == pytest.approx(1.2 / 12, abs=0.01)
    # The turns.
    marks = page.locator(".marks button:visible")
    texts = [marks.nth(i).get_attribute("aria-label") for i in range(marks.count())]
    stages = "(endpointing 300 ms, LLM 120 ms, TTS 80 ms, playout 20 ms)"
    cut = "interrupted at 0:05, silent after 180 ms"
    assert texts == [
        f"Turn 1 at 0:03: answered after 600 ms {stages}; {cut}.",
        f"Turn 2 at 0:06: answered after 1100 ms {stages}.",
    ]
    marks.first.focus()
    page.keyboard.press("ArrowRight")
    assert page.inner_text(".mark-text") == texts[1]
    page.keyboard.press("Enter")
    assert page.evaluate(POSITION) == pytest.approx(6.7, abs=0.001)
    # The marks lie where the turns are in the file.
    left, width = page.evaluate(PLACE_OF_FOCUS)
    assert left == pytest.approx(6.7 / 12, abs=0.01) and width == pytest.approx(1.1 / 12, abs=0.01)


def test_an_expired_link_is_replaced_and_the_position_is_kept(recorded):
    console_page, conversation = recorded()
    page = console_page.page
    wait_until_readable(console_page)
    page.click(".unit:text-is('open')")
    old = page.get_attribute("video", "src")
    conversation.expired.add(old)
    with console_page.expect_status(403):
        page.evaluate("document.querySelector('video').load()")
        console_page.wait_for(
            f"document.querySelector('video').getAttribute('src') !== '{old}'"
            " && document.querySelector('video').readyState >= 2"
        )
    assert page.evaluate(POSITION) == pytest.approx(8.1, abs=0.001)
    with page.expect_download() as download:
        page.click("text=Download")
    assert download.value.url.endswith(conversation.links[-1])
    assert page.get_attribute("video", "src") != conversation.links[-1], "a new link"
    # A file that cannot be read is not asked for again and again.
    conversation.file = b"no recording"
    reads = conversation.reads
    page.evaluate("document.querySelector('video').load()")
    page.wait_for_selector("text=The recording cannot be played.")
    assert conversation.reads == reads + 1
    conversation.file = webm(picture=False)
    page.click("text=Try again")
    console_page.wait_for("document.querySelector('video').readyState >= 2")
    assert page.is_hidden("text=The recording cannot be played.")


def test_a_recording_is_awaited_and_can_be_deleted(server, recorded):
    console_page, conversation = recorded(stored=False)
    page = console_page.page
    page.wait_for_selector("[role=status]:has-text('The recording is being prepared.')")
    assert page.is_hidden("text=Download") and page.is_hidden("video")
    conversation.is_stored = True
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    wait_until_readable(console_page)
    assert page.is_hidden("text=The recording is being prepared.")
    page.click("text=Delete recording")
    page.click("dialog >> text=Cancel")
    assert not conversation.is_deleted
    page.click("text=Delete recording")
    page.click("dialog >> button:has-text('Delete recording')")
    page.wait_for_selector("[role=status]:has-text('The recording was deleted.')")
    assert conversation.is_deleted
    assert page.evaluate("document.activeElement.textContent") == "The recording was deleted."
    assert page.is_hidden("video") and page.get_attribute("video", "src") is None
    # The transcript is kept, as text: no word can be played.
    assert page.locator(".transcript li").count() == len(MESSAGES)
    page.wait_for_selector(".unit", state="detached")
    assert page.locator(f".transcript :is({BUTTONS})").count() == 0


def test_what_follows_the_end_of_a_short_file_cannot_be_played(recorded):
    console_page, _ = recorded(file=webm(seconds=5))
    page = console_page.page
    wait_until_readable(console_page)
    page.wait_for_selector(".unit:text-is('We')", state="detached")
    units = page.locator(".unit").all_inner_texts()
    assert units[-3:] == ["A", "haircut", "costs"], units
    assert page.locator("button.timestamp").count() == 3
    assert page.locator(".spoken").all_inner_texts() == [m["content"] for m in MESSAGES]
    page.click(".spoken:text-is('We open at nine.')")
    assert page.evaluate(POSITION) == 0
    page.focus(".unit[tabindex='0']")
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.textContent") == "costs"


def test_a_recording_that_failed_says_why(recorded):
    console_page, conversation = recorded(stored=False)
    page = console_page.page
    page.wait_for_selector("[role=status]:has-text('The recording is being prepared.')")
    conversation.error = "the file has no valid header"
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_selector(
        "[role=status]:has-text('The recording has failed: the file has no valid header.')"
    )
    assert page.is_hidden(".player") and page.is_hidden("text=Download")
    assert page.is_visible("text=Delete recording")
    reads = conversation.reads
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.click("text=Delete recording")
    page.click("dialog >> button:has-text('Delete recording')")
    page.wait_for_selector("[role=status]:has-text('The recording was deleted.')")
    assert conversation.reads == reads, "nothing is awaited any more"
    assert page.locator(".transcript li").count() == len(MESSAGES)


def test_a_key_that_may_only_read_cannot_delete_a_recording(server, recorded):
    console_page, conversation = recorded()
    reply = server.request("POST", "/v1/ext/apikey", {"name": "reader", "scope": "read"})
    page = console_page.page
    page.click("text=Log out")
    page.wait_for_selector("#key")
    console_page.login(reply.json()["key"]).open(conversation.path)
    wait_until_readable(console_page)
    assert page.is_disabled("button:has-text('Delete recording')")


@pytest.mark.parametrize("picture", [True, False])
def test_the_player_is_accessible_at_every_width(recorded, picture):
    console_page, _ = recorded(file=webm(picture=picture))
    page = console_page.page
    wait_until_readable(console_page)
    page.click(".unit:text-is('costs')")
    assert page.is_visible("video") == picture
    assert page.evaluate(FIND_UNNAMED_ELEMENTS) == []
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        assert page.evaluate(FIND_LOW_CONTRAST) == [], scheme
    for width in (320, 390, 768, 861, 1440):
        resize(page, width)
        assert page.evaluate(FIND_OVERFLOW) == [], width
        player, pane = (
            page.locator(selector).bounding_box() for selector in (".player", ".transcript-pane")
        )
        is_beside = pane["x"] >= player["x"] + player["width"]
        is_below = pane["y"] >= player["y"] + player["height"]
        assert (is_beside, is_below) == ((True, False) if width > 860 else (False, True)), width
    # On a phone, both are on the screen at once.
    resize(page, 390, 844)
    player, pane = (
        page.locator(selector).bounding_box() for selector in (".player", ".transcript-pane")
    )
    menu_height = page.locator(".top").bounding_box()["height"]
    assert pane["y"] + pane["height"] - player["y"] <= 844 - menu_height
    assert page.inner_text(".time") == "0:04 / 0:12"
