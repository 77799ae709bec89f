"""A receiver of many webhooks, in a process of its own so that it disturbs nobody's clock: `python hook_receiver.py SHARE` fails that share
of the tries. Prints its port; at the end of its input it tells what came, as JSON: number, id, time of each try, and how it was answered."""

import asyncio
import json
import random
import sys
import threading
import time

came = []


async def serve(share: float):
    chance = random.Random(7)

    async def talk(reader, writer):
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
                headers = dict(line.split(": ", 1) for line in head[1:] if line)
                await reader.readexactly(int(headers["content-length"]))
                fine = chance.random() >= share
                came.append((int(headers["visavis-sequence"]), headers["webhook-id"], time.time(), fine))
                writer.write(b"HTTP/1.1 %s\r\ncontent-length: 0\r\n\r\n" % (b"204 No Content" if fine else b"500 Oh"))
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    threading.Thread(target=lambda: (sys.stdin.read(), loop.call_soon_threadsafe(over.set)), daemon=True).start()
    await over.wait()
    json.dump(came, sys.stdout)


asyncio.run(serve(float(sys.argv[1])))
