"""An avatar from a photo in the console: the photo, its points, previews, the form. The photos show
drawn characters.

Drawing has the lowest priority, so `make test` does not wait for it: a shipped pose set takes the
place of the drawn one, as in test_editor.py.
"""

import base64
import re
import struct

import pytest

from kit.bake import finish_drawing
from kit.console import (
    FIND_LOW_CONTRAST,
    FIND_OVERFLOW,
    FIND_UNNAMED_ELEMENTS,
    IS_FOCUS_VISIBLE,
    resize,
)
from kit.polling import wait_until
from kit.preview_stub import solid_png

#: Orientation of a photo whose top is on the right.
EXIF_TOP_RIGHT = 6
MESH_POINTS = 478
CORNER = "Left corner of the mouth"


@pytest.fixture(scope="module")
def portrait(server):
    """A drawn character that looks into the camera: 512 × 512, WebP."""
    people = server.request("GET", "/v2/character").json()["people"]
    clara = next(person for person in people if person["id"] == "clara")
    request = {"character": clara["character"], "pose": clara["rest"], "size": 512}

    def draw():
        reply = server.request("POST", "/v2/character/preview", request)
        # A busy machine does not draw it in time.
        assert reply.status in (200, 503), reply
        return reply.status == 200 and reply.body

    return wait_until(draw, "the portrait")


@pytest.fixture(scope="module")
def redraw(browser):
    """Draws a picture as a JPEG: `redraw(picture, script)`. The script gets the `image` and returns
    a canvas."""
    page = browser.new_context().new_page()

    def draw(picture: bytes, script: str) -> bytes:
        uri = page.evaluate(
            """async (source) => {
              const image = new Image();
              image.src = source;
              await image.decode();
              const make = (width, height) => Object.assign(document.createElement('canvas'),
                { width, height });
              const canvas = (() => {"""
            + script
            + """})();
              return canvas.toDataURL('image/jpeg', 0.9);
            }""",
            "data:image/webp;base64," + base64.b64encode(picture).decode(),
        )
        return base64.b64decode(uri.split(",")[1])

    yield draw
    page.context.close()


def file_of(content: bytes, name="photo.webp", media_type="image/webp"):
    return {"name": name, "mimeType": media_type, "buffer": content}


class PhotoPage:
    """The page of a new avatar from a photo."""

    def __init__(self, console_page):
        self.console_page, self.page = console_page, console_page.page

    def choose(self, content: bytes, **more):
        self.page.set_input_files("#photo-file", file_of(content, **more))
        return self

    def wait_for_previews(self):
        """Waits for previews of the current points; returns them by pose."""
        self.page.wait_for_selector(".photo-previews[aria-busy=false]:not(.outdated) img[src]")
        return self.page.evaluate(
            "Object.fromEntries([...document.querySelectorAll('.photo-previews img')]"
            ".map((picture) => [picture.dataset.pose, picture.src]))"
        )

    def point(self, label: str):
        return self.page.get_by_role("slider", name=label, exact=True)

    def position(self, label: str) -> list[int]:
        """The announced position of a point, in pixels of the photo."""
        text = self.point(label).get_attribute("aria-valuetext")
        return [int(number) for number in re.findall(r"\d+", text)]

    def labels(self) -> list[str]:
        return self.page.evaluate(
            "[...document.querySelectorAll('.photo-point')].map((point) => point.ariaLabel)"
        )

    def drag(self, label: str, right: float, down: float):
        """Drags a point by CSS pixels, with the mouse."""
        box = self.point(label).bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        # A hand does not meet the middle exactly.
        self.page.mouse.move(x + 1, y - 1)
        self.page.mouse.down()
        self.page.mouse.move(x + 1 + right, y - 1 + down, steps=2)
        self.page.mouse.up()

    def drag_with_finger(self, label: str, right: float, down: float):
        """Drags a point by CSS pixels, on a touch screen."""
        box = self.point(label).bounding_box()
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        touch = self.page.context.new_cdp_session(self.page)
        touch.send("Emulation.setTouchEmulationEnabled", {"enabled": True})
        for kind, places in (
            ("touchStart", [(x, y)]),
            ("touchMove", [(x + right / 2, y + down / 2)]),
            ("touchMove", [(x + right, y + down)]),
            ("touchEnd", []),
        ):
            points = [{"x": x, "y": y} for x, y in places]
            touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        touch.send("Emulation.setTouchEmulationEnabled", {"enabled": False})
        touch.detach()

    def problem(self) -> str:
        self.page.wait_for_selector(".photo-card .problem:visible")
        return self.page.inner_text(".photo-card .problem")


def open_page(console, **options):
    return PhotoPage(console(**options).login().open("avatars/photo"))


def test_an_avatar_is_created_from_a_photo(server, console, portrait):
    photo_page = PhotoPage(console().login().open("avatars"))
    console_page, page = photo_page.console_page, photo_page.page
    page.click("text=From a photo")
    console_page.wait_until_loaded()
    assert console_page.title() == "New avatar from a photo"
    first = photo_page.choose(portrait).wait_for_previews()
    assert sorted(first) == ["PP", "aa", "blink", "ou", "rest"] and len(set(first.values())) == 5
    labels = photo_page.labels()
    assert len(labels) == len(set(labels)) == 19 and "Line between the lips" in labels
    console_page.save_screenshot("photo")

    # A point is moved with the keyboard. The mesh around it follows, the other points stay.
    before = {label: photo_page.position(label) for label in labels}
    page.get_by_role("slider", name="Base of the nose").focus()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.ariaLabel") == CORNER
    assert page.evaluate(IS_FOCUS_VISIBLE)
    requests = []
    page.on("request", lambda sent: sent.url.endswith("/photo") and requests.append(sent))
    for key in ("Shift+ArrowLeft", "Shift+ArrowLeft", "ArrowDown"):
        page.keyboard.press(key)
    moved = photo_page.wait_for_previews()
    after = {label: photo_page.position(label) for label in labels}
    [x, y] = before[CORNER]
    assert after == {**before, CORNER: [x - 20, y + 1]}
    # On a busy machine the first keys may have a request of their own.
    sent = requests[-1].post_data_json
    points = sent["landmarks"]
    assert len(points) == MESH_POINTS and sorted(sent["show"]) == sorted(first)
    assert [round(512 * value) for value in points[61]] == after[CORNER]
    changed = {pose for pose, picture in moved.items() if picture != first[pose]}
    assert {"aa", "ou"} <= changed, changed

    # The default is only a click away.
    page.click("text=Reset points")
    assert photo_page.wait_for_previews() == first
    assert {label: photo_page.position(label) for label in labels} == before
    assert page.is_disabled("button:has-text('Reset points')")

    # A point is dragged with the mouse, in a closer view.
    page.click("button:has-text('Eyes')")
    for side in ("left", "right"):
        photo_page.drag(f"Upper lid of the {side} eye", 0, -9)
    dragged = photo_page.wait_for_previews()
    assert dragged["blink"] != first["blink"]
    lid = "Upper lid of the left eye"
    assert photo_page.position(lid)[1] < before[lid][1]
    assert photo_page.position("Lower lid of the left eye") == before["Lower lid of the left eye"]

    # Consent is never a default.
    page.fill("#f-avatar-name", "Nora")
    assert page.is_checked("#f-keep-source")
    page.click("text=Create avatar")
    page.wait_for_selector("#f-consent-fault:has-text('Confirm it')")
    page.check("#f-consent")
    with page.expect_request(lambda request: request.url.endswith("/custom-avatar")) as request:
        page.click("text=Create avatar")
        page.wait_for_selector("h1:text-is('Nora')")
    sent = request.value.post_data_json
    assert sent["consent"] is True and len(sent["landmarks"]) == MESH_POINTS
    assert sent["input_image"].startswith("data:image/jpeg;base64,")
    avatar = page.url.split("/")[-1]
    finish_drawing(server, avatar, "clara")
    page.wait_for_selector(".tags:has-text('Ready')")
    page.wait_for_selector("button:has-text('Talk to Nora')")
    page.wait_for_selector(".hint:has-text('an encrypted crop is stored. Consent was given on')")
    record = server.request("GET", f"/v2/custom-avatar/{avatar}").json()
    assert (record["status"], record["has_source"]) == ("COMPLETED", True), record
    assert record["consent_at"] and record["gender"] == "female"
    console_page.save_screenshot("photo-ready")
    page.click("a:has-text('Create an agent')")
    console_page.wait_until_loaded()
    assert page.locator(f"input[value='{avatar}']").is_checked()
    assert server.request("DELETE", f"/v2/custom-avatar/{avatar}").status == 200


def test_a_photo_without_a_face_is_refused_and_its_points_can_be_set_by_hand(
    server, console, portrait, redraw
):
    photo_page = open_page(console)
    console_page, page = photo_page.console_page, photo_page.page
    console_page.expected_errors.append("status of 400")
    # What is no picture is not sent.
    photo_page.choose(b"no picture", name="me.heic", media_type="image/heic")
    page.wait_for_selector(".photo-source .problem:has-text('Save it as JPEG or PNG')")
    grey = solid_png({"size": 400})
    photo_page.choose(grey, name="grey.png", media_type="image/png")
    assert photo_page.problem().startswith("No face was found: ")
    page.fill("#f-avatar-name", "Nobody")
    page.check("#f-consent")
    page.click("text=Create avatar")
    page.wait_for_selector(".form .problem:has-text('No face was found')")
    page.click("text=Another photo")

    # Two faces: the person says whose points they are.
    two = redraw(
        portrait,
        "const canvas = make(1024, 512); const context = canvas.getContext('2d'); "
        "context.drawImage(image, 0, 0); context.drawImage(image, 512, 0); return canvas;",
    )
    photo_page.choose(two, name="two.jpg", media_type="image/jpeg")
    assert "one" in photo_page.problem()
    console_page.save_screenshot("photo-refused")
    page.click("text=Set the points by hand")
    assert page.evaluate("document.activeElement.ariaLabel") == "All points"
    assert page.locator(".photo-card .problem").is_hidden()
    chin = photo_page.position("Tip of the chin")
    with page.expect_request(lambda request: request.url.endswith("/photo")) as request:
        page.keyboard.press("Shift+ArrowLeft")
        photo_page.page.wait_for_selector(".photo-previews[aria-busy=false]", state="attached")
        assert photo_page.position("Tip of the chin") == [chin[0] - 10, chin[1]]
    outline = request.value.post_data_json["landmarks"]
    assert set(outline) == {"mouth", "nose", "chin", "left_eye", "right_eye"}

    # A wrong order names both points.
    page.get_by_role("slider", name="Tip of the chin").focus()
    for _ in range(12):
        page.keyboard.press("Shift+ArrowUp")
    page.wait_for_selector(".photo-card .problem:has-text('The tip of the chin lies above the ')")
    for point in ["Tip of the chin", "Lower edge of the lower lip"]:
        assert photo_page.point(point).get_attribute("aria-invalid") == "true"
    page.click("text=Reset points")
    assert page.locator(".photo-point[aria-invalid]").count() == 0

    # The points on the right face, as the networks find them in the portrait alone.
    uri = "data:image/webp;base64," + base64.b64encode(portrait).decode()
    found = server.request("POST", "/v2/custom-avatar/photo", {"input_image": uri}).json()
    box = page.locator(".photo-layer").bounding_box()
    for point in page.locator(".photo-point:not(.all)").all():
        index = int(point.get_attribute("data-point"))
        x, y = found["landmarks"][index]
        label = point.get_attribute("aria-label")
        at = photo_page.position(label)
        scale = box["width"] / 1024
        photo_page.drag(label, ((1 + x) * 512 - at[0]) * scale, (y * 512 - at[1]) * scale)
    previews = photo_page.wait_for_previews()
    assert len(set(previews.values())) == 5
    console_page.save_screenshot("photo-by-hand")


def test_a_photo_comes_from_the_camera_the_clipboard_or_a_drop_and_is_sent_upright(
    server, console, portrait, redraw
):
    photo_page = open_page(console)
    console_page, page = photo_page.console_page, photo_page.page
    console_page.expected_errors.append("status of 400")

    # Chromium's fake camera shows no face.
    page.click("text=Use the camera")
    page.click("text=Cancel")
    assert page.evaluate("document.activeElement.id") == "camera"
    page.keyboard.press("Enter")
    page.wait_for_selector("video:visible")
    assert page.evaluate(FIND_UNNAMED_ELEMENTS) == []
    console_page.wait_for("document.querySelector('video').videoWidth > 0")
    page.click("text=Take the photo")
    assert photo_page.problem().startswith("No face was found: ")
    assert not page.evaluate("document.querySelector('video').srcObject")
    page.click("text=Another photo")
    for name, sentence in (
        ("NotFoundError", "This device has no camera. Choose a file."),
        ("NotAllowedError", "The browser may not use the camera."),
    ):
        page.evaluate(
            "(name) => { navigator.mediaDevices.getUserMedia = "
            "() => Promise.reject(new DOMException('refused', name)); }",
            name,
        )
        page.click("text=Use the camera")
        page.wait_for_selector(f".photo-source .problem:has-text('{sentence}')")

    # A large photo whose top is on the right: it is scaled down and turned.
    large = with_orientation(
        redraw(
            portrait,
            "const canvas = make(2500, 2000); const context = canvas.getContext('2d'); "
            "context.translate(0, 2000); context.rotate(-Math.PI / 2); "
            "context.drawImage(image, 0, 250, 2000, 2000); return canvas;",
        ),
        EXIF_TOP_RIGHT,
    )
    page.evaluate(
        """(data) => {
          const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File([bytes], 'large.jpg', { type: 'image/jpeg' }));
          document.querySelector('.drop').dispatchEvent(
            new DragEvent('drop', { dataTransfer, cancelable: true }));
        }""",
        base64.b64encode(large).decode(),
    )
    photo_page.wait_for_previews()
    assert page.evaluate(
        "((photo) => [photo.naturalWidth, photo.naturalHeight])"
        "(document.querySelector('.photo-layer img'))"
    ) == [1638, 2048]
    [left, right] = [photo_page.position(f"Iris of the {side} eye") for side in ("left", "right")]
    chin = photo_page.position("Tip of the chin")
    assert left[0] + 200 < right[0] and abs(left[1] - right[1]) < 60 and chin[1] > left[1] + 300

    # A connection that breaks off loses nothing.
    console_page.expected_errors.append("ERR_FAILED")
    page.route("**/v2/custom-avatar/photo", lambda route: route.abort(), times=1)
    photo_page.point(CORNER).press("ArrowDown")
    assert photo_page.problem().startswith("The server cannot be reached.")
    page.click("button:has-text('Try again')")
    photo_page.wait_for_previews()

    # A pasted picture replaces it. Its face is small, so the avatar will look soft.
    page.evaluate(
        """(data) => {
          const bytes = Uint8Array.from(atob(data), (letter) => letter.charCodeAt(0));
          const clipboardData = new DataTransfer();
          clipboardData.items.add(new File([bytes], 'small.jpg', { type: 'image/jpeg' }));
          document.dispatchEvent(new ClipboardEvent('paste', { clipboardData, cancelable: true }));
        }""",
        base64.b64encode(
            redraw(
                portrait,
                "const canvas = make(300, 300); "
                "canvas.getContext('2d').drawImage(image, 0, 0, 300, 300); return canvas;",
            )
        ).decode(),
    )
    page.wait_for_selector(".photo-warnings:visible:has-text('soft')")
    page.click("a:has-text('Cancel')")
    page.click("dialog >> button:has-text('Leave')")
    page.wait_for_selector("h1:has-text('Avatars')")


def with_orientation(jpeg: bytes, orientation: int) -> bytes:
    """A JPEG with an EXIF orientation."""
    entry = struct.pack(">HHIHH", 0x0112, 3, 1, orientation, 0)
    tiff = b"MM\0*" + struct.pack(">IH", 8, 1) + entry + struct.pack(">I", 0)
    exif = b"Exif\0\0" + tiff
    return jpeg[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + jpeg[2:]


def test_the_page_of_a_photo_is_accessible(server, console, portrait):
    photo_page = open_page(console, width=390, height=844)
    console_page, page = photo_page.console_page, photo_page.page
    console_page.expected_errors.append("status of 400")
    wrong = {}

    def check(state):
        if found := page.evaluate(FIND_UNNAMED_ELEMENTS):
            wrong[state] = found
        for scheme in ("dark", "light"):
            page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
            if found := page.evaluate(FIND_LOW_CONTRAST):
                wrong[f"{state} in {scheme}"] = found
        for width in (320, 360, 768, 1440):
            resize(page, width)
            if found := page.evaluate(FIND_OVERFLOW):
                wrong[f"{state} at {width}"] = found
            if width in (320, 1440):
                console_page.save_screenshot(f"photo-{state}-{width}")

    check("empty")
    photo_page.choose(portrait).wait_for_previews()
    check("points")
    # Each point is reached with the Tab key, and announced by name and position.
    resize(page, 390, 844)
    assert page.evaluate("document.activeElement.className") == "photo-stage"
    page.click("button:has-text('Mouth')")
    page.locator(".photo-stage").focus()
    for label in photo_page.labels():
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.ariaLabel") == label
        assert page.evaluate(IS_FOCUS_VISIBLE), label
        # With reduced motion, the view changes in the next frame.
        console_page.wait_for(f"({IS_IN_PHOTO})()", timeout=10)
    # A finger moves the point and not the page.
    page.click("button:has-text('Mouth')")
    chin = photo_page.position("Tip of the chin")
    place = page.evaluate("[scrollX, scrollY]")
    photo_page.drag_with_finger("Tip of the chin", 0, 30)
    photo_page.wait_for_previews()
    moved = photo_page.position("Tip of the chin")
    assert moved[0] == chin[0] and moved[1] > chin[1] + 5, (chin, moved)
    assert page.evaluate("[scrollX, scrollY]") == place
    # A point that is moved out of the visible part stays visible.
    page.click("button:has-text('Mouth')")
    photo_page.point(CORNER).focus()
    for _ in range(8):
        page.keyboard.press("Shift+ArrowLeft")
    console_page.wait_for(f"({IS_IN_PHOTO})()", timeout=10)
    for key in ["Shift+ArrowUp"] * 12:
        photo_page.point("Tip of the chin").press(key)
    page.wait_for_selector(".photo-card .problem:visible")
    check("refused")
    assert not wrong, "\n".join(f"{what}: {found}" for what, found in wrong.items())


#: Whether the focused element is in the visible part of the photo.
IS_IN_PHOTO = """() => {
  const rectangle = (node) => node.getBoundingClientRect();
  const [point, photo] = [document.activeElement, document.querySelector('.photo-stage')].map(
    rectangle);
  const [x, y] = [point.left + point.width / 2, point.top + point.height / 2];
  return x >= photo.left && x <= photo.right && y >= photo.top && y <= photo.bottom;
}"""
