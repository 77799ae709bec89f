"""The background of an agent's avatar in the console: its settings, what the server stores of them,
and its errors.

Drawing has the lowest priority, so `make test` does not wait for it: a shipped pose set takes the
place of the drawn one, as in test_editor.py.
"""

import base64
import re

import pytest

from kit.bake import finish_drawing, wait_for
from kit.console import (
    FIND_LOW_CONTRAST,
    FIND_OVERFLOW,
    FIND_UNNAMED_ELEMENTS,
    IS_FOCUS_VISIBLE,
    resize,
)
from kit.preview_stub import solid_png

#: The field of the server.
FIELD = "avatars[0].background"
#: Ids of the form's inputs start with this.
INPUT = "#f-avatars-0-background"
GRADIENT = {"type": "gradient", "from": "#102a43", "to": "#d9e2ec", "angle": 135}
KINDS = ("keep", "colour", "gradient", "blur", "image")
#: Bytes.
MAX_FILE_SIZE = 9 << 20
PREVIEW = ".background-preview"
FAULT = f"{INPUT}-fault"


@pytest.fixture
def server(workspace):
    """The shared server with a new, empty workspace."""
    return workspace


@pytest.fixture
def open_agent(server, console):
    """Creates an agent and opens its form at its background: `(form, agent)`. Deletes the agent at
    the end, and with it its background."""
    created = []

    def make(background=None, **options):
        avatar = {"avatar_key_id": "clara", "background": background}
        agent = server.create_agent(name="Ada", avatar=avatar)["id"]
        created.append(agent)
        return BackgroundForm(console(**options).login(), agent), agent

    yield make
    for agent in created:
        assert server.request("DELETE", f"/v1/ext/agent/{agent}").status == 200


class BackgroundForm:
    """The section of the background in the form of an agent."""

    def __init__(self, console_page, agent):
        self.console_page, self.page = console_page.open(f"agents/{agent}"), console_page.page
        self.page.click("#picture > summary")

    def choose(self, kind: str):
        self.page.check(f"{INPUT}-type-{kind}")
        return self

    def choose_file(self, content: bytes, name="wall.png", media_type="image/png"):
        file = {"name": name, "mimeType": media_type, "buffer": content}
        self.page.set_input_files(f"{INPUT}-image", file)
        return self

    def save(self) -> dict:
        """Saves the form; returns the background that was sent."""
        with self.page.expect_request(lambda request: request.method == "PUT") as request:
            self.page.click("#save")
            self.page.wait_for_selector(".toast:has-text('Saved')")
        # The toast of an earlier save is not mistaken for that of a later one.
        self.page.evaluate("document.getElementById('toasts').replaceChildren()")
        return request.value.post_data_json["avatars"][0]["background"]

    def kind(self) -> str:
        return self.page.get_attribute(".background-types input:checked", "value")

    def fault(self, text: str):
        self.page.wait_for_selector(f"{FAULT}:has-text('{text}')")


def stored_background(server, agent):
    return server.request("GET", f"/v1/ext/agent/{agent}").json()["avatars"][0].get("background")


def read_warnings(server, agent):
    return server.request("GET", f"/v1/ext/agent/{agent}").json()["warnings"]


def bakes(server):
    """What is drawn or was drawn, by the names of its folders."""
    folder = server.data / "bakes"
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def test_a_gradient_is_chosen_saved_and_drawn(server, open_agent):
    form, agent = open_agent()
    page = form.page
    assert form.kind() == "keep" and page.is_hidden(PREVIEW)
    page.focus(f"{INPUT}-type-keep")
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    assert form.kind() == "gradient"

    # A colour as text, with and without the sign, and with the picker.
    page.fill(f"{INPUT}-from", "102A43")
    picker = page.get_by_label("First colour, colour picker")
    assert picker.input_value() == GRADIENT["from"]
    page.get_by_label("Second colour, colour picker").fill(GRADIENT["to"])
    assert page.input_value(f"{INPUT}-to") == GRADIENT["to"]
    page.focus(f"{INPUT}-angle")
    for _ in range(45):
        page.keyboard.press("ArrowLeft")
    assert page.get_attribute(f"{INPUT}-angle", "aria-valuetext") == "135°"
    painted = page.evaluate(
        f"getComputedStyle(document.querySelector('{PREVIEW}')).backgroundImage"
    )
    assert painted == "linear-gradient(135deg, rgb(16, 42, 67), rgb(217, 226, 236))"

    # What is no colour is not sent.
    page.fill(f"{INPUT}-from", "blue")
    page.click("#save")
    form.fault("The first colour needs six hexadecimal digits")
    assert page.evaluate("document.activeElement.id") == f"{INPUT[1:]}-from"
    page.fill(f"{INPUT}-from", GRADIENT["from"])
    assert page.is_hidden(FAULT)
    assert page.locator("[aria-invalid=true]").count() == 0

    before = bakes(server)
    assert form.save() == GRADIENT
    assert stored_background(server, agent) == GRADIENT
    form.console_page.wait_until_loaded()
    assert (form.kind(), page.input_value(f"{INPUT}-angle")) == ("gradient", "135")
    page.wait_for_selector(".agent-warnings .note:has-text('being drawn')")

    # The warning disappears by itself, and nothing is fetched afterwards.
    [drawing] = wait_for(lambda: bakes(server) - before, "the drawing begins")
    finish_drawing(server, drawing, "clara")
    page.wait_for_selector(".toast:has-text('The new picture is ready.')")
    assert page.locator(".agent-warnings .note").count() == 0
    assert server.request("GET", f"/v1/ext/agent/{agent}").json().get("warnings", []) == []


def test_a_picture_is_scaled_down_and_stays_until_another_one_is_chosen(server, open_agent):
    form, agent = open_agent()
    form.choose("image")
    page = form.page
    page.click("#save")
    form.fault("Choose a picture")
    assert page.evaluate("document.activeElement.id") == f"{INPUT[1:]}-image"

    # Files that are refused before they are sent.
    problem = "#picture .field .fault[role=alert]"
    for content, name, media_type, sentence in (
        (b"\x89PNG\r\n\x1a\n" + bytes(MAX_FILE_SIZE), "big.png", "image/png", "larger than 9 MB"),
        (b"GIF89a", "wall.gif", "image/gif", "PNG, JPEG or WebP"),
        (b"no picture", "wall.png", "image/png", "cannot read the file as a picture"),
    ):
        form.choose_file(content, name, media_type)
        page.wait_for_selector(f"{problem}:has-text('{sentence}')")

    form.choose_file(solid_png({"size": 1600, "wall": 1}))
    page.wait_for_selector(f"{PREVIEW} img:visible")
    assert page.is_hidden(problem) and page.is_hidden(FAULT)
    sent = form.save()
    assert sent["type"] == "image" and sent["image"].startswith("data:image/jpeg;base64,")
    assert jpeg_size(base64.b64decode(sent["image"].split(",")[1])) == (1280, 1280)
    stored = stored_background(server, agent)
    assert stored["type"] == "image" and re.fullmatch("sha256:[0-9a-f]{64}", stored["image"])

    # The stored picture is not shown, but it stays.
    form.console_page.wait_until_loaded()
    page.wait_for_selector("text=A picture is stored. It stays unless another one is chosen.")
    page.fill("#f-agent-name", "Ada of the desk")
    assert form.save() == stored == stored_background(server, agent)

    # Back to the avatar's own.
    form.console_page.wait_until_loaded()
    form.choose("keep")
    assert form.save() == {"type": "keep"}
    assert (stored_background(server, agent) or {"type": "keep"}) == {"type": "keep"}
    form.console_page.wait_until_loaded()
    assert page.locator(".agent-warnings .note").count() == 0


def jpeg_size(jpeg: bytes) -> tuple[int, int]:
    """Width and height from the frame header of a baseline JPEG."""
    at = jpeg.index(b"\xff\xc0") + 5
    height, width = (int.from_bytes(jpeg[i : i + 2], "big") for i in (at, at + 2))
    return width, height


def test_an_error_of_the_server_appears_at_the_field(server, open_agent):
    form, agent = open_agent(GRADIENT)
    page = form.page
    form.console_page.expected_errors.append("status of 400")

    def send(background):
        """Sends another background than that of the form."""

        def change(route):
            body = route.request.post_data_json
            body["avatars"][0]["background"] = background
            route.continue_(post_data=body)

        page.route(f"**/v1/ext/agent/{agent}", change, times=1)
        page.press("#save", "Enter")

    record = server.request("GET", f"/v1/ext/agent/{agent}").json()
    unknown = {"type": "image", "image": f"sha256:{'0' * 64}"}
    for background, path, setting in (
        ({**GRADIENT, "to": "white"}, f"{FIELD}.to", "to"),
        ({**GRADIENT, "angle": 361}, f"{FIELD}.angle", "angle"),
        (unknown, f"{FIELD}.image", None),
    ):
        send(background)
        page.wait_for_selector(f"{FAULT}:visible")
        focused = setting or "type-gradient"
        assert page.evaluate("document.activeElement.id") == f"{INPUT[1:]}-{focused}"
        assert page.evaluate(IS_FOCUS_VISIBLE)
        record["avatars"][0]["background"] = background
        reply = server.request("PUT", f"/v1/ext/agent/{agent}", record)
        assert reply.status == 400, reply
        [fault] = reply.json()["details"]
        assert fault["field"] == path, fault
        shown, reason = (
            text.rstrip(".").lower() for text in (page.inner_text(FAULT), fault["reason"])
        )
        assert shown.endswith(reason)
        form.choose("blur").choose("gradient")
        assert page.is_hidden(FAULT)
    assert stored_background(server, agent) == GRADIENT


def test_framing_and_size_are_selected_and_stored(server, open_agent):
    form, agent = open_agent()
    page, framing, size = form.page, "#f-avatars-0-framing", "#f-avatars-0-size"
    assert (page.input_value(framing), page.input_value(size)) == ("close", "")
    for chosen in (("bust", "720x1280"), ("close", "")):
        page.select_option(framing, chosen[0])
        page.select_option(size, chosen[1])
        form.save()
        avatar = server.request("GET", f"/v1/ext/agent/{agent}").json()["avatars"][0]
        assert (avatar["framing"], avatar["size"] or "") == chosen
        is_drawn = any("is being drawn" in text for text in read_warnings(server, agent))
        assert is_drawn == (chosen[0] == "bust")


def test_the_section_of_the_background_is_accessible(open_agent):
    form, _ = open_agent(width=390, height=844)
    page, wrong = form.page, {}
    for kind in KINDS:
        form.choose(kind)
        if kind == "image":
            form.choose_file(solid_png({"size": 64}))
            page.wait_for_selector(f"{PREVIEW} img:visible")
        if found := page.evaluate(FIND_UNNAMED_ELEMENTS):
            wrong[kind] = found
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme)
            if found := page.evaluate(FIND_LOW_CONTRAST):
                wrong[f"{kind} in {scheme}"] = found
        for width in (320, 390, 768, 1440):
            resize(page, width)
            if found := page.evaluate(FIND_OVERFLOW):
                wrong[f"{kind} at {width}"] = found
            if width in (320, 1440):
                page.locator("#picture").scroll_into_view_if_needed()
                form.console_page.save_screenshot(f"background-{kind}-{width}")
    assert not wrong, "\n".join(f"{what}: {found}" for what, found in wrong.items())
