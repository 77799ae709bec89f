"""Google's Gemini: `/v1beta/models/{model}:streamGenerateContent`."""

import json
import re
import uuid

from aiohttp import web

from .fake import Record
from .language_model import LanguageModelFake

#: Fields of a request, and of the settings of the generation. The vendor refuses others.
FIELDS = set(
    "contents systemInstruction tools toolConfig safetySettings generationConfig cachedContent "
    "serviceTier store".split()
)
GENERATION_FIELDS = set(
    "maxOutputTokens temperature topP topK candidateCount stopSequences seed presencePenalty "
    "frequencyPenalty responseMimeType responseSchema responseJsonSchema thinkingConfig "
    "responseModalities speechConfig mediaResolution responseLogprobs logprobs".split()
)
#: Fields of a function, and those of JSON Schema that its parameters may have.
FUNCTION_FIELDS = {"name", "description", "parameters", "parametersJsonSchema", "behavior"}
SCHEMA_FIELDS = set(
    "type format title description nullable enum maxItems minItems properties required "
    "minProperties maxProperties minLength maxLength pattern example anyOf propertyOrdering "
    "default items minimum maximum".split()
)
#: How long a model of each generation may think.
THINKING_FIELDS = {"2": "thinkingBudget", "3": "thinkingLevel"}


class GeminiFake(LanguageModelFake):
    provider = "google"
    vendor = "Google"
    key_header = ("x-goog-api-key", "")
    wrong_key_status = 400

    def add_routes(self, router):
        router.add_post("/v1beta/models/{model:[^:/]+}:streamGenerateContent", self._generate)
        router.add_get("/v1beta/models", self._models)

    async def _generate(self, request: web.Request):
        return await self.stream(request, self._events)

    async def _models(self, request: web.Request):
        methods = ["generateContent", "countTokens"]
        model = {"name": "models/gemini-2.5-flash", "supportedGenerationMethods": methods}
        return self.answer_list(request, {"models": [model]})

    def messages(self) -> list[Record]:
        """The requests for an answer."""
        return [one for one in self.records if one.path.endswith(":streamGenerateContent")]

    def wants_stream(self, record: Record) -> bool:
        return record.query == {"alt": "sse"}

    def has_model(self, record: Record) -> bool:
        return True

    def check(self, record: Record):
        body = record.body
        settings = body.get("generationConfig") or {}
        if unknown := (names(body) - FIELDS) | (names(settings) - GENERATION_FIELDS):
            self.violate(f"unknown fields: {unknown}")
        model = model_of(record)
        thinking = settings.get("thinkingConfig") or {}
        allowed = THINKING_FIELDS.get(model.removeprefix("gemini-")[:1])
        if model.startswith("gemini-") and names(thinking) - {allowed, "includeThoughts"}:
            self.violate(f"{model} does not take {thinking}")
        roles = [content.get("role", "user") for content in body.get("contents", [])]
        if not roles or roles[-1] != "user" or set(roles) - {"user", "model"}:
            self.violate(f"the last content is not the user's: {roles}")
        for content in [*body.get("contents", []), body.get("systemInstruction")]:
            parts = (content or {}).get("parts")
            if content is not None and (not parts or any(part == {"text": ""} for part in parts)):
                self.violate(f"an empty content: {content}")
        for tool in body.get("tools", []):
            for function in tool.get("functionDeclarations", []):
                self._check_function(function)

    def _check_function(self, function: dict):
        if names(function) - FUNCTION_FIELDS or not function.get("name"):
            self.violate(f"no function: {function}")
        if "parameters" in function:
            if not function["parameters"].get("properties"):
                self.violate(f"an object without properties: {function}")
            self._check_schema(function["parameters"])

    def _check_schema(self, schema: dict):
        if unknown := names(schema) - SCHEMA_FIELDS:
            self.violate(f"unknown fields of a schema: {unknown}")
        for inner in [*schema.get("properties", {}).values(), *schema.get("anyOf", [])]:
            self._check_schema(inner)
        if "items" in schema:
            self._check_schema(schema["items"])

    def refusal_body(self, status: int):
        errors = {
            400: ("INVALID_ARGUMENT", "API key not valid. Please pass a valid API key."),
            401: ("UNAUTHENTICATED", "Request had invalid authentication credentials."),
            402: ("FAILED_PRECONDITION", "The account has no credit left."),
            403: ("PERMISSION_DENIED", "Permission denied."),
            429: ("RESOURCE_EXHAUSTED", "You exceeded your current quota."),
            503: ("UNAVAILABLE", "The model is overloaded. Please try again later."),
        }
        name, words = errors.get(status, ("INTERNAL", "An internal error has occurred."))
        error = {"code": status, "message": words, "status": name}
        if status == 400:
            kind = "type.googleapis.com/google.rpc.ErrorInfo"
            error["details"] = [{"@type": kind, "reason": "API_KEY_INVALID"}]
        return {"error": error}, {}

    async def _events(self, record: Record, body: dict):
        about = {"modelVersion": model_of(record), "responseId": uuid.uuid4().hex}

        def event(parts: list[dict], count: int, **fields) -> str:
            candidate = {"content": {"parts": parts, "role": "model"}, "index": 0, **fields}
            usage = {
                "promptTokenCount": 20,
                "candidatesTokenCount": count,
                "totalTokenCount": 20 + count,
            }
            chunk = {"candidates": [candidate], "usageMetadata": usage} | about
            return f"data: {json.dumps(chunk)}\r\n\r\n"

        if record.fault and record.fault.kind == "failed_in_band":
            yield f"data: {json.dumps(self.refusal_body(503)[0])}\r\n\r\n"
            return
        count = 0
        async for word in self.words(record, self.answer(last_words(body))):
            count += 1
            yield event([{"text": word}], count)
        if record.fault and record.fault.kind == "no_end":
            return
        # There is no end mark: the reason is in the last part.
        yield event([{"text": ""}], count, finishReason="STOP")


def names(message: dict) -> set[str]:
    """The names of the fields. The vendor accepts `thinking_budget` for `thinkingBudget`."""
    return {re.sub("_([a-z])", lambda found: found[1].upper(), name) for name in message}


def model_of(record: Record) -> str:
    return record.path.rsplit("/", 1)[1].split(":")[0]


def last_words(body: dict) -> str:
    """The last text of the user."""
    texts = [part["text"] for part in body["contents"][-1]["parts"] if "text" in part]
    return texts[-1] if texts else ""
