//! The participant of a room: one peer connection, and all that follows from the signals of the
//! server and the data packets of people. It holds no socket, thread or clock.
//!
//! ```text
//!  join request ──answer──► connecting ──ICE, DTLS──► in the room
//!                                                       │    ▲
//!                                             a person comes │ the last one has left
//!                                                       ▼    │
//!                                                  the call goes on
//! ```
//!
//! `Connected` is reported when both are true, so that no agent greets an empty room.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use conversation::event::{AgentState, EventEnvelope, UtteranceId};
use engine_api::RoomEnd;
use livekit_protocol as proto;
use proto::data_packet::Value;
use proto::{DisconnectReason, signal_request, signal_response};
use str0m::bwe::Bitrate;
use str0m::channel::{ChannelData, ChannelId};
use str0m::media::{Frequency, Mid};
use str0m::net::Transmit;
use str0m::rtp::{Extension, RtpPacket};
use str0m::{Candidate, Event, Rtc};
use tokio::sync::mpsc;

mod media;
mod presence;

use super::audio::RoomAudio;
use super::captions::{Author, CaptionContext, Captions, state_name};
use super::congestion::{Congestion, Verdict};
use super::data_channels::{DataChannels, OutgoingPacket, Received};
use super::negotiation::{FirstOffer, Negotiation, STREAM_ID, VIDEO_CID, VOICE_CID};
use super::people::{People, PeopleChange};
use super::speakers::Speakers;
use super::speech_level::dbfs;
use super::{AGENT_NAME_ATTRIBUTE, CREATED_ATTRIBUTE, MESSAGE_TOPIC, RoomEvent, STATE_ATTRIBUTE};
use crate::speak::AudioFrame;
use crate::transport::webrtc::{Certificate, PeerConnection, Protocol};
use crate::transport::{TextMessage, TransportEvent, VideoFrame};

/// Bitrates of the bandwidth estimation: where it begins, and what it looks for. The finest quality
/// of an avatar needs less. The estimation paces too: the first key frame would take a third of a
/// second at the bitrate that it looks for.
const INITIAL_BITRATE: Bitrate = Bitrate::kbps(5_000);
const DESIRED_BITRATE: Bitrate = Bitrate::kbps(900);
/// Estimate from which an estimation starts anew.
const RESTART_BITRATE: Bitrate = Bitrate::kbps(1_000);
/// Capacity of the queue of requests to the server. An exchange has a handful of them.
pub const REQUEST_CAPACITY: usize = 256;
/// Silence after which a connection looks for a new path, and the time until it looks again.
const LOST_PATH: Duration = Duration::from_secs(3);

/// A request to the server, or the end of the connection (the channel is closed).
pub type Request = signal_request::Message;

/// What the server says, or what became of the connection to it.
#[derive(Debug)]
pub enum RoomSignal {
    /// A message of the server.
    Server(Box<signal_response::Message>),
    /// The connection to the server is lost; its end resumes or replaces it.
    Interrupted,
    /// The agent is not in the room any more.
    Closed(RoomEnd),
}

/// What a participant publishes, and who it is.
#[derive(Clone, Copy, Debug)]
pub struct Publication {
    /// Size of the video in pixels; `None` = no video.
    pub video: Option<(u32, u32)>,
    /// When the call was created, in ms since the Unix epoch.
    pub created_unix_ms: u64,
}

/// The request to join: its parts that depend on the participant.
pub struct JoinParts {
    /// The first offer.
    pub offer: proto::SessionDescription,
    /// The tracks of the agent.
    pub tracks: Vec<proto::AddTrackRequest>,
    /// Attributes of the agent.
    pub attributes: HashMap<String, String>,
}

/// A participant of a room.
pub struct RoomPeer {
    peer: PeerConnection,
    negotiation: Negotiation,
    audio_mid: Mid,
    video_mid: Option<Mid>,
    people: People,
    audio: RoomAudio,
    speakers: Speakers,
    congestion: Congestion,
    channels: DataChannels,
    captions: Captions,
    requests: mpsc::Sender<Request>,
    events: VecDeque<TransportEvent>,
    agent: Author,
    /// Name by which jobs are dispatched to agents of ours.
    agent_name: String,
    sid: String,
    created_unix_ms: u64,
    /// Whether somebody subscribes to the video, or the track is not published yet: its first key
    /// frame publishes it. The server does not report that nobody watches a new track.
    is_watched: bool,
    is_video_published: bool,
    /// Whether the server has reported who watches. A key frame request then says nothing more.
    is_watching_reported: bool,
    is_connected: bool,
    is_reported: bool,
    /// When the last person left of their own accord, or disappeared, and who that is.
    left_at: Option<Instant>,
    gone_at: Option<Instant>,
    last_to_leave: Option<String>,
    /// Whether the signals of the server are lost.
    is_interrupted: bool,
    /// When a new path to the server was last looked for.
    restarted_at: Option<Instant>,
    state: Option<AgentState>,
    is_refused: bool,
}

impl RoomPeer {
    /// A participant that is reached at `candidates`, with its part of the request to join. Requests
    /// to the server go to `requests`. `None` if str0m makes no offer.
    #[must_use]
    pub fn new(
        candidates: &[SocketAddr],
        certificate: &Certificate,
        publication: Publication,
        requests: mpsc::Sender<Request>,
        now: Instant,
    ) -> Option<(Self, JoinParts)> {
        let mut rtc = Rtc::builder()
            .set_dtls_cert(certificate.0.clone())
            .set_rtp_mode(true)
            .clear_codecs()
            .enable_opus(true, false)
            .enable_vp8(true)
            .clear_extension_map()
            .set_extension(1, Extension::AudioLevel)
            .set_extension(2, Extension::AbsoluteSendTime)
            .set_extension(3, Extension::TransportSequenceNumber)
            .set_extension(4, Extension::RtpMid)
            .enable_bwe(Some(INITIAL_BITRATE))
            .set_rtcp_report_interval_audio(Duration::from_secs(1))
            .set_rtcp_report_interval_video(Duration::from_secs(1))
            .set_stats_interval(Some(Duration::from_secs(1)))
            .build(now);
        for address in candidates {
            match Candidate::host(*address, "udp") {
                Ok(candidate) => drop(rtc.add_local_candidate(candidate)),
                Err(error) => tracing::warn!(%address, %error, "not valid as an ICE candidate"),
            }
        }
        let mut peer = PeerConnection::with_sfu(rtc, now);
        let FirstOffer { negotiation, reliable, audio, video } =
            Negotiation::begin(&mut peer, publication.video.is_some())?;
        peer.rtc.bwe().set_bitrate(Bitrate::ZERO, DESIRED_BITRATE);
        let created = publication.created_unix_ms.to_string();
        // Not "initializing": components of clients miss a change that follows the join at once.
        let state = AgentState::Listening;
        let attribute = (STATE_ATTRIBUTE.to_owned(), state_name(state).to_owned());
        let parts = JoinParts {
            offer: negotiation.last_offer(),
            tracks: track_requests(publication.video),
            attributes: HashMap::from([attribute, (CREATED_ATTRIBUTE.to_owned(), created)]),
        };
        let room_peer = Self {
            peer,
            negotiation,
            audio_mid: audio,
            video_mid: video,
            people: People::default(),
            audio: RoomAudio::default(),
            speakers: Speakers::default(),
            congestion: Congestion::default(),
            channels: DataChannels::new(reliable, now),
            captions: Captions::default(),
            requests,
            events: VecDeque::new(),
            agent: Author::default(),
            agent_name: String::new(),
            sid: String::new(),
            created_unix_ms: publication.created_unix_ms,
            is_watched: true,
            is_video_published: false,
            is_watching_reported: false,
            is_connected: false,
            is_reported: false,
            left_at: None,
            gone_at: None,
            last_to_leave: None,
            is_interrupted: false,
            restarted_at: None,
            state: Some(state),
            is_refused: false,
        };
        Some((room_peer, parts))
    }

    /// The connection's id.
    #[must_use]
    pub fn id(&self) -> &str {
        self.peer.id()
    }

    /// The id of the participant, which a resumed connection names.
    #[must_use]
    pub fn sid(&self) -> &str {
        &self.sid
    }

    /// Whether the agent has a video track.
    #[must_use]
    pub fn has_video(&self) -> bool {
        self.peer.has_video()
    }

    /// Whether somebody sees the video.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.is_watched && self.peer.has_video()
    }

    /// Whether media can flow, be it to nobody.
    #[must_use]
    pub fn is_in_room(&self) -> bool {
        self.is_connected
    }

    /// When the last person left of their own accord; `None` if somebody is there.
    #[must_use]
    pub fn left_at(&self) -> Option<Instant> {
        self.left_at
    }

    /// Identity of the last person who left, once nobody is there. It is told once, at the end of
    /// the call: the person may come back.
    pub fn take_last_to_leave(&mut self) -> Option<String> {
        self.last_to_leave.take()
    }

    /// When the last data of people arrived: that of the server, while somebody is in the room.
    #[must_use]
    pub fn last_heard(&self) -> Option<Instant> {
        self.gone_at.or(self.peer.last_heard())
    }

    /// Number of messages that nobody received because the server did not take them.
    #[must_use]
    pub fn dropped_messages(&self) -> u64 {
        self.channels.dropped()
    }

    /// Number of packets since the last call of this method that arrived faster than real time.
    pub fn take_excess_packets(&mut self) -> u64 {
        self.audio.take_excess_packets()
    }

    fn request(&mut self, request: Request) {
        // A full queue means that the connection to the server stands still. Its end notices that.
        if self.requests.try_send(request).is_err()
            && !std::mem::replace(&mut self.is_refused, true)
        {
            tracing::debug!("requests to the LiveKit server are dropped");
        }
    }

    /// Handles a signal.
    pub fn handle_signal(&mut self, now: Instant, signal: RoomSignal) {
        match signal {
            RoomSignal::Server(message) => self.handle_message(now, *message),
            RoomSignal::Interrupted => {
                self.is_interrupted = true;
                self.negotiation.forget_pending();
            }
            RoomSignal::Closed(end) => self.report(RoomEvent::Closed(end)),
        }
        self.negotiate();
        self.peer.next_timeout = now;
    }

    fn handle_message(&mut self, now: Instant, message: signal_response::Message) {
        use signal_response::Message as Signal;
        match message {
            Signal::Join(join) => {
                let mut us = join.participant.unwrap_or_default();
                (self.sid, self.agent.identity) = (us.sid, us.identity);
                self.agent_name = us.attributes.remove(AGENT_NAME_ATTRIBUTE).unwrap_or_default();
                self.find_older_agent(&join.other_participants);
                let identity = self.agent.identity.clone();
                let changes = self.people.replace(&join.other_participants, &identity);
                self.apply_people(now, changes);
            }
            Signal::Answer(answer) => self.take_answer(now, &answer),
            Signal::Trickle(trickle) => self.add_candidate(&trickle.candidate_init),
            Signal::Update(update) => {
                self.find_older_agent(&update.participants);
                let identity = self.agent.identity.clone();
                let changes = self.people.update(&update.participants, &identity);
                self.apply_people(now, changes);
            }
            Signal::TrackPublished(published) if published.cid == VOICE_CID => {
                self.agent.track = published.track.unwrap_or_default().sid;
            }
            Signal::SubscribedQualityUpdate(update) => self.set_watched(&update),
            Signal::MediaSectionsRequirement(need) => {
                self.negotiation.need_sections(need.num_audios);
            }
            Signal::Reconnect(_) => self.resume(now),
            _ => {}
        }
    }

    fn take_answer(&mut self, now: Instant, answer: &proto::SessionDescription) {
        let accepted = self.negotiation.accept(&mut self.peer, answer);
        let mids = [Some(self.audio_mid), self.video_mid];
        let adopted = accepted.and_then(|()| {
            let adopted = self.peer.adopt_media(mids.into_iter().flatten());
            adopted.map_err(|error| error.to_string())
        });
        if let Err(error) = adopted {
            let why = format!("the answer of the LiveKit server does not fit: {error}");
            return self.leave(RoomEnd::Failed(why));
        }
        let tracks = answer.mid_to_track_id.iter();
        let voices = tracks.filter(|(_, track)| self.people.owner_of(track).is_some());
        let voices = voices.map(|(mid, track)| (Mid::from(mid.as_str()), track.clone()));
        self.audio.assign(&voices.collect());
        let audio = &self.audio;
        let ended = self.speakers.end_where(now, |track| !audio.has_voice(track));
        self.events.extend(ended.into_iter().map(TransportEvent::Room));
    }

    /// Adds a candidate of the server. TCP and IPv6 are not supported.
    fn add_candidate(&mut self, init: &str) {
        let init: serde_json::Value = serde_json::from_str(init).unwrap_or_default();
        let text = init["candidate"].as_str().unwrap_or_default();
        let Ok(candidate) = Candidate::from_sdp_string(text) else { return };
        if candidate.proto() == Protocol::Udp && candidate.addr().is_ipv4() {
            self.peer.rtc.add_remote_candidate(candidate);
        }
    }

    fn set_watched(&mut self, update: &proto::SubscribedQualityUpdate) {
        let qualities = update.subscribed_codecs.iter().flat_map(|codec| &codec.qualities);
        #[expect(deprecated, reason = "older servers send only this list")]
        let mut all = qualities.chain(&update.subscribed_qualities);
        self.is_watching_reported = true;
        let was_watched = std::mem::replace(&mut self.is_watched, all.any(|one| one.enabled));
        if self.is_watched && !was_watched {
            self.events.push_back(TransportEvent::KeyFrameRequested);
        }
    }

    /// The server knows the participant again after a lost connection.
    fn resume(&mut self, now: Instant) {
        let tracks: Vec<String> =
            self.people.iter().flat_map(|person| person.tracks.iter().cloned()).collect();
        let published = |cid: &str, sid: &str| proto::TrackPublishedResponse {
            cid: cid.to_owned(),
            track: Some(proto::TrackInfo { sid: sid.to_owned(), ..proto::TrackInfo::default() }),
        };
        let channel = |(label, id): (&str, u32)| proto::DataChannelInfo {
            label: label.to_owned(),
            id,
            target: proto::SignalTarget::Publisher as i32,
        };
        self.request(Request::SyncState(proto::SyncState {
            offer: Some(self.negotiation.last_offer()),
            answer: Some(self.negotiation.last_answer()),
            subscription: Some(proto::UpdateSubscription {
                track_sids: tracks,
                subscribe: true,
                ..proto::UpdateSubscription::default()
            }),
            publish_tracks: vec![published(VOICE_CID, &self.agent.track)],
            data_channels: [("_reliable", 0), ("_lossy", 1)].map(channel).into(),
            datachannel_receive_states: self.channels.receive_states(),
            ..proto::SyncState::default()
        }));
        if let Some(state) = self.state.take() {
            self.set_state(state);
        }
        self.is_interrupted = false;
        self.restarted_at = None;
        self.find_path(now);
    }

    /// Looks for a new path again and again while nothing arrives on the old one.
    fn find_path(&mut self, now: Instant) {
        let is_over = |at: Instant, limit: Duration| now.saturating_duration_since(at) > limit;
        let is_silent = self.peer.last_heard().is_none_or(|at| is_over(at, LOST_PATH));
        let is_due = self.restarted_at.is_none_or(|at| is_over(at, LOST_PATH));
        if !self.is_interrupted && is_silent && is_due {
            self.restarted_at = Some(now);
            // The answer to the attempt before would fit no longer.
            self.negotiation.forget_pending();
            self.negotiation.restart_ice();
            self.negotiate();
        }
    }

    fn negotiate(&mut self) {
        if let Some(offer) = self.negotiation.next_offer(&mut self.peer) {
            self.request(Request::Offer(offer));
        }
    }

    fn report(&mut self, event: RoomEvent) {
        self.events.push_back(TransportEvent::Room(event));
    }

    fn report_connected(&mut self) {
        if self.is_connected && self.people.count() > 0 && !self.is_reported {
            self.is_reported = true;
            self.events.push_back(TransportEvent::Connected);
        }
    }
}

/// The tracks of the agent, for the request to join.
fn track_requests(video: Option<(u32, u32)>) -> Vec<proto::AddTrackRequest> {
    let audio = proto::AddTrackRequest {
        cid: VOICE_CID.to_owned(),
        name: VOICE_CID.to_owned(),
        r#type: proto::TrackType::Audio as i32,
        source: proto::TrackSource::Microphone as i32,
        disable_red: true,
        stream: STREAM_ID.to_owned(),
        ..proto::AddTrackRequest::default()
    };
    let video = video.map(|(width, height)| proto::AddTrackRequest {
        cid: VIDEO_CID.to_owned(),
        name: VIDEO_CID.to_owned(),
        r#type: proto::TrackType::Video as i32,
        source: proto::TrackSource::Camera as i32,
        width,
        height,
        stream: STREAM_ID.to_owned(),
        layers: vec![proto::VideoLayer {
            quality: proto::VideoQuality::High as i32,
            width,
            height,
            bitrate: DESIRED_BITRATE.as_u64() as u32,
            ..proto::VideoLayer::default()
        }],
        ..proto::AddTrackRequest::default()
    });
    std::iter::once(audio).chain(video).collect()
}

fn subscription(track_sids: Vec<String>) -> Request {
    Request::Subscription(proto::UpdateSubscription {
        track_sids,
        subscribe: true,
        ..proto::UpdateSubscription::default()
    })
}
