"""The console in a headless Chromium, and checks of what keyboard and screen-reader users need."""

import contextlib

from playwright.sync_api import Page

from .server import OUT

#: Reports what the page's policy blocked. Ordinary listeners do not see it.
REPORT_CSP_VIOLATIONS = (
    "document.addEventListener('securitypolicyviolation', (event) => console.error('policy: ' + "
    "event.violatedDirective + ' ' + event.blockedURI));"
)

#: Checks names, labels, headings and ids, as a screen reader needs them.
FIND_UNNAMED_ELEMENTS = """() => {
  const found = [];
  const seen = (node) => node.checkVisibility({ visibilityProperty: true });
  const textOf = (id) => document.getElementById(id)?.textContent ?? '';
  const name = (node) => node.ariaLabel
    || [...(node.labels ?? [])].map((label) => label.textContent).join('').trim()
    || (node.getAttribute('aria-labelledby') ?? '').split(' ').map(textOf).join('').trim()
    || (/^(BUTTON|A|SUMMARY)$/.test(node.tagName) ? node.textContent.trim() : '');
  const named = 'button, a[href], input, select, textarea, progress, audio, [role=tabpanel], nav, '
    + 'dialog[open]';
  for (const node of document.querySelectorAll(named))
    if (seen(node) && !name(node) && node.tagName !== 'AUDIO')
      found.push('no name: ' + node.outerHTML.slice(0, 160));
  for (const node of document.querySelectorAll('img'))
    if (!node.hasAttribute('alt')) found.push('no alt: ' + node.outerHTML.slice(0, 100));
  const ids = [...document.querySelectorAll('[id]')].map((node) => node.id);
  for (const id of new Set(ids.filter((id, i) => ids.indexOf(id) !== i)))
    found.push('id twice: ' + id);
  const referring = '[aria-describedby], [aria-labelledby], [aria-controls], label[for]';
  for (const node of document.querySelectorAll(referring))
    for (const attribute of ['aria-labelledby', 'aria-controls', 'for'])
      for (const id of (node.getAttribute(attribute) ?? '').split(' ').filter(Boolean))
        if (!document.getElementById(id)) found.push(attribute + ' leads nowhere: ' + id);
  if ([...document.querySelectorAll('h1')].filter(seen).length !== 1) found.push('not one h1');
  if (document.documentElement.lang !== 'en' || !document.title) found.push('no language or title');
  return found;
}"""

#: Finds text with too little contrast (WCAG: 4.5, large text 3). The background is that of the
#: nearest ancestor that has one.
FIND_LOW_CONTRAST = """async () => {
  // Colors that change with the scheme are there once nothing is under way any more.
  const runs = (one) => one instanceof CSSTransition && one.playState === 'running';
  for (let frames = 0; frames < 2 || document.getAnimations().some(runs); frames++)
    await new Promise(requestAnimationFrame);
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const known = new Map();
  const paint = (...colours) => {
    const key = colours.join();
    if (!known.has(key)) {
      canvas.clearRect(0, 0, 1, 1);
      for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
      known.set(key, [...canvas.getImageData(0, 0, 1, 1).data]);
    }
    return known.get(key);
  };
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => [r, g, b].map((v) => linear(v / 255))
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const contrast = (under, colour) => {
    const [a, b] = [light(paint(...under, colour)), light(paint(...under))].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const clear = (colour) => paint(colour)[3] < 255;
  const ground = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) {
      const colour = getComputedStyle(at).backgroundColor;
      layers.unshift(colour);
      if (!clear(colour)) break;
    }
    return ['white', ...layers];
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let checked = 0;
  for (let text = walker.nextNode(); text; text = walker.nextNode()) {
    const node = text.parentElement;
    if (!text.textContent.trim() || !node.checkVisibility({ visibilityProperty: true })) continue;
    if (node.closest(':disabled, option, .visually-hidden, noscript, script, style')) continue;
    const style = getComputedStyle(node);
    const ratio = contrast(ground(node), style.color);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    checked += 1;
    const start = text.textContent.trim().slice(0, 50);
    if (ratio < least) found.push(`${ratio.toFixed(2)}: ${start} (${node.className})`);
  }
  for (const node of document.querySelectorAll('input[placeholder], textarea[placeholder]')) {
    if (!node.checkVisibility()) continue;
    const ratio = contrast(ground(node), getComputedStyle(node, '::placeholder').color);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)}: placeholder ${node.placeholder}`);
  }
  if (checked < 5) found.push(`only ${checked} texts were seen`);
  return [...new Set(found)];
}"""

#: Finds elements outside of the window.
FIND_OVERFLOW = """() => {
  const width = document.documentElement.scrollWidth;
  if (width <= innerWidth) return [];
  const overflows = (node) => node.checkVisibility()
    && node.getBoundingClientRect().right > innerWidth + 1;
  const nodes = [...document.querySelectorAll('body *')].filter(overflows).slice(0, 3);
  return [`the page is ${width} wide`, ...nodes.map((node) => node.outerHTML.slice(0, 120))];
}"""

#: Whether the focused element shows its focus: by an outline of its own, or by one of its visible
#: stand-in.
IS_FOCUS_VISIBLE = """() => {
  const node = document.activeElement;
  if (!node || node === document.body) return true;
  const outlined = (style) => style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2;
  return outlined(getComputedStyle(node)) || outlined(getComputedStyle(node, '::after'))
    || [node.closest('.choice'), node.closest('.drop')].some(
      (around) => around && outlined(getComputedStyle(around)));
}"""


def resize(page: Page, width: int, height: int = 800):
    """Sets the size of the window and waits until the page is laid out for it.

    Media queries follow a new size with the next frame: what is measured before belongs to the
    old size.
    """
    page.set_viewport_size({"width": width, "height": height})
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


class Console:
    """One browser profile with the console in it. Every error that the browser logs fails the test,
    except for the error responses that the test provokes."""

    def __init__(self, browser, server, *, width=1280, height=800, scheme="light"):
        self.server = server
        self.context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme
        )
        self.context.add_init_script(REPORT_CSP_VIOLATIONS)
        self.browser_errors: list[str] = []
        self.expected_errors: list[str] = []
        self.context.on("page", self._listen)
        self.page: Page = self.context.new_page()

    def _listen(self, page):
        page.set_default_timeout(60_000)
        page.on(
            "console",
            lambda message: message.type == "error" and self.browser_errors.append(message.text),
        )
        page.on("pageerror", lambda error: self.browser_errors.append(str(error)))

    def login(self, key: str | None = None):
        self.page.goto(f"{self.server.url}/console")
        self.page.fill("#key", key or self.server.key)
        self.page.press("#key", "Enter")
        self.wait_until_loaded()
        return self

    def open(self, path: str):
        self.page.goto(f"{self.server.url}/console/{path}")
        return self.wait_until_loaded()

    def navigate(self, path: str):
        """Like `open`, but without reloading the page."""
        self.page.evaluate(
            (
                "(path) => { history.pushState(null, '', path); dispatchEvent(new "
                "PopStateEvent('popstate')); }"
            ),
            f"/console/{path}",
        )
        return self.wait_until_loaded()

    def wait_until_loaded(self):
        """Waits until the view is loaded."""
        self.page.wait_for_selector("#main:not([aria-busy]) h1")
        return self

    def wait_for(self, condition: str, timeout: float = 60):
        """Waits for a condition in JavaScript. Playwright's own wait needs `eval`, which the page's
        policy forbids."""
        self.page.evaluate(f"""new Promise((done, fail) => {{
          const end = performance.now() + {timeout * 1000};
          const look = () => {{
            if ({condition}) done();
            else if (performance.now() > end) fail(new Error('timed out'));
            else requestAnimationFrame(look);
          }};
          look(); }})""")

    def title(self) -> str:
        return self.page.inner_text("#main h1")

    @contextlib.contextmanager
    def expect_status(self, status: int):
        """Inside this context the server may answer with this error status. The browser logs such
        answers."""
        self.expected_errors.append(f"status of {status}")
        yield

    def unexpected_errors(self) -> list[str]:
        return [
            text
            for text in self.browser_errors
            if not any(known in text for known in self.expected_errors)
        ]

    def save_screenshot(self, name: str):
        OUT.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=str(OUT / f"{name}.png"))

    def captions(self):
        return []

    def close(self):
        self.context.close()
