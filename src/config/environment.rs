//! The environment variables `VISAVIS_…` that are no keys of the configuration.

use std::path::Path;

use models::registry::VENDORS;

use super::secret_file::read_secret;
use super::source::nearest;

/// The beginning of all variables of this program.
pub(super) const PREFIX: &str = "VISAVIS_";
/// The configuration file, as `--config`.
pub(crate) const CONFIG_VARIABLE: &str = "VISAVIS_CONFIG";
/// The API key of the operator.
pub(super) const API_KEY_VARIABLE: &str = "VISAVIS_API_KEY";
/// The name of a file with the API key of the operator.
pub(super) const API_KEY_FILE_VARIABLE: &str = "VISAVIS_API_KEY_FILE";
/// Minimum length of that key without a warning.
const MIN_API_KEY_CHARACTERS: usize = 16;
/// The filter of the log.
const LOG_VARIABLE: &str = "VISAVIS_LOG";

/// Variables with a meaning for the program.
const KNOWN: [&str; 4] = [CONFIG_VARIABLE, API_KEY_VARIABLE, API_KEY_FILE_VARIABLE, LOG_VARIABLE];
/// Variables of the build and of the scripts of the repository. The program ignores them.
const OF_SCRIPTS: [&str; 4] =
    ["VISAVIS_BIN", "VISAVIS_COMMIT", "VISAVIS_COMMIT_DATE", "VISAVIS_TEST_POSTGRES"];

/// The API key of the operator: a variable, or the content of the file that another one names.
/// `variable` reads the environment; an empty variable is absent.
///
/// # Errors
/// One sentence that names the variable and the file.
pub(super) fn api_key(variable: impl Fn(&str) -> Option<String>) -> Result<Option<String>, String> {
    let key = variable(API_KEY_VARIABLE);
    let Some(file) = variable(API_KEY_FILE_VARIABLE) else { return Ok(key) };
    if key.is_some() {
        return Err(format!(
            "{API_KEY_FILE_VARIABLE}: {API_KEY_VARIABLE} is set, too; keep one of them"
        ));
    }
    let read = read_secret(Path::new(&file));
    read.map(Some).map_err(|reason| format!("{API_KEY_FILE_VARIABLE}: {reason}"))
}

/// A warning if the operator's API key is so short that it can be guessed.
pub(super) fn short_key_warning(key: &str) -> Option<String> {
    (key.chars().count() < MIN_API_KEY_CHARACTERS).then(|| {
        format!(
            "{API_KEY_VARIABLE} has fewer than {MIN_API_KEY_CHARACTERS} characters and can be \
             guessed; `openssl rand -hex 32` prints a good key"
        )
    })
}

/// Whether a variable that is no key of the configuration is known.
pub(super) fn is_known(name: &str) -> bool {
    KNOWN.contains(&name) || OF_SCRIPTS.contains(&name)
}

/// Whether Kubernetes or Docker made the variable for a service whose name begins with `visavis`:
/// each container gets the addresses of all services.
pub(super) fn is_service_link(name: &str, value: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX) else { return false };
    // No key begins with these words.
    if rest.starts_with("SERVICE_") || rest == "PORT" || rest.starts_with("PORT_") {
        return true;
    }
    let of_service = |marker: &str| rest.rsplit_once(marker).map(|(_, end)| end);
    if let Some(end) = of_service("_SERVICE_") {
        return end == "HOST" || end == "PORT" || end.starts_with("PORT_");
    }
    // VISAVIS_WEB_PORT=tcp://10.0.0.1:80, VISAVIS_WEB_PORT_80_TCP_ADDR=10.0.0.1. A key such as
    // media.tcp_port has a number as its value.
    let is_address = ["tcp://", "udp://", "sctp://"].iter().any(|scheme| value.starts_with(scheme));
    (rest.ends_with("_PORT") && is_address) || of_service("_PORT_").is_some_and(is_port_of_service)
}

/// Whether this is the end of the name of a variable with a service's port, such as `80_TCP_ADDR`.
fn is_port_of_service(end: &str) -> bool {
    let mut words = end.split('_');
    words.next().is_some_and(|word| word.parse::<u16>().is_ok())
        && words.next().is_some_and(|word| matches!(word, "TCP" | "UDP" | "SCTP"))
}

/// The sentence about a variable that nothing reads. `keys`: the variables of all keys.
pub(super) fn unknown_variable(name: &str, keys: impl Iterator<Item = String>) -> String {
    // The key of a vendor has a variable of its own name.
    let vendors = VENDORS.iter().flat_map(|vendor| {
        ["API_KEY", "BASE_URL", "MODEL"].into_iter().flat_map(move |end| vendor.variable_names(end))
    });
    let vendors = vendors.map(|vendor| (format!("{PREFIX}PROVIDERS_{vendor}"), vendor));
    let known = KNOWN.iter().map(|&name| name.to_owned());
    let all: Vec<(String, String)> =
        keys.chain(known).map(|name| (name.clone(), name)).chain(vendors).collect();
    let compared = nearest(name, all.iter().map(|(compared, _)| compared.as_str()));
    let meant =
        all.iter().find(|(other, _)| other == compared).map_or("", |(_, name)| name.as_str());
    format!("the environment variable {name} is unknown and ignored; did you mean {meant}?")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::config::tests::load_toml;

    fn warnings(variables: &[(&str, &str)]) -> Vec<String> {
        load_toml("", variables).unwrap().warnings
    }

    #[test]
    fn an_unknown_variable_is_a_warning_with_the_nearest_name() {
        for (name, meant) in [
            ("VISAVIS_STT_POOLS", "VISAVIS_STT_POOL"),
            ("VISAVIS_SERVER_TOKEN_KEY_FILE", "VISAVIS_SERVER_TOKENS_KEY_FILE"),
            ("VISAVIS_CONFIG_FILE", "VISAVIS_CONFIG"),
            ("VISAVIS_APIKEY", "VISAVIS_API_KEY"),
            ("VISAVIS_MEDIA_UDP_PORT", "VISAVIS_MEDIA_UDP_PORTS"),
            ("VISAVIS_PROVIDERS_DEEPGRAM_API_KEY", "DEEPGRAM_API_KEY"),
            ("VISAVIS_", "VISAVIS_LOG"),
        ] {
            let text = format!(
                "the environment variable {name} is unknown and ignored; did you mean {meant}?"
            );
            assert_eq!(warnings(&[(name, "secret")]), [text]);
        }
        let two = warnings(&[("VISAVIS_STT_POOLS", "1"), ("VISAVIS_STT_WORKER", "1")]);
        assert_eq!(two.len(), 2, "{two:?}");
    }

    #[test]
    fn known_variables_and_those_of_services_are_no_warnings() {
        for (name, value) in [
            ("VISAVIS_SERVICE_HOST", "10.0.0.1"),
            ("VISAVIS_SERVICE_PORT_HTTP", "8080"),
            ("VISAVIS_PORT", "tcp://10.0.0.1:8080"),
            ("VISAVIS_PORT_8080_TCP_PROTO", "tcp"),
            ("VISAVIS_WEB_SERVICE_HOST", "10.0.0.1"),
            ("VISAVIS_WEB_SERVICE_PORT", "80"),
            ("VISAVIS_WEB_SERVICE_PORT_HTTP", "80"),
            ("VISAVIS_WEB_PORT", "tcp://10.0.0.1:80"),
            ("VISAVIS_WEB_PORT_80_TCP", "tcp://10.0.0.1:80"),
            ("VISAVIS_WEB_PORT_80_UDP_ADDR", "10.0.0.1"),
            ("VISAVIS_WEB_PORT_80_TCP_PORT", "80"),
            // The service visavis-media-tcp.
            ("VISAVIS_MEDIA_TCP_PORT", "tcp://10.0.0.1:443"),
            ("VISAVIS_LOG", "info"),
            ("VISAVIS_BIN", "/usr/bin/visavis"),
            ("VISAVIS_API_KEY", "a-key-that-is-long"),
            ("OTHER_PROGRAM", "x"),
        ] {
            assert_eq!(warnings(&[(name, value)]), [""; 0], "{name}");
        }
    }

    #[test]
    fn a_short_api_key_is_a_warning_without_the_key() {
        let [warning] = &warnings(&[(API_KEY_VARIABLE, "fifteen-letters")])[..] else {
            panic!("one warning");
        };
        assert!(warning.starts_with("VISAVIS_API_KEY has fewer than 16 "), "{warning}");
        assert!(!warning.contains("fifteen-letters"), "{warning}");
    }

    #[test]
    fn the_api_key_is_a_variable_or_the_content_of_a_file() {
        let file = std::env::temp_dir().join(format!("visavis-api-key-{}", std::process::id()));
        std::fs::write(&file, "from-a-file\n").unwrap();
        let path = file.to_str().unwrap();
        let key = |variables: &[(&str, &str)]| {
            load_toml("", variables).map(|config| config.server.api_key)
        };
        assert_eq!(key(&[]), Ok(None));
        assert_eq!(
            key(&[(API_KEY_VARIABLE, "k"), (API_KEY_FILE_VARIABLE, "")]),
            Ok(Some("k".into()))
        );
        assert_eq!(key(&[(API_KEY_FILE_VARIABLE, path)]), Ok(Some("from-a-file".into())));
        for (variables, expected) in [
            (
                &[(API_KEY_VARIABLE, "k"), (API_KEY_FILE_VARIABLE, path)][..],
                "VISAVIS_API_KEY_FILE: VISAVIS_API_KEY is set, too; keep one of them",
            ),
            (
                &[(API_KEY_FILE_VARIABLE, "/no/such/file")],
                "VISAVIS_API_KEY_FILE: /no/such/file cannot be read: No such file or directory \
                 (os error 2)",
            ),
        ] {
            assert_eq!(key(variables).unwrap_err(), expected);
        }
        let config = load_toml("", &[(API_KEY_FILE_VARIABLE, path)]).unwrap();
        assert!(!format!("{config:?}").contains("from-a-file"));
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn a_variable_names_the_file_unless_a_flag_does() {
        let folder = std::env::temp_dir().join(format!("visavis-config-of-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let [by_variable, by_flag] = ["variable.toml", "flag.toml"].map(|name| folder.join(name));
        std::fs::write(&by_variable, "[stt]\npool = 1\n").unwrap();
        std::fs::write(&by_flag, "[stt]\npool = 2\n").unwrap();
        let load = |flag: Option<&Path>, value: &Path| {
            let variable = (CONFIG_VARIABLE.to_owned(), value.display().to_string());
            Config::load(flag, std::iter::once(variable))
        };
        assert_eq!(load(None, &by_variable).unwrap().stt.pool, 1);
        assert_eq!(load(Some(&by_flag), &by_variable).unwrap().stt.pool, 2);
        assert_eq!(load(None, Path::new("")).unwrap().stt.pool, 0);
        let missing = load(None, Path::new("/no/such/file")).unwrap_err();
        assert!(missing.starts_with("VISAVIS_CONFIG: /no/such/file: No such file"), "{missing}");
        std::fs::write(&by_variable, "[stt]\npol = 1\n").unwrap();
        let invalid = load(None, &by_variable).unwrap_err();
        assert!(invalid.ends_with(":2: unknown configuration key stt.pol; did you mean pool?"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
