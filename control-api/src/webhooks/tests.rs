//! Tests of the schedule with a simulated clock.

use super::attempts::{Verdict, verdict};
use super::*;

/// All deliveries stay in memory: the tests have no store.
const SPANS: Spans = Spans { hold: 30_000_000, memory: Micros::MAX };
const HANGS: Duration = Duration::from_secs(15);
const ANSWERS: Duration = Duration::from_millis(20);
const FOREVER: fn(i64, i64) -> Option<u16> = |_, _| Some(500);

/// One attempt in a simulation.
#[derive(Debug)]
struct Seen {
    sequence: i64,
    /// Seconds since the events.
    began: f64,
    ended: f64,
    verdict: Verdict,
}

/// Delivers `events`, which happen at the same time. The receiver responds to an attempt (event
/// number, attempt number) with `answer`, after `took`.
fn deliver(events: &[&str], answer: impl Fn(i64, i64) -> Option<u16>, took: Duration) -> Vec<Seen> {
    let schedule = crate::config::Webhooks::default().schedule;
    let mut lane = Lane::default();
    for (sequence, event) in (1..).zip(events) {
        lane.push(Row {
            id: sequence.to_string(),
            workspace: String::new(),
            conversation: String::new(),
            agent: String::new(),
            sequence,
            event: (*event).to_owned(),
            url: String::new(),
            body: String::new(),
            attempts: 0,
            tries_before: 0,
            first_try: None,
            next_try: 0,
        });
    }
    let seconds = |at: Micros| at as f64 / 1e6;
    let (mut now, mut seen, mut under_way) = (0, Vec::new(), Vec::<(Micros, Micros, Row)>::new());
    loop {
        let (due, wake) = lane.due(now, SPANS);
        for row in due {
            let longest = if signing::is_speaking(&row.event) { SPEAKING_TRY } else { HANGS };
            under_way.push((now + clock::micros(took.min(longest)), now, row));
        }
        under_way.sort_by_key(|(ends, ..)| *ends);
        let Some(next) = under_way.first().map(|(ends, ..)| *ends).into_iter().chain(wake).min() else {
            return seen;
        };
        now = next;
        while under_way.first().is_some_and(|(ends, ..)| *ends <= now) {
            let (_, began, row) = under_way.remove(0);
            let speaking = signing::is_speaking(&row.event);
            let verdict =
                verdict(&schedule, speaking, row.attempts, answer(row.sequence, row.attempts), false);
            match verdict {
                Verdict::Again(wait) => lane.again(&row.id, now + clock::micros(wait)),
                _ => lane.settled(&row.id),
            }
            seen.push(Seen { sequence: row.sequence, began: seconds(began), ended: seconds(now), verdict });
        }
    }
}

fn first_tries(seen: &[Seen]) -> Vec<(i64, f64)> {
    let mut first: Vec<(i64, f64)> = Vec::new();
    let mut tries: Vec<&Seen> = seen.iter().collect();
    tries.sort_by(|a, b| a.began.total_cmp(&b.began));
    for one in tries {
        if first.iter().all(|(known, _)| *known != one.sequence) {
            first.push((one.sequence, one.began));
        }
    }
    first
}

#[test]
fn a_durable_event_is_tried_for_half_a_day_and_then_a_dead_letter() {
    let seen = deliver(&["call_ended"], FOREVER, ANSWERS);
    let mut expected = 0.0;
    for (one, wait) in seen.iter().zip([0.0, 5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0]) {
        expected += wait;
        assert!((one.began - expected).abs() <= 0.1 * expected + 0.2, "{one:?}, not {expected}");
    }
    assert_eq!(seen.len(), 7);
    assert_eq!(seen[6].verdict, Verdict::Dead);
}

#[test]
fn a_speaking_event_is_tried_three_times_in_half_a_minute_even_where_the_receiver_hangs() {
    for took in [ANSWERS, HANGS] {
        for _ in 0..100 {
            let seen = deliver(&["user.started_speaking"], |_, _| None, took);
            assert_eq!(seen.len(), 3, "{seen:#?}");
            assert!(seen[2].ended <= 30.0 && seen[2].verdict == Verdict::Dropped, "{seen:#?}");
        }
    }
}

#[test]
fn what_follows_waits_for_half_a_minute_at_most_and_keeps_its_order() {
    for took in [ANSWERS, HANGS] {
        let answer = |sequence, _| if sequence == 1 { None } else { Some(204) };
        let seen = deliver(&["utterance_committed", "tool_call", "call_ended"], answer, took);
        let first = first_tries(&seen);
        assert_eq!(first.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), [1, 2, 3]);
        assert!((29.9..=30.0).contains(&first[1].1), "{first:?}");
        assert_eq!(seen.iter().filter(|one| one.sequence == 1).count(), 7, "its tries go on beside");
    }
}

#[test]
fn an_event_that_comes_through_late_lets_the_next_one_go_at_once() {
    let answer = |sequence, attempt| Some(if sequence == 1 && attempt == 1 { 503 } else { 204 });
    let first = first_tries(&deliver(&["utterance_committed", "call_ended"], answer, ANSWERS));
    assert!((4.5..=5.6).contains(&first[1].1), "{first:?}");
}

#[test]
fn classes_of_answers() {
    let schedule = crate::config::Webhooks::default().schedule;
    let of = |status, fatal| verdict(&schedule, false, 1, status, fatal);
    for status in [200, 201, 204, 299] {
        assert_eq!(of(Some(status), false), Verdict::Done);
    }
    for status in [100, 301, 302, 307, 308, 400, 401, 404, 429, 500, 503] {
        assert!(matches!(of(Some(status), false), Verdict::Again(_)), "{status}");
    }
    assert!(matches!(of(None, false), Verdict::Again(_)));
    assert_eq!(of(Some(410), false), Verdict::Gone);
    assert_eq!(of(None, true), Verdict::Dead);
    assert_eq!(verdict(&schedule, true, 1, None, true), Verdict::Dead, "refused is no late news");
}
