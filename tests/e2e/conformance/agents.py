"""Agents: create, read, update, list, delete."""

from . import DETAILS, ID, SECRET, TEXT, TIME, UNKNOWN_ID, Chapter, Row, invalid_body

MINIMAL_AGENT = {"agent_name": "Ann", "agent_system_prompt": "Be kind.", "avatars": [{"avatar_key_id": "$face"}]}
AGENT_NOT_FOUND = {"message": "Agent details not found"}
AGENT_UPDATED = {"id": "$agent", "message": "Agent updated successfully"}
EVENTS = [
    "agent.interrupted", "agent.started_speaking", "agent.stopped_speaking", "call_ended", "max_call_duration_timeout",
    "max_call_duration_warning", "participant_left", "tool_call", "utterance_committed", "user.started_speaking", "user.stopped_speaking",
]  # fmt: skip
AGENT_CREATED = {"id": ID, "message": "Agent created successfully", "webhook_secret": SECRET}
AGENT_PATH = "/v1/ext/agent/$agent"


def agent_with_avatar(**fields):
    return {**MINIMAL_AGENT, "avatars": [{"avatar_key_id": "$face", **fields}]}


def agent_without(name):
    return {key: value for key, value in MINIMAL_AGENT.items() if key != name}


def refused_row(says, change, field, reason):
    return Row(says, "POST /v1/ext/agent", change, 400, invalid_body((field, reason)))


AGENT = {
    "id": "$agent",
    "agent_name": "Ann",
    "agent_system_prompt": "Be kind.",
    "avatars": [
        {
            "avatar_key_id": "$face",
            "persona_name": TEXT,
            "config": {
                "llm": {"model": None, "provider": None, "fallback_model": None, "url": None, "token": None},
                "stt": {"model": None, "provider": None, "min_endpointing_delay": 0.4, "max_endpointing_delay": 3.0, "language": None, "fallback_model": None},
                "tts": {"model_id": None, "provider": None, "voice_id": None, "custom_pronunciation": []},
            },
            "welcome_message": {"wait_time": 1, "messages": []},
            "idle_timeout": {"timeout": 30, "filler_phrases": [], "end_after": 3},
            "exit_heads_up_message": {"callout_before": 10, "messages": []},
            "exit_message": {"messages": [], "max_call_duration": None},
            "turn_handling": "balanced",
            "interruptability": "medium",
            "frame_rate": 25,
            "framing": "close",
            "size": None,
        }
    ],
    "callback_events": [],
    "callback_url": "",
    "config": {"timeout": None, "maxCallDuration": None, "conversationalContext": "", "memory": {"isEnabled": False, "instruction": ""}, "error_message": TEXT, "trust_client_context": False, "expressions": True, "recording": {"channels": "mixed", "format": "webm", "notice": True, "message": None, "optional": False}},
    "knowledge_base": None,
    "tool": None,
    "guardrail": None,
    "mcp": None,
    "record": False,
    "is_active": True,
    "type": None,
    "embed": {"enabled": False, "origins": []},
    "webhook_secret": "***",
    "created_at": TIME,
    "updated_at": TIME,
}

FULL_AGENT = {
    **agent_with_avatar(
        persona_name="Ms. A",
        config={
            "llm": {"provider": "some provider", "model": "some model", "fallback_model": "other", "url": "http://127.0.0.1:1/v1", "token": "sesame-1"},
            "stt": {"provider": "p", "model": "m", "language": "en", "fallback_model": "f", "min_endpointing_delay": 0.5, "max_endpointing_delay": 2},
            "tts": {"provider": "p", "model_id": "m", "voice_id": "v", "custom_pronunciation": [{"word": "SQL", "pronunciation": "sequel"}]},
        },
        welcome_message={"wait_time": 2, "messages": ["Hello.", "Hi."]},
        idle_timeout={"timeout": 20, "filler_phrases": ["Still there?"], "end_after": None},
        exit_heads_up_message={"callout_before": 15, "messages": ["Soon over."]},
        exit_message={"messages": ["Bye."], "max_call_duration": 60},
        turn_handling="deliberate",
        interruptability="low",
        frame_rate=20,
        framing="close",
        size="512x512",
    ),
    "callback_events": [*EVENTS, "action_found"],
    "callback_url": "https://hooks.example/x",
    "config": {"timeout": 90, "maxCallDuration": 120, "conversationalContext": "A shop.", "memory": {"isEnabled": True, "instruction": "Recall."}, "error_message": None, "trust_client_context": True, "expressions": False, "recording": {"channels": "split", "format": "mp4", "notice": False, "message": "We record this.", "optional": True}},
    "record": True,
    "is_active": True,
    "type": "support",
    "embed": {"enabled": True, "origins": ["https://shop.example"]},
}


def as_read_back(body):
    """A body as the server returns it."""
    avatar = dict(body["avatars"][0])
    config = {**avatar["config"], "llm": {**avatar["config"]["llm"], "token": "***"}}
    return {**body, "avatars": [{**avatar, "config": config}]}


CREATION = Chapter("agents: making and reading", [
    Row("POST /v1/ext/agent returns an agent id", "POST /v1/ext/agent", MINIMAL_AGENT, 200, AGENT_CREATED, {"agent": "id", "secret": "webhook_secret"}),
    Row("an agent's fields with their defaults", f"GET {AGENT_PATH}", None, 200, AGENT, resource="Agent"),
    Row("every field is kept and returned", "POST /v1/ext/agent", FULL_AGENT, 200, AGENT_CREATED, {"whole": "id"}),
    Row("as it was given, secrets as stars", "GET /v1/ext/agent/$whole", None, 200, as_read_back(FULL_AGENT), forbidden=("sesame-1",)),
    refused_row("agent_name is required", agent_without("agent_name"), "agent_name", "is required"),
    refused_row("agent_system_prompt is required", agent_without("agent_system_prompt"), "agent_system_prompt", "is required"),
    refused_row("avatars is required", agent_without("avatars"), "avatars", "is required"),
    refused_row("at least one avatar", {**MINIMAL_AGENT, "avatars": []}, "avatars", "must contain at least one avatar"),
    refused_row("a wrong type is 400", {**MINIMAL_AGENT, "agent_name": 1}, "agent_name", "must be a string"),
    refused_row("an empty name is no name", {**MINIMAL_AGENT, "agent_name": " "}, "agent_name", "must not be empty"),
    refused_row("an unknown avatar_key_id is 400", {**MINIMAL_AGENT, "avatars": [{"avatar_key_id": "nobody"}]}, "avatars[0].avatar_key_id", "is not an existing avatar"),
    refused_row("framing is close or bust", {**MINIMAL_AGENT, "avatars": [{**MINIMAL_AGENT["avatars"][0], "framing": "wide"}]}, "avatars[0].framing", "must be one of close, bust"),
    refused_row("framing is a string", {**MINIMAL_AGENT, "avatars": [{**MINIMAL_AGENT["avatars"][0], "framing": 1}]}, "avatars[0].framing", "must be a string"),
    refused_row("size is one of three", {**MINIMAL_AGENT, "avatars": [{**MINIMAL_AGENT["avatars"][0], "size": "640x360"}]}, "avatars[0].size", "must be one of 512x512, 1280x720, 720x1280"),
    refused_row("an id with a NUL character is none", {**MINIMAL_AGENT, "guardrail": ["a\0"]}, "guardrail[0]", "must not contain a NUL character"),
    refused_row("a NUL character deep in a message list is refused", {**MINIMAL_AGENT, "avatars": [{**MINIMAL_AGENT["avatars"][0], "welcome_message": {"messages": ["a\0"]}}]}, "avatars[0].welcome_message.messages[0]", "must not contain a NUL character"),
    refused_row("an origin that may frame the agent is an origin", {**MINIMAL_AGENT, "embed": {"enabled": True, "origins": ["https://a.example", "https://a; script-src *"]}}, "embed.origins[1]", "must be an origin such as https://shop.example, or * for any"),
    refused_row("an origin has no path", {**MINIMAL_AGENT, "embed": {"enabled": True, "origins": ["https://shop.example/page"]}}, "embed.origins[0]", "must be an origin such as https://shop.example, or * for any"),
    refused_row("record is a boolean", {**MINIMAL_AGENT, "record": "yes"}, "record", "must be true or false"),
    refused_row("callback_url is a well-formed address", {**MINIMAL_AGENT, "callback_url": "ftp://x"}, "callback_url", "must be a valid http(s) URL"),
    Row("several fields at fault are all named", "POST /v1/ext/agent", {}, 400, invalid_body(("agent_name", "is required"), ("agent_system_prompt", "is required"), ("avatars", "is required"))),
    Row("a body that is not JSON", "POST /v1/ext/agent", None, 400, invalid_body(), raw=b"{"),
    Row("a body that is no object", "POST /v1/ext/agent", [], 400, invalid_body()),
    Row("unknown fields are ignored", "POST /v1/ext/agent", {**MINIMAL_AGENT, "no_such_field": {"x": 1}}, 200, AGENT_CREATED),
    *[
        refused_row(f"attaching an unknown id is 400: {name}", {**MINIMAL_AGENT, name: [UNKNOWN_ID]}, f"{name}[0]", "names nothing")
        for name in ("knowledge_base", "tool", "guardrail", "mcp")
    ],
    refused_row("an attached record is an id or has one", {**MINIMAL_AGENT, "mcp": [1]}, "mcp[0]", "must be an id or an object with an id"),
    *[Row(f"the event name {name} is accepted", "POST /v1/ext/agent", {**MINIMAL_AGENT, "callback_events": [name]}, 200, AGENT_CREATED) for name in [*EVENTS, "recording_ready"]],
    Row("the alias action_found is stored", "POST /v1/ext/agent", {**MINIMAL_AGENT, "callback_events": ["action_found"]}, 200, AGENT_CREATED, {"alias": "id"}),
    Row("and returned", "GET /v1/ext/agent/$alias", None, 200, {"callback_events": ["action_found"]}),
    Row("another event name is 400", "POST /v1/ext/agent", {**MINIMAL_AGENT, "callback_events": ["call_ended", "nothing"]}, 400,
        invalid_body(("callback_events[1]", "must be one of " + ", ".join([*EVENTS, "recording_ready", "action_found"])))),
    refused_row("turn_handling is an enumeration", agent_with_avatar(turn_handling="hasty"), "avatars[0].turn_handling", "must be one of proactive, balanced, deliberate"),
    refused_row("interruptability is an enumeration", agent_with_avatar(interruptability="never"), "avatars[0].interruptability", "must be one of low, medium, high"),
    Row("turn_handling proactive, interruptability high", "POST /v1/ext/agent", agent_with_avatar(turn_handling="proactive", interruptability="high"), 200, AGENT_CREATED),
    refused_row("min above the default max", agent_with_avatar(stt={"min_endpointing_delay": 4}), "avatars[0].stt.max_endpointing_delay", "must not be below min_endpointing_delay"),
    refused_row("max below the default min", agent_with_avatar(stt={"max_endpointing_delay": 0.3}), "avatars[0].stt.max_endpointing_delay", "must not be below min_endpointing_delay"),
    refused_row("max above 10", agent_with_avatar(stt={"max_endpointing_delay": 11}), "avatars[0].stt.max_endpointing_delay", "must be between 0 and 10"),
    refused_row("min below 0", agent_with_avatar(stt={"min_endpointing_delay": -1}), "avatars[0].stt.min_endpointing_delay", "must be between 0 and 10"),
    Row("0 and 10 are within", "POST /v1/ext/agent", agent_with_avatar(stt={"min_endpointing_delay": 0, "max_endpointing_delay": 10}), 200, AGENT_CREATED),
    Row("llm, stt, tts are accepted flat", "POST /v1/ext/agent", agent_with_avatar(llm={"provider": "flat"}, stt={"model": "flat"}, tts={"voice_id": "flat"}), 200, AGENT_CREATED, {"flat": "id"}),
    Row("and returned under config", "GET /v1/ext/agent/$flat", None, 200, {"avatars": [{"config": {"llm": {"provider": "flat"}, "stt": {"model": "flat"}, "tts": {"voice_id": "flat"}}}]}),
    Row("where both stand, config wins", "POST /v1/ext/agent", agent_with_avatar(llm={"provider": "a", "model": "flat"}, config={"llm": {"model": "under"}}), 200, AGENT_CREATED, {"both": "id"}),
    Row("field by field", "GET /v1/ext/agent/$both", None, 200, {"avatars": [{"config": {"llm": {"provider": "a", "model": "under"}}}]}),
    Row("idle_timeout.timeout null is kept: no call-outs", "POST /v1/ext/agent", agent_with_avatar(idle_timeout={"timeout": None, "end_after": None}), 200, AGENT_CREATED, {"idle": "id"}),
    Row("as is end_after null: never", "GET /v1/ext/agent/$idle", None, 200, {"avatars": [{"idle_timeout": {"timeout": None, "end_after": None}}]}),
    Row("keys of config.turn are kept, others ignored", "POST /v1/ext/agent", {**MINIMAL_AGENT, "config": {"turn": {"echo_warmup": 0, "no_such_key": 1}}}, 200, AGENT_CREATED, {"turn": "id"}),
    Row("and returned", "GET /v1/ext/agent/$turn", None, 200, {"config": {"turn": {"echo_warmup": 0}}}, forbidden=("no_such_key",)),
    Row("a value of config.turn out of range is 400", "POST /v1/ext/agent", {**MINIMAL_AGENT, "config": {"turn": {"echo_warmup": -1}}}, 400, {"error": "Invalid request body", "details": DETAILS}),
    refused_row("maxCallDuration is a number of seconds", {**MINIMAL_AGENT, "config": {"maxCallDuration": "5m"}}, "config.maxCallDuration", "must be a number"),
    Row("maxCallDuration 0 is no limit of its own", "POST /v1/ext/agent", {**MINIMAL_AGENT, "config": {"maxCallDuration": 0}}, 200, AGENT_CREATED),
    Row("agent to read does not exist", f"GET /v1/ext/agent/{UNKNOWN_ID}", None, 404, AGENT_NOT_FOUND),
    Row("a path id that is no UUID", "GET /v1/ext/agent/nonsense", None, 404, AGENT_NOT_FOUND),
])

SHORT_BODY = {"name": "N", "system_prompt": "P", "avatar_ids": ["$face"], "callback_url": "http://127.0.0.1:1/", "callback_events": ["call_ended"]}
SHORT_FORM = Chapter("agents: the short form", [
    Row("POST /v1/agent/api", "POST /v1/agent/api", SHORT_BODY, 200, AGENT_CREATED, {"agent": "id"}),
    Row("makes an agent of these fields", f"GET {AGENT_PATH}", None, 200, {
        "agent_name": "N", "agent_system_prompt": "P", "callback_url": "http://127.0.0.1:1/", "callback_events": ["call_ended"], "record": False, "avatars": [{"avatar_key_id": "$face"}]}),
    Row("callback fields may be left out", "POST /v1/agent/api", {"name": "N", "system_prompt": "P", "avatar_ids": ["$face"]}, 200, AGENT_CREATED),
    *[Row(f"{name} is required", "POST /v1/agent/api", {k: v for k, v in SHORT_BODY.items() if k != name}, 400, invalid_body((name, "is required"))) for name in ("name", "system_prompt")],
    Row("avatar_ids holds at least one", "POST /v1/agent/api", {**SHORT_BODY, "avatar_ids": []}, 400, invalid_body(("avatar_ids", "must contain at least one avatar"))),
    Row("avatar_ids is an array of strings", "POST /v1/agent/api", {**SHORT_BODY, "avatar_ids": "$face"}, 400, invalid_body(("avatar_ids", "must be an array of strings"))),
    Row("an unknown avatar is 400", "POST /v1/agent/api", {**SHORT_BODY, "avatar_ids": ["nobody"]}, 400, invalid_body(("avatar_ids[0]", "is not an existing avatar"))),
    Row("a body that is no object", "POST /v1/agent/api", [], 400, invalid_body()),
    Row("unknown event", "POST /v1/agent/api", {**SHORT_BODY, "callback_events": ["x"]}, 400, invalid_body(("callback_events[0]", "must be one of " + ", ".join([*EVENTS, "recording_ready", "action_found"])))),
])

AGENT_WITH_SECRETS = agent_with_avatar(llm={"provider": "custom", "url": "http://127.0.0.1:1/v1", "token": "sesame-2"})
CHANGING = Chapter("agents: changing and deleting", [
    Row("an agent", "POST /v1/ext/agent", {**AGENT_WITH_SECRETS, "type": "a", "record": True}, 200, AGENT_CREATED, {"agent": "id"}),
    Row("PUT is a full replace", f"PUT {AGENT_PATH}", {**AGENT_WITH_SECRETS, "avatars": [{"avatar_key_id": "$face", "llm": {"token": "***"}}], "agent_name": "Bob"}, 200, AGENT_UPDATED),
    Row("what PUT leaves out is the default; *** keeps a secret", f"GET {AGENT_PATH}", None, 200, {"agent_name": "Bob", "type": None, "record": False, "avatars": [{"config": {"llm": {"provider": None, "token": "***"}}}]}, forbidden=("sesame",)),
    Row("PATCH changes what it names", f"PATCH {AGENT_PATH}", {"type": "b", "config": {"timeout": 70}}, 200, AGENT_UPDATED),
    Row("and nothing else", f"GET {AGENT_PATH}", None, 200, {"agent_name": "Bob", "type": "b", "config": {"timeout": 70, "conversationalContext": ""}, "avatars": [{"config": {"llm": {"token": "***"}}}]}),
    Row("null removes (RFC 7396)", f"PATCH {AGENT_PATH}", {"type": None, "config": {"timeout": None}}, 200, AGENT_UPDATED),
    Row("as here", f"GET {AGENT_PATH}", None, 200, {"type": None, "config": {"timeout": None}}),
    Row("a patch that takes what is required", f"PATCH {AGENT_PATH}", {"agent_name": None}, 400, invalid_body(("agent_name", "is required"))),
    Row("a patch that is no object", f"PATCH {AGENT_PATH}", [1], 400, invalid_body()),
    Row("a secret left out is cleared", f"PUT {AGENT_PATH}", MINIMAL_AGENT, 200, AGENT_UPDATED),
    Row("as here", f"GET {AGENT_PATH}", None, 200, {"avatars": [{"config": {"llm": {"token": None}}}]}),
    Row("*** where nothing is stored", f"PUT {AGENT_PATH}", agent_with_avatar(llm={"token": "***"}), 200, AGENT_UPDATED),
    Row("stores nothing", f"GET {AGENT_PATH}", None, 200, {"avatars": [{"config": {"llm": {"token": None}}}]}),
    Row("PUT needs the same fields as POST", f"PUT {AGENT_PATH}", {}, 400, invalid_body(("agent_name", "is required"), ("agent_system_prompt", "is required"), ("avatars", "is required"))),
    Row("an invalid body is reported before a missing record", f"PUT /v1/ext/agent/{UNKNOWN_ID}", {}, 400, invalid_body(("agent_name", "is required"), ("agent_system_prompt", "is required"), ("avatars", "is required"))),
    Row("PUT of none", f"PUT /v1/ext/agent/{UNKNOWN_ID}", MINIMAL_AGENT, 404, AGENT_NOT_FOUND),
    Row("PATCH of none", f"PATCH /v1/ext/agent/{UNKNOWN_ID}", {"agent_name": "x"}, 404, AGENT_NOT_FOUND),
    Row("the webhook secret is renewed", f"POST {AGENT_PATH}/webhook-secret", None, 200, {"id": "$agent", "webhook_secret": SECRET}),
    Row("of none", f"POST /v1/ext/agent/{UNKNOWN_ID}/webhook-secret", None, 404, AGENT_NOT_FOUND),
    Row("a tool", "POST /v1/ext/tool", {"type": "tool.api", "schema": {"name": "t"}, "request_config": {"url": "http://127.0.0.1:1/"}}, 201, {"id": ID}, {"tool": "id"}),
    Row("a guardrail", "POST /v1/ext/guardrail", {"name": "g", "prompt": "p"}, 201, {"id": ID}, {"guardrail": "id"}),
    Row("an MCP configuration", "POST /v1/ext/mcp", {"name": "m", "request_config": {"url": "http://127.0.0.1:1/"}}, 200, {"id": ID}, {"mcp": "id"}),
    Row("a knowledge base", "POST /v1/ext/kb", None, 200, {"id": ID}, {"kb": "id"}, form=[("name", None, "k"), ("description", None, "d"), ("text", None, "The shop opens at nine.")]),
    Row("lists on input: arrays of ids or of {id}", f"PATCH {AGENT_PATH}", {"tool": ["$tool"], "guardrail": [{"id": "$guardrail"}], "mcp": ["$mcp"], "knowledge_base": [{"id": "$kb"}]}, 200, AGENT_UPDATED),
    Row("attached records are returned in full", f"GET {AGENT_PATH}", None, 200, {
        "tool": [{"id": "$tool", "type": "tool.api", "schema": {"name": "t"}}],
        "guardrail": [{"id": "$guardrail", "key": "g", "name": "g", "category": "", "prompt": "p", "response_message": "", "callback_url": "", "created_at": TIME, "updated_at": TIME}],
        "mcp": [{"id": "$mcp", "name": "m"}], "knowledge_base": [{"id": "$kb", "name": "k"}]}),
    Row("deleting what is attached", "DELETE /v1/ext/tool/$tool", None, 200, {"id": "$tool"}),
    Row("deleting what is attached", "DELETE /v1/ext/guardrail/$guardrail", None, 200, {"id": "$guardrail"}),
    Row("deleting what is attached", "DELETE /v1/ext/mcp/$mcp", None, 204),
    Row("deleting what is attached", "DELETE /v1/ext/kb/$kb", None, 200, {"id": "$kb"}),
    Row("GET omits what was deleted", f"GET {AGENT_PATH}", None, 200, {"tool": [], "guardrail": [], "mcp": [], "knowledge_base": []}),
    Row("such an agent can still be changed", f"PATCH {AGENT_PATH}", {"agent_name": "Cid"}, 200, AGENT_UPDATED),
    Row("a conversation of the agent", "POST /v1/ext/conversation", {"agent_id": "$agent"}, 201, {"id": ID}, {"conversation": "id"}),
    Row("another workspace does not see the agent", f"DELETE {AGENT_PATH}", None, 404, AGENT_NOT_FOUND, key="other"),
    Row("DELETE", f"DELETE {AGENT_PATH}", None, 200, {"id": "$agent", "message": "Agent deleted successfully"}),
    Row("is permanent", f"GET {AGENT_PATH}", None, 404, AGENT_NOT_FOUND),
    Row("agent to delete does not exist", f"DELETE {AGENT_PATH}", None, 404, AGENT_NOT_FOUND),
    Row("an id that is no UUID", "DELETE /v1/ext/agent/x", None, 404, AGENT_NOT_FOUND),
    Row("conversations outlive their agent", "GET /v1/ext/conversation/$conversation", None, 200, {"agent_id": "$agent", "agent_name": "Cid"}),
])

TEMPLATE = {
    "template_name": "Seller", "template_system_prompt": "Sell kindly.", "callback_url": "http://127.0.0.1:1/", "guardrail": ["$guardrail"], "tool": ["$tool"], "mcp": ["$mcp"],
    "knowledge_base": ["$kb"], "avatars": [{"llm": {"provider": "custom", "url": "http://127.0.0.1:1/v1", "token": "sesame-3"}, "tts": {"voice_id": "v"}, "welcome_message": {"messages": ["Hi"]}}],
}  # fmt: skip
TEMPLATE_NOT_FOUND = {"message": "Template not found"}
FETCH_FAILED = {"error": "Failed to fetch template/avatar"}
CREATE_FROM_TEMPLATE = "POST /v1/ext/agentbytemplate"
TEMPLATES = Chapter("templates, and agents made of them", [
    Row("a tool", "POST /v1/ext/tool", {"type": "tool.api", "schema": {"name": "t"}, "request_config": {"url": "http://127.0.0.1:1/"}}, 201, {"id": ID}, {"tool": "id"}),
    Row("a guardrail", "POST /v1/ext/guardrail", {"name": "g", "prompt": "p"}, 201, {"id": ID}, {"guardrail": "id"}),
    Row("an MCP configuration", "POST /v1/ext/mcp", {"name": "m", "request_config": {"url": "http://127.0.0.1:1/"}}, 200, {"id": ID}, {"mcp": "id"}),
    Row("a knowledge base", "POST /v1/ext/kb", None, 200, {"id": ID}, {"kb": "id"}, form=[("name", None, "k"), ("description", None, "d"), ("text", None, "The shop opens at nine.")]),
    Row("POST /v1/ext/template", "POST /v1/ext/template", TEMPLATE, 201, {"id": ID, "message": "Template created successfully"}, {"template": "id"}),
    Row("a template's fields are an agent's with template_name, template_system_prompt", "GET /v1/ext/template/$template", None, 200, {
        "id": "$template", "template_name": "Seller", "template_system_prompt": "Sell kindly.", "callback_url": "http://127.0.0.1:1/", "record": False,
        "guardrail": [{"key": "g"}], "tool": [{"id": "$tool"}], "mcp": [{"id": "$mcp"}], "knowledge_base": [{"id": "$kb"}],
        "avatars": [{"config": {"llm": {"token": "***"}}}], "created_at": TIME, "updated_at": TIME}, resource="Template", forbidden=("sesame",)),
    Row("GET /v1/ext/templates", "GET /v1/ext/templates?search=SELL", None, 200, [{"id": "$template"}], response_headers={"x-total-count": "1"}),
    Row("name and prompt are required", "POST /v1/ext/template", {}, 400, invalid_body(("template_name", "is required"), ("template_system_prompt", "is required"))),
    Row("200: the new agent's id and a message", CREATE_FROM_TEMPLATE, {"template_id": "$template", "avatar_key_id": "$face", "email": "a@b.example", "context_override": "Only today."}, 200, AGENT_CREATED, {"agent": "id"}),
    Row("the agent inherits everything attached to the template; the override is appended to the prompt", f"GET {AGENT_PATH}", None, 200, {
        "agent_name": "Seller", "agent_system_prompt": "Sell kindly.\n\nOnly today.", "email": "a@b.example", "callback_url": "http://127.0.0.1:1/",
        "guardrail": [{"key": "g"}], "tool": [{"id": "$tool"}], "mcp": [{"id": "$mcp"}], "knowledge_base": [{"id": "$kb"}],
        "avatars": [{"avatar_key_id": "$face", "config": {"llm": {"provider": "custom", "token": "***"}, "tts": {"voice_id": "v"}}, "welcome_message": {"messages": ["Hi"]}}]}),
    Row("avatar_ids in place of avatar_key_id", CREATE_FROM_TEMPLATE, {"template_id": "$template", "avatar_ids": ["$face"]}, 200, AGENT_CREATED),
    Row("template_id is required", CREATE_FROM_TEMPLATE, {"avatar_key_id": "$face"}, 400, invalid_body(("template_id", "is required"))),
    Row("an avatar is required", CREATE_FROM_TEMPLATE, {"template_id": "$template"}, 400, invalid_body(("avatar_key_id", "is required"))),
    Row("a body at fault", CREATE_FROM_TEMPLATE, [], 400, invalid_body()),
    Row("no template", CREATE_FROM_TEMPLATE, {"template_id": UNKNOWN_ID, "avatar_key_id": "$face"}, 500, FETCH_FAILED),
    Row("no avatar", CREATE_FROM_TEMPLATE, {"template_id": "$template", "avatar_key_id": "nobody"}, 500, FETCH_FAILED),
    Row("another workspace's template", CREATE_FROM_TEMPLATE, {"template_id": "$template", "avatar_key_id": "$face"}, 500, FETCH_FAILED, key="other"),
    Row("PUT", "PUT /v1/ext/template/$template", {"template_name": "New", "template_system_prompt": "y"}, 200, {"id": "$template", "message": "Template details updated successfully"}),
    Row("PUT replaces", "GET /v1/ext/template/$template", None, 200, {"template_name": "New", "guardrail": None, "avatars": [], "callback_url": ""}),
    Row("an agent copied the template when it was made", f"GET {AGENT_PATH}", None, 200, {"agent_name": "Seller", "guardrail": [{"key": "g"}]}),
    Row("PUT of none", f"PUT /v1/ext/template/{UNKNOWN_ID}", {"template_name": "x", "template_system_prompt": "y"}, 404, TEMPLATE_NOT_FOUND),
    Row("another workspace does not see it", "GET /v1/ext/template/$template", None, 404, TEMPLATE_NOT_FOUND, key="other"),
    Row("DELETE", "DELETE /v1/ext/template/$template", None, 200, {"id": "$template", "message": "Template details deleted successfully"}),
    Row("DELETE of none", "DELETE /v1/ext/template/$template", None, 404, TEMPLATE_NOT_FOUND),
    Row("GET of none", "GET /v1/ext/template/$template", None, 404, TEMPLATE_NOT_FOUND),
    Row("an id that is no UUID", "GET /v1/ext/template/x", None, 404, TEMPLATE_NOT_FOUND),
])

LISTS = Chapter("agents: the list", [
    *[Row("an agent for the list", "POST /v1/ext/agent", {**MINIMAL_AGENT, "agent_name": name, "type": kind}, 200, AGENT_CREATED, {f"a{n}": "id"})
      for n, (name, kind) in enumerate([(f"Plain {i}", "x") for i in range(5)] + [("100%_Ädler", "y")] + [(f"Plain {i}", "x") for i in range(5, 11)])],
    Row("200: array of Agent; X-Total-Count carries the total match count", "GET /v1/ext/agent", None, 200, [{"agent_name": f"Plain {i}", "webhook_secret": "***"} for i in (10, 9, 8, 7, 6, 5)] + [{"agent_name": "100%_Ädler"}] + [{"agent_name": f"Plain {i}"} for i in (4, 3, 2)], response_headers={"x-total-count": "12"}),
    Row("offset skips, perpage bounds", "GET /v1/ext/agent?offset=10&perpage=1", None, 200, [{"agent_name": "Plain 1"}], response_headers={"x-total-count": "12"}),
    Row("a larger perpage is clamped to 100", "GET /v1/ext/agent?perpage=100000", None, 200, response_headers={"x-total-count": "12"}),
    Row("an offset beyond the end", "GET /v1/ext/agent?offset=99999999999999999999", None, 200, [], response_headers={"x-total-count": "12"}),
    Row("search by a part of the name, in any case; % and _ are literal", "GET /v1/ext/agent?search=%25_%C3%A4dLER", None, 200, [{"id": "$a5"}], response_headers={"x-total-count": "1"}),
    Row("search by the id", "GET /v1/ext/agent?search=$a3", None, 200, [{"id": "$a3"}]),
    Row("nothing found", "GET /v1/ext/agent?search=nobody", None, 200, [], response_headers={"x-total-count": "0"}),
    Row("type", "GET /v1/ext/agent?type=y", None, 200, [{"id": "$a5"}], response_headers={"x-total-count": "1"}),
    Row("fromDate: created on or after", "GET /v1/ext/agent?fromDate=2999-01-01", None, 200, [], response_headers={"x-total-count": "0"}),
    Row("toDate: created before", "GET /v1/ext/agent?toDate=2999-01-01&perpage=1", None, 200, [{"id": "$a11"}], response_headers={"x-total-count": "12"}),
    Row("toDate excludes its own day", "GET /v1/ext/agent?toDate=$today", None, 200, [], response_headers={"x-total-count": "0"}),
    Row("fromDate includes its own day", "GET /v1/ext/agent?fromDate=$today&perpage=1", None, 200, [{"id": "$a11"}], response_headers={"x-total-count": "12"}),
    Row("another workspace's list is its own", "GET /v1/ext/agent", None, 200, [], key="other", response_headers={"x-total-count": "0"}),
], needs_store=True)

CHAPTERS = [CREATION, SHORT_FORM, CHANGING, TEMPLATES, LISTS]
