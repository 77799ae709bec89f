"""Avatars that an operator bakes with `visavis bake` into files, and offers to all workspaces."""

import os
import re
import subprocess

import pytest

from kit.polling import wait_until
from kit.server import ROOT, binary

THEO_TOML = (
    (ROOT / "assets" / "people" / "theo.toml").read_text().replace('name = "Theo"', 'name = "Zed"')
)
#: Hair takes half of the time.
BALD_TOML = THEO_TOML.replace('style = "curly"', 'style = "none"')
#: The number of poses in the plan.
POSE_COUNT = 941


def bake(folder, *arguments):
    done = subprocess.run(
        [binary(), "bake", *arguments],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=folder,
        env=environment(folder),
        check=False,
    )
    assert done.returncode == 0, done
    return done.stdout


def check_pose_count(output):
    count = int(re.search(r"(\d+) poses", output)[1])
    assert count == POSE_COUNT, output


def environment(folder):
    return {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}


def cache_folder(folder, *arguments):
    """The folder in the cache for the pose set that these arguments order. The drawing is stopped
    as soon as it starts."""
    process = subprocess.Popen(
        [binary(), "bake", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env=environment(folder),
    )

    def cached():
        assert process.poll() is None, "the program stopped before it cached a pose set"
        return list((folder / "cache").glob("visavis/faces/*"))

    try:
        found = wait_until(cached, "a pose set in the cache")
    finally:
        process.kill()
        process.wait()
    (place,) = found
    return place


def test_a_custom_person_is_baked_once_and_talks(start_server, call, tmp_path):
    (tmp_path / "zed.toml").write_text(BALD_TOML)
    order = ("zed.toml", "--size", "128x128", "--out", "faces/")
    # A disk lost most of a cached pose set: the set is drawn again, and not used as it is.
    place = cache_folder(tmp_path, *order)
    for suffix in ("webp", "poses"):
        (place / suffix).write_bytes(
            (ROOT / "assets" / "avatars" / f"theo.512.{suffix}").read_bytes()[:1000]
        )
    check_pose_count(bake(tmp_path, *order))
    poses = tmp_path / "faces" / "zed.128x128.poses"
    drawn = poses.read_bytes()
    assert (place / "poses").read_bytes() == drawn
    poses.unlink()
    assert "from the cache" in bake(tmp_path, *order) and poses.read_bytes() == drawn

    server = (
        start_server("faces", env={"VISAVIS_AVATARS_DIR": str(poses.parent)})
        .read_first_start()
        .wait_ready()
    )
    offered = {
        one["avatar_key_id"]: one
        for one in server.request("GET", "/v1/ext/avatars?limit=100").json()
    }
    assert offered["zed"]["avatar_name"] == "Zed"
    page = call().open(
        server.create_conversation(
            server.create_agent(avatar={"avatar_key_id": "zed"}, transcripts=[])["id"]
        )["join_link"]
    )
    page.join()
    video = page.video_stats()
    assert (video["frameWidth"], video["frameHeight"]) == (128, 128)


@pytest.mark.long("editor")
def test_drawing_a_person_twice_gives_the_same_bytes(tmp_path):
    (tmp_path / "zed.toml").write_text(THEO_TOML)
    order = ("zed.toml", "--size", "192x128", "--out", "faces/")
    check_pose_count(bake(tmp_path, *order))
    poses = tmp_path / "faces" / "zed.192x128.poses"
    drawn = poses.read_bytes()
    (place,) = (tmp_path / "cache").rglob("poses")
    place.write_bytes(drawn[:1000])
    assert (
        "from the cache" not in bake(tmp_path, *order)
        and poses.read_bytes() == place.read_bytes() == drawn
    )
