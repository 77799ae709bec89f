"""Recordings in MinIO. control-api/tests/api/object_storage.rs tests a smaller S3 server with more
faults, also of uploads with several parts."""

import subprocess

import pytest

from kit import object_storage
from kit.object_storage import Minio, TcpRelay
from kit.polling import wait_until
from kit.recording_file import Recording, wait_for_recording
from kit.server import binary
from kit.typed_call import create_typed_agent, run_call

pytestmark = pytest.mark.long("recording")

GREETING = "Welcome to the museum of old clocks, of which we have more than two hundred."
#: Bytes of an upload that arrive before the storage is killed.
PARTIAL_BYTES = 20_000
FAILED_UPLOADS = "visavis_recording_uploads_failed_total"


@pytest.fixture
def minio(tmp_path):
    minio = Minio(tmp_path / "minio")
    yield minio
    minio.kill()


@pytest.fixture
def data(tmp_path):
    """The data folder of a server."""
    folder = tmp_path / "data"
    folder.mkdir()
    return folder


def start(start_server, data, port: int, secret: str = object_storage.SECRET):
    return start_server("storage", data=data, env=object_storage.environment(port, secret))


def record_call(server) -> str:
    """The id of a recorded call that has ended."""
    agent = create_typed_agent(server, greeting=GREETING, extra={"record": True})

    async def listen(client):
        await client.wait_for_utterance("hundred")

    return run_call(server, agent, listen)["id"]


def wait_for_failed_upload(server):
    def failures():
        lines = server.request("GET", "/metrics").body.decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(FAILED_UPLOADS))

    wait_until(lambda: failures() > 0, lambda: f"a failed upload\n{server.log_tail()}", timeout=120)


def check_storage(server, port: int, secret: str) -> subprocess.CompletedProcess:
    """Runs `visavis check`."""
    return subprocess.run(
        [binary(), "check", "--data", str(server.data)],
        env=object_storage.environment(port, secret),
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_recording_is_uploaded_read_and_erased(start_server, data, minio):
    server = start(start_server, data, minio.port).read_first_start().wait_ready()
    conversation = record_call(server)
    link = wait_for_recording(server, conversation)["recording_url"]
    assert link.startswith(f"http://127.0.0.1:{minio.port}/bucket/calls/recordings/{conversation}")
    assert minio.objects() == [f"calls/recordings/{conversation}.webm"]
    assert not list((server.data / "recordings").iterdir()), "a local copy is left"
    whole = server.request("GET", link, key=None)
    assert whole.status == 200 and whole.headers["content-type"] == "video/webm", whole
    assert Recording(whole.body).duration > 0.5
    part = server.request("GET", link, key=None, headers={"range": "bytes=100-299"})
    assert (part.status, part.body) == (206, whole.body[100:300])
    other = link.replace(conversation, "00000000-0000-4000-8000-000000000000")
    assert server.request("GET", other, key=None).status == 403
    path = f"/v1/ext/conversation/{conversation}/recording"
    assert server.request("DELETE", path).status == 204
    wait_until(lambda: minio.objects() == [], lambda: f"no object: {minio.objects()}")
    assert server.request("GET", link, key=None).status == 404
    assert server.get_conversation(conversation)["recording_url"] == ""


def test_the_erasure_of_a_conversation_removes_its_object(start_server, data, minio):
    server = start(start_server, data, minio.port).read_first_start().wait_ready()
    conversation = record_call(server)
    wait_for_recording(server, conversation)
    assert server.request("DELETE", f"/v1/ext/conversation/{conversation}").status in (200, 204)
    wait_until(lambda: minio.objects() == [], lambda: f"no object: {minio.objects()}")


def test_a_recording_waits_for_the_right_key(start_server, data, minio):
    """With a wrong key nothing is lost: the next start has the right one."""
    wrong = start(start_server, data, minio.port, "wrong-secret").read_first_start().wait_ready()
    conversation = record_call(wrong)
    wait_for_failed_upload(wrong)
    record = wrong.get_conversation(conversation)
    assert record["is_recorded"] and record["recording_url"] == "" and minio.objects() == []
    said = check_storage(wrong, minio.port, "wrong-secret")
    assert said.returncode != 0 and "SignatureDoesNotMatch" in said.stdout + said.stderr, said
    assert "wrong-secret" not in said.stdout + said.stderr + wrong.log.read_text()
    wrong.stop()
    server = start(start_server, data, minio.port)
    server.key = wrong.key
    link = wait_for_recording(server.wait_ready(), conversation)["recording_url"]
    assert server.request("GET", link, key=None).status == 200
    assert check_storage(server, minio.port, object_storage.SECRET).returncode == 0


def test_an_upload_survives_a_restart_of_the_storage(start_server, data, minio):
    relay = TcpRelay(minio.port)
    try:
        server = start(start_server, data, relay.port).read_first_start().wait_ready()
        relay.hold_after(PARTIAL_BYTES)
        conversation = record_call(server)
        wait_until(relay.held.is_set, lambda: f"an upload\n{server.log_tail()}")
        minio.kill()
        relay.release()
        wait_for_failed_upload(server)
        assert server.get_conversation(conversation)["recording_url"] == ""
        minio.start()
        link = wait_for_recording(server, conversation, timeout=120)["recording_url"]
        assert minio.objects() == [f"calls/recordings/{conversation}.webm"]
        reply = server.request("GET", link, key=None)
        assert reply.status == 200 and Recording(reply.body).duration > 0.5
    finally:
        relay.close()
