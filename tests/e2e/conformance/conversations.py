"""Conversations, session tokens, control, events, and signaling."""

from . import (
    ID,
    INTEGER,
    JSON_TEXT,
    JWT,
    PICTURE,
    TEXT,
    TIME,
    UNAUTHORIZED,
    UNKNOWN_ID,
    Chapter,
    Contains,
    Row,
    invalid_body,
)

CONVERSATION_NOT_FOUND = {"error": "Conversation not found"}
AGENT_NOT_FOUND = {"message": "Agent details not found"}
CONVERSATION_ENDED = {"error": "Conversation has ended"}
AGENT = {
    "agent_name": "Ann", "agent_system_prompt": "Be kind.", "avatars": [{"avatar_key_id": "$face"}], "type": "support",
    "callback_url": "$hook", "callback_events": ["call_ended"],
}  # fmt: skip
CREATE_AGENT = Row("an agent", "POST /v1/ext/agent", AGENT, 200, {"id": ID}, {"agent": "id", "secret": "webhook_secret"})
NEW_CONVERSATION = {"agent_id": "$agent", "user_name": "Ada_Lovelace", "user_id": "u-1", "context": {"plan": "gold"}, "meta_data": {"x": [1, None]}}

SINGLE_RECORD = {
    "id": "$c", "agent_id": "$agent", "agent_name": "Ann", "avatar_id": "$face", "user_id": "u-1", "user_name": "Ada_Lovelace", "context": '{"plan":"gold"}', "status": "STARTED",
    "is_recorded": False, "recording_url": "", "transcript": [], "created_at": TIME, "updated_at": TIME,
    "chat_history": {"messages": []}, "snippets": {"items": []}, "feedback": None, "usage_json": JSON_TEXT, "end_reason": None,
}  # fmt: skip
LIST_RECORD = {
    "id": "$c", "agent_id": "$agent", "agent_name": "Ann", "context": '{"plan":"gold"}', "meta_data": {"x": [1, None]}, "join_link": Contains("/join/"), "status": "STARTED",
    "is_active": True, "created_at": TIME, "updated_at": TIME, "job_id": None, "feedback": None, "rating": None, "usage_status": "pending", "usage_json": JSON_TEXT,
    "snippets": {"items": []}, "user_name": "Ada_Lovelace", "user_id": "u-1", "chat_history": {"messages": []}, "type": "support", "avatar_id": "$face",
}  # fmt: skip
JOIN_FIELDS = {"token": JWT, "webrtcRequestParams": {"endpoint": Contains("/api/offer?token=")}, "iceConfig": {"iceServers": []}}

RECORDS = Chapter("conversations: records and lists", [
    CREATE_AGENT,
    Row("POST /v1/ext/conversation answers 201: the single-record form, join_link, token", "POST /v1/ext/conversation", NEW_CONVERSATION, 201, {**SINGLE_RECORD, "id": ID, **JOIN_FIELDS, "join_link": TEXT}, {"c": "id", "token": "token", "join_link": "join_link"}),
    Row("join_link = {base_url}/join/{conversation_id}#token=<session token>", "GET /v1/ext/conversation", None, 200, [{"join_link": "$base/join/$c#token=$token"}]),
    Row("200: Conversation (single-record form)", "GET /v1/ext/conversation/$c", None, 200, SINGLE_RECORD, resource="Conversation, single-record form"),
    Row("200: array of Conversation (list form); X-Total-Count", "GET /v1/ext/conversation", None, 200, [LIST_RECORD], response_headers={"x-total-count": "1"}, resource="Conversation, list form"),
    Row("context is a string or an object, stored JSON-encoded", "POST /v1/ext/conversation", {"agent_id": "$agent", "context": "plain"}, 201, {"context": '"plain"', "user_name": None, "user_id": None, "meta_data": None}, {"plain": "id"}),
    Row("nothing else", "POST /v1/ext/conversation", {"agent_id": "$agent", "context": 5}, 400, invalid_body(("context", "must be a string or an object"))),
    Row("meta_data is an object", "POST /v1/ext/conversation", {"agent_id": "$agent", "meta_data": "x"}, 400, invalid_body(("meta_data", "must be an object"))),
    Row("agent_id is required", "POST /v1/ext/conversation", {}, 400, invalid_body(("agent_id", "is required"))),
    Row("an agent_id that names nothing", "POST /v1/ext/conversation", {"agent_id": UNKNOWN_ID}, 404, AGENT_NOT_FOUND),
    Row("another workspace's agent", "POST /v1/ext/conversation", NEW_CONVERSATION, 404, AGENT_NOT_FOUND, key="other"),
    Row("search matches the user's name", "GET /v1/ext/conversation?search=aDA_love", None, 200, [{"id": "$c"}], response_headers={"x-total-count": "1"}),
    Row("_ is literal", "GET /v1/ext/conversation?search=ada%25l", None, 200, [], response_headers={"x-total-count": "0"}),
    Row("search matches the id", "GET /v1/ext/conversation?search=$plain", None, 200, [{"id": "$plain"}]),
    Row("search matches the agent's name", "GET /v1/ext/conversation?search=ANN", None, 200, [{"id": "$plain"}, {"id": "$c"}]),
    Row("search matches the status", "GET /v1/ext/conversation?search=started", None, 200, [{"id": "$plain"}, {"id": "$c"}]),
    Row("another status", "GET /v1/ext/conversation?search=ended", None, 200, []),
    Row("type", "GET /v1/ext/conversation?type=support", None, 200, [{"id": "$plain"}, {"id": "$c"}], response_headers={"x-total-count": "2"}),
    Row("another type", "GET /v1/ext/conversation?type=sales", None, 200, [], response_headers={"x-total-count": "0"}),
    Row("created on or after", "GET /v1/ext/conversation?fromDate=$today", None, 200, [{"id": "$plain"}, {"id": "$c"}]),
    Row("created before: the given date plus one day", "GET /v1/ext/conversation?fromDate=$today&toDate=$tomorrow", None, 200, [{"id": "$plain"}, {"id": "$c"}]),
    Row("created before today", "GET /v1/ext/conversation?toDate=$today", None, 200, []),
    Row("offset and perpage", "GET /v1/ext/conversation?offset=1&perpage=1", None, 200, [{"id": "$c"}], response_headers={"x-total-count": "2"}),
    Row("another workspace's list", "GET /v1/ext/conversation", None, 200, [], key="other", response_headers={"x-total-count": "0"}),
    Row("Conversation does not exist", f"GET /v1/ext/conversation/{UNKNOWN_ID}", None, 404, CONVERSATION_NOT_FOUND),
    Row("an id that is no UUID", "GET /v1/ext/conversation/x", None, 404, CONVERSATION_NOT_FOUND),
    Row("another workspace's", "GET /v1/ext/conversation/$c", None, 404, CONVERSATION_NOT_FOUND, key="other"),
    Row("feedback: in every state", "POST /v1/ext/conversation/$c/feedback", {"rating": 2, "feedback": "slow"}, 200, {"message": TEXT}),
    Row("is on record", "GET /v1/ext/conversation", None, 200, [{}, {"rating": 2, "feedback": "slow"}]),
    Row("rating is 1 to 5", "POST /v1/ext/conversation/$c/feedback", {"rating": 6}, 400, invalid_body(("rating", "must be between 1 and 5"))),
    Row("and whole", "POST /v1/ext/conversation/$c/feedback", {"rating": 2.5}, 400, invalid_body(("rating", "must be a whole number"))),
    Row("and required", "POST /v1/ext/conversation/$c/feedback", {}, 400, invalid_body(("rating", "is required"))),
    Row("of none", f"POST /v1/ext/conversation/{UNKNOWN_ID}/feedback", {"rating": 1}, 404, CONVERSATION_NOT_FOUND),
    Row("an agent that is not active", "PATCH /v1/ext/agent/$agent", {"is_active": False}, 200, {"id": "$agent"}),
    Row("takes no new conversations", "POST /v1/ext/conversation", {"agent_id": "$agent"}, 409, {"error": "Agent is not active"}),
], needs_store=True)

SESSIONS = Chapter("session tokens", [
    CREATE_AGENT,
    Row("POST /v1/auth/conversation answers token, conversationId, url and the avatar", "POST /v1/auth/conversation", {"agentId": "$agent", "userName": "Ada", "userId": "u-2", "context": "c"}, 200,
        {**JOIN_FIELDS, "conversationId": ID, "url": TEXT, "avatar_key_id": "$face", "avatar_name": TEXT, "gender": TEXT, "display_picture": PICTURE}, {"c": "conversationId", "token": "token"}),
    Row("minted with userId, userName and context", "GET /v1/ext/conversation/$c", None, 200, {"user_name": "Ada", "user_id": "u-2", "context": '"c"', "status": "STARTED"}),
    Row("only agentId is required", "POST /v1/auth/conversation", {"agentId": "$agent"}, 200, {"conversationId": ID}, {"d": "conversationId", "other_token": "token"}),
    Row("agentId is required", "POST /v1/auth/conversation", {}, 400, invalid_body(("agentId", "is required"))),
    Row("404 for an unknown agent", "POST /v1/auth/conversation", {"agentId": UNKNOWN_ID}, 404, AGENT_NOT_FOUND),
    Row("and for an id that is no UUID", "POST /v1/auth/conversation", {"agentId": "x"}, 404, AGENT_NOT_FOUND),
    Row("another workspace's agent", "POST /v1/auth/conversation", {"agentId": "$agent"}, 404, AGENT_NOT_FOUND, key="other"),
    Row("it opens no REST route: as a bearer", "GET /v1/ext/conversation/$c", None, 401, UNAUTHORIZED, key=None, headers={"authorization": "Bearer $token"}),
    Row("as a key", "GET /v1/ext/conversation/$c", None, 401, UNAUTHORIZED, key="token"),
    Row("in the query", "GET /v1/ext/conversation/$c?token=$token", None, 401, UNAUTHORIZED, key=None),
    Row("the page may know of its conversation", "GET /join/$c/about", None, 200, {"status": "STARTED", "persona_name": TEXT, "avatar_picture": PICTURE, "branding": None}, key=None, headers={"authorization": "Bearer $token"}),
    Row("with no other token", "GET /join/$c/about", None, 401, UNAUTHORIZED, key=None, headers={"authorization": "Bearer $other_token"}),
    Row("an API key is no session token", "POST /rtc/$c", None, 401, UNAUTHORIZED, raw=b"v=0", headers={"content-type": "application/sdp"}),
    Row("the WHIP endpoint without a token", "POST /rtc/$c", None, 401, UNAUTHORIZED, key=None, raw=b"v=0", headers={"content-type": "application/sdp"}),
    Row("the WHIP endpoint with another conversation's token", "POST /rtc/$c", None, 401, UNAUTHORIZED, key=None, raw=b"v=0", headers={"content-type": "application/sdp", "authorization": "Bearer $other_token"}),
    Row("the WHIP endpoint with a changed token", "POST /rtc/$c", None, 401, UNAUTHORIZED, key=None, raw=b"v=0", headers={"content-type": "application/sdp", "authorization": "Bearer $token.x"}),
    Row("a bad SDP is 400", "POST /rtc/$c?token=$token", None, 400, {"error": Contains("SDP")}, key=None, raw=b"v=0", headers={"content-type": "application/sdp"}),
    Row("another media type is 415", "POST /rtc/$c?token=$token", None, 415, {"error": "Content-Type must be application/sdp"}, key=None, raw=b"{}", headers={"content-type": "application/json"}),
    Row("an offer without Opus is 406", "POST /rtc/$c?token=$token", None, 406, {"error": TEXT}, key=None, raw="$no_opus", headers={"content-type": "application/sdp"}),
    Row("a method that the WHIP endpoint does not have", "GET /rtc/$c", None, 405, {"error": "Method not allowed"}, key=None, response_headers={"allow": "POST, OPTIONS"}),
    Row("CORS on every reply, errors included", "POST /api/offer", {"sdp": "x", "type": "offer"}, 401, UNAUTHORIZED, key=None, headers={"origin": "https://shop.example"}, response_headers={"access-control-allow-origin": "*"}),
    Row("and OPTIONS", "OPTIONS /api/offer", None, 204, key=None, headers={"origin": "https://shop.example", "access-control-request-method": "POST"}, response_headers={"access-control-allow-origin": "*", "access-control-allow-methods": Contains("PATCH"), "access-control-allow-headers": "authorization, content-type"}),
    Row("the RTVI endpoint: an answer is no offer", "POST /api/offer?token=$token", {"sdp": "x", "type": "answer"}, 400, invalid_body(("type", "must be one of offer")), key=None),
    Row("the RTVI endpoint: sdp is required", "POST /api/offer?token=$token", {"type": "offer"}, 400, invalid_body(("sdp", "is required")), key=None),
    Row("PATCH answers 200 at once", "PATCH /api/offer?token=$token", {"pc_id": "nobody", "candidates": []}, 200, {"status": "success"}, key=None),
    Row("PATCH takes any candidates, an empty one too", "PATCH /api/offer?token=$token", {"candidates": [{"candidate": "", "sdp_mid": "0", "sdp_mline_index": 0}]}, 200, {"status": "success"}, key=None),
    Row("a PATCH without a body is 400", "PATCH /api/offer?token=$token", None, 400, invalid_body(), key=None),
    Row("candidates are objects", "PATCH /api/offer?token=$token", {"pc_id": 1, "candidates": ["x"]}, 400, invalid_body(("pc_id", "must be a string"), ("candidates[0]", "must be an object")), key=None),
    Row("PATCH without a token", "PATCH /api/offer", {"candidates": []}, 401, UNAUTHORIZED, key=None),
    Row("a bad offer uses nothing up", "GET /v1/ext/conversation/$c", None, 200, {"status": "STARTED"}),
    Row("WHIP: 201, Location, the answer with all candidates", "POST /rtc/$c?token=$token", None, 201, Contains("a=candidate"), key=None, raw="$offer", headers={"content-type": "application/sdp"}, response_headers={"location": Contains("/rtc/$c/"), "content-type": "application/sdp"}, save={"answer": ""}),
    Row("SmallWebRTC: sdp, type, pc_id", "POST /api/offer", {"sdp": "$offer", "type": "offer", "pc_id": None, "restart_pc": True, "requestData": {}}, 200, {"sdp": Contains("a=candidate"), "type": "answer", "pc_id": TEXT}, key=None, headers={"authorization": "Bearer $other_token"}),
    Row("once ENDED", "DELETE /v1/conversation/$c", None, 200, {"conversation_id": "$c"}),
    Row("the WHIP endpoint is 409", "POST /rtc/$c?token=$token", None, 409, CONVERSATION_ENDED, key=None, raw="$offer", headers={"content-type": "application/sdp"}),
    Row("the RTVI endpoint, too", "POST /api/offer?token=$token", {"sdp": "x", "type": "offer"}, 409, CONVERSATION_ENDED, key=None),
    Row("the page too", "GET /join/$c/about?token=$token", None, 409, CONVERSATION_ENDED, key=None),
])

CONVERSATION_PATH = "/v1/conversation/$c"
CONTROL = Chapter("conversations: control, end, erasing", [
    CREATE_AGENT,
    Row("a conversation", "POST /v1/ext/conversation", NEW_CONVERSATION, 201, {"status": "STARTED"}, {"c": "id"}),
    Row("speak", f"PUT {CONVERSATION_PATH}/speak", {"text": "Hello."}, 200, {"message": "Agent is speaking the provided text."}),
    Row("speak with interrupt, add_to_context", f"PUT {CONVERSATION_PATH}/speak", {"text": "Hello.", "interrupt": False, "add_to_context": True}, 200, {"message": "Agent is speaking the provided text."}),
    Row("speak with an expression", f"PUT {CONVERSATION_PATH}/speak", {"text": "[nod] Hello.", "expression": "glad"}, 200, {"message": "Agent is speaking the provided text."}),
    Row("the expressions are five", f"PUT {CONVERSATION_PATH}/speak", {"text": "Hello.", "expression": "angry"}, 400, invalid_body(("expression", "must be one of calm, warm, glad, concerned, curious"))),
    Row("speak needs text", f"PUT {CONVERSATION_PATH}/speak", {}, 400, invalid_body(("text", "is required"))),
    Row("interrupt is a boolean", f"PUT {CONVERSATION_PATH}/speak", {"text": "x", "interrupt": "no"}, 400, invalid_body(("interrupt", "must be true or false"))),
    Row("respond", f"POST {CONVERSATION_PATH}/respond", {"text": "Who are you?"}, 200, {"message": TEXT}),
    Row("speak needs more than directions and punctuation", f"PUT {CONVERSATION_PATH}/speak", {"text": "[glad]. [nod]!"}, 400, invalid_body(("text", "must contain something to speak"))),
    Row("respond needs text", f"POST {CONVERSATION_PATH}/respond", {"text": ""}, 400, invalid_body(("text", "must not be empty"))),
    Row("interrupt", f"POST {CONVERSATION_PATH}/interrupt", None, 200, {"message": TEXT}),
    Row("context", f"POST {CONVERSATION_PATH}/context", {"text": "It rains."}, 200, {"message": TEXT}),
    Row("context, overwriting", f"POST {CONVERSATION_PATH}/context", {"text": "It rains.", "mode": "overwrite"}, 200, {"message": TEXT}),
    Row("context has two modes", f"POST {CONVERSATION_PATH}/context", {"text": "x", "mode": "replace"}, 400, invalid_body(("mode", "must be one of append, overwrite"))),
    Row("in STARTED commands are accepted and take effect at the join", "GET /v1/ext/conversation/$c", None, 200, {"status": "STARTED", "transcript": []}),
    *[Row(f"{ask}: of none", f"{method} /v1/conversation/{UNKNOWN_ID}{ask}", body, 404, CONVERSATION_NOT_FOUND)
      for method, ask, body in (("PUT", "/speak", {"text": "x"}), ("POST", "/respond", {"text": "x"}), ("POST", "/interrupt", None), ("POST", "/context", {"text": "x"}), ("DELETE", "", None))],
    Row("another workspace's", f"PUT {CONVERSATION_PATH}/speak", {"text": "x"}, 404, CONVERSATION_NOT_FOUND, key="other"),
    Row("another workspace's", f"DELETE {CONVERSATION_PATH}", None, 404, CONVERSATION_NOT_FOUND, key="other"),
    Row("turns", "GET /v1/ext/conversation/$c/turns", None, 200, []),
    Row("events", "GET /v1/ext/conversation/$c/events", None, 200, []),
    Row("a record that has not ended cannot be erased", "DELETE /v1/ext/conversation/$c", None, 409, {"error": "Conversation has not ended"}),
    Row("DELETE ends the call, keeps the record", f"DELETE {CONVERSATION_PATH}", None, 200, {"agent_identity": "Ann", "conversation_id": "$c", "message": "Conversation ended successfully"}),
    Row("ENDED is terminal, with its reason", "GET /v1/ext/conversation/$c", None, 200, {"status": "ENDED", "end_reason": "ended_by_api", "transcript": []}),
    Row("in the list it is not active, its usage completed", "GET /v1/ext/conversation", None, 200, [{"status": "ENDED", "is_active": False, "usage_status": "completed"}]),
    Row("usage_json's fields", "GET /v1/ext/conversation/$c", None, 200, {"usage_json": Contains('"duration_seconds"')}),
    Row("usage_json's fields", "GET /v1/ext/conversation/$c", None, 200, {"usage_json": Contains('"voice_to_voice"')}),
    Row("call_ended is sent even if nobody joined", "GET /v1/ext/conversation/$c/events", None, 200, [{"what": "call_ended", "seq": INTEGER, "timestamp": TIME}, {"what": "ended", "reason": "ended_by_api"}], webhook=("c", "call_ended", {})),
    Row("what became of its webhooks", "GET /v1/ext/conversation/$c/deliveries", None, 200, [{"event": "call_ended", "state": "done", "sequence": 1, "url": "$hook", "tries": [{"attempt": 1, "status": 204}]}], retry=True, response_headers={"x-total-count": "1"}),
    *[Row(f"once ENDED, {ask or 'DELETE'} is 409", f"{method} {CONVERSATION_PATH}{ask}", body, 409, CONVERSATION_ENDED)
      for method, ask, body in (("PUT", "/speak", {"text": "x"}), ("POST", "/respond", {"text": "x"}), ("POST", "/interrupt", None), ("POST", "/context", {"text": "x"}), ("DELETE", "", None))],
    Row("feedback is accepted in every state", "POST /v1/ext/conversation/$c/feedback", {"rating": 3, "feedback": "good"}, 200, {"message": TEXT}),
    Row("the last wins", "POST /v1/ext/conversation/$c/feedback", {"rating": 5}, 200, {"message": TEXT}),
    Row("as here", "GET /v1/ext/conversation", None, 200, [{"rating": 5, "feedback": None}]),
    Row("another workspace's", "DELETE /v1/ext/conversation/$c", None, 404, CONVERSATION_NOT_FOUND, key="other"),
    Row("DELETE erases a record that is ENDED", "DELETE /v1/ext/conversation/$c", None, 204, ""),
    Row("nothing of it is left: the record", "GET /v1/ext/conversation/$c", None, 404, CONVERSATION_NOT_FOUND),
    Row("the events", "GET /v1/ext/conversation/$c/events", None, 404, CONVERSATION_NOT_FOUND),
    Row("the turns", "GET /v1/ext/conversation/$c/turns", None, 404, CONVERSATION_NOT_FOUND),
    Row("the webhooks", "GET /v1/ext/conversation/$c/deliveries", None, 404, CONVERSATION_NOT_FOUND),
    Row("the list", "GET /v1/ext/conversation", None, 200, [], response_headers={"x-total-count": "0"}),
    Row("erasing none", "DELETE /v1/ext/conversation/$c", None, 404, CONVERSATION_NOT_FOUND),
    Row("an id that is no UUID", "DELETE /v1/ext/conversation/x", None, 404, CONVERSATION_NOT_FOUND),
], needs_store=True)

# A conversation ends if no user joins within a second. A token is valid for as long.
UNJOINED = Chapter("conversations: nobody joins", [
    CREATE_AGENT,
    Row("a conversation", "POST /v1/ext/conversation", {"agent_id": "$agent"}, 201, {"status": "STARTED"}, {"c": "id", "token": "token"}),
    Row("a token that nobody used expires", "POST /rtc/$c?token=$token", None, 401, UNAUTHORIZED, key=None, raw=b"v=0", headers={"content-type": "application/sdp"}, retry=True),
    Row("STARTED and nobody joins: ENDED, no_join", "GET /v1/ext/conversation/$c", None, 200, {"status": "ENDED", "end_reason": "no_join"}, retry=True, webhook=("c", "call_ended", {})),
    Row("never used and expired is 401 also then", "POST /rtc/$c?token=$token", None, 401, UNAUTHORIZED, key=None, raw=b"v=0", headers={"content-type": "application/sdp"}),
    Row("retention erases by itself what ended longer ago", "GET /v1/ext/conversation/$c", None, 404, CONVERSATION_NOT_FOUND, retry=True, sql=("UPDATE conversation SET ended_at = ended_at - 2 * 86400000000",)),
    Row("with its events", "GET /v1/ext/conversation", None, 200, [], response_headers={"x-total-count": "0"}),
], env={"VISAVIS_TIMEOUTS_JOIN": "1", "VISAVIS_TIMEOUTS_TOKEN": "1", "VISAVIS_SERVER_RETENTION_DAYS": "1"})

CHAPTERS = [RECORDS, SESSIONS, CONTROL, UNJOINED]
