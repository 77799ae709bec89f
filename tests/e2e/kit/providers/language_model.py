"""What the fakes of language models share: an answer that is streamed word by word."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable

from aiohttp import web

from .fake import MAX_ENDLESS_MESSAGES, Fake, Record


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
        if body.get("stream") is not True:
            self.violate("a request without stream")
        if not body.get("model"):
            refused, headers = self.refusal_body(400)
            return web.json_response(refused, status=400, headers=headers)
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        is_complete = False
        try:
            await response.prepare(request)
            is_complete = await self._write(request, response, record, events(record, body))
        except (asyncio.CancelledError, ConnectionError):
            pass
        finally:
            with self.noting():
                record.closed_at = self.now()
                record.cancelled = not is_complete and record.fault is None
        return response

    async def _write(self, request, response, record: Record, events) -> bool:
        """Returns whether all of it was written."""
        fault = record.fault
        kind = fault.kind if fault else None
        async for event in events:
            if kind == "stall":
                await asyncio.sleep(3600)
            if record.sent >= (fault.after if fault else 0):
                match kind:
                    case "cut":
                        request.transport.abort()
                        return False
                    case "close":
                        return False
                    case "malformed":
                        event = event[: len(event) // 2] + "\n\n"
                    case "binary":
                        event = "\x00\x01\x02\x03\n\n"
            await response.write(event.encode())
            record.sent += 1
        await response.write_eof()
        return True

    def check(self, record: Record):
        """Notes what the vendor would refuse in a request."""
