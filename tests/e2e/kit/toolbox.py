"""A server of tools by the official SDK of MCP, in a process of its own that a test may kill."""

import pathlib
import queue
import socket
import subprocess
import sys
import threading

KIT = pathlib.Path(__file__).resolve().parent


class Toolbox:
    """`transport`: "shttp" or "sse". `url` is what goes into an MCP configuration."""

    def __init__(self, transport: str):
        self.process = subprocess.Popen([sys.executable, str(KIT / "toolbox.py"), transport], stdout=subprocess.PIPE, text=True)
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=lambda: [self.lines.put(line.strip()) for line in self.process.stdout], daemon=True).start()
        self.url = self.line()

    def line(self, timeout=20) -> str:
        """What it says next: its URL, that its tools are asked for, then each tool that is called, and its key."""
        return self.lines.get(timeout=timeout)

    def asked(self):
        """Waits until its tools are asked for."""
        assert self.line() == "asked"

    def kill(self):
        self.process.kill()
        self.process.wait()

    close = kill


def serve(transport: str):
    import asyncio

    import uvicorn
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context
    from mcp.server.mcpserver.exceptions import ToolError

    box = MCPServer("Toolbox")

    @box.tool()
    def opening_hours(day: str, ctx: Context) -> dict[str, str]:
        """When the museum is open on a day of the week."""
        key = ctx.request_context.request.headers.get("authorization")
        print(f"opening_hours {day} {key}", flush=True)
        return {"day": day, "opens": "nine", "closes": "seventeen"}

    @box.tool()
    async def never(ctx: Context) -> str:
        """Never answers."""
        print("never", flush=True)
        await asyncio.Event().wait()
        return ""

    @box.tool()
    def broken() -> str:
        """Always fails."""
        raise ToolError("the drawer is stuck")

    app, path = (box.sse_app(), "/sse") if transport == "sse" else (box.streamable_http_app(), "/mcp")

    async def listening(scope, receive, send):
        async def heard():
            message = await receive()
            if b'"tools/list"' in message.get("body", b""):
                print("asked", flush=True)
            return message

        await app(scope, heard, send)

    place = socket.socket()
    place.bind(("127.0.0.1", 0))
    place.listen()
    print(f"http://127.0.0.1:{place.getsockname()[1]}{path}", flush=True)
    uvicorn.Server(uvicorn.Config(listening, log_level="warning")).run(sockets=[place])


if __name__ == "__main__":
    serve(sys.argv[1])
