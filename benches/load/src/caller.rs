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

mod offset;
mod peer;
mod picture;
mod reports;
mod sound;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use engine::clock;
use rtc::rtcp::sender_report::SenderReport;
use rtc::rtp_transceiver::rtp_sender::RtpCodecKind;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep_until, timeout};
use webrtc::media_stream::track_remote::{TrackRemote, TrackRemoteEvent};

use crate::api::{Api, Joined, Session};
use crate::late::Late;
use crate::pacing::{Departures, Pace};
use crate::score::Scores;
use crate::turns::LAST;
use crate::workload::Workload;
use peer::{Microphone, Peer, State};
use picture::Eye;
pub(crate) use picture::Seen;
use sound::Ear;
pub(crate) use sound::encode;

/// A call without audio packets for this time (s) at its end was disconnected: an agent that is
/// silent still sends packets.
const GONE: f64 = 2.0;
/// Maximum time from the answer to an established connection.
const PATIENCE: Duration = Duration::from_secs(15);
/// A packet sent later than this counts as late: the caller did not keep up.
const LATE: Duration = Duration::from_millis(5);

/// State shared by all callers.
pub(crate) struct Callers {
    pub(crate) api: Api,
    pub(crate) workload: Arc<Workload>,
    /// The recording, as packets of 20 ms.
    pub(crate) microphone: Vec<Bytes>,
    pub(crate) agent: String,
    /// Whether a data channel is opened.
    pub(crate) channel: bool,
    /// When the microphone packets are sent.
    pub(crate) pace: Pace,
    /// Address that the callers' sockets are bound to.
    pub(crate) bind: &'static str,
}

/// How a caller leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// It ends the call through the API.
    HangsUp,
    /// It closes the connection without telling the API.
    Vanishes,
}

/// A finished call.
pub(crate) struct Call {
    pub(crate) conversation: String,
    /// Time from the request for the conversation to the first audio packet of the agent, in s.
    pub(crate) join: Option<f64>,
    pub(crate) scores: Scores,
    pub(crate) late: Late,
    pub(crate) seen: Seen,
    /// Duration of the call, in s.
    pub(crate) whole: f64,
    pub(crate) late_sends: u64,
    /// Whether the call was still connected when the caller left.
    pub(crate) held: bool,
}

/// The receivers of a call, fed by two tasks.
struct Senses {
    ear: Ear,
    eye: Eye,
}

/// Both tasks of a call hold the lock for one packet at a time.
fn locked(senses: &Mutex<Senses>) -> MutexGuard<'_, Senses> {
    senses.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connected call.
pub(crate) struct Calling {
    asked: Instant,
    session: Session,
    joined: Joined,
    peer: Peer,
}

impl Callers {
    /// Creates a conversation and connects to it.
    ///
    /// # Errors
    /// The rejection, or that the connection was not established.
    pub(crate) async fn connect(&self) -> Result<Calling, String> {
        let asked = clock::now();
        let session = self.api.conversation(&self.agent).await?;
        let connected = self.join(&session).await;
        if connected.is_err() {
            // No client will join this conversation. The request may fail for the reason for which
            // the call failed; that changes nothing.
            let _ = self.api.end(&session.id).await;
        }
        let (joined, peer) = connected?;
        Ok(Calling { asked, session, joined, peer })
    }

    async fn join(&self, session: &Session) -> Result<(Joined, Peer), String> {
        let peer = Peer::new(self.bind, self.channel).await?;
        match self.shake_hands(session, &peer).await {
            Ok(joined) => Ok((joined, peer)),
            Err(why) => {
                peer.close().await;
                Err(why)
            }
        }
    }

    async fn shake_hands(&self, session: &Session, peer: &Peer) -> Result<Joined, String> {
        let joined = self.api.offer(session, peer.offer().await?).await?;
        peer.answer(joined.answer.clone()).await?;
        let up = timeout(PATIENCE, peer.becomes(&[State::Up, State::Down])).await;
        if up == Ok(State::Up) {
            Ok(joined)
        } else {
            Err(format!("conversation {} was answered but did not connect", session.id))
        }
    }
}

impl Calling {
    /// Hangs up before anything is said.
    pub(crate) async fn leave(self, callers: &Callers) {
        // If the server is gone, the call has ended too.
        let _ = callers.api.hang_up(&self.session, &self.joined).await;
        self.peer.close().await;
    }

    /// Id of the conversation.
    pub(crate) fn conversation(&self) -> &str {
        &self.session.id
    }

    /// Speaks and listens until `ends_at` or until `stop` is set, then leaves. `decode_video`:
    /// whether to decode the video. `schedule`: the send times of the microphone packets.
    pub(crate) async fn talk(
        self,
        callers: Arc<Callers>,
        ends: Instant,
        mut stop: watch::Receiver<bool>,
        decodes: bool,
        leaving: Leaving,
        departures: Departures,
    ) -> Call {
        let Self { asked, session, joined, mut peer } = self;
        let begun = clock::now();
        let whole = ends.saturating_duration_since(begun).as_secs_f64();
        let ear = Ear::new(Arc::clone(&callers.workload), begun, whole - LAST);
        let senses = Arc::new(Mutex::new(Senses { ear, eye: Eye::new(begun, decodes) }));
        let late_sends = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        let microphone = peer.microphone();
        tasks.spawn(speak(Arc::clone(&callers), microphone, departures, begun, Arc::clone(&late_sends)));
        let mut state = peer.state.clone();
        let over = async {
            tokio::select! {
                () = sleep_until(ends.into()) => true,
                _ = stop.wait_for(|stop| *stop) => true,
                _ = state.wait_for(|state| *state == State::Down) => false,
            }
        };
        tokio::pin!(over);
        let held = loop {
            tokio::select! {
                held = &mut over => break held,
                Some(track) = peer.tracks.recv() => {
                    tasks.spawn(follow(track, Arc::clone(&senses)));
                }
            }
        };
        let ended = clock::now();
        tasks.shutdown().await;
        if leaving == Leaving::HangsUp && held {
            // If the server is gone, the call has ended too.
            let _ = callers.api.hang_up(&session, &joined).await;
        }
        peer.close().await;
        let mut senses = locked(&senses);
        let heard = senses.ear.leave(ended);
        let seen = senses.eye.leave(asked, heard.offset);
        let gone = heard.silent >= GONE;
        Call {
            conversation: session.id,
            join: heard.first.map(|at| at.saturating_duration_since(asked).as_secs_f64()),
            scores: heard.scores,
            late: heard.late,
            seen,
            whole: (ended.saturating_duration_since(begun).as_secs_f64()
                - if gone { heard.silent } else { 0.0 })
            .max(0.0),
            late_sends: late_sends.load(Relaxed),
            held: held && !gone,
        }
    }
}

/// Sends the recording, each packet at its scheduled time.
async fn speak(
    callers: Arc<Callers>,
    track: Arc<Microphone>,
    departures: Departures,
    begun: Instant,
    late: Arc<AtomicU64>,
) {
    for (at, n) in departures {
        let due = begun + at;
        sleep_until(due.into()).await;
        late.fetch_add(u64::from(clock::now() > due + LATE), Relaxed);
        let payload = callers.microphone[n as usize % callers.microphone.len()].clone();
        if track.send(n, payload).await.is_err() {
            return; // the call is over
        }
    }
}

/// Receives one track. The arrival time of a packet is the time at which it reaches this task.
async fn follow(track: Arc<dyn TrackRemote>, senses: Arc<Mutex<Senses>>) {
    let audio = track.kind().await == RtpCodecKind::Audio;
    while let Some(event) = track.poll().await {
        let at = clock::now();
        let mut senses = locked(&senses);
        let Senses { ear, eye } = &mut *senses;
        match event {
            TrackRemoteEvent::OnRtpPacket(packet) if audio => {
                ear.packet(at, packet.header.timestamp, &packet.payload);
            }
            TrackRemoteEvent::OnRtpPacket(packet) => {
                let whole = eye.packet(at, &packet);
                if whole {
                    ear.picture(at);
                }
            }
            TrackRemoteEvent::OnRtcpPacket(packets) => {
                for report in packets.iter().filter_map(|p| p.as_any().downcast_ref::<SenderReport>()) {
                    let offsets = if audio { &mut ear.offsets } else { &mut eye.offsets };
                    offsets.report(report.ntp_time, report.rtp_time);
                }
            }
            TrackRemoteEvent::OnEnded => return,
            _ => {}
        }
    }
}
