//! The URLs of a server's endpoints.

use url::Url;

/// The server at `base`, whose path is without the first of `ends` that it has, then the next, and
/// so on: users paste the URL of an endpoint, too. `ws` and `wss` stand for `http` and `https`.
/// `None` if `base` is not a URL.
pub(super) fn server_url(base: &str, ends: &[&str]) -> Option<Url> {
    let mut url = Url::parse(base.trim()).ok()?;
    match url.scheme() {
        "ws" => url.set_scheme("http").ok()?,
        "wss" => url.set_scheme("https").ok()?,
        _ => {}
    }
    if url.cannot_be_a_base() {
        return None;
    }
    let mut prefix = url.path().trim_end_matches('/');
    for end in ends {
        prefix = prefix.strip_suffix(end).unwrap_or(prefix).trim_end_matches('/');
    }
    let prefix = prefix.to_owned();
    url.set_path(&prefix);
    Some(url)
}

/// The URL with `path` (relative) behind its own path.
pub(super) fn join(mut url: Url, path: &str) -> Url {
    let whole = format!("{}/{path}", url.path().trim_end_matches('/'));
    url.set_path(&whole);
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_cut_back_to_the_server() {
        let of = |base: &str| {
            server_url(base, &["/messages", "/v1"]).map(|url| join(url, "v1/messages").to_string())
        };
        for base in ["https://a.example", "https://a.example/", " https://a.example/v1 "] {
            assert_eq!(of(base).unwrap(), "https://a.example/v1/messages");
        }
        assert_eq!(of("wss://a.example/v1/messages/").unwrap(), "https://a.example/v1/messages");
        assert_eq!(
            of("ws://127.0.0.1:8/p/v1?k=v").unwrap(),
            "http://127.0.0.1:8/p/v1/messages?k=v"
        );
        assert_eq!(of("mailto:a@b.example"), None);
        assert_eq!(of("nonsense"), None);
    }
}
