"""Pages with LiveKit's public clients, served on loopback:

- call: `livekit-client` without a framework
- components: `@livekit/components-react` with its hooks for agents

`scripts/test-e2e.sh` installs the clients. `window.call` and `window.state` are described in the
scripts of the pages."""

import pathlib
from typing import Literal

from ..livekit_server import LiveKitServer
from ..polling import wait_until
from ..receivers import StaticSite
from ..server import ROOT

FOLDER = pathlib.Path(__file__).parent
INSTALLED = ROOT / ".cache" / "livekit-pages"
HTML, SCRIPT = "text/html", "text/javascript"


class LiveKitPages(StaticSite):
    """The web site with the pages."""

    def __init__(self):
        bundle = INSTALLED / "components.js"
        client = INSTALLED / "node_modules/livekit-client/dist/livekit-client.umd.js"
        assert bundle.exists(), f"{bundle} is missing: scripts/test-e2e.sh makes it"
        files = {
            "/call.html": (FOLDER / "call.html", HTML),
            "/call.js": (FOLDER / "call.js", SCRIPT),
            "/livekit-client.umd.js": (client, SCRIPT),
            "/components.html": (FOLDER / "components.html", HTML),
            "/components.js": (bundle, SCRIPT),
        }
        super().__init__({path: (file.read_bytes(), kind) for path, (file, kind) in files.items()})

    def open(self, call, page: Literal["call", "components"] = "call", **options):
        """Opens a page as an instrumented call, whose microphone speaks on command (kit/call.py).
        `call`: the fixture. `options`: of the call."""
        options.setdefault("options", {"face": "#video"})
        return LiveKitPage(call(**options).open(f"{self.url}/{page}.html"))


class LiveKitPage:
    """A page in Chromium. `call` has its microphone and its recordings, and `call.page` is
    Playwright's page."""

    def __init__(self, call):
        self.call, self.page = call, call.page

    def join(self, server: LiveKitServer, token: str, *, microphone: bool = True):
        self.page.evaluate(
            "([url, token, options]) => call.join(url, token, options)",
            [server.url, token, {"microphone": microphone}],
        )
        return self

    def state(self) -> dict:
        return self.page.evaluate("window.state")

    def wait_for(self, condition: str, timeout: float = 60):
        """Waits until a JavaScript expression is true, which may use `state`. Returns its value."""

        def found():
            return self.page.evaluate(condition)

        return wait_until(found, lambda: f"{condition}: {self.state()}", timeout)

    def leave(self):
        self.page.evaluate("call.leave()")
