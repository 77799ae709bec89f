"""A receiver of many webhooks. It is its own process, so that it does not disturb the timing of the
test. `python webhook_receiver.py SHARE` fails that share of the attempts. It prints its port. At
the end of its input it prints the received requests as JSON: number, id, time of each attempt, and
whether it succeeded."""

import asyncio
import json
import random
import sys
import threading
import time

received = []


async def serve(share: float):
    rng = random.Random(7)

    async def handle(reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
                headers = dict(line.split(": ", 1) for line in head[1:] if line)
                await reader.readexactly(int(headers["content-length"]))
                accepted = rng.random() >= share
                received.append(
                    (int(headers["visavis-sequence"]), headers["webhook-id"], time.time(), accepted)
                )
                writer.write(
                    b"HTTP/1.1 %s\r\ncontent-length: 0\r\n\r\n"
                    % (b"204 No Content" if accepted else b"500 Oh")
                )
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    threading.Thread(
        target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(stop.set)), daemon=True
    ).start()
    await stop.wait()
    json.dump(received, sys.stdout)


asyncio.run(serve(float(sys.argv[1])))
