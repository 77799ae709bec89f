"""What a server answers about its resources."""

import json

#: The GET requests of the API that answer JSON about stored resources. `{name}` is the id of that
#: resource.
PATHS = [
    "/v1/ext/agent?perpage=100",
    "/v1/ext/agent/{agent}",
    "/v1/ext/templates",
    "/v1/ext/template/{template}",
    "/v2/custom-avatars",
    "/v2/custom-avatar/{custom-avatar}",
    "/v1/ext/guardrail",
    "/v1/ext/guardrail/{guardrail}",
    "/v1/ext/tool",
    "/v1/ext/tool/{tool}",
    "/v1/ext/mcp",
    "/v1/ext/mcp/{mcp}",
    "/v1/ext/kbs",
    "/v1/ext/kb/{kb}",
    "/v1/ext/conversation",
    "/v1/ext/conversation/{conversation}",
    "/v1/ext/conversation/{conversation}/turns",
    "/v1/ext/conversation/{conversation}/events",
    "/v1/ext/conversation/{conversation}/deliveries",
    "/v1/ext/deadletters",
    "/v1/ext/apikey",
]
#: The time of a key's last use: the requests of this list are uses.
CHANGING = "last_used_at"


def read_answers(server, ids: dict) -> dict:
    """The answers to `PATHS`. The server's address, which differs between starts, is replaced."""
    answers = {}
    for path in PATHS:
        for name, value in ids.items():
            path = path.replace("{" + name + "}", value)
        reply = server.request("GET", path)
        assert reply.status == 200, (path, reply)
        answers[path] = without_changing(
            json.loads(reply.body.decode().replace(server.url, "http://SERVER"))
        )
    return answers


def without_changing(value):
    if isinstance(value, dict):
        return {name: without_changing(item) for name, item in value.items() if name != CHANGING}
    return [without_changing(item) for item in value] if isinstance(value, list) else value
