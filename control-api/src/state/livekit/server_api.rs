//! LiveKit's server API (Twirp): one POST per method, with protocol buffers.

use std::time::Duration;

use egress::{Client, Method, Request};
use livekit_protocol as proto;
use prost::Message;

use super::tokens::{TokenError, Tokens};

/// Time for a request.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of an answer, in bytes: some ten thousand rooms.
const MAX_ANSWER_BYTES: usize = 8 << 20;

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ApiFailure {
    /// The token cannot be made.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The server cannot be reached.
    #[error("the LiveKit server cannot be reached: {0}")]
    Unreachable(#[from] egress::Error),
    /// The server refused it.
    #[error("the LiveKit server answered with status {0}: {1}")]
    Refused(u16, String),
    /// The answer cannot be read.
    #[error("the answer of the LiveKit server cannot be read")]
    Malformed,
}

/// A client of the API.
pub(crate) struct ServerApi {
    client: Client,
    base: String,
    tokens: Tokens,
}

impl ServerApi {
    pub(crate) fn new(client: Client, url: &str, tokens: Tokens) -> Self {
        let base = match url.split_once("://") {
            Some(("ws", rest)) => format!("http://{rest}"),
            Some(("wss", rest)) => format!("https://{rest}"),
            _ => url.to_owned(),
        };
        Self { client, base: base.trim_end_matches('/').to_owned(), tokens }
    }

    async fn call<A: Message + Default>(
        &self,
        method: &str,
        room: &str,
        question: &impl Message,
    ) -> Result<A, ApiFailure> {
        let token = self.tokens.api(room)?;
        let request = Request::new(Method::POST, &format!("{}/twirp/livekit.{method}", self.base))?
            .bearer(&token)?
            .header("content-type", "application/protobuf")?
            .json(question.encode_to_vec())
            .timeout(Some(TIMEOUT))
            .limit(MAX_ANSWER_BYTES);
        let response = self.client.send(request).await?;
        let status = response.status();
        let body = response.body().await?;
        if matches!(status, 401 | 403) {
            // The server's own text may repeat the token.
            return Err(ApiFailure::Refused(status, "the API key or the secret is wrong".into()));
        }
        if !(200..300).contains(&status) {
            let text = body.text();
            let text = text[..text.floor_char_boundary(200)].to_owned();
            return Err(ApiFailure::Refused(status, text));
        }
        A::decode(&body.bytes[..]).map_err(|_| ApiFailure::Malformed)
    }

    /// All rooms, without their participants.
    pub(crate) async fn rooms(&self) -> Result<Vec<proto::Room>, ApiFailure> {
        let all = proto::ListRoomsRequest::default();
        let answer: proto::ListRoomsResponse = self.call("RoomService/ListRooms", "", &all).await?;
        Ok(answer.rooms)
    }

    /// The participants of a room; empty if there is no such room.
    pub(crate) async fn participants(
        &self,
        room: &str,
    ) -> Result<Vec<proto::ParticipantInfo>, ApiFailure> {
        let question = proto::ListParticipantsRequest { room: room.to_owned() };
        let answer: Result<proto::ListParticipantsResponse, _> =
            self.call("RoomService/ListParticipants", room, &question).await;
        match answer {
            Ok(answer) => Ok(answer.participants),
            Err(ApiFailure::Refused(404, _)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The dispatches of a room; empty if there is no such room.
    pub(crate) async fn dispatches(
        &self,
        room: &str,
    ) -> Result<Vec<proto::AgentDispatch>, ApiFailure> {
        let question =
            proto::ListAgentDispatchRequest { room: room.to_owned(), ..Default::default() };
        let answer: Result<proto::ListAgentDispatchResponse, _> =
            self.call("AgentDispatchService/ListDispatch", room, &question).await;
        match answer {
            Ok(answer) => Ok(answer.agent_dispatches),
            Err(ApiFailure::Refused(404, _)) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Closes a room for everybody. A room that does not exist is closed.
    pub(crate) async fn delete_room(&self, room: &str) -> Result<(), ApiFailure> {
        let question = proto::DeleteRoomRequest { room: room.to_owned() };
        let answer: Result<proto::DeleteRoomResponse, _> =
            self.call("RoomService/DeleteRoom", room, &question).await;
        match answer {
            Ok(_) | Err(ApiFailure::Refused(404, _)) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
