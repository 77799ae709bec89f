//! The voices of a vendor, for people who choose one.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;

use crate::hosted::Endpoint;
use crate::hosted::failure::Failure;
use crate::{Error, ErrorKind};

/// Time for one response of a vendor.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum size of one response in bytes.
const MAX_LIST_BYTES: usize = 8 << 20;
/// Maximum size of the body of a refusal in bytes.
const MAX_REFUSAL_BYTES: usize = 4 << 10;

/// A voice as the vendor describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedVoice {
    /// The `voice_id` of an agent.
    pub id: String,
    /// Name for people.
    pub name: String,
    /// BCP 47 tag; `None` if the voice speaks several languages, or if the vendor does not say.
    pub language: Option<String>,
    /// As the vendor says it, such as `female`.
    pub gender: Option<String>,
    /// URL of a recording.
    pub preview: Option<String>,
}

/// Which voices to list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VoiceQuery {
    /// Part of the id or the name, in any case; empty = all.
    pub search: String,
    /// BCP 47 tag; empty = all. Voices without a language match any.
    pub language: String,
    /// Number of voices to skip.
    pub offset: usize,
    /// Maximum number of voices.
    pub limit: usize,
}

/// A part of the voices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VoicePage {
    /// The voices from the offset on.
    pub voices: Vec<ListedVoice>,
    /// How many voices match the query.
    pub total: usize,
}

impl VoiceQuery {
    /// The voices of `all` that match, from the offset on.
    #[must_use]
    pub fn select(&self, all: Vec<ListedVoice>) -> VoicePage {
        let mut matching: Vec<ListedVoice> =
            all.into_iter().filter(|voice| self.matches(voice)).collect();
        // A page that a vendor repeats has the same voices.
        let mut ids = HashSet::new();
        matching.retain(|voice| ids.insert(voice.id.clone()));
        let total = matching.len();
        matching.truncate(self.offset.saturating_add(self.limit));
        VoicePage { voices: matching.drain(self.offset.min(matching.len())..).collect(), total }
    }

    fn matches(&self, voice: &ListedVoice) -> bool {
        let search = self.search.trim().to_lowercase();
        let found = [&voice.id, &voice.name].iter().any(|t| t.to_lowercase().contains(&search));
        let language = primary_language(&self.language);
        let speaks = |tag: &String| language.is_empty() || primary_language(tag) == language;
        found && voice.language.as_ref().is_none_or(speaks)
    }
}

/// The language of a tag without region and script, in lower case.
pub(in crate::tts) fn primary_language(tag: &str) -> String {
    tag.trim().split(['-', '_']).next().unwrap_or_default().to_ascii_lowercase()
}

/// The JSON at the address of `endpoint`.
///
/// # Errors
/// One sentence with the reason, without the key.
pub(in crate::tts) async fn fetch_json(
    endpoint: &Endpoint,
    headers: &[(&str, &str)],
) -> Result<Value, Error> {
    let transport = |error: &egress::Error| Failure::from_transport(endpoint, error).error;
    let build = || {
        let mut request = egress::Request::new(egress::Method::GET, &endpoint.url)?;
        if let Some((name, value)) = &endpoint.authorization {
            request = request.header(name, value)?;
        }
        for (name, value) in headers {
            request = request.header(name, value)?;
        }
        Ok(request.timeout(Some(LIST_TIMEOUT)).limit(MAX_LIST_BYTES))
    };
    let response = endpoint.client.send(build().map_err(|e| transport(&e))?).await;
    let response = response.map_err(|error| transport(&error))?;
    if !response.is_success() {
        return Err(refused(endpoint, response).await);
    }
    let body = response.body().await.map_err(|error| match error {
        egress::Error::Timeout => {
            Failure::timeout(endpoint, "does not send all of its voices in time").error
        }
        error => transport(&error),
    })?;
    serde_json::from_slice(&body.bytes).map_err(|_| {
        let message = format!("{} sent a list of voices that cannot be read", endpoint.vendor);
        Error::new(ErrorKind::Failed, message)
    })
}

/// The error of a response with another status than 2xx.
pub(in crate::tts) async fn refused(endpoint: &Endpoint, response: egress::Response) -> Error {
    let retry_after = response.header("retry-after").and_then(|value| value.trim().parse().ok());
    let status = response.status();
    let body = response.limit(MAX_REFUSAL_BYTES).body().await;
    let refusal = egress::websocket::Refusal {
        status,
        retry_after: retry_after.map(Duration::from_secs),
        body: body.map(|body| body.text()).unwrap_or_default(),
    };
    Failure::from_refusal(endpoint, &refusal).error
}

/// The text of a field, if it is one and not empty.
pub(in crate::tts) fn text_of(value: &Value) -> Option<String> {
    value.as_str().map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voice(id: &str, name: &str, language: Option<&str>) -> ListedVoice {
        ListedVoice {
            id: id.into(),
            name: name.into(),
            language: language.map(str::to_owned),
            ..ListedVoice::default()
        }
    }

    #[test]
    fn a_query_selects_by_words_and_language_and_counts_before_it_cuts() {
        let all = || {
            vec![
                voice("a1", "Anna", Some("de-DE")),
                voice("b2", "Bob", Some("en_US")),
                voice("c3", "Carla", None),
                voice("d4", "Diana", Some("EN")),
            ]
        };
        let ids = |search: &str, language: &str, offset, limit| {
            let query =
                VoiceQuery { search: search.into(), language: language.into(), offset, limit };
            let page = query.select(all());
            (page.voices.into_iter().map(|v| v.id).collect::<Vec<_>>().join(" "), page.total)
        };
        assert_eq!(ids("", "", 0, 10), ("a1 b2 c3 d4".into(), 4));
        assert_eq!(ids("", "en-GB", 0, 10), ("b2 c3 d4".into(), 3));
        assert_eq!(ids("AN", "en", 0, 10), ("d4".into(), 1));
        assert_eq!(ids("b2", "", 0, 10), ("b2".into(), 1));
        assert_eq!(ids("", "", 1, 2), ("b2 c3".into(), 4));
        assert_eq!(ids("", "", 9, usize::MAX), (String::new(), 4));
        let repeated = VoiceQuery { limit: 10, ..VoiceQuery::default() };
        let page = repeated.select([all(), all()].concat());
        assert_eq!((page.voices.len(), page.total), (4, 4));
    }
}
