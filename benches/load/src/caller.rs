//! One caller: it creates a conversation, offers a connection, speaks on its own clock, receives
//! audio and video, and hangs up.
//!
//! ```text
//! created ──offer──► answered ──ICE, DTLS──► connected ──end or stop──► finished
//!   │                  │                       │                          ▲
//!   │ rejected         │ closed, or 15 s       └──connection lost─────────┘
//!   ▼                  ▼
//! failed             failed
//! ```

mod audio;
mod clock_offset;
mod peer;
mod report_forwarder;
mod video;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::clock;
use rtc::rtcp::payload_feedbacks::picture_loss_indication::PictureLossIndication;
use rtc::rtcp::sender_report::SenderReport;
use rtc::rtp_transceiver::rtp_sender::RtpCodecKind;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};
use webrtc::media_stream::track_remote::{TrackRemote, TrackRemoteEvent};

use crate::api::{AnsweredOffer, Api, CreatedConversation};
use crate::lateness::Lateness;
use crate::pacing::{Pacing, SendSchedule};
use crate::score::Scores;
use crate::turns::UNJUDGED_TAIL;
use crate::workload::Workload;
use audio::AudioReceiver;
pub(crate) use audio::encode_recording;
use peer::{ConnectionState, MicrophoneTrack, Peer};
pub(crate) use video::ReceivedVideo;
use video::VideoReceiver;

/// A call without audio packets for this time (s) at its end was disconnected: an agent that is
/// silent still sends packets.
const DISCONNECTED_AFTER: f64 = 2.0;
/// Maximum time from the answer to an established connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// A packet sent later than this counts as late: the caller did not keep up.
const LATE_SEND_THRESHOLD: Duration = Duration::from_millis(5);

/// State shared by all callers.
pub(crate) struct CallerContext {
    pub(crate) api: Api,
    pub(crate) workload: Arc<Workload>,
    /// The recording, as packets of 20 ms.
    pub(crate) microphone_packets: Vec<Bytes>,
    pub(crate) agent: String,
    /// Whether a data channel is opened.
    pub(crate) data_channel: bool,
    /// When the microphone packets are sent.
    pub(crate) pacing: Pacing,
    /// Address that the callers' sockets are bound to.
    pub(crate) bind_address: &'static str,
}

/// How a caller leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaveMode {
    /// It ends the call through the API.
    HangUp,
    /// It closes the connection without telling the API.
    Vanish,
}

/// A finished call.
pub(crate) struct FinishedCall {
    pub(crate) conversation: String,
    /// Time from the request for the conversation to the first audio packet of the agent, in s.
    pub(crate) join_seconds: Option<f64>,
    pub(crate) scores: Scores,
    pub(crate) lateness: Lateness,
    pub(crate) video: ReceivedVideo,
    /// Duration of the call, in s.
    pub(crate) duration: f64,
    pub(crate) late_sends: u64,
    /// Whether the call was still connected when the caller left.
    pub(crate) stayed_connected: bool,
}

/// The receivers of a call, fed by two tasks.
struct MediaReceivers {
    audio: AudioReceiver,
    video: VideoReceiver,
}

/// Both tasks of a call hold the lock for one packet at a time.
fn lock_receivers(senses: &Mutex<MediaReceivers>) -> MutexGuard<'_, MediaReceivers> {
    senses.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connected call.
pub(crate) struct ConnectedCall {
    requested_at: Instant,
    conversation: CreatedConversation,
    offer: AnsweredOffer,
    peer: Peer,
}

impl CallerContext {
    /// Creates a conversation and connects to it.
    ///
    /// # Errors
    /// The rejection, or that the connection was not established.
    pub(crate) async fn connect(&self) -> Result<ConnectedCall, String> {
        let requested_at = clock::now();
        let conversation = self.api.create_conversation(&self.agent).await?;
        let connected = self.join_conversation(&conversation).await;
        if connected.is_err() {
            // No client will join this conversation. The request may fail for the reason for which
            // the call failed; that changes nothing.
            let _ = self.api.end_conversation(&conversation.id).await;
        }
        let (offer, peer) = connected?;
        Ok(ConnectedCall { requested_at, conversation, offer, peer })
    }

    async fn join_conversation(
        &self,
        conversation: &CreatedConversation,
    ) -> Result<(AnsweredOffer, Peer), String> {
        let peer = Peer::new(self.bind_address, self.data_channel).await?;
        match self.negotiate(conversation, &peer).await {
            Ok(offer) => Ok((offer, peer)),
            Err(why) => {
                peer.close().await;
                Err(why)
            }
        }
    }

    async fn negotiate(
        &self,
        conversation: &CreatedConversation,
        peer: &Peer,
    ) -> Result<AnsweredOffer, String> {
        let offer = self.api.send_offer(conversation, peer.create_offer().await?).await?;
        peer.set_answer(offer.answer.clone()).await?;
        let connected = timeout(
            CONNECT_TIMEOUT,
            peer.wait_for_state(&[ConnectionState::Connected, ConnectionState::Closed]),
        )
        .await;
        if connected == Ok(ConnectionState::Connected) {
            Ok(offer)
        } else {
            Err(format!("conversation {} was answered but did not connect", conversation.id))
        }
    }
}

impl ConnectedCall {
    /// Hangs up before anything is said.
    pub(crate) async fn leave(self, callers: &CallerContext) {
        // If the server is gone, the call has ended too.
        let _ = callers.api.hang_up(&self.conversation, &self.offer).await;
        self.peer.close().await;
    }

    /// Id of the conversation.
    pub(crate) fn conversation_id(&self) -> &str {
        &self.conversation.id
    }

    /// Speaks and listens until `ends_at` or until `stop` is set, then leaves. `decode_video`:
    /// whether to decode the video. `schedule`: the send times of the microphone packets.
    pub(crate) async fn run(
        self,
        callers: Arc<CallerContext>,
        ends_at: Instant,
        mut stop: watch::Receiver<bool>,
        decode_video: bool,
        leave_mode: LeaveMode,
        schedule: SendSchedule,
    ) -> FinishedCall {
        let Self { requested_at, conversation, offer, mut peer } = self;
        let started_at = clock::now();
        let duration = ends_at.saturating_duration_since(started_at).as_secs_f64();
        let audio =
            AudioReceiver::new(Arc::clone(&callers.workload), started_at, duration - UNJUDGED_TAIL);
        let receivers = Arc::new(Mutex::new(MediaReceivers {
            audio,
            video: VideoReceiver::new(started_at, decode_video),
        }));
        let late_sends = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        let microphone = peer.microphone();
        tasks.spawn(send_microphone(
            Arc::clone(&callers),
            microphone,
            schedule,
            started_at,
            Arc::clone(&late_sends),
        ));
        let mut state = peer.state.clone();
        let finished = async {
            tokio::select! {
                () = sleep_until(ends_at.into()) => true,
                _ = stop.wait_for(|stop| *stop) => true,
                _ = state.wait_for(|state| *state == ConnectionState::Closed) => false,
            }
        };
        tokio::pin!(finished);
        let stayed_connected = loop {
            tokio::select! {
                stayed_connected = &mut finished => break stayed_connected,
                Some(track) = peer.tracks.recv() => {
                    tasks.spawn(receive_track(track, Arc::clone(&receivers)));
                }
            }
        };
        let ended = clock::now();
        tasks.shutdown().await;
        if leave_mode == LeaveMode::HangUp && stayed_connected {
            // If the server is gone, the call has ended too.
            let _ = callers.api.hang_up(&conversation, &offer).await;
        }
        peer.close().await;
        let mut receivers = lock_receivers(&receivers);
        let audio_stats = receivers.audio.finish(ended);
        let video = receivers.video.finish(requested_at, audio_stats.clock_offset);
        let disconnected = audio_stats.trailing_silence >= DISCONNECTED_AFTER;
        FinishedCall {
            conversation: conversation.id,
            join_seconds: audio_stats
                .first_packet_at
                .map(|at| at.saturating_duration_since(requested_at).as_secs_f64()),
            scores: audio_stats.scores,
            lateness: audio_stats.lateness,
            video,
            duration: (ended.saturating_duration_since(started_at).as_secs_f64()
                - if disconnected { audio_stats.trailing_silence } else { 0.0 })
            .max(0.0),
            late_sends: late_sends.load(Relaxed),
            stayed_connected: stayed_connected && !disconnected,
        }
    }
}

/// Sends the recording, each packet at its scheduled time.
async fn send_microphone(
    callers: Arc<CallerContext>,
    track: Arc<MicrophoneTrack>,
    schedule: SendSchedule,
    started_at: Instant,
    late_sends: Arc<AtomicU64>,
) {
    for (at, n) in schedule {
        let due = started_at + at;
        sleep_until(due.into()).await;
        late_sends.fetch_add(u64::from(clock::now() > due + LATE_SEND_THRESHOLD), Relaxed);
        let payload =
            callers.microphone_packets[n as usize % callers.microphone_packets.len()].clone();
        if track.send_packet(n, payload).await.is_err() {
            return; // the call is over
        }
    }
}

/// Receives one track. The arrival time of a packet is the time at which it reaches this task.
async fn receive_track(track: Arc<dyn TrackRemote>, receivers: Arc<Mutex<MediaReceivers>>) {
    let is_audio = track.kind().await == RtpCodecKind::Audio;
    while let Some(event) = track.poll().await {
        if matches!(event, TrackRemoteEvent::OnEnded) {
            return;
        }
        let key_frame_request = handle_track_event(is_audio, event, &receivers);
        if let Some(media_ssrc) = key_frame_request {
            let request = PictureLossIndication { sender_ssrc: 0, media_ssrc };
            // A call that is over needs no key frame.
            let _ = track.write_rtcp(vec![Box::new(request)]).await;
        }
    }
}

/// Gives an event to the receivers of a call. Returns the SSRC from which a key frame is to be
/// requested, if any.
fn handle_track_event(
    is_audio: bool,
    event: TrackRemoteEvent,
    receivers: &Mutex<MediaReceivers>,
) -> Option<u32> {
    let at = clock::now();
    let mut receivers = lock_receivers(receivers);
    let MediaReceivers { audio, video } = &mut *receivers;
    match event {
        TrackRemoteEvent::OnRtpPacket(packet) if is_audio => {
            audio.handle_packet(at, packet.header.timestamp, &packet.payload);
        }
        TrackRemoteEvent::OnRtpPacket(packet) => {
            let frame_complete = video.handle_packet(at, &packet);
            if frame_complete {
                audio.record_frame(at);
                return video.requests_key_frame(at).then_some(packet.header.ssrc);
            }
        }
        TrackRemoteEvent::OnRtcpPacket(packets) => {
            for report in packets.iter().filter_map(|p| p.as_any().downcast_ref::<SenderReport>()) {
                let offsets = if is_audio { &mut audio.offsets } else { &mut video.offsets };
                offsets.add_report(report.ntp_time, report.rtp_time);
            }
        }
        _ => {}
    }
    None
}
