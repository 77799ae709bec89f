"""An avatar from a photo: previews, the check in the request, the drawing, and a call. The photo is
the picture of a drawn avatar."""

import base64
import re

import pytest

from kit.avatar_call import pictures_in_call, similarity
from kit.polling import wait_until
from kit.server import ROOT

#: Seconds for a drawing beside the other tests: 15 s of CPU time at the lowest priority.
DRAWING_TIME = 180
POINT_COUNT = 478


def data_uri(kind, content):
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


PHOTO = data_uri("image/webp", (ROOT / "assets" / "avatars" / "mei.512.webp").read_bytes())


@pytest.fixture(scope="module")
def server(start_server):
    return start_server("photo").read_first_start().wait_ready()


def create(server, **more):
    body = {"avatar_name": "Mia", "gender": "female", "input_image": PHOTO, **more}
    return server.request("POST", "/v2/custom-avatar", body)


def stored_files(server):
    return [path for path in server.data.rglob("*") if path.is_file()]


def test_a_photo_becomes_an_avatar_that_talks(server, call, luma):
    reply = server.request(
        "POST",
        "/v2/custom-avatar/photo",
        {"input_image": PHOTO, "show": ["rest", "aa", "PP", "blink"]},
    )
    assert reply.status == 200, reply
    preview = reply.json()
    assert len(preview["landmarks"]) == POINT_COUNT
    rest = luma(preview["pictures"]["rest"])
    # Rows of the lips and of the eyes in a picture of 96 × 96.
    changed = {
        name: [abs(luma(picture) - rest)[rows].max() for rows in (slice(28, 46), slice(55, 75))]
        for name, picture in preview["pictures"].items()
    }
    eyes, lips = zip(*(changed[name] for name in ("aa", "PP", "blink")), strict=True)
    assert lips[0] > 40 and eyes[2] > 15 and max(eyes[0], eyes[1], lips[2]) < 8, changed

    created = create(server, consent=True)
    assert created.status == 200, created
    path = f"/v2/custom-avatar/{created.json()['id']}"

    def finished():
        record = server.request("GET", path).json()
        assert record["status"] != "FAILED", record
        return record["status"] == "COMPLETED" and record

    record = wait_until(finished, "the drawing", DRAWING_TIME)
    assert record["has_source"] and record["consent_at"]
    assert (record["output"]["width"], record["output"]["height"]) == (512, 512)
    # No picture of the person is left outside of the store, and there it is encrypted.
    files = stored_files(server)
    assert not [file for file in files if re.search("bakes/.*(png|poses|webp)$", str(file))]
    assert not any(b"\x89PNG" in file.read_bytes() for file in files)

    greeting = "Hello, I was a photo a minute ago, and now I talk to you about it."
    avatar = {"avatar_key_id": record["id"]}
    agent = server.create_agent(avatar=avatar, greeting=greeting, transcripts=[])
    seen = pictures_in_call(server, call(), agent["id"])
    assert similarity(luma(record["output"]["preview_url"]), seen) > 0.98
    assert similarity(rest, seen) > 0.98
    assert server.request("DELETE", path).status == 200
