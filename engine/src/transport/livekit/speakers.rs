//! Who is reported to speak, so that every report of a start has one of its end: also when the
//! voice is gone, when its owner has another name by then, or when nobody else is in the room any
//! more.

use std::time::Instant;

use super::RoomEvent;
use super::audio::SpeakerReport;

/// The voices that speak: their tracks, and the names of their owners.
#[derive(Default)]
pub(super) struct Speakers(Vec<(String, String)>);

impl Speakers {
    /// What a report about a voice means. `name`: that of its owner, if it has one.
    pub(super) fn apply(&mut self, report: SpeakerReport, name: Option<&str>) -> Option<RoomEvent> {
        let SpeakerReport { track, is_speaking, at } = report;
        if !is_speaking {
            return self.end_where(at, |one| one == track).pop();
        }
        let name = name?.to_owned();
        // Two voices of one person are one speaker.
        let is_new = !self.has(&name);
        self.0.push((track, name.clone()));
        is_new.then_some(RoomEvent::Speaker { name, is_speaking, at })
    }

    /// Ends the speech of the voices with these tracks.
    pub(super) fn end_where(
        &mut self,
        at: Instant,
        mut is_over: impl FnMut(&str) -> bool,
    ) -> Vec<RoomEvent> {
        let mut ended: Vec<String> = Vec::new();
        self.0.retain(|(track, name)| {
            let is_over = is_over(track);
            if is_over && !ended.contains(name) {
                ended.push(name.clone());
            }
            !is_over
        });
        ended.retain(|name| !self.has(name));
        let end = |name| RoomEvent::Speaker { name, is_speaking: false, at };
        ended.into_iter().map(end).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(_, known)| known == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(track: &str, is_speaking: bool, at: Instant) -> SpeakerReport {
        SpeakerReport { track: track.into(), is_speaking, at }
    }

    fn describe(event: Option<RoomEvent>) -> String {
        match event {
            Some(RoomEvent::Speaker { name, is_speaking, .. }) => format!("{name} {is_speaking}"),
            None => String::new(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn each_start_has_an_end_under_the_same_name() {
        let (mut speakers, at) = (Speakers::default(), crate::clock::now());
        let mut apply = |track, is_speaking, name| {
            describe(speakers.apply(report(track, is_speaking, at), name))
        };
        assert_eq!(apply("TR_1", true, Some("Ada")), "Ada true");
        assert_eq!(apply("TR_1", false, Some("Ada Lovelace")), "Ada false");
        assert_eq!(apply("TR_1", false, Some("Ada")), "", "she did not speak");
        assert_eq!(apply("TR_2", true, None), "", "a voice of nobody");
        assert_eq!(apply("TR_1", true, Some("Ada")), "Ada true");
        assert_eq!(apply("TR_3", true, Some("Ada")), "", "her second voice");
        assert_eq!(apply("TR_1", false, Some("Ada")), "", "the other one goes on");
        let ended = speakers.end_where(at, |track| track == "TR_3");
        assert_eq!(
            ended.into_iter().map(|one| describe(Some(one))).collect::<Vec<_>>(),
            ["Ada false"]
        );
    }
}
