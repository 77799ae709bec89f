"""The contract as a table of rows (statement, request, answer) in chapters.
`tests/e2e/test_conformance.py` sends the requests to the real binary, on each store.

A row's request uses a key of its chapter's own workspace. The answer is compared as follows:

- For an error (status 400 and above) every byte is part of the contract: a dict is written as
  compact JSON, a text as it is.
- A success must contain what the row says and may contain more. Dicts are compared by their keys
  and lists element by element. The names below stand for any value of their kind.

`save` takes values out of an answer; `$name` in later rows of the chapter stands for them.
"""

import dataclasses
import json
import re


class Matcher:
    """Any value of a kind."""

    def __init__(self, name, accepts):
        self.name, self.accepts = name, accepts

    def __repr__(self):
        return self.name


def _matches(pattern):
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


ANY = Matcher("ANY", lambda value: value is not None)
TEXT = Matcher("TEXT", lambda value: isinstance(value, str))
NUMBER = Matcher(
    "NUMBER", lambda value: isinstance(value, (int, float)) and not isinstance(value, bool)
)
INTEGER = Matcher("INTEGER", lambda value: isinstance(value, int) and not isinstance(value, bool))
BOOL = Matcher("BOOL", lambda value: isinstance(value, bool))
OBJECT = Matcher("OBJECT", lambda value: isinstance(value, dict))
LIST = Matcher("LIST", lambda value: isinstance(value, list))
JSON_TEXT = Matcher(
    "JSON_TEXT", lambda value: isinstance(value, str) and json.loads(value) is not None
)
ID = Matcher("ID", _matches(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"))
TIME = Matcher("TIME", _matches(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"))
PICTURE = Matcher("PICTURE", _matches(r"data:image/(png|webp|jpeg);base64,[A-Za-z0-9+/]+=*"))
SECRET = Matcher("SECRET", _matches(r"whsec_[A-Za-z0-9+/]{32,}=*"))
JWT = Matcher("JWT", _matches(r"[\w-]+\.[\w-]+\.[\w-]+"))
EMPTY = Matcher("EMPTY", lambda value: value == "")
DETAILS = Matcher(
    "DETAILS",
    lambda value: (
        isinstance(value, list)
        and value
        and all(set(fault) == {"field", "reason"} for fault in value)
    ),
)


def optional(kind):
    return Matcher(f"maybe {kind}", lambda value: value is None or matches(value, kind))


def each_item(wanted):
    """A list of at least one element, each of which contains `wanted`."""
    return Matcher(
        f"each {wanted}",
        lambda value: (
            isinstance(value, list) and bool(value) and all(matches(item, wanted) for item in value)
        ),
    )


class Contains(Matcher):
    """A text that contains this part."""

    def __init__(self, part):
        super().__init__(f"has {part!r}", lambda value: isinstance(value, str) and part in value)
        self.part = part


def matches(given, wanted) -> bool:
    """Whether `wanted` is part of `given`."""
    if isinstance(wanted, Matcher):
        return wanted.accepts(given)
    if isinstance(wanted, dict):
        return isinstance(given, dict) and all(
            name in given and matches(given[name], value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(given, list)
            and len(given) == len(wanted)
            and all(map(matches, given, wanted))
        )
    # In Python, True equals 1.
    return given == wanted and isinstance(given, bool) == isinstance(wanted, bool)


def invalid_body(*faults):
    """The error for an invalid body or query: pairs of field and reason."""
    if not faults:
        return {"error": "Invalid request body"}
    return {
        "error": "Invalid request body",
        "details": [{"field": field, "reason": reason} for field, reason in faults],
    }


UNAUTHORIZED = {"error": "Unauthorized: not a valid authorization api key"}
# An id of nothing that exists.
UNKNOWN_ID = "00000000-0000-4000-8000-000000000000"


@dataclasses.dataclass
class Row:
    # What the contract says, in its words or shorter.
    statement: str
    # Method and path.
    request: str
    body: object = None
    status: int = 200
    answer: object = None
    # Name → where its value stands in the answer: keys and numbers with dots between, "" = all of
    # it.
    save: dict = dataclasses.field(default_factory=dict)
    # Whose key: "key" = the chapter's, "other" = of another workspace, None = none; else the key
    # itself.
    key: str | None = "key"
    # Headers of the request; raw bytes in place of a JSON body; parts of a form (name, file name or
    # None, content).
    headers: dict = dataclasses.field(default_factory=dict)
    raw: object = None
    form: list | None = None
    # Headers of the answer: name → text or Matcher.
    response_headers: dict = dataclasses.field(default_factory=dict)
    # Whether the request is repeated until the answer fits.
    retry: bool = False
    # SQL statements for the store before and after the row.
    sql: tuple = ()
    undo: tuple = ()
    # The name of the resource whose fields the answer shows.
    resource: str | None = None
    # A webhook that must arrive: (key in the chapter's values of the conversation's id, event name,
    # payload).
    webhook: tuple | None = None
    # Parts that the answer must not contain.
    forbidden: tuple = ()
    # The part of the long tier that the row belongs to; None = `make test`.
    long_part: str | None = None


@dataclasses.dataclass
class Chapter:
    name: str
    rows: list
    # Environment of the chapter's own server, which has no models; None = the shared server.
    env: dict | None = None
    # Whether the rows test the store: `make test` runs these on PostgreSQL, too.
    needs_store: bool = False
