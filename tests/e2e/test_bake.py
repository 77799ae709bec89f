"""People that an operator draws with `visavis bake`, in files, and offers to everybody."""

import os
import pathlib
import subprocess

from kit.server import binary

THEO = pathlib.Path(__file__).parent.parent / "assets" / "people" / "theo.toml"


def bake(folder, *arguments):
    env = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run([binary(), "bake", *arguments], capture_output=True, text=True, timeout=300, cwd=folder, env=env)
    assert done.returncode == 0, done
    return done.stdout


def test_a_person_of_ones_own_is_drawn_once_and_talks(start, call, tmp_path):
    (tmp_path / "zed.toml").write_text(THEO.read_text().replace('name = "Theo"', 'name = "Zed"'))
    order = ("zed.toml", "--size", "192x128", "--out", "faces/")
    assert "449 poses" in bake(tmp_path, *order)
    poses = tmp_path / "faces" / "zed.192x128.poses"
    drawn = poses.read_bytes()
    poses.unlink()
    assert "baked before" in bake(tmp_path, *order) and poses.read_bytes() == drawn
    # A disk lost half of what is kept: it is drawn again, and not handed out.
    (kept,) = (tmp_path / "cache").rglob("poses")
    kept.write_bytes(drawn[:1000])
    assert "baked before" not in bake(tmp_path, *order) and poses.read_bytes() == kept.read_bytes() == drawn

    server = start("faces", env={"VISAVIS_AVATARS_DIR": str(poses.parent)}).first_start().ready()
    offered = {one["avatar_key_id"]: one for one in server.call("GET", "/v1/ext/avatars?limit=100").json()}
    assert offered["zed"]["avatar_name"] == "Zed"
    page = call().open(server.conversation(server.agent(avatar={"avatar_key_id": "zed"})["id"])["join_link"])
    page.join()
    video = page.video()
    assert (video["frameWidth"], video["frameHeight"]) == (192, 128)
