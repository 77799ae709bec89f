"""Runs the contract, row by row (`conformance/`), against the release binary on SQLite and on
PostgreSQL. Also checks which credentials each route accepts.

`make test` runs every row on SQLite, and on PostgreSQL the chapters that test the store. The long
tier runs every row on PostgreSQL.
"""

import base64
import datetime
import http.client
import json
import os
import re
import subprocess
import uuid

import pytest

from conformance import (
    UNAUTHORIZED,
    UNKNOWN_ID,
    Contains,
    Matcher,
    agents,
    conversations,
    interface,
    matches,
    protocol,
    resources,
    safety,
)
from conformance.resources import FACE_PHOTO
from kit import sdp, stores
from kit.polling import attempts, wait_until
from kit.receivers import WebhookReceiver
from kit.server import ROOT, Response, binary

CHAPTERS = [
    chapter
    for module in (agents, resources, conversations, protocol)
    for chapter in module.CHAPTERS
]
TEST_TIMEOUT = 60


@pytest.fixture(scope="session")
def store_runs(request, start_server, tmp_path_factory):
    """Returns the run on a store of this kind, the same one each time."""
    store_runs_by_kind = {}

    def of(kind):
        if kind not in store_runs_by_kind:
            store = (
                stores.Sqlite()
                if kind == "sqlite"
                else stores.Postgres(request.getfixturevalue("postgres"))
            )
            store_runs_by_kind[kind] = StoreRun(
                store, start_server, tmp_path_factory, request.config.getoption("part")
            )
        return store_runs_by_kind[kind]

    yield of
    for store_run in store_runs_by_kind.values():
        for chapter_run in store_run.chapter_runs.values():
            chapter_run.hooks.close()


@pytest.fixture(
    scope="session", params=["sqlite", pytest.param("postgres", marks=pytest.mark.long("store"))]
)
def store_run(request, store_runs):
    return store_runs(request.param)


# --- rows ---


class StoreRun:
    """A store, its servers, and the progress of each chapter."""

    def __init__(self, store, start, folders, part):
        self.store, self.start, self.folders, self.part = store, start, folders, part
        self.servers, self.keys, self.chapter_runs = {}, {}, {}
        self.offer = sdp.make_offer()

    def server(self, env=None):
        env_key = json.dumps(env, sort_keys=True)
        if env_key not in self.servers:
            number = len(self.servers)
            folder = self.folders.mktemp(f"{self.store.name}-{number}")
            store_env = self.store.environment(folder)
            own = {"VISAVIS_MODELS_DIR": str(folder), **env} if env else {}
            server = self.start(
                f"conformance-{self.store.name}-{number}", data=folder, env={**store_env, **own}
            ).read_first_start()
            server.store_env = store_env
            self.servers[env_key] = server
        return self.servers[env_key]

    def fresh_key(self, server):
        """A key in a new workspace, created by the command line beside the running server."""
        command = [
            binary(),
            "keys",
            "create",
            "--workspace",
            uuid.uuid4().hex,
            "--data",
            str(server.data),
        ]
        completed = subprocess.run(
            command,
            env={**os.environ, **server.store_env},
            cwd=server.data,
            check=True,
            capture_output=True,
            text=True,
            timeout=20,
        )
        assert re.fullmatch(r"vv_[\w-]{43}\n", completed.stdout), completed.stdout
        return completed.stdout.strip()

    def chapter_run(self, chapter):
        if chapter.name not in self.chapter_runs:
            self.chapter_runs[chapter.name] = ChapterRun(self, chapter)
        return self.chapter_runs[chapter.name]


class ChapterRun:
    """A chapter on a server: its values, and the outcomes of its rows."""

    def __init__(self, store_run, chapter):
        self.store_run, self.chapter = store_run, chapter
        self.server = server = store_run.server(chapter.env)
        self.hooks = WebhookReceiver()
        day = datetime.datetime.now(datetime.UTC).date()
        self.values = {
            "key": store_run.fresh_key(server),
            "other": store_run.fresh_key(server),
            "base": server.url,
            "hook": self.hooks.url,
            "nobody": UNKNOWN_ID,
            "face": server.request("GET", "/v1/ext/avatars").json()[0]["avatar_key_id"],
            "today": day.isoformat(),
            "tomorrow": (day + datetime.timedelta(days=1)).isoformat(),
            "offer": store_run.offer,
            "no_opus": re.sub(
                "opus/48000/2", "other/48000/2", store_run.offer, flags=re.IGNORECASE
            ),
        }
        self.outcomes = []

    def run_up_to(self, number):
        """Runs the rows up to this one, each once. Returns the outcome of this one: None or what is
        wrong."""
        while len(self.outcomes) <= number:
            row = self.chapter.rows[len(self.outcomes)]
            if row.long_part and self.store_run.part not in (row.long_part, "all"):
                self.outcomes.append("this row belongs to the long tier")
                continue
            try:
                self.outcomes.append(self.run_row(row))
            except (
                Exception
            ) as error:  # it belongs to its own row, not to the row that pytest runs now
                self.outcomes.append(f"{type(error).__name__}: {error}")
        return self.outcomes[number]

    def substitute(self, value):
        """`value` with the names of values replaced."""
        if isinstance(value, str):
            if value.startswith("$") and value[1:] in self.values:
                return self.values[value[1:]]
            return re.sub(r"\$([a-z]\w*)", lambda m: str(self.values.get(m[1], m[0])), value)
        if isinstance(value, dict):
            return {self.substitute(k): self.substitute(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.substitute(item) for item in value]
        if isinstance(value, Contains):
            return Contains(self.substitute(value.part))
        return value

    def run_row(self, row):
        if row.request.startswith("POST /v1/ext/apikey") and "$soon" in json.dumps(row.body):
            expiry = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=3)
            self.values["soon"] = expiry.isoformat()
        if row.sql:
            self.store_run.store.execute(self.server, row.sql)
        try:
            for _ in attempts(TEST_TIMEOUT if row.retry else 0):
                if not (wrong := self.check_row(row)):
                    break
        finally:
            if row.undo:
                self.store_run.store.execute(self.server, row.undo)
        return wrong

    def send(self, method, path, body, key, headers, raw):
        if headers.get("content-type", "") is not None:
            return self.server.request(
                method, path, body, key=key, headers=headers, raw=raw, timeout=60
            )
        # Without a media type, which the usual client would add.
        connection = http.client.HTTPConnection(self.server.url.removeprefix("http://"), timeout=60)
        connection.request(method, path, raw, {"x-api-key": key})
        answer = connection.getresponse()
        reply = Response(answer.status, answer.headers, answer.read())
        connection.close()
        return reply

    def check_row(self, row):
        """What is wrong with the answer, or None."""
        method, path = self.substitute(row.request).split(" ", 1)
        key = self.values.get(row.key, row.key)
        headers = {name: self.substitute(value) for name, value in row.headers.items()}
        body, raw = self.substitute(row.body), self.substitute(row.raw)
        raw = raw.encode() if isinstance(raw, str) else raw
        if row.form is not None:
            raw, headers["content-type"] = multipart_body(row.form)
        elif raw is not None:
            headers.setdefault("content-type", "application/json")
        reply = self.send(method, path, body, key, headers, raw)
        text = reply.body.decode(errors="replace")
        about = (
            f"{method} {path}\n  came   {reply.status} {text[:1500]}\n  wanted {row.status} "
            f"{row.answer!r}"
        )
        if reply.status != row.status:
            return about
        wanted = self.substitute(row.answer)
        for name, value in row.response_headers.items():
            given, value = reply.headers.get(name), self.substitute(value)
            if not (
                given is None if value is None else given is not None and matches(given, value)
            ):
                return f"{about}\n  header {name}: {given!r} instead of {value!r}"
        for part in row.forbidden:
            if str(self.substitute(part)) in text:
                return f"{about}\n  must not hold {self.substitute(part)!r}"
        is_exact = row.status >= 400 and isinstance(wanted, dict) and not contains_matcher(wanted)
        if is_exact:
            if text != json.dumps(wanted, separators=(",", ":"), ensure_ascii=False):
                return f"{about}\n  not byte for byte"
        elif isinstance(wanted, str):
            if text != wanted:
                return about
        elif wanted is not None and not matches(
            text if isinstance(wanted, Contains) else json.loads(text), wanted
        ):
            return about
        for name, place in row.save.items():
            value = text if not place else json.loads(text)
            for step in place.split(".") if place else []:
                value = value[int(step)] if isinstance(value, list) else value[step]
            self.values[name] = value
            if name == "secret":
                self.hooks.secret = value
        if row.webhook:
            conversation, name, payload = row.webhook
            event = self.hooks.wait_for(self.values[conversation], name, timeout=TEST_TIMEOUT)
            if (event["type"], event["event"]) != ("pipeline", {"name": name, "payload": payload}):
                return f"the webhook says {event}"
        return None


def contains_matcher(value):
    if isinstance(value, dict):
        return any(map(contains_matcher, value.values()))
    if isinstance(value, list):
        return any(map(contains_matcher, value))
    return isinstance(value, Matcher)


def multipart_body(parts):
    edge = uuid.uuid4().hex
    raw = b""
    for name, file, content in parts:
        about = f'name="{name}"' + (f'; filename="{file}"' if file else "")
        raw += (
            f"--{edge}\r\ncontent-disposition: form-data; {about}\r\n\r\n".encode()
            + (content.encode() if isinstance(content, str) else content)
            + b"\r\n"
        )
    return raw + f"--{edge}--\r\n".encode(), f"multipart/form-data; boundary={edge}"


def long_part(kind, chapter, row):
    """The part of the long tier that runs a row on a store of this kind; None if `make test` runs
    it."""
    if row.long_part:
        return row.long_part
    return "store" if kind == "postgres" and not chapter.needs_store else None


def row_parameters():
    for kind in ("sqlite", "postgres"):
        for chapter in CHAPTERS:
            for number, row in enumerate(chapter.rows):
                part = long_part(kind, chapter, row)
                marks = [pytest.mark.long(part)] if part else []
                name = f"{kind}-{chapter.name}, {number}: {row.statement}".replace(
                    "[", "("
                ).replace("]", ")")
                yield pytest.param(kind, chapter, number, marks=marks, id=name)


@pytest.mark.parametrize(("kind", "chapter", "number"), list(row_parameters()))
def test_row(store_runs, kind, chapter, number):
    store_run = store_runs(kind)
    wrong = store_run.chapter_run(chapter).run_up_to(number)
    assert wrong is None, (
        f"{chapter.rows[number].statement}: "
        f"{wrong}\n{store_run.chapter_run(chapter).server.log_tail(8)}"
    )


# --- gaps in the table ---

ALL_ROWS = [row for chapter in CHAPTERS for row in chapter.rows]


def normalize_endpoint(ask):
    """`PUT /v1/ext/agent/$id?x=1` → `PUT /v1/ext/agent/{}`."""
    ask = ask.split("?")[0].replace(UNKNOWN_ID, "{}")
    return re.sub(r"/(\$\w+|x|nonsense)(?=/|$)", "/{}", ask)


def endpoint_template(endpoint):
    return re.sub(r"\{\w+\}", "{}", endpoint)


# Rows for these need a call: conformance/events.py, and
# control-api/tests/api/signaling.rs::the_whip_endpoint_answers_as_the_rfc_says.
CALL_ENDPOINTS = {
    "PATCH /rtc/{conversation_id}/{resource}",
    "DELETE /rtc/{conversation_id}/{resource}",
}


def test_every_endpoint_of_the_interface_has_a_row():
    requested = {normalize_endpoint(row.request) for row in ALL_ROWS}
    missing = [
        endpoint
        for endpoint in interface.ENDPOINTS
        if endpoint not in CALL_ENDPOINTS and endpoint_template(endpoint) not in requested
    ]
    assert not missing, missing
    document = json.loads((ROOT / "docs" / "openapi.json").read_text())
    documented = {
        f"{method.upper()} {path}"
        for path, methods in document["paths"].items()
        for method in methods
    }
    undocumented = [
        endpoint
        for endpoint in interface.ENDPOINTS
        if endpoint_template(endpoint) not in map(endpoint_template, documented)
    ]
    assert not undocumented, undocumented
    succeeded = {normalize_endpoint(row.request) for row in ALL_ROWS if row.status < 400}
    only_refused = [
        e
        for e in interface.ENDPOINTS
        if e not in CALL_ENDPOINTS and endpoint_template(e) not in succeeded
    ]
    # No meeting service is installed.
    assert only_refused == ["POST /v1/ext/externalmeeting"], only_refused


@pytest.mark.parametrize("resource", interface.FIELDS)
def test_every_field_of_the_interface_has_a_row(resource):
    shown = [row.answer for row in ALL_ROWS if row.resource == resource]
    assert shown, f"no row shows {resource}"
    one = shown[0][0] if isinstance(shown[0], list) else shown[0]
    if isinstance(one, Matcher):
        missing = [
            field for field in interface.FIELDS[resource].split() if f"'{field}'" not in one.name
        ]
    else:
        missing = [
            field for field in interface.FIELDS[resource].split() if not has_path(one, field)
        ]
    assert not missing, missing


def has_path(value, field):
    for step in field.split("."):
        name = step.removesuffix("[]")
        if not isinstance(value, dict) or name not in value:
            return False
        value = value[name]
        if step.endswith("[]"):
            value = value[0]
    return True


@pytest.mark.parametrize("status,text", interface.ERRORS)
def test_every_error_of_the_interface_has_a_row(status, text):
    errors = {
        (
            row.status,
            row.answer
            if isinstance(row.answer, str)
            else json.dumps(row.answer, separators=(",", ":")),
        )
        for row in ALL_ROWS
        if row.status >= 400 and not contains_matcher(row.answer)
    }
    assert (status, text) in errors


def test_every_event_of_the_interface_has_a_row():
    accepted = {
        event
        for row in ALL_ROWS
        if row.status == 200 and isinstance(row.body, dict)
        for event in row.body.get("callback_events", [])
    }
    assert set(interface.EVENTS) <= accepted
    contract = (ROOT / "control-api" / "tests" / "api" / "contract.rs").read_text()
    for event, fields in interface.EVENTS.items():
        body = re.search(rf'"{re.escape(event)}",\s*json!\((\{{.*\}})\)', contract)
        assert body and all(f'"{field}"' in body[1] for field in fields), event


@pytest.mark.parametrize("sentence", safety.PROOFS)
def test_each_safety_statement_names_an_existing_test(sentence):
    for proof in safety.PROOFS[sentence]:
        check_exists(proof)


def test_each_statement_without_a_row_names_an_existing_test():
    for proof in interface.COVERED_ELSEWHERE.values():
        if proof:
            check_exists(proof)


def check_exists(proof):
    """Checks that `file::test` exists."""
    file, name = proof.split("::")
    text = (ROOT / file).read_text()
    assert re.search(rf"\b(fn|def) {re.escape(name)}\(", text), f"{proof} is no test"


# --- credentials ---


@pytest.fixture(scope="session")
def credentials(store_run):
    """Every kind of credential, and records of every kind in the workspace of the right key."""
    server = store_run.server()
    right, other = store_run.fresh_key(server), store_run.fresh_key(server)

    def call(method, path, body=None, key=right, **more):
        return server.request(method, path, body, key=key, **more)

    def create(path, body):
        reply = call("POST", path, body)
        assert reply.status < 300, (path, reply)
        return reply.json()

    face = server.request("GET", "/v1/ext/avatars").json()[0]["avatar_key_id"]
    bodies = {
        "agent": {
            "agent_name": "A",
            "agent_system_prompt": "P",
            "avatars": [{"avatar_key_id": face}],
        },
        "guardrail": {"name": "n", "prompt": "p"},
        "mcp": {"name": "n", "request_config": {"url": "http://127.0.0.1:1/"}},
        "tool": {
            "type": "tool.api",
            "schema": {"name": "t"},
            "request_config": {"url": "http://127.0.0.1:1/"},
        },
        "template": {"template_name": "t", "template_system_prompt": "p"},
        "apikey": {"name": "n"},
        "video": {"avatar_key_id": face, "text": "Hello.", "tts": {"provider": "flite"}},
    }
    ids = {name: create(f"/v1/ext/{name}", body)["id"] for name, body in bodies.items()}
    raw, kind = multipart_body(
        [("name", None, "k"), ("description", None, "d"), ("text", None, "x")]
    )
    ids["kb"] = call("POST", "/v1/ext/kb", raw=raw, headers={"content-type": kind}).json()["id"]
    ids["doc"] = call("GET", f"/v1/ext/kb/{ids['kb']}").json()["documents"][0]["id"]
    ids["custom-avatar"] = create(
        "/v2/custom-avatar",
        {"avatar_name": "Z", "gender": "male", "input_image": FACE_PHOTO},
    )["id"]
    conversation, another = (
        create("/v1/ext/conversation", {"agent_id": ids["agent"]}) for _ in range(2)
    )
    ids["conversation"] = conversation["id"]
    revoked = create("/v1/ext/apikey", {"name": "revoked"})
    assert call("DELETE", f"/v1/ext/apikey/{revoked['id']}").status == 200
    expiry = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=3)
    expired = create("/v1/ext/apikey", {"name": "expired", "expires_at": expiry.isoformat()})["key"]
    wait_until(
        lambda: call("GET", "/v1/ext/agent", key=expired).status == 401,
        "the key's expiry",
        TEST_TIMEOUT,
    )
    return {
        "server": server,
        "ids": ids,
        "bodies": bodies,
        "right": right,
        "other": other,
        "wrong": "vv_" + "x" * 43,
        "revoked": revoked["key"],
        "expired": expired,
        "token": conversation["token"],
        "another": another["token"],
    }


def operations():
    document = json.loads((ROOT / "docs" / "openapi.json").read_text())
    for path, methods in document["paths"].items():
        for method, about in methods.items():
            yield pytest.param(method.upper(), path, about, id=f"{method.upper()} {path}")


def id_for_path(path, ids):
    """The id to put into a path, if the path has one of a workspace."""
    found = re.match(r"/v\d/(?:ext/)?(kb/doc|[\w-]+)/\{id\}", path)
    return ids.get(found.group(1).removeprefix("kb/")) if found else None


def body_for(method, path, bodies):
    name = path.split("/")[3] if path.count("/") > 2 else ""
    if method == "PUT" and name in bodies:
        return bodies[name]
    return {"name": "n", "description": "d", "text": "x", "rating": 5, "agent_name": "x"}


@pytest.mark.parametrize(("method", "path", "about"), list(operations()))
def test_access_of_each_operation(store_run, credentials, method, path, about):
    """Every route, requested with each kind of credential."""
    server, ids = credentials["server"], credentials["ids"]
    url = (
        path.replace("{id}", id_for_path(path, ids) or UNKNOWN_ID)
        .replace("{conversation_id}", ids["conversation"])
        .replace("{resource}", "x")
        .replace("{agent_id}", ids["agent"])
    )
    body = (
        body_for(method, path, credentials["bodies"])
        if method in ("POST", "PUT", "PATCH")
        else None
    )
    sdp_body = (
        {"raw": b"v=0", "body": None}
        if path.startswith("/rtc/") and body is not None
        else {"body": body}
    )
    kind = {
        "/rtc/{conversation_id}": "application/sdp",
        "/rtc/{conversation_id}/{resource}": "application/trickle-ice-sdpfrag",
    }.get(path)
    if "multipart/form-data" in about.get("requestBody", {}).get("content", {}):
        raw, kind = multipart_body(
            [("name", None, "k"), ("description", None, "d"), ("text", None, "x")]
        )
        sdp_body = {"raw": raw, "body": None}

    def ask(key=None, bearer=None, query=""):
        headers = {
            **(
                {"content-type": kind}
                if kind and sdp_body["body"] is None and "raw" in sdp_body
                else {}
            ),
            **({"authorization": f"Bearer {bearer}"} if bearer else {}),
        }
        return server.request(method, url + query, key=key, headers=headers, **sdp_body)

    accepted = about["security"]
    if {"key": []} in accepted:
        refused = {
            name: ask(key=credentials[name]) for name in ("wrong", "revoked", "expired", "token")
        }
        refused |= {
            "none": ask(),
            "bearer": ask(bearer=credentials["token"]),
            "another's bearer": ask(bearer=credentials["another"]),
            "in the query": ask(query=f"?token={credentials['token']}"),
        }
        refused |= {"the right key as a bearer": ask(bearer=credentials["right"])}
        for name, reply in refused.items():
            assert (reply.status, reply.json()) == (401, UNAUTHORIZED), (name, reply)
        if id_for_path(path, ids):
            reply = ask(key=credentials["other"])
            assert reply.status == 404, ("another workspace's", reply)
            about_it = server.request(
                "GET", f"/v1/ext/conversation/{ids['conversation']}", key=credentials["right"]
            ).json()
            assert (about_it["status"], about_it["feedback"]) == ("STARTED", None), (
                "another workspace's key did something"
            )
        elif method == "GET":
            reply = ask(key=credentials["other"])
            assert not any(mine in reply.body.decode() for mine in ids.values()), (
                "another workspace's list",
                reply,
            )
        # The right key is accepted. A request that would remove a record names an unknown one
        # instead.
        right = (
            url.replace(id_for_path(path, ids), UNKNOWN_ID)
            if method in ("DELETE", "POST", "PUT", "PATCH") and id_for_path(path, ids)
            else url
        )
        reply = server.request(
            method,
            right,
            key=credentials["right"],
            headers={"content-type": kind} if kind else {},
            **sdp_body,
        )
        assert (
            reply.status not in (401, 403, 405) and reply.status < 500
        ) or path == "/v1/ext/externalmeeting", reply
    elif {"token": []} in accepted and {} not in accepted:
        for name, reply in {
            "none": ask(),
            "the right key": ask(key=credentials["right"]),
            "the right key as a bearer": ask(bearer=credentials["right"]),
            "nonsense": ask(bearer="x.y.z"),
        }.items():
            assert (reply.status, reply.json()) == (401, UNAUTHORIZED), (name, reply)
        if "{conversation_id}" in path:
            assert ask(bearer=credentials["another"]).status == 401, "another conversation's token"
        assert ask(bearer=credentials["token"]).status not in (401, 403, 405)
        assert ask(query=f"?token={credentials['token']}").status not in (401, 403, 405)
    elif path == "/v1/meetings/webhook/{token}":
        # The signature of the service is the authentication, and no key replaces it.
        for key in (None, credentials["right"]):
            assert ask(key=key).status == 401
    else:
        assert ask().status not in (401, 405), "it needs none, or this machine needs none"


def test_a_key_is_stored_as_its_hash_only(store_run):
    server = store_run.server()
    key = store_run.fresh_key(server)
    created = server.request("POST", "/v1/ext/apikey", {"name": "hashed"}, key=key).json()
    stored = store_run.store.dump(server)
    assert created["prefix"].encode() in stored, "the prefix is shown"
    for secret in (key, created["key"], created["key"].removeprefix("vv_")):
        assert secret.encode() not in stored, "the key itself is nowhere"
    modes = {
        file.name: file.stat().st_mode & 0o777
        for file in server.data.iterdir()
        if file.is_file() and file.suffix in (".key", ".db")
    }
    assert len(modes) >= 2 and set(modes.values()) == {0o600}, modes


def test_a_session_token_is_a_jwt_for_one_conversation(store_run, credentials):
    head, claims, tag = credentials["token"].split(".")
    read = [json.loads(base64.urlsafe_b64decode(part + "==")) for part in (head, claims)]
    assert read[0]["typ"] == "JWT" and read[0]["alg"] == "HS256", read
    assert (
        read[1]["sub"] == credentials["ids"]["conversation"]
        and read[1]["exp"] - read[1]["iat"] == 300
    ), read
    assert len(base64.urlsafe_b64decode(tag + "==")) == 32


def test_secrets_reach_no_log_and_no_answer(store_run, credentials):
    """After all rows above, no line of the logs contains a secret."""
    server = store_run.server()
    face = server.request("GET", "/v1/ext/avatars").json()[0]["avatar_key_id"]
    avatar = {
        "avatar_key_id": face,
        "llm": {"provider": "custom", "url": "http://127.0.0.1:1/v1", "token": "sesame-log"},
    }
    created = server.request(
        "POST",
        "/v1/ext/agent",
        {"agent_name": "A", "agent_system_prompt": "P", "avatars": [avatar]},
        key=credentials["right"],
    ).json()
    answer = server.request("GET", f"/v1/ext/agent/{created['id']}", key=credentials["right"])
    assert (
        b"sesame-log" not in answer.body and created["webhook_secret"].encode() not in answer.body
    )
    server.request(
        "POST",
        f"/rtc/{credentials['ids']['conversation']}?token={credentials['token']}",
        key=None,
        raw=b"nonsense",
        headers={"content-type": "application/sdp"},
    )
    log = server.log.read_text()
    for secret in (
        "sesame",
        credentials["right"],
        credentials["token"],
        created["webhook_secret"],
        "token=",
    ):
        assert secret not in log, secret
