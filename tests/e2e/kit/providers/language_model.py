"""What the fakes of language models share: an answer that is streamed word by word."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from .fake import MAX_ENDLESS_MESSAGES, Fake, Record
from .http_stream import stream_parts


class LanguageModelFake(Fake):
    """`answer`: the text for the user's last words. The default repeats them."""

    #: failed_in_band: the answer is an error after status 200; no_end: the end mark is missing.
    own_faults = frozenset({"failed_in_band", "no_end"})

    def __init__(
        self,
        answer: Callable[[str], str] = lambda question: f"You said: {question}",
        *,
        first_token: float = 0.2,
        tokens_per_second: float = 40.0,
        **options,
    ):
        self.answer = answer
        self.first_token, self.token_seconds = first_token, 1 / tokens_per_second
        super().__init__(**options)

    async def words(self, record: Record, text: str) -> AsyncIterator[str]:
        """The words of an answer at the model's pace."""
        fault = record.fault
        kind = fault.kind if fault else None
        await asyncio.sleep(self.first_token + (fault.seconds if kind == "slow" else 0))
        for word in re.findall(r"\S+\s*", text):
            yield word
            await asyncio.sleep(self.token_seconds)
        if kind == "endless":
            for _ in range(MAX_ENDLESS_MESSAGES):
                yield "and so on, "
                await asyncio.sleep(self.token_seconds)

    async def stream(self, request: web.Request, events) -> web.StreamResponse:
        """Answers a request with the events of `events(record, body)`, each of them text."""
        record = self.open_record(request)
        if refused := self.refusal(record):
            return refused
        body = await request.json()
        with self.noting():
            record.body = body
            self.check(record)
        if not self.wants_stream(record):
            self.violate("a request without stream")
        if not self.has_model(record):
            refused, headers = self.refusal_body(400)
            return web.json_response(refused, status=400, headers=headers)
        return await stream_parts(self, request, record, "text/event-stream", events(record, body))

    def wants_stream(self, record: Record) -> bool:
        return record.body.get("stream") is True

    def has_model(self, record: Record) -> bool:
        return bool(record.body.get("model"))

    def check(self, record: Record):
        """Notes what the vendor would refuse in a request."""
