//! What a running conversation costs: no allocation while nothing but time passes, and little memory.
#![allow(unsafe_code)] // a global allocator cannot be written without

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use conversation::conversation::Conversation;
use conversation::input::{Input, LlmEvent, PieceId, PlayoutEvent, TtsEvent};
use conversation::output::Output;
use conversation::settings::Settings;
use conversation::time::{Position, Time};

thread_local! {
    static COUNT: Cell<(u64, i64)> = const { Cell::new((0, 0)) };
}

/// Counts this thread's allocations and the bytes they hold.
struct Counting;

fn count(calls: u64, bytes: i64) {
    COUNT.with(|count| {
        let (a, b) = count.get();
        count.set((a + calls, b + bytes));
    });
}

// SAFETY: every call goes to the system's allocator unchanged; counting touches a thread's own cell, which never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(1, layout.size() as i64);
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(0, -(layout.size() as i64));
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn drain(conversation: &mut Conversation) -> Vec<Output> {
    core::iter::from_fn(|| conversation.poll()).collect()
}

/// A call in which the agent tells a long story; its piece.
fn speaking(at: &mut Time) -> (Conversation, PieceId) {
    let settings = Settings { echo_warmup: 0.0, max_call_duration: None, ..Settings::product() };
    let mut conversation = Conversation::new(settings.spec().unwrap());
    let mut now = 0.0;
    let mut give = |conversation: &mut Conversation, input, after| {
        now += after;
        *at = Time::from_seconds(now);
        conversation.handle(input, *at);
        drain(conversation)
    };
    give(&mut conversation, Input::Begin, 0.0);
    let outputs =
        give(&mut conversation, Input::Transcript { text: "Tell me a story.".into(), is_final: true }, 1.0);
    let step = outputs
        .iter()
        .find_map(|o| if let Output::AskLlm(request) = o { Some(request.step) } else { None })
        .unwrap();
    let llm = |event| Input::Llm { step, event };
    let story = "Once upon a time there was a dog who lived in a house by the sea with a very old man.";
    give(&mut conversation, llm(LlmEvent::Text(story.into())), 0.1);
    give(&mut conversation, llm(LlmEvent::End { prompt_tokens: 1, completion_tokens: 1 }), 0.1);
    let outputs = give(&mut conversation, Input::Tick, 0.5);
    let asked = outputs
        .iter()
        .find_map(|o| if let Output::Synthesize(request) = o { Some(request.piece) } else { None });
    let piece = asked.expect("the commit asks for the prepared words");
    give(
        &mut conversation,
        Input::Tts { piece, event: TtsEvent::End { duration: Position::from_seconds(60.0) } },
        0.1,
    );
    give(&mut conversation, Input::Playout { piece, event: PlayoutEvent::Started }, 0.01);
    (conversation, piece)
}

#[test]
fn a_tick_while_the_agent_speaks_allocates_nothing() {
    let mut now = Time::ZERO;
    let (mut conversation, piece) = speaking(&mut now);
    let begin = now;
    let mut allocations = 0;
    for tick in 1..400_u64 {
        let now = begin + core::time::Duration::from_millis(10 * tick);
        let position = Position::from_samples(480 * tick);
        // Once a second what was heard is told, which is a text: that tick is not counted.
        if tick % 100 <= 1 {
            conversation.handle(Input::Tick, now);
            drain(&mut conversation);
        }
        let before = COUNT.get().0;
        conversation.handle(Input::Tick, now);
        conversation.handle(Input::Playout { piece, event: PlayoutEvent::Progress(position) }, now);
        assert!(conversation.poll_timeout().is_some());
        assert!(conversation.poll().is_none(), "at {now}");
        allocations += COUNT.get().0 - before;
    }
    assert_eq!(allocations, 0);
}

#[test]
fn a_conversation_fits_in_sixteen_kibibytes() {
    let before = COUNT.get().1;
    let mut now = Time::ZERO;
    let (conversation, _) = speaking(&mut now);
    let heap = COUNT.get().1 - before;
    drop(conversation);
    let all = heap + size_of::<Conversation>() as i64;
    assert!(all <= 16 << 10, "{heap} bytes on the heap, {} in itself", size_of::<Conversation>());
}

#[test]
fn the_heard_text_of_a_running_story_is_told_every_second() {
    let mut now = Time::ZERO;
    let (mut conversation, _) = speaking(&mut now);
    let mut told = 0;
    for second in 1..=30 {
        conversation.handle(Input::Tick, now + core::time::Duration::from_secs(second));
        let heard = drain(&mut conversation).into_iter().filter(|output| {
            matches!(output, Output::Tell(fact) if matches!(fact.event, conversation::event::Event::AgentHeard { .. }))
        });
        told += heard.count();
    }
    assert!(told >= 9, "{told}");
}

/// Run by hand: `cargo test --release --test steady -- --ignored`. The numbers depend on the machine.
#[test]
#[ignore = "measures time"]
#[allow(clippy::disallowed_methods)] // a clock is what this test is about
fn an_input_takes_less_than_two_microseconds() {
    let mut now = Time::ZERO;
    let (mut conversation, piece) = speaking(&mut now);
    let mut taken: Vec<u128> = (1..100_000_u64)
        .map(|tick| {
            let at = now + core::time::Duration::from_micros(500 * tick);
            let input = match tick % 4 {
                0 => {
                    Input::Playout { piece, event: PlayoutEvent::Progress(Position::from_samples(24 * tick)) }
                }
                1 => Input::SpeechStarted { onset: at },
                2 => Input::SpeechStopped { end: at },
                _ => Input::Tick,
            };
            let before = std::time::Instant::now();
            conversation.handle(input, at);
            while let Some(output) = conversation.poll() {
                std::hint::black_box(output);
            }
            before.elapsed().as_nanos()
        })
        .collect();
    taken.sort_unstable();
    assert!(taken[taken.len() / 2] <= 2000, "median {} ns", taken[taken.len() / 2]);
    let scenario = serde_json::json!({
        "user": (0..360).map(|n| serde_json::json!({"from": n * 10, "to": n * 10 + 2, "text": "Hello"})).collect::<Vec<_>>(),
        "replies": [{"to": "*", "say": "Hello to you, my friend.", "audio": 4.0}],
        "until": 3600.0,
    });
    let before = std::time::Instant::now();
    conversation::simulate::simulate(scenario.to_string().as_bytes(), false).unwrap();
    assert!(before.elapsed().as_millis() <= 50, "an hour of talk took {:?}", before.elapsed());
}
