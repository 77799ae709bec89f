//! Tests of the schedule with a simulated clock.

use super::attempts::{Disposition, classify_attempt};
use super::*;

/// All deliveries stay in memory: the tests have no store.
const TIMING: QueueTiming = QueueTiming { hold: 30_000_000, memory_horizon: Micros::MAX };
const HANG_TIME: Duration = Duration::from_secs(15);
const ANSWER_TIME: Duration = Duration::from_millis(20);
const ALWAYS_FAILS: fn(i64, i64) -> Option<u16> = |_, _| Some(500);

/// One attempt in a simulation.
#[derive(Debug)]
struct SimulatedAttempt {
    sequence: i64,
    /// Seconds since the events.
    started_at: f64,
    ended_at: f64,
    disposition: Disposition,
}

/// Delivers `events`, which happen at the same time. The receiver responds to an attempt (event
/// number, attempt number) with `answer`, after `took`.
fn simulate_delivery(
    events: &[&str],
    answer: impl Fn(i64, i64) -> Option<u16>,
    answer_time: Duration,
) -> Vec<SimulatedAttempt> {
    let schedule = crate::config::Webhooks::default().schedule;
    let mut queue = ConversationQueue::default();
    for (sequence, event) in (1..).zip(events) {
        queue.push(Row {
            id: sequence.to_string(),
            workspace: String::new(),
            conversation: String::new(),
            agent: String::new(),
            sequence,
            event: (*event).to_owned(),
            url: String::new(),
            body: String::new(),
            attempts: 0,
            attempts_before_redelivery: 0,
            first_attempt_at: None,
            next_attempt_at: 0,
        });
    }
    let seconds = |at: Micros| at as f64 / 1e6;
    let (mut now, mut attempts, mut under_way) =
        (0, Vec::new(), Vec::<(Micros, Micros, Row)>::new());
    loop {
        let (due, wake) = queue.take_due(now, TIMING);
        for row in due {
            let timeout =
                if signing::is_speaking_event(&row.event) { SPEAKING_TIMEOUT } else { HANG_TIME };
            under_way.push((now + clock::to_micros(answer_time.min(timeout)), now, row));
        }
        under_way.sort_by_key(|(ends, ..)| *ends);
        let Some(next) = under_way.first().map(|(ends, ..)| *ends).into_iter().chain(wake).min()
        else {
            return attempts;
        };
        now = next;
        while under_way.first().is_some_and(|(ends, ..)| *ends <= now) {
            let (_, started_at, row) = under_way.remove(0);
            let speaking = signing::is_speaking_event(&row.event);
            let disposition = classify_attempt(
                &schedule,
                speaking,
                row.attempts,
                answer(row.sequence, row.attempts),
                false,
            );
            match disposition {
                Disposition::Retry(wait) => queue.reschedule(&row.id, now + clock::to_micros(wait)),
                _ => queue.remove_settled(&row.id),
            }
            attempts.push(SimulatedAttempt {
                sequence: row.sequence,
                started_at: seconds(started_at),
                ended_at: seconds(now),
                disposition,
            });
        }
    }
}

fn first_attempts(seen: &[SimulatedAttempt]) -> Vec<(i64, f64)> {
    let mut first: Vec<(i64, f64)> = Vec::new();
    let mut attempts: Vec<&SimulatedAttempt> = seen.iter().collect();
    attempts.sort_by(|a, b| a.started_at.total_cmp(&b.started_at));
    for one in attempts {
        if first.iter().all(|(known, _)| *known != one.sequence) {
            first.push((one.sequence, one.started_at));
        }
    }
    first
}

#[test]
fn a_durable_event_is_tried_for_half_a_day_and_then_a_dead_letter() {
    let seen = simulate_delivery(&["call_ended"], ALWAYS_FAILS, ANSWER_TIME);
    let mut expected = 0.0;
    for (one, wait) in seen.iter().zip([0.0, 5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0]) {
        expected += wait;
        assert!(
            (one.started_at - expected).abs() <= 0.1 * expected + 0.2,
            "{one:?}, not {expected}"
        );
    }
    assert_eq!(seen.len(), 7);
    assert_eq!(seen[6].disposition, Disposition::DeadLetter);
}

#[test]
fn a_speaking_event_is_tried_three_times_in_half_a_minute_even_where_the_receiver_hangs() {
    for took in [ANSWER_TIME, HANG_TIME] {
        for _ in 0..100 {
            let seen = simulate_delivery(&["user.started_speaking"], |_, _| None, took);
            assert_eq!(seen.len(), 3, "{seen:#?}");
            assert!(
                seen[2].ended_at <= 30.0 && seen[2].disposition == Disposition::Dropped,
                "{seen:#?}"
            );
        }
    }
}

#[test]
fn later_events_wait_at_most_thirty_seconds_and_keep_their_order() {
    for took in [ANSWER_TIME, HANG_TIME] {
        let answer = |sequence, _| if sequence == 1 { None } else { Some(204) };
        let seen =
            simulate_delivery(&["utterance_committed", "tool_call", "call_ended"], answer, took);
        let first = first_attempts(&seen);
        assert_eq!(first.iter().map(|(sequence, _)| *sequence).collect::<Vec<_>>(), [1, 2, 3]);
        assert!((29.9..=30.0).contains(&first[1].1), "{first:?}");
        assert_eq!(
            seen.iter().filter(|one| one.sequence == 1).count(),
            7,
            "its retries continue in parallel"
        );
    }
}

#[test]
fn an_event_that_comes_through_late_lets_the_next_one_go_at_once() {
    let answer = |sequence, attempt| Some(if sequence == 1 && attempt == 1 { 503 } else { 204 });
    let first = first_attempts(&simulate_delivery(
        &["utterance_committed", "call_ended"],
        answer,
        ANSWER_TIME,
    ));
    assert!((4.5..=5.6).contains(&first[1].1), "{first:?}");
}

#[test]
fn classes_of_answers() {
    let schedule = crate::config::Webhooks::default().schedule;
    let disposition = |status, fatal| classify_attempt(&schedule, false, 1, status, fatal);
    for status in [200, 201, 204, 299] {
        assert_eq!(disposition(Some(status), false), Disposition::Delivered);
    }
    for status in [100, 301, 302, 307, 308, 400, 401, 404, 429, 500, 503] {
        assert!(matches!(disposition(Some(status), false), Disposition::Retry(_)), "{status}");
    }
    assert!(matches!(disposition(None, false), Disposition::Retry(_)));
    assert_eq!(disposition(Some(410), false), Disposition::Gone);
    assert_eq!(disposition(None, true), Disposition::DeadLetter);
    assert_eq!(
        classify_attempt(&schedule, true, 1, None, true),
        Disposition::DeadLetter,
        "a refused delivery is not late"
    );
}
