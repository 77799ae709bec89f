use std::sync::atomic::{AtomicUsize, Ordering};

use super::keys::CONFIG_KEYS;
use super::*;

/// Loads a file with this content. The temporary file's name is removed from the error message.
pub(super) fn load_toml(file: &str, environment: &[(&str, &str)]) -> Result<Config, String> {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("visavis-config-{}-{number}", std::process::id()));
    std::fs::write(&path, file).unwrap();
    let environment = environment.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned()));
    let result = Config::load(Some(&path), environment);
    std::fs::remove_file(&path).unwrap();
    result.map_err(|text| text.replace(&*path.to_string_lossy(), "FILE"))
}

fn load_variable(name: &str, text: &str) -> Result<Config, String> {
    load_toml("", &[(name, text)])
}

/// 32 bytes in base64.
const URL: &str = "postgres://host/name";
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

#[test]
fn environment_wins_over_file_over_default() {
    let file = "[server]\nlisten = \"127.0.0.1:1\"\n[stt]\npool = 3\n";
    let config = load_toml(file, &[("VISAVIS_STT_POOL", "5"), ("VISAVIS_API_KEY", "k")]).unwrap();
    assert_eq!((config.server.listen.port(), config.stt.pool, config.timeouts.join), (1, 5, 300.0));
    let config = load_toml(file, &[("VISAVIS_STT_POOL", "")]).unwrap();
    assert_eq!(config.stt.pool, 3, "an empty variable counts as unset");
}

/// Two keys that are valid only together.
const EMBEDDINGS_SECTION: &str =
    "[knowledge]\nembeddings_url = \"http://127.0.0.1:1/v1\"\nembeddings_model = \"model\"\n";

#[test]
fn a_server_of_embeddings_needs_its_address_and_its_model() {
    assert_eq!(load_toml("", &[]).unwrap().knowledge.embeddings_config(), None);
    for (name, text, missing) in [
        ("VISAVIS_KNOWLEDGE_EMBEDDINGS_URL", "http://localhost/v1", "embeddings_model is required"),
        ("VISAVIS_KNOWLEDGE_EMBEDDINGS_MODEL", "m", "embeddings_url is required"),
        ("VISAVIS_KNOWLEDGE_EMBEDDINGS_URL", "localhost:80", "not an http or https URL"),
    ] {
        let refused = load_variable(name, text).unwrap_err();
        assert!(refused.replace(": is", " is").contains(missing), "{name}={text}: {refused}");
    }
}

/// For every key: the text that an operator would write into its variable, and the value it must
/// give.
#[test]
fn every_key_takes_its_natural_value_from_the_environment() {
    type Getter = fn(&Config) -> String;
    let ip = |c: &Config| format!("{:?}", c.media.public_ip);
    let servers = |c: &Config| {
        let shown =
            |s: &IceServer| format!("{} {:?} {:?}", s.urls.join("+"), s.username, s.credential);
        c.media.ice_servers.iter().map(shown).collect::<Vec<_>>().join("; ")
    };
    let table: &[(&str, &str, Getter, &str)] = &[
        ("server.listen", "0.0.0.0:9000", |c| c.server.listen.to_string(), "0.0.0.0:9000"),
        ("server.listen", "[::1]:9000", |c| c.server.listen.to_string(), "[::1]:9000"),
        (
            "server.data",
            "/var/lib/visavis",
            |c| c.server.data.display().to_string(),
            "/var/lib/visavis",
        ),
        ("server.data", "12", |c| c.server.data.display().to_string(), "12"),
        (
            "server.public_url",
            "https://talk.example",
            |c| format!("{:?}", c.server.public_url),
            "Some(\"https://talk.example\")",
        ),
        (
            "server.cors_origins",
            "https://a.example,http://b.example:8080",
            |c| c.server.cors_origins.join(" "),
            "https://a.example http://b.example:8080",
        ),
        (
            "server.trusted_proxies",
            "10.0.0.0/8,192.0.2.7",
            |c| format!("{:?}", c.server.trusted_proxies),
            "[\"10.0.0.0/8\", \"192.0.2.7\"]",
        ),
        ("providers.stt", "deepgram,builtin", |c| c.providers.stt.join(" "), "deepgram builtin"),
        ("providers.llm", "anthropic", |c| c.providers.llm.join(" "), "anthropic"),
        ("providers.tts", "[\"cartesia\"]", |c| c.providers.tts.join(" "), "cartesia"),
        ("providers.hedge", "yes", |c| c.providers.hedge.to_string(), "true"),
        ("providers.hedge_llm_after", "2", |c| c.providers.hedge_llm_after.to_string(), "2"),
        ("providers.hedge_tts_after", "0.8", |c| c.providers.hedge_tts_after.to_string(), "0.8"),
        ("server.cors_origins", "*", |c| c.server.cors_origins.join(" "), "*"),
        (
            "server.metrics_token",
            "12345678",
            |c| format!("{:?}", c.server.metrics_token),
            "Some(\"12345678\")",
        ),
        (
            "server.metrics_token",
            "true",
            |c| format!("{:?}", c.server.metrics_token),
            "Some(\"true\")",
        ),
        (
            "server.metrics_token",
            "a\"b",
            |c| format!("{:?}", c.server.metrics_token),
            "Some(\"a\\\"b\")",
        ),
        ("server.retention_days", "30", |c| c.server.retention_days.to_string(), "30"),
        (
            "server.allow_private_targets",
            "true",
            |c| format!("{:?}", c.server.allow_private_targets),
            "Some(true)",
        ),
        (
            "server.allow_private_targets",
            "0",
            |c| format!("{:?}", c.server.allow_private_targets),
            "Some(false)",
        ),
        ("server.allow_scripted", "yes", |c| c.server.allow_scripted.to_string(), "true"),
        ("server.log_format", "json", |c| format!("{:?}", c.server.log_format), "Json"),
        ("timeouts.join", "10", |c| c.timeouts.join.to_string(), "10"),
        ("timeouts.token", "0.5", |c| c.timeouts.token.to_string(), "0.5"),
        ("timeouts.closed", "1", |c| c.timeouts.closed.to_string(), "1"),
        ("timeouts.silence", "2", |c| c.timeouts.silence.to_string(), "2"),
        ("timeouts.offer", "3", |c| c.timeouts.offer.to_string(), "3"),
        ("timeouts.drain", "4", |c| c.timeouts.drain.to_string(), "4"),
        ("timeouts.request", "5", |c| c.timeouts.request.to_string(), "5"),
        ("timeouts.lease", "5", |c| c.timeouts.lease.to_string(), "5"),
        ("webhooks.schedule", "0,1,2", |c| format!("{:?}", c.webhooks.schedule), "[0.0, 1.0, 2.0]"),
        ("webhooks.schedule", "7", |c| format!("{:?}", c.webhooks.schedule), "[7.0]"),
        ("webhooks.schedule", "[0, 2.5]", |c| format!("{:?}", c.webhooks.schedule), "[0.0, 2.5]"),
        ("webhooks.hold", "9", |c| c.webhooks.hold.to_string(), "9"),
        ("media.public_ip", "1.2.3.4", ip, "[1.2.3.4]"),
        ("media.public_ip", "1.2.3.4, 5.6.7.8", ip, "[1.2.3.4, 5.6.7.8]"),
        ("media.public_ip", "2001:db8::1", ip, "[2001:db8::1]"),
        ("media.public_ip", "[\"192.0.2.1\"]", ip, "[192.0.2.1]"),
        ("media.udp_ports", "50000", |c| c.media.udp_ports.clone(), "50000"),
        ("media.udp_ports", "50000-50007", |c| c.media.udp_ports.clone(), "50000-50007"),
        ("media.tcp_port", "443", |c| c.media.tcp_port.to_string(), "443"),
        (
            "media.ice_servers",
            "stun:a.example,turn:b.example",
            servers,
            "stun:a.example+turn:b.example None None",
        ),
        (
            "media.ice_servers",
            "[{ urls = [\"turn:a\"], username = \"u\" }]",
            servers,
            "turn:a Some(\"u\") None",
        ),
        (
            "media.ice_servers",
            "[{\"urls\": [\"turn:a\"], \"credential\": \"c\"}]",
            servers,
            "turn:a None Some(\"c\")",
        ),
        ("media.threads", "2", |c| c.media.threads.to_string(), "2"),
        ("stt.workers", "2", |c| c.stt.workers.to_string(), "2"),
        ("stt.pool", " 3 ", |c| c.stt.pool.to_string(), "3"),
        ("models.dir", "/opt/models", |c| c.models.folder().display().to_string(), "/opt/models"),
        ("avatars.dir", "/opt/faces", |c| format!("{:?}", c.avatars.dir), "Some(\"/opt/faces\")"),
        ("server.database_url", URL, |c| c.server.database_url.clone().unwrap(), URL),
        ("server.database_wait", "5.5", |c| c.server.database_wait.to_string(), "5.5"),
        ("server.print_key", "no", |c| c.server.print_key.to_string(), "false"),
        ("server.region", "eu-west", |c| c.server.region.clone(), "eu-west"),
        ("server.secrets_key", KEY, |c| format!("{:?}", c.server.secrets_key), "Some(SecretKey)"),
        ("server.tokens_key", KEY, |c| format!("{:?}", c.server.tokens_key), "Some(SecretKey)"),
        (
            "knowledge.embeddings_url",
            "https://api.example/v1",
            |c| c.knowledge.embeddings_config().unwrap().url,
            "https://api.example/v1",
        ),
        (
            "knowledge.embeddings_model",
            "12",
            |c| c.knowledge.embeddings_config().unwrap().model,
            "12",
        ),
        (
            "knowledge.embeddings_token",
            "true",
            |c| format!("{:?}", c.knowledge.embeddings_config().unwrap().token),
            "Some(\"true\")",
        ),
        ("recording.min_free", "0", |c| c.recording.min_free.to_string(), "0"),
        ("recording.link_seconds", "60", |c| c.recording.link_seconds.to_string(), "60"),
        ("avatars.require_consent", "true", |c| c.avatars.require_consent.to_string(), "true"),
        ("storage.url", "s3://b/f", |c| c.storage.url.clone().unwrap(), "s3://b/f"),
        ("limits.per_key", "1", |c| c.limits.per_key.to_string(), "1"),
        ("limits.offers", "2", |c| c.limits.offers.to_string(), "2"),
        ("limits.embeds", "3", |c| c.limits.embeds.to_string(), "3"),
        ("limits.calls", "4", |c| c.limits.calls.to_string(), "4"),
        ("limits.connections", "5", |c| c.limits.connections.to_string(), "5"),
        (
            "otlp.endpoint",
            "http://c.example:4318",
            |c| format!("{:?}", c.otlp.endpoint),
            "Some(\"http://c.example:4318\")",
        ),
        ("limits.load", "0.5", |c| c.limits.load.to_string(), "0.5"),
        ("limits.memory", "64", |c| c.limits.memory.to_string(), "64"),
        ("limits.questions", "0.5", |c| c.limits.questions.to_string(), "0.5"),
        ("limits.workspace_calls", "6", |c| c.limits.workspace_calls.to_string(), "6"),
        (
            "limits.workspace_conversations",
            "7",
            |c| c.limits.workspace_conversations.to_string(),
            "7",
        ),
        ("limits.workspace_agents", "8", |c| c.limits.workspace_agents.to_string(), "8"),
        (
            "limits.workspace_bytes",
            "5000000000",
            |c| c.limits.workspace_bytes.to_string(),
            "5000000000",
        ),
    ];
    for (key, text, look, meant) in table {
        let name = format!("VISAVIS_{}", key.replace('.', "_").to_uppercase());
        match load_toml(EMBEDDINGS_SECTION, &[(name.as_str(), *text)]) {
            Ok(config) => assert_eq!(look(&config), *meant, "{name}={text}"),
            Err(refused) => panic!("{name}={text}: {refused}"),
        }
    }
    // These sections have tables of their own.
    let is_elsewhere = |section: &str| matches!(section, "meetings" | "livekit" | "branding");
    for (section, keys) in CONFIG_KEYS.iter().filter(|(section, _)| !is_elsewhere(section)) {
        for (key, _) in *keys {
            let name = format!("{section}.{key}");
            assert!(table.iter().any(|(key, ..)| *key == name), "{name} is not tested here");
        }
    }
}

#[test]
fn a_variable_that_makes_no_sense_is_refused_by_its_name() {
    for (name, text, expected) in [
        ("VISAVIS_STT_POOL", "many", "VISAVIS_STT_POOL: \"many\" is not a number"),
        (
            "VISAVIS_STT_POOL",
            "-1",
            "VISAVIS_STT_POOL: must be a whole number that is not negative and not too large",
        ),
        (
            "VISAVIS_MEDIA_TCP_PORT",
            "70000",
            "VISAVIS_MEDIA_TCP_PORT: must be a whole number that is not negative and not too large",
        ),
        (
            "VISAVIS_TIMEOUTS_JOIN",
            "nan",
            "VISAVIS_TIMEOUTS_JOIN: NaN is not a number of seconds between 0 and 10000000",
        ),
        (
            "VISAVIS_WEBHOOKS_SCHEDULE",
            "0,soon",
            "VISAVIS_WEBHOOKS_SCHEDULE: \"soon\" is not a number",
        ),
        (
            "VISAVIS_WEBHOOKS_SCHEDULE",
            "[]",
            "VISAVIS_WEBHOOKS_SCHEDULE: must contain at least one delay",
        ),
        (
            "VISAVIS_SERVER_ALLOW_SCRIPTED",
            "perhaps",
            "VISAVIS_SERVER_ALLOW_SCRIPTED: \"perhaps\" is neither true nor false",
        ),
        ("VISAVIS_LIMITS_LOAD", "80", "VISAVIS_LIMITS_LOAD: 80 is not a number between 0 and 1"),
        (
            "VISAVIS_SERVER_LISTEN",
            "nowhere",
            "VISAVIS_SERVER_LISTEN: \"nowhere\" is not an address: write a port such as \"8080\", or an address with a \
             port such as \"127.0.0.1:8080\", \"[::1]:8080\" or \":8080\"",
        ),
        (
            "VISAVIS_RECORDING_LINK_SECONDS",
            "0",
            "VISAVIS_RECORDING_LINK_SECONDS: 0 is not a number of seconds \
             between 1 and 604800",
        ),
        ("VISAVIS_STORAGE_URL", "s3:bucket", "VISAVIS_STORAGE_URL: \"s3:bucket\" names no bucket"),
        ("VISAVIS_MEDIA_PUBLIC_IP", "1.2.3", "VISAVIS_MEDIA_PUBLIC_IP: invalid IP address syntax"),
        (
            "VISAVIS_SERVER_PUBLIC_URL",
            "https://",
            "VISAVIS_SERVER_PUBLIC_URL: \"https://\" has no host",
        ),
        (
            "VISAVIS_SERVER_PUBLIC_URL",
            "talk.example",
            "VISAVIS_SERVER_PUBLIC_URL: \"talk.example\" is not a valid URL: relative URL without \
             a base",
        ),
        (
            "VISAVIS_SERVER_PUBLIC_URL",
            "ftp://a",
            "VISAVIS_SERVER_PUBLIC_URL: \"ftp://a\" is not an http or https URL",
        ),
        (
            "VISAVIS_SERVER_PUBLIC_URL",
            "https://a/?b",
            "VISAVIS_SERVER_PUBLIC_URL: \"https://a/?b\" must not have a query or a fragment, \
             because links are made by appending to it",
        ),
        (
            "VISAVIS_SERVER_CORS_ORIGINS",
            "https://a.example/",
            "VISAVIS_SERVER_CORS_ORIGINS: \"https://a.example/\" is neither an origin such as \
             \"https://shop.example\" nor \"*\"",
        ),
        (
            "VISAVIS_SERVER_DATABASE_URL",
            "mysql://u:secret@h/d",
            "VISAVIS_SERVER_DATABASE_URL: must start with postgres://",
        ),
    ] {
        assert_eq!(load_variable(name, text).unwrap_err(), expected, "{name}={text}");
    }
}

#[test]
fn a_config_error_is_reported_with_file_line_and_key() {
    for (file, expected) in [
        (
            "\n[server]\nlisen = 1\n",
            "FILE:3: unknown configuration key server.lisen; did you mean listen?",
        ),
        ("[sever]\n", "FILE:1: unknown configuration key [sever]; did you mean server?"),
        ("server = 1\n", "FILE:1: server is a section; write [server]"),
        (
            "[timeouts]\ntoken = 1\njoin = -1\n",
            "FILE:3: timeouts.join: -1 is not a number of seconds between 0 and 10000000",
        ),
        ("[timeouts]\njoin = \"1\"\n", "FILE:2: timeouts.join: must be a number"),
        ("[timeouts]\nlease = 0.5\n", "FILE:2: timeouts.lease: must be at least 1 second"),
        ("[timeouts]\nrequest = 0\n", "FILE:2: timeouts.request: must be at least 0.1 seconds"),
        (
            "# a\n[media]\nudp_ports = \"9-1\"\n",
            "FILE:3: media.udp_ports: \"9-1\" is neither a port nor a range such as \
             \"50000-50007\"",
        ),
        ("[media]\nudp_ports = 50000\n", "FILE:2: media.udp_ports: must be a string in quotes"),
        (
            "[server]\nlisten = \"nowhere\"\n",
            "FILE:2: server.listen: \"nowhere\" is not an address: write a port such as \"8080\", or an address with a \
             port such as \"127.0.0.1:8080\", \"[::1]:8080\" or \":8080\"",
        ),
        (
            "[server]\nmetrics_token = 12345678\n",
            "FILE:2: server.metrics_token: must be a string in quotes",
        ),
    ] {
        assert_eq!(load_toml(file, &[]).unwrap_err(), expected, "{file}");
    }
    let broken = load_toml("[server]\ndata = \n", &[]).unwrap_err();
    assert!(broken.starts_with("FILE:2: ") && !broken.contains('\n'), "{broken}");
    let absent = Config::load(Some(Path::new("/no/such/file")), std::iter::empty()).unwrap_err();
    assert!(absent.starts_with("/no/such/file: "), "{absent}");
}

#[test]
fn the_example_names_every_key_and_holds_the_defaults() {
    let text = include_str!("../../config/example.toml");
    for (section, keys) in CONFIG_KEYS {
        assert!(text.contains(&format!("[{section}]")), "{section}");
        for (key, _) in *keys {
            assert!(
                text.lines()
                    .any(|l| l.trim_start_matches('#').trim().starts_with(&format!("{key} ="))),
                "{section}.{key}"
            );
        }
    }
    assert_eq!(load_toml(text, &[]).unwrap(), Config::default());
}

#[test]
fn accounts_at_vendors_are_sections_of_the_providers() {
    let folder = std::env::temp_dir().join(format!("visavis-keys-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let key_file = folder.join("cartesia");
    std::fs::write(&key_file, "from-a-file\n").unwrap();
    let text = format!(
        "[providers]\nstt = [\"deepgram\", \"builtin\"]\n[providers.deepgram]\napi_key = \"k\"\n\
         workspaces = [\"a\"]\nfirst_timeout = 1.5\n\
         final_timeout = 0.4\n[providers.cartesia]\napi_key_file = {key_file:?}\n"
    );
    let config = load_toml(&text, &[]).unwrap();
    assert_eq!(config.providers.defaults().stt, ["deepgram", "builtin"]);
    let accounts = config.providers.accounts();
    let found = |name: &str, workspace: &str| {
        let vendor = models::registry::Vendor::find(name).unwrap();
        accounts.get(vendor, workspace).and_then(|account| account.token.clone())
    };
    assert_eq!(found("deepgram", "a").as_deref(), Some("k"));
    assert_eq!(found("deepgram", "b"), None);
    let timeouts = config.providers.timeouts()["deepgram"];
    let millis = |millis| Some(std::time::Duration::from_millis(millis));
    assert_eq!((timeouts.first, timeouts.final_transcript), (millis(1_500), millis(400)));
    assert_eq!((timeouts.connect, timeouts.gap), (None, None));
    assert_eq!(found("cartesia", "b").as_deref(), Some("from-a-file"));
    assert!(!format!("{config:?}").contains("from-a-file"));
    for (text, expected) in [
        (
            "[providers.deepgrm]\napi_key = \"k\"\n",
            "FILE:1: unknown configuration key [providers.deepgrm]; did you mean deepgram?",
        ),
        (
            "[providers]\n[providers.groq]\napi_kei = \"k\"\n",
            "FILE:2: unknown configuration key providers.groq.api_kei; did you mean api_key?",
        ),
        (
            "[providers]\nllm = \"openai\"\n",
            "FILE:2: providers.llm: must be a list of strings, such as [\"…\"]",
        ),
        (
            "[providers.groq]\napi_key = \"k\"\napi_key_file = \"f\"\n",
            "FILE:1: providers.groq: has both api_key and api_key_file; keep one of them",
        ),
        (
            "[providers.groq]\nfirst_timeout = 0\n",
            "FILE:1: providers.groq: first_timeout is not a number of seconds between 0.1 and 60",
        ),
        (
            "[providers.groq]\napi_key_file = \"/no/such/file\"\n",
            "FILE:1: providers.groq: /no/such/file cannot be read: No such file or directory (os error 2)",
        ),
    ] {
        assert_eq!(load_toml(text, &[]).unwrap_err(), expected, "{text}");
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
