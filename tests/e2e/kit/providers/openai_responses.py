"""OpenAI's responses: `/v1/responses`, streaming."""

import itertools
import json
import uuid

from aiohttp import web

from .fake import Record
from .language_model import LanguageModelFake
from .openai import OpenAiAccount

#: Fields of a request. The vendor refuses others.
FIELDS = set(
    "background context_management conversation include input instructions max_output_tokens "
    "max_tool_calls metadata model moderation parallel_tool_calls previous_response_id prompt "
    "prompt_cache_key prompt_cache_options prompt_cache_retention reasoning safety_identifier "
    "service_tier store stream stream_options temperature text tool_choice tools top_logprobs "
    "top_p truncation user".split()
)
#: Fields of a function.
TOOL_FIELDS = {"type", "name", "description", "parameters", "strict"}


class OpenAiResponsesFake(OpenAiAccount, LanguageModelFake):
    provider = "openai-responses"

    def add_routes(self, router):
        super().add_routes(router)
        router.add_post("/v1/responses", self._responses)

    async def _responses(self, request: web.Request):
        return await self.stream(request, self._events)

    def messages(self) -> list[Record]:
        """The requests for an answer."""
        return [record for record in self.records if record.path == "/v1/responses"]

    def check(self, record: Record):
        body = record.body
        if unknown := set(body) - FIELDS:
            self.violate(f"unknown fields: {unknown}")
        calls, results = set(), set()
        for item in input_items(body):
            match item.get("type", "message"):
                case "message":
                    if item.get("role") not in ("user", "assistant", "system", "developer"):
                        self.violate(f"no role: {item}")
                    if not item.get("content"):
                        self.violate(f"an empty message: {item}")
                case "function_call":
                    json.loads(item["arguments"])
                    calls.add(item["call_id"])
                case "function_call_output":
                    results.add(item["call_id"])
                case _:
                    self.violate(f"unknown item: {item}")
        if calls != results:
            self.violate(f"calls {calls} with the results {results}")
        for tool in body.get("tools", []):
            if tool.get("type") != "function" or set(tool) - TOOL_FIELDS or not tool.get("name"):
                self.violate(f"no function: {tool}")

    async def _events(self, record: Record, body: dict):
        numbers = itertools.count()
        response = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": 1_790_000_000,
            "status": "in_progress",
            "error": None,
            "incomplete_details": None,
            "instructions": body.get("instructions"),
            "metadata": {},
            "model": body["model"],
            "output": [],
            "parallel_tool_calls": True,
            "store": body.get("store", True),
            "temperature": 1.0,
            "tool_choice": "auto",
            "tools": body.get("tools", []),
            "top_p": 1.0,
            "usage": None,
        }

        def event(kind: str, **fields) -> str:
            content = {"type": kind, "sequence_number": next(numbers), **fields}
            return f"event: {kind}\ndata: {json.dumps(content)}\n\n"

        yield event("response.created", response=response)
        yield event("response.in_progress", response=response)
        if record.fault and record.fault.kind == "failed_in_band":
            error = {"code": "server_error", "message": "The server is overloaded."}
            failed = response | {"status": "failed", "error": error}
            yield event("response.failed", response=failed)
            return
        item = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant"}
        place = {"output_index": 0, "item_id": item["id"], "content_index": 0}
        begun = item | {"status": "in_progress", "content": []}
        yield event("response.output_item.added", output_index=0, item=begun)
        part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        yield event("response.content_part.added", part=part, **place)
        words = []
        async for word in self.words(record, self.answer(last_words(body))):
            words.append(word)
            yield event("response.output_text.delta", delta=word, logprobs=[], **place)
        text = "".join(words)
        part = part | {"text": text}
        yield event("response.output_text.done", text=text, logprobs=[], **place)
        yield event("response.content_part.done", part=part, **place)
        done = item | {"status": "completed", "content": [part]}
        yield event("response.output_item.done", output_index=0, item=done)
        if record.fault and record.fault.kind == "no_end":
            return
        usage = {
            "input_tokens": 20,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": len(words),
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": 20 + len(words),
        }
        completed = response | {"status": "completed", "output": [done], "usage": usage}
        yield event("response.completed", response=completed)


def input_items(body: dict) -> list[dict]:
    """The items of a request. A text is the user's message."""
    items = body.get("input") or []
    return [{"role": "user", "content": items}] if isinstance(items, str) else items


def last_words(body: dict) -> str:
    """The last text of the user."""
    messages = [item for item in input_items(body) if item.get("role") == "user"]
    content = messages[-1]["content"] if messages else ""
    if isinstance(content, str):
        return content
    return " ".join(part.get("text", "") for part in content)
