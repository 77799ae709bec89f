"""The models of an agent in the console: providers, voices with samples, the test of the chain, the
keys of the workspace, and LLM servers of the server's machine."""

import json
import re

import pytest

from kit.console import FIND_LOW_CONTRAST, FIND_OVERFLOW, FIND_UNNAMED_ELEMENTS, IS_FOCUS_VISIBLE

SECRET = "sk-the-secret-of-this-test"


@pytest.fixture
def server(workspace):
    """The shared server with a new, empty workspace."""
    return workspace


def models_of(server, agent: str) -> dict:
    return server.request("GET", f"/v1/ext/agent/{agent}").json()["avatars"][0]["config"]


def open_section(page, name: str):
    page.locator(f"#{name} > summary").click()


def test_a_voice_is_searched_heard_and_selected(server, console):
    agent = server.create_agent(voice="")["id"]
    console_page = console().login().open(f"agents/{agent}")
    page = console_page.page
    open_section(page, "speech")
    page.get_by_label("TTS provider", exact=True).select_option("flite")
    # With the keyboard alone.
    page.get_by_role("button", name="Choose …").focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name=re.compile("Flite"))
    dialog.get_by_text("5 of 5").wait_for()
    dialog.get_by_label("Search").fill("scot")
    dialog.get_by_text("1 of 1").wait_for()
    with page.expect_response(re.compile("/provider/flite/sample")) as sample:
        dialog.get_by_role("button", name="Play or stop a sample of Man, Scottish English").click()
    assert sample.value.headers["content-type"] == "audio/wav"
    assert json.loads(sample.value.request.post_data)["voice_id"] == "awb"
    dialog.get_by_text("Playing.").wait_for()
    dialog.get_by_label("Language").fill("x y")
    with console_page.expect_status(400):
        dialog.get_by_text("Language must be a BCP 47 tag").wait_for()
    dialog.get_by_label("Language").fill("")
    dialog.get_by_text("1 of 1").wait_for()
    dialog.get_by_role("button", name="Use Man, Scottish English").click()
    page.get_by_text("Voice: Man, Scottish English").wait_for()
    assert page.get_by_label("Voice", exact=True).input_value() == "awb"
    with page.expect_response(re.compile("/provider/flite/sample")):
        page.get_by_role("button", name="Play a sample").click()
    page.click("#save")
    page.get_by_text("Saved.").wait_for()
    assert models_of(server, agent)["tts"]["voice_id"] == "awb"
    unknown = {"text": "Hello.", "voice_id": "nobody"}
    refused = server.request("POST", "/v1/ext/provider/flite/sample", unknown)
    assert refused.status == 400, refused.text
    assert refused.json()["details"][0]["field"] == "voice_id"


def test_fallbacks_are_ordered_and_keep_what_has_no_control(server, console):
    first = {"provider": "openai", "model": "m", "url": "https://own.example/v1"}
    llm = {"provider": "builtin", "fallback": [first, {"provider": "groq"}]}
    agent = server.create_agent(llm=llm)["id"]
    console_page = console().login().open(f"agents/{agent}")
    page = console_page.page
    open_section(page, "mind")
    group = page.get_by_role("group", name="Fallback language models")
    group.get_by_role("button", name="Add a provider").click()
    group.get_by_label("Fallback language models: provider").nth(2).select_option("anthropic")
    group.get_by_label("Fallback language models: Model").nth(2).fill("claude-haiku-4-5")
    # The first one has no such button.
    group.get_by_role("button", name="Move earlier").nth(1).click()
    group.get_by_role("button", name="Remove this provider").nth(2).click()
    page.click("#save")
    page.get_by_text("Saved.").wait_for()
    saved = models_of(server, agent)["llm"]["fallback"]
    assert [entry["provider"] for entry in saved] == ["openai", "anthropic"]
    assert saved[0]["url"] == first["url"] and saved[1]["model"] == "claude-haiku-4-5"


def test_one_button_tests_the_chain_as_it_is_in_the_form(server, console):
    script = {"utterances": [{"transcript": "Hello, can you hear me?", "reply": "Yes, I can."}]}
    scripted = {"provider": "script", "model": json.dumps(script)}
    agent = server.create_agent(llm=scripted)["id"]
    patch = {
        "avatars": [{"config": {"llm": scripted, "stt": scripted, "tts": {"provider": "flite"}}}]
    }
    record = server.request("GET", f"/v1/ext/agent/{agent}").json()
    record["avatars"][0]["config"] |= patch["avatars"][0]["config"]
    assert server.request("PUT", f"/v1/ext/agent/{agent}", record).status == 200
    console_page = console().login().open(f"agents/{agent}")
    page = console_page.page
    open_section(page, "chain")
    page.click("#test-chain")
    page.get_by_text("All three work.").wait_for()
    for step in ("tts", "stt", "llm"):
        assert re.search(r"\d+ ms", page.inner_text(f"[data-step={step}]"))
    assert "“Yes, I can.”" in page.inner_text("[data-step=llm]")
    console_page.save_screenshot("console-chain")
    open_section(page, "mind")
    page.get_by_label("Provider", exact=True).select_option("anthropic")
    page.click("#test-chain")
    page.get_by_text("Failed: Language model.").wait_for()
    text = page.inner_text("[data-step=llm]")
    assert "needs an API key" in text and "anthropic" in text


def test_a_key_of_the_workspace_is_written_and_never_shown(server, console):
    console_page = console().login().open("providers")
    page = console_page.page
    page.get_by_role("button", name="Store a key of ElevenLabs").first.click()
    dialog = page.get_by_role("dialog")
    assert dialog.get_by_label("Vendor").input_value() == "elevenlabs"
    dialog.get_by_label(re.compile("^Key")).fill(SECRET)
    dialog.get_by_label("Address").fill("ftp://x")
    with console_page.expect_status(400):
        dialog.get_by_role("button", name="Store key").click()
        dialog.get_by_text("must be a URL").wait_for()
    dialog.get_by_label("Address").fill("")
    dialog.get_by_role("button", name="Store key").click()
    page.wait_for_selector("li:has-text('ElevenLabs'):has-text('Your key')")
    page.get_by_role("button", name="Replace the key of ElevenLabs").wait_for()
    assert SECRET not in page.content()
    [stored] = server.request("GET", "/v1/ext/credentials").json()
    assert (stored["name"], stored["token"]) == ("elevenlabs", "***")
    page.get_by_role("button", name="Remove the key of ElevenLabs").click()
    page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    page.wait_for_selector("li:has-text('ElevenLabs'):has-text('Needs a key')")
    assert server.request("GET", "/v1/ext/credentials").json() == []


def test_an_llm_server_of_the_machine_is_selected_with_one_action(server, console):
    agent = server.create_agent()["id"]
    console_page = console()
    page = console_page.page
    # The tests' workspace is not the operator's, so the server itself lists none.
    found = [
        {
            "name": "Ollama",
            "provider": "ollama",
            "url": "http://127.0.0.1:11434/v1",
            "models": ["qwen3", "phi4"],
        },
        {"name": "vLLM", "provider": "custom", "url": "http://127.0.0.1:8000/v1", "models": ["m"]},
    ]
    page.route("**/v1/ext/providers/local", lambda route: route.fulfill(json=found))
    console_page.login().open(f"agents/{agent}")
    open_section(page, "mind")
    page.get_by_label("Model of Ollama").select_option("phi4")
    page.get_by_role("button", name="Use Ollama").click()
    page.get_by_text("Ollama is selected.").wait_for()
    page.click("#save")
    page.get_by_text("Saved.").wait_for()
    llm = models_of(server, agent)["llm"]
    assert (llm["provider"], llm["model"], llm["url"]) == ("ollama", "phi4", None)
    page.get_by_role("button", name="Use vLLM").click()
    page.get_by_text("vLLM is selected.").wait_for()
    with page.expect_response(lambda response: response.request.method in ("PUT", "PATCH")):
        page.click("#save")
    llm = models_of(server, agent)["llm"]
    assert (llm["provider"], llm["url"]) == ("custom", "http://127.0.0.1:8000/v1")


@pytest.mark.parametrize(
    "options",
    [{"width": 1280, "scheme": "light"}, {"width": 390, "scheme": "dark"}],
    ids=["desktop-light", "phone-dark"],
)
def test_the_models_are_usable_by_everyone(server, console, options):
    llm = {"provider": "anthropic", "fallback": [{"provider": "openai"}, {"provider": "builtin"}]}
    agent = server.create_agent(llm=llm)["id"]
    console_page = console(**options)
    page = console_page.page
    found = [
        {
            "name": "Ollama",
            "provider": "ollama",
            "url": "http://127.0.0.1:11434/v1",
            "models": ["qwen3"],
        }
    ]
    page.route("**/v1/ext/providers/local", lambda route: route.fulfill(json=found))
    console_page.login().open(f"agents/{agent}")

    def check(name):
        for checks in (FIND_UNNAMED_ELEMENTS, FIND_LOW_CONTRAST, FIND_OVERFLOW):
            assert page.evaluate(checks) == [], name
        console_page.save_screenshot(f"models-{name}-{options['width']}")

    for section in ("speech", "mind", "chain"):
        open_section(page, section)
    page.get_by_role("button", name="Use Ollama").wait_for()
    page.click("#test-chain")
    page.get_by_text("Failed: Language model.").wait_for()
    page.locator("#chain").scroll_into_view_if_needed()
    check("chain")
    page.locator("#mind").scroll_into_view_if_needed()
    check("mind")
    page.locator("#speech").scroll_into_view_if_needed()
    check("speech")
    page.locator("#f-avatars-0-config-tts-voice-id").focus()
    for _ in range(12):
        page.keyboard.press("Tab")
        assert page.evaluate(IS_FOCUS_VISIBLE), page.evaluate("document.activeElement.outerHTML")
    page.get_by_role("button", name="Choose …").click()
    page.get_by_role("dialog").get_by_text("5 of 5").wait_for()
    check("voices")
    page.keyboard.press("Escape")
    console_page.navigate("providers")
    with_leave = page.get_by_role("button", name="Leave")
    if with_leave.is_visible():
        with_leave.click()
    check("providers")
    page.get_by_role("button", name=re.compile("^Store a key$")).click()
    check("key")
