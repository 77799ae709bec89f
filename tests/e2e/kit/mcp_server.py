"""An MCP server with the official SDK, over both transports. It is its own process, which a test
may kill."""

import pathlib
import queue
import socket
import subprocess
import sys
import threading

KIT = pathlib.Path(__file__).resolve().parent
TEST_TIMEOUT = 60


class McpServer:
    """`urls` by transport ("shttp" or "sse") are the values for an MCP configuration. Both serve
    the same tools."""

    def __init__(self):
        self.process = subprocess.Popen(
            [sys.executable, str(KIT / "mcp_server.py")], stdout=subprocess.PIPE, text=True
        )
        self.lines: queue.Queue[str] = queue.Queue()
        threading.Thread(
            target=lambda: [self.lines.put(line.strip()) for line in self.process.stdout],
            daemon=True,
        ).start()
        self.urls = dict(self.next_line().split(" ") for _ in range(2))

    def next_line(self) -> str:
        """The next line that the process prints: its URLs, that its tools are listed, then each
        tool call with the key."""
        return self.lines.get(timeout=TEST_TIMEOUT)

    def wait_until_listed(self):
        """Waits until its tools are listed."""
        assert self.next_line() == "tools/list"

    def discard_lines(self):
        """Discards the lines that an earlier test did not read."""
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

    mcp = MCPServer("Toolbox")

    @mcp.tool()
    def opening_hours(day: str, ctx: Context) -> dict[str, str]:
        """When the museum is open on a day of the week."""
        key = ctx.request_context.request.headers.get("authorization")
        print(f"opening_hours {day} {key}", flush=True)
        return {"day": day, "opens": "nine", "closes": "seventeen"}

    @mcp.tool()
    async def never(ctx: Context) -> str:
        """Never answers."""
        print("never", flush=True)
        await asyncio.Event().wait()
        return ""

    @mcp.tool()
    def broken() -> str:
        """Always fails."""
        raise ToolError("the drawer is stuck")

    def log_tool_lists(app):
        async def serve(scope, receive, send):
            async def receive_and_log():
                message = await receive()
                if b'"tools/list"' in message.get("body", b""):
                    print("tools/list", flush=True)
                return message

            await app(scope, receive_and_log, send)

        return serve

    async def serve_both():
        servers = []
        for transport, app, path in (
            ("shttp", mcp.streamable_http_app(), "/mcp"),
            ("sse", mcp.sse_app(), "/sse"),
        ):
            listener = socket.socket()
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            print(f"{transport} http://127.0.0.1:{listener.getsockname()[1]}{path}", flush=True)
            servers.append(
                uvicorn.Server(uvicorn.Config(log_tool_lists(app), log_level="warning")).serve(
                    sockets=[listener]
                )
            )
        await asyncio.gather(*servers)

    asyncio.run(serve_both())


if __name__ == "__main__":
    serve()
