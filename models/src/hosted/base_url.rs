//! Base addresses as people write them.

use url::Url;

use crate::{Error, ErrorKind};

/// The base address `given`, or `default` if it is empty: as of [`server_url`], without user, query
/// and fragment.
///
/// # Errors
/// [`ErrorKind::Rejected`] if it is not a URL with a host and the scheme `http`, `https`, `ws` or
/// `wss`.
pub(crate) fn base_url(
    vendor: &str,
    given: &str,
    default: &str,
    known_paths: &[&str],
) -> Result<Url, Error> {
    let given = Some(given.trim()).filter(|url| !url.is_empty()).unwrap_or(default);
    let invalid =
        || Error::new(ErrorKind::Rejected, format!("The address of {vendor} is not a valid URL"));
    let mut url = server_url(given, known_paths).ok_or_else(invalid)?;
    // The key is sent in a header, never in the URL.
    url.set_username("").and_then(|()| url.set_password(None)).map_err(|()| invalid())?;
    url.set_query(None);
    url.set_fragment(None);
    Ok(url)
}

/// The address `given`, with the scheme `http` or `https` and without a slash at its end. One of
/// `known_paths` at its end is removed, because people paste addresses with it; the list begins
/// with the longest ones. `None` if it is not a URL with a host and the scheme `http`, `https`, `ws`
/// or `wss`.
pub(crate) fn server_url(given: &str, known_paths: &[&str]) -> Option<Url> {
    let given = given.trim();
    let with_scheme = |rest: &str, scheme: &str| format!("{scheme}{rest}");
    let lower = given.get(..3).unwrap_or_default().to_ascii_lowercase();
    let text = match lower.as_str() {
        "wss" => with_scheme(&given[3..], "https"),
        "ws:" => with_scheme(&given[2..], "http"),
        _ => given.to_owned(),
    };
    let mut url = Url::parse(&text).ok()?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return None;
    }
    let path = url.path().trim_end_matches('/');
    let prefix = known_paths.iter().find_map(|known| path.strip_suffix(known)).unwrap_or(path);
    let prefix = prefix.trim_end_matches('/').to_owned();
    url.set_path(&prefix);
    Some(url)
}

/// The address of `path` under a base address.
pub(crate) fn with_path(mut base: Url, path: &str) -> Url {
    let whole = format!("{}/{path}", base.path().trim_end_matches('/'));
    base.set_path(&whole);
    base
}

/// Whether a host is one of OpenAI: the usual one, or that of a region.
pub(crate) fn is_openai_host(host: &str) -> bool {
    host == "api.openai.com" || host.ends_with(".api.openai.com")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_may_have_any_of_four_schemes_a_prefix_and_a_known_path() {
        let base = |given: &str| {
            base_url("X", given, "https://api.x.com", &["/v1/speak", "/v1"]).map(String::from)
        };
        for (given, expected) in [
            ("", "https://api.x.com/"),
            (" WSS://eu.x.com/v1/speak/ ", "https://eu.x.com/"),
            ("ws://127.0.0.1:9/v1", "http://127.0.0.1:9/"),
            ("http://127.0.0.1:80/", "http://127.0.0.1/"),
            ("https://user:pass@proxy.example/x?key=1#y", "https://proxy.example/x"),
        ] {
            assert_eq!(base(given).unwrap(), expected, "{given}");
        }
        let with_query = server_url("wss://a.example/p/v1/?k=v", &["/v1"]).unwrap();
        assert_eq!(with_path(with_query, "x").as_str(), "https://a.example/p/x?k=v");
        let prefixed = base("https://proxy.example/x/").unwrap().parse().unwrap();
        assert_eq!(with_path(prefixed, "v1/y").as_str(), "https://proxy.example/x/v1/y");
        for bad in ["api.x.com", "ftp://x", "https://", "data:x", "\u{0}", "ws", "wsx://a", "ü"] {
            let error = base(bad).unwrap_err();
            assert_eq!(error.to_string(), "The address of X is not a valid URL", "{bad}");
        }
    }
}
