"""The console. A new user creates an agent and talks to it; operators see what happened. Also
keyboard use, texts, and every width."""

import datetime
import re

import pytest

from kit.console import (
    FIND_LOW_CONTRAST,
    FIND_OVERFLOW,
    FIND_UNNAMED_ELEMENTS,
    IS_FOCUS_VISIBLE,
    resize,
)
from kit.polling import wait_until

#: Long enough to be interrupted on a busy machine. It never plays to its end.
HAIRCUT = (
    (
        "A haircut costs thirty dollars, and we wash your hair before we cut it, and afterwards "
        "we dry it"
    )
    + ", and we comb it" * 20
    + "."
)


@pytest.fixture
def server(workspace):
    """The shared server with a new, empty workspace."""
    return workspace


def test_a_wrong_key_shows_an_error_and_a_valid_one_is_remembered(server, console):
    console_page = console()
    page = console_page.page
    page.goto(f"{server.url}/console/agents")
    with console_page.expect_status(401):
        page.fill("#key", "vv_wrong")
        page.press("#key", "Enter")
        page.wait_for_selector("#login-problem:has-text('not a valid API key')")
    assert (
        page.evaluate("document.activeElement.id") == "key"
        and page.get_attribute("#key", "aria-invalid") == "true"
    )
    page.fill("#key", server.key)
    page.click("text=Log in >> nth=-1")
    console_page.wait_until_loaded()
    assert console_page.title() == "Agents"
    page.reload()
    console_page.wait_until_loaded()
    # No script can read the key or the cookie, and neither is stored where a script could read it.
    exposed = page.evaluate(
        "[document.cookie, JSON.stringify(localStorage), JSON.stringify(sessionStorage), "
        "location.href, document.documentElement.outerHTML]"
    )
    assert exposed[0] == "" and not any(server.key in text for text in exposed)
    [cookie] = console_page.context.cookies()
    assert (
        cookie["httpOnly"] and cookie["sameSite"] == "Strict" and server.key not in cookie["value"]
    )
    page.click("text=Log out")
    page.wait_for_selector("#key")
    page.reload()
    page.wait_for_selector("#key")
    assert server.key not in server.log.read_text()


def test_the_session_cookie_alone_grants_no_access(server, console):
    console_page = console().login()
    page = console_page.page
    assert (
        page.evaluate(
            "fetch('/v1/ext/agent', { headers: { 'x-csrf-token': 'guessed' } }).then((answer) => "
            "answer.status)"
        )
        == 401
    )
    assert page.evaluate("fetch('/v1/ext/agent').then((answer) => answer.status)") == 401
    console_page.expected_errors.append("status of 401")
    reply = server.request("GET", "/console", key=None)
    policy = reply.headers["content-security-policy"]
    assert (
        "default-src 'none'" in policy
        and "unsafe" not in policy
        and "frame-ancestors 'none'" in policy
    )


def test_a_new_user_creates_an_agent_and_reads_the_transcript(server, console):
    console_page = console().login()
    page = console_page.page
    page.click("text=New agent")
    page.wait_for_selector("h1:has-text('New agent')")
    page.fill("#f-agent-name", "Ada")
    page.click("text=Shop helper")
    page.fill("#f-facts", "We are open from nine to five. " + HAIRCUT)
    page.click("text=Create agent")
    page.wait_for_selector("text=It is ready.")
    with page.expect_popup() as opened:
        page.click("button:has-text('Talk to')")
    call = opened.value
    # The tab is empty at first, and a click before the page's script has run has no effect.
    call.wait_for_url("**/join/**")
    call.click("#join-typing")
    call.wait_for_selector("#veil.gone", state="attached")
    page.click("text=Watch it here")
    page.wait_for_selector("#main .pill.live")
    page.wait_for_selector(
        ".transcript [data-who=agent]:has-text('What are you looking for today?')"
    )
    call.fill("#text", "How much does a haircut cost?")
    call.press("#text", "Enter")
    page.wait_for_selector(".transcript [data-who=user]:has-text('How much does a haircut cost?')")
    page.wait_for_selector(
        ".transcript [data-who=agent][data-open=true]:has-text('thirty dollars')"
    )
    # Captions follow the voice: some words have been spoken, others are still ahead.
    page.wait_for_selector(".transcript [data-open=true] .spoken + .ahead")
    assert page.inner_text(".agent-state") == "Speaking"
    call.fill("#text", "Stop. When do you open?")
    call.press("#text", "Enter")
    page.wait_for_selector(".transcript [data-who=agent] s.cut")
    page.wait_for_selector(".transcript [data-who=agent]:has-text('nine to five')")
    assert "Ada: " in page.text_content("[role=log]")
    page.fill("[aria-label=Words]", "A message from the house.")
    page.click("text=Send")
    # A complete utterance, so that the end of the call interrupts nothing.
    page.wait_for_selector(
        ".transcript [data-who=agent]:not([data-open=true]):has-text('A message from the house.')"
    )
    page.click("text=End the call")
    page.click("dialog >> text=End the call >> nth=-1")
    call.wait_for_selector("#over-title:has-text('The conversation is over')")
    page.wait_for_selector("#main .pill:has-text('Ended')")
    live = page.evaluate(
        "[...document.querySelectorAll('.transcript li')].map((line) => line.innerText)"
    )
    page.reload()
    page.wait_for_selector(".transcript li")
    assert (
        page.evaluate(
            "[...document.querySelectorAll('.transcript li')].map((line) => line.innerText)"
        )
        == live
    ), "the record reads as the live view did"
    record = server.get_conversation(page.url.split("/")[-1])
    spoken = [
        text.strip()
        for text in page.locator(".transcript [data-who=agent] .spoken").all_inner_texts()
    ]
    assert spoken == [
        line["content"]
        for line in record["transcript"]
        if line["role"] == "assistant" and line["content"]
    ]
    page.click("role=tab[name=Times]")
    page.wait_for_selector(".turns tbody tr >> nth=1")
    assert page.evaluate(
        "[...document.querySelectorAll('.turns .fill')].some((bar) => "
        "bar.getBoundingClientRect().width > 3)"
    )
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".events li:has-text('utterance_committed')")
    assert page.get_attribute("role=tab[name=Events]", "aria-selected") == "true"
    page.click("role=tab[name=Details]")
    page.wait_for_selector(".facts:has-text('Length')")
    call.close()


def create(server, path: str, body: dict) -> str:
    reply = server.request("POST", path, body)
    assert reply.status in (200, 201), reply
    return reply.json()["id"]


def test_each_agent_field_can_be_set_and_other_fields_are_kept(server, console):
    kb = server.create_knowledge_base("The museum opens at ten.")
    tool = create(
        server,
        "/v1/ext/tool",
        {"type": "tool.client", "schema": {"name": "open_map", "description": "Shows the map"}},
    )
    guardrail = create(
        server,
        "/v1/ext/guardrail",
        {
            "name": "No prices",
            "prompt": "The user asks for prices.",
            "response_message": "I cannot say.",
        },
    )
    mcp = create(
        server,
        "/v1/ext/mcp",
        {
            "name": "Tickets",
            "request_config": {
                "url": "https://example.com/mcp",
                "headers": {"authorization": "secret"},
            },
        },
    )
    agent = server.create_agent(
        name="Museum",
        llm={"provider": "custom", "url": "http://127.0.0.1:9/v1", "token": "hidden", "model": "m"},
        config={"turn": {"echo_warmup": 0, "min_interruption_words": 2}},
    )["id"]

    def read():
        return {
            key: value
            for key, value in server.request("GET", f"/v1/ext/agent/{agent}").json().items()
            if key != "updated_at"
        }

    before = read()
    console_page = console().login()
    page = console_page.page
    console_page.open(f"agents/{agent}")
    page.click("text=Save changes")
    page.wait_for_selector(".toast:has-text('Saved')")
    assert read() == before, "saving without a change changes nothing"
    page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
    for label in ("Test knowledge", "open_map", "No prices", "Tickets"):
        page.get_by_label(label, exact=True).check()
    page.get_by_label("call_ended", exact=True).check()
    page.get_by_label("How fast it answers").select_option("deliberate")
    page.get_by_label("Welcome", exact=True).fill("Hello!\nGood day!")
    page.get_by_label("Maximum call duration").fill("120")
    page.get_by_label("May be embedded in web pages").check()
    page.get_by_label("Pages that may embed it").fill("https://shop.example")
    page.get_by_role("button", name="Add a word").click()
    page.keyboard.type("Visavis")
    page.keyboard.press("Tab")
    page.keyboard.type("viz a vee")
    page.get_by_label("Shortest pause that ends a turn").fill("9")
    page.fill("#f-callback-url", "ftp://nowhere")
    with console_page.expect_status(400):
        page.click("text=Save changes")
        page.wait_for_selector("#f-callback-url-fault:has-text('must be a valid http(s) URL')")
    fault = page.inner_text("[id$=max-endpointing-delay-fault]")
    assert "must not be below" in fault, fault
    assert page.get_attribute("#f-callback-url", "aria-invalid") == "true"
    page.fill("#f-callback-url", "https://example.com/hook")
    page.get_by_label("Shortest pause that ends a turn").fill("")
    # A toast disappears by itself after some time.
    page.evaluate("document.querySelectorAll('.toast').forEach((one) => one.remove())")
    page.click("text=Save changes")
    page.wait_for_selector(".toast:has-text('Saved')")
    after = read()
    assert [
        [item["id"] for item in after[list]]
        for list in ("knowledge_base", "tool", "guardrail", "mcp")
    ] == [
        [kb],
        [tool],
        [guardrail],
        [mcp],
    ]
    avatar = after["avatars"][0]
    assert (
        avatar["turn_handling"] == "deliberate"
        and avatar["config"]["stt"]["min_endpointing_delay"] == 0.8
    )
    assert avatar["welcome_message"]["messages"] == ["Hello!", "Good day!"] and avatar["config"][
        "tts"
    ]["custom_pronunciation"] == [{"word": "Visavis", "pronunciation": "viz a vee"}]
    assert (
        avatar["config"]["llm"] == before["avatars"][0]["config"]["llm"]
        and avatar["config"]["llm"]["token"] == "***"
    )
    assert (
        after["config"]["maxCallDuration"] == 120
        and after["config"]["turn"] == before["config"]["turn"]
    )
    assert (
        after["callback_url"] == "https://example.com/hook"
        and after["callback_events"] == ["call_ended"]
        and after["embed"] == {"enabled": True, "origins": ["https://shop.example"]}
    )
    # A wrong click loses no changes.
    page.fill("#f-agent-name", "Another")
    page.click("nav >> text=Tools")
    page.click("dialog >> text=Stay here")
    assert page.input_value("#f-agent-name") == "Another"
    page.click("text=Delete this agent")
    page.click("dialog >> text=Delete >> nth=-1")
    page.wait_for_selector("h1:text-is('Agents')")
    assert server.request("GET", f"/v1/ext/agent/{agent}").status == 404


@pytest.mark.parametrize(
    "kind, path, fill, wrong, check",
    [
        (
            "guardrails",
            "/v1/ext/guardrail",
            {
                "Name": "No advice",
                "Rule": "Asks for advice.",
                "What the agent says then": "I may not.",
            },
            ("Webhook address", "ftp://x", "must be a valid http(s) URL"),
            lambda r: r["key"] == "no_advice" and r["response_message"] == "I may not.",
        ),
        (
            "tools",
            "/v1/ext/tool",
            {
                "Name": "hours",
                "Description": "Opening hours",
                "Address": "https://example.com/{day}",
            },
            ("Name", "two words", "must be at most 64 letters"),
            lambda r: (
                r["schema"]["parameters"]
                == {
                    "type": "object",
                    "properties": {"day": {"type": "string"}},
                    "required": ["day"],
                }
                and r["request_config"]["method"] == "GET"
            ),
        ),
        (
            "mcp",
            "/v1/ext/mcp",
            {"Name": "Shop", "Address": "https://example.com/mcp"},
            ("Address", "nonsense", "must be a valid http(s) URL"),
            lambda r: r["request_config"]["url"] == "https://example.com/mcp",
        ),
    ],
)
def test_resources_of_agents_can_be_created_changed_and_deleted(
    server, console, kind, path, fill, wrong, check
):
    console_page = console(width=390, height=844).login().open(f"{kind}/new")
    page = console_page.page
    for label, text in fill.items():
        page.get_by_label(re.compile(f"^{label}")).first.fill(text)
    if kind == "tools":
        page.click("text=Add a parameter")
        page.get_by_label("Parameter: name").fill("day")
    label, text, sentence = wrong
    field = page.get_by_label(re.compile(f"^{label}")).first
    good = field.input_value()
    field.fill(text)
    with console_page.expect_status(400):
        page.click("button[type=submit]")
        page.wait_for_selector(f".fault:visible:has-text('{sentence}')")
    field.fill(good)
    page.click("button[type=submit]")
    page.wait_for_selector(f".list h2:has-text('{fill['Name']}')")
    [record] = [
        r
        for r in server.request("GET", path).json()
        if (r.get("name") or r["schema"]["name"]) == fill["Name"]
    ]
    assert check(record), record
    page.click(f".list h2 >> text={fill['Name']}")
    page.wait_for_selector("text=Save changes")
    page.get_by_label(re.compile("^(Description|Category)")).first.fill("changed")
    page.click("text=Save changes")
    page.wait_for_selector(".toast:has-text('Saved')")
    changed = server.request("GET", f"{path}/{record['id']}").json()
    assert changed != record and check(changed), changed
    page.click(f".list h2 >> text={fill['Name']}")
    page.click("button:has-text('Delete this')")
    page.click("dialog >> text=Delete >> nth=-1")
    page.wait_for_selector(".toast:has-text('is deleted')")
    assert server.request("GET", f"{path}/{record['id']}").status == 404


def test_the_recording_of_an_agent_is_set_by_keyboard(server, console):
    agent = server.create_agent(name="Museum")["id"]

    def read():
        record = server.request("GET", f"/v1/ext/agent/{agent}").json()
        return record["record"], record["config"]["recording"]

    default = {
        "channels": "mixed",
        "format": "webm",
        "notice": True,
        "message": None,
        "optional": False,
    }
    assert read() == (False, default)
    console_page = console().login()
    page = console_page.page
    console_page.open(f"agents/{agent}")
    page.focus("#recording summary")
    page.keyboard.press("Enter")
    assert not page.get_by_label("Spoken notice").is_visible()
    page.keyboard.press("Tab")
    page.wait_for_selector("#f-record:focus")
    page.keyboard.press("Space")
    labels = []
    for _ in range(5):
        page.keyboard.press("Tab")
        assert page.evaluate(IS_FOCUS_VISIBLE)
        labels.append(page.evaluate("document.activeElement.labels[0].textContent"))
        match labels[-1]:
            case "Callers may turn the recording off":
                page.keyboard.press("Space")
            case "Spoken notice":
                page.keyboard.type("We record this call.")
            case "Sound" | "Format of the file":
                page.keyboard.press("ArrowDown")
    assert labels == [
        "Show callers that the call is recorded",
        "Callers may turn the recording off",
        "Spoken notice",
        "Sound",
        "Format of the file",
    ]
    assert page.evaluate(FIND_UNNAMED_ELEMENTS) == []
    page.click("text=Save changes")
    page.wait_for_selector(".toast:has-text('Saved')")
    changed = {
        "channels": "split",
        "format": "mp4",
        "notice": True,
        "message": "We record this call.",
        "optional": True,
    }
    assert read() == (True, changed)
    # A template has the same fields.
    console_page.open("templates/new")
    page.fill("#f-template-name", "Recorded")
    page.fill("#f-template-system-prompt", "You sell tickets.")
    page.click("#recording summary")
    page.get_by_label("Record its calls").check()
    page.get_by_label("Show callers that the call is recorded").uncheck()
    page.click("text=Create template")
    page.wait_for_selector("h1:text-is('Templates')")
    [template] = server.request("GET", "/v1/ext/templates").json()
    template = server.request("GET", f"/v1/ext/template/{template['id']}").json()
    assert (template["record"], template["config"]["recording"]) == (
        True,
        {**default, "notice": False},
    )


def test_an_agent_is_made_of_a_template(server, console):
    console_page = console().login().open("templates/new")
    page = console_page.page
    page.get_by_label(re.compile("^Name")).first.fill("Guide")
    page.get_by_label(re.compile("^Instructions")).fill("You guide visitors.")
    page.click("text=Create template")
    page.click("text=Create an agent")
    page.get_by_label("Additional instructions").fill("You are in the second room.")
    page.click("dialog >> text=Create agent")
    page.wait_for_selector("text=It is ready.")
    agent = server.request("GET", f"/v1/ext/agent/{page.url.split('/')[-1].split('?')[0]}").json()
    assert (
        "You guide visitors." in agent["agent_system_prompt"]
        and "second room" in agent["agent_system_prompt"]
    )
    assert (
        agent["avatars"][0]["idle_timeout"] == {"timeout": 30, "filler_phrases": [], "end_after": 3}
        and agent["config"]["error_message"]
    )


def test_documents_are_uploaded_with_progress(server, console, tmp_path):
    large = tmp_path / "opening.txt"
    large.write_text("We open at nine.\n" * 16_000)
    wrong = tmp_path / "picture.exe"
    wrong.write_text("no document")
    console_page = console().login().open("knowledge/new")
    page = console_page.page
    page.get_by_label(re.compile("^Name")).fill("House")
    page.get_by_label(re.compile("^What it is about")).fill("The house")
    page.click("text=Create and add documents")
    page.wait_for_selector("h1:has-text('House')")
    network = console_page.context.new_cdp_session(page)
    network.send("Network.enable")
    pace = {"offline": False, "latency": 0, "downloadThroughput": -1}
    network.send("Network.emulateNetworkConditions", {**pace, "uploadThroughput": 20_000})
    page.set_input_files("#files", [large])
    console_page.wait_for(
        "[document.querySelector('.uploads progress')].some((bar) => bar && bar.value > 0 && "
        "bar.value < 1)"
    )
    assert re.match(r"\d+ % of 266 KB", page.inner_text(".uploads .soft"))
    network.send("Network.emulateNetworkConditions", {**pace, "uploadThroughput": -1})
    page.wait_for_selector(".documents li:has-text('opening.txt'):has-text('Ready')")
    with console_page.expect_status(400):
        page.set_input_files("#files", [wrong])
        page.wait_for_selector(".uploads .fault:has-text('must be a file of type pdf')")
    page.click("text=Or paste text")
    page.get_by_label(re.compile("^Text")).fill("The door is green.")
    page.click("text=Add text")
    page.wait_for_selector(".documents li >> nth=1")
    page.click("[aria-label='Delete opening.txt']")
    page.click("dialog >> text=Delete >> nth=-1")
    page.wait_for_selector("text=1 document")


def test_a_dead_letter_is_sent_again(server, console, webhooks):
    # A receiver that answers 410 gets nothing more. What it rejected is a dead letter at once.
    webhooks.reject_count, webhooks.reject_status = 1, 410
    agent = server.create_agent(name="Hooked", hooks=webhooks, events=["call_ended"])
    conversation = server.create_conversation(agent["id"])["id"]
    assert server.request("DELETE", f"/v1/conversation/{conversation}").status == 200

    def log(what):
        return lambda: f"{what}\n{server.log_tail()}"

    wait_until(lambda: server.request("GET", "/v1/ext/deadletters").json(), log("the dead letter"))
    console_page = console().login().open("webhooks")
    page = console_page.page
    page.click(".deliveries summary")
    page.wait_for_selector(".tries td:has-text('410')")
    page.click("text=Send again")
    page.wait_for_selector("text=No dead letters")
    webhooks.wait_until(lambda: webhooks.events, 60, "the webhook")

    # The receiver may have a delivery before the page lists it, and the page loads its list once.
    def deliveries():
        return server.request("GET", f"/v1/ext/conversation/{conversation}/deliveries").json()

    wait_until(lambda: deliveries()[0]["state"] == "done", log("the delivery"))
    page.click(".list a:has-text('Hooked')")
    page.wait_for_selector(".deliveries li[data-state=done]:has-text('call_ended')")
    assert webhooks.errors == []


def test_conversations_are_filtered_by_all_that_the_api_has(server, console):
    plain, typed = (
        server.create_agent(name="Plain"),
        server.create_agent(name="Typed", extra={"type": "support"}),
    )
    for n in range(21):
        server.create_conversation(plain["id"], user_name=f"Visitor {n:02}")
    ended = server.create_conversation(typed["id"], user_name="Maria <b>Rossi</b>")["id"]
    assert server.request("DELETE", f"/v1/conversation/{ended}").status == 200
    console_page = console().login().open("conversations?search=visitor")
    page = console_page.page
    rows = page.locator("tbody tr")
    assert rows.count() == 20 and page.inner_text(".pager p") == "1–20 of 21"
    page.click("text=Older")
    page.wait_for_selector(".pager p:has-text('21–21 of 21')")
    page.fill("#by-search", "Rossi")
    page.press("#by-search", "Enter")
    page.wait_for_selector("tbody tr:has-text('Maria <b>Rossi</b>')")
    assert rows.count() == 1 and page.locator("tbody b").count() == 0
    page.goto(f"{server.url}/console/conversations")
    console_page.wait_until_loaded()
    page.fill("#by-type", "support")
    page.click("text=Filter")
    console_page.wait_for("document.querySelectorAll('tbody tr').length === 1")
    today = datetime.datetime.now(datetime.UTC).date()
    page.fill("#by-from", str(today - datetime.timedelta(days=1)))
    page.fill("#by-to", str(today))
    page.click("text=Filter")
    page.wait_for_url("**to=*")
    console_page.wait_until_loaded()
    assert rows.count() == 1, "a day that is named last counts whole"
    page.fill("#by-to", str(today - datetime.timedelta(days=1)))
    page.click("text=Filter")
    page.wait_for_selector("text=Nothing matches")
    page.click("text=Show all")
    page.wait_for_selector("tbody tr >> nth=19")
    page.click(".chip:has-text('Ended')")
    page.wait_for_selector("tr:has-text('Ended by the API')")
    page.wait_for_selector("tbody tr:has-text('Not joined yet')", state="detached")


def test_a_key_is_shown_once_and_revoking_the_own_one_logs_out(server, console):
    console_page = console().login().open("keys")
    page = console_page.page
    page.click("text=New key")
    page.get_by_label(re.compile("^Name")).fill("Website")
    page.click("text=Create key")
    key = page.text_content("dialog code")
    page.click("text=Done")
    page.wait_for_selector("tr:has-text('Website')")
    assert key.startswith("vv_") and key not in page.content()
    page.click("text=Log out")
    page.wait_for_selector("#key")
    console_page.login(key).open("keys")
    page.click("tr:has-text('Current key') >> text=Revoke")
    with console_page.expect_status(401):
        page.click("dialog >> text=Revoke >> nth=-1")
        page.wait_for_selector("#login-problem:has-text('Your session has ended')")


def test_avatars_and_providers_show_their_state(server, console):
    console_page = console().login().open("avatars")
    page = console_page.page
    console_page.wait_for(
        "((all) => all.length && all.every((picture) => picture.naturalWidth > "
        "100))([...document.querySelectorAll('.tile img')])"
    )
    failed = {
        "id": "0",
        "avatar_name": "Me",
        "gender": "female",
        "status": "FAILED",
        "progress": 0,
        "error": "the avatar could not be drawn",
    }
    page.route(
        "**/v2/custom-avatars?*",
        lambda route: route.fulfill(json=[failed], headers={"x-total-count": "1"}),
    )
    console_page.open("avatars")
    page.wait_for_selector(
        ".list li:has-text('Me'):has-text('Failed'):has-text('The avatar could not be drawn.')"
    )
    console_page.open("providers")
    page.wait_for_selector("li:has-text('Moonshine'):has-text('Ready')")
    page.wait_for_selector("li:has-text('OpenAI'):has-text('Needs a key')")
    page.wait_for_selector(".pill:has-text('Accepts calls')")


def test_an_agent_is_made_with_the_keyboard_alone(server, console):
    console_page = console()
    page = console_page.page
    page.goto(f"{server.url}/console")
    page.wait_for_selector("#key:focus")
    page.keyboard.type(server.key)
    page.keyboard.press("Enter")
    console_page.wait_until_loaded()

    def tab_to(script: str, max_tabs: int = 60):
        """Presses Tab until the wanted element has the focus. At each stop the focus must be
        visible."""
        for _ in range(max_tabs):
            page.keyboard.press("Tab")
            assert page.evaluate(IS_FOCUS_VISIBLE), page.evaluate(
                "document.activeElement.outerHTML"
            )
            if page.evaluate(f"((node) => {script})(document.activeElement)"):
                return
        raise AssertionError(f"no way by Tab to {script}")

    page.reload()
    console_page.wait_until_loaded()
    tab_to("node.id === 'skip'", 3)
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    tab_to("node.textContent === 'New agent'")
    page.keyboard.press("Enter")
    page.wait_for_selector("h1:focus")
    tab_to("node.id === 'f-agent-name'")
    page.keyboard.type("Keyboard")
    tab_to("node.textContent === 'Receptionist'")
    page.keyboard.press("Enter")
    page.wait_for_selector("#f-agent-system-prompt:focus")
    tab_to("node.textContent === 'Create agent'")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=It is ready.")
    assert console_page.title() == "Keyboard"
    page.wait_for_selector("h1:focus")
    tab_to("node.tagName === 'SUMMARY'")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.parentElement.open")
    tab_to("node.textContent === 'Delete this agent'")
    page.keyboard.press("Enter")
    page.wait_for_selector("dialog[open]")
    page.keyboard.press("Escape")
    console_page.wait_for("document.activeElement.textContent === 'Delete this agent'")


def test_each_console_page_is_accessible(server, console):
    """With everything unfolded, in both colour schemes, at the widths of phones, tablets and
    desktops."""
    agent = server.create_agent(
        name=(
            "A rather long name of an agent, with a Donaudampfschifffahrtsgesellschaftskapitän in "
            "it"
        ),
        extra={"embed": {"enabled": True, "origins": []}},
    )["id"]
    tool = create(
        server,
        "/v1/ext/tool",
        {
            "type": "tool.api",
            "schema": {
                "name": "a" * 60,
                "description": "x" * 200,
                "parameters": {"properties": {"day": {"type": "string"}}, "required": ["day"]},
            },
            "request_config": {
                "url": "https://example.com/" + "y" * 150,
                "headers": {"authorization": "z"},
            },
        },
    )
    kb = server.create_knowledge_base("The museum opens at ten.")
    conversation = server.create_conversation(
        agent, user_name="Somebody", context={"a": "b" * 300}
    )["id"]
    console_page = console()
    page = console_page.page
    page.goto(f"{server.url}/console")
    page.wait_for_selector("#key")
    wrong = {}

    def used(route):
        """Keys that were used and that expire, as most keys. The server records a use once a
        minute."""
        answer = route.fetch()
        now = datetime.datetime.now(datetime.UTC).isoformat()
        route.fulfill(
            response=answer,
            json=[{**key, "last_used_at": now, "expires_at": now} for key in answer.json()],
        )

    page.route("**/v1/ext/apikey?*", used)

    def check(what):
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
        if found := page.evaluate(FIND_UNNAMED_ELEMENTS):
            wrong[what] = found
        for scheme in ("dark", "light"):
            page.emulate_media(
                color_scheme=scheme, reduced_motion="reduce"
            )  # a colour in transition is none
            if found := page.evaluate(FIND_LOW_CONTRAST):
                wrong[f"{what} in {scheme}"] = found
        for width in (320, 360, 768, 1440):
            resize(page, width)
            if found := page.evaluate(FIND_OVERFLOW):
                wrong[f"{what} at {width}"] = found
                console_page.save_screenshot(
                    f"outside-{what}-{width}".replace("/", "-").replace("?", "-")
                )

    check("login")
    console_page.login()
    for path in (
        "agents",
        "agents/new",
        f"agents/{agent}",
        "templates",
        "templates/new",
        "avatars",
        "knowledge",
        "knowledge/new",
        f"knowledge/{kb}",
        "tools",
        f"tools/{tool}",
        "guardrails/new",
        "mcp/new",
        "conversations",
        "videos",
        "videos/new",
        f"conversations/{conversation}",
        f"conversations/{conversation}?tab=events",
        f"conversations/{conversation}?tab=about",
        "webhooks",
        "providers",
        "keys",
        "nothing",
    ):
        console_page.navigate(path)
        check(path)
    assert not wrong, "\n".join(f"{what}: {found}" for what, found in wrong.items())
