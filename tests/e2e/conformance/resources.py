"""The resources that belong to agents: guardrails, tools, MCP configurations, knowledge bases,
avatars; providers, API keys, meetings; videos."""

import base64
import zlib

from kit.server import ROOT

from . import (
    ANY,
    BOOL,
    ID,
    INTEGER,
    NUMBER,
    OBJECT,
    PICTURE,
    SECRET,
    TEXT,
    TIME,
    UNKNOWN_ID,
    Chapter,
    Contains,
    Row,
    each_item,
    invalid_body,
    optional,
)

GUARDRAIL_NOT_FOUND = {"message": "Guardrail not found"}
MINIMAL_GUARDRAIL = {"name": "No advice!", "prompt": "The user asks for advice"}
FULL_GUARDRAIL = {
    "id": "$g1", "key": "no_advice_", "name": "No advice!", "category": "", "prompt": "The user asks for advice", "response_message": "", "callback_url": "",
    "created_at": TIME, "updated_at": TIME,
}  # fmt: skip
GUARDRAIL_UPDATE = {"name": "Other", "prompt": "p", "category": "any, even this", "response_message": "No.", "callback_url": "https://x.example/"}
GUARDRAILS = Chapter("guardrails", [
    Row("POST answers 201", "POST /v1/ext/guardrail", MINIMAL_GUARDRAIL, 201, {"id": ID, "message": "Guardrail created"}, {"g1": "id"}),
    Row("a guardrail's fields; unset strings read empty", "GET /v1/ext/guardrail/$g1", None, 200, FULL_GUARDRAIL, resource="Guardrail"),
    Row("a second one of the same name", "POST /v1/ext/guardrail", MINIMAL_GUARDRAIL, 201, {"id": ID}, {"g2": "id"}),
    Row("has a numeric suffix: the first collision is _2", "GET /v1/ext/guardrail/$g2", None, 200, {"key": "no_advice__2"}),
    Row("a third whose key would be the same", "POST /v1/ext/guardrail", {"name": "no-advice-", "prompt": "x"}, 201, {"id": ID}, {"g3": "id"}),
    Row("is _3", "GET /v1/ext/guardrail/$g3", None, 200, {"key": "no_advice__3"}),
    Row("in another workspace", "POST /v1/ext/guardrail", MINIMAL_GUARDRAIL, 201, {"id": ID}, {"g4": "id"}, key="other"),
    Row("the key is free: unique per workspace", "GET /v1/ext/guardrail/$g4", None, 200, {"key": "no_advice_"}, key="other"),
    Row("each character outside a-z0-9 is one underscore, runs kept", "POST /v1/ext/guardrail", {"name": "A--b  Ärger 2", "prompt": "x"}, 201, {"id": ID}, {"g5": "id"}),
    Row("as here", "GET /v1/ext/guardrail/$g5", None, 200, {"key": "a__b___rger_2"}),
    Row("GET lists all guardrails in the workspace, newest first", "GET /v1/ext/guardrail", None, 200, [{"id": "$g5"}, {"id": "$g3"}, {"id": "$g2"}, FULL_GUARDRAIL], response_headers={"x-total-count": "4"}),
    Row("in pages where asked", "GET /v1/ext/guardrail?perpage=1&offset=1", None, 200, [{"id": "$g3"}], response_headers={"x-total-count": "4"}),
    Row("name is required", "POST /v1/ext/guardrail", {"prompt": "x"}, 400, {"error": "name is required"}),
    Row("prompt is required", "POST /v1/ext/guardrail", {"name": "x"}, 400, {"error": "prompt is required"}),
    Row("callback_url is well formed if present", "POST /v1/ext/guardrail", {**MINIMAL_GUARDRAIL, "callback_url": "x"}, 400, {"error": "callback_url must be a valid http(s) URL"}),
    Row("the empty string is accepted", "POST /v1/ext/guardrail", {**MINIMAL_GUARDRAIL, "callback_url": "", "category": ""}, 201, {"id": ID}),
    Row("a wrong type", "POST /v1/ext/guardrail", {**MINIMAL_GUARDRAIL, "name": 1}, 400, invalid_body(("name", "must be a string"))),
    Row("PUT", "PUT /v1/ext/guardrail/$g1", GUARDRAIL_UPDATE, 200, {"id": "$g1", "message": "Guardrail updated"}),
    Row("replaces every client-settable field; the key never changes", "GET /v1/ext/guardrail/$g1", None, 200, {**GUARDRAIL_UPDATE, "key": "no_advice_"}),
    Row("it is a full replace", "PUT /v1/ext/guardrail/$g1", {"name": "Other", "prompt": "p"}, 200, {"id": "$g1", "message": "Guardrail updated"}),
    Row("not a partial patch", "GET /v1/ext/guardrail/$g1", None, 200, {"category": "", "response_message": "", "callback_url": ""}),
    Row("PUT needs name", "PUT /v1/ext/guardrail/$g1", {"prompt": "x"}, 400, {"error": "name is required"}),
    Row("PUT needs prompt", "PUT /v1/ext/guardrail/$g1", {"name": "x"}, 400, {"error": "prompt is required"}),
    Row("PUT checks callback_url", "PUT /v1/ext/guardrail/$g1", {**MINIMAL_GUARDRAIL, "callback_url": "ftp://x"}, 400, {"error": "callback_url must be a valid http(s) URL"}),
    Row("PUT of none", f"PUT /v1/ext/guardrail/{UNKNOWN_ID}", MINIMAL_GUARDRAIL, 404, GUARDRAIL_NOT_FOUND),
    Row("another workspace's", "PUT /v1/ext/guardrail/$g1", MINIMAL_GUARDRAIL, 404, GUARDRAIL_NOT_FOUND, key="other"),
    Row("DELETE", "DELETE /v1/ext/guardrail/$g1", None, 200, {"id": "$g1", "message": "Guardrail deleted"}),
    Row("DELETE of none", "DELETE /v1/ext/guardrail/$g1", None, 404, GUARDRAIL_NOT_FOUND),
    Row("GET of none", "GET /v1/ext/guardrail/$g1", None, 404, GUARDRAIL_NOT_FOUND),
    Row("an id that is no UUID", "DELETE /v1/ext/guardrail/x", None, 404, GUARDRAIL_NOT_FOUND),
])

TOOL_NOT_FOUND = {"message": "Tool not found"}
TOOL = {
    "type": "tool.api",
    "schema": {"type": "function", "name": "weather", "description": "The weather of a city", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}},
    "request_config": {"method": "GET", "url": "https://weather.example/{city}", "headers": {"Authorization": "Bearer sesame-4"}},
    "event_messages": {"on_start": {"message": "One moment."}, "on_success": {"message": "Here it is."}, "on_error": {"message": "That failed."}, "on_delay": {"delay": 3, "message": "Still looking."}},
}  # fmt: skip
FULL_TOOL = {**TOOL, "id": "$tool", "request_config": {**TOOL["request_config"], "headers": {"Authorization": "***"}}, "created_at": TIME, "updated_at": TIME}


def tool_with(**fields):
    return {**TOOL, **fields}


TOOLS = Chapter("tools", [
    Row("POST answers 201", "POST /v1/ext/tool", TOOL, 201, {"id": ID, "message": "Tool details created successfully"}, {"tool": "id"}),
    Row("a tool's fields, header values as stars", "GET /v1/ext/tool/$tool", None, 200, FULL_TOOL, resource="Tool", forbidden=("sesame",)),
    Row("GET lists tools", "GET /v1/ext/tool", None, 200, [FULL_TOOL], response_headers={"x-total-count": "1"}, forbidden=("sesame",)),
    Row("type is required", "POST /v1/ext/tool", {name: value for name, value in TOOL.items() if name != "type"}, 400, invalid_body(("type", "is required"))),
    Row("and so it is where a tool is replaced", "PUT /v1/ext/tool/$tool", tool_with(type=None), 400, invalid_body(("type", "is required"))),
    Row("schema is required", "POST /v1/ext/tool", {"type": "tool.api", "request_config": {"url": "http://x.example/"}}, 400, invalid_body(("schema", "is required"))),
    Row("its name is required", "POST /v1/ext/tool", tool_with(schema={}), 400, invalid_body(("schema.name", "is required"))),
    Row("other types are 400", "POST /v1/ext/tool", tool_with(type="tool.magic"), 400, invalid_body(("type", "must be one of tool.api, tool.client"))),
    *[Row(f"method {method}", "POST /v1/ext/tool", tool_with(request_config={"method": method, "url": "http://x.example/"}), 201, {"id": ID}) for method in ("GET", "POST", "PUT", "PATCH", "DELETE")],
    Row("other methods are 400", "POST /v1/ext/tool", tool_with(request_config={"method": "TRACE", "url": "http://x.example/"}), 400, invalid_body(("request_config.method", "must be one of GET, POST, PUT, PATCH, DELETE"))),
    Row("a {param} is never part of the host", "POST /v1/ext/tool", tool_with(request_config={"url": "http://{host}/"}), 400, invalid_body(("request_config.url", "must be a valid http(s) URL without a parameter in its host"))),
    Row("http(s) only", "POST /v1/ext/tool", tool_with(request_config={"url": "file:///etc/passwd"}), 400, invalid_body(("request_config.url", "must be a valid http(s) URL without a parameter in its host"))),
    Row("header values without CR or LF", "POST /v1/ext/tool", tool_with(request_config={"url": "http://x.example/", "headers": {"A": "b\r\nC: d"}}), 400, invalid_body(("request_config.headers.A", "is not a valid header"))),
    Row("tool.client runs in the browser: no request", "POST /v1/ext/tool", {"type": "tool.client", "schema": {"name": "look"}}, 201, {"id": ID}, {"client": "id"}),
    Row("as here", "GET /v1/ext/tool/$client", None, 200, {"type": "tool.client", "request_config": None, "schema": {"name": "look", "type": "function", "description": "", "parameters": {"type": "object", "properties": {}, "required": []}}}),
    Row("PUT; *** keeps a header's value, and stores nothing where nothing is stored", "PUT /v1/ext/tool/$tool", tool_with(request_config={"method": "POST", "url": "https://x.example/", "headers": {"Authorization": "***", "Other": "***"}}), 200, {"id": "$tool", "message": "Tool details updated successfully"}),
    Row("as here", "GET /v1/ext/tool/$tool", None, 200, {"request_config": {"method": "POST", "url": "https://x.example/", "headers": {"Authorization": "***"}}}, forbidden=("Other",)),
    Row("PUT with a body at fault, of none", f"PUT /v1/ext/tool/{UNKNOWN_ID}", {"type": "tool.api", "request_config": {"url": "http://x.example/"}}, 400, invalid_body(("schema", "is required"))),
    Row("PUT of none", f"PUT /v1/ext/tool/{UNKNOWN_ID}", TOOL, 404, TOOL_NOT_FOUND),
    Row("another workspace's", "GET /v1/ext/tool/$tool", None, 404, TOOL_NOT_FOUND, key="other"),
    Row("DELETE", "DELETE /v1/ext/tool/$tool", None, 200, {"id": "$tool", "message": "Tool details deleted successfully"}),
    Row("DELETE of none", "DELETE /v1/ext/tool/$tool", None, 404, TOOL_NOT_FOUND),
    Row("GET of none", "GET /v1/ext/tool/$tool", None, 404, TOOL_NOT_FOUND),
    Row("an id that is no UUID", "GET /v1/ext/tool/x", None, 404, TOOL_NOT_FOUND),
])

MCP_NOT_FOUND = {"error": "MCP not found"}
MCP_SERVER = {"name": "Files", "description": "d", "type": "shttp/sse", "request_config": {"url": "https://mcp.example/", "headers": {"Authorization": "sesame-5"}}}
FULL_MCP_SERVER = {**MCP_SERVER, "id": "$mcp", "request_config": {"url": "https://mcp.example/", "headers": {"Authorization": "***"}}, "created_at": TIME, "updated_at": TIME}
MCP = Chapter("MCP configurations", [
    Row("POST answers 200 and these fields", "POST /v1/ext/mcp", MCP_SERVER, 200, {"id": ID, "name": "Files", "description": "d", "type": "shttp/sse", "created_at": TIME}, {"mcp": "id"}),
    Row("a configuration's fields, header values as stars", "GET /v1/ext/mcp/$mcp", None, 200, FULL_MCP_SERVER, resource="MCP configuration", forbidden=("sesame",)),
    Row("GET lists them", "GET /v1/ext/mcp", None, 200, [FULL_MCP_SERVER], response_headers={"x-total-count": "1"}, forbidden=("sesame",)),
    *[Row(f"type {kind}", "POST /v1/ext/mcp", {**MCP_SERVER, "type": kind}, 200, {"type": kind}) for kind in ("shttp", "sse")],
    Row("the type's default", "POST /v1/ext/mcp", {"name": "x", "request_config": {"url": "http://x.example/"}}, 200, {"type": "shttp/sse", "description": ""}),
    Row("other types are 400", "POST /v1/ext/mcp", {**MCP_SERVER, "type": "stdio"}, 400, invalid_body(("type", "must be one of shttp/sse, shttp, sse"))),
    Row("name is required", "POST /v1/ext/mcp", {"request_config": {"url": "http://x.example/"}}, 400, invalid_body(("name", "is required"))),
    Row("the address must be well formed", "POST /v1/ext/mcp", {"name": "x", "request_config": {"url": "x"}}, 400, invalid_body(("request_config.url", "must be a valid http(s) URL"))),
    Row("PUT answers the record", "PUT /v1/ext/mcp/$mcp", {**MCP_SERVER, "name": "New", "request_config": {"url": "https://mcp.example/", "headers": {"Authorization": "***"}}}, 200, {**FULL_MCP_SERVER, "name": "New"}, forbidden=("sesame",)),
    Row("PUT of none", f"PUT /v1/ext/mcp/{UNKNOWN_ID}", MCP_SERVER, 404, MCP_NOT_FOUND),
    Row("another workspace's", "GET /v1/ext/mcp/$mcp", None, 404, MCP_NOT_FOUND, key="other"),
    Row("DELETE answers 204", "DELETE /v1/ext/mcp/$mcp", None, 204, ""),
    Row("DELETE of none", "DELETE /v1/ext/mcp/$mcp", None, 404, MCP_NOT_FOUND),
    Row("MCP does not exist", "GET /v1/ext/mcp/$mcp", None, 404, MCP_NOT_FOUND),
    Row("an id that is no UUID", "GET /v1/ext/mcp/x", None, 404, MCP_NOT_FOUND),
])

def decompression_bomb():
    """A PDF of a few hundred kB whose one page expands to more than the reader's memory."""
    squeeze = zlib.compressobj(9)
    start = squeeze.compress(bytes(1 << 20)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    # After a full flush the same bytes mean the same again.
    again = squeeze.compress(bytes(8 << 20)) + squeeze.flush(zlib.Z_FULL_FLUSH)
    stream = start + again * 200
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Kids[3 0 R]/Count 1>>", b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Resources<<>>/Contents 4 0 R>>",
        b"<</Length %d/Filter/FlateDecode>>stream\n%s\nendstream" % (len(stream), stream),
    ]  # fmt: skip
    pdf, places = b"%PDF-1.4\n", []
    for number, body in enumerate(objects, 1):
        places.append(len(pdf))
        pdf += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % at for at in places)
    return pdf + b"xref\n0 5\n0000000000 65535 f \n%strailer\n<</Size 5/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF\n" % (table, len(pdf))


KB_NOT_FOUND = {"message": "Knowledge Base not found"}
DOCUMENT_NOT_FOUND = {"message": "Document not found"}
NAME_FIELDS = [("name", None, "Shop"), ("description", None, "About the shop")]
KB_CREATED = {"id": ID, "message": "Knowledge Base created successfully"}
KB = {"id": "$kb", "name": "Shop", "description": "About the shop", "no_of_rec": 1, "created_at": TIME, "updated_at": TIME}
HTML_DOCUMENT = "<html><body><h1>Hours</h1><p>Nine to five.</p></body></html>"
KNOWLEDGE = Chapter("knowledge bases", [
    Row("POST is multipart: name, description, input, text", "POST /v1/ext/kb", None, 200, KB_CREATED, {"kb": "id"}, form=[*NAME_FIELDS, ("text", None, "The shop opens at nine.")]),
    Row("GET tells the base and its documents", "GET /v1/ext/kb/$kb", None, 200, {"knowledge_base": KB, "documents": [{"id": ID, "name": TEXT, "type": TEXT, "status": "ready", "error_message": None}]}, resource="Knowledge base", retry=True),
    Row("GET /v1/ext/kbs", "GET /v1/ext/kbs", None, 200, [KB], response_headers={"x-total-count": "1"}),
    Row("input is repeatable, of these types", "POST /v1/ext/kb", None, 200, KB_CREATED, {"files": "id"}, form=[*NAME_FIELDS, ("input", "a.txt", "Text."), ("input", "b.md", "# Words"), ("input", "c.json", '{"hours": "nine to five"}'), ("input", "d.csv", "day,hours\nMonday,nine\n"), ("input", "e.html", HTML_DOCUMENT), ("input", "f.pdf", "no PDF at all"), ("input", "g.docx", "no DOCX at all")]),
    Row("indexing ends in ready or error; what is broken says so", "GET /v1/ext/kb/$files", None, 200, {"knowledge_base": {"no_of_rec": 7}, "documents": [
        *[{"name": name, "type": name.split(".")[1], "status": "ready", "error_message": None} for name in ("a.txt", "b.md", "c.json", "d.csv", "e.html")],
        {"name": "f.pdf", "status": "error", "error_message": TEXT}, {"name": "g.docx", "status": "error", "error_message": TEXT}]}, retry=True),
    Row("a document that takes too much memory", "POST /v1/ext/kb", None, 200, KB_CREATED, {"bomb": "id"}, form=[*NAME_FIELDS, ("input", "bomb.pdf", decompression_bomb()), ("input", "f.json", '{"a": "b"}')]),
    Row("costs only itself", "GET /v1/ext/kb/$bomb", None, 200, {"documents": [{"status": "error", "error_message": "reading the document took too much time or memory"}, {"status": "ready"}]}, retry=True),
    Row("name is required", "POST /v1/ext/kb", None, 400, invalid_body(("name", "is required")), form=[NAME_FIELDS[1], ("text", None, "x")]),
    Row("description is required", "POST /v1/ext/kb", None, 400, invalid_body(("description", "is required")), form=[NAME_FIELDS[0], ("text", None, "x")]),
    Row("other types are 400", "POST /v1/ext/kb", None, 400, invalid_body(("input", "must be a file of type pdf, docx, txt, md, json, html or csv")), form=[*NAME_FIELDS, ("input", "x.exe", "MZ")]),
    Row("a document over 10 MB is 400", "POST /v1/ext/kb", None, 400, invalid_body(("input", "a document may hold at most 10 MB")), form=[*NAME_FIELDS, ("input", "x.txt", "x" * (10 * 1024 * 1024 + 1))]),
    Row("a create over 100 MB is 400", "POST /v1/ext/kb", None, 400, invalid_body(("input", "one request may hold at most 100 MB")), form=[*NAME_FIELDS, *[("input", f"{i}.txt", "x" * (10 * 1024 * 1024)) for i in range(11)]]),
    Row("a body of another media type is 415", "POST /v1/ext/kb", {"name": "x"}, 415, {"error": "Content-Type must be multipart/form-data"}),
    Row("a file's name is no path", "POST /v1/ext/kb/$kb/doc", None, 200, {"added": 1, "doc_id": ID, "message": "Content added successfully to existing Knowledge Base"}, {"doc": "doc_id"}, form=[("input", "../../etc/passwd.txt", "Root.")]),
    Row("only its last part is shown", "GET /v1/ext/kb/$kb", None, 200, {"knowledge_base": {"no_of_rec": 2}, "documents": [{}, {"id": "$doc", "name": "passwd.txt", "type": "txt"}]}),
    Row("/doc takes text too", "POST /v1/ext/kb/$kb/doc", None, 200, {"added": 1, "doc_id": ID}, form=[("text", None, "It closes at five.")]),
    Row("/doc needs something", "POST /v1/ext/kb/$kb/doc", None, 400, invalid_body(("input", "is required")), form=[("other", None, "x")]),
    Row("/doc of none", f"POST /v1/ext/kb/{UNKNOWN_ID}/doc", None, 404, KB_NOT_FOUND, form=[("text", None, "x")]),
    Row("DELETE of a document", "DELETE /v1/ext/kb/doc/$doc", None, 200, {"id": "$doc", "message": "Document deleted successfully"}),
    Row("DELETE of none", "DELETE /v1/ext/kb/doc/$doc", None, 404, DOCUMENT_NOT_FOUND),
    Row("an id that is no UUID", "DELETE /v1/ext/kb/doc/x", None, 404, DOCUMENT_NOT_FOUND),
    Row("no_of_rec counts documents", "GET /v1/ext/kb/$kb", None, 200, {"knowledge_base": {"no_of_rec": 2}}),
    Row("PUT", "PUT /v1/ext/kb/$kb", {"name": "New", "description": "Other"}, 200, {"id": "$kb", "message": "Knowledge base updated successfully"}),
    Row("renames", "GET /v1/ext/kb/$kb", None, 200, {"knowledge_base": {"name": "New", "description": "Other"}}),
    Row("PUT needs both", "PUT /v1/ext/kb/$kb", {"name": "x"}, 400, invalid_body(("description", "is required"))),
    Row("PUT of none", f"PUT /v1/ext/kb/{UNKNOWN_ID}", {"name": "x", "description": "y"}, 404, KB_NOT_FOUND),
    Row("another workspace's", "GET /v1/ext/kb/$kb", None, 404, KB_NOT_FOUND, key="other"),
    Row("another workspace's", "DELETE /v1/ext/kb/$kb", None, 404, KB_NOT_FOUND, key="other"),
    Row("DELETE", "DELETE /v1/ext/kb/$kb", None, 200, {"id": "$kb", "message": "Knowledge base deleted successfully"}),
    Row("Knowledge base does not exist", "DELETE /v1/ext/kb/$kb", None, 404, KB_NOT_FOUND),
    Row("GET of none", "GET /v1/ext/kb/$kb", None, 404, KB_NOT_FOUND),
    Row("an id that is no UUID", "DELETE /v1/ext/kb/x", None, 404, KB_NOT_FOUND),
])



def data_uri(kind, content):
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


#: A picture in which a face is found, and one in which none is.
FACE_FILE = (ROOT / "assets" / "avatars" / "mei.512.webp").read_bytes()
FACE_PHOTO = data_uri("image/webp", FACE_FILE)
EMPTY_PHOTO = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PHOTO_AVATAR = {"avatar_name": "Zoe", "gender": "female", "input_image": FACE_PHOTO, "is_private": True, "consent": True}
AVATAR_NOT_FOUND = {"message": "Custom avatar not found"}
AVATAR_JOB = {
    "id": ID, "job_id": TEXT, "avatar_key_id": TEXT, "avatar_id": TEXT, "avatar_name": "Zoe", "gender": "female", "category": TEXT, "status": "QUEUED", "progress": 0, "is_private": True,
    "character": None, "rest": None, "voice": None, "output": optional(ANY), "error": optional(TEXT), "consent_at": TIME, "has_source": True, "created_at": TIME, "updated_at": TIME,
}  # fmt: skip


def picture_data_uri(kind, content):
    return {**PHOTO_AVATAR, "input_image": data_uri(kind, content)}


CHARACTER_AVATAR = {"avatar_name": "Drawn", "gender": "male", "voice": "awb", "character": {"age": 0.6, "hair": {"style": "buzz"}, "background": ["#ffffff", "#000000"]}, "rest": {"smile": 0.25}}

AVATARS = Chapter("avatars", [
    Row("GET /v1/ext/avatars: array of Stock avatar", "GET /v1/ext/avatars", None, 200, each_item({"avatar_key_id": TEXT, "avatar_name": TEXT, "gender": TEXT, "display_picture": PICTURE}), {"first": "0"}, resource="Stock avatar"),
    Row("in pages where asked", "GET /v1/ext/avatars?perpage=1", None, 200, ["$first"]),
    Row("POST /v2/custom-avatar answers the record, QUEUED", "POST /v2/custom-avatar", PHOTO_AVATAR, 200, AVATAR_JOB, {"avatar": "id"}, resource="Custom avatar"),
    Row("its state", "GET /v2/custom-avatar/$avatar", None, 200, {**AVATAR_JOB, "status": TEXT, "progress": INTEGER}),
    Row("a photo without a face", "POST /v2/custom-avatar", {**PHOTO_AVATAR, "input_image": EMPTY_PHOTO}, 400, {"error": TEXT, "reason": "no face"}),
    Row("a damaged photo", "POST /v2/custom-avatar", picture_data_uri("image/webp", FACE_FILE[: len(FACE_FILE) // 2]), 400, {"error": Contains("the file may be damaged"), "reason": "not readable"}),
    Row("a preview before it is created", "POST /v2/custom-avatar/photo", {"input_image": FACE_PHOTO, "show": ["aa"]}, 200, {"landmarks": each_item([NUMBER, NUMBER]), "box": each_item(NUMBER), "warnings": each_item(TEXT), "pictures": {"aa": PICTURE}}),
    Row("landmarks name the field that is wrong", "POST /v2/custom-avatar/photo", {"input_image": FACE_PHOTO, "landmarks": {"mouth": {}, "nose": {}, "left_eye": {}, "right_eye": {}}}, 400, invalid_body(("landmarks.mouth.left", "must be [x, y]"))),
    Row("GET /v2/custom-avatars", "GET /v2/custom-avatars?search=zo", None, 200, [{"id": "$avatar"}], response_headers={"x-total-count": "1"}),
    Row("avatar_name is required", "POST /v2/custom-avatar", {**PHOTO_AVATAR, "avatar_name": None}, 400, invalid_body(("avatar_name", "is required"))),
    Row("gender is male or female", "POST /v2/custom-avatar", {**PHOTO_AVATAR, "gender": "other"}, 400, invalid_body(("gender", "must be one of male, female"))),
    Row("input_image is required", "POST /v2/custom-avatar", {"avatar_name": "x", "gender": "male"}, 400, invalid_body(("input_image", "is required"))),
    Row("input_image is a base64 data URI", "POST /v2/custom-avatar", {**PHOTO_AVATAR, "input_image": "https://x.example/a.png"}, 400, invalid_body(("input_image", "must be a base64 data URI"))),
    Row("a damaged PNG", "POST /v2/custom-avatar", picture_data_uri("image/png", b"\x89PNG\r\n\x1a\n...."), 400, {"error": TEXT, "reason": "not readable"}),
    Row("a damaged JPEG", "POST /v2/custom-avatar", picture_data_uri("image/jpeg", b"\xff\xd8\xff\xe0...."), 400, {"error": TEXT, "reason": "not readable"}),
    Row("a damaged WebP", "POST /v2/custom-avatar", picture_data_uri("image/webp", b"RIFF....WEBPVP8 "), 400, {"error": TEXT, "reason": "not readable"}),
    Row("no other pictures", "POST /v2/custom-avatar", picture_data_uri("image/gif", b"GIF89a"), 400, invalid_body(("input_image", "must be PNG, JPEG or WebP"))),
    Row("a small file of very many pixels", "POST /v2/custom-avatar", picture_data_uri("image/png", b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + (100_000).to_bytes(4, "big") * 2 + b"\x08\x02\0\0\0"), 400, invalid_body(("input_image", "must hold at most 40 megapixels"))),
    Row("another workspace's", "GET /v2/custom-avatar/$avatar", None, 404, AVATAR_NOT_FOUND, key="other"),
    Row("DELETE", "DELETE /v2/custom-avatar/$avatar", None, 200, {"id": "$avatar", "message": "Custom avatar deleted successfully"}),
    Row("DELETE of none", "DELETE /v2/custom-avatar/$avatar", None, 404, AVATAR_NOT_FOUND),
    Row("404 when the custom avatar does not exist", "GET /v2/custom-avatar/$avatar", None, 404, AVATAR_NOT_FOUND),
    Row("a character in place of the picture", "POST /v2/custom-avatar", CHARACTER_AVATAR, 200, {**CHARACTER_AVATAR, "status": "QUEUED", "progress": 0, "is_private": False, "output": None, "error": None}, {"drawn": "id"}),
    Row("QUEUED → PROCESSING, and how far it is", "GET /v2/custom-avatar/$drawn", None, 200, {**CHARACTER_AVATAR, "status": "PROCESSING", "progress": INTEGER}, retry=True),
    Row("no agent can have it yet", "POST /v1/ext/agent", {"agent_name": "x", "agent_system_prompt": "y", "avatars": [{"avatar_key_id": "$drawn"}]}, 400, invalid_body(("avatars[0].avatar_key_id", "is not an existing avatar"))),
    Row("it goes while it is drawn", "DELETE /v2/custom-avatar/$drawn", None, 200, {"id": "$drawn"}),
    Row("a setting out of its range", "POST /v2/custom-avatar", {**CHARACTER_AVATAR, "character": {"eyes": {"size": 1.31}}}, 400, invalid_body(("character.eyes.size", "must be between 0.8 and 1.3"))),
    Row("a number that is none", "POST /v2/custom-avatar", {**CHARACTER_AVATAR, "character": {"age": "0.5"}}, 400, invalid_body(("character.age", "must be a number"))),
    Row("an unknown setting", "POST /v2/custom-avatar", {**CHARACTER_AVATAR, "character": {"wings": {"span": 2}}}, 400, invalid_body(("character.wings", "is unknown"))),
    Row("a colour is #rrggbb", "POST /v2/custom-avatar", {**CHARACTER_AVATAR, "character": {"skin": {"colour": "brown"}}}, 400, invalid_body(("character.skin.colour", "must be a colour such as #c0906f"))),
    Row("a word that is none of the choices", "POST /v2/custom-avatar", {**CHARACTER_AVATAR, "character": {"glasses": "monocle"}}, 400, invalid_body(("character.glasses", "must be one of none, square, round, slim"))),
    Row("tables are objects", "POST /v2/custom-avatar", {**CHARACTER_AVATAR, "character": {"hair": 1}}, 400, invalid_body(("character.hair", "must be an object"))),
    Row("all faults at once, the pose's too", "POST /v2/custom-avatar", {**CHARACTER_AVATAR, "character": {"seed": -1}, "rest": {"head": {"yaw": 1e300}}}, 400, invalid_body(("character.seed", "must be a whole number between 0 and 4294967295"), ("rest.head.yaw", "must be between -0.6 and 0.6"))),
    Row("a character and a picture", "POST /v2/custom-avatar", {**CHARACTER_AVATAR, "input_image": PHOTO_AVATAR["input_image"]}, 400, invalid_body(("input_image", "must not come with a character"))),
    Row("a rest with an open mouth or shut eyes", "POST /v2/custom-avatar", {**CHARACTER_AVATAR, "rest": {"mouth": {"jaw": 1}, "eyes": {"lids": 1}}}, 400, invalid_body(("rest.mouth.jaw", "must be 0"), ("rest.eyes.lids", "must be between 0 and 0.4"))),
    Row("what may be set, and people to begin with", "GET /v2/character", None, 200, {"character": each_item({"name": TEXT, "group": TEXT, "kind": TEXT}), "pose": each_item({"name": TEXT, "kind": "slider", "unit": TEXT, "least": NUMBER, "most": NUMBER}), "people": each_item({"id": TEXT, "name": TEXT, "gender": TEXT, "voice": TEXT, "character": OBJECT, "rest": OBJECT}), "visemes": each_item({"name": TEXT, "mouth": OBJECT})}),
    # The server draws it at a low priority and within 20 s. control-api/tests/api/custom_avatars.rs asks the
    # same of a scripted child process.
    Row("a preview is a picture", "POST /v2/character/preview", {"character": CHARACTER_AVATAR["character"], "pose": {"smile": 1}, "size": 64}, 200, Contains("RIFF"), response_headers={"content-type": "image/webp"}, long_part="editor"),
    Row("a preview without a character", "POST /v2/character/preview", {"size": 63}, 400, invalid_body(("character", "is required"), ("size", "must be between 64 and 512"))),
    Row("an image over 9 MiB is 413", "POST /v2/custom-avatar", picture_data_uri("image/png", b"\x89PNG\r\n\x1a\n" + bytes(9 << 20)), 413, {"error": "Request body is too large"}),
    Row("a body over 14 MB is 413", "POST /v2/custom-avatar", {**PHOTO_AVATAR, "input_image": "x" * (14 << 20)}, 413, {"error": "Request body is too large"}),
    Row("an id that is no UUID", "GET /v2/custom-avatar/x", None, 404, AVATAR_NOT_FOUND),
])

KEY_NOT_FOUND = {"message": "API key not found"}
KEYS = Chapter("API keys and providers", [
    Row("POST answers 201: the key, shown once", "POST /v1/ext/apikey", {"name": "CI"}, 201, {"id": ID, "name": "CI", "key": TEXT, "prefix": TEXT}, {"id": "id", "made": "key", "prefix": "prefix"}),
    Row("it opens the workspace of the key that made it", "GET /v1/ext/apikey", None, 200, [{"id": "$id", "name": "CI", "prefix": "$prefix", "created_at": TIME, "expires_at": None}, {"prefix": TEXT}], key="made", forbidden=("$made",)),
    Row("the header's name is case-insensitive", "GET /v1/ext/agent", None, 200, [], key=None, headers={"X-API-KEY": "$made"}),
    Row("a name is required", "POST /v1/ext/apikey", {}, 400, invalid_body(("name", "is required"))),
    Row("expires_at must be in the future", "POST /v1/ext/apikey", {"name": "x", "expires_at": "2020-01-01T00:00:00Z"}, 400, invalid_body(("expires_at", "must be an ISO 8601 time in the future"))),
    Row("a key that expires", "POST /v1/ext/apikey", {"name": "short", "expires_at": "$soon"}, 201, {"id": ID}, {"short": "key", "short_id": "id"}),
    Row("opens nothing afterwards", "GET /v1/ext/agent", None, 401, {"error": "Unauthorized: not a valid authorization api key"}, key="short", retry=True),
    Row("is listed with its end", "GET /v1/ext/apikey?search=short", None, 200, [{"id": "$short_id", "expires_at": TIME}]),
    Row("another workspace does not see the key", "DELETE /v1/ext/apikey/$id", None, 404, KEY_NOT_FOUND, key="other"),
    Row("nor lists it", "GET /v1/ext/apikey", None, 200, [{"name": TEXT}], key="other", forbidden=("$prefix",)),
    Row("DELETE revokes", "DELETE /v1/ext/apikey/$id", None, 200, {"id": "$id", "message": "API key deleted successfully"}),
    Row("at once", "GET /v1/ext/agent", None, 401, {"error": "Unauthorized: not a valid authorization api key"}, key="made"),
    Row("DELETE of none", "DELETE /v1/ext/apikey/$id", None, 404, KEY_NOT_FOUND),
    Row("an id that is no UUID", "DELETE /v1/ext/apikey/x", None, 404, KEY_NOT_FOUND),
    Row("GET /v1/ext/providers", "GET /v1/ext/providers", None, 200, each_item({"display_name": TEXT, "provider": TEXT, "provider_type": TEXT, "model": TEXT, "configured": BOOL, "additional_fields": ANY})),
    *[Row(f"there are providers of {kind}", f"GET /v1/ext/providers?type={kind}", None, 200, each_item({"provider_type": kind})) for kind in ("stt", "llm", "tts")],
    Row("additional_fields are choices", "GET /v1/ext/providers?type=tts&search=built", None, 200, each_item({"configured": BOOL, "additional_fields": each_item({"name": TEXT, "type": "ENUM", "label": TEXT, "items": each_item({"label": TEXT, "value": TEXT}), "default_value": TEXT})})),
], needs_store=True)

SUPPORTED_MEETINGS = "must be a meeting of Google Meet (meet.google.com), Zoom (zoom.us, zoom.com) or Microsoft Teams (teams.microsoft.com, teams.live.com)"
MEETING_REQUEST = {"agent_id": "$agent", "meeting_url": "https://meet.google.com/abc-defg-hij", "user_name": "Ann", "user_id": "u-1"}
SEND_TO_MEETING = "POST /v1/ext/externalmeeting"
MEETING_REFUSED = "Unable to create agent request."
PLAIN_TEXT_HEADER = {"content-type": Contains("text/plain")}
MEETINGS = Chapter("external meetings", [
    Row("an agent", "POST /v1/ext/agent", {"agent_name": "A", "agent_system_prompt": "P", "avatars": [{"avatar_key_id": "$face"}]}, 200, {"id": ID}, {"agent": "id"}),
    *[Row(f"when the service cannot accept the request: plain text ({url})", SEND_TO_MEETING, {**MEETING_REQUEST, "meeting_url": url}, 502, MEETING_REFUSED, response_headers=PLAIN_TEXT_HEADER)
      for url in ("https://meet.google.com/abc-defg-hij", "https://us05web.zoom.us/j/1234567890?pwd=x", "https://teams.microsoft.com/l/meetup-join/19%3ameeting_x%40thread.v2/0", "https://teams.live.com/meet/9345678901234")],
    Row("unknown modes count as participant", SEND_TO_MEETING, {**MEETING_REQUEST, "mode": "whatever", "context": "x", "wake_phrase": "y"}, 502, MEETING_REFUSED, response_headers=PLAIN_TEXT_HEADER),
    Row("another platform is 400", SEND_TO_MEETING, {**MEETING_REQUEST, "meeting_url": "https://example.com/x"}, 400, invalid_body(("meeting_url", SUPPORTED_MEETINGS))),
    Row("a host that only looks like one", SEND_TO_MEETING, {**MEETING_REQUEST, "meeting_url": "https://meet.google.com.evil.example/"}, 400, invalid_body(("meeting_url", SUPPORTED_MEETINGS))),
    *[Row(f"{name} is required", SEND_TO_MEETING, {k: v for k, v in MEETING_REQUEST.items() if k != name}, 400, invalid_body((name, "is required"))) for name in MEETING_REQUEST],
    Row("agent_id names nothing: 404, JSON", SEND_TO_MEETING, {**MEETING_REQUEST, "agent_id": UNKNOWN_ID}, 404, {"message": "Agent details not found"}),
    Row("another workspace's agent", SEND_TO_MEETING, MEETING_REQUEST, 404, {"message": "Agent details not found"}, key="other"),
    Row("401 is JSON", SEND_TO_MEETING, MEETING_REQUEST, 401, {"error": "Unauthorized: not a valid authorization api key"}, key=None),
])

VIDEO_NOT_FOUND = {"message": "Video not found"}
VIDEO = {"avatar_key_id": "clara", "text": "[warm] Good morning.\n\nWe are open.", "tts": {"provider": "flite", "voice_id": "rms"}, "captions": "vtt", "title": "Morning", "meta_data": {"order": 7}}
FULL_VIDEO = {
    "id": ID, "title": "Morning", "status": "QUEUED", "progress": NUMBER, "avatar_key_id": "clara", "text": VIDEO["text"],
    "tts": {"provider": "flite", "model_id": None, "voice_id": "rms", "language": None, "custom_pronunciation": []},
    "size": "512x512", "frame_rate": 25, "background": None, "captions": "vtt", "format": "webm", "callback_url": "", "meta_data": {"order": 7},
    "url": "", "poster_url": "", "captions_url": "", "duration": None, "width": 512, "height": 512, "bytes": None,
    "error": None, "waiting": None, "warnings": [], "created_at": TIME, "updated_at": TIME, "finished_at": None,
}  # fmt: skip
READY_VIDEO = {"id": "$video", "status": "COMPLETED", "progress": 1, "url": Contains("/media/videos/"), "poster_url": Contains(".webp"), "captions_url": Contains(".vtt"), "duration": NUMBER, "bytes": INTEGER, "finished_at": TIME}
WAV_START = b"RIFF\0\0\0\0WAVEfmt "


def video_with(**fields):
    return {**VIDEO, **fields}


def video_of_sound(**fields):
    sound = base64.b64encode(WAV_START).decode()
    return {"avatar_key_id": "clara", "audio": sound, **fields}


VIDEOS = Chapter("videos", [
    Row("POST answers 201 and the record, with the secret of its webhook", "POST /v1/ext/video", VIDEO, 201, {**FULL_VIDEO, "webhook_secret": SECRET}, {"video": "id", "created": ""}, headers={"idempotency-key": "morning-1"}),
    Row("a repetition with its Idempotency-Key gets the same answer", "POST /v1/ext/video", VIDEO, 201, "$created", headers={"idempotency-key": "morning-1"}),
    Row("also if it names what is the default", "POST /v1/ext/video", video_with(size="512x512", frame_rate=25), 201, "$created", headers={"idempotency-key": "morning-1"}),
    Row("another request with that key is 409", "POST /v1/ext/video", video_with(title="Evening"), 409, {"error": "Idempotency-Key was used for another request"}, headers={"idempotency-key": "morning-1"}),
    Row("a key is 1 to 255 visible characters", "POST /v1/ext/video", VIDEO, 400, invalid_body(("Idempotency-Key", "must be 1 to 255 visible ASCII characters")), headers={"idempotency-key": "a b"}),
    Row("it becomes COMPLETED, with links", "GET /v1/ext/video/$video", None, 200, READY_VIDEO, resource="Video", retry=True, forbidden=("whsec_",)),
    Row("GET lists videos, without their texts", "GET /v1/ext/videos", None, 200, [{**READY_VIDEO, "title": "Morning"}], response_headers={"x-total-count": "1"}, forbidden=("Good morning", "whsec_")),
    Row("by a status", "GET /v1/ext/videos?type=failed", None, 200, [], response_headers={"x-total-count": "0"}),
    Row("of these", "GET /v1/ext/videos?type=lost", None, 400, invalid_body(("type", "must be one of queued, processing, completed, failed"))),
    Row("or by a part of the title", "GET /v1/ext/videos?search=morn", None, 200, [{"id": "$video"}]),
    Row("another workspace's", "GET /v1/ext/video/$video", None, 404, VIDEO_NOT_FOUND, key="other"),
    Row("is in no list of it", "GET /v1/ext/videos", None, 200, [], key="other"),
    Row("avatar_key_id is required", "POST /v1/ext/video", {"text": "Hello."}, 400, invalid_body(("avatar_key_id", "is required"))),
    Row("an avatar that is none", "POST /v1/ext/video", video_with(avatar_key_id="nobody"), 400, invalid_body(("avatar_key_id", "is not an existing avatar"))),
    Row("text or audio is required", "POST /v1/ext/video", {"avatar_key_id": "clara"}, 400, invalid_body(("text", "is required if there is no audio"))),
    Row("not both", "POST /v1/ext/video", video_of_sound(text="Hello."), 400, invalid_body(("audio", "must not come with a text"))),
    Row("a text of directions alone", "POST /v1/ext/video", video_with(text="[warm] [pause 1]"), 400, invalid_body(("text", "contains nothing to speak"))),
    Row("a text over 20,000 characters", "POST /v1/ext/video", video_with(text="x" * 20_001), 400, invalid_body(("text", "must be at most 20000 characters"))),
    Row("pauses over 600 s in total", "POST /v1/ext/video", video_with(text="Hi" + "[pause 10]" * 61), 400, invalid_body(("text", "pauses for longer than 600 s in total"))),
    Row("audio is base64", "POST /v1/ext/video", {"avatar_key_id": "clara", "audio": "https://x.example/a.wav"}, 400, invalid_body(("audio", "must be a base64 data URI or base64 text"))),
    Row("WAV, MP3 or Ogg", "POST /v1/ext/video", {"avatar_key_id": "clara", "audio": "Zkxh" * 9}, 400, invalid_body(("audio", "must be WAV, MP3 or Ogg"))),
    Row("captions need a text", "POST /v1/ext/video", video_of_sound(captions="vtt"), 400, invalid_body(("captions", "needs a text"))),
    Row("a form has the file itself", "POST /v1/ext/video", None, 400, invalid_body(("audio", "must be WAV, MP3 or Ogg")), form=[("avatar_key_id", None, "clara"), ("audio", "a.wav", "no sound")]),
    Row("an empty file", "POST /v1/ext/video", None, 400, invalid_body(("audio", "must not be empty")), form=[("avatar_key_id", None, "clara"), ("audio", "a.wav", "")]),
    Row("and its objects as JSON", "POST /v1/ext/video", None, 400, invalid_body(("tts", "must be JSON")), form=[("avatar_key_id", None, "clara"), ("text", None, "Hello."), ("tts", None, "rms")]),
    Row("other sizes are 400", "POST /v1/ext/video", video_with(size="640x480"), 400, invalid_body(("size", "must be one of 512x512, 1280x720, 720x1280"))),
    Row("10 to 30 pictures per second", "POST /v1/ext/video", video_with(frame_rate=31), 400, invalid_body(("frame_rate", "must be between 10 and 30"))),
    Row("a background is a colour", "POST /v1/ext/video", video_with(background="brown"), 400, invalid_body(("background", "must be a colour such as #c0906f"))),
    Row("other captions are 400", "POST /v1/ext/video", video_with(captions="srt"), 400, invalid_body(("captions", "must be one of none, vtt, burned"))),
    Row("other formats are 400", "POST /v1/ext/video", video_with(format="avi"), 400, invalid_body(("format", "must be one of webm, mp4"))),
    Row("an unknown provider", "POST /v1/ext/video", video_with(tts={"provider": "nobody"}), 400, invalid_body(("tts.provider", "is not a provider of this server"))),
    Row("an unknown voice", "POST /v1/ext/video", video_with(tts={"provider": "flite", "voice_id": "nobody"}), 400, invalid_body(("tts.voice_id", "is not a voice of this provider"))),
    Row("callback_url is well formed if present", "POST /v1/ext/video", video_with(callback_url="ftp://x"), 400, invalid_body(("callback_url", "must be a valid http(s) URL"))),
    Row("a title of at most 200 characters", "POST /v1/ext/video", video_with(title="x" * 201), 400, invalid_body(("title", "must be at most 200 characters"))),
    Row("meta_data of at most 10,000 characters", "POST /v1/ext/video", video_with(meta_data={"a": "x" * 10_000}), 400, invalid_body(("meta_data", "must be at most 10000 characters"))),
    Row("a wrong type", "POST /v1/ext/video", video_with(tts={"provider": 7}), 400, invalid_body(("tts.provider", "must be a string"))),
    Row("a JSON body over 14 MB is 413", "POST /v1/ext/video", {"avatar_key_id": "clara", "audio": "x" * (14 << 20)}, 413, {"error": "Request body is too large"}),
    Row("another media type is 415", "POST /v1/ext/video", None, 415, {"error": "Content-Type must be application/json or multipart/form-data"}, raw=b"{}", headers={"content-type": "text/plain"}),
    Row("DELETE", "DELETE /v1/ext/video/$video", None, 200, {"id": "$video", "message": "Video deleted successfully"}),
    Row("DELETE of none", "DELETE /v1/ext/video/$video", None, 404, VIDEO_NOT_FOUND),
    Row("GET of none", "GET /v1/ext/video/$video", None, 404, VIDEO_NOT_FOUND),
    Row("an id that is no UUID", "GET /v1/ext/video/x", None, 404, VIDEO_NOT_FOUND),
])

CHAPTERS = [GUARDRAILS, TOOLS, MCP, KNOWLEDGE, AVATARS, KEYS, MEETINGS, VIDEOS]
