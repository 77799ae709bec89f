//! The names of all keys.

use super::source::ValueKind;

/// All keys, as in `config/example.toml`, and the type that the text of an environment variable is
/// converted to.
pub(super) const CONFIG_KEYS: &[(&str, &[(&str, ValueKind)])] = &[
    (
        "server",
        &[
            ("listen", ValueKind::Text),
            ("data", ValueKind::Text),
            ("public_url", ValueKind::Text),
            ("database_url", ValueKind::Secret),
            ("database_wait", ValueKind::Number),
            ("region", ValueKind::Text),
            ("secrets_key", ValueKind::Secret),
            ("tokens_key", ValueKind::Secret),
            ("trusted_proxies", ValueKind::TextList),
            ("cors_origins", ValueKind::TextList),
            ("metrics_token", ValueKind::Secret),
            ("retention_days", ValueKind::Number),
            ("allow_private_targets", ValueKind::Bool),
            ("allow_scripted", ValueKind::Bool),
            ("log_format", ValueKind::Text),
            ("print_key", ValueKind::Bool),
        ],
    ),
    (
        "timeouts",
        &[
            ("join", ValueKind::Number),
            ("token", ValueKind::Number),
            ("closed", ValueKind::Number),
            ("silence", ValueKind::Number),
            ("offer", ValueKind::Number),
            ("drain", ValueKind::Number),
            ("request", ValueKind::Number),
            ("lease", ValueKind::Number),
        ],
    ),
    ("webhooks", &[("schedule", ValueKind::NumberList), ("hold", ValueKind::Number)]),
    (
        "media",
        &[
            ("public_ip", ValueKind::TextList),
            ("udp_ports", ValueKind::Text),
            ("tcp_port", ValueKind::Number),
            ("ice_servers", ValueKind::IceServers),
            ("threads", ValueKind::Number),
        ],
    ),
    ("stt", &[("workers", ValueKind::Number), ("pool", ValueKind::Number)]),
    ("models", &[("dir", ValueKind::Text)]),
    ("avatars", &[("dir", ValueKind::Text), ("require_consent", ValueKind::Bool)]),
    (
        "knowledge",
        &[
            ("embeddings_url", ValueKind::Text),
            ("embeddings_model", ValueKind::Text),
            ("embeddings_token", ValueKind::Secret),
        ],
    ),
    ("recording", &[("min_free", ValueKind::Number), ("link_seconds", ValueKind::Number)]),
    ("storage", &[("url", ValueKind::Text)]),
    (
        "meetings",
        &[
            ("provider", ValueKind::Text),
            ("url", ValueKind::Text),
            ("key", ValueKind::Secret),
            ("webhook_secret", ValueKind::Secret),
            ("media", ValueKind::Text),
            ("lobby_timeout", ValueKind::Number),
            ("alone_timeout", ValueKind::Number),
            ("max_duration", ValueKind::Number),
            ("reconnect_timeout", ValueKind::Number),
            ("message", ValueKind::Text),
            ("login_groups", ValueKind::TextList),
        ],
    ),
    (
        "livekit",
        &[
            ("url", ValueKind::Text),
            ("api_key", ValueKind::Text),
            ("api_secret", ValueKind::Secret),
            ("agent_name", ValueKind::Text),
            ("default_agent", ValueKind::Text),
            ("workspace", ValueKind::Text),
        ],
    ),
    (
        "providers",
        &[
            ("stt", ValueKind::TextList),
            ("llm", ValueKind::TextList),
            ("tts", ValueKind::TextList),
            ("hedge", ValueKind::Bool),
            ("hedge_llm_after", ValueKind::Number),
            ("hedge_tts_after", ValueKind::Number),
        ],
    ),
    (
        "limits",
        &[
            ("per_key", ValueKind::Number),
            ("offers", ValueKind::Number),
            ("embeds", ValueKind::Number),
            ("calls", ValueKind::Number),
            ("connections", ValueKind::Number),
            ("load", ValueKind::Number),
            ("memory", ValueKind::Number),
            ("questions", ValueKind::Number),
            ("workspace_calls", ValueKind::Number),
            ("workspace_conversations", ValueKind::Number),
            ("workspace_agents", ValueKind::Number),
            ("workspace_bytes", ValueKind::Number),
        ],
    ),
    ("otlp", &[("endpoint", ValueKind::Text)]),
    (
        "branding",
        &[("name", ValueKind::Text), ("logo", ValueKind::Text), ("color", ValueKind::Text)],
    ),
];
