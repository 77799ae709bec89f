//! Who else is in the room: people who come and leave, and other agents of ours.

use super::*;

impl RoomPeer {
    /// Another agent of ours serves the room if its call is older: the caller's token dispatched an
    /// agent a second time. People cannot be of the kind, whatever attributes they have.
    pub(super) fn find_older_agent(&mut self, reports: &[proto::ParticipantInfo]) {
        let is_older = |report: &proto::ParticipantInfo| {
            let attribute = |name: &str| report.attributes.get(name).map(String::as_str);
            let name = attribute(AGENT_NAME_ATTRIBUTE).unwrap_or_default();
            let created = attribute(CREATED_ATTRIBUTE);
            let created = created.and_then(|text| text.parse::<u64>().ok());
            let is_there = report.state() != proto::participant_info::State::Disconnected;
            report.kind() == proto::participant_info::Kind::Agent
                && name == self.agent_name
                && report.identity != self.agent.identity
                && is_there
                && created.is_some_and(|at| {
                    (at, &report.identity) < (self.created_unix_ms, &self.agent.identity)
                })
        };
        if reports.iter().any(is_older) {
            self.leave(RoomEnd::Superseded);
        }
    }

    /// The agent leaves the room. The connection to the server ends with it, for the same reason.
    pub(super) fn leave(&mut self, end: RoomEnd) {
        let reason = match &end {
            RoomEnd::Superseded => DisconnectReason::DuplicateIdentity,
            _ => DisconnectReason::MediaFailure,
        };
        let reason = reason as i32;
        self.request(Request::Leave(proto::LeaveRequest { reason, ..Default::default() }));
        self.report(RoomEvent::Closed(end));
    }

    pub(super) fn apply_people(&mut self, now: Instant, changes: Vec<PeopleChange>) {
        let mut subscribed = Vec::new();
        let mut has_count_changed = false;
        for change in changes {
            match change {
                PeopleChange::Joined { identity } => {
                    has_count_changed = true;
                    // Who comes back has not left. Whoever else comes finds the last one gone.
                    let last = self.last_to_leave.take().filter(|last| *last != identity);
                    if let Some(identity) = last {
                        self.report(RoomEvent::CallerLeft { identity });
                    }
                }
                PeopleChange::TrackAdded(track) => subscribed.push(track),
                PeopleChange::TrackRemoved(track) => {
                    self.end_speech(now, |one| one == track);
                }
                PeopleChange::Left { identity, reason, remaining } => {
                    has_count_changed = true;
                    if remaining > 0 {
                        self.report(RoomEvent::CallerLeft { identity });
                    } else {
                        let left = reason == DisconnectReason::ClientInitiated;
                        (self.left_at, self.gone_at) =
                            if left { (Some(now), None) } else { (None, Some(now)) };
                        self.last_to_leave = Some(identity);
                    }
                }
            }
        }
        if self.people.count() > 0 {
            (self.left_at, self.gone_at) = (None, None);
        }
        if !subscribed.is_empty() {
            self.request(subscription(subscribed));
        }
        if has_count_changed {
            let count = self.people.count();
            self.audio.set_several_people(now, count > 1);
            if count <= 1 {
                self.end_speech(now, |_| true);
            }
            self.report(RoomEvent::CallersChanged { count: count as u32 });
            self.report_connected();
        }
    }

    /// Reports that the voices of these tracks do not speak any more.
    pub(super) fn end_speech(&mut self, now: Instant, is_over: impl FnMut(&str) -> bool) {
        let ended = self.speakers.end_where(now, is_over);
        ended.into_iter().for_each(|event| self.report(event));
    }
}

#[cfg(test)]
mod tests {
    use opus::{Application, Channels, Encoder};
    use proto::{ParticipantInfo, TrackInfo};

    use super::*;
    use crate::transport::livekit::audio::SpeakerReport;

    const BLOCK: Duration = Duration::from_millis(20);

    /// Somebody in the room, with a microphone if there is a track.
    fn person(identity: &str, track: Option<&str>) -> ParticipantInfo {
        let microphone = |sid: &str| TrackInfo {
            sid: sid.into(),
            r#type: proto::TrackType::Audio as i32,
            source: proto::TrackSource::Microphone as i32,
            ..TrackInfo::default()
        };
        ParticipantInfo {
            sid: format!("PA_{identity}"),
            identity: identity.into(),
            state: proto::participant_info::State::Active as i32,
            tracks: track.into_iter().map(microphone).collect(),
            ..ParticipantInfo::default()
        }
    }

    /// Who starts (`+`) and stops (`-`) speaking.
    fn take_speakers(peer: &mut RoomPeer) -> Vec<String> {
        let speaker = |event: TransportEvent| match event {
            TransportEvent::Room(RoomEvent::Speaker { name, is_speaking, .. }) => {
                Some(format!("{}{name}", if is_speaking { '+' } else { '-' }))
            }
            _ => None,
        };
        peer.events.drain(..).filter_map(speaker).collect()
    }

    /// One voice: a tone with pauses.
    struct Voice {
        encoder: Encoder,
        sent: u64,
    }

    impl Voice {
        /// Speaks for a second, and pauses for another.
        fn speak(&mut self, peer: &mut RoomPeer, now: &mut Instant) -> Vec<String> {
            for n in 0..100 {
                let sample = |k: usize| if n < 50 && k % 100 < 50 { 8_000_i16 } else { 0 };
                let pcm: Vec<i16> = (0..960).map(sample).collect();
                let mut packet = vec![0; 4_000];
                let length = self.encoder.encode(&pcm, &mut packet).unwrap();
                packet.truncate(length);
                let mid = Mid::from("1");
                peer.audio.push(*now, mid, self.sent, self.sent * 960, packet.into());
                self.sent += 1;
                let mut heard = Vec::new();
                while peer.pull_audio(*now, &mut heard).is_some() {}
                *now += BLOCK;
            }
            take_speakers(peer)
        }
    }

    #[test]
    fn the_only_voice_has_a_name_while_several_people_are_there() {
        let (mut now, (requests, _receiver)) = (crate::clock::now(), mpsc::channel(64));
        let certificate = Certificate::generate().unwrap();
        let publication = Publication { video: None, created_unix_ms: 1 };
        let address = SocketAddr::from(([127, 0, 0, 1], 9));
        let made = RoomPeer::new(&[address], &certificate, publication, requests, now);
        let mut peer = made.unwrap().0;
        let report = |peer: &mut RoomPeer, now, participants| {
            let update = proto::ParticipantUpdate { participants };
            let update = signal_response::Message::Update(update);
            peer.handle_signal(now, RoomSignal::Server(Box::new(update)));
        };
        report(&mut peer, now, vec![person("maria", Some("TR_1"))]);
        peer.audio.assign(&HashMap::from([(Mid::from("1"), "TR_1".to_owned())]));
        let encoder = Encoder::new(48_000, Channels::Mono, Application::Audio).unwrap();
        let mut voice = Voice { encoder, sent: 0 };
        assert_eq!(voice.speak(&mut peer, &mut now), [""; 0], "she is alone");
        report(&mut peer, now, vec![person("tom", None)]);
        assert_eq!(voice.speak(&mut peer, &mut now), ["+maria", "-maria"]);
        let mut gone = person("tom", None);
        gone.state = proto::participant_info::State::Disconnected as i32;
        report(&mut peer, now, vec![gone]);
        assert_eq!(voice.speak(&mut peer, &mut now), [""; 0], "she is alone again");
        // Her microphone goes while she speaks.
        report(&mut peer, now, vec![person("tom", None)]);
        let event = SpeakerReport { track: "TR_1".into(), is_speaking: true, at: now };
        assert!(peer.speakers.apply(event, Some("maria")).is_some());
        report(&mut peer, now, vec![person("maria", None)]);
        assert_eq!(take_speakers(&mut peer), ["-maria"]);
    }
}
