//! The names of the people whose voices arrive separately. A name may be known later than the voice:
//! it is asked for beside the exchange, and what was said meanwhile is then reported with its age.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use conversation::input::Command;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How often names are asked for while one is missing.
const ASK_INTERVAL: Duration = Duration::from_secs(5);
/// How long speech of a nameless person is remembered. The call forgets it after this time, too.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Maximum number of intervals that are remembered.
const MAX_INTERVALS: usize = 500;

/// Speech of one voice that is not reported yet.
struct Interval {
    voice: String,
    start: Instant,
    end: Option<Instant>,
    /// Whether its start was reported.
    is_started: bool,
}

/// The names that are known, and the speech whose speaker is not.
#[derive(Default)]
pub(super) struct Names {
    names: BTreeMap<String, String>,
    intervals: VecDeque<Interval>,
    asked_at: Option<Instant>,
    request: Option<JoinHandle<BTreeMap<String, String>>>,
}

impl Names {
    /// A voice started or stopped.
    pub(super) fn note(&mut self, now: Instant, voice: String, is_speaking: bool) {
        if is_speaking {
            if self.intervals.len() == MAX_INTERVALS {
                self.intervals.pop_front();
            }
            let interval = Interval { voice, start: now, end: None, is_started: false };
            self.intervals.push_back(interval);
            return;
        }
        let open = self.intervals.iter_mut().rev();
        let mut open = open.filter(|one| one.voice == voice && one.end.is_none());
        if let Some(interval) = open.next() {
            interval.end = Some(now);
        }
    }

    /// The reports that are possible now, in order. `ask` starts a request for all names.
    pub(super) fn reports(
        &mut self,
        now: Instant,
        ask: impl FnOnce() -> JoinHandle<BTreeMap<String, String>>,
    ) -> Vec<Command> {
        self.intervals.retain(|one| now.duration_since(one.start) < MAX_AGE || one.end.is_none());
        let is_missing = self.intervals.iter().any(|one| !self.names.contains_key(&one.voice));
        let is_due = self.asked_at.is_none_or(|at| now.duration_since(at) >= ASK_INTERVAL);
        if is_missing && is_due && self.request.is_none() {
            self.asked_at = Some(now);
            self.request = Some(ask());
        }
        let mut reports = Vec::new();
        for one in &mut self.intervals {
            let Some(name) = self.names.get(&one.voice) else { continue };
            let report = |is_speaking, at: Instant| {
                let age = now.duration_since(at).as_millis();
                let age_ms = u64::try_from(age).unwrap_or(u64::MAX);
                Command::Speaker { name: name.clone(), is_speaking, age_ms }
            };
            if !std::mem::replace(&mut one.is_started, true) {
                reports.push(report(true, one.start));
            }
            if let Some(end) = one.end {
                reports.push(report(false, end));
            }
        }
        let names = &self.names;
        self.intervals.retain(|one| one.end.is_none() || !names.contains_key(&one.voice));
        reports
    }

    /// Takes the result of a request. Never waits.
    pub(super) async fn receive(&mut self) {
        if let Some(request) = self.request.take_if(|request| request.is_finished())
            && let Ok(names) = request.await
        {
            self.names.extend(names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn speech_of_a_person_without_a_name_is_reported_once_the_name_is_known() {
        let (mut names, start) = (Names::default(), Instant::now());
        let at = |ms: u64| start + Duration::from_millis(ms);
        let known = BTreeMap::from([("u".to_owned(), "Maria".to_owned())]);
        names.note(at(0), "u".into(), true);
        let ask = || tokio::spawn(async move { known });
        assert_eq!(names.reports(at(0), ask), []);
        names.note(at(900), "u".into(), false);
        let twice = || -> JoinHandle<_> { panic!("asked again too early") };
        assert_eq!(names.reports(at(1_000), twice), []);
        while names.request.as_ref().is_some_and(|request| !request.is_finished()) {
            tokio::task::yield_now().await;
        }
        names.receive().await;
        let report =
            |is_speaking, age_ms| Command::Speaker { name: "Maria".into(), is_speaking, age_ms };
        assert_eq!(names.reports(at(2_000), twice), [report(true, 2_000), report(false, 1_100)]);
        // From now on at once.
        names.note(at(3_000), "u".into(), true);
        assert_eq!(names.reports(at(3_000), twice), [report(true, 0)]);
        assert_eq!(names.reports(at(3_020), twice), []);
        names.note(at(3_500), "u".into(), false);
        assert_eq!(names.reports(at(3_500), twice), [report(false, 0)]);
        // Another voice is asked for again, although this one is known.
        names.note(at(6_000), "v".into(), true);
        let mut is_asked = false;
        names.reports(at(6_000), || {
            is_asked = true;
            tokio::spawn(async { BTreeMap::new() })
        });
        assert!(is_asked);
    }
}
