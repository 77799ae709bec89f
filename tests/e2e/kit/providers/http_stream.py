"""An answer to a request that is streamed part by part."""

import asyncio
from collections.abc import AsyncIterator

from aiohttp import web

from .fake import Fake, Record


async def stream_parts(
    fake: Fake,
    request: web.Request,
    record: Record,
    content_type: str,
    parts: AsyncIterator[str | bytes],
) -> web.StreamResponse:
    """Answers with the parts, or with what the fault of the request makes of them."""
    response = web.StreamResponse(headers={"content-type": content_type})
    is_complete = False
    try:
        await response.prepare(request)
        is_complete = await _write(request, response, record, parts)
    except (asyncio.CancelledError, ConnectionError):
        pass
    finally:
        with fake.noting():
            record.closed_at = fake.now()
            record.cancelled = not is_complete and record.fault is None
    return response


async def _write(request, response, record: Record, parts) -> bool:
    """Returns whether all of it was written."""
    fault = record.fault
    kind = fault.kind if fault else None
    async for part in parts:
        if kind == "stall":
            await asyncio.sleep(3600)
        if record.sent >= (fault.after if fault else 0):
            match kind:
                case "cut":
                    request.transport.abort()
                    return False
                case "close":
                    if isinstance(part, bytes):
                        # Sound has no end mark: only the connection shows that it is not whole.
                        request.transport.close()
                    return False
                case "malformed":
                    is_text = isinstance(part, str)
                    part = part[: len(part) // 2] + ("\n\n" if is_text else b"")
                case "binary" if isinstance(part, str):
                    part = "\x00\x01\x02\x03\n\n"
        await response.write(part.encode() if isinstance(part, str) else part)
        record.sent += 1
    await response.write_eof()
    return True
