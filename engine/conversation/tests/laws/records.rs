//! The laws of what is emitted and stored: words, turns, tools, history, view.

use std::collections::{BTreeMap, BTreeSet};

use conversation::event::{AgentState, Event, EventEnvelope, HistoryItem, Role, UtteranceId};
use conversation::input::{Command, Input};
use conversation::output::Output;
use conversation::time::Time;
use conversation::view::ConversationView;
use serde_json::json;

use super::{RunLog, events, split_words};
use crate::harness::{LogEntry, random_spec};

/// No text of the agent in the random calls has another bracket than those of directions.
pub(super) fn directions_are_removed(h: &RunLog) -> Result<(), String> {
    for entry in &h.entries {
        let LogEntry::Output(_, output) = entry else { continue };
        let text = match output {
            Output::Synthesize(request) => &request.text,
            Output::Emit(envelope) => match &envelope.event {
                Event::LlmText { text }
                | Event::TtsStarted { text }
                | Event::AgentStartedSpeaking { text, .. }
                | Event::AgentSpeechHeard { text, .. }
                | Event::AgentStoppedSpeaking { text, .. }
                | Event::History(HistoryItem { role: Role::Assistant, text, .. }) => text,
                _ => continue,
            },
            _ => continue,
        };
        if text.contains('[') {
            return Err(format!("{output:?}"));
        }
    }
    Ok(())
}

pub(super) fn heard_is_said(h: &RunLog) -> Result<(), String> {
    let mut known: BTreeMap<UtteranceId, String> = BTreeMap::new();
    let synthesized: String = h
        .entries
        .iter()
        .filter_map(|s| match s {
            LogEntry::Output(_, Output::Synthesize(r)) => Some(r.text.clone() + " "),
            _ => None,
        })
        .collect();
    for (at, event) in events(&h.entries) {
        let (utterance, text) = match event {
            Event::AgentSpeechHeard { utterance, text } => (utterance, text),
            Event::AgentStoppedSpeaking { utterance, text } => (utterance, text),
            _ => continue,
        };
        let before = known.entry(*utterance).or_default();
        if !split_words(text).starts_with(&split_words(before)) {
            return Err(format!("{utterance:?} heard {before:?}, then {text:?}, {at}"));
        }
        for word in split_words(text) {
            if !synthesized.contains(word) {
                return Err(format!("{word:?} was heard and never said, {at}"));
            }
        }
        *before = text.clone();
    }
    let history: BTreeMap<UtteranceId, &HistoryItem> = events(&h.entries)
        .into_iter()
        .filter_map(|(_, e)| match e {
            Event::History(item) => item.utterance.map(|u| (u, item)),
            _ => None,
        })
        .collect();
    for (_, event) in events(&h.entries) {
        if let Event::AgentStoppedSpeaking { utterance, text } = event {
            match history.get(utterance) {
                Some(item) if item.text != *text => {
                    return Err(format!("history {:?} but heard {text:?}", item.text));
                }
                None if !text.is_empty() => {
                    return Err(format!("{text:?} was heard and is not in history"));
                }
                _ => {}
            }
        }
    }
    Ok(())
}

pub(super) fn words_are_those_heard(h: &RunLog) -> Result<(), String> {
    let is_recorded = random_spec(&mut h.source.clone()).record_words;
    // Times are rounded to milliseconds.
    let tolerance = 0.000_6;
    let mut latest = 0.0;
    let mut words_of: BTreeMap<UtteranceId, Vec<&str>> = BTreeMap::new();
    for (at, event) in events(&h.entries) {
        match event {
            Event::AgentStartedSpeaking { .. } => latest = at.as_seconds() - tolerance,
            Event::AgentWords { utterance, words } => {
                if !is_recorded || words.is_empty() {
                    return Err(format!("recorded: {is_recorded}, words {words:?}, {at}"));
                }
                for word in words {
                    if word.start < latest || word.end < word.start {
                        return Err(format!("{word:?} after {latest}, {at}"));
                    }
                    latest = word.end;
                    words_of.entry(*utterance).or_default().push(&word.text);
                }
                if latest > at.as_seconds() + tolerance {
                    return Err(format!("{words:?} at {at}"));
                }
            }
            Event::AgentStoppedSpeaking { utterance, text } => {
                let mut rest = text.as_str();
                for word in words_of.get(utterance).into_iter().flatten() {
                    let place = rest.find(word).ok_or(format!("{word:?} is not in {text:?}"))?;
                    rest = &rest[place + word.len()..];
                }
            }
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn committed_once(h: &RunLog) -> Result<(), String> {
    let emitted: Vec<&String> = events(&h.entries)
        .into_iter()
        .filter_map(
            |(_, e)| if let Event::UtteranceCommitted { text, .. } = e { Some(text) } else { None },
        )
        .collect();
    let in_history: Vec<&String> = events(&h.entries)
        .into_iter()
        .filter_map(|(_, e)| match e {
            Event::History(item) if item.role == Role::User => Some(&item.text),
            _ => None,
        })
        .collect();
    if emitted == in_history {
        Ok(())
    } else {
        Err(format!("committed {emitted:?}, history {in_history:?}"))
    }
}

pub(super) fn tools_once(h: &RunLog) -> Result<(), String> {
    let count =
        |f: fn(&Event) -> bool| events(&h.entries).into_iter().filter(|(_, e)| f(e)).count();
    let emitted = count(|e| matches!(e, Event::ToolCall { .. }));
    let in_history = count(|e| matches!(e, Event::History(item) if item.role == Role::Tool));
    let ran = h
        .entries
        .iter()
        .filter(|s| matches!(s, LogEntry::Output(_, Output::RunTool { .. })))
        .count();
    let over = events(&h.entries).iter().any(|(_, e)| matches!(e, Event::Ended { .. }));
    if emitted != in_history || (emitted < ran && h.came_to_rest && !over) {
        return Err(format!("{ran} ran, {emitted} told, {in_history} in history"));
    }
    Ok(())
}

pub(super) fn no_word_lost(h: &RunLog) -> Result<(), String> {
    let mut finals: Vec<&str> = Vec::new();
    let mut committed: Vec<&str> = Vec::new();
    let mut responds = 0;
    for step in &h.entries {
        match step {
            LogEntry::Input(_, Input::Transcript { text, is_final: true, .. }) => {
                finals.extend(split_words(text))
            }
            LogEntry::Output(_, Output::Emit(envelope)) => match &envelope.event {
                Event::UtteranceCommitted { text, .. } if text == "what is the time" => {
                    responds += 1
                }
                Event::UtteranceCommitted { text, .. } => committed.extend(split_words(text)),
                Event::Ended { .. } => break,
                _ => {}
            },
            _ => {}
        }
    }
    let _ = responds;
    if !finals.starts_with(&committed) {
        return Err(format!("finals {finals:?}, committed {committed:?}"));
    }
    let over = events(&h.entries).iter().any(|(_, e)| matches!(e, Event::Ended { .. }));
    // With a minimum number of words, a text may be carried over to a turn that never comes.
    // Without it, everything is committed at rest.
    let min_words = random_spec(&mut h.source.clone()).min_interruption_words;
    if h.came_to_rest && !over && min_words == 0 && finals.len() != committed.len() {
        return Err(format!("at rest finals {finals:?}, committed {committed:?}"));
    }
    Ok(())
}

pub(super) fn llm_sees_the_history(h: &RunLog) -> Result<(), String> {
    let line = |item: &HistoryItem| format!("{:?} {} {}", item.role, item.text, item.interrupted);
    let mut emitted: Vec<(Role, String)> = Vec::new();
    // The command, and the roles whose items it removes.
    let mut taken_back: Option<(_, &[Role])> = None;
    for step in &h.entries {
        match step {
            // Deadlines of that time come before the command, so their requests still contain the
            // removed items.
            LogEntry::Input(
                _,
                Input::Command { id, command: Command::Context { overwrite: true, .. } },
            ) => {
                taken_back = Some((*id, &[Role::System, Role::Visitor]));
            }
            LogEntry::Input(
                _,
                Input::Command { id, command: Command::VisitorContext { overwrite: true, .. } },
            ) => {
                taken_back = Some((*id, &[Role::Visitor]));
            }
            LogEntry::Output(_, Output::CommandResult { id, .. }) => {
                if let Some((_, roles)) = taken_back.take_if(|(of, _)| of == id) {
                    emitted.retain(|(role, _)| !roles.contains(role));
                }
            }
            LogEntry::Output(
                _,
                Output::Emit(EventEnvelope { event: Event::History(item), .. }),
            ) if item.in_context => {
                if matches!(item.role, Role::System | Role::Visitor)
                    && let Some((_, roles)) = taken_back.take()
                {
                    emitted.retain(|(role, _)| !roles.contains(role));
                }
                emitted.push((item.role, line(item)));
            }
            LogEntry::Output(at, Output::RequestLlm(request)) => {
                let mut seen: Vec<String> = request.history.iter().map(|item| line(item)).collect();
                // The open turn comes last and was not emitted yet.
                if request.preemptive {
                    seen.pop();
                }
                let mut expected: Vec<String> =
                    emitted.iter().map(|(_, line)| line.clone()).collect();
                seen.sort();
                expected.sort();
                if seen != expected {
                    return Err(format!("the LLM sees {seen:?}, told was {expected:?}, {at}"));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

pub(super) fn view_is_the_fold(h: &RunLog) -> Result<(), String> {
    let emitted: Vec<&EventEnvelope> = h
        .entries
        .iter()
        .filter_map(|step| {
            if let LogEntry::Output(_, Output::Emit(envelope)) = step {
                Some(envelope)
            } else {
                None
            }
        })
        .collect();
    let (mut view, mut reread) = (ConversationView::default(), ConversationView::default());
    for envelope in &emitted {
        view.apply(envelope);
        let written = serde_json::to_string(envelope).map_err(|why| why.to_string())?;
        reread.apply(&serde_json::from_str(&written).map_err(|why| format!("{written}: {why}"))?);
    }
    let to_json = |view: &ConversationView| {
        (view.chat_history(|at| json!(at)), view.usage_json(0.0), view.snippets_json())
    };
    if to_json(&view) != to_json(&reread)
        || (view.agent_state, view.end_reason) != (reread.agent_state, reread.end_reason)
    {
        return Err(format!("written down and read again {reread:?}, else {view:?}"));
    }
    let last =
        |pick: &dyn Fn(&Event) -> bool| emitted.iter().rposition(|envelope| pick(&envelope.event));
    let items: Vec<(Role, &str, bool)> = emitted
        .iter()
        .filter_map(|envelope| match &envelope.event {
            Event::History(item) => Some((item.role, item.text.as_str(), item.interrupted)),
            _ => None,
        })
        .collect();
    let view_items: Vec<(Role, &str, bool)> =
        view.items.iter().map(|item| (item.role, item.text.as_str(), item.interrupted)).collect();
    if items != view_items {
        return Err(format!("told {items:?}, kept {view_items:?}"));
    }
    let sounds = last(&|e| matches!(e, Event::AgentStartedSpeaking { .. }))
        > last(&|e| matches!(e, Event::AgentStoppedSpeaking { .. } | Event::Ended { .. }));
    let state = last(&|e| matches!(e, Event::AgentState { .. })).map(|at| &emitted[at].event);
    let expected =
        if let Some(Event::AgentState { state }) = state { *state } else { AgentState::Listening };
    let characters: usize = emitted
        .iter()
        .map(|envelope| {
            if let Event::TtsStarted { text } = &envelope.event { text.chars().count() } else { 0 }
        })
        .sum();
    let turns: BTreeSet<u32> =
        emitted
            .iter()
            .filter_map(|envelope| {
                if let Event::Turn(times) = &envelope.event { Some(times.turn) } else { None }
            })
            .collect();
    let ended = last(&|e| matches!(e, Event::Ended { .. })).is_some();
    let same = view.speaking_item.is_some() == sounds
        && view.agent_state == expected
        && view.usage.tts_characters == characters as u64
        && view.turns.iter().map(|times| times.turn).eq(turns)
        && view.end_reason.is_some() == ended
        && view.last_event_at == emitted.last().map_or(Time::ZERO, |envelope| envelope.at);
    if same { Ok(()) } else { Err(format!("{view:?}")) }
}
