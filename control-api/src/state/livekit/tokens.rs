//! Tokens for LiveKit, and the signatures of its webhooks.

use std::collections::HashMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use livekit_protocol::{RoomAgentDispatch, RoomConfiguration};
use livekit_token::{AccessToken, TokenVerifier, VideoGrants};
use sha2::{Digest as _, Sha256};

use crate::config::LiveKitConfig;

/// Validity of tokens that are used at once.
const SHORT_VALIDITY: Duration = Duration::from_secs(600);

/// A token that cannot be made: the key or the secret is empty, or a claim is missing.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot make a LiveKit token: {0}")]
pub(crate) struct TokenError(String);

/// What a caller's token says.
#[derive(Default)]
pub(crate) struct CallerToken<'a> {
    pub(crate) room: &'a str,
    pub(crate) identity: &'a str,
    pub(crate) name: &'a str,
    pub(crate) metadata: &'a str,
    pub(crate) attributes: HashMap<String, String>,
    /// The agents that are dispatched when the room is created.
    pub(crate) dispatches: Vec<RoomAgentDispatch>,
    /// Time to join. LiveKit renews the token during the call.
    pub(crate) validity: Duration,
}

/// Makes and checks tokens of one LiveKit project.
#[derive(Clone)]
pub(crate) struct Tokens {
    key: String,
    secret: String,
    agent_name: String,
}

impl Tokens {
    pub(crate) fn new(config: &LiveKitConfig) -> Self {
        let LiveKitConfig { api_key, api_secret, agent_name, .. } = config;
        let (key, secret) = (api_key.clone(), api_secret.clone());
        Self { key, secret, agent_name: agent_name.clone() }
    }

    fn token(&self, grants: VideoGrants) -> AccessToken {
        let token = AccessToken::with_api_key(&self.key, &self.secret);
        token.with_grants(grants).with_ttl(SHORT_VALIDITY)
    }

    /// The token of a worker.
    pub(crate) fn worker(&self) -> Result<String, TokenError> {
        sign(self.token(VideoGrants { agent: true, ..VideoGrants::default() }))
    }

    /// The token of a request to the API, for one room if it names one.
    pub(crate) fn api(&self, room: &str) -> Result<String, TokenError> {
        sign(self.token(VideoGrants {
            room_create: true,
            room_list: true,
            room_admin: true,
            room: room.to_owned(),
            ..VideoGrants::default()
        }))
    }

    /// The token of an agent in its room.
    pub(crate) fn agent(
        &self,
        room: &str,
        identity: &str,
        name: &str,
    ) -> Result<String, TokenError> {
        let grants = VideoGrants {
            room_join: true,
            room: room.to_owned(),
            can_publish: Some(true),
            can_subscribe: Some(true),
            can_publish_data: Some(true),
            can_update_own_metadata: Some(true),
            agent: true,
            ..VideoGrants::default()
        };
        let token = self.token(grants).with_identity(identity).with_name(name).with_kind("agent");
        sign(token.with_attributes([("lk.agent_name", self.agent_name.as_str())]))
    }

    /// The token of a caller.
    pub(crate) fn caller(&self, caller: CallerToken<'_>) -> Result<String, TokenError> {
        let grants = VideoGrants {
            room_join: true,
            room: caller.room.to_owned(),
            can_publish: Some(true),
            can_subscribe: Some(true),
            can_publish_data: Some(true),
            can_update_own_metadata: Some(true),
            ..VideoGrants::default()
        };
        let mut token = self
            .token(grants)
            .with_ttl(caller.validity)
            .with_identity(caller.identity)
            .with_name(caller.name)
            .with_metadata(caller.metadata)
            .with_attributes(caller.attributes);
        if !caller.dispatches.is_empty() {
            token = token.with_room_config(RoomConfiguration {
                agents: caller.dispatches,
                ..RoomConfiguration::default()
            });
        }
        sign(token)
    }

    /// Whether a webhook is genuine: its token is signed with our secret and names this body.
    pub(crate) fn is_genuine(&self, authorization: &str, body: &[u8]) -> bool {
        let token = authorization.strip_prefix("Bearer ").unwrap_or(authorization);
        let verifier = TokenVerifier::with_api_key(&self.key, &self.secret);
        let digest = STANDARD.encode(Sha256::digest(body));
        verifier.verify(token.trim()).is_ok_and(|claims| claims.sha256 == digest)
    }
}

fn sign(token: AccessToken) -> Result<String, TokenError> {
    token.to_jwt().map_err(|error| TokenError(error.to_string()))
}

#[cfg(test)]
mod tests {
    use livekit_token::Claims;

    use super::*;

    fn tokens() -> Tokens {
        let (key, secret) = ("devkey".to_owned(), "secret-of-at-least-32-characters".to_owned());
        Tokens { key, secret, agent_name: "visavis".into() }
    }

    fn webhook_token(body: &[u8], secret: &str) -> String {
        let digest = STANDARD.encode(Sha256::digest(body));
        AccessToken::with_api_key("devkey", secret).with_sha256(&digest).to_jwt().unwrap()
    }

    #[test]
    fn an_agent_s_token_is_one_of_an_agent() {
        let token = tokens().agent("room", "agent-AJ_1", "Clara").unwrap();
        let claims = Claims::from_unverified(&token).unwrap();
        assert_eq!((claims.kind.as_str(), claims.sub.as_str()), ("agent", "agent-AJ_1"));
        assert_eq!(claims.attributes["lk.agent_name"], "visavis");
        assert!(claims.video.agent && claims.video.room_join);
    }

    #[test]
    fn a_caller_s_token_dispatches_agents_and_grants_nothing_else() {
        let dispatches = vec![RoomAgentDispatch {
            agent_name: "visavis".into(),
            metadata: "{}".into(),
            ..RoomAgentDispatch::default()
        }];
        let caller = CallerToken {
            room: "r",
            identity: "maria",
            dispatches,
            validity: SHORT_VALIDITY,
            ..CallerToken::default()
        };
        let token = tokens().caller(caller).unwrap();
        let claims = Claims::from_unverified(&token).unwrap();
        assert_eq!(claims.room_config.unwrap().agents[0].agent_name, "visavis");
        let video = claims.video;
        assert!(!video.room_admin && !video.agent && !video.room_create && !video.hidden);
    }

    #[test]
    fn a_webhook_is_genuine_if_its_body_and_key_are() {
        let body = br#"{"event":"room_started"}"#;
        let token = webhook_token(body, &tokens().secret);
        assert!(tokens().is_genuine(&token, body));
        assert!(!tokens().is_genuine(&token, b"{}"));
        assert!(
            !tokens().is_genuine(&webhook_token(body, "another-secret-of-32-characters!"), body)
        );
        for nonsense in ["", "Bearer ", "a.b.c", "ä"] {
            assert!(!tokens().is_genuine(nonsense, body));
        }
    }
}
