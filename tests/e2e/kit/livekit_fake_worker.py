"""A worker of LiveKit that serves no room: LiveKit loses each job that it gives to it."""

import asyncio

import aiohttp
from livekit.protocol import agent

from .livekit_rooms import AGENT_NAME
from .livekit_server import LiveKitServer, create_token, run
from .polling import wait_until

#: LiveKit chooses among workers by the weight 1 − load. With this load it chooses no other one.
ALWAYS_CHOSEN = -1e6
AVAILABLE, FULL = agent.WorkerStatus.WS_AVAILABLE, agent.WorkerStatus.WS_FULL


class FakeWorker:
    """Registers at once. `answer`: what it answers to each request, whether it is available; `None`
    = it does not answer, unless `answer_late` is called. `load` and `status` are what it
    reports."""

    def __init__(
        self,
        livekit: LiveKitServer,
        answer: bool | None = None,
        load: float = 0,
        status: agent.WorkerStatus = AVAILABLE,
    ):
        self.answer, self.load, self.status = answer, load, status
        #: The jobs for which LiveKit has asked, and the ids of those that it has assigned.
        self.asked: list[agent.Job] = []
        self.assigned: list[str] = []
        self.pongs = 0
        run(self._register(livekit))
        self.wait_until_heard()

    async def _register(self, livekit: LiveKitServer):
        token = create_token(livekit, "any", kind="agent")
        self.session = aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"})
        self.socket = await self.session.ws_connect(f"{livekit.url}/agent")
        await self._send(
            register=agent.RegisterWorkerRequest(agent_name=AGENT_NAME, version="fake")
        )
        answer = agent.ServerMessage.FromString(await self.socket.receive_bytes())
        assert answer.register.worker_id, answer
        report = agent.UpdateWorkerStatus(status=self.status, load=self.load)
        await self._send(update_worker=report)
        self.reader = asyncio.create_task(self._read())

    async def _send(self, **message):
        await self.socket.send_bytes(agent.WorkerMessage(**message).SerializeToString())

    async def _answer(self, job: agent.Job, is_available: bool):
        answer = agent.AvailabilityResponse(
            job_id=job.id, available=is_available, participant_identity=f"agent-{job.id}"
        )
        await self._send(availability=answer)

    async def _read(self):
        async for frame in self.socket:
            message = agent.ServerMessage.FromString(frame.data)
            if message.HasField("availability"):
                self.asked.append(message.availability.job)
                if self.answer is not None:
                    await self._answer(message.availability.job, self.answer)
            elif message.HasField("assignment"):
                self.assigned.append(message.assignment.job.id)
            elif message.HasField("pong"):
                self.pongs += 1

    def wait_until_heard(self):
        """Waits until the server has read what was sent so far."""
        pongs = self.pongs
        run(self._send(ping=agent.WorkerPing(timestamp=1)))
        wait_until(lambda: self.pongs > pongs, "the pong of livekit-server")

    def wait_until_asked(self, room: str) -> agent.Job:
        def found():
            return next((job for job in self.asked if job.room.name == room), None)

        return wait_until(found, lambda: f"a request for {room}: {self.asked}")

    def answer_late(self, job: agent.Job):
        """Says that it is available, and waits until the server has read it."""
        run(self._answer(job, True))
        self.wait_until_heard()

    def close(self):
        run(self._close())

    async def _close(self):
        await self.socket.close()
        await self.session.close()
        await self.reader

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
