"""Every sentence of the contract about safety, and the tests that prove it."""

API_TESTS = "control-api/tests/api"
NET_TESTS = "egress/src/tests.rs"
ROW_TEST = "tests/e2e/test_conformance.py::test_row"

PROOFS = {
    # Outgoing requests
    "webhooks, tools, MCP, llm.url, embeddings, guardrail callbacks share one policy": [
        f"{API_TESTS}/embeddings.rs::the_operator_s_server_is_asked_also_at_a_private_address_and_finds_what_words_do_not",
        f"{API_TESTS}/embeddings.rs::a_server_that_points_elsewhere_is_not_followed_and_words_find_what_they_find",
        "models/src/embeddings.rs::not_even_the_operator_s_own_configuration_reaches_a_metadata_service",
        f"{API_TESTS}/contract.rs::a_webhook_to_a_refused_address_is_a_dead_letter_at_once_and_no_error_before",
        "engine/src/think/tools/tests.rs::a_forbidden_tool_request_is_rejected_with_a_reason",
        f"{API_TESTS}/mcp.rs::a_server_at_a_private_address_is_asked_only_where_the_operator_allows_it",
        "models/src/llm/openai/tests.rs::a_refused_address_is_a_failed_model",
        "models/src/llm/anthropic/tests.rs::a_refused_address_is_a_failed_model",
        f"{API_TESTS}/contract.rs::a_guardrail_s_receiver_at_a_refused_address_is_not_asked",
    ],
    "http(s) only": [f"{NET_TESTS}::only_http_and_clean_headers_are_taken", ROW_TEST],
    "name resolved once and the address pinned": [f"{NET_TESTS}::a_kept_connection_is_used_again_and_a_new_one_is_checked_again", f"{NET_TESTS}::a_name_with_one_private_address_is_refused_whole"],
    "private, loopback and link-local addresses refused": [f"{NET_TESTS}::loopback_is_refused_in_every_notation", "egress/src/address.rs::special_ipv4_ranges_are_private", "egress/src/address.rs::special_ipv6_ranges_are_private"],
    "unless --allow-private-targets, the default where every HTTP listener is loopback and server.public_url is unset": [f"{API_TESTS}/contract.rs::private_targets_are_allowed_by_default_only_where_nobody_else_reaches_the_server"],
    "what the operator's own configuration names is always trusted": [f"{NET_TESTS}::trusted_requests_reach_private_targets_under_a_strict_policy"],
    "metadata addresses never": [f"{NET_TESTS}::metadata_services_are_refused_even_where_everything_else_is_trusted", "egress/src/address.rs::metadata_services_are_recognized_in_every_form"],
    "no redirects": [f"{NET_TESTS}::redirects_are_answers_like_any_other"],
    "size and time limits": [f"{NET_TESTS}::long_answers_are_cut_or_refused", f"{NET_TESTS}::a_server_that_says_nothing_times_out"],
    "a refused address is no error at creation: a webhook is a dead letter at once (refused address)": [f"{API_TESTS}/contract.rs::a_webhook_to_a_refused_address_is_a_dead_letter_at_once_and_no_error_before"],
    "a tool fails with that reason": ["engine/src/think/tools/tests.rs::a_forbidden_tool_request_is_rejected_with_a_reason"],
    "an llm.url is a failed LLM": [
        "models/src/llm/openai/tests.rs::a_refused_address_is_a_failed_model",
        "models/src/llm/anthropic/tests.rs::a_refused_address_is_a_failed_model",
    ],
    "a {param} is percent-encoded and never part of the host": ["engine/src/think/tools/tests.rs::an_argument_never_reaches_the_host_or_climbs_the_path", ROW_TEST],
    "header values without CR or LF": [f"{NET_TESTS}::only_http_and_clean_headers_are_taken", ROW_TEST],
    # Keys
    "keys are 256 random bits": ["control-api/src/state/api_key.rs::keys_are_long_and_never_the_same"],
    "stored as SHA-256 with a shown prefix": ["tests/e2e/test_conformance.py::test_a_key_is_stored_as_its_hash_only"],
    "token signing key and database 0600": ["tests/e2e/test_conformance.py::test_a_key_is_stored_as_its_hash_only"],
    "provider secrets are encrypted with the data folder's key file": [f"{API_TESTS}/agents.rs::secrets_are_written_and_never_read"],
    "nothing secret in logs, URLs of logs, traces, errors, REST answers": [
        "tests/e2e/test_replay.py::test_a_trace_holds_no_secret",
        "tests/e2e/test_conformance.py::test_secrets_reach_no_log_and_no_answer",
        f"{NET_TESTS}::errors_name_the_host_and_no_more",
        "models/src/llm/openai/tests.rs::refusals_are_told_in_the_servers_words_without_secrets",
        "models/src/llm/anthropic/tests.rs::refusals_are_reported_without_the_key",
        "engine/src/think/tools/tests.rs::failures_are_reasons_without_secrets",
    ],
    # UDP
    "no state before a valid MESSAGE-INTEGRITY": ["engine/src/transport/webrtc_tests.rs::a_check_with_a_wrong_password_is_not_ours", "engine/src/transport/demux.rs::a_check_is_routed_by_name_and_media_only_from_an_address_that_was_learnt", "tests/e2e/test_bad_input.py::test_noise_at_the_media_port"],
    "an offer that does not connect within 15 s is dropped": ["engine/tests/engine.rs::offers_that_never_connect_make_room_for_newer_ones_and_never_end_the_call", "tests/e2e/test_overload.py::test_offers_that_never_connect_keep_no_later_one_out"],
    "limits per address": ["engine/src/transport/demux.rs::a_flood_of_checks_from_one_address_is_cut_off_and_others_are_not", f"{API_TESTS}/limits.rs::addresses_are_limited_where_the_server_is_public"],
    "a bad offer does not use up a token": [f"{API_TESTS}/signaling.rs::a_refused_offer_says_why", "tests/e2e/test_bad_input.py::test_bad_offers", ROW_TEST],
    # Data channel
    "64 KiB a message": ["tests/e2e/test_bad_input.py::test_text_where_sound_is_expected"],
    "rates": ["engine/src/transport/client_messages.rs::a_flood_is_cut_off_with_one_complaint_and_forgiven_later"],
    "llm-function-call-result only for an open call id": ["tests/e2e/test_bad_input.py::test_text_where_sound_is_expected"],
    # Pages
    "text never as HTML": ["tests/e2e/test_pages.py::test_spoken_text_is_never_rendered_as_html", "control-api/src/web/mod.rs::no_module_makes_html_out_of_text"],
    "strict CSP": ["tests/e2e/test_pages.py::test_pages_have_a_strict_policy", "control-api/src/web/mod.rs::a_join_page_forbids_everything_that_it_does_not_need"],
    "Referrer-Policy: no-referrer": [f"{API_TESTS}/limits.rs::every_answer_has_the_headers_that_protect_pages", ROW_TEST],
    "Host check on loopback listeners": [f"{API_TESTS}/limits.rs::a_page_elsewhere_cannot_reach_a_loopback_server_by_a_name_of_its_own", ROW_TEST],
    "console cookie HttpOnly SameSite with CSRF token": [f"{API_TESTS}/session.rs::a_session_opens_what_its_key_opens_and_only_with_both_halves", "tests/e2e/test_console.py::test_the_session_cookie_alone_grants_no_access"],
    "pictures PNG, JPEG, WebP only": ["control-api/src/resources/custom_avatars/picture.rs::a_picture_is_a_data_uri_of_a_known_kind", ROW_TEST],
    # Uploads
    "uploads are parsed in a child process with limits on memory, time and pixels": [ROW_TEST, "control-api/src/resources/custom_avatars/picture.rs::a_picture_is_a_data_uri_of_a_known_kind"],
    "file names never become paths": ["control-api/src/resources/knowledge/form.rs::a_file_s_kind_is_its_ending_and_its_name_no_path", ROW_TEST],
    "model and library paths come from the operator only": ["models/src/registry/tests.rs::unavailable_stt_and_tts_providers_are_reported"],
    "provider script needs --allow-scripted": ["models/src/registry/tests.rs::scripts_need_the_operators_leave"],
}
