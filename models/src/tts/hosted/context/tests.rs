use super::*;
use crate::tts::hosted::test_server::durations;
use crate::tts::hosted::test_sink::{Events, Speech, sink};

fn segment(id: u64, text: &str) -> (Segment, Events) {
    let (sink, events) = sink();
    let request = Request { text: text.into(), reply: 1, ..Request::default() };
    let segment = Segment::new(id, request, sink, Instant::now());
    (segment, events)
}

/// A context with these texts, as if they were sent now.
fn context(texts: &[&str]) -> (Context, Vec<Events>) {
    let now = Instant::now();
    let mut context = Context::new(now, 1, false);
    let mut all = Vec::new();
    for (id, text) in texts.iter().enumerate() {
        let (segment, events) = segment(id as u64, text);
        context.push(now, segment);
        all.push(events);
    }
    (context, all)
}

fn word(text: &str, begin: f64, end: f64) -> Word {
    Word { text: text.into(), begin: Some(begin), end }
}

fn sound(millis: usize, value: i16) -> Vec<i16> {
    vec![value; millis * 24]
}

async fn speech(events: &mut Events) -> Speech {
    events.speech().await
}

#[tokio::test]
async fn words_of_a_later_segment_wait_until_its_beginning_is_known() {
    let now = Instant::now();
    let (mut context, mut events) = context(&["One.", "Two.", "Three."]);
    let reported = [word("One.", 0.0, 0.3), word("Two.", 0.5, 0.8), word("Three.", 1.0, 1.3)];
    context.push_words(&reported);
    context.push_samples(now, sound(1_500, 1)).unwrap();
    context.end_sounding(now);
    assert!(context.is_idle());
    let first = speech(&mut events[0]).await;
    assert_eq!(
        (durations(&first.samples), first.words),
        (vec![(1, 500)], vec![("One.".into(), 0, 300)])
    );
    let second = speech(&mut events[1]).await;
    assert_eq!(
        (durations(&second.samples), second.words),
        (vec![(1, 500)], vec![("Two.".into(), 0, 300)])
    );
    let third = speech(&mut events[2]).await;
    assert_eq!((durations(&third.samples), third.text()), (vec![(1, 500)], "Three.".into()));
}

#[tokio::test]
async fn sound_that_came_before_the_words_of_the_next_segment_stays_where_it_is() {
    let now = Instant::now();
    let (mut context, mut events) = context(&["One.", "Two."]);
    context.push_samples(now, sound(600, 1)).unwrap();
    context.push_words(&[word("One.", 0.0, 0.3), word("Two.", 0.4, 0.7)]);
    context.push_samples(now, sound(200, 2)).unwrap();
    context.end_sounding(now);
    assert_eq!(durations(&speech(&mut events[0]).await.samples), [(1, 600)]);
    let second = speech(&mut events[1]).await;
    assert_eq!(durations(&second.samples), [(2, 200)]);
    assert!(second.words.iter().all(|(_, begin, end)| *begin >= 0 && end >= begin), "{second:?}");
}

#[tokio::test]
async fn a_doubled_mark_ends_one_segment() {
    let now = Instant::now();
    let (mut context, mut events) = context(&["One.", "Two."]);
    context.mark(now);
    context.push_samples(now, sound(100, 1)).unwrap();
    context.mark(now);
    context.mark(now);
    context.push_samples(now, sound(200, 2)).unwrap();
    context.mark(now);
    assert!(context.is_idle());
    assert_eq!(durations(&speech(&mut events[0]).await.samples), [(1, 100)]);
    assert_eq!(durations(&speech(&mut events[1]).await.samples), [(2, 200)]);
}

#[tokio::test]
async fn a_changed_word_at_the_end_does_not_swallow_the_next_segment() {
    let now = Instant::now();
    let (mut context, mut events) = context(&["It costs $5.", "Really."]);
    let reported = [
        word("It", 0.0, 0.1),
        word("costs", 0.1, 0.3),
        word("five", 0.3, 0.5),
        word("dollars", 0.5, 0.8),
        word("Really", 1.0, 1.4),
    ];
    for reported in reported {
        context.push_words(&[reported]);
    }
    context.push_samples(now, sound(1_500, 1)).unwrap();
    context.end_sounding(now);
    let first = speech(&mut events[0]).await;
    assert_eq!(
        (durations(&first.samples), first.text()),
        (vec![(1, 1_000)], "It costs $5.".into())
    );
    assert_eq!(first.words[2], ("$5.".into(), 300, 800));
    assert_eq!(speech(&mut events[1]).await.words, [("Really.".into(), 0, 400)]);
}

#[tokio::test(start_paused = true)]
async fn deadlines_depend_on_what_is_missing() {
    let now = Instant::now();
    let timeouts = Timeouts::default();
    let after = |millis| now + Duration::from_millis(millis);
    let (mut context, mut events) = context(&["One two."]);
    assert_eq!(context.deadline(&timeouts), Some(after(2_500)));
    assert_eq!(context.expire(after(2_499), &timeouts), Ok(()));
    assert_eq!(context.expire(after(2_500), &timeouts), Err(Fault::Silent));
    // Two of six letters.
    context.push_samples(after(100), sound(80, 1)).unwrap();
    assert_eq!(context.expire(after(2_600), &timeouts), Err(Fault::Stopped));
    context.push_samples(after(200), sound(400, 1)).unwrap();
    assert_eq!(context.deadline(&timeouts), Some(after(1_200)));
    // The vendor reports words, and not all of them.
    context.push_words(&[word("One", 0.0, 0.2)]);
    assert_eq!(context.deadline(&timeouts), Some(after(2_700)));
    context.push_words(&[word("two.", 0.2, 0.4)]);
    assert_eq!(context.expire(after(1_200), &timeouts), Ok(()));
    assert!(context.is_idle() && context.deadline(&timeouts).is_none());
    assert_eq!(speech(&mut events[0]).await.text(), "One two.");
}

#[tokio::test]
async fn times_without_meaning_are_harmless() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -5.0, 1e300] {
        let now = Instant::now();
        let (mut context, mut events) = context(&["One two.", "Three four."]);
        for text in ["One", "two.", "Three", "four."] {
            context.push_words(&[word(text, bad, bad), word("", bad, 0.1)]);
            context.push_samples(now, sound(200, 1)).unwrap();
        }
        context.end_sounding(now);
        context.end_sounding(now);
        for segment in &mut events {
            while let Some(event) = segment.try_next() {
                if let Event::Words(words) = event {
                    assert!(words.iter().all(|word| word.end.is_finite()), "{bad}: {words:?}");
                }
            }
        }
    }
}

#[tokio::test]
async fn silence_between_two_segments_counts_in_their_times() {
    let now = Instant::now();
    let (mut context, mut events) = context(&["One."]);
    context.push_samples(now, sound(300, 1)).unwrap();
    context.mark(now);
    context.push_samples(now, sound(200, 0)).unwrap();
    let (next, mut next_events) = segment(1, "Two.");
    context.push(now, next);
    context.push_words(&[word("Two.", 0.6, 0.8)]);
    context.push_samples(now, sound(400, 2)).unwrap();
    context.mark(now);
    assert_eq!(durations(&speech(&mut events[0]).await.samples), [(1, 300)]);
    let second = speech(&mut next_events).await;
    assert_eq!(durations(&second.samples), [(2, 400)]);
    assert_eq!(second.words, [("Two.".into(), 100, 300)]);
}
