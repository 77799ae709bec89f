"""A server of tools by the official SDK of MCP, over both transports, in a process of its own that a test may kill."""

import pathlib
import queue
import socket
import subprocess
import sys
import threading

KIT = pathlib.Path(__file__).resolve().parent
PATIENCE = 60


class Toolbox:
    """`urls` by transport, "shttp" or "sse", are what goes into an MCP configuration. Both serve the same tools."""

    def __init__(self):
        self.process = subprocess.Popen([sys.executable, str(KIT / "toolbox.py")], stdout=subprocess.PIPE, text=True)
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(target=lambda: [self.lines.put(line.strip()) for line in self.process.stdout], daemon=True).start()
        self.urls = dict(self.line().split(" ") for _ in range(2))

    def line(self) -> str:
        """What it prints next: its URLs, that its tools are listed, then each call of a tool with the key."""
        return self.lines.get(timeout=PATIENCE)

    def asked(self):
        """Waits until its tools are listed."""
        assert self.line() == "asked"

    def forget(self):
        """Drops what an earlier test left unread."""
        while not self.lines.empty():
            self.lines.get()

    def kill(self):
        self.process.kill()
        self.process.wait()

    close = kill


def serve():
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

    def listening(app):
        async def serve(scope, receive, send):
            async def heard():
                message = await receive()
                if b'"tools/list"' in message.get("body", b""):
                    print("asked", flush=True)
                return message

            await app(scope, heard, send)

        return serve

    async def both():
        servers = []
        for transport, app, path in (("shttp", box.streamable_http_app(), "/mcp"), ("sse", box.sse_app(), "/sse")):
            place = socket.socket()
            place.bind(("127.0.0.1", 0))
            place.listen()
            print(f"{transport} http://127.0.0.1:{place.getsockname()[1]}{path}", flush=True)
            servers.append(uvicorn.Server(uvicorn.Config(listening(app), log_level="warning")).serve(sockets=[place]))
        await asyncio.gather(*servers)

    asyncio.run(both())


if __name__ == "__main__":
    serve()
