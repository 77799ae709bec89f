"""The page that a meeting-bot service opens as the camera, the voice and the ears of its bot.
Nobody clicks in it, its first microphone is refused, and the server waits for it when it goes."""

import json
import os
import re
import signal
import threading

import pytest

from kit import call as calls
from kit.console import FIND_LOW_CONTRAST, FIND_UNNAMED_ELEMENTS, resize
from kit.typed_call import create_typed_agent, scripted_voice

GREETING = "Hello everyone, and welcome to the museum."
QUESTION = "What do visitors see in the first room?"
SHORT_QUESTION = "Where is it?"
ANSWER = (
    "In the first room visitors see a large collection of old clocks, and the oldest of them was "
    "built by Thomas Tompion in London."
)
SIZE = {"width": 1280, "height": 720}

#: A meeting-bot service: the microphone is refused at first, with a banner in the page, and the
#: test can end its track.
SERVICE = """(() => {
  const service = { refusals: REFUSALS, asked: [], tracks: [], seen: 0 };
  window.service = service;
  service.showBanner = () => {
    const banner = document.createElement('div');
    banner.id = 'attendee-audio-error';
    banner.textContent = 'Upstream audio error: 409';
    Object.assign(banner.style, { position: 'fixed', top: '20px', background: '#d32f2f' });
    document.body.appendChild(banner);
    if (banner.checkVisibility()) service.seen += 1;
  };
  const open = navigator.mediaDevices.getUserMedia;
  navigator.mediaDevices.getUserMedia = async (constraints) => {
    service.asked.push(constraints);
    service.offersBefore = e2e.offers.length;
    if (service.asked.length <= service.refusals) {
      service.showBanner();
      throw new Error('Upstream audio error: 409 No upstream audio has been published yet.');
    }
    const stream = await open(constraints);
    service.tracks.push(stream.getAudioTracks()[0]);
    return stream;
  };
})();"""


class MeetingPage(calls.BrowserCall):
    """The meeting page of one conversation in the browser of a service."""

    def __init__(self, server, agent, *, query="", refusals=0, token=None, **options):
        super().__init__(**SIZE, **options)
        self.context.route(re.compile("/meet/"), self._allow_recorder)
        self.context.add_init_script(SERVICE.replace("REFUSALS", str(refusals)))
        self.server = server
        self.conversation = server.create_conversation(agent["id"])
        self.requests: list[str] = []
        self.page.on(
            "request", lambda request: self.requests.append(f"{request.method} {request.url}")
        )
        token = token or self.conversation["token"]
        self.open(f"{server.url}/meet/{self.conversation['id']}?{query}#token={token}")

    def wait_for_state(self, name: str):
        self.page.wait_for_selector(f"#stage[data-state={name}]")

    def wait_for_picture(self):
        self.page.wait_for_selector("#stage[data-picture=yes]")

    def wait_for_greeting(self):
        """Until the agent listens again."""
        self.wait_for_event("agent.stopped_speaking")
        self.wait_for_state("listening")
        self.wait_for_picture()

    def type_text(self, text: str):
        """Says something without a sound. The page itself has no means for that."""
        message = {"label": "rtvi-ai", "type": "send-text", "id": "1", "data": {"content": text}}
        self.page.evaluate("(text) => e2e.channel.send(text)", json.dumps(message))

    def check_state(self, name: str, label: str):
        """Takes a picture of a state, and looks for what a screen reader would miss."""
        self.wait_for_state(name)
        assert self.page.inner_text("[role=status]") == label
        self.save_screenshot(f"meet-{name}")
        found = [
            text
            for what in (FIND_UNNAMED_ELEMENTS, FIND_LOW_CONTRAST)
            for text in self.page.evaluate(what)
            # The page has few words.
            if "texts were seen" not in text
        ]
        assert not found, name

    def offer_count(self) -> int:
        """The number of offers so far, also of earlier pages."""
        return sum(one.startswith("POST ") for one in self.requests)

    def end(self):
        return self.server.request("DELETE", f"/v1/conversation/{self.conversation['id']}")

    def status(self) -> str:
        return self.server.get_conversation(self.conversation["id"])["status"]


@pytest.fixture
def meet(server, browser, call):
    """Opens meeting pages: `meet(agent, query=…)`. Ends their conversations afterwards."""
    created = []

    def make(agent, **options):
        created.append(MeetingPage(server, agent, browser=browser, **options))
        return created[-1]

    yield make
    for page in created:
        page.end()
        page.close()


@pytest.fixture(scope="module")
def agent(server):
    return server.create_agent(greeting=GREETING, transcripts=[QUESTION])


def test_the_page_joins_by_itself_once_the_meeting_has_sound(meet, agent):
    """The microphone is refused twice. The conversation begins only when there is one, so that the
    meeting hears the greeting. The banner of the service is never seen."""
    page = meet(agent, refusals=2)
    page.wait_for_state("listening")
    page.wait_for_picture()
    assert page.page.evaluate("service.offersBefore") == 0, "joined without a microphone"
    asked = page.page.evaluate("service.asked")
    assert len(asked) == 3
    off = dict.fromkeys(("echoCancellation", "noiseSuppression", "autoGainControl"), False)
    assert asked[0] == {"audio": {**off, "channelCount": 1, "sampleRate": 16000}}
    assert page.wait_for("sound", {"after": 0})
    page.wait_for_greeting()
    assert page.event_texts("agent.stopped_speaking") == [GREETING]
    page.page.evaluate("service.showBanner()")
    page.page.wait_for_selector("#attendee-audio-error", state="detached")
    assert page.page.evaluate("service.seen") == 0
    assert page.page.evaluate("document.querySelector('#face').paused") is False
    assert page.browser_errors == []
    mark = page.message_count()
    page.speak(QUESTION)
    assert page.wait_for_event("utterance_committed", mark)["payload"]["text"] == QUESTION


def test_every_state_of_a_call_is_shown(server, meet, scripted_llm):
    """Pictures of the states, with name and captions, and what a screen reader finds in them."""
    answer = threading.Event()
    model = scripted_llm(lambda _request: [answer, ANSWER])
    agent = create_typed_agent(server, llm_server=model, tts=scripted_voice(0.03))
    page = meet(agent, query="name=Maria%20Winter&captions=1", refusals=1)
    page.check_state("connecting", "Connecting")
    page.wait_for_picture()
    page.check_state("listening", "Listening")
    assert page.page.inner_text("#name") == "Maria Winter"
    mark = page.message_count()
    page.type_text(QUESTION)
    page.check_state("thinking", "Thinking")
    answer.set()
    page.page.wait_for_selector("#caption:has-text('collection of old')")
    page.check_state("speaking", "Speaking")
    page.wait_for_event("agent.stopped_speaking", mark)
    # The second portion of a long answer replaces the first, and goes by itself.
    page.page.wait_for_selector("#caption:has-text('in London.')")
    assert "first room" not in page.page.inner_text("#caption")
    page.page.wait_for_selector("#caption", state="hidden")
    page.wait_for_state("listening")


def test_a_lost_connection_comes_back_by_itself(server, meet):
    page = meet(server.create_agent(transcripts=[SHORT_QUESTION]), query="name=Maria%20Winter")
    page.wait_for_picture()
    page.wait_for_message("bot-ready")
    mark = page.message_count()
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        page.check_state("disconnected", "Disconnected")
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
    page.wait_for_message("bot-ready", mark)
    page.wait_for_state("listening")
    page.wait_for_picture()
    mark = page.message_count()
    page.speak(SHORT_QUESTION)
    page.wait_for_event("utterance_committed", mark)
    assert page.status() == "IN_PROGRESS"


def test_a_reload_continues_the_call(meet, agent):
    page = meet(agent)
    page.wait_for_greeting()
    # What the page would say or send as it goes.
    page.page.evaluate("""() => {
      e2e.channel.send = (text) => fetch('/said?' + text, { keepalive: true });
    }""")
    page.page.reload()
    page.page.evaluate("e2e.ready")
    page.wait_for_message("bot-ready")
    page.wait_for_state("listening")
    page.wait_for_picture()
    mark = page.message_count()
    page.speak(QUESTION)
    assert page.wait_for_event("utterance_committed", mark)["payload"]["text"] == QUESTION
    assert page.status() == "IN_PROGRESS"
    assert not [one for one in page.requests if one.startswith("DELETE ") or "/said" in one]
    assert page.offer_count() == 2
    assert page.browser_errors == []


def test_a_microphone_that_ends_is_replaced_in_the_same_connection(meet, agent):
    page = meet(agent)
    page.wait_for_greeting()
    page.page.evaluate(
        "service.refusals = 2; service.tracks[0].stop(); "
        "service.tracks[0].dispatchEvent(new Event('ended'))"
    )
    page.page.evaluate(
        "() => new Promise((done) => { const look = () => service.tracks.length > 1 ? done() "
        ": requestAnimationFrame(look); look(); })"
    )
    mark = page.message_count()
    page.speak(QUESTION)
    assert page.wait_for_event("utterance_committed", mark)["payload"]["text"] == QUESTION
    assert page.page.evaluate("e2e.offers.length") == 1


def test_a_new_token_in_the_fragment_joins_anew(meet, agent):
    """Chromium does not reload a page of which only the fragment changes."""
    page = meet(agent, token="expired", query="name=%3Cb%3EMaria%3C/b%3E")
    page.wait_for_state("ended")
    assert page.page.is_hidden("#face") and page.page.inner_text("h1") == "<b>Maria</b>"
    page.page.evaluate("window.sameDocument = true")
    token = page.conversation["token"]
    page.page.evaluate("(token) => { location.hash = `#token=${token}`; }", token)
    page.wait_for_greeting()
    assert page.page.evaluate("window.sameDocument")


def test_an_ended_conversation_shows_the_name_only(meet, agent):
    page = meet(agent, query="name=Maria%20Winter")
    page.wait_for_picture()
    assert page.end().status == 200
    for _ in range(2):
        page.check_state("ended", "Conversation ended")
        assert page.page.is_hidden("#face") and page.page.is_visible("h1:has-text('Maria Winter')")
        assert page.page.evaluate("document.querySelector('#face').srcObject") is None
        page.page.reload()
    page.wait_for_state("ended")
    # No further attempt follows: one offer of each of the three pages.
    assert page.offer_count() == 3


def test_nothing_overflows(meet, agent):
    """A long name and long captions at the size of the services and at others."""
    page = meet(agent, query=f"name={'Bartholomew%20' * 9}")
    page.wait_for_picture()
    page.page.evaluate("""() => {
      const caption = document.getElementById('caption');
      caption.hidden = false;
      caption.textContent = 'Many wonderful words. '.repeat(4) + 'W'.repeat(40);
    }""")
    wrong = {}
    for width, height in [(1280, 720), (1920, 1080), (640, 360), (720, 1280)]:
        resize(page.page, width, height)
        found = page.page.evaluate("""() => ['.badge', '#caption', '#face', '#stage']
          .map((one) => [one, document.querySelector(one).getBoundingClientRect()])
          .filter(([, box]) => box.left < 0 || box.top < 0 || box.right > innerWidth
            || box.bottom > innerHeight)
          .map(([one, box]) => `${one}: ${JSON.stringify(box)}`)""")
        if found or page.page.evaluate("document.documentElement.scrollWidth") > width:
            wrong[f"{width} x {height}"] = found
        page.save_screenshot(f"meet-overflow-{width}x{height}")
    assert not wrong


def test_the_page_has_a_strict_policy(server):
    reply = server.request("GET", "/meet/00000000-0000-4000-8000-000000000000", key=None)
    assert reply.status == 200 and reply.headers["referrer-policy"] == "no-referrer"
    policy = reply.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self';" in policy and "unsafe" not in policy, policy
