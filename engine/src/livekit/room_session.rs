//! An agent's stay in a room: joins, carries signals, and restores a lost connection.
//!
//! ```text
//!           answer                 socket lost
//! joining ─────────► in the room ──────────────► resuming ──┐ at most 1 s apart
//!    ▲                 │     ▲         resumed       │ │ ▲───┘
//!    │                 │     └───────────────────────┘ │
//!    │                 │ "leave": reconnect            │ participant unknown
//!    └─────────────────┴───────────────────────────────┘
//! ```
//!
//! Media flows on while the socket is lost. It ends when the call ends: the call drops its
//! [`RoomPeer`], which closes the channel of requests.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use conversation::id::ConversationId;
use engine_api::{RoomAccess, RoomEnd};
use livekit_protocol as proto;
use proto::leave_request::Action;
use proto::{DisconnectReason, JoinRequest, LeaveRequest, signal_request, signal_response};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, sleep, timeout};

use super::signal_connection::{ConnectError, Incoming, SignalConnection};
use crate::channel::Sender;
use crate::clock;
use crate::messages::{ConnectedCall, Message, RoomRequest};
use crate::transport::ConnectionReply;
use crate::transport::livekit::room_peer::{
    Publication, REQUEST_CAPACITY, Request, RoomPeer, RoomSignal,
};
use crate::transport::livekit::room_socket::RoomSocket;
use crate::transport::webrtc::Certificate;

/// Time for a whole join.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// Pauses between attempts to restore a connection: the first, and the maximum.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_millis(900);
/// Time after which a session counts as stable.
const STABLE_TIME: Duration = Duration::from_secs(10);
/// How long a signal waits for room in the inbox of the media thread.
const INBOX_TIMEOUT: Duration = Duration::from_secs(1);
/// Interval of pings and the time for the answer, if the server does not say.
const DEFAULT_PING: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(15));

/// What a session needs from the engine.
#[derive(Clone)]
pub(crate) struct RoomContext {
    pub(crate) client: egress::Client,
    pub(crate) certificate: Arc<Certificate>,
    pub(crate) addresses: Vec<Ipv4Addr>,
    pub(crate) conversation: ConversationId,
    pub(crate) access: RoomAccess,
    pub(crate) publication: Publication,
    /// Inbox of the call's media thread.
    pub(crate) inbox: Sender<Message>,
}

/// A participant that is in its room, for the media thread.
pub(crate) struct JoinedPeer {
    peer: Box<RoomPeer>,
    socket: RoomSocket,
}

/// The connection to the server.
pub(crate) struct RoomSession {
    context: RoomContext,
    signals: SignalConnection,
    requests: mpsc::Receiver<Request>,
    connection: Arc<str>,
    sid: String,
    /// The newest token of the server, which a resumed connection needs.
    token: String,
    ping: (Duration, Duration),
    /// When this session was made, and the pause before the next attempt to restore it.
    since: Instant,
    pause: Duration,
}

/// How the exchange with the server ended.
enum Exchange {
    CallEnded,
    /// The socket is lost.
    Lost(String),
    /// The server wants another session.
    Rejoin(&'static str),
    Ended(RoomEnd),
}

impl RoomContext {
    /// Joins the room.
    pub(crate) async fn join(&self) -> Result<(RoomSession, JoinedPeer), ConnectError> {
        let joined = timeout(JOIN_TIMEOUT, self.try_join()).await;
        joined.unwrap_or_else(|_| Err(ConnectError::Unreachable("timeout".to_owned())))
    }

    async fn try_join(&self) -> Result<(RoomSession, JoinedPeer), ConnectError> {
        let failed = |error: String| ConnectError::Unreachable(error);
        let socket =
            RoomSocket::bind(&self.addresses).map_err(|error| failed(error.to_string()))?;
        let (sender, requests) = mpsc::channel(REQUEST_CAPACITY);
        let now = clock::now();
        let made =
            RoomPeer::new(socket.candidates(), &self.certificate, self.publication, sender, now);
        let (mut peer, parts) = made.ok_or_else(|| failed("no offer".to_owned()))?;
        let request = JoinRequest {
            participant_attributes: parts.attributes,
            add_track_requests: parts.tracks,
            publisher_offer: Some(parts.offer),
            ..JoinRequest::default()
        };
        let token = (self.access.token)();
        let url = &self.access.server_url;
        let mut signals = SignalConnection::open(&self.client, url, &token, request).await?;
        let mut session = JoinState { token, ping: DEFAULT_PING, has_joined: false };
        loop {
            let signal = match signals.receive().await {
                Incoming::Signal(signal) => signal,
                Incoming::Lost(why) => return Err(failed(why)),
            };
            if let signal_response::Message::Leave(leave) = &*signal {
                let why = leave.reason().as_str_name().to_owned();
                return Err(ConnectError::Refused(why));
            }
            let is_answered = session.note(&signal);
            peer.handle_signal(clock::now(), RoomSignal::Server(signal));
            if is_answered {
                break;
            }
        }
        let (connection, sid) = (Arc::from(peer.id()), peer.sid().to_owned());
        let JoinState { token, ping, .. } = session;
        let context = self.clone();
        let session = RoomSession {
            context,
            signals,
            requests,
            connection,
            sid,
            token,
            ping,
            since: Instant::now(),
            pause: FIRST_PAUSE,
        };
        Ok((session, JoinedPeer { peer: Box::new(peer), socket }))
    }

    /// Passes a participant to the call's media thread, and starts the call if it is new.
    pub(crate) async fn hand_over(
        &self,
        joined: JoinedPeer,
        new_call: Option<Box<ConnectedCall>>,
    ) -> ConnectionReply {
        let JoinedPeer { peer, socket } = joined;
        let (reply, outcome) = oneshot::channel();
        let conversation = self.conversation;
        let request = RoomRequest { conversation, peer, socket, new_call, reply };
        match self.send(Message::Room(Box::new(request))).await {
            true => outcome.await.unwrap_or(ConnectionReply::NotRunning),
            false => ConnectionReply::NotRunning,
        }
    }

    /// Sends a message to the media thread. Returns false if its inbox stays full.
    async fn send(&self, message: Message) -> bool {
        let mut message = message;
        let deadline = Instant::now() + INBOX_TIMEOUT;
        while let Err(returned) = self.inbox.send(message) {
            if Instant::now() >= deadline {
                return false;
            }
            message = returned;
            sleep(Duration::from_millis(10)).await;
        }
        true
    }
}

/// What the signals of a join say about the session.
struct JoinState {
    token: String,
    ping: (Duration, Duration),
    has_joined: bool,
}

impl JoinState {
    /// Reads a signal. Returns whether the join is complete.
    fn note(&mut self, signal: &signal_response::Message) -> bool {
        match signal {
            signal_response::Message::Join(join) => {
                self.has_joined = true;
                self.ping = ping_times(join.ping_interval, join.ping_timeout);
            }
            signal_response::Message::RefreshToken(token) => token.clone_into(&mut self.token),
            signal_response::Message::Answer(_) => return self.has_joined,
            _ => {}
        }
        false
    }
}

fn ping_times(interval: i32, limit: i32) -> (Duration, Duration) {
    let seconds = |value: i32, default: Duration| match u64::try_from(value) {
        Ok(value @ 1..=600) => Duration::from_secs(value),
        _ => default,
    };
    (seconds(interval, DEFAULT_PING.0), seconds(limit, DEFAULT_PING.1))
}

impl RoomSession {
    /// Carries signals until the agent is not in the room any more.
    pub(crate) async fn run(mut self) -> RoomEnd {
        loop {
            match self.exchange().await {
                Exchange::CallEnded => {
                    self.signals.leave().await;
                    return RoomEnd::CallEnded;
                }
                Exchange::Ended(end) => {
                    self.notify(RoomSignal::Closed(end.clone())).await;
                    self.signals.leave().await;
                    return end;
                }
                Exchange::Lost(why) => {
                    tracing::info!(room = self.context.access.room, reason = %why,
                        "the connection to the LiveKit server is lost");
                    self.notify(RoomSignal::Interrupted).await;
                    if let Some(end) = self.restore(true).await {
                        return end;
                    }
                }
                Exchange::Rejoin(why) => {
                    tracing::info!(
                        room = self.context.access.room,
                        reason = why,
                        "the agent joins the LiveKit room again"
                    );
                    if let Some(end) = self.restore(false).await {
                        return end;
                    }
                }
            }
        }
    }

    /// Passes a signal to the call. Returns false if its thread takes none.
    async fn notify(&mut self, signal: RoomSignal) -> bool {
        let (conversation, connection) = (self.context.conversation, Arc::clone(&self.connection));
        self.context.send(Message::RoomSignal { conversation, connection, signal }).await
    }

    /// Carries signals and requests on one socket.
    async fn exchange(&mut self) -> Exchange {
        let mut pings = tokio::time::interval(self.ping.0);
        pings.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last_received = Instant::now();
        loop {
            tokio::select! {
                incoming = self.signals.receive() => {
                    last_received = Instant::now();
                    match incoming {
                        Incoming::Signal(signal) => {
                            if let Some(end) = self.handle_signal(signal).await {
                                return end;
                            }
                        }
                        Incoming::Lost(why) => return Exchange::Lost(why),
                    }
                }
                request = self.requests.recv() => match request {
                    Some(Request::Leave(leave)) => return Exchange::Ended(own_end(&leave)),
                    Some(request) => {
                        if let Err(why) = self.signals.send(request).await {
                            return Exchange::Lost(why);
                        }
                    }
                    None => return Exchange::CallEnded,
                },
                _ = pings.tick() => {
                    if last_received.elapsed() > self.ping.1 {
                        return Exchange::Lost("no answer to pings".to_owned());
                    }
                    let ping = proto::Ping { timestamp: unix_millis(), rtt: 0 };
                    if let Err(why) = self.signals.send(signal_request::Message::PingReq(ping)).await
                    {
                        return Exchange::Lost(why);
                    }
                }
            }
        }
    }

    async fn handle_signal(&mut self, signal: Box<signal_response::Message>) -> Option<Exchange> {
        match &*signal {
            signal_response::Message::RefreshToken(token) => token.clone_into(&mut self.token),
            signal_response::Message::PongResp(_) | signal_response::Message::Pong(_) => {}
            signal_response::Message::Leave(leave) => return Some(outcome_of_leave(leave)),
            _ => {
                if !self.notify(RoomSignal::Server(signal)).await {
                    return Some(Exchange::Rejoin("a signal could not be handled in time"));
                }
            }
        }
        None
    }

    /// Restores the connection: resumes the session, or joins again. Returns how the stay ended if
    /// it did.
    async fn restore(&mut self, may_resume: bool) -> Option<RoomEnd> {
        let mut may_resume = may_resume;
        // A server that ends each session at once is not asked without pause.
        if self.since.elapsed() > STABLE_TIME {
            self.pause = FIRST_PAUSE;
        }
        loop {
            let pause = self.pause;
            self.pause = (pause * 2).min(MAX_PAUSE);
            let attempt = async {
                // Calls that lost the same server must not all come back in the same instant.
                sleep(pause.mul_f64(0.5 + 0.5 * rand::random::<f64>())).await;
                match may_resume {
                    true => self
                        .context
                        .resume(&self.sid, &self.token)
                        .await
                        .map(|signals| Restored::Resumed(Box::new(signals))),
                    false => {
                        let joined = self.context.join().await;
                        joined.map(|(session, peer)| Restored::Joined(Box::new(session), peer))
                    }
                }
            };
            let outcome = tokio::select! {
                outcome = attempt => outcome,
                () = closed(&mut self.requests) => return Some(RoomEnd::CallEnded),
            };
            match outcome {
                Ok(Restored::Resumed(signals)) => {
                    (self.signals, self.since) = (*signals, Instant::now());
                    return None;
                }
                Ok(Restored::Joined(session, peer)) => {
                    let reply = self.context.hand_over(peer, None).await;
                    if reply != ConnectionReply::Accepted {
                        session.signals.leave().await;
                        return Some(RoomEnd::CallEnded);
                    }
                    let pause = self.pause;
                    *self = *session;
                    self.pause = pause;
                    return None;
                }
                Err(ConnectError::Unknown) => may_resume = false,
                // A token of the server may have expired while it was not reachable.
                Err(ConnectError::Refused(_)) if may_resume => may_resume = false,
                Err(error @ ConnectError::Refused(_)) => {
                    let end = RoomEnd::Failed(error.to_string());
                    self.notify(RoomSignal::Closed(end.clone())).await;
                    return Some(end);
                }
                Err(error @ ConnectError::Unreachable(_)) => {
                    tracing::debug!(%error, "the connection to the LiveKit server is not restored");
                }
            }
        }
    }
}

enum Restored {
    Resumed(Box<SignalConnection>),
    Joined(Box<RoomSession>, JoinedPeer),
}

impl RoomContext {
    async fn resume(&self, sid: &str, token: &str) -> Result<SignalConnection, ConnectError> {
        let request = JoinRequest {
            reconnect: true,
            reconnect_reason: proto::ReconnectReason::RrSignalDisconnected as i32,
            participant_sid: sid.to_owned(),
            ..JoinRequest::default()
        };
        SignalConnection::open(&self.client, &self.access.server_url, token, request).await
    }
}

fn unix_millis() -> i64 {
    i64::try_from(clock::unix_micros() / 1_000).unwrap_or(i64::MAX)
}

/// Waits until the call has dropped its side. What it requests meanwhile is lost.
async fn closed(requests: &mut mpsc::Receiver<Request>) {
    while requests.recv().await.is_some() {}
}

/// Why the participant itself leaves before the end of the call.
fn own_end(leave: &LeaveRequest) -> RoomEnd {
    match leave.reason() {
        DisconnectReason::DuplicateIdentity => RoomEnd::Superseded,
        _ => RoomEnd::Failed("the media connection cannot be made".to_owned()),
    }
}

fn outcome_of_leave(leave: &LeaveRequest) -> Exchange {
    match (leave.action(), leave.reason()) {
        (Action::Reconnect, _) => Exchange::Rejoin("the server asked for it"),
        (Action::Resume, _) => Exchange::Lost("the server asked to resume".to_owned()),
        (Action::Disconnect, reason) => match reason {
            DisconnectReason::ParticipantRemoved | DisconnectReason::DuplicateIdentity => {
                Exchange::Ended(RoomEnd::Removed)
            }
            // The server comes back, or another one takes over.
            DisconnectReason::ServerShutdown | DisconnectReason::Migration => {
                Exchange::Rejoin("the server shuts down")
            }
            DisconnectReason::StateMismatch
            | DisconnectReason::JoinFailure
            | DisconnectReason::SignalClose
            | DisconnectReason::ConnectionTimeout
            | DisconnectReason::MediaFailure => Exchange::Rejoin("the server lost the session"),
            _ => Exchange::Ended(RoomEnd::RoomClosed),
        },
    }
}
