"""The contract as a table of rows (statement, request, answer) in chapters.
`tests/e2e/test_conformance.py` sends the requests to the real binary, on each store.

A row's request uses a key of its chapter's own workspace. The answer is compared as follows:

- For an error (status 400 and above) every byte is part of the contract: a dict is written as
  compact JSON, a text as it is.
- A success must contain what the row says and may contain more. Dicts are compared by their keys
  and lists element by element. The names below stand for any value of their kind.

`keep` takes values out of an answer; `$name` in later rows of the chapter stands for them.
"""

import dataclasses
import json
import re


class Kind:
    """Any value of a kind."""

    def __init__(self, name, fits):
        self.name, self.fits = name, fits

    def __repr__(self):
        return self.name


def _is(pattern):
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


ANY = Kind("ANY", lambda value: value is not None)
TEXT = Kind("TEXT", lambda value: isinstance(value, str))
NUMBER = Kind("NUMBER", lambda value: isinstance(value, (int, float)) and not isinstance(value, bool))
INTEGER = Kind("INTEGER", lambda value: isinstance(value, int) and not isinstance(value, bool))
BOOL = Kind("BOOL", lambda value: isinstance(value, bool))
OBJECT = Kind("OBJECT", lambda value: isinstance(value, dict))
LIST = Kind("LIST", lambda value: isinstance(value, list))
JSON_TEXT = Kind("JSON_TEXT", lambda value: isinstance(value, str) and json.loads(value) is not None)
ID = Kind("ID", _is(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"))
TIME = Kind("TIME", _is(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"))
PICTURE = Kind("PICTURE", _is(r"data:image/(png|webp|jpeg);base64,[A-Za-z0-9+/]+=*"))
SECRET = Kind("SECRET", _is(r"whsec_[A-Za-z0-9+/]{32,}=*"))
JWT = Kind("JWT", _is(r"[\w-]+\.[\w-]+\.[\w-]+"))
EMPTY = Kind("EMPTY", lambda value: value == "")
DETAILS = Kind(
    "DETAILS",
    lambda value: isinstance(value, list) and value and all(set(fault) == {"field", "reason"} for fault in value),
)


def maybe(kind):
    return Kind(f"maybe {kind}", lambda value: value is None or fits(value, kind))


def each(wanted):
    """A list of at least one element, each of which contains `wanted`."""
    return Kind(
        f"each {wanted}",
        lambda value: isinstance(value, list) and bool(value) and all(fits(item, wanted) for item in value),
    )


class has(Kind):
    """A text that contains this part."""

    def __init__(self, part):
        super().__init__(f"has {part!r}", lambda value: isinstance(value, str) and part in value)
        self.part = part


def fits(given, wanted) -> bool:
    """Whether `wanted` is part of `given`."""
    if isinstance(wanted, Kind):
        return wanted.fits(given)
    if isinstance(wanted, dict):
        return isinstance(given, dict) and all(
            name in given and fits(given[name], value) for name, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(given, list) and len(given) == len(wanted) and all(map(fits, given, wanted))
    # In Python, True equals 1.
    return given == wanted and isinstance(given, bool) == isinstance(wanted, bool)


def invalid(*faults):
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
    keep: dict = dataclasses.field(default_factory=dict)
    # Whose key: "key" = the chapter's, "other" = of another workspace, None = none; else the key
    # itself.
    key: str | None = "key"
    # Headers of the request; raw bytes in place of a JSON body; parts of a form (name, file name or
    # None, content).
    headers: dict = dataclasses.field(default_factory=dict)
    raw: object = None
    form: list | None = None
    # Headers of the answer: name → text or Kind.
    heads: dict = dataclasses.field(default_factory=dict)
    # Whether the request is repeated until the answer fits.
    retry: bool = False
    # SQL statements for the store before and after the row.
    sql: tuple = ()
    undo: tuple = ()
    # The name of the resource whose fields the answer shows.
    shows: str | None = None
    # A webhook that must arrive: (key in the chapter's values of the conversation's id, event name,
    # payload).
    hook: tuple | None = None
    # Parts that the answer must not contain.
    never: tuple = ()
    # The part of the long tier that the row belongs to; None = `make test`.
    long: str | None = None


@dataclasses.dataclass
class Chapter:
    name: str
    rows: list
    # Environment of the chapter's own server, which has no models; None = the shared server.
    env: dict | None = None
    # Whether the rows test the store: `make test` runs these on PostgreSQL, too.
    store: bool = False
