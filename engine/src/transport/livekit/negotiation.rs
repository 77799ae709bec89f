//! Offers of the agent and answers of the server. The agent makes all offers, one at a time; what is
//! needed meanwhile waits for the answer.

use livekit_protocol::SessionDescription;
use str0m::change::{SdpAnswer, SdpPendingOffer};
use str0m::channel::{ChannelConfig, ChannelId, Reliability};
use str0m::media::{Direction, MediaKind, Mid};

use super::people::MAX_VOICES;
use crate::transport::webrtc::PeerConnection;

/// Ids of the tracks in offers.
pub(super) const VOICE_CID: &str = "visavis-voice";
pub(super) const VIDEO_CID: &str = "visavis-video";
/// Name of the stream with both tracks: clients keep them in sync.
pub(super) const STREAM_ID: &str = "visavis";
/// Maximum number of sections for the voices of others.
const MAX_SECTIONS: usize = 2 * MAX_VOICES;

/// The state of the negotiation.
pub(super) struct Negotiation {
    pending: Option<SdpPendingOffer>,
    /// Sections for the voices of others.
    sections: Vec<Mid>,
    /// Sections to add with the next offer.
    wanted_sections: usize,
    needs_offer: bool,
    restarts_ice: bool,
    offer_id: u32,
    offer: String,
    answer: String,
}

/// The first offer, which is part of the request to join.
pub(super) struct FirstOffer {
    pub(super) negotiation: Negotiation,
    pub(super) reliable: ChannelId,
    pub(super) audio: Mid,
    pub(super) video: Option<Mid>,
}

impl Negotiation {
    /// Makes the first offer. The order of its sections is the one of LiveKit's own clients.
    pub(super) fn begin(peer: &mut PeerConnection, with_video: bool) -> Option<FirstOffer> {
        let mut changes = peer.rtc.sdp_api();
        let reliable = changes.add_channel_with_config(ChannelConfig {
            label: "_reliable".to_owned(),
            ..ChannelConfig::default()
        });
        changes.add_channel_with_config(ChannelConfig {
            label: "_lossy".to_owned(),
            ordered: false,
            reliability: Reliability::MaxRetransmits { retransmits: 0 },
            ..ChannelConfig::default()
        });
        let mut send = |kind, cid: &str| {
            let (stream, track) = (Some(STREAM_ID.to_owned()), Some(cid.to_owned()));
            changes.add_media(kind, Direction::SendOnly, stream, track, None)
        };
        let audio = send(MediaKind::Audio, VOICE_CID);
        let video = with_video.then(|| send(MediaKind::Video, VIDEO_CID));
        let first = changes.add_media(MediaKind::Audio, Direction::RecvOnly, None, None, None);
        let (offer, pending) = changes.apply()?;
        let negotiation = Self {
            pending: Some(pending),
            sections: vec![first],
            wanted_sections: 0,
            needs_offer: false,
            restarts_ice: false,
            offer_id: 1,
            offer: offer.to_sdp_string(),
            answer: String::new(),
        };
        Some(FirstOffer { negotiation, reliable, audio, video })
    }

    /// The last offer, as the server wants it.
    pub(super) fn last_offer(&self) -> SessionDescription {
        description("offer", &self.offer, self.offer_id)
    }

    /// The last answer.
    pub(super) fn last_answer(&self) -> SessionDescription {
        description("answer", &self.answer, 0)
    }

    /// The server needs another offer, with this number of additional sections. None are needed if
    /// sections are free, but a track is bound to a section only by a new answer.
    pub(super) fn need_sections(&mut self, count: u32) {
        let room = MAX_SECTIONS.saturating_sub(self.sections.len());
        self.wanted_sections = self.wanted_sections.max(room.min(count as usize));
        self.needs_offer = true;
    }

    /// The path to the server may be broken.
    pub(super) fn restart_ice(&mut self) {
        self.restarts_ice = true;
        self.needs_offer = true;
    }

    /// The offer that was pending will not be answered: the connection to the server was lost.
    pub(super) fn forget_pending(&mut self) {
        self.needs_offer |= self.pending.take().is_some();
    }

    /// The next offer, if one is needed and none is pending.
    pub(super) fn next_offer(&mut self, peer: &mut PeerConnection) -> Option<SessionDescription> {
        if !self.needs_offer || self.pending.is_some() {
            return None;
        }
        // The offer lists the tracks that str0m knows.
        peer.declare_tracks();
        let idle: Vec<Mid> =
            self.sections.iter().copied().filter(|mid| is_inactive(peer, *mid)).collect();
        let mut changes = peer.rtc.sdp_api();
        // An answer makes sections that it does not use inactive. An offer that repeats this would
        // make them useless for good.
        for mid in &idle {
            changes.set_direction(*mid, Direction::RecvOnly);
        }
        // str0m makes no offer without a change.
        let is_unchanged = idle.is_empty() && !self.restarts_ice && self.wanted_sections == 0;
        let has_room = self.sections.len() < MAX_SECTIONS;
        let added = self.wanted_sections + usize::from(is_unchanged && has_room);
        for _ in 0..added {
            let mid = changes.add_media(MediaKind::Audio, Direction::RecvOnly, None, None, None);
            self.sections.push(mid);
        }
        if self.restarts_ice {
            changes.ice_restart(true);
        }
        (self.wanted_sections, self.needs_offer, self.restarts_ice) = (0, false, false);
        let (offer, pending) = changes.apply()?;
        self.pending = Some(pending);
        self.offer_id += 1;
        self.offer = offer.to_sdp_string();
        Some(self.last_offer())
    }

    /// Takes an answer. An answer to no pending offer is ignored.
    ///
    /// # Errors
    /// The answer does not fit the offer: the connection cannot go on.
    pub(super) fn accept(
        &mut self,
        peer: &mut PeerConnection,
        answer: &SessionDescription,
    ) -> Result<(), String> {
        if answer.id != 0 && answer.id != self.offer_id {
            return Ok(());
        }
        let Some(pending) = self.pending.take() else { return Ok(()) };
        let sdp = SdpAnswer::from_sdp_string(&answer.sdp).map_err(|error| error.to_string())?;
        peer.declare_tracks();
        peer.rtc.sdp_api().accept_answer(pending, sdp).map_err(|error| error.to_string())?;
        answer.sdp.clone_into(&mut self.answer);
        Ok(())
    }
}

fn is_inactive(peer: &PeerConnection, mid: Mid) -> bool {
    peer.rtc.media(mid).is_some_and(|media| media.direction() == Direction::Inactive)
}

fn description(kind: &str, sdp: &str, id: u32) -> SessionDescription {
    let (r#type, sdp) = (kind.to_owned(), sdp.to_owned());
    SessionDescription { r#type, sdp, id, ..SessionDescription::default() }
}
