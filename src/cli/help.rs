//! What the help of a command says after its options: environment variables and examples.

/// `visavis`
pub(super) const PROGRAM: &str = "\
`visavis help COMMAND` describes a command. Exit status: 0 = done, 1 = failed, 2 = invalid command
line, configuration or input.";

/// `visavis serve`
pub(super) const SERVE: &str = "\
Environment:
  VISAVIS_CONFIG           Configuration file, as --config
  VISAVIS_SECTION_KEY      Each key of the configuration: server.listen is VISAVIS_SERVER_LISTEN
  VISAVIS_SECTION_KEY_FILE File that contains a secret: VISAVIS_SERVER_DATABASE_URL_FILE
  VISAVIS_API_KEY          A further API key with all permissions, chosen by the operator
  VISAVIS_API_KEY_FILE     File that contains it
  VISAVIS_LOG              What is logged: info, warn, visavis_engine=debug
  A flag overrides the environment, which overrides the file, which overrides the default.

Examples:
  visavis serve
  visavis serve --config /etc/visavis/visavis.toml --listen 127.0.0.1:9000";

/// `visavis worker`
pub(super) const WORKER: &str = "\
Environment: as of `visavis serve`. LIVEKIT_URL, LIVEKIT_API_KEY and LIVEKIT_API_SECRET are read,
too.

Example:
  VISAVIS_SERVER_DATABASE_URL=postgres://host/visavis visavis worker --livekit wss://lk.example.com";

/// `visavis keys` and its commands
pub(super) const KEYS: &str = "\
The keys are in the data folder, or in the database of server.database_url. Both are those of the
server: name them in the same way (--config, --data, or the environment as of `visavis serve`).
Nothing is created where no server was started.

Examples:
  visavis keys create --workspace default --scope operate
  visavis keys list --data /var/lib/visavis";

/// `visavis check`
pub(super) const CHECK: &str = "\
Reads the configuration as `visavis serve` does: --config or VISAVIS_CONFIG, and VISAVIS_SECTION_KEY.
Prints the settings that differ from their defaults, with the file and line, variable or flag of
each. Secrets are shown as ***. Creates nothing. Exit status: 1 if something that calls need is
missing, 2 if the configuration is invalid.

Examples:
  visavis check --config /etc/visavis/visavis.toml
  visavis check --live";

/// `visavis health`
pub(super) const HEALTH: &str = "\
Without URL, the server at server.listen is asked; the configuration is read as by `visavis serve`
(--config or VISAVIS_CONFIG, and VISAVIS_SECTION_KEY). Exit status: 0 = it accepts calls (with --live:
it runs), 1 = it does not.

Examples:
  visavis health
  visavis health https://talk.example.com";

/// `visavis bake`
pub(super) const BAKE: &str = "\
Examples:
  visavis bake clara --size 720p --out /srv/faces/
  visavis bake my-person.toml --framing bust --out my-person.poses";

/// `visavis video`
pub(super) const VIDEO: &str = "\
Models are searched as by `visavis serve`: --models, VISAVIS_MODELS_DIR, then the standard folders.

Examples:
  visavis video --avatar clara --text 'Hello. [nod] Nice to meet you.' --out clara.webm
  visavis video --avatar martin --audio-file speech.mp3 --size portrait --out martin.mp4";

/// `visavis load`
pub(super) const LOAD: &str = "\
`visavis load --help` prints the options of visavis-load.

Example:
  visavis load --server http://127.0.0.1:8080 --key vv_… --scripted --calls 20";

/// `visavis simulate`
pub(super) const SIMULATE: &str = "\
Example:
  visavis simulate engine/conversation/tests/scenarios/error-message-interrupted.json --explain";

/// `visavis replay`
pub(super) const REPLAY: &str = "\
Exit status: 1 if an output differs from that of the live call.

Example:
  visavis replay data/traces/CONVERSATION.jsonl --explain";

/// `visavis completions`
pub(super) const COMPLETIONS: &str = "\
Examples:
  visavis completions bash >/usr/share/bash-completion/completions/visavis
  visavis completions zsh >/usr/share/zsh/vendor-completions/_visavis
  visavis completions fish >~/.config/fish/completions/visavis.fish";

/// `visavis man`
pub(super) const MAN: &str = "\
Examples:
  visavis man >visavis.1
  visavis man --out /usr/share/man/man1/";
