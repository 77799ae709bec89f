"""Random requests made from the API's own document (docs/openapi.json), on both stores: no failure of the server, no answer that the
document does not tell."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from kit import stores
from kit.server import OUT, ROOT

HERE = pathlib.Path(__file__).parent / "openapi"
# Seconds for the requests of each store; what they find with a seed, they find again with it.
BUDGET = 45
SEED = 20261121


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_random_requests_get_only_documented_answers(request, start, tmp_path, kind):
    store = stores.Sqlite() if kind == "sqlite" else stores.Postgres(request.getfixturevalue("postgres"))
    server = start(f"openapi-{kind}", data=tmp_path, env=store.environment(tmp_path)).first_start().ready()
    agent = server.call("GET", "/v1/ext/agent").json()[0]["id"]
    conversation = server.conversation(agent)
    seed = int(os.environ.get("VISAVIS_OPENAPI_SEED", SEED))
    report = OUT / f"openapi-{kind}.txt"
    command = [
        str(pathlib.Path(sys.executable).with_name("schemathesis")), "--config-file", str(HERE / "schemathesis.toml"), "run", str(ROOT / "docs" / "openapi.json"), "--url", server.url,
        "--header", f"x-api-key: {server.key}", "--header", f"Authorization: Bearer {conversation['token']}",
        "--seed", str(seed), "--max-time", str(BUDGET), "--request-timeout", "20", "--continue-on-failure", "--no-color", "--no-shrink",
        "--generation-database", "none", "--warnings", "off",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(HERE), "SCHEMATHESIS_HOOKS": "hooks"}
    with report.open("w") as out:
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, cwd=tmp_path, env=environment, timeout=BUDGET * 4)
    told = report.read_text()
    print(f"seed {seed}: VISAVIS_OPENAPI_SEED={seed} repeats it; all of it: {report}")
    print(told[-6000:])
    assert server.alive(), server.tail()
    assert done.returncode == 0, f"schemathesis ended with {done.returncode}"
    tested = re.search(r"Tested: (\d+)", told)
    assert tested and int(tested[1]) == told_operations(), "every operation was asked"


def told_operations() -> int:
    document = json.loads((ROOT / "docs" / "openapi.json").read_text())
    return sum(len(methods) for methods in document["paths"].values())
