//! Links to meetings. One meeting has many links, so it is identified by platform and code.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use url::Url;

/// Sentence for links of other hosts.
pub(crate) const SUPPORTED: &str = "must be a meeting of Google Meet (meet.google.com), \
    Zoom (zoom.us, zoom.com) or Microsoft Teams (teams.microsoft.com, teams.live.com)";
const NO_CODE: &str = "must contain the code of a meeting";
const NOT_A_LINK: &str = "must not contain a backslash or white space";
const NOT_HTTPS: &str = "must begin with https://";
const NO_CREDENTIALS: &str = "must not contain a user name, a port or a fragment";

/// The service that hosts a meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Platform {
    GoogleMeet,
    Zoom,
    MicrosoftTeams,
}

impl Platform {
    /// The name in the store.
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::GoogleMeet => "google_meet",
            Self::Zoom => "zoom",
            Self::MicrosoftTeams => "microsoft_teams",
        }
    }

    /// The platform of a host, in lower case.
    fn of_host(host: &str) -> Option<Self> {
        let is_of = |domain: &str| {
            host.strip_suffix(domain).is_some_and(|rest| {
                rest.is_empty()
                    || rest.strip_suffix('.').is_some_and(|sub| sub.split('.').all(is_label))
            })
        };
        match host {
            "meet.google.com" => Some(Self::GoogleMeet),
            "teams.microsoft.com" | "teams.live.com" => Some(Self::MicrosoftTeams),
            _ if is_of("zoom.us") || is_of("zoom.com") => Some(Self::Zoom),
            _ => None,
        }
    }
}

/// Whether a part of a host name between dots is valid. `label`: in lower case.
fn is_label(label: &str) -> bool {
    !label.is_empty()
        && !label.starts_with('-')
        && !label.ends_with('-')
        && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// A link to a meeting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MeetingLink {
    pub(crate) platform: Platform,
    /// Identifies the meeting on its platform.
    pub(crate) code: String,
    /// The link as it was read, with its password. Secret.
    pub(crate) url: String,
    /// The link without passwords, to show.
    pub(crate) shown_url: String,
}

impl MeetingLink {
    /// Reads a link.
    ///
    /// # Errors
    /// A sentence that says what the link must be.
    pub(crate) fn parse(link: &str) -> Result<Self, &'static str> {
        let link = link.trim();
        // Programs disagree about the host of such a link.
        if link.chars().any(|c| c == '\\' || c.is_control() || c.is_whitespace()) {
            return Err(NOT_A_LINK);
        }
        let url = Url::parse(link).map_err(|_| SUPPORTED)?;
        let host = url.host_str().unwrap_or_default().to_ascii_lowercase();
        let platform = Platform::of_host(&host).ok_or(SUPPORTED)?;
        if url.scheme() != "https" {
            return Err(NOT_HTTPS);
        }
        let is_teams_fragment = platform == Platform::MicrosoftTeams
            && url.fragment().is_some_and(|fragment| fragment.starts_with("/l/meetup-join/"));
        if !url.username().is_empty()
            || url.password().is_some()
            || url.port().is_some()
            || url.fragment().is_some() && !is_teams_fragment
        {
            return Err(NO_CREDENTIALS);
        }
        let code = match platform {
            Platform::GoogleMeet => google_meet_code(url.path()),
            Platform::Zoom => zoom_code(url.path()),
            Platform::MicrosoftTeams => teams_code(&url),
        };
        let code = code.ok_or(NO_CODE)?;
        Ok(Self { platform, code, url: url.to_string(), shown_url: without_secrets(url) })
    }
}

/// Parameters that may be shown. All others may be secret.
const SHOWN_PARAMETERS: [&str; 4] = ["authuser", "hs", "anon", "launchAgent"];

/// Removes the passwords and tokens of a link: all parameters that are not known to be harmless.
fn without_secrets(mut url: Url) -> String {
    let shown: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(name, _)| SHOWN_PARAMETERS.contains(&name.as_ref()))
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect();
    let fragment = url.fragment().and_then(|fragment| fragment.split('?').next());
    let fragment = fragment.map(str::to_owned);
    url.set_fragment(fragment.as_deref());
    if shown.is_empty() {
        url.set_query(None);
    } else {
        url.query_pairs_mut().clear().extend_pairs(shown);
    }
    url.to_string()
}

/// The code in `/abc-defg-hij` or `/lookup/name`.
fn google_meet_code(path: &str) -> Option<String> {
    let code = path.trim_matches('/').to_ascii_lowercase();
    if let Some(name) = code.strip_prefix("lookup/") {
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric());
        return is_name.then_some(code);
    }
    let parts: Vec<&str> = code.split('-').collect();
    let is_code = parts.iter().map(|part| part.len()).eq([3, 4, 3])
        && parts.iter().all(|part| part.bytes().all(|b| b.is_ascii_lowercase()));
    is_code.then_some(code)
}

/// The digits in `/j/123456789`, `/s/…`, `/w/…` (a webinar), `/wc/…/join` or `/wc/join/…`. Other
/// addresses have digits, too: those of recordings and events.
fn zoom_code(path: &str) -> Option<String> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    let code = match segments.as_slice() {
        ["j" | "s" | "w", code, ..]
        | ["wc", code]
        | ["wc", code, "join" | "start", ..]
        | ["wc", "join" | "start", code, ..] => *code,
        _ => return None,
    };
    let is_code = (9..=12).contains(&code.len()) && code.bytes().all(|b| b.is_ascii_digit());
    is_code.then(|| code.to_owned())
}

/// The id of `/meet/ID`, or the thread of `/l/meetup-join/THREAD/…`. The latter may stand in the
/// fragment, in the parameter `url` of a launcher, or in the parameter `coords` of a light meeting.
fn teams_code(url: &Url) -> Option<String> {
    let mut segments = url.path_segments()?;
    match segments.next()? {
        "meet" => {
            let id = segments.next()?;
            let is_id = (9..=20).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_digit());
            return is_id.then(|| id.to_owned());
        }
        "l" if segments.next() == Some("meetup-join") => return thread(segments.next()?),
        _ => {}
    }
    if let Some(path) = url.fragment().and_then(|f| f.strip_prefix("/l/meetup-join/")) {
        return thread(path.split(['/', '?']).next()?);
    }
    for (name, value) in url.query_pairs() {
        let found = match name.as_ref() {
            "url" => value
                .split_once("/l/meetup-join/")
                .and_then(|(_, path)| thread(path.split(['/', '?']).next()?)),
            "coords" => thread_of_coords(&value),
            _ => None,
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// A thread id, such as `19:meeting_…@thread.v2`.
fn thread(encoded: &str) -> Option<String> {
    let decoded = percent_encoding::percent_decode_str(encoded).decode_utf8().ok()?;
    // A launcher encodes its link twice.
    let decoded = percent_encoding::percent_decode_str(&decoded).decode_utf8().ok()?;
    (decoded.starts_with("19:") && decoded.contains("@thread")).then(|| decoded.into_owned())
}

/// The thread id in the base64-encoded JSON of a light meeting.
fn thread_of_coords(coords: &str) -> Option<String> {
    let bytes = STANDARD.decode(coords).or_else(|_| STANDARD_NO_PAD.decode(coords)).ok()?;
    let coords: serde_json::Value = serde_json::from_slice(&bytes).ok()?;
    thread(coords.get("conversationId")?.as_str()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(link: &str) -> Result<(Platform, String), &'static str> {
        MeetingLink::parse(link).map(|link| (link.platform, link.code))
    }

    #[test]
    fn links_of_one_meeting_have_the_same_code() {
        let thread = "19:meeting_Zm9v@thread.v2";
        let coords = STANDARD.encode(format!(r#"{{"conversationId":"{thread}"}}"#));
        for (link, platform, expected) in [
            ("https://meet.google.com/abc-defg-hij", Platform::GoogleMeet, "abc-defg-hij"),
            (
                "https://meet.google.com/ABC-defg-hij?authuser=1",
                Platform::GoogleMeet,
                "abc-defg-hij",
            ),
            ("https://meet.google.com/lookup/standup", Platform::GoogleMeet, "lookup/standup"),
            ("https://zoom.us/j/1234567890?pwd=secret", Platform::Zoom, "1234567890"),
            ("https://us05web.zoom.us/wc/1234567890/join", Platform::Zoom, "1234567890"),
            ("https://us05web.zoom.us/wc/1234567890/start?fromPWA=1", Platform::Zoom, "1234567890"),
            ("https://app.ZOOM.com/wc/join/1234567890", Platform::Zoom, "1234567890"),
            ("https://a-b.zoom.us/s/123456789/", Platform::Zoom, "123456789"),
            ("https://zoom.us/w/123456789012?tk=secret", Platform::Zoom, "123456789012"),
            (
                "https://teams.microsoft.com/meet/2345678901234?p=Pass",
                Platform::MicrosoftTeams,
                "2345678901234",
            ),
            (
                "https://teams.microsoft.com/l/meetup-join/19%3ameeting_Zm9v%40thread.v2/0?context=%7b%7d",
                Platform::MicrosoftTeams,
                thread,
            ),
            (
                "https://teams.microsoft.com/v2/?meetingjoin=true#/l/meetup-join/19:meeting_Zm9v@thread.v2/0",
                Platform::MicrosoftTeams,
                thread,
            ),
            (
                "https://teams.microsoft.com/dl/launcher/launcher.html?url=%2F_%23%2Fl%2Fmeetup-join%2F19%3Ameeting_Zm9v%40thread.v2%2F0",
                Platform::MicrosoftTeams,
                thread,
            ),
        ] {
            assert_eq!(code(link), Ok((platform, expected.to_owned())), "{link}");
        }
        let light = format!("https://teams.live.com/light-meetings/launch?coords={coords}");
        assert_eq!(code(&light), Ok((Platform::MicrosoftTeams, thread.to_owned())));
    }

    #[test]
    fn other_hosts_and_links_without_a_meeting_are_refused() {
        for link in [
            "https://evilzoom.us/j/1234567890",
            "https://meet.google.com.evil.example/abc-defg-hij",
            "https://example.com/?u=meet.google.com",
            "https://teams.microsoft.us/meet/2345678901234",
            "https://zoomgov.com/j/1234567890",
            "https://-.zoom.us/j/1234567890",
            "https://-a.zoom.us/j/1234567890",
            "https://a.b-.zoom.us/j/1234567890",
            "https://a..zoom.us/j/1234567890",
            "https://.zoom.us/j/1234567890",
            "ftp://example.com",
            "zoom.us/j/1234567890",
            "",
        ] {
            assert_eq!(code(link), Err(SUPPORTED), "{link}");
        }
        for link in [
            "https://meet.google.com/",
            "https://meet.google.com/new",
            "https://zoom.us/j/",
            "https://zoom.us/j/12",
            "https://zoom.us/rec/share/123456789",
            "https://zoom.us/my/clara",
            "https://zoom.us/1234567890",
            "https://zoom.us/wc/join",
            "https://zoom.us/wc/1234567890/leave",
            "https://teams.microsoft.com/meet/",
            "https://teams.microsoft.com/l/meetup-join/other/0",
            "https://teams.microsoft.com/_#/l/nothing",
        ] {
            let refused = code(link);
            assert!(matches!(refused, Err(NO_CODE | NO_CREDENTIALS)), "{link}: {refused:?}");
        }
        assert_eq!(code("http://zoom.us/j/1234567890"), Err(NOT_HTTPS));
        for link in [
            "https://zoom.us\\@evil.example/j/1234567890",
            "https://zoom.us/j/1234567890\n?pwd=x",
            "https://zoom.us/j/12345 67890",
        ] {
            assert_eq!(code(link), Err(NOT_A_LINK), "{link}");
        }
        let read = MeetingLink::parse("HTTPS://Zoom.us:443/j/1234567890?pwd=x").unwrap();
        assert_eq!(read.url, "https://zoom.us/j/1234567890?pwd=x");
        for link in [
            "https://user@zoom.us/j/1234567890",
            "https://user:secret@zoom.us/j/1234567890",
            "https://zoom.us:8443/j/1234567890",
            "https://zoom.us/j/1234567890#success",
        ] {
            assert_eq!(code(link), Err(NO_CREDENTIALS), "{link}");
        }
    }

    #[test]
    fn a_shown_link_has_no_password() {
        let shown = |link: &str| MeetingLink::parse(link).unwrap().shown_url;
        assert_eq!(
            shown("https://zoom.us/j/1234567890?pwd=secret"),
            "https://zoom.us/j/1234567890"
        );
        assert_eq!(
            shown("https://teams.microsoft.com/meet/2345678901234?p=Pass&anon=true"),
            "https://teams.microsoft.com/meet/2345678901234?anon=true"
        );
        assert_eq!(
            shown("https://zoom.us/j/1234567890?PWD=secret&passcode=secret&wpk=secret"),
            "https://zoom.us/j/1234567890"
        );
        let thread = "19:meeting_Zm9v@thread.v2/0";
        assert_eq!(
            shown(&format!("https://teams.microsoft.com/v2/?p=a#/l/meetup-join/{thread}?p=secret")),
            format!("https://teams.microsoft.com/v2/#/l/meetup-join/{thread}")
        );
    }
}
