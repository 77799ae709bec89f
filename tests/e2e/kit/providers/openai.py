"""OpenAI's chat completions: `/v1/chat/completions`, streaming."""

import json
import uuid

from aiohttp import web

from .fake import Fake, Record
from .language_model import LanguageModelFake


class OpenAiAccount(Fake):
    """What the interfaces of the vendor have in common."""

    provider = "openai"
    vendor = "OpenAI"
    key_header = ("authorization", "Bearer ")

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    def add_routes(self, router):
        router.add_get("/v1/models", self._models)

    async def _models(self, request: web.Request):
        model = {"id": "gpt-4.1-mini", "object": "model", "created": 1, "owned_by": "openai"}
        return self.answer_list(request, {"object": "list", "data": [model]})

    def refusal_body(self, status: int):
        errors = {
            400: ("invalid_request_error", None, "you must provide a model parameter"),
            401: ("invalid_request_error", "invalid_api_key", "Incorrect API key provided."),
            402: ("insufficient_quota", "insufficient_quota", "You exceeded your current quota."),
            429: ("requests", "rate_limit_exceeded", "Rate limit reached."),
        }
        kind, code, words = errors.get(
            status, ("server_error", None, "The server had an error while processing your request.")
        )
        error = {"message": words, "type": kind, "param": None, "code": code}
        return {"error": error}, {"x-request-id": f"req_{uuid.uuid4().hex}"}


class OpenAiFake(OpenAiAccount, LanguageModelFake):
    def add_routes(self, router):
        super().add_routes(router)
        router.add_post("/v1/chat/completions", self._completions)

    async def _completions(self, request: web.Request):
        return await self.stream(request, self._events)

    def messages(self) -> list[Record]:
        """The requests for an answer."""
        return [record for record in self.records if record.path == "/v1/chat/completions"]

    def check(self, record: Record):
        body = record.body
        if not body.get("model"):
            self.violate("model is missing")
        messages = body.get("messages", [])
        if not messages or messages[-1]["role"] not in ("user", "tool"):
            self.violate(f"the last message is not the user's: {messages[-1:]}")

    async def _events(self, record: Record, body: dict):
        about = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "object": "chat.completion.chunk",
            "created": 1_790_000_000,
            "model": body["model"],
            "service_tier": "default",
            "system_fingerprint": "fp_1",
        }

        def event(**fields) -> str:
            return f"data: {json.dumps(about | fields)}\n\n"

        def choice(delta: dict, reason: str | None = None) -> list[dict]:
            return [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}]

        yield event(choices=choice({"role": "assistant", "content": "", "refusal": None}))
        if record.fault and record.fault.kind == "failed_in_band":
            error = {"message": "The server is overloaded.", "type": "server_error", "code": None}
            yield f"data: {json.dumps({'error': error})}\n\n"
            return
        count = 0
        async for word in self.words(record, self.answer(last_words(body))):
            count += 1
            yield event(choices=choice({"content": word}))
        if record.fault and record.fault.kind == "no_end":
            return
        yield event(choices=choice({}, "stop"))
        if (body.get("stream_options") or {}).get("include_usage"):
            usage = {"prompt_tokens": 20, "completion_tokens": count, "total_tokens": 20 + count}
            yield event(choices=[], usage=usage)
        yield "data: [DONE]\n\n"


def last_words(body: dict) -> str:
    """The last text of the user."""
    content = body["messages"][-1]["content"]
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content or [])
