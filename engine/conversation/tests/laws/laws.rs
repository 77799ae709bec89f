//! The laws of turn-taking. Each law is a check of a whole run.

#[path = "fallbacks.rs"]
mod fallbacks;
#[path = "records.rs"]
mod records;

use std::collections::{BTreeMap, BTreeSet};

use fallbacks::{
    fallback_model_once, fallback_voice_once, guardrail_takes_the_place, what_was_asked_sounds,
};
use records::{
    committed_once, directions_are_removed, heard_is_said, llm_sees_the_history, no_word_lost,
    tools_once, view_is_the_fold, words_are_those_heard,
};

use crate::harness::{Harness, LogEntry, Random, random_spec};
use conversation::conversation::Conversation;
use conversation::event::{AgentState, Event, EventEnvelope, UtteranceId};
use conversation::input::{Command, Epoch, Input};
use conversation::output::{CommandOutcome, Output};
use conversation::time::Time;

/// A run: its inputs and outputs, and whether the conversation came to rest.
pub(crate) struct RunLog {
    source: Random,
    pub(crate) entries: Vec<LogEntry>,
    came_to_rest: bool,
    idle_enabled: bool,
    final_state: AgentState,
}

/// Runs the random call that this source chooses.
pub(crate) fn run_random_call(source: &Random) -> RunLog {
    let mut harness = Harness::new(source.clone());
    let seconds = 5 + harness.random.below(40);
    harness.schedule_script(seconds);
    while harness.step(seconds * 1_000_000) {}
    // No more user input: everything must come to rest within the longest chain of timeouts.
    let has_idle = random_spec(&mut source.clone()).idle_timeout.is_some();
    while harness.step((seconds + 300) * 1_000_000) {}
    let rested = harness.ended || harness.conversation.poll_timeout().is_none();
    let state = events(&harness.log)
        .iter()
        .rev()
        .find_map(|(_, e)| if let Event::AgentState { state } = e { Some(*state) } else { None });
    RunLog {
        source: source.clone(),
        entries: harness.log,
        came_to_rest: rested,
        idle_enabled: has_idle,
        final_state: state.unwrap_or_default(),
    }
}

fn events(steps: &[LogEntry]) -> Vec<(Time, &Event)> {
    steps
        .iter()
        .filter_map(|s| match s {
            LogEntry::Output(_, Output::Emit(envelope)) => Some((envelope.at, &envelope.event)),
            _ => None,
        })
        .collect()
}

type Law = (&'static str, fn(&RunLog) -> Result<(), String>);

const LAWS: &[Law] = &[
    ("starts and stops of the user alternate", user_alternates),
    ("starts and stops of the agent come in pairs, one utterance at a time", agent_alternates),
    ("events are numbered without a gap and their times never decrease", events_are_numbered),
    ("no request is made for an epoch after its cancellation", cancelled_is_silent),
    ("after enough silence, no deadline is left and the agent listens", comes_to_rest),
    ("heard text is a prefix of the spoken text and never shrinks", heard_is_said),
    ("directions are not spoken, shown or stored", directions_are_removed),
    ("words with times are heard words, in order, while they sound", words_are_those_heard),
    ("every committed user text is in history exactly once", committed_once),
    ("a tool call that ran has exactly one result", tools_once),
    ("no user word is lost or invented", no_word_lost),
    ("at most one interruption is reported per reply", interrupted_once),
    ("no event but reports of use follows the end", end_is_last),
    ("every command is answered exactly once", commands_are_answered),
    ("after a drain every deadline is in the future", deadlines_ahead),
    ("the LLM's history equals the emitted history exactly", llm_sees_the_history),
    ("the view equals a fold over all events, before and after serialization", view_is_the_fold),
    ("a failed LLM is replaced once, and only before its first words", fallback_model_once),
    ("a failed TTS is replaced once, and only before its first audio", fallback_voice_once),
    ("a guardrail's response replaces its turn's reply", guardrail_takes_the_place),
    ("requested speech is played unless it failed or was cancelled", what_was_asked_sounds),
    ("same inputs, same outputs", replay_is_identical),
    ("a late driver changes nothing", late_driver_changes_nothing),
];

fn user_alternates(h: &RunLog) -> Result<(), String> {
    let mut speaking = false;
    for (at, event) in events(&h.entries) {
        match event {
            Event::UserStartedSpeaking if speaking => return Err(format!("started twice, {at}")),
            Event::UserStartedSpeaking => speaking = true,
            Event::UserStoppedSpeaking if !speaking => {
                return Err(format!("stopped without a start, {at}"));
            }
            Event::UserStoppedSpeaking => speaking = false,
            _ => {}
        }
    }
    Ok(())
}

fn agent_alternates(h: &RunLog) -> Result<(), String> {
    let mut open: Option<UtteranceId> = None;
    let mut seen = BTreeSet::new();
    for (at, event) in events(&h.entries) {
        match event {
            Event::AgentStartedSpeaking { utterance, .. } => {
                if let Some(open) = open {
                    return Err(format!("{utterance:?} started while {open:?} sounds, {at}"));
                }
                if !seen.insert(*utterance) {
                    return Err(format!("{utterance:?} started twice, {at}"));
                }
                open = Some(*utterance);
            }
            Event::AgentStoppedSpeaking { utterance, .. } => {
                if open != Some(*utterance) {
                    return Err(format!("{utterance:?} stopped, but {open:?} sounds, {at}"));
                }
                open = None;
            }
            _ => {}
        }
    }
    if h.came_to_rest && open.is_some() { Err(format!("{open:?} never stopped")) } else { Ok(()) }
}

fn events_are_numbered(h: &RunLog) -> Result<(), String> {
    let (mut next, mut last) = (0, Time::ZERO);
    for step in &h.entries {
        if let LogEntry::Output(now, Output::Emit(envelope)) = step {
            if envelope.seq != next || envelope.at < last || envelope.at > *now {
                return Err(format!(
                    "fact {} at {} after number {next} at {last}, now {now}",
                    envelope.seq, envelope.at
                ));
            }
            (next, last) = (next + 1, envelope.at);
        }
    }
    Ok(())
}

fn cancelled_is_silent(h: &RunLog) -> Result<(), String> {
    let mut cancelled: BTreeSet<Epoch> = BTreeSet::new();
    let mut epochs = BTreeMap::new();
    for step in &h.entries {
        let LogEntry::Output(at, output) = step else { continue };
        let epoch = match output {
            Output::Cancel(epoch) => {
                cancelled.insert(*epoch);
                continue;
            }
            Output::Synthesize(request) => {
                epochs.insert(request.segment, request.epoch);
                request.epoch
            }
            Output::RequestLlm(request) => request.generation.epoch,
            Output::Play(segment) => match epochs.get(segment) {
                Some(epoch) => *epoch,
                None => return Err(format!("{segment:?} plays without having been asked, {at}")),
            },
            _ => continue,
        };
        if cancelled.contains(&epoch) {
            return Err(format!("{output:?} after its epoch was cancelled, {at}"));
        }
    }
    Ok(())
}

fn comes_to_rest(h: &RunLog) -> Result<(), String> {
    if !h.came_to_rest && !h.idle_enabled {
        return Err("a deadline is left after five minutes of silence".into());
    }
    let ended = events(&h.entries).iter().any(|(_, e)| matches!(e, Event::Ended { .. }));
    if h.came_to_rest && !ended && h.final_state != AgentState::Listening {
        return Err(format!("at rest the agent is {:?}", h.final_state));
    }
    Ok(())
}

fn split_words(text: &str) -> Vec<&str> {
    text.split_whitespace().collect()
}

/// At each interruption event, at least as many replies have started as there were interruptions. A
/// reply is counted by its request to the LLM. A reply without one is counted by its cause, because
/// it may be stopped while it waits for the minimum silence before its TTS request.
fn interrupted_once(h: &RunLog) -> Result<(), String> {
    let spec = random_spec(&mut h.source.clone());
    let mut answers: BTreeSet<Epoch> = BTreeSet::new();
    let mut says = BTreeMap::new();
    let mut others =
        usize::from(spec.greeting.is_some()) + usize::from(spec.recording_message.is_some());
    let mut interruptions = 0;
    for step in &h.entries {
        match step {
            LogEntry::Input(_, Input::Command { id, command: Command::Say { .. } }) => {
                says.insert(*id, false);
            }
            LogEntry::Input(_, Input::GuardrailTriggered { .. }) => others += 1,
            LogEntry::Output(
                _,
                Output::CommandResult { id, outcome: CommandOutcome::Accepted },
            ) => {
                says.entry(*id).and_modify(|accepted| *accepted = true);
            }
            LogEntry::Output(_, Output::RequestLlm(request)) => {
                answers.insert(request.generation.epoch);
            }
            LogEntry::Output(at, Output::Emit(envelope)) => match &envelope.event {
                Event::UserIdle => others += usize::from(!spec.idle_messages.is_empty()),
                Event::MaxCallDurationWarning { .. } => {
                    others += usize::from(spec.warning_message.is_some())
                }
                Event::AgentInterrupted => {
                    interruptions += 1;
                    let accepted = says.values().filter(|accepted| **accepted).count();
                    let replies = answers.len() + accepted + others;
                    if interruptions > replies {
                        return Err(format!(
                            "{interruptions} interruptions of {replies} replies, {at}"
                        ));
                    }
                }
                _ => {}
            },
            _ => {}
        }
    }
    Ok(())
}

fn end_is_last(h: &RunLog) -> Result<(), String> {
    let mut over = false;
    for step in &h.entries {
        if let LogEntry::Output(at, output) = step {
            match output {
                Output::End(_) if over => return Err(format!("ended twice, {at}")),
                Output::End(_) => over = true,
                Output::CommandResult { .. } => {}
                Output::Emit(EventEnvelope { event: Event::ProviderUsage(_), .. }) => {}
                other if over => return Err(format!("{other:?} after the end, {at}")),
                _ => {}
            }
        }
    }
    Ok(())
}

fn commands_are_answered(h: &RunLog) -> Result<(), String> {
    let commands =
        h.entries.iter().filter(|s| matches!(s, LogEntry::Input(_, Input::Command { .. }))).count();
    let answers = h
        .entries
        .iter()
        .filter(|s| matches!(s, LogEntry::Output(_, Output::CommandResult { .. })))
        .count();
    if commands == answers {
        Ok(())
    } else {
        Err(format!("{commands} commands, {answers} answers"))
    }
}

fn deadlines_ahead(h: &RunLog) -> Result<(), String> {
    for step in &h.entries {
        if let LogEntry::Drained(now, Some(next)) = step
            && next <= now
        {
            return Err(format!("a deadline at {next} was left behind at {now}"));
        }
    }
    Ok(())
}

/// The outputs of the same inputs: with extra random ticks in between (`extra`), or without the
/// ticks of the run (`keep_ticks` false).
fn rerun(h: &RunLog, keep_ticks: bool, extra: Option<&mut Random>) -> Vec<Output> {
    let mut conversation = Conversation::new(random_spec(&mut h.source.clone()));
    let mut outputs = Vec::new();
    let mut drain = |c: &mut Conversation| {
        while let Some(output) = c.poll() {
            outputs.push(output);
        }
    };
    let mut extra = extra;
    let mut last = 0;
    for step in &h.entries {
        let LogEntry::Input(at, input) = step else { continue };
        if let Some(random) = extra.as_deref_mut() {
            for _ in 0..random.below(3) {
                let between = last + random.below((at.as_micros() - last).max(1));
                last = between;
                conversation.handle(Input::Tick, Time::from_micros(between));
                drain(&mut conversation);
            }
        }
        last = at.as_micros();
        if !keep_ticks && matches!(input, Input::Tick) {
            continue;
        }
        conversation.handle(input.clone(), *at);
        drain(&mut conversation);
    }
    outputs
}

fn compare_outputs(expected: &[Output], got: &[Output]) -> Result<(), String> {
    for (i, (a, b)) in expected.iter().zip(got).enumerate() {
        if a != b {
            return Err(format!("output {i} was {a:?}, now {b:?}"));
        }
    }
    if expected.len() == got.len() {
        Ok(())
    } else {
        Err(format!("{} outputs, now {}", expected.len(), got.len()))
    }
}

fn outputs_of(h: &RunLog) -> Vec<Output> {
    h.entries
        .iter()
        .filter_map(|s| if let LogEntry::Output(_, o) = s { Some(o.clone()) } else { None })
        .collect()
}

fn replay_is_identical(h: &RunLog) -> Result<(), String> {
    compare_outputs(&outputs_of(h), &rerun(h, true, None))
}

fn late_driver_changes_nothing(h: &RunLog) -> Result<(), String> {
    let until_last_input = {
        // Without ticks, deadlines after the last real input are not processed.
        let mut all = rerun(h, false, None);
        let full = outputs_of(h);
        all.truncate(full.len());
        (full, all)
    };
    let (full, lazy) = until_last_input;
    compare_outputs(&full[..lazy.len()], &lazy)?;
    let mut random = h.source.fork();
    compare_outputs(&full, &rerun(h, true, Some(&mut random)))
}

/// The first law that a run breaks, and how.
pub(crate) fn first_broken_law(history: &RunLog) -> Option<String> {
    LAWS.iter().find_map(|(name, law)| law(history).err().map(|why| format!("{name}: {why}")))
}
