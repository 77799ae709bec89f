BEGIN TRANSACTION;
CREATE TABLE _sqlx_migrations (
    version BIGINT PRIMARY KEY,
    description TEXT NOT NULL,
    installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP,
    success BOOLEAN NOT NULL,
    checksum BLOB NOT NULL,
    execution_time BIGINT NOT NULL
);
INSERT INTO "_sqlx_migrations" VALUES(1,'begin','2026-11-25 16:33:19',1,X'84B740453FE4E14CFBFC6D1463B7C9CEB19C9E041F9A273FB9DFC91499344730C37105645D626EBDF3371E9B111CB1D9',2002127);
INSERT INTO "_sqlx_migrations" VALUES(2,'breadth','2026-11-25 16:33:19',1,X'DA9A5EB083C706154BECC63D4FFB41BB563DE032438AE21C46211B64D434A64EF6C34902CB92C4C99247B5C1ED8CEC6F',1594968);
INSERT INTO "_sqlx_migrations" VALUES(3,'servers','2026-11-25 16:33:19',1,X'2F36E15AE8BDBE78379AF67AA63AA6D885124196B09957997F3BDE85D3E748CA8A41366A8367B1A34AB7EC826F97FC0E',722160);
INSERT INTO "_sqlx_migrations" VALUES(4,'meaning','2026-11-25 16:33:19',1,X'1FBF1CFAC92B11AD92C2BDE712ED65850921E45886C6FCA8D928330F1E47AC1AFE0A20354D8F9945A328995E83CE13A9',879543);
INSERT INTO "_sqlx_migrations" VALUES(5,'large','2026-11-25 16:33:19',1,X'F0BD360CA9A5CA7475684EEE37A42972F94FB007CCF47D9B7FA95C51D643CDAB40C53660BAF261F46288885D7A699CB0',925852);
INSERT INTO "_sqlx_migrations" VALUES(6,'erased','2026-11-25 16:33:19',1,X'373DEC6AB43C113202E6A5EF57CFF8551B9E9185BA66DCDAD0D6C9168BDCC18DF241E48064F29551A4A5AEA4FE21A90C',745234);
INSERT INTO "_sqlx_migrations" VALUES(7,'drawn','2026-11-25 16:33:19',1,X'455D0EEA22F9754E0C28D88513DEEF477D46A1DEE3847E454224B2C75237F2851C3FC667FA3E65890868243F062D6CA7',1419027);
INSERT INTO "_sqlx_migrations" VALUES(8,'share','2026-11-25 16:33:19',1,X'5FB56B7466E5FA6B8FF9D1F9366083B44913AFA3FDD32DBE15184E0E01933881E5A09F1C0B355AD2F0C9D8DDDF413F4F',594846);
INSERT INTO "_sqlx_migrations" VALUES(9,'failed_event','2026-11-25 16:33:19',1,X'2DB4140FFF86EF439A39321861DCF568C9E6CFEC0DE93764C8A6171BD4F76DD05F6889E0F8FCE02E0BC41419ECA8570B',424199);
INSERT INTO "_sqlx_migrations" VALUES(10,'ended_session','2026-11-25 16:33:19',1,X'33BE49A179D57523ED6D90975E8FE5464BEB374F7BC98707CA75290A899C041F42A059D06241FC258508F6F49325C8D5',416316);
INSERT INTO "_sqlx_migrations" VALUES(12,'key_scope','2026-11-25 16:33:19',1,X'77A817FBD084B14A09B22493A26AA9241A29170FD039E8BBDE12A7706C3EDD1AC925F6E28AB28654ABB1348161490492',712726);
INSERT INTO "_sqlx_migrations" VALUES(13,'fairness','2026-11-25 16:33:19',1,X'28BD79D9191879B713E37DAF9B88F810AD43506A8EB83361E80853E0FC5F484B6DC90D339962674C439A2B81E1E9004C',759826);
INSERT INTO "_sqlx_migrations" VALUES(14,'document_server','2026-11-25 16:33:19',1,X'C9C41521BC1947757C48017A47D17FBAA760B5F8CEBB291DB51D400F7893233ADA3A364339864207A578AD36EEDA03B3',507462);
CREATE TABLE agent (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    search TEXT NOT NULL,
    type TEXT,
    document TEXT NOT NULL,
    secrets TEXT NOT NULL,
    stopped BIGINT NOT NULL DEFAULT 0,
    calls BIGINT NOT NULL DEFAULT 0,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
INSERT INTO "agent" VALUES('01a2138d-f237-7590-9f4a-02fd91123c08','01a2138d-f231-7780-9eb4-45683ca2d938','01a2138d-f237-7590-9f4a-02fd91123c08
visavis demo',NULL,'{"agent_name":"Visavis demo","agent_system_prompt":"You are Theo, the friendly host of a Visavis demo. Answer briefly, in one or two spoken sentences, from what you know. You also look after the demo shop, a small flower shop.","avatars":[{"avatar_key_id":"theo","persona_name":"Theo","config":{"llm":{"provider":null,"model":null,"fallback_model":null,"url":null,"token":null},"stt":{"provider":null,"model":null,"fallback_model":null,"language":null,"min_endpointing_delay":null,"max_endpointing_delay":null,"turn_model":false,"token":null},"tts":{"model_id":null,"provider":null,"voice_id":null,"sample_rate":null,"custom_pronunciation":[],"token":null}},"welcome_message":{"wait_time":1,"messages":["Hello! I am the Visavis demo. Ask me about Visavis, or about our little flower shop.","Hi there! Ask me when the flower shop is open, or what Visavis can do."]},"idle_timeout":{"timeout":30,"filler_phrases":["Are you still there?","I am still here if you have a question."],"end_after":3},"exit_heads_up_message":{"callout_before":20,"messages":["We have about twenty seconds left."]},"exit_message":{"messages":["Our time is up. Thank you for the visit, goodbye!"],"max_call_duration":null},"turn_handling":"balanced","interruptability":"high","frame_rate":25}],"callback_events":[],"callback_url":"","config":{"timeout":null,"maxCallDuration":600,"conversationalContext":"","memory":{"isEnabled":false,"instruction":""},"error_message":"I''m sorry, something went wrong. Please say that again.","turn":{},"expose_tools":false,"trust_client_context":false,"record_trace":false},"knowledge_base":["01a2138d-f236-70f1-b3bc-b0416e9a57f7"],"tool":null,"guardrail":null,"mcp":null,"record":false,"is_active":true,"type":null,"email":null,"embed":{"enabled":true,"origins":[]}}','e0F6XKNnErxkd/JY0VjkIcqDAYlhRoqSQzPyFmG/5ClJ4g0RBZcp3wqHOL5rqFDnbdLowZspNqjbnW4fYAdgpaEuRZm37rWWIr3rboUv1Ovi6xgWW3YoOjqpGS1RDuX5HhZwreqEc+xhexn+61YQ08xn29RMloQG+F3IUMl2qDidto9sgRb6fkdjuw==',0,0,1795624399415389,1795624399415389);
INSERT INTO "agent" VALUES('01a2138d-f4c6-7412-bef2-081062307a08','01a2138d-f231-7780-9eb4-45683ca2d938','01a2138d-f4c6-7412-bef2-081062307a08
guide',NULL,'{"agent_name":"Guide","agent_system_prompt":"You are a friendly assistant.","avatars":[{"avatar_key_id":"theo","persona_name":"Guide","config":{"llm":{"provider":null,"model":null,"fallback_model":null,"url":null,"token":null},"stt":{"provider":"script","model":"{\"utterances\": []}","fallback_model":null,"language":null,"min_endpointing_delay":null,"max_endpointing_delay":null,"turn_model":false,"token":null},"tts":{"model_id":"{\"providers\": {\"tts\": {\"first_audio_s\": 0, \"s_per_char\": 0.01, \"speed_x_realtime\": 100}}}","provider":"script","voice_id":null,"sample_rate":null,"custom_pronunciation":[],"token":null}},"welcome_message":{"wait_time":0,"messages":["Welcome to the museum."]},"idle_timeout":{"timeout":30,"filler_phrases":[],"end_after":3},"exit_heads_up_message":{"callout_before":10,"messages":[]},"exit_message":{"messages":[],"max_call_duration":null},"turn_handling":"balanced","interruptability":"medium","frame_rate":25}],"callback_events":["call_ended"],"callback_url":"http://127.0.0.1:43295","config":{"timeout":null,"maxCallDuration":null,"conversationalContext":"","memory":{"isEnabled":false,"instruction":""},"error_message":"I''m sorry, something went wrong. Please say that again.","turn":{"min_endpointing_delay":0.4,"echo_warmup":0},"expose_tools":false,"trust_client_context":false,"record_trace":true},"knowledge_base":["01a2138d-f4c2-717d-92f8-7592424ffb9e"],"tool":["01a2138d-f4bf-7464-af42-6b2831219a1d"],"guardrail":null,"mcp":null,"record":false,"is_active":true,"type":null,"email":null,"embed":{"enabled":false,"origins":[]}}','LbX2dz6W5UhvJzYkUAa+57ORUNq44zxmuxIL30MzsWTPgutoiHY20Gpl7ckE7VRn7BMYR7auwTChWx3/sR1Zgqj2pSJWwjQVnaaGYVJLzEo6FH3kuMlmKYgxbRiLew2jHC/Wo473Azi5R87Q3EZ8SVGz6J0d/o2Q1hPePhYfnfKIvQQYVpjZSosJOQ==',1,1,1795624400070700,1795624400070700);
CREATE TABLE api_key (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    name TEXT NOT NULL,
    prefix TEXT NOT NULL,
    hash TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL,
    expires_at BIGINT
, scope TEXT NOT NULL DEFAULT 'administer', last_used_at BIGINT);
INSERT INTO "api_key" VALUES('01a2138d-f237-7590-9f4a-02fe5e7fcd12','01a2138d-f231-7780-9eb4-45683ca2d938','first start','vv_FjM9qBq','821aef273b38bdee0796b7df663cadcf4f9ea36417eb912504af9c3be679a05d',1795624399415743,NULL,'administer',1795624400061131);
INSERT INTO "api_key" VALUES('01a2138d-f4c1-72ea-a559-9e1cfeeef992','01a2138d-f231-7780-9eb4-45683ca2d938','second','vv_-jKlYEa','30b98dfb07d455d5f3e7a0db6da7f6b4528e5107aaaeebb0ca9802bd05860b60',1795624400065676,NULL,'read',NULL);
CREATE TABLE command (
    conversation TEXT NOT NULL,
    position BIGINT NOT NULL,
    workspace TEXT NOT NULL,
    json TEXT NOT NULL,
    PRIMARY KEY (conversation, position)
);
CREATE TABLE conversation (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    server TEXT NOT NULL,
    agent TEXT NOT NULL,
    agent_name TEXT NOT NULL,
    agent_document TEXT NOT NULL,
    agent_secrets TEXT NOT NULL,
    avatar_id TEXT NOT NULL,
    number BIGINT NOT NULL,
    type TEXT,
    search TEXT NOT NULL,
    user_id TEXT,
    user_name TEXT,
    context TEXT,
    visitor BIGINT NOT NULL DEFAULT 0,
    meta_data TEXT,
    status TEXT NOT NULL,
    end_reason TEXT,
    rating BIGINT,
    feedback TEXT,
    warnings TEXT,
    record TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    joined_at BIGINT,
    ended_at BIGINT
);
INSERT INTO "conversation" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3','01a2138d-f231-7780-9eb4-45683ca2d938','01a2138d-f220-743f-a493-44c6c7ea2f9d','01a2138d-f4c6-7412-bef2-081062307a08','Guide','{"agent_name":"Guide","agent_system_prompt":"You are a friendly assistant.","avatars":[{"avatar_key_id":"theo","persona_name":"Guide","config":{"llm":{"provider":null,"model":null,"fallback_model":null,"url":null,"token":null},"stt":{"provider":"script","model":"{\"utterances\": []}","fallback_model":null,"language":null,"min_endpointing_delay":null,"max_endpointing_delay":null,"turn_model":false,"token":null},"tts":{"model_id":"{\"providers\": {\"tts\": {\"first_audio_s\": 0, \"s_per_char\": 0.01, \"speed_x_realtime\": 100}}}","provider":"script","voice_id":null,"sample_rate":null,"custom_pronunciation":[],"token":null}},"welcome_message":{"wait_time":0,"messages":["Welcome to the museum."]},"idle_timeout":{"timeout":30,"filler_phrases":[],"end_after":3},"exit_heads_up_message":{"callout_before":10,"messages":[]},"exit_message":{"messages":[],"max_call_duration":null},"turn_handling":"balanced","interruptability":"medium","frame_rate":25}],"callback_events":["call_ended"],"callback_url":"http://127.0.0.1:43295","config":{"timeout":null,"maxCallDuration":null,"conversationalContext":"","memory":{"isEnabled":false,"instruction":""},"error_message":"I''m sorry, something went wrong. Please say that again.","turn":{"min_endpointing_delay":0.4,"echo_warmup":0},"expose_tools":false,"trust_client_context":false,"record_trace":true},"knowledge_base":["01a2138d-f4c2-717d-92f8-7592424ffb9e"],"tool":["01a2138d-f4bf-7464-af42-6b2831219a1d"],"guardrail":null,"mcp":null,"record":false,"is_active":true,"type":null,"email":null,"embed":{"enabled":false,"origins":[]}}','LbX2dz6W5UhvJzYkUAa+57ORUNq44zxmuxIL30MzsWTPgutoiHY20Gpl7ckE7VRn7BMYR7auwTChWx3/sR1Zgqj2pSJWwjQVnaaGYVJLzEo6FH3kuMlmKYgxbRiLew2jHC/Wo473Azi5R87Q3EZ8SVGz6J0d/o2Q1hPePhYfnfKIvQQYVpjZSosJOQ==','theo',0,NULL,'e56ba8a2-3253-4d9e-8ba8-a081e00573f3

guide','user-7',NULL,'"The user is a child."',0,NULL,'ENDED','user_left',NULL,NULL,NULL,'{"transcript":[{"timestamp":"2026-11-25T16:33:20.135Z","role":"assistant","content":"Welcome to the museum.","conversation_id":"e56ba8a2-3253-4d9e-8ba8-a081e00573f3","message_timestamp":0.011},{"timestamp":"2026-11-25T16:33:20.347Z","role":"user","content":"When does the museum open?","conversation_id":"e56ba8a2-3253-4d9e-8ba8-a081e00573f3","message_timestamp":0.223},{"timestamp":"2026-11-25T16:33:20.364Z","role":"assistant","content":"The museum opens at nine.","conversation_id":"e56ba8a2-3253-4d9e-8ba8-a081e00573f3","message_timestamp":0.24}],"chat_history":{"messages":[{"role":"assistant","content":"Welcome to the museum.","timestamp":"2026-11-25T16:33:20.135Z","seconds_from_start":0.011,"duration":0.21,"speech_id":"speech_0","interrupted":false},{"role":"user","content":"When does the museum open?","timestamp":"2026-11-25T16:33:20.347Z","seconds_from_start":0.223,"duration":0.0,"speech_id":null,"interrupted":false},{"role":"assistant","content":"The museum opens at nine.","timestamp":"2026-11-25T16:33:20.364Z","seconds_from_start":0.24,"duration":0.24,"speech_id":"speech_1","interrupted":false}]},"snippets":{"items":[{"kb_id":"01a2138d-f4c2-717d-92f8-7592424ffb9e","doc_id":"01a2138d-f4c2-717d-92f8-7593f1967fd7","text":"The museum opens at nine. The oldest clock was built in 1676.","score":0.5753641724586487,"speech_id":"speech_1"}]},"usage_json":"{\"duration_seconds\":0.485,\"stt_seconds\":0.0,\"llm\":{\"prompt_tokens\":9,\"completion_tokens\":5},\"tts_characters\":47,\"video_seconds\":0.485,\"turns\":1,\"latency\":{\"voice_to_voice\":null,\"endpointing\":null,\"stt\":null,\"llm\":{\"p50\":0.001,\"p90\":0.001,\"p99\":0.001,\"max\":0.001,\"n\":1},\"tts\":{\"p50\":0.001,\"p90\":0.001,\"p99\":0.001,\"max\":0.001,\"n\":1},\"playout\":{\"p50\":0.016,\"p90\":0.016,\"p99\":0.016,\"max\":0.016,\"n\":1},\"barge_in\":null}}","warnings":[],"turns":[{"turn":0,"stt":null,"playout":0.015885,"endpointing":null,"llm_ttft":0.000508,"tts_ttfb":0.001369,"voice_to_voice":null,"barge_in":null,"timeline":{"speech_end":null,"committed":0.222603,"llm_first_token":0.223111,"tts_first_byte":0.22448,"first_sample":0.240365,"heard_end":0.48051,"interrupted":null}}]}',1795624400072105,1795624400626790,1795624400124587,1795624400609174);
CREATE TABLE custom_avatar (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    search TEXT NOT NULL,
    job_id TEXT NOT NULL,
    name TEXT NOT NULL,
    gender TEXT NOT NULL,
    is_private BIGINT NOT NULL,
    source TEXT,
    status TEXT NOT NULL,
    output TEXT,
    error TEXT,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
, person TEXT, server TEXT NOT NULL DEFAULT '', progress BIGINT NOT NULL DEFAULT 0, poses TEXT, share BIGINT NOT NULL DEFAULT 0);
INSERT INTO "custom_avatar" VALUES('01a2138d-f4c4-748c-959b-0486c4750479','01a2138d-f231-7780-9eb4-45683ca2d938','01a2138d-f4c4-748c-959b-0486c4750479
zoe','01a2138d-f4c4-748c-959b-0487cc0efb85','Zoe','female',0,NULL,'FAILED',NULL,'no renderer is installed',1795624400068264,1795624400069255,NULL,'',0,NULL,0);
CREATE TABLE delivery (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    conversation TEXT NOT NULL,
    agent TEXT NOT NULL,
    sequence BIGINT NOT NULL,
    event TEXT NOT NULL,
    url TEXT NOT NULL,
    body TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts BIGINT NOT NULL DEFAULT 0,
    first_try BIGINT,
    next_try BIGINT NOT NULL,
    reason TEXT,
    created_at BIGINT NOT NULL
, tries_before BIGINT NOT NULL DEFAULT 0, server TEXT NOT NULL DEFAULT '', erased BIGINT NOT NULL DEFAULT 0);
INSERT INTO "delivery" VALUES('msg_01a2138df6f270f3ac54d2963bab51b0','01a2138d-f231-7780-9eb4-45683ca2d938','e56ba8a2-3253-4d9e-8ba8-a081e00573f3','01a2138d-f4c6-7412-bef2-081062307a08',1,'call_ended','http://127.0.0.1:43295','{"timestamp":1795624400.609174,"conversation_id":"e56ba8a2-3253-4d9e-8ba8-a081e00573f3","type":"pipeline","event":{"name":"call_ended","payload":{}}}','dead',1,1795624400627762,1795624400626596,'answered 410',1795624400626596,0,'01a2138d-f220-743f-a493-44c6c7ea2f9d',0);
CREATE TABLE delivery_try (
    delivery TEXT NOT NULL,
    attempt BIGINT NOT NULL,
    workspace TEXT NOT NULL,
    at_us BIGINT NOT NULL,
    took_us BIGINT NOT NULL,
    status BIGINT,
    error TEXT,
    PRIMARY KEY (delivery, attempt)
);
INSERT INTO "delivery_try" VALUES('msg_01a2138df6f270f3ac54d2963bab51b0',1,'01a2138d-f231-7780-9eb4-45683ca2d938',1795624400627783,1317,410,NULL);
CREATE TABLE ended_session (
    id TEXT PRIMARY KEY,
    until BIGINT NOT NULL
);
CREATE TABLE erased (
    server TEXT NOT NULL,
    conversation TEXT NOT NULL,
    PRIMARY KEY (server, conversation)
);
CREATE TABLE event (
    conversation TEXT NOT NULL,
    seq BIGINT NOT NULL,
    workspace TEXT NOT NULL,
    at_us BIGINT NOT NULL,
    json TEXT NOT NULL,
    PRIMARY KEY (conversation, seq)
);
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',0,'01a2138d-f231-7780-9eb4-45683ca2d938',0,'{"what":"tts.started","text":"Welcome to the museum."}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',1,'01a2138d-f231-7780-9eb4-45683ca2d938',0,'{"what":"joined","unix_micros":1795624400124587}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',2,'01a2138d-f231-7780-9eb4-45683ca2d938',10601,'{"what":"playout.started","position":0.0}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',3,'01a2138d-f231-7780-9eb4-45683ca2d938',10601,'{"what":"agent.started_speaking","text":"Welcome to the museum.","utterance":0}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',4,'01a2138d-f231-7780-9eb4-45683ca2d938',10601,'{"what":"agent.state","state":"speaking"}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',5,'01a2138d-f231-7780-9eb4-45683ca2d938',220443,'{"what":"playout.finished","position":0.22,"interrupted":false,"heard":"Welcome to the museum."}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',6,'01a2138d-f231-7780-9eb4-45683ca2d938',220443,'{"what":"agent.stopped_speaking","text":"Welcome to the museum.","utterance":0}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',7,'01a2138d-f231-7780-9eb4-45683ca2d938',220443,'{"what":"history","role":"assistant","text":"Welcome to the museum.","utterance":0,"began":10601}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',8,'01a2138d-f231-7780-9eb4-45683ca2d938',220443,'{"what":"agent.state","state":"listening"}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',9,'01a2138d-f231-7780-9eb4-45683ca2d938',222603,'{"what":"utterance_committed","text":"When does the museum open?"}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',10,'01a2138d-f231-7780-9eb4-45683ca2d938',222603,'{"what":"history","role":"user","text":"When does the museum open?"}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',11,'01a2138d-f231-7780-9eb4-45683ca2d938',222603,'{"what":"agent.state","state":"thinking"}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',12,'01a2138d-f231-7780-9eb4-45683ca2d938',222603,'{"what":"llm.started"}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',13,'01a2138d-f231-7780-9eb4-45683ca2d938',222900,'{"what":"snippets","items":[{"kb_id":"01a2138d-f4c2-717d-92f8-7592424ffb9e","doc_id":"01a2138d-f4c2-717d-92f8-7593f1967fd7","text":"The museum opens at nine. The oldest clock was built in 1676.","score":0.5753642}]}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',14,'01a2138d-f231-7780-9eb4-45683ca2d938',223111,'{"what":"llm.text","text":"The "}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',15,'01a2138d-f231-7780-9eb4-45683ca2d938',223111,'{"what":"llm.text","text":"museum "}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',16,'01a2138d-f231-7780-9eb4-45683ca2d938',223111,'{"what":"llm.text","text":"opens "}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',17,'01a2138d-f231-7780-9eb4-45683ca2d938',223111,'{"what":"llm.text","text":"at "}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',18,'01a2138d-f231-7780-9eb4-45683ca2d938',223111,'{"what":"llm.text","text":"nine."}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',19,'01a2138d-f231-7780-9eb4-45683ca2d938',223111,'{"what":"llm.stopped","prompt_tokens":9,"completion_tokens":5}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',20,'01a2138d-f231-7780-9eb4-45683ca2d938',223111,'{"what":"tts.started","text":"The museum opens at nine."}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',21,'01a2138d-f231-7780-9eb4-45683ca2d938',240365,'{"what":"playout.started","position":0.0}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',22,'01a2138d-f231-7780-9eb4-45683ca2d938',240365,'{"what":"agent.started_speaking","text":"The museum opens at nine.","utterance":1}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',23,'01a2138d-f231-7780-9eb4-45683ca2d938',240365,'{"what":"agent.state","state":"speaking"}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',24,'01a2138d-f231-7780-9eb4-45683ca2d938',240365,'{"what":"turn","turn":0,"stt":null,"playout":0.015885,"endpointing":null,"llm_ttft":0.000508,"tts_ttfb":0.001369,"voice_to_voice":null,"barge_in":null,"timeline":{"speech_end":null,"committed":0.222603,"llm_first_token":0.223111,"tts_first_byte":0.22448,"first_sample":0.240365,"heard_end":null,"interrupted":null}}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',25,'01a2138d-f231-7780-9eb4-45683ca2d938',480510,'{"what":"playout.finished","position":0.25,"interrupted":false,"heard":"The museum opens at nine."}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',26,'01a2138d-f231-7780-9eb4-45683ca2d938',480510,'{"what":"agent.stopped_speaking","text":"The museum opens at nine.","utterance":1}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',27,'01a2138d-f231-7780-9eb4-45683ca2d938',480510,'{"what":"history","role":"assistant","text":"The museum opens at nine.","utterance":1,"began":240365}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',28,'01a2138d-f231-7780-9eb4-45683ca2d938',480510,'{"what":"turn.heard","turn":0,"heard_end":0.48051,"interrupted":null,"barge_in":null}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',29,'01a2138d-f231-7780-9eb4-45683ca2d938',480510,'{"what":"agent.state","state":"listening"}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',30,'01a2138d-f231-7780-9eb4-45683ca2d938',484587,'{"what":"participant_left","id":"user-7"}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',31,'01a2138d-f231-7780-9eb4-45683ca2d938',484587,'{"what":"call_ended"}');
INSERT INTO "event" VALUES('e56ba8a2-3253-4d9e-8ba8-a081e00573f3',32,'01a2138d-f231-7780-9eb4-45683ca2d938',484587,'{"what":"ended","reason":"user_left"}');
CREATE TABLE failed_event (
    id TEXT PRIMARY KEY,
    conversation TEXT NOT NULL,
    seq BIGINT NOT NULL,
    failed_at BIGINT NOT NULL,
    json TEXT NOT NULL,
    reason TEXT NOT NULL
);
CREATE TABLE guardrail (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    slug TEXT NOT NULL,
    search TEXT NOT NULL,
    type TEXT,
    document TEXT NOT NULL,
    secrets TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    UNIQUE (workspace, slug)
);
INSERT INTO "guardrail" VALUES('01a2138d-f4bd-7708-8ac6-5622e60c7d9f','01a2138d-f231-7780-9eb4-45683ca2d938','prices','01a2138d-f4bd-7708-8ac6-5622e60c7d9f
prices
prices',NULL,'{"key":"prices","name":"Prices","category":"","prompt":"The agent names no price.","response_message":"","callback_url":""}','',1795624400061266,1795624400061266);
CREATE TABLE had_turn (
    kind TEXT NOT NULL,
    workspace TEXT NOT NULL,
    number BIGINT NOT NULL,
    PRIMARY KEY (kind, workspace)
);
CREATE TABLE kb (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    search TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
INSERT INTO "kb" VALUES('01a2138d-f236-70f1-b3bc-b0416e9a57f7','01a2138d-f231-7780-9eb4-45683ca2d938','01a2138d-f236-70f1-b3bc-b0416e9a57f7
demo','Demo','About Visavis, and about a flower shop that is made up',1795624399414639,1795624399414639);
INSERT INTO "kb" VALUES('01a2138d-f4c2-717d-92f8-7592424ffb9e','01a2138d-f231-7780-9eb4-45683ca2d938','01a2138d-f4c2-717d-92f8-7592424ffb9e
test knowledge','Test knowledge','What the tests ask for',1795624400066569,1795624400066569);
CREATE TABLE kb_document (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    kb TEXT NOT NULL,
    position BIGINT NOT NULL,
    name TEXT NOT NULL,
    type TEXT NOT NULL,
    status TEXT NOT NULL,
    error_message TEXT,
    body TEXT NOT NULL,
    created_at BIGINT NOT NULL
, source TEXT, directions TEXT, directions_of TEXT, server TEXT NOT NULL DEFAULT '');
INSERT INTO "kb_document" VALUES('01a2138d-f236-70f1-b3bc-b0428addb0c3','01a2138d-f231-7780-9eb4-45683ca2d938','01a2138d-f236-70f1-b3bc-b0416e9a57f7',0,'visavis.md','md','ready',NULL,'# About Visavis

Visavis is a server for live conversations with video agents. You run it on your own machine.

An agent hears you, thinks, speaks, and shows a face whose lips follow the words.

You can interrupt the agent at any time. It stops, listens, and remembers only what you have really heard.

Visavis needs no cloud account. Speech recognition, the voice and the face are built in.

For smarter answers you can connect any language model server that speaks the OpenAI protocol.

Agents can use tools: they call web services during the conversation, for example to look up an order.

Agents know what you upload. A knowledge base holds texts, and the agent answers from them.

Developers control Visavis with a REST interface and get webhooks for everything that happens in a conversation.

Conversations are recorded as a transcript. It holds what was said and what was heard.

Your data stays on your own server.
',1795624399414639,NULL,NULL,NULL,'');
INSERT INTO "kb_document" VALUES('01a2138d-f236-70f1-b3bc-b043aca584e0','01a2138d-f231-7780-9eb4-45683ca2d938','01a2138d-f236-70f1-b3bc-b0416e9a57f7',1,'shop.md','md','ready',NULL,'# The demo shop

The demo shop is a small flower shop. It is made up for this demo.

Opening hours: the shop is open from Monday to Friday from nine to six, and on Saturday from ten to four. On Sunday it is closed.

A bouquet of roses costs twenty five dollars. A bouquet of tulips costs fifteen dollars. A single sunflower costs four dollars.

Delivery within the city costs five dollars. It is free for orders over forty dollars.

Same day delivery is possible for orders before two o''clock in the afternoon.

You can pay in cash or with any card.

The shop is at twelve Garden Street, next to the old library.

Flowers can be returned within two days if they are not fresh.

Rosa runs the shop. She opened it eleven years ago.
',1795624399414639,NULL,NULL,NULL,'');
INSERT INTO "kb_document" VALUES('01a2138d-f4c2-717d-92f8-7593f1967fd7','01a2138d-f231-7780-9eb4-45683ca2d938','01a2138d-f4c2-717d-92f8-7592424ffb9e',0,'text','text','ready',NULL,'The museum opens at nine. The oldest clock was built in 1676.',1795624400066569,NULL,NULL,NULL,'');
CREATE TABLE mcp (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    search TEXT NOT NULL,
    type TEXT,
    document TEXT NOT NULL,
    secrets TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
INSERT INTO "mcp" VALUES('01a2138d-f4be-71ef-9407-43109a3e3520','01a2138d-f231-7780-9eb4-45683ca2d938','01a2138d-f4be-71ef-9407-43109a3e3520
files','shttp/sse','{"name":"Files","description":"","type":"shttp/sse","request_config":{"url":"http://127.0.0.1:9/","headers":{"authorization":"***"}}}','JOMUvxnZNP+q900kJRnldRJpnf26nOUSWTaiTH0al+P74XUy85cUaMbLB3a4BgIUwSCI1A1DqW7RNw==',1795624400062495,1795624400062495);
CREATE TABLE server (
    id TEXT PRIMARY KEY,
    lease_until BIGINT NOT NULL
);
INSERT INTO "server" VALUES('01a2138d-f220-743f-a493-44c6c7ea2f9d',1795624429410049);
CREATE TABLE setting (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
INSERT INTO "setting" VALUES('keys','6513d39600a87911');
INSERT INTO "setting" VALUES('demo_agent','01a2138d-f237-7590-9f4a-02fd91123c08');
INSERT INTO "setting" VALUES('first_start','2026-11-25T16:33:19.415Z');
CREATE TABLE template (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    search TEXT NOT NULL,
    type TEXT,
    document TEXT NOT NULL,
    secrets TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
INSERT INTO "template" VALUES('01a2138d-f4c0-74bf-80ef-f37972262f02','01a2138d-f231-7780-9eb4-45683ca2d938','01a2138d-f4c0-74bf-80ef-f37972262f02
guide',NULL,'{"template_name":"Guide","template_system_prompt":"You guide visitors.","avatars":[],"callback_events":[],"callback_url":"","config":{"timeout":null,"maxCallDuration":null,"conversationalContext":"","memory":{"isEnabled":false,"instruction":""},"error_message":"I''m sorry, something went wrong. Please say that again.","turn":{},"expose_tools":false,"trust_client_context":false,"record_trace":false},"knowledge_base":null,"tool":null,"guardrail":null,"mcp":null,"record":false,"is_active":true,"type":null,"email":null,"embed":{"enabled":false,"origins":[]}}','aIab2CIuw3szlSEbS9L2/M4BVp/S0X6h2UkDiHW3tVMHVLR6Vc7+f0k0f3LbqKaNFkIcMBat4LBw3GuMdPjN3by9kys3am9IecLOD6SQ6KPjf6bay2OkswcRjXIF4CbKtrt0sUODQkx+',1795624400064853,1795624400064853);
CREATE TABLE tool (
    id TEXT PRIMARY KEY,
    workspace TEXT NOT NULL,
    search TEXT NOT NULL,
    type TEXT,
    document TEXT NOT NULL,
    secrets TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL
);
INSERT INTO "tool" VALUES('01a2138d-f4bf-7464-af42-6b2831219a1d','01a2138d-f231-7780-9eb4-45683ca2d938','01a2138d-f4bf-7464-af42-6b2831219a1d
weather','tool.api','{"type":"tool.api","schema":{"type":"function","name":"weather","description":"","parameters":{"type":"object","properties":{},"required":[]}},"request_config":{"method":"POST","url":"http://127.0.0.1:9/","headers":{"x-key":"***"}},"event_messages":{"on_start":null,"on_success":null,"on_error":null,"on_delay":null}}','0180TAebZDess7XuMGtpk3RW7Ds6VjiAQI4waWss+QA/9mbhQo6Q9bTYNQ==',1795624400063584,1795624400063584);
CREATE TABLE workspace (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL
, conversations BIGINT NOT NULL DEFAULT 0, made_on BIGINT NOT NULL DEFAULT 0, made BIGINT NOT NULL DEFAULT 0);
INSERT INTO "workspace" VALUES('01a2138d-f231-7780-9eb4-45683ca2d938','default',1795624399409752,1,20782,1);
CREATE INDEX agent_page ON agent (workspace, created_at, id);
CREATE INDEX tool_page ON tool (workspace, created_at, id);
CREATE INDEX kb_page ON kb (workspace, created_at, id);
CREATE INDEX kb_document_of ON kb_document (kb, position);
CREATE INDEX conversation_status ON conversation (status, created_at);
CREATE INDEX delivery_pending ON delivery (state, conversation, sequence);
CREATE INDEX delivery_of ON delivery (conversation, sequence);
CREATE INDEX template_page ON template (workspace, created_at, id);
CREATE INDEX guardrail_page ON guardrail (workspace, created_at, id);
CREATE INDEX mcp_page ON mcp (workspace, created_at, id);
CREATE INDEX custom_avatar_page ON custom_avatar (workspace, created_at, id);
CREATE INDEX custom_avatar_status ON custom_avatar (status, created_at);
CREATE INDEX delivery_page ON delivery (workspace, state, created_at, id);
CREATE INDEX kb_document_status ON kb_document (status, created_at);
CREATE INDEX conversation_page ON conversation (workspace, created_at, id, status, SUBSTR(type, 1, 100), search);
CREATE INDEX conversation_user ON conversation (agent, SUBSTR(user_id, 1, 100), created_at) WHERE user_id IS NOT NULL;
CREATE INDEX conversation_ended ON conversation (ended_at) WHERE status = 'ENDED';
CREATE INDEX delivery_again ON delivery (server, next_try) WHERE state = 'pending' AND first_try IS NOT NULL;
CREATE INDEX failed_event_conversation ON failed_event (conversation);
COMMIT;
