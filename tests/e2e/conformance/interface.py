"""What the interface names: endpoints, fields, errors, events. `tests/e2e/test_conformance.py`
checks that a row of the table shows each of them."""

ENDPOINTS = """
GET /v2/custom-avatar/{id}
POST /v2/custom-avatar
POST /v2/custom-avatar/photo
DELETE /v2/custom-avatar/{id}
POST /v1/ext/agentbytemplate
GET /v1/ext/agent
DELETE /v1/ext/agent/{id}
POST /v1/ext/agent
POST /v1/agent/api
POST /v1/ext/template
POST /v1/ext/externalmeeting
GET /v1/ext/conversation
GET /v1/ext/conversation/{id}
GET /v1/ext/guardrail
PUT /v1/ext/guardrail/{id}
DELETE /v1/ext/guardrail/{id}
GET /v1/ext/mcp
GET /v1/ext/mcp/{id}
GET /v1/ext/tool
DELETE /v1/ext/kb/{id}
GET /v1/ext/avatars
GET /v1/ext/agent/{id}
PUT /v1/ext/agent/{id}
PATCH /v1/ext/agent/{id}
POST /v1/ext/agent/{id}/webhook-secret
GET /v1/ext/templates
GET /v1/ext/template/{id}
PUT /v1/ext/template/{id}
DELETE /v1/ext/template/{id}
POST /v1/ext/guardrail
GET /v1/ext/guardrail/{id}
POST /v1/ext/tool
GET /v1/ext/tool/{id}
PUT /v1/ext/tool/{id}
DELETE /v1/ext/tool/{id}
POST /v1/ext/mcp
PUT /v1/ext/mcp/{id}
DELETE /v1/ext/mcp/{id}
POST /v1/ext/kb
POST /v1/ext/kb/{id}/doc
GET /v1/ext/kbs
GET /v1/ext/kb/{id}
PUT /v1/ext/kb/{id}
DELETE /v1/ext/kb/doc/{id}
GET /v2/custom-avatars
GET /v2/character
POST /v2/character/preview
POST /v1/auth/conversation
POST /v1/ext/conversation
PUT /v1/conversation/{id}/speak
DELETE /v1/conversation/{id}
POST /v1/conversation/{id}/interrupt
POST /v1/conversation/{id}/respond
POST /v1/conversation/{id}/context
POST /v1/ext/conversation/{id}/feedback
DELETE /v1/ext/conversation/{id}
GET /v1/ext/conversation/{id}/turns
GET /v1/ext/conversation/{id}/events
POST /rtc/{conversation_id}
PATCH /rtc/{conversation_id}/{resource}
DELETE /rtc/{conversation_id}/{resource}
POST /api/offer
PATCH /api/offer
GET /v1/ext/providers
GET /embed/{agent_id}
GET /join/{conversation_id}
POST /v1/ext/apikey
GET /v1/ext/apikey
DELETE /v1/ext/apikey/{id}
GET /
GET /docs
GET /openapi.json
GET /healthz
GET /readyz
GET /metrics
""".split("\n")[1:-1]

# Fields by resource; a dot leads into an object, `[]` into the elements of a list.
FIELDS = {
    "Agent": """id agent_name agent_system_prompt avatars callback_events callback_url config.maxCallDuration config.conversationalContext knowledge_base tool guardrail mcp
        record created_at updated_at avatars[].avatar_key_id avatars[].persona_name avatars[].config.llm.model avatars[].config.llm.provider avatars[].config.stt.model
        avatars[].config.stt.provider avatars[].config.stt.min_endpointing_delay avatars[].config.stt.max_endpointing_delay avatars[].config.tts.model_id
        avatars[].config.tts.provider avatars[].config.tts.voice_id
        is_active type config.timeout config.memory.isEnabled config.memory.instruction config.error_message avatars[].welcome_message.wait_time
        avatars[].welcome_message.messages avatars[].idle_timeout.timeout avatars[].idle_timeout.filler_phrases avatars[].idle_timeout.end_after
        avatars[].exit_heads_up_message.callout_before avatars[].exit_heads_up_message.messages avatars[].exit_message.messages avatars[].turn_handling
        avatars[].interruptability avatars[].frame_rate avatars[].framing avatars[].size
        avatars[].config.llm.fallback_model avatars[].config.llm.url avatars[].config.llm.token
        avatars[].config.stt.language avatars[].config.stt.fallback_model avatars[].config.tts.custom_pronunciation embed.enabled embed.origins webhook_secret""",
    "Template": "template_name template_system_prompt knowledge_base guardrail tool mcp avatars",
    "Stock avatar": "avatar_key_id avatar_name gender display_picture",
    "Custom avatar": "id job_id avatar_key_id avatar_id avatar_name gender category status progress is_private character rest voice output error created_at updated_at",
    "Guardrail": "id key name category prompt response_message callback_url created_at updated_at",
    "Tool": """id type schema.type schema.name schema.description schema.parameters.type schema.parameters.properties schema.parameters.required request_config.method
        request_config.url request_config.headers event_messages.on_start.message event_messages.on_success.message event_messages.on_error.message
        event_messages.on_delay.delay event_messages.on_delay.message created_at updated_at""",
    "MCP configuration": "id name description type request_config.url request_config.headers created_at updated_at",
    "Conversation, list form": """id agent_id agent_name context meta_data join_link status is_active created_at updated_at job_id feedback rating usage_status usage_json snippets
        user_name user_id chat_history type avatar_id""",
    "Conversation, single-record form": """id agent_id agent_name avatar_id user_id user_name context status is_recorded recording_url transcript created_at updated_at
        chat_history snippets feedback usage_json""",
    "Knowledge base": "knowledge_base.id knowledge_base.name knowledge_base.description knowledge_base.no_of_rec knowledge_base.created_at knowledge_base.updated_at documents[].id documents[].name documents[].type documents[].status documents[].error_message",
}  # fmt: skip

# The bytes of every error, with its status.
ERRORS = [
    (401, '{"error":"Unauthorized: not a valid authorization api key"}'),
    (400, '{"error":"Invalid request body"}'),
    (500, '{"error":"Failed to fetch template/avatar"}'),
    (500, '{"error":"Failed to retrieve agent details"}'),
    (404, '{"message":"Agent details not found"}'),
    (500, '{"error":"Failed to delete agent"}'),
    (500, '{"error":"Failed to retrieve conversation details"}'),
    (404, '{"error":"Conversation not found"}'),
    (404, '{"message":"Guardrail not found"}'),
    (404, '{"error":"MCP not found"}'),
    (500, '{"error":"Failed to retrieve MCP details"}'),
    (404, '{"message":"Knowledge Base not found"}'),
    (500, '{"error":"Failed to retrieve knowledge base"}'),
    (502, "Unable to create agent request."),
    (404, '{"message":"Custom avatar not found"}'),
    (404, '{"message":"Template not found"}'),
    (404, '{"message":"Tool not found"}'),
    (404, '{"message":"Document not found"}'),
    (404, '{"message":"API key not found"}'),
    (400, '{"error":"name is required"}'),
    (400, '{"error":"prompt is required"}'),
    (400, '{"error":"callback_url must be a valid http(s) URL"}'),
    (404, '{"error":"Not found"}'),
    (405, '{"error":"Method not allowed"}'),
    (409, '{"error":"Conversation has ended"}'),
    (413, '{"error":"Request body is too large"}'),
    (415, '{"error":"Content-Type must be application/json"}'),
    (429, '{"error":"Too many requests"}'),
]

# What a row over HTTP alone cannot reach, and the test that does.
COVERED_ELSEWHERE = {
    "409 Agent speech cannot be interrupted": "control-api/tests/api/conversations.rs::a_running_call_answers_for_itself",
    "409 Conversation is ending": "control-api/tests/api/conversations.rs::a_running_call_answers_for_itself",
    "503 No capacity": "control-api/tests/api/signaling.rs::a_refused_offer_says_why",
    "Agent request successfully created.": None,  # No meeting service is installed yet: every request fails.
}

# Event names, each with the fields of its payload. Their bodies as they are sent:
# control-api/tests/api/contract.rs.
EVENTS = {
    "agent.interrupted": [],
    "agent.started_speaking": ["text"],
    "agent.stopped_speaking": ["text"],
    "call_ended": [],
    "max_call_duration_timeout": ["call_duration", "max_call_duration"],
    "max_call_duration_warning": ["call_duration", "max_call_duration"],
    "participant_left": ["id"],
    "tool_call": ["tool_name", "parameters", "result", "status"],
    "utterance_committed": ["text"],
    "user.started_speaking": [],
    "user.stopped_speaking": [],
}
