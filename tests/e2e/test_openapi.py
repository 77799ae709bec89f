"""Random requests from the API's own document (docs/openapi.json): the server never fails, and
every answer is documented.

`make test` sends a fixed number with a fixed seed. The long tier sends as many as its time allows,
on both stores, with a new seed that it prints.
"""

import json
import os
import pathlib
import random
import re
import subprocess
import sys

import pytest

from kit import stores
from kit.server import OUT, ROOT, worker_file

OPENAPI_FOLDER = pathlib.Path(__file__).parent / "openapi"
SEED = 20261121
#: The number of random requests for each operation in `make test`. Requests for each rule of the
#: document take half a minute, and belong to the long tier.
EXAMPLES = 5
#: Seconds for the requests of each store in the long tier.
TIME_LIMIT = 120
#: Each answer takes a second of CPU time at a low priority.
#: control-api/tests/api/custom_avatars.rs asks a scripted child process instead.
SKIPPED_PATH = "/v2/character/preview"


def test_a_fixed_number_of_random_requests_gets_documented_answers(start_server, tmp_path):
    server = (
        start_server("openapi", data=tmp_path, env={"VISAVIS_STT_POOL": "1"})
        .read_first_start()
        .wait_ready()
    )
    run_schemathesis(
        server,
        tmp_path,
        SEED,
        ["--phases", "fuzzing", "--max-examples", str(EXAMPLES), "--exclude-path", SKIPPED_PATH],
        documented_operations() - 1,
    )


@pytest.mark.long("fuzz")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_random_requests_get_only_documented_answers(request, start_server, tmp_path, kind):
    store = (
        stores.Sqlite()
        if kind == "sqlite"
        else stores.Postgres(request.getfixturevalue("postgres"))
    )
    server = (
        start_server(f"openapi-{kind}", data=tmp_path, env=store.environment(tmp_path))
        .read_first_start()
        .wait_ready()
    )
    seed = int(os.environ.get("VISAVIS_OPENAPI_SEED") or random.randrange(10**8))
    run_schemathesis(
        server, tmp_path, seed, ["--max-time", str(TIME_LIMIT)], documented_operations()
    )


def run_schemathesis(server, folder, seed, extent, operations):
    """Runs schemathesis. Every answer must be documented, and at least this number of operations
    must have been requested."""
    agent = server.request("GET", "/v1/ext/agent").json()[0]["id"]
    conversation = server.create_conversation(agent)
    report = worker_file("openapi", ".txt")
    command = [
        str(pathlib.Path(sys.executable).with_name("schemathesis")),
        "--config-file",
        str(OPENAPI_FOLDER / "schemathesis.toml"),
        "run",
        str(ROOT / "docs" / "openapi.json"),
        "--url",
        server.url,
        "--header",
        f"x-api-key: {server.key}",
        "--header",
        f"Authorization: Bearer {conversation['token']}",
        "--seed",
        str(seed),
        *extent,
        "--request-timeout",
        "60",
        "--continue-on-failure",
        "--no-color",
        "--no-shrink",
        "--generation-database",
        "none",
        "--warnings",
        "off",
    ]
    environment = {**os.environ, "PYTHONPATH": str(OPENAPI_FOLDER), "SCHEMATHESIS_HOOKS": "hooks"}
    OUT.mkdir(parents=True, exist_ok=True)
    with report.open("w") as out:
        done = subprocess.run(
            command,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=environment,
            timeout=900,
            check=False,
        )
    text = report.read_text()
    print(
        f"seed {seed}: VISAVIS_OPENAPI_SEED={seed} repeats it in the long tier; all of it: {report}"
    )
    print(text[-6000:])
    assert server.is_alive(), server.log_tail()
    assert done.returncode == 0, f"schemathesis ended with {done.returncode}"
    tested = re.search(r"Tested: (\d+)", text)
    assert tested and int(tested[1]) == operations, "every operation was requested"


def documented_operations() -> int:
    document = json.loads((ROOT / "docs" / "openapi.json").read_text())
    return sum(len(methods) for methods in document["paths"].values())
