"""What the program prints if it is started wrongly: one sentence on stderr. The exit status is 2,
or 1 if the arguments were right and the start failed."""

import os
import subprocess

import pytest

from kit.server import binary


def run(*arguments, cwd, **env):
    clean = {k: v for k, v in os.environ.items() if not k.startswith("VISAVIS_")}
    return subprocess.run(
        [binary(), *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=cwd,
        env={**clean, **env},
        check=False,
    )


@pytest.mark.parametrize(
    ("line", "env", "status", "message"),
    [
        ("serv", {}, 2, "unrecognized subcommand 'serv'; did you mean 'serve'?"),
        ("keys", {}, 2, "visavis keys needs a command: create, list, revoke"),
        ("keys create", {}, 2, "missing --workspace <NAME>"),
        ("simulate", {}, 2, "missing <FILE>"),
        ("serve --listen here", {}, 2, "invalid value 'here' for '--listen <ADDR:PORT>'"),
        (
            "serve --data /proc/foo",
            {},
            1,
            "the data folder /proc/foo (server.data) cannot be created: No such file or directory",
        ),
        ("keys list", {}, 1, "no Visavis data in /"),
        ("serve", {"VISAVIS_AVATARS_DIR": "nowhere"}, 1, "avatars.dir: nowhere: "),
        ("bake theo --size 129", {}, 2, "--size 129: width and height must be even"),
        ("bake theo --out /dev/full", {}, 2, "--out /dev/full: not a regular file"),
        ("bake theo --out /proc/theo.poses", {}, 1, "/proc/theo.poses: "),
        ("bake nobody", {}, 2, "nobody: unknown avatar"),
        ("serve", {"VISAVIS_LOG": "inof"}, 2, 'VISAVIS_LOG: "inof" is not a log level'),
        (
            "serve",
            {"VISAVIS_SERVER_PUBLIC_URL": "https://"},
            2,
            'VISAVIS_SERVER_PUBLIC_URL: "https://" has no host',
        ),
        ("serve", {"VISAVIS_STT_POOL": "many"}, 2, 'VISAVIS_STT_POOL: "many" is not a number'),
        (
            "serve --config bad.toml",
            {},
            2,
            "bad.toml:3: timeouts.join: -1 is not a number of seconds",
        ),
        ("serve --config broken.toml", {}, 2, "broken.toml:1: "),
        ("serve --config none.toml", {}, 2, "none.toml: "),
    ],
)
def test_an_invalid_command_line_is_rejected(line, env, status, message, tmp_path):
    (tmp_path / "bad.toml").write_text("# limits\n[timeouts]\njoin = -1\n")
    (tmp_path / "broken.toml").write_text("[timeouts\n")
    done = run(*line.split(), cwd=tmp_path, **env)
    sentence = done.stderr.strip()
    assert (done.returncode, done.stdout) == (status, ""), done
    assert sentence.startswith(message) and "\n" not in sentence, sentence
    cause = sentence.rsplit(": ", 1)[-1]
    assert sentence.count(cause) == 1, f"said twice: {sentence}"
