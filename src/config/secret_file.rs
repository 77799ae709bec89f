//! Files that contain one secret of the configuration, as container platforms mount them.

use std::io::Read as _;
use std::path::Path;

/// Maximum size of such a file, bytes.
const MAX_FILE_BYTES: u64 = 16 << 10;

/// The only line of a file with a secret.
///
/// # Errors
/// One sentence with the file's name. It never contains the secret.
pub(super) fn read_secret(path: &Path) -> Result<String, String> {
    let name = path.display();
    let unreadable = |error: std::io::Error| format!("{name} cannot be read: {error}");
    // A device or a pipe may have no end.
    if !std::fs::metadata(path).map_err(unreadable)?.is_file() {
        return Err(format!("{name} is not a regular file"));
    }
    let file = std::fs::File::open(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("{name} has more than {MAX_FILE_BYTES} bytes"));
    }
    let Ok(text) = String::from_utf8(bytes) else {
        return Err(format!("{name} is not a text in UTF-8"));
    };
    match text.trim() {
        "" => Err(format!("{name} is empty")),
        key if key.contains(['\n', '\r']) => {
            Err(format!("{name} has more than one line; keep only the key"))
        }
        key => Ok(key.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::load_toml;

    #[test]
    fn a_key_file_is_a_small_regular_file_with_one_line() {
        let folder = std::env::temp_dir().join(format!("visavis-key-files-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("key");
        let read = |content: &[u8]| {
            std::fs::write(&file, content).unwrap();
            let read = read_secret(&file);
            read.map_err(|why| why.replace(&*file.to_string_lossy(), "FILE"))
        };
        for (content, expected) in [
            (&b" key\r\n\n"[..], Ok("key")),
            (b"\n", Err("FILE is empty")),
            (b"key\nsecond\n", Err("FILE has more than one line; keep only the key")),
            (b"\xff\xfe", Err("FILE is not a text in UTF-8")),
            (&[b'k'; 16_385], Err("FILE has more than 16384 bytes")),
        ] {
            assert_eq!(read(content).as_deref().map_err(|why| &**why), expected);
        }
        assert!(read_secret(&folder).unwrap_err().ends_with(" is not a regular file"));
        let zero = read_secret(Path::new("/dev/zero"));
        assert_eq!(zero, Err("/dev/zero is not a regular file".into()));
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_secret_may_be_in_a_file_which_the_environment_overrides() {
        let folder = std::env::temp_dir().join(format!("visavis-secrets-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let file = folder.join("token");
        std::fs::write(&file, "from-a-file\n").unwrap();
        let file = file.display().to_string();
        let in_file = format!("[server]\nmetrics_token_file = {file:?}\n");
        let variables = ("VISAVIS_SERVER_METRICS_TOKEN", "VISAVIS_SERVER_METRICS_TOKEN_FILE");
        for (text, environment, expected) in [
            (in_file.as_str(), vec![], "from-a-file"),
            (in_file.as_str(), vec![(variables.0, "from-a-variable")], "from-a-variable"),
            ("", vec![(variables.1, file.as_str())], "from-a-file"),
            (
                "[server]\nmetrics_token = \"t\"\n",
                vec![(variables.1, file.as_str())],
                "from-a-file",
            ),
        ] {
            let config = load_toml(text, &environment).unwrap();
            assert_eq!(
                config.server.metrics_token.as_deref(),
                Some(expected),
                "{text}{environment:?}"
            );
        }
        let both = [(variables.0, "t"), (variables.1, file.as_str())];
        for (text, environment, expected) in [
            (
                "[server]\nmetrics_token = \"t\"\nmetrics_token_file = \"f\"\n",
                &[][..],
                "FILE:3: server.metrics_token_file: both metrics_token and metrics_token_file are set; \
                 keep one of them",
            ),
            (
                "",
                &both,
                "VISAVIS_SERVER_METRICS_TOKEN_FILE: both metrics_token and metrics_token_file are set; \
                 keep one of them",
            ),
            (
                "[server]\nsecrets_key_file = \"/no/such/file\"\n",
                &[],
                "FILE:2: server.secrets_key_file: /no/such/file cannot be read: No such file or \
                 directory (os error 2)",
            ),
            (
                "[server]\nsecrets_key_file = 5\n",
                &[],
                "FILE:2: server.secrets_key_file: must be a string in quotes",
            ),
            (
                "[server]\nlisten_file = \"f\"\n",
                &[],
                "FILE:2: unknown configuration key server.listen_file; did you mean listen?",
            ),
            (
                "[server]\ntokens_key = \"c2hvcnQ=\"\n",
                &[],
                "FILE:2: server.tokens_key: must be 32 bytes in base64, such as `openssl rand -base64 \
                 32` prints",
            ),
            (
                "",
                &[("VISAVIS_SERVER_TOKENS_KEY_FILE", file.as_str())],
                "VISAVIS_SERVER_TOKENS_KEY_FILE: must be 32 bytes in base64, such as `openssl rand \
                 -base64 32` prints",
            ),
        ] {
            assert_eq!(
                load_toml(text, environment).unwrap_err(),
                expected,
                "{text}{environment:?}"
            );
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
