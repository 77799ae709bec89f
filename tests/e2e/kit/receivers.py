"""Servers that the server under test talks to: a webhook receiver, a tool, and a scripted
OpenAI-compatible model."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError


class MockServer:
    """An HTTP server on its own port. Subclasses answer the requests."""

    def __init__(self):
        self.changed = threading.Condition()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def handle_any(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                outer.handle(self, body)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = handle_any

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        # `close` waits for one such interval.
        threading.Thread(target=self.server.serve_forever, args=[0.05], daemon=True).start()

    def handle(self, request, body: bytes):
        raise NotImplementedError

    @staticmethod
    def reply(request, status: int, body: bytes = b"", media_type: str = "application/json"):
        request.send_response(status)
        request.send_header("content-type", media_type)
        request.send_header("content-length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def wait_until(self, found, timeout: float, what: str):
        """The first true value of `found()`."""
        with self.changed:
            end = time.monotonic() + timeout
            while not (value := found()):
                left = end - time.monotonic()
                assert left > 0, f"waited {timeout} s for {what}; so far: {self.describe()}"
                self.changed.wait(left)
            return value

    def describe(self):
        return ""

    def close(self):
        self.server.shutdown()


class WebhookReceiver(MockServer):
    """Receives events. `secret` is the agent's. Every signature is checked on arrival."""

    def __init__(self):
        super().__init__()
        self.secret = None
        self.events: list[dict] = []
        self.errors: list[str] = []
        #: The number of deliveries still to reject, and the status of the rejection.
        self.reject_count, self.reject_status = 0, 500

    def handle(self, request, body):
        with self.changed:
            if self.reject_count > 0:
                self.reject_count -= 1
                self.reply(request, self.reject_status)
                return
            error = self.delivery_error(request.headers, body)
            if error:
                self.errors.append(error)
            else:
                sequence = int(request.headers["visavis-sequence"])
                if sequence not in [
                    event["sequence"]
                    for event in self.events
                    if event["conversation_id"] == json.loads(body)["conversation_id"]
                ]:
                    self.events.append({**json.loads(body), "sequence": sequence})
            self.changed.notify_all()
        self.reply(request, 204)

    def delivery_error(self, headers, body: bytes) -> str | None:
        """What is wrong with a delivery, or None. The official library of Standard Webhooks checks
        the signature."""
        try:
            Webhook(self.secret).verify(body, dict(headers.items()))
        except WebhookVerificationError as error:
            return str(error)
        value = json.loads(body)
        if (
            set(value) != {"timestamp", "conversation_id", "type", "event"}
            or set(value["event"]) != {"name", "payload"}
            or value["type"] != "pipeline"
        ):
            return f"the fields are not the interface's: {body[:300]!r}"
        if abs(time.time() - value["timestamp"]) > 3600:
            return "the event's time is no Unix time in seconds"
        return None

    def events_of(self, conversation: str) -> list[dict]:
        """The events of a conversation in the order of their numbers."""
        return sorted(
            (e for e in self.events if e["conversation_id"] == conversation),
            key=lambda e: e["sequence"],
        )

    def event_names(self, conversation: str) -> list[str]:
        return [e["event"]["name"] for e in self.events_of(conversation)]

    def wait_for(self, conversation: str, name: str, timeout: float = 60) -> dict:
        return self.wait_until(
            lambda: next(
                (e for e in self.events_of(conversation) if e["event"]["name"] == name), None
            ),
            timeout,
            name,
        )

    def describe(self):
        return [e["event"]["name"] for e in self.events] + self.errors


class StaticSite(MockServer):
    """A third-party web site: `files` by path, as (body, media type)."""

    def __init__(self, files: dict[str, tuple[bytes, str]]):
        super().__init__()
        self.files = files

    def handle(self, request, body):
        found = self.files.get(request.path)
        self.reply(request, 200 if found else 404, *(found or (b"",)))


class MockTool(MockServer):
    """A real HTTP tool."""

    def __init__(self, result):
        super().__init__()
        self.result = result
        self.calls = []

    def handle(self, request, body):
        with self.changed:
            self.calls.append(
                {
                    "method": request.command,
                    "path": request.path,
                    "body": body,
                    "headers": dict(request.headers),
                }
            )
            self.changed.notify_all()
        self.reply(request, 200, json.dumps(self.result).encode())

    def describe(self):
        return self.calls


class ScriptedLlm(MockServer):
    """An OpenAI-compatible server. `script` answers a request with a list of steps. A step is a
    delay in seconds (float), an event to wait for (`threading.Event`), a text, a dict (a `delta`),
    `"!500"`, `"!stall"` or `"!cut"`. Without `"!cut"` the stream ends properly."""

    def __init__(self, script):
        super().__init__()
        self.script = script
        self.requests = []
        self.sent_chunks: list[tuple[float, str]] = []
        self.finished_at: list[float] = []
        self.released = threading.Event()

    @property
    def base_url(self):
        return self.url + "/v1"

    def handle(self, request, body):
        if request.path != "/v1/chat/completions":
            self.reply(request, 404, b'{"error":{"message":"no such path"}}')
            return
        llm_request = json.loads(body)
        with self.changed:
            self.requests.append(llm_request)
            self.changed.notify_all()
        steps = self.script(llm_request)
        if steps == ["!500"]:
            self.reply(request, 500, b'{"error":{"message":"broken on purpose"}}')
            return
        request.close_connection = True
        try:
            request.send_response(200)
            request.send_header("content-type", "text/event-stream")
            request.send_header("transfer-encoding", "chunked")
            # The connection closes after this answer. Without this header, a client would send its
            # next request into the closing connection.
            request.send_header("connection", "close")
            request.end_headers()
            finish = "stop"
            for step in steps:
                if isinstance(step, float):
                    self.released.wait(step)
                elif isinstance(step, threading.Event):
                    step.wait(60)
                elif step == "!stall":
                    self.released.wait(30)
                    return
                elif step == "!cut":
                    request.connection.shutdown(2)
                    return
                else:
                    delta = {"content": step} if isinstance(step, str) else step
                    if "tool_calls" in delta:
                        finish = "tool_calls"
                    self._event(
                        request, {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
                    )
                    with self.changed:
                        self.sent_chunks.append((time.time(), str(step)))
                        self.changed.notify_all()
            self._event(request, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
            if (llm_request.get("stream_options") or {}).get("include_usage"):
                self._event(
                    request,
                    {
                        "choices": [],
                        "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
                    },
                )
            self._chunk(request, b"data: [DONE]\n\n")
            self._chunk(request, b"")
            with self.changed:
                self.finished_at.append(time.time())
                self.changed.notify_all()
        except OSError:
            pass  # the client may hang up

    def _event(self, request, value):
        about = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "scripted",
        }
        self._chunk(request, f"data: {json.dumps({**about, **value})}\n\n".encode())

    @staticmethod
    def _chunk(request, data: bytes):
        request.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        request.wfile.flush()

    def close(self):
        self.released.set()
        super().close()

    def describe(self):
        return f"{len(self.requests)} requests, sent {self.sent_chunks[-3:]}"
