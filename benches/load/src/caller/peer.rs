//! A connection of the `webrtc` crate: it sends the microphone's audio, and receives the agent's
//! audio and video.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use rtc::interceptor::Slot;
use rtc::media_stream::MediaStreamTrack;
use rtc::peer_connection::configuration::media_engine::{MIME_TYPE_OPUS, MIME_TYPE_VP8};
use rtc::rtp;
use rtc::rtp_transceiver::rtp_sender::{
    RTCRtpCodec, RTCRtpCodecParameters, RTCRtpCodingParameters, RTCRtpEncodingParameters,
    RtpCodecKind,
};
use rtc::rtp_transceiver::{RTCRtpTransceiverDirection, RTCRtpTransceiverInit};
use tokio::sync::{mpsc, watch};
use webrtc::data_channel::DataChannelEvent;
use webrtc::error::Result;
use webrtc::media_stream::track_local::TrackLocal;
use webrtc::media_stream::track_local::static_rtp::TrackLocalStaticRTP;
use webrtc::media_stream::track_remote::TrackRemote;
use webrtc::peer_connection::{
    MediaEngine, PeerConnection, PeerConnectionBuilder, PeerConnectionEventHandler,
    RTCIceGatheringState, RTCPeerConnectionState, RTCSessionDescription, Registry,
    register_default_interceptors,
};

use super::report_forwarder::ReportForwarder;

/// Payload types in the offer; the answer uses the same ones.
const OPUS_PAYLOAD_TYPE: u8 = 111;
const VP8_PAYLOAD_TYPE: u8 = 96;
/// Order of our interceptor: after all interceptors of the stack.
const INTERCEPTOR_ORDER: usize = 14_000;
/// RTP timestamp units of a 20 ms packet.
const TIMESTAMP_STEP: u32 = 960;

/// State of a connection.
///
/// ```text
/// Connecting ──connected──► Connected ──failed or closed──► Closed
///     └───────────────────failed or closed──────────────────┘
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    Connecting,
    Connected,
    Closed,
}

struct EventHandler {
    ice_gathered: watch::Sender<bool>,
    state: watch::Sender<ConnectionState>,
    tracks: mpsc::UnboundedSender<Arc<dyn TrackRemote>>,
}

#[async_trait]
impl PeerConnectionEventHandler for EventHandler {
    async fn on_ice_gathering_state_change(&self, state: RTCIceGatheringState) {
        if state == RTCIceGatheringState::Complete {
            self.ice_gathered.send_replace(true);
        }
    }

    async fn on_connection_state_change(&self, state: RTCPeerConnectionState) {
        match state {
            RTCPeerConnectionState::Connected => {
                self.state.send_replace(ConnectionState::Connected);
            }
            RTCPeerConnectionState::Failed | RTCPeerConnectionState::Closed => {
                self.state.send_replace(ConnectionState::Closed);
            }
            _ => {}
        }
    }

    async fn on_track(&self, track: Arc<dyn TrackRemote>) {
        // Fails only if the caller has left.
        let _ = self.tracks.send(track);
    }
}

/// The outgoing audio track.
pub(super) struct MicrophoneTrack {
    track: Arc<TrackLocalStaticRTP>,
    ssrc: u32,
}

impl MicrophoneTrack {
    /// Sends packet number `n`.
    pub(super) async fn send_packet(&self, n: u32, payload: Bytes) -> Result<()> {
        let header = rtp::Header {
            version: 2,
            marker: n == 0,
            payload_type: OPUS_PAYLOAD_TYPE,
            sequence_number: n as u16,
            timestamp: n.wrapping_mul(TIMESTAMP_STEP),
            ssrc: self.ssrc,
            ..rtp::Header::default()
        };
        self.track.write_rtp(rtp::Packet { header, payload }).await
    }
}

/// One connection.
pub(super) struct Peer {
    pub(super) connection: Arc<dyn PeerConnection>,
    pub(super) state: watch::Receiver<ConnectionState>,
    pub(super) tracks: mpsc::UnboundedReceiver<Arc<dyn TrackRemote>>,
    ice_gathered: watch::Receiver<bool>,
    microphone: Arc<MicrophoneTrack>,
}

fn opus_codec() -> RTCRtpCodec {
    RTCRtpCodec {
        mime_type: MIME_TYPE_OPUS.to_owned(),
        clock_rate: 48_000,
        channels: 2,
        sdp_fmtp_line: "minptime=10;useinbandfec=1".to_owned(),
        rtcp_feedback: Vec::new(),
    }
}

fn vp8_codec() -> RTCRtpCodec {
    RTCRtpCodec {
        mime_type: MIME_TYPE_VP8.to_owned(),
        clock_rate: 90_000,
        channels: 0,
        sdp_fmtp_line: String::new(),
        rtcp_feedback: Vec::new(),
    }
}

impl Peer {
    /// A connection with its own socket, bound to `bind`. With `channel` it also opens a data
    /// channel; its messages are received and discarded.
    ///
    /// # Errors
    /// The error of the WebRTC stack, as text.
    pub(super) async fn new(
        bind: &'static str,
        channel: bool,
    ) -> std::result::Result<Self, String> {
        Self::build(bind, channel)
            .await
            .map_err(|e| format!("cannot create a peer connection: {e}"))
    }

    async fn build(bind: &'static str, channel: bool) -> Result<Self> {
        let mut media = MediaEngine::default();
        for (codec, payload_type, kind) in [
            (opus_codec(), OPUS_PAYLOAD_TYPE, RtpCodecKind::Audio),
            (vp8_codec(), VP8_PAYLOAD_TYPE, RtpCodecKind::Video),
        ] {
            media.register_codec(RTCRtpCodecParameters { rtp_codec: codec, payload_type }, kind)?;
        }
        let registry = register_default_interceptors(Registry::new(), &mut media)?;
        let registry = registry.with(Slot::from(INTERCEPTOR_ORDER), ReportForwarder::default());
        let (ice_sender, gathered) = watch::channel(false);
        let (state_sender, state) = watch::channel(ConnectionState::Connecting);
        let (track_sender, tracks) = mpsc::unbounded_channel();
        let handler =
            EventHandler { ice_gathered: ice_sender, state: state_sender, tracks: track_sender };
        let connection = PeerConnectionBuilder::new()
            .with_media_engine(media)
            .with_interceptor_registry(registry)
            .with_handler(Arc::new(handler))
            .with_udp_addrs(vec![bind])
            .build()
            .await?;
        let connection: Arc<dyn PeerConnection> = Arc::new(connection);
        let ssrc = rand::random();
        let coding = RTCRtpEncodingParameters {
            rtp_coding_parameters: RTCRtpCodingParameters {
                ssrc: Some(ssrc),
                ..Default::default()
            },
            codec: opus_codec(),
            ..Default::default()
        };
        let names = ["caller", "microphone", "microphone"].map(str::to_owned);
        let [stream, id, label] = names;
        let track = MediaStreamTrack::new(stream, id, label, RtpCodecKind::Audio, vec![coding]);
        let track = Arc::new(TrackLocalStaticRTP::new(track));
        connection.add_track(Arc::clone(&track) as Arc<dyn TrackLocal>).await?;
        let video_init = RTCRtpTransceiverInit {
            direction: RTCRtpTransceiverDirection::Recvonly,
            streams: Vec::new(),
            send_encodings: Vec::new(),
        };
        connection.add_transceiver_from_kind(RtpCodecKind::Video, Some(video_init)).await?;
        if channel {
            let channel = connection.create_data_channel("load", None).await?;
            tokio::spawn(async move {
                while let Some(event) = channel.poll().await {
                    if matches!(event, DataChannelEvent::OnClose) {
                        return;
                    }
                }
            });
        }
        let microphone = Arc::new(MicrophoneTrack { track, ssrc });
        Ok(Self { connection, state, tracks, ice_gathered: gathered, microphone })
    }

    /// The outgoing audio track.
    pub(super) fn microphone(&self) -> Arc<MicrophoneTrack> {
        Arc::clone(&self.microphone)
    }

    /// Creates the offer, with all candidates.
    pub(super) async fn create_offer(&self) -> std::result::Result<String, String> {
        let made = async {
            let offer = self.connection.create_offer(None).await?;
            self.connection.set_local_description(offer).await?;
            // Fails only if the connection is gone; it then has no description.
            let _ = self.ice_gathered.clone().wait_for(|done| *done).await;
            Ok::<_, webrtc::error::Error>(self.connection.local_description().await)
        };
        let description = made.await.map_err(|e| format!("cannot create an offer: {e}"))?;
        description.map(|d| d.sdp).ok_or("the peer connection has no offer".into())
    }

    /// Applies the server's answer.
    pub(super) async fn set_answer(&self, sdp: String) -> std::result::Result<(), String> {
        let describe = |e| format!("cannot apply the answer: {e}");
        let answer = RTCSessionDescription::answer(sdp).map_err(describe)?;
        self.connection.set_remote_description(answer).await.map_err(describe)
    }

    /// Waits until the connection is in one of these states and returns that state.
    pub(super) async fn wait_for_state(&self, states: &[ConnectionState]) -> ConnectionState {
        let mut state = self.state.clone();
        state.wait_for(|s| states.contains(s)).await.map_or(ConnectionState::Closed, |s| *s)
    }

    /// Closes the connection.
    pub(super) async fn close(&self) {
        // On an error it is already closed, or will time out.
        let _ = self.connection.close().await;
    }
}
