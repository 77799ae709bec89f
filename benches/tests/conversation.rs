//! The promised cost of a conversation, in CPU time and in memory.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]
#![allow(clippy::print_stderr)] // prints the results

use std::sync::Arc;
use std::time::Duration;

use benches::allocation::{CountingAllocator, thread_allocations};
use benches::{cpu, simulated_call};
use conversation::conversation::Conversation;
use conversation::event::{Event, HistoryItem};
use conversation::input::{GenerationId, Input, LlmEvent, PlayoutEvent, SegmentId, TtsEvent};
use conversation::output::Output;
use conversation::settings::Settings;
use conversation::simulate::simulate;
use conversation::time::{Position, Time};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const TURNS_PER_HOUR: u64 = 360;

fn drain_outputs(conversation: &mut Conversation) -> Vec<Output> {
    core::iter::from_fn(|| conversation.poll()).collect()
}

/// A call in which the agent speaks a long segment; returns that segment too.
fn speaking_conversation(at: &mut Time) -> (Conversation, SegmentId) {
    let settings =
        Settings { echo_warmup: 0.0, max_call_duration: None, ..Settings::product_defaults() };
    let mut conversation = Conversation::new(settings.to_spec().unwrap());
    let mut now = 0.0;
    let mut feed = |conversation: &mut Conversation, input, after| {
        now += after;
        *at = Time::from_seconds(now);
        conversation.handle(input, *at);
        drain_outputs(conversation)
    };
    feed(&mut conversation, Input::Start, 0.0);
    let outputs = feed(
        &mut conversation,
        Input::Transcript {
            text: "Tell me a story.".into(),
            is_final: true,
            trailing_interim: String::new(),
        },
        1.0,
    );
    let generation = outputs
        .iter()
        .find_map(
            |o| if let Output::RequestLlm(request) = o { Some(request.generation) } else { None },
        )
        .unwrap();
    let llm = |event| Input::Llm { generation, event };
    let story =
        "Once upon a time there was a dog who lived in a house by the sea with a very old man.";
    feed(&mut conversation, llm(LlmEvent::Text(story.into())), 0.1);
    feed(&mut conversation, llm(LlmEvent::End { prompt_tokens: 1, completion_tokens: 1 }), 0.1);
    let outputs = feed(&mut conversation, Input::Tick, 0.5);
    let synthesized = outputs.iter().find_map(|o| {
        if let Output::Synthesize(request) = o { Some(request.segment) } else { None }
    });
    let segment = synthesized.expect("the commit asks for the prepared words");
    feed(
        &mut conversation,
        Input::Tts { segment, event: TtsEvent::End { duration: Position::from_seconds(60.0) } },
        0.1,
    );
    feed(&mut conversation, Input::Playout { segment, event: PlayoutEvent::Started }, 0.01);
    (conversation, segment)
}

#[test]
fn a_tick_while_the_agent_speaks_allocates_nothing() {
    let mut now = Time::ZERO;
    let (mut conversation, segment) = speaking_conversation(&mut now);
    let begin = now;
    let mut allocations = 0;
    for tick in 1..400_u64 {
        let now = begin + Duration::from_millis(10 * tick);
        let position = Position::from_samples(480 * tick);
        // Once per second, an event reports the heard text. It allocates a string, so that tick is
        // not counted.
        if tick % 100 <= 1 {
            conversation.handle(Input::Tick, now);
            drain_outputs(&mut conversation);
        }
        let before = thread_allocations().calls;
        conversation.handle(Input::Tick, now);
        conversation
            .handle(Input::Playout { segment, event: PlayoutEvent::Progress(position) }, now);
        assert!(conversation.poll_timeout().is_some());
        assert!(conversation.poll().is_none(), "at {now}");
        allocations += thread_allocations().calls - before;
    }
    assert_eq!(allocations, 0);
}

#[test]
fn a_window_of_the_users_speech_allocates_nothing() {
    let mut conversation = Conversation::new(simulated_call::call_spec());
    let at = |ms: u64| Time::from_micros(1_000 * ms);
    conversation.handle(Input::Start, at(0));
    conversation.handle(Input::SpeechStarted { onset: at(50) }, at(100));
    drain_outputs(&mut conversation);
    let before = thread_allocations().calls;
    for window in 4..2_000 {
        conversation.handle(Input::SpeechContinued { until: at(32 * window) }, at(32 * window));
        assert!(conversation.poll().is_none());
    }
    assert_eq!(thread_allocations().calls, before);
}

#[test]
fn the_heard_text_of_a_long_reply_is_reported_every_second() {
    let mut now = Time::ZERO;
    let (mut conversation, _) = speaking_conversation(&mut now);
    let mut events = 0;
    for second in 1..=30 {
        conversation.handle(Input::Tick, now + Duration::from_secs(second));
        let heard = drain_outputs(&mut conversation).into_iter().filter(|output| {
            matches!(
                output,
                Output::Emit(e) if matches!(e.event, Event::AgentSpeechHeard { .. })
            )
        });
        events += heard.count();
    }
    assert!(events >= 9, "{events}");
}

/// Heap and struct size after every input of an hour's call, without the history.
#[test]
fn a_conversation_fits_in_sixteen_kibibytes() {
    let hour = simulated_call::call_inputs(TURNS_PER_HOUR);
    // Of the history: the number of items and the bytes of their text. `copies` holds the emitted
    // items, so it contains the text a second time.
    let (mut items, mut words, mut copies) =
        (0_usize, 0, Vec::with_capacity(4 * TURNS_PER_HOUR as usize));
    let (mut max_heap, mut min_heap) = (0, i64::MAX);
    let before = thread_allocations().bytes;
    let mut conversation = Conversation::new(simulated_call::call_spec());
    for (at, input) in &hour {
        // The conversation takes ownership of the input's content.
        conversation.handle(input.clone(), *at);
        while let Some(output) = conversation.poll() {
            if let Output::Emit(event) = output
                && let Event::History(item) = event.event
            {
                items += 1;
                words += item.text.capacity();
                copies.push(item);
            }
        }
        // An item in its `Arc`, and the list of items, whose capacity doubles.
        let item = size_of::<HistoryItem>() + 2 * size_of::<usize>();
        let slot = size_of::<(Arc<HistoryItem>, Option<GenerationId>)>();
        let history = items * item
            + words
            + if items == 0 { 0 } else { items.next_power_of_two().max(4) * slot };
        let heap = thread_allocations().bytes - before - (words + history) as i64;
        max_heap = max_heap.max(heap);
        min_heap = min_heap.min(heap);
    }
    let itself = size_of::<Conversation>() as i64;
    eprintln!(
        "{itself} bytes in itself, {min_heap} to {max_heap} on the heap beside {items} items of \
         history with {words} bytes of words"
    );
    assert!(max_heap + itself <= 16 << 10, "{max_heap} bytes on the heap, {itself} in itself");
    assert!(
        items > 700 && min_heap >= 0,
        "the history is smaller than it was taken for: {min_heap}"
    );
}

/// The minimum over several runs: other programs can only add time.
fn min_duration(runs: u32, mut run: impl FnMut() -> Duration) -> Duration {
    (0..runs).map(|_| run()).min().unwrap_or_default()
}

#[test]
#[cfg_attr(debug_assertions, ignore = "promised of the release profile")]
fn an_input_takes_less_than_two_microseconds() {
    let hour = simulated_call::call_inputs(TURNS_PER_HOUR);
    let median = |mut taken: Vec<Duration>| {
        taken.sort_unstable();
        taken[taken.len() / 2]
    };
    // The time of the clock itself.
    let clock = median((0..10_000).map(|_| cpu::measure(|| ())).collect());
    let median = min_duration(3, || {
        let mut conversation = Conversation::new(simulated_call::call_spec());
        let one = |(at, input): &(Time, Input)| {
            let input = input.clone();
            cpu::measure(|| {
                conversation.handle(input, *at);
                while let Some(output) = conversation.poll() {
                    std::hint::black_box(output);
                }
            })
        };
        median(hour.iter().map(one).collect()).saturating_sub(clock)
    });
    eprintln!("{} inputs, median {median:?}, the clock's own {clock:?} taken off", hour.len());
    assert!(median <= Duration::from_micros(2), "median {median:?}");
}

#[test]
#[cfg_attr(debug_assertions, ignore = "promised of the release profile")]
fn an_hour_of_talk_is_simulated_within_fifty_milliseconds() {
    let scenario = simulated_call::scenario(TURNS_PER_HOUR);
    let taken = min_duration(5, || cpu::measure(|| simulate(scenario.as_bytes(), false).unwrap()));
    eprintln!("an hour of talk: {taken:?}");
    assert!(taken <= Duration::from_millis(50), "{taken:?}");
}
