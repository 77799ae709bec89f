"""The pages when something goes wrong: clear words, keyboard, screen reader, policy."""

import pytest

from kit import CHROMIUM
from kit import call as calls
from kit.console import FIND_LOW_CONTRAST, resize
from kit.polling import wait_until

FIRST_ROOM = "What do visitors see in the first room?"


@pytest.fixture(scope="module")
def make_join_link(server):
    agent = server.create_agent(
        greeting="Hello, and welcome to the museum.", transcripts=[FIRST_ROOM]
    )
    return lambda: server.create_conversation(agent["id"])["join_link"]


@pytest.fixture(scope="module")
def browser_without_microphone(playwright):
    """A Chromium without a microphone."""
    flags = [flag for flag in calls.FLAGS if "fake-ui" not in flag]
    chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
    yield chromium
    chromium.close()


def test_a_user_without_a_microphone_can_type(make_join_link, browser_without_microphone, call):
    page = call(
        browser=browser_without_microphone, width=390, height=844, options={"ownMicrophone": True}
    ).open(make_join_link())
    page.page.click("#join")
    page.page.wait_for_selector("#notice:has-text('No microphone was found')")
    page.wait_for("sound", {"after": 0})
    assert page.page.inner_text("#mute") == "Use mic"
    page.save_screenshot("no-microphone-phone")
    page.wait_for_message("bot-ready")
    mark = page.message_count()
    page.page.fill("#text", "Hello there")
    page.page.press("#text", "Enter")
    assert page.wait_for_event("utterance_committed", mark)["payload"]["text"] == "Hello there"


def test_a_refused_microphone_is_explained(make_join_link, call):
    page = call(options={"ownMicrophone": True})
    page.context.add_init_script(
        "navigator.mediaDevices.getUserMedia = async () => { throw new DOMException('no', "
        "'NotAllowedError'); }"
    )
    page.open(make_join_link())
    page.page.click("#join")
    page.page.wait_for_selector("#notice:has-text('The microphone is blocked')")
    assert page.page.is_visible("#notice-action:has-text('Try again')")
    page.wait_for("frames", {"more": 1})


def test_blocked_media_are_explained(make_join_link, call):
    """A network without UDP and TCP to the server: the candidates of the answer lead nowhere."""
    page = call()
    page.context.add_init_script("""
        const set = RTCPeerConnection.prototype.setRemoteDescription;
        RTCPeerConnection.prototype.setRemoteDescription = function (about) {
          const candidate = /(a=candidate:\\S+ 1 \\S+ \\d+) \\S+ \\d+ /g;
          const sdp = about.sdp.replace(candidate, '$1 192.0.2.1 9 ');
          return set.call(this, { type: about.type, sdp });
        };""")
    # The page waits twelve seconds for a connection; here they pass in one.
    page.context.add_init_script("""
        const later = window.setTimeout;
        window.setTimeout = (work, ms, ...given) => {
          if (ms === 12_000) window.waitedForConnection = true;
          return later.call(window, work, ms === 12_000 ? 1000 : ms, ...given);
        };""")
    page.open(make_join_link())
    page.page.click("#join")
    page.page.wait_for_selector("#problem:has-text('Your network blocks the call')")
    assert page.page.evaluate("window.waitedForConnection")
    page.save_screenshot("blocked")


def test_an_ended_conversation_says_so(server, make_join_link, call):
    url = make_join_link()
    conversation = url.split("/join/")[1].split("#")[0]
    assert server.request("DELETE", f"/v1/conversation/{conversation}").status == 200
    page = call().open(url)  # no click is needed to see it
    page.page.wait_for_selector("#over-title:has-text('The conversation is over')")
    page.page.wait_for_selector("#over-words:has-text('This conversation is over')")


def test_after_the_end_a_reload_says_so_at_once(server, make_join_link, call):
    url = make_join_link()
    page = call().open(url)
    page.join()
    assert (
        server.request("DELETE", f"/v1/conversation/{url.split('/join/')[1].split('#')[0]}").status
        == 200
    )
    page.page.wait_for_selector("#over-title:has-text('The conversation is over')")
    page.page.reload()
    page.page.wait_for_selector("#over-title:has-text('The conversation is over')")
    assert not page.page.is_visible("#join")


def test_a_link_without_its_token_says_so(server, make_join_link, call):
    page = call().open(make_join_link().split("#")[0])
    page.page.wait_for_selector("#over-words:has-text('expired or is not valid')")


def test_a_network_that_comes_back_finds_the_same_call(server, make_join_link, call):
    """The connection is lost without a message. The page reconnects by itself, and the call
    continues."""
    url = make_join_link()
    page = call().open(url)
    page.join()
    page.wait_for_event("agent.stopped_speaking")
    page.wait_for_silence(lasting=1.0)
    offers = page.page.evaluate("e2e.offers.length")
    mark = page.message_count()
    page.page.evaluate("e2e.peer.close()")  # a dead network as the page sees it, without the wait
    page.page.evaluate("e2e.channel.dispatchEvent(new Event('close'))")
    page.wait_for(
        "message", {"type": "bot-ready", "after": mark}
    )  # one more picture of the old connection may arrive
    page.page.evaluate("e2e.presented = 0")
    page.wait_for("frames", {"more": 1})
    assert page.page.evaluate("e2e.offers.length") > offers
    mark = page.message_count()
    page.speak(FIRST_ROOM)
    page.wait_for_event("utterance_committed", mark)
    assert server.get_conversation(url.split("/join/")[1].split("#")[0])["status"] == "IN_PROGRESS"


def test_everything_works_by_keyboard_and_has_a_name(make_join_link, call):
    page = call().open(make_join_link())
    order = []
    for _ in range(2):
        page.page.keyboard.press("Tab")
        order.append(page.page.evaluate("document.activeElement.id"))
    assert order == ["join", "join-typing"]
    page.page.focus("#join")
    page.page.keyboard.press("Enter")
    page.wait_for("frames", {"more": 1})
    page.page.wait_for_selector("#mute:focus")
    page.page.keyboard.press("Space")
    assert page.page.get_attribute("#mute", "aria-pressed") == "true"
    page.page.keyboard.press("Space")
    assert page.page.get_attribute("#mute", "aria-pressed") == "false"
    page.page.keyboard.press("Tab")
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector("#microphone:focus")
    page.page.keyboard.press("Escape")
    page.page.wait_for_selector("#devices:focus")
    nameless = page.page.evaluate("""() => {
        const named = (node) => node.ariaLabel || node.labels?.length || node.textContent.trim()
          || node.getAttribute('aria-labelledby');
        return [...document.querySelectorAll('button, input, select, [role=meter], video')]
          .filter((node) => node.checkVisibility() && !named(node))
          .map((node) => node.outerHTML);
      }""")
    assert nameless == []
    page.wait_for_event("agent.stopped_speaking")
    page.page.wait_for_selector("#said:has-text('welcome to the museum')", state="attached")
    page.page.keyboard.press("Tab")
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector("#over-title:focus")


def test_the_page_names_the_agent_as_its_persona(server, call):
    agent = server.create_agent(
        name="Counter 3",
        greeting="Hello, and welcome to the museum.",
        avatar={"persona_name": "Theo <b>Winter</b>"},
    )
    page = call().open(server.create_conversation(agent["id"])["join_link"])
    name = "Theo <b>Winter</b>"
    page.page.wait_for_selector("#welcome-title:has-text('Ready to talk with Theo')")
    assert page.page.title().startswith(name)
    page.join()
    page.wait_for_event("agent.stopped_speaking")
    page.page.wait_for_selector("#captions li[data-who=agent] .who")
    assert page.page.text_content("#captions li[data-who=agent] .who") == name
    page.page.wait_for_selector("#said:has-text('Winter')", state="attached")
    assert page.page.text_content("#said").startswith(f"{name}: Hello")
    assert page.page.text_content("#theirs-name") == f"{name} hears"
    assert page.page.get_attribute("#face", "aria-label") == f"Video of {name}"
    page.page.reload()
    page.wait_for("frames", {"more": 1})
    page.page.wait_for_selector("#captions li[data-who=agent] .who:has-text('Winter')")


SIZES = [(320, 568), (390, 844), (768, 1024), (1280, 800), (568, 320), (740, 360)]
#: Finds elements outside of the window, and elements too narrow to use or read.
FIND_MISPLACED = """() => {
  const found = [];
  const width = document.documentElement.scrollWidth;
  if (width > innerWidth) found.push(`the page is ${width} wide`);
  // Suggested questions scroll.
  const checked = "button:not(#suggestions *), #suggestions, input, .meter, .frame, .talk, " +
    ".hint, .card";
  for (const node of document.querySelectorAll(checked)) {
    if (!node.checkVisibility()) continue;
    const box = node.getBoundingClientRect();
    const least = { INPUT: 120, P: 150 }[node.tagName] ?? 36;
    // A card may be longer than the window and scrolls; on a lying phone the way in stands beside
    // the words.
    const below = (!node.closest(".card") || (node.id === "join" && innerHeight < 520))
      && (box.top < -0.5 || box.bottom > innerHeight + 0.5);
    const cut = node.scrollWidth > node.clientWidth + 1 && node.tagName === "BUTTON";
    if (box.left < -0.5 || box.right > innerWidth + 0.5 || below || box.width < least || cut)
      found.push(`${node.id || node.className}: ${JSON.stringify(box)}`);
  }
  const talk = document.querySelector(".talk").getBoundingClientRect();
  const list = document.getElementById("captions").getBoundingClientRect();
  if (talk.width && Math.abs(talk.width - list.width) > 4)
    found.push(`captions are ${list.width} wide in ${talk.width}`);
  return found;
}"""


#: Shows a still video of this size in place of the agent's.
SHOW_VIDEO = """async ([width, height]) => {
  const canvas = Object.assign(document.createElement("canvas"), { width, height });
  canvas.getContext("2d").fillRect(0, 0, width, height);
  const face = document.getElementById("face");
  face.srcObject = canvas.captureStream(5);
  await new Promise((done) => {
    const look = () => (face.videoWidth === width ? done() : requestAnimationFrame(look));
    look();
  });
}"""
#: Left, top, width and height of the picture.
PICTURE_BOX = """() => {
  const { left, top, width, height } = document.getElementById("face").getBoundingClientRect();
  return [left, top, width, height];
}"""

#: Upright, square and wide windows: phones, tablets, desktops, small frames of other pages.
UPRIGHT_SIZES = [
    *((320, 480), (320, 568), (360, 640), (375, 553), (390, 664), (390, 844), (400, 560)),
    *((412, 732), (412, 915), (430, 932), (500, 500), (540, 600), (600, 800), (700, 701)),
    *((768, 1024), (800, 1280), (480, 320), (540, 500), (568, 320), (740, 360), (800, 600)),
    *((844, 390), (932, 430), (1024, 600), (1280, 800), (1920, 1080)),
]
#: Finds what is wrong with a face in an upright video. The eyes are below 25 % of the picture's
#: height, and the chin is above 85 %: at 62 % in a drawn person, at up to 80 % in a photo.
FIND_HIDDEN_FACE = """() => {
  const found = [];
  const box = (selector) => document.querySelector(selector).getBoundingClientRect();
  const video = document.getElementById("face");
  const [picture, frame, talk] = [box("#face"), box("#frame"), box(".talk")];
  const scale = Math.max(
    picture.width / video.videoWidth, picture.height / video.videoHeight);
  const height = scale * video.videoHeight;
  const position = parseFloat(getComputedStyle(video).objectPosition.split(" ")[1]) / 100;
  const top = picture.top - (height - picture.height) * position;
  const beside = talk.left >= frame.right || talk.right <= frame.left;
  const notice = document.getElementById("notice").hidden ? 0 : box("#notice").bottom;
  const first = Math.max(frame.top, picture.top, notice);
  const last = Math.min(
    frame.bottom, picture.bottom, box(".controls").top, beside ? innerHeight : talk.top);
  const [upper, lower] = [(first - top) / height, (last - top) / height];
  if (upper > 0.25) found.push(`the picture begins at ${upper}`);
  if (lower < 0.85) found.push(`the picture ends at ${lower}`);
  const sides = picture.width / (scale * video.videoWidth);
  if (sides < 0.99) found.push(`${sides} of the picture's width is visible`);
  for (const badge of notice ? [] : document.querySelectorAll(".state, #recording")) {
    const { top: begin, bottom: end } = badge.getBoundingClientRect();
    if (begin < top + 0.85 * height && end > top + 0.5 * height)
      found.push(`${badge.innerText} is beside the mouth`);
  }
  return found;
}"""
#: Finds what is wrong with the captions and with the parts below them.
FIND_SQUEEZED_CAPTIONS = """() => {
  const found = [];
  const list = document.getElementById("captions");
  list.scrollTop = list.scrollHeight;
  const [talk, visible] = [list.parentElement, list].map((node) => node.getBoundingClientRect());
  const words = document.createRange();
  words.selectNodeContents(list.lastElementChild);
  words.setStartAfter(list.lastElementChild.querySelector(".who"));
  const lines = new Set();
  for (const line of words.getClientRects())
    if (line.top >= visible.top - 0.5 && line.bottom <= visible.bottom + 0.5)
      lines.add(Math.round(line.top));
  if (lines.size < 2) found.push(`${lines.size} lines in ${visible.height} pixels`);
  const typing = document.getElementById("typing").getBoundingClientRect();
  const suggestions = document.getElementById("suggestions").getBoundingClientRect();
  if (visible.bottom > suggestions.top + 1) found.push("suggestions are on the captions");
  if (suggestions.bottom > typing.top + 1) found.push("suggestions are on the text field");
  if (typing.bottom > talk.bottom + 1) found.push("the text field is cut off");
  return found;
}"""


def test_nothing_overflows_at_any_size(server, call):
    """Welcome, call without captions, call with long ones, call with a notice, call with a video of
    another shape: at the sizes of phones (portrait and landscape), tablets, desktops."""
    agent = server.create_agent(
        avatar={"persona_name": "Bartholomew Featherstonehaugh-Cholmondeley of Marylebone"}
    )
    page = call().open(server.create_conversation(agent["id"])["join_link"])
    page.page.wait_for_selector("#welcome-title:has-text('Bartholomew')")
    wrong = {}

    def check(what):
        for width, height in SIZES:
            resize(page.page, width, height)
            if found := page.page.evaluate(FIND_MISPLACED):
                wrong[f"{what} at {width} x {height}"] = found
                page.save_screenshot(f"overflow-{what}-{width}x{height}".replace(" ", "-"))

    check("welcome")
    page.join()
    check("no captions")
    page.page.click("#devices")
    check("devices")
    page.page.keyboard.press("Escape")
    for text in (
        "x" * 300,
        "A rather long sentence, with which somebody asks for many things at once. " * 6,
    ):
        mark = page.message_count()
        page.page.fill("#text", text)
        page.page.press("#text", "Enter")
        page.wait_for_event("utterance_committed", mark)
    page.page.wait_for_selector("#captions li[data-who=user] >> nth=1")
    check("long captions")
    page.page.evaluate(
        "document.getElementById('notice').hidden = false; "
        "document.getElementById('notice-words').textContent = 'Your microphone works, but its "
        "sound does not reach the agent.'; const b = document.getElementById('notice-action'); "
        "b.hidden = false; b.textContent = 'Choose a device'"
    )
    check("notice")
    page.page.click("#notice-close")
    for video in ((1280, 720), (720, 1280)):
        page.page.evaluate(SHOW_VIDEO, video)
        check(f"video of {video[0]} x {video[1]}")
        resize(page.page, 1280, 800)
        _, _, width, height = page.page.evaluate(PICTURE_BOX)
        assert abs(width / height - video[0] / video[1]) < 0.01, "nothing of it is cut off"
    assert not wrong, "\n".join(f"{what}: {found}" for what, found in wrong.items())


def test_an_upright_video_shows_the_face_above_the_captions(server, call):
    """With and without a notice, in a recorded call, with as many suggested questions as an agent
    may have."""
    long = "Which clock is the oldest one, who made it, and where did the collector find it? " * 2
    agent = server.create_agent(
        greeting="The garden is closed today, because a storm has damaged two old trees. " * 4,
        config={
            "suggested_questions": ["When are you open?", "Is there a café?", *[long[:120]] * 4],
            "recording": {"optional": True},
        },
        extra={"record": True},
    )
    page = call().open(server.create_conversation(agent["id"])["join_link"])
    page.page.click("#join-typing")
    page.wait_for("frames", {"more": 1})
    page.page.wait_for_selector("#captions li[data-who=agent] .who")
    page.page.wait_for_selector("#notice:has-text('without a microphone')")
    page.page.wait_for_selector("#recording-refuse:has-text('Do not record')")
    page.page.evaluate(SHOW_VIDEO, [720, 1280])
    wrong = {}

    def check(what, smallest):
        for width, height in UPRIGHT_SIZES:
            resize(page.page, width, height)
            found = [
                *page.page.evaluate(FIND_HIDDEN_FACE),
                *page.page.evaluate(FIND_SQUEEZED_CAPTIONS),
                *page.page.evaluate(FIND_MISPLACED),
            ]
            _, _, _, high = page.page.evaluate(PICTURE_BOX)
            if high < smallest:
                found.append(f"the picture is {high} high")
            if found:
                wrong[f"{what} at {width} x {height}"] = found
                page.save_screenshot(f"upright-{what}-{width}x{height}".replace(" ", "-"))

    check("notice", 100)
    page.page.click("#notice-close")
    check("no notice", 200)
    # On a phone, the picture begins at the upper edge and has the width of the window.
    for width, height in ((390, 844), (412, 915), (430, 932)):
        resize(page.page, width, height)
        left, top, width_of_picture, _ = page.page.evaluate(PICTURE_BOX)
        assert (left, top, width_of_picture) == (0, 0, width), (width, height)
    assert not wrong, "\n".join(f"{what}: {found}" for what, found in wrong.items())


def test_muting_and_both_levels(server, make_join_link, call):
    """The level of the own microphone and the level that the server receives move with speech.
    A muted microphone is not heard."""
    page = call().open(make_join_link())
    page.join()
    page.wait_for_event("agent.stopped_speaking")
    # The highest level that each bar showed.
    page.page.evaluate("""() => { e2e.levels = { mine: 0, theirs: 0 };
        const look = () => {
          for (const id in e2e.levels) {
            const level = document.getElementById(id).style.getPropertyValue('--level');
            e2e.levels[id] = Math.max(e2e.levels[id], Number(level || 0));
          }
          requestAnimationFrame(look); };
        look(); }""")
    mark = page.message_count()
    page.speak(FIRST_ROOM)
    page.page.evaluate("""() => new Promise((done, fail) => {
        const end = performance.now() + 60_000;
        const look = () => {
          const levels = JSON.stringify(e2e.levels);
          if (Math.min(...Object.values(e2e.levels)) > 0.4) done();
          else if (performance.now() > end) fail(new Error(`the levels got to ${levels} only`));
          else requestAnimationFrame(look); };
        look(); })""")
    answered = page.wait_for_event("agent.stopped_speaking", mark)
    page.page.click("#mute")
    page.page.wait_for_selector("#mute[aria-pressed=true]")
    page.wait_until_time(page.speak(FIRST_ROOM).end)
    page.page.click("#mute")
    page.page.wait_for_selector("#mute[aria-pressed=false]")
    unmuted = page.audio_clock()
    page.speak(FIRST_ROOM)
    started = page.wait_for_message("user-started-speaking", answered["n"])
    assert started["t"] > unmuted, "the muted microphone was heard"


@pytest.mark.parametrize("path", ["/", "/join/00000000-0000-4000-8000-000000000000", "demo"])
def test_pages_have_a_strict_policy(server, path):
    reply = server.request("GET", server.demo if path == "demo" else path, key=None)
    assert reply.status == 200 and reply.headers["referrer-policy"] == "no-referrer"
    policy = reply.headers["content-security-policy"]
    assert (
        "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
    ), policy


def test_spoken_text_is_never_rendered_as_html(server, call):
    agent = server.create_agent()
    page = call().open(server.create_conversation(agent["id"])["join_link"])
    page.page.click("#join-typing")
    page.wait_for_message("bot-ready")
    text = "<img src=x onerror=alert(1)> <b>bold</b>"
    page.page.fill("#text", text)
    page.page.press("#text", "Enter")
    page.wait_for_event("utterance_committed")
    page.page.wait_for_selector("#captions li[data-who=user]")
    assert page.captions()[0]["spoken"] == text
    assert page.page.locator("#captions img, #captions b, #said img").count() == 0


def test_an_agent_that_is_not_for_embedding_has_no_embed_page(server):
    agent = server.create_agent()
    assert server.request("GET", f"/embed/{agent['id']}", key=None).status == 404
    assert server.request("POST", f"/embed/{agent['id']}", {}, key=None).status == 404
    allowed = server.create_agent(
        extra={"embed": {"enabled": True, "origins": ["https://shop.example"]}}
    )
    reply = server.request("GET", f"/embed/{allowed['id']}?username=Ada", key=None)
    assert (
        reply.status == 200
        and "frame-ancestors https://shop.example" in reply.headers["content-security-policy"]
    )


def test_an_embedded_agent_knows_its_visitor(server, call):
    agent = server.create_agent(
        greeting="Hello, and welcome to the museum.",
        extra={"embed": {"enabled": True, "origins": []}},
    )
    page = call().open(
        f"{server.url}/embed/{agent['id']}?username=Ada&id=ada-7&context=likes%20clocks"
    )
    page.join()
    page.wait_for_event("agent.started_speaking")
    rows = [
        row
        for row in server.request("GET", "/v1/ext/conversation?perpage=20").json()
        if row["agent_id"] == agent["id"]
    ]
    assert (
        len(rows) == 1
        and rows[0]["user_name"] == "Ada"
        and rows[0]["user_id"] == "ada-7"
        and "likes clocks" in rows[0]["context"]
    )
    page.page.reload()
    page.page.evaluate("e2e.ready")
    page.wait_for("frames", {"more": 1})
    rows = [
        row
        for row in server.request("GET", "/v1/ext/conversation?perpage=20").json()
        if row["agent_id"] == agent["id"]
    ]
    assert len(rows) == 1, "a reload made a second conversation"


def test_suggested_questions_are_asked_by_keyboard(server, call):
    questions = ["What do visitors see first?", "<b>When</b> are you open?"]
    agent = server.create_agent(config={"suggested_questions": questions})
    page = call(width=390, height=844).open(server.create_conversation(agent["id"])["join_link"])
    page.page.click("#join-typing")
    page.wait_for_message("bot-ready")
    assert page.page.locator("#suggestions button").all_inner_texts() == questions
    page.save_screenshot("suggestions-phone")
    page.page.focus("#suggestions button")
    mark = page.message_count()
    page.page.keyboard.press("Enter")
    assert page.wait_for_event("utterance_committed", mark)["payload"]["text"] == questions[0]
    # The focus moves to the other question, then to the text field.
    assert page.page.evaluate("document.activeElement.textContent") == questions[1]
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector("#suggestions", state="hidden")
    assert page.page.evaluate("document.activeElement.id") == "text"
    page.wait_for_event("agent.started_speaking", mark)
    page.page.wait_for_selector("#captions li[data-who=agent]")
    # The list preserves blanks, so there must be none before the first word.
    lines = page.page.evaluate(
        "[...document.querySelectorAll('#captions li')].map((line) => "
        "[...line.childNodes].slice(1).map((node) => node.textContent).join(''))"
    )
    assert lines and all(line == line.lstrip() for line in lines), lines


def test_a_caller_is_told_of_the_recording_and_refuses_it(server, call):
    """Before and during the call, on an embed page on a phone, by keyboard."""
    agent = server.create_agent(
        extra={"record": True, "embed": {"enabled": True, "origins": []}},
        config={"recording": {"optional": True, "message": "This call is recorded."}},
    )
    page = call(width=390, height=844, scheme="dark").open(f"{server.url}/embed/{agent['id']}")
    assert page.page.inner_text("#recorded").startswith("This call is recorded.")
    wrong = {}

    def check(what):
        if found := page.page.evaluate(FIND_LOW_CONTRAST):
            wrong[what] = found
        for width, height in SIZES:
            resize(page.page, width, height)
            if found := page.page.evaluate(FIND_MISPLACED):
                wrong[f"{what} at {width} x {height}"] = found
        resize(page.page, 390, 844)
        page.save_screenshot(f"recording-{what}-phone")

    check("before")
    page.page.click("#join-typing")
    ready = page.wait_for_message("bot-ready")
    assert ready["data"]["recording"] == {"notice": True, "optional": True}
    page.page.wait_for_selector("#recording-words[role=status]:has-text('Being recorded')")
    page.page.wait_for_selector("#recording-refuse:has-text('Do not record')")
    page.page.wait_for_selector("#veil.gone", state="attached")
    # The agent says it, too.
    assert page.wait_for_event("agent.started_speaking")["payload"]["text"] == (
        "This call is recorded."
    )
    check("during")
    conversation = page.page.evaluate("JSON.parse(Object.values(sessionStorage)[0]).conversation")
    file = server.data / "recordings" / f"{conversation}.capture"
    wait_until(file.exists, lambda: f"no {file}")
    page.page.focus("#recording-refuse")
    mark = page.message_count()
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector("#recording-words:has-text('Nothing is recorded')")
    page.page.wait_for_selector("#recording-refuse", state="hidden")
    assert page.page.evaluate("document.activeElement.id") == "recording"
    assert page.wait_for_message("server-response", mark)["data"]["t"] == "recording"
    check("refused")
    wait_until(lambda: not file.exists(), lambda: f"{file} is still there")
    # A reload continues the call, and the recording does not come back.
    page.page.reload()
    page.page.evaluate("e2e.ready")
    assert "recording" not in page.wait_for_message("bot-ready")["data"]
    page.page.wait_for_selector("#recording-words:has-text('Nothing is recorded')")
    assert server.request("DELETE", f"/v1/conversation/{conversation}").status == 200
    page.page.wait_for_selector("#over-title:has-text('The conversation is over')")
    assert not list((server.data / "recordings").glob(f"{conversation}.*"))
    assert not wrong, "\n".join(f"{what}: {found}" for what, found in wrong.items())


@pytest.mark.parametrize("notice", [True, False])
def test_a_join_page_has_the_notice_of_its_agent(server, call, notice):
    agent = server.create_agent(
        extra={"record": True}, config={"recording": {"notice": notice, "optional": not notice}}
    )
    page = call().open(server.create_conversation(agent["id"])["join_link"])
    page.page.wait_for_selector("#welcome-title:has-text('Ready to talk with Test agent')")
    assert page.page.is_visible("#recorded") == notice
    if notice:
        assert page.page.inner_text("#recorded") == "This call is recorded."
