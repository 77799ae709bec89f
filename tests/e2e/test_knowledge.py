"""Knowledge of agents in live calls: a fact of a document is spoken, and search by embeddings works
beside search by words."""

import contextlib
import json
import math
import sqlite3

import pytest

from kit import typed_call
from kit.polling import wait_until
from kit.receivers import MockServer


def make_pdf(*lines):
    """A PDF of one page: a header, objects, their offsets, a trailer."""
    shown = " T* ".join(f"({line}) Tj" for line in lines)
    content = f"BT /F1 14 Tf 18 TL 72 700 Td {shown} ET"
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        (
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R /Resources << "
            "/Font << /F1 5 0 R >> >> >>"
        ),
        f"<< /Length {len(content)} >>\nstream\n{content}\nendstream",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>",
    ]
    file, places = "%PDF-1.4\n", []
    for number, text in enumerate(objects, 1):
        places.append(len(file))
        file += f"{number} 0 obj\n{text}\nendobj\n"
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    return (
        f"{file}xref\n0 6\n0000000000 65535 f \n{table}trailer\n<< /Size 6 /Root 1 0 R "
        f">>\nstartxref\n{len(file)}\n%%EOF\n"
    ).encode()


def test_a_fact_of_a_pdf_is_spoken(server):
    base = server.create_knowledge_base(
        "The museum opens at nine.",
        files={
            "keys.pdf": make_pdf(
                "The lighthouse keeper is called Robert.", "He has forty seven silver keys."
            )
        },
    )
    gone = server.create_knowledge_base("The lighthouse keeper is called Susan.")
    agent = typed_call.create_typed_agent(server, extra={"knowledge_base": [gone, base]})
    assert server.request("DELETE", f"/v1/ext/kb/{gone}").status == 200

    async def work(client):
        await client.ask("How many silver keys does he have?", "forty seven silver keys")
        answer = await client.ask("Who is the lighthouse keeper?", "Robert")
        assert "Susan" not in answer
        # The name is in both replies. The second one must have begun before the call ends.
        await client.wait_for_record_value(
            lambda record: (
                [bool(item["speech_id"]) for item in record["snippets"]["items"]] == [True, True]
            ),
            "a reply of each question",
        )

    record = typed_call.run_call(server, agent, work)
    documents = {
        d["name"]: d["id"] for d in server.request("GET", f"/v1/ext/kb/{base}").json()["documents"]
    }
    items = record["snippets"]["items"]
    used = [item for item in items if item["doc_id"] == documents["keys.pdf"]]
    assert used and all(item["kb_id"] == base for item in items), items
    assert all(
        "Robert" in item["text"] and item["score"] > 0 and item["speech_id"] for item in used
    ), used


class EmbeddingServer(MockServer):
    """An OpenAI-compatible embedding server that knows which words have the same meaning."""

    TOPICS = (
        ("dog", "puppy", "leash", "animals", "pets"),
        ("rain", "umbrella", "weather", "wet"),
        ("soup", "restaurant", "hungry", "lunch"),
    )

    def __init__(self):
        super().__init__()
        self.requests = []
        self.broken = False

    def handle(self, request, body):
        payload = json.loads(body)
        with self.changed:
            self.requests.append(
                {"path": request.path, "key": request.headers.get("authorization"), **payload}
            )
            self.changed.notify_all()
        if self.broken:
            self.reply(request, 500)
            return
        texts = [payload["input"]] if isinstance(payload["input"], str) else payload["input"]
        data = [
            {"object": "embedding", "index": i, "embedding": self.vector(text)}
            for i, text in enumerate(texts)
        ]
        # In any order, as the protocol allows.
        self.reply(
            request,
            200,
            json.dumps(
                {
                    "object": "list",
                    "model": payload["model"],
                    "data": data[::-1],
                    "usage": {"prompt_tokens": 1, "total_tokens": 1},
                }
            ).encode(),
        )

    def vector(self, text):
        counts = [1e-3 + sum(word in text.lower() for word in topic) for topic in self.TOPICS]
        size = math.hypot(*counts)
        return [count / size for count in counts]

    def describe(self):
        return self.requests


TEXTS = {
    "pets": "Every puppy must be on a leash in the whole house.",
    "coats": "Whoever has an umbrella leaves it at the door.",
    "kitchen": "The restaurant has soup at noon.",
}


@pytest.fixture(scope="module")
def embedding_server():
    created = EmbeddingServer()
    yield created
    created.close()


@pytest.fixture(scope="module")
def server_with_embeddings(start_server, embedding_server):
    """A server with embeddings."""
    env = {
        "VISAVIS_KNOWLEDGE_EMBEDDINGS_URL": embedding_server.url + "/v1",
        "VISAVIS_KNOWLEDGE_EMBEDDINGS_MODEL": "meaning-1",
        "VISAVIS_KNOWLEDGE_EMBEDDINGS_TOKEN": "sesame",
    }
    return start_server("knowing", env=env).read_first_start().wait_ready()


def wait_until_stored(server, bases):
    """Waits until the embeddings of each base's document are stored, a moment after they were
    requested."""
    with contextlib.closing(sqlite3.connect(server.data / "visavis.db", timeout=10)) as store:
        query = (
            "SELECT count(*) FROM kb_document WHERE directions <> '' AND kb IN "
            f"({', '.join('?' * len(bases))})"
        )
        wait_until(
            lambda: store.execute(query, bases).fetchone() == (len(bases),),
            lambda: f"the embeddings\n{server.log_tail()}",
            typed_call.TEST_TIMEOUT,
        )


@pytest.mark.long("providers")
def test_embeddings_find_a_document_without_a_shared_word(
    server_with_embeddings, embedding_server, scripted_llm
):
    """A question waits at most 250 ms for its embedding, so this depends on the machine.
    control-api/tests/api/embeddings.rs tests the search."""
    llm_server = scripted_llm(lambda request: ["I have looked."])
    bases = {
        name: server_with_embeddings.create_knowledge_base(text) for name, text in TEXTS.items()
    }
    embedding_server.wait_until(
        lambda: (
            {text for request in embedding_server.requests for text in request["input"]}
            >= set(TEXTS.values())
        ),
        typed_call.TEST_TIMEOUT,
        "the documents' embeddings",
    )
    assert all(
        (request["path"], request["key"], request["model"])
        == ("/v1/embeddings", "Bearer sesame", "meaning-1")
        for request in embedding_server.requests
    )
    agent = typed_call.create_typed_agent(
        server_with_embeddings,
        llm_server=llm_server,
        extra={"knowledge_base": list(bases.values())},
    )

    def first():
        """The name of the first snippet in the model's prompt."""
        prompt = llm_server.requests[-1]["messages"][0]["content"]
        return min((prompt.find(text), name) for name, text in TEXTS.items() if text in prompt)[1]

    async def by_meaning(client):
        await client.ask("May my dog come with me?", "I have looked.")

    wait_until_stored(server_with_embeddings, list(bases.values()))
    record = typed_call.run_call(server_with_embeddings, agent, by_meaning)
    assert record["snippets"]["items"][0]["kb_id"] == bases["pets"] and first() == "pets", record[
        "snippets"
    ]

    async def by_words(client):
        await client.ask("What is at noon in the restaurant?", "I have looked.")

    typed_call.run_call(server_with_embeddings, agent, by_words)
    assert first() == "kitchen"

    # Without the embedding server, the search by words still works.
    embedding_server.broken = True
    record = typed_call.run_call(server_with_embeddings, agent, by_words)
    assert [item["kb_id"] for item in record["snippets"]["items"]] == [bases["kitchen"]], record[
        "snippets"
    ]
