"""Anthropic's Messages API: `/v1/messages`, streaming."""

import itertools
import json
import re
import uuid

from aiohttp import web

from .fake import Record
from .language_model import LanguageModelFake

#: A version of the interface.
VERSION = re.compile(r"20\d\d-\d\d-\d\d")


class AnthropicFake(LanguageModelFake):
    provider = "anthropic"
    vendor = "Anthropic"
    key_header = ("x-api-key", "")

    def add_routes(self, router):
        router.add_post("/v1/messages", self._messages)
        router.add_get("/v1/models", self._models)

    async def _messages(self, request: web.Request):
        return await self.stream(request, self._events)

    async def _models(self, request: web.Request):
        model = {"type": "model", "id": "claude-haiku-4-5", "display_name": "Claude Haiku 4.5"}
        return self.answer_list(request, {"data": [model], "has_more": False})

    def accepts_key(self, record: Record) -> bool:
        # The vendor's client sends the key as a bearer token.
        return super().accepts_key(record) or (
            record.headers.get("authorization") == f"Bearer {self.key}"
        )

    def messages(self) -> list[Record]:
        """The requests for an answer."""
        return [record for record in self.records if record.path == "/v1/messages"]

    def check(self, record: Record):
        body = record.body
        if not VERSION.fullmatch(record.headers.get("anthropic-version", "")):
            self.violate("anthropic-version is missing")
        if not isinstance(body.get("max_tokens"), int) or not body.get("model"):
            self.violate("model or max_tokens is missing")
        roles = [message["role"] for message in body.get("messages", [])]
        if not roles or roles[0] != "user" or roles[-1] != "user":
            self.violate(f"the first and the last message are not the user's: {roles}")
        if any(a == b for a, b in itertools.pairwise(roles)):
            self.violate(f"roles do not alternate: {roles}")
        for message in body.get("messages", []):
            for block in message["content"] if isinstance(message["content"], list) else []:
                if block["type"] == "text" and not block["text"].strip():
                    self.violate("an empty text block")

    def refusal_body(self, status: int):
        errors = {
            400: ("invalid_request_error", "model: Field required"),
            401: ("authentication_error", "invalid x-api-key"),
            402: ("billing_error", "Your credit balance is too low to access the API."),
            403: ("permission_error", "Your API key does not have permission."),
            429: ("rate_limit_error", "This request would exceed your rate limit."),
            503: ("overloaded_error", "Overloaded"),
        }
        kind, words = errors.get(status, ("api_error", "Internal server error"))
        request_id = f"req_{uuid.uuid4().hex}"
        error = {"type": "error", "error": {"type": kind, "message": words}}
        return error | {"request_id": request_id}, {"request-id": request_id}

    async def _events(self, record: Record, body: dict):
        def event(kind: str, **fields) -> str:
            return f"event: {kind}\ndata: {json.dumps({'type': kind, **fields})}\n\n"

        usage = {"input_tokens": 20, "output_tokens": 1}
        message = {
            "id": f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": usage,
        }
        yield event("message_start", message=message)
        if record.fault and record.fault.kind == "failed_in_band":
            yield event("error", error={"type": "overloaded_error", "message": "Overloaded"})
            return
        yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
        yield event("ping")
        count = 0
        async for word in self.words(record, self.answer(last_words(body))):
            count += 1
            delta = {"type": "text_delta", "text": word}
            yield event("content_block_delta", index=0, delta=delta)
        yield event("content_block_stop", index=0)
        if record.fault and record.fault.kind == "no_end":
            return
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        yield event("message_delta", delta=delta, usage={"output_tokens": count})
        yield event("message_stop")


def last_words(body: dict) -> str:
    """The last text of the user."""
    content = body["messages"][-1]["content"]
    if isinstance(content, str):
        return content
    texts = [block["text"] for block in content if block.get("type") == "text"]
    return texts[-1] if texts else ""
