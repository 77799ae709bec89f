"""The pages that a visitor and a new operator see first: the landing page, the page before a call,
the login, pages of errors, and the operator's branding."""

import struct
import zlib

import pytest

from kit.console import FIND_LOW_CONTRAST, FIND_OVERFLOW, IS_FOCUS_VISIBLE, resize

WIDTHS = (320, 375, 768, 1280)
#: Finds buttons and links that look like buttons whose text is cut off.
FIND_CUT_BUTTONS = """() => [...document.querySelectorAll('button, .button')]
  .filter((node) => node.checkVisibility() && [node, ...node.querySelectorAll('span')]
    .some((part) => part.scrollWidth > part.clientWidth + 1 && part.clientWidth))
  .map((node) => node.textContent)"""
#: Whether all of the command can be seen, or its edge shows that there is more and it scrolls.
IS_COMMAND_COMPLETE = """() => [...document.querySelectorAll('.command')].every((node) => {
  const edges = getComputedStyle(node).backgroundAttachment.split(', ');
  return node.scrollWidth <= node.clientWidth || (node.tabIndex === 0 && edges[0] === 'local'
    && edges.includes('scroll') && getComputedStyle(node).overflowX === 'auto');
})"""


def make_logo(width=24, height=12) -> bytes:
    """A purple PNG."""

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = (b"\0" + b"\x5b\x2a\x86" * width) * height
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    )


@pytest.fixture(scope="module")
def branded_server(start_server, tmp_path_factory):
    logo = tmp_path_factory.mktemp("branding") / "logo.png"
    logo.write_bytes(make_logo())
    settings = {"NAME": "Museum of Time", "LOGO": str(logo), "COLOR": "#ffcc00"}
    return (
        start_server(
            "branded", env={f"VISAVIS_BRANDING_{key}": value for key, value in settings.items()}
        )
        .read_first_start()
        .wait_ready()
    )


def find_faults(page, what):
    """Faults of the open page in both color schemes, at all widths."""
    wrong = {}
    for scheme in ("dark", "light"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        low = [
            fault for fault in page.evaluate(FIND_LOW_CONTRAST) if "texts were seen" not in fault
        ]
        for width in WIDTHS:
            resize(page, width)
            found = page.evaluate(FIND_OVERFLOW) + page.evaluate(FIND_CUT_BUTTONS)
            if not page.evaluate(IS_COMMAND_COMPLETE):
                found.append("a command is cut off")
            if found or low:
                wrong[f"{what}, {scheme}, {width}"] = low + found
    page.evaluate("document.activeElement?.blur()")
    focusable = "a[href], button:enabled, input, [tabindex='0']"
    for _ in range(page.locator(focusable).count()):
        page.keyboard.press("Tab")
        if not page.evaluate(IS_FOCUS_VISIBLE):
            wrong[f"{what}: focus"] = page.evaluate("document.activeElement.outerHTML")
    return wrong


@pytest.mark.parametrize("branded", [False, True])
def test_the_first_pages_fit_every_width_and_can_be_read(request, browser, server, branded):
    if branded:
        server = request.getfixturevalue("branded_server")
    agent = server.create_agent(extra={"embed": {"enabled": True, "origins": []}})
    link = server.create_conversation(agent["id"])["join_link"]
    context = browser.new_context()
    page = context.new_page()
    wrong = {}
    for what, url, ready in (
        ("landing", server.url, "text=Talk with the demo agent"),
        ("embed", f"{server.url}/embed/{agent['id']}", "#join:enabled"),
        ("join", link, "#picture[src]:visible"),
        ("login", f"{server.url}/console", "#key"),
        ("error", f"{server.url}/no/such/page", "text=There is no page at this address"),
    ):
        page.goto(url)
        page.wait_for_selector(ready)
        wrong |= find_faults(page, what)
    context.close()
    assert not wrong, "\n".join(f"{what}: {found}" for what, found in wrong.items())


def test_the_face_is_there_before_the_call(browser, server):
    agent = server.create_agent(
        avatar={"persona_name": "Theo Winter"}, extra={"embed": {"enabled": True, "origins": []}}
    )
    link = server.create_conversation(agent["id"])["join_link"]
    loaded = "() => { const face = document.querySelector('.picture'); return face?.naturalWidth; }"
    without_scripts = browser.new_context(java_script_enabled=False)
    page = without_scripts.new_page()
    for url, name in (
        (server.url, "strong"),
        (f"{server.url}/embed/{agent['id']}", "#welcome-title:has-text('Theo Winter')"),
    ):
        page.goto(url)
        assert page.is_visible(name) and page.is_visible(".picture"), url
    without_scripts.close()
    page = browser.new_page()
    page.goto(link)
    page.wait_for_selector("#welcome-title:has-text('Ready to talk with Theo Winter?')")
    page.wait_for_function(loaded)
    page.close()


def test_the_branding_is_on_the_pages_of_visitors_only(browser, branded_server):
    server = branded_server
    link = server.create_conversation(server.create_agent()["id"])["join_link"]
    page = browser.new_page(color_scheme="light")
    for url, button in ((server.url, ".primary"), (link, "#join")):
        page.goto(url)
        page.wait_for_function("() => document.querySelector('.logo')?.naturalWidth === 24")
        assert page.text_content(".brand") == "Museum of Time"
        color = page.eval_on_selector(button, "node => getComputedStyle(node).backgroundColor")
        assert color == "rgb(255, 204, 0)", url
    page.goto(f"{server.url}/console")
    page.wait_for_selector("#key")
    assert page.text_content("#login .brand") == "Visavis"
    page.close()
