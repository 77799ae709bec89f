"""What holds for every route: lists, the order of errors, failures of the store, pages, limits,
CORS."""

from . import ID, TEXT, UNAUTHORIZED, UNKNOWN_ID, Chapter, Contains, Row, invalid_body

MINIMAL_AGENT = {"agent_name": "Ann", "agent_system_prompt": "Be kind.", "avatars": [{"avatar_key_id": "$face"}]}
PAGED_LISTS = ["/v1/ext/agent", "/v1/ext/templates", "/v1/ext/kbs", "/v2/custom-avatars", "/v1/ext/conversation", "/v1/ext/videos", "/v1/ext/deadletters", "/v1/ext/apikey"]
UNPAGED_LISTS = ["/v1/ext/guardrail", "/v1/ext/tool", "/v1/ext/mcp", "/v1/ext/avatars", "/v1/ext/providers"]
TOTAL_COUNT_HEADER = {"x-total-count": Contains("")}


def list_rows(path):
    return [
        Row(f"X-Total-Count on every list: {path}", f"GET {path}", response_headers=TOTAL_COUNT_HEADER),
        Row("perpage < 1 is 400", f"GET {path}?perpage=0", None, 400, invalid_body(("perpage", "must be a whole number of at least 1"))),
        Row("perpage that is text is 400", f"GET {path}?perpage=ten", None, 400, invalid_body(("perpage", "must be a whole number of at least 1"))),
        Row("offset < 0 is 400", f"GET {path}?offset=-1", None, 400, invalid_body(("offset", "must be a whole number of at least 0"))),
        Row("offset that is text is 400", f"GET {path}?offset=x", None, 400, invalid_body(("offset", "must be a whole number of at least 0"))),
        Row("fromDate is YYYY-MM-DD", f"GET {path}?fromDate=21.11.2026", None, 400, invalid_body(("fromDate", "must be a date, YYYY-MM-DD"))),
        Row("toDate is a day that exists", f"GET {path}?toDate=2026-02-30", None, 400, invalid_body(("toDate", "must be a date, YYYY-MM-DD"))),
        Row("several faults are all named", f"GET {path}?perpage=0&offset=-1", None, 400, invalid_body(("perpage", "must be a whole number of at least 1"), ("offset", "must be a whole number of at least 0"))),
        Row("an offset beyond the end is empty", f"GET {path}?offset=1000000", None, 200, [], response_headers=TOTAL_COUNT_HEADER),
        Row("what nothing matches is empty", f"GET {path}?search=%25no_such_thing%25", None, 200, [], response_headers={"x-total-count": "0"}),
        Row("a NUL character matches nothing that can be stored", f"GET {path}?search=%00", None, 400, invalid_body(("search", "must not contain a NUL character"))),
        Row("a search has at most 200 characters", f"GET {path}?search={'x' * 201}", None, 400, invalid_body(("search", "must be at most 200 characters"))),
    ]


LISTS = Chapter("lists", [row for path in PAGED_LISTS + UNPAGED_LISTS for row in list_rows(path)], needs_store=True)

OVERSIZED_BODY = b'{"agent_name":"' + b"x" * (2 << 20) + b'"}'
ERROR_ORDER = Chapter("the order of faults", [
    Row("an unknown path", "GET /no/such/path", None, 404, {"error": "Not found"}),
    Row("comes before the key", "GET /v1/ext/nothing", None, 404, {"error": "Not found"}, key=None),
    Row("a wrong method is 405 with Allow", "PUT /v1/ext/agent", None, 405, {"error": "Method not allowed"}, response_headers={"allow": Contains("POST")}),
    Row("before the key", "DELETE /v1/ext/agent", None, 405, {"error": "Method not allowed"}, key=None),
    Row("no key", "GET /v1/ext/agent", None, 401, UNAUTHORIZED, key=None),
    Row("an invalid key", "GET /v1/ext/agent", None, 401, UNAUTHORIZED, key="nonsense"),
    Row("before the size", "POST /v1/ext/agent", None, 401, UNAUTHORIZED, key=None, raw=OVERSIZED_BODY),
    Row("a JSON body over 2 MB is 413", "POST /v1/ext/agent", None, 413, {"error": "Request body is too large"}, raw=OVERSIZED_BODY),
    Row("before the media type", "POST /v1/ext/agent", None, 413, {"error": "Request body is too large"}, raw=OVERSIZED_BODY, headers={"content-type": "text/plain"}),
    Row("another media type is 415", "POST /v1/ext/agent", None, 415, {"error": "Content-Type must be application/json"}, raw=b"{}", headers={"content-type": "text/plain"}),
    Row("before the body", "POST /v1/ext/agent", None, 415, {"error": "Content-Type must be application/json"}, raw=b"{", headers={"content-type": "text/plain"}),
    Row("none given counts as JSON", "POST /v1/ext/guardrail", None, 201, {"id": ID}, raw=b'{"name":"n","prompt":"p"}', headers={"content-type": None}),
    Row("the body", "POST /v1/ext/agent", None, 400, invalid_body(), raw=b"{"),
    Row("before the resource", f"PUT /v1/ext/guardrail/{UNKNOWN_ID}", {}, 400, {"error": "name is required"}),
    Row("the resource", f"PUT /v1/ext/guardrail/{UNKNOWN_ID}", {"name": "n", "prompt": "p"}, 404, {"message": "Guardrail not found"}),
    Row("an id that is no text is no UUID", "GET /v1/ext/agent/%FF", None, 404, {"message": "Agent details not found"}),
    Row("a body in an encoding that is not UTF-8", "POST /v1/ext/guardrail", None, 400, invalid_body(), raw=b'{"name":"\xff","prompt":"p"}'),
    Row("a body nested too deep", "POST /v1/ext/guardrail", None, 400, invalid_body(), raw=b"[" * 100_000),
    Row("an empty body", "POST /v1/ext/guardrail", None, 400, invalid_body(), raw=b""),
    Row("a NUL character is refused on every store", "POST /v1/ext/guardrail", {"name": "a\0b", "prompt": "p"}, 400, invalid_body(("name", "must not contain a NUL character"))),
])


def table_missing(table):
    return {"sql": (f"ALTER TABLE {table} RENAME TO {table}_away",), "undo": (f"ALTER TABLE {table}_away RENAME TO {table}",)}


FAILURES = Chapter("the store fails", [
    Row("an agent", "POST /v1/ext/agent", MINIMAL_AGENT, 200, {"id": ID}, {"agent": "id"}),
    Row("a template", "POST /v1/ext/template", {"template_name": "t", "template_system_prompt": "p"}, 201, {"id": ID}, {"template": "id"}),
    Row("an MCP configuration", "POST /v1/ext/mcp", {"name": "m", "request_config": {"url": "http://127.0.0.1:1/"}}, 200, {"id": ID}, {"mcp": "id"}),
    Row("a knowledge base", "POST /v1/ext/kb", None, 200, {"id": ID}, {"kb": "id"}, form=[("name", None, "k"), ("description", None, "d"), ("text", None, "x")]),
    Row("a conversation", "POST /v1/ext/conversation", {"agent_id": "$agent"}, 201, {"id": ID}, {"c": "id"}),
    Row("Agent list read fails", "GET /v1/ext/agent", None, 500, {"error": "Failed to retrieve agent details"}, **table_missing("agent")),
    Row("so does the single one", "GET /v1/ext/agent/$agent", None, 500, {"error": "Failed to retrieve agent details"}, **table_missing("agent")),
    Row("Agent delete fails", "DELETE /v1/ext/agent/$agent", None, 500, {"error": "Failed to delete agent"}, **table_missing("agent")),
    Row("the agent is still there", "GET /v1/ext/agent/$agent", None, 200, {"id": "$agent"}),
    Row("Template cannot be fetched", "POST /v1/ext/agentbytemplate", {"template_id": "$template", "avatar_key_id": "$face"}, 500, {"error": "Failed to fetch template/avatar"}, **table_missing("template")),
    Row("Conversation list read fails", "GET /v1/ext/conversation", None, 500, {"error": "Failed to retrieve conversation details"}, **table_missing("conversation")),
    Row("so does the single one", "GET /v1/ext/conversation/$c", None, 500, {"error": "Failed to retrieve conversation details"}, **table_missing("conversation")),
    Row("MCP list read fails", "GET /v1/ext/mcp", None, 500, {"error": "Failed to retrieve MCP details"}, **table_missing("mcp")),
    Row("MCP read fails", "GET /v1/ext/mcp/$mcp", None, 500, {"error": "Failed to retrieve MCP details"}, **table_missing("mcp")),
    Row("Knowledge base read fails", "DELETE /v1/ext/kb/$kb", None, 500, {"error": "Failed to retrieve knowledge base"}, **table_missing("kb")),
    Row("errors of tools are { error }", "GET /v1/ext/tool", None, 500, {"error": "Internal server error"}, **table_missing("tool")),
    Row("keys cannot be looked up", "GET /v1/ext/agent", None, 500, {"error": "Failed to retrieve agent details"}, **table_missing("api_key")),
    Row("everything is still there", "GET /v1/ext/kb/$kb", None, 200, {"knowledge_base": {"id": "$kb"}}),
], needs_store=True)

EMBEDDABLE_AGENT = {**MINIMAL_AGENT, "embed": {"enabled": True, "origins": ["https://shop.example"]}}
BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}
HTML = {"content-type": Contains("text/html")}
SECURITY_HEADERS = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer", "content-security-policy": Contains("default-src 'none'")}
PAGES = Chapter("pages and what needs no key", [
    *[Row(f"{path} needs no API key", f"GET {path}", None, 200, key=None, response_headers={**HTML, **SECURITY_HEADERS}) for path in ("/", "/docs", f"/join/{UNKNOWN_ID}")],
    Row("/openapi.json", "GET /openapi.json", None, 200, {"openapi": "3.1.0"}, key=None, response_headers=SECURITY_HEADERS),
    Row("/healthz", "GET /healthz", None, 200, {"status": "ok"}, key=None, response_headers=SECURITY_HEADERS),
    Row("/readyz", "GET /readyz", None, 200, {"status": "ready"}, key=None, retry=True),
    Row("/metrics answers loopback peers", "GET /metrics", None, 200, Contains("visavis_calls"), key=None),
    Row("headers of an error", "GET /v1/ext/agent", None, 401, UNAUTHORIZED, key=None, response_headers={**SECURITY_HEADERS, "cache-control": "no-store"}),
    Row("an agent that is not embedded", "POST /v1/ext/agent", MINIMAL_AGENT, 200, {"id": ID}, {"closed": "id"}),
    Row("has no page", "GET /embed/$closed", None, 404, {"message": "Agent details not found"}, key=None),
    Row("and takes no click", "POST /embed/$closed", {}, 404, {"message": "Agent details not found"}, key=None),
    Row("a browser shows a page instead", "GET /embed/$closed", None, 404, Contains("There is no agent at this address"), key=None, headers=BROWSER, response_headers={**HTML, **SECURITY_HEADERS}),
    Row("an unknown address, too", "GET /no/such/page", None, 404, Contains("There is no page at this address"), key=None, headers=BROWSER, response_headers={**HTML, **SECURITY_HEADERS, "content-security-policy": Contains("frame-ancestors 'none'")}),
    Row("who prefers nothing gets JSON", "GET /no/such/page", None, 404, {"error": "Not found"}, key=None, headers={"accept": "*/*"}),
    Row("so does who sends no GET", "POST /no/such/page", None, 404, {"error": "Not found"}, key=None, headers=BROWSER),
    *[Row(f"{path} is for programs", f"GET {path}/no/such/page", None, 404, {"error": "Not found"}, key=None, headers=BROWSER) for path in ("/v1", "/v2", "/api")],
    Row("a link to a recording that has expired", "GET /media/recordings/x.webm?expires=1&signature=x", None, 403, Contains("This link has expired or is not valid"), key=None, headers=BROWSER, response_headers={**HTML, **SECURITY_HEADERS}),
    Row("and to a program", "GET /media/recordings/x.webm?expires=1&signature=x", None, 403, {"error": "Forbidden: the link is not valid"}, key=None),
    Row("an agent that is", "POST /v1/ext/agent", EMBEDDABLE_AGENT, 200, {"id": ID}, {"open": "id"}),
    Row("has one, for its origins", "GET /embed/$open?username=Ada&id=7&context=x", None, 200, key=None, response_headers={**HTML, "content-security-policy": Contains("frame-ancestors https://shop.example")}),
    Row("where a click makes a conversation", "POST /embed/$open", {"userName": "Ada", "userId": "7", "context": "x"}, 200, {"conversationId": ID, "token": TEXT}, {"c": "conversationId"}, key=None, headers={"origin": "https://shop.example"}),
    Row("of the agent's workspace", "GET /v1/ext/conversation/$c", None, 200, {"user_name": "Ada", "user_id": "7", "context": '"x"'}),
    Row("not from elsewhere", "POST /embed/$open", {}, 403, {"error": "This page may not use the agent"}, key=None, headers={"origin": "https://evil.example"}),
    Row("context is at most 2 KB", "POST /embed/$open", {"context": "x" * 2100}, 400, invalid_body(("context", "must be at most 2 KB")), key=None),
    Row("a loopback listener answers to its own names only", "GET /healthz", None, 421, {"error": "Unknown host", "reason": "the server is for this machine only; behind a proxy, set server.public_url to the address that browsers open"}, key=None, headers={"host": "evil.example"}),
    Row("localhost is one of them", "GET /healthz", None, 200, {"status": "ok"}, key=None, headers={"host": "localhost:1"}),
    Row("pages elsewhere may not call the REST plane unless the operator lets them", "GET /v1/ext/agent", None, 200, headers={"origin": "https://shop.example"}, response_headers={"access-control-allow-origin": None}),
])

RATE_LIMIT_HEADERS = {"ratelimit-limit": "3", "ratelimit-remaining": "0", "ratelimit-reset": Contains(""), "retry-after": Contains("")}
LIMITS = Chapter("rate limits by key", [
    *[Row("as many a minute as configured", "GET /v1/ext/avatars", None, 200) for _ in range(3)],
    Row("then 429 with Retry-After and RateLimit-*", "GET /v1/ext/avatars", None, 429, {"error": "Too many requests"}, response_headers=RATE_LIMIT_HEADERS),
    Row("another key has its own", "GET /v1/ext/avatars", None, 200, key="other"),
    Row("a wrong key is no key", "GET /v1/ext/avatars", None, 401, UNAUTHORIZED, key="nonsense"),
], env={"VISAVIS_LIMITS_PER_KEY": "3"})

PREFLIGHT_HEADERS = {"origin": "https://shop.example", "access-control-request-method": "PATCH", "access-control-request-headers": "x-api-key,content-type"}
ORIGIN_HEADER = {"origin": "https://shop.example"}
CORS = Chapter("CORS by configuration, a public address", [
    Row("a page of a configured origin may ask", "OPTIONS /v1/ext/agent/$nobody", None, 200, key=None, headers=PREFLIGHT_HEADERS, response_headers={"access-control-allow-origin": "https://shop.example", "access-control-allow-methods": Contains("PATCH"), "access-control-allow-headers": Contains("x-api-key")}),
    Row("and read the answer with its total", "GET /v1/ext/agent", None, 200, headers=ORIGIN_HEADER, response_headers={"access-control-allow-origin": "https://shop.example", "access-control-expose-headers": Contains("x-total-count"), "vary": Contains("origin")}),
    Row("errors too", "GET /v1/ext/agent", None, 401, UNAUTHORIZED, key=None, headers=ORIGIN_HEADER, response_headers={"access-control-allow-origin": "https://shop.example"}),
    Row("no cookies are asked for", "GET /v1/ext/agent", None, 200, headers=ORIGIN_HEADER, response_headers={"access-control-allow-credentials": None}),
    Row("another origin may not", "GET /v1/ext/agent", None, 200, headers={"origin": "https://evil.example"}, response_headers={"access-control-allow-origin": None}),
    Row("the signaling endpoints accept any origin", "POST /api/offer", {"sdp": "x"}, 401, UNAUTHORIZED, key=None, headers={"origin": "https://evil.example"}, response_headers={"access-control-allow-origin": "*"}),
    Row("with a public address /metrics needs the token", "GET /metrics", None, 401, UNAUTHORIZED, key=None),
    Row("a wrong one", "GET /metrics", None, 401, UNAUTHORIZED, key=None, headers={"authorization": "Bearer nonsense"}),
    Row("the right one", "GET /metrics", None, 200, Contains("visavis_calls"), key=None, headers={"authorization": "Bearer look-inside"}),
    Row("an agent", "POST /v1/ext/agent", MINIMAL_AGENT, 200, {"id": ID}, {"agent": "id"}),
    Row("{base_url} is server.public_url", "POST /v1/ext/conversation", {"agent_id": "$agent"}, 201, {"join_link": Contains("https://talk.example/join/"), "webrtcRequestParams": {"endpoint": Contains("https://talk.example/api/offer?token=")}}),
    Row("its host is known", "GET /healthz", None, 200, {"status": "ok"}, key=None, headers={"host": "talk.example"}),
], env={"VISAVIS_SERVER_CORS_ORIGINS": "https://shop.example", "VISAVIS_SERVER_PUBLIC_URL": "https://talk.example", "VISAVIS_SERVER_METRICS_TOKEN": "look-inside"})

CHAPTERS = [LISTS, ERROR_ORDER, FAILURES, PAGES, LIMITS, CORS]
