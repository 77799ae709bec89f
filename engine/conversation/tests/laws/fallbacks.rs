//! The laws of retries: fallbacks, and the guardrail that replaces a reply.

use std::collections::{BTreeMap, BTreeSet};

use conversation::event::Event;
use conversation::input::{Epoch, GenerationId, Input, LlmEvent, SegmentId, TtsEvent};
use conversation::output::{LlmRequest, Output, SpeechSource, TtsRequest};

use super::{RunLog, events};
use crate::harness::{LogEntry, random_spec};

/// The outputs that follow from the input at this index, at the same time.
fn immediate_outputs(steps: &[LogEntry], input: usize) -> impl Iterator<Item = &Output> {
    let until_drained =
        steps[input + 1..].iter().take_while(|step| !matches!(step, LogEntry::Drained(..)));
    until_drained
        .filter_map(|step| if let LogEntry::Output(_, output) = step { Some(output) } else { None })
}

/// If a model fails before the TTS received any of its text, the fallback model (if any) replaces
/// it. The fallback model itself is not replaced.
pub(super) fn fallback_model_once(h: &RunLog) -> Result<(), String> {
    let exists = random_spec(&mut h.source.clone()).fallback_llm;
    let mut requests: BTreeMap<GenerationId, LlmRequest> = BTreeMap::new();
    let mut answered: BTreeSet<GenerationId> = BTreeSet::new();
    let mut sent_to_tts: BTreeSet<GenerationId> = BTreeSet::new();
    for (place, step) in h.entries.iter().enumerate() {
        match step {
            LogEntry::Input(at, Input::Llm { generation, event }) => {
                let open = !answered.contains(generation);
                if matches!(event, LlmEvent::End { .. } | LlmEvent::Failed(_)) {
                    answered.insert(*generation);
                }
                let Some(request) = requests.get(generation).filter(|_| open) else { continue };
                let due = exists
                    && !request.use_fallback
                    && !request.preemptive
                    && !sent_to_tts.contains(generation);
                // Deadlines of the same time come first and may have stopped the request.
                let again = |output: &Output| match output {
                    Output::RequestLlm(again) => {
                        again.use_fallback && again.generation.epoch == generation.epoch
                    }
                    Output::CancelLlm(stopped) => stopped == generation,
                    Output::Synthesize(speech) => {
                        matches!(
                            speech.source,
                            SpeechSource::Generation { generation: of, .. } if of == *generation
                        )
                    }
                    Output::End(_) => true,
                    _ => false,
                };
                if matches!(event, LlmEvent::Failed(_))
                    && due
                    && !immediate_outputs(&h.entries, place).any(again)
                {
                    return Err(format!("{generation:?} failed and no other model is asked, {at}"));
                }
            }
            LogEntry::Output(at, Output::RequestLlm(request)) => {
                let id = request.generation;
                if request.use_fallback {
                    let before = id.index.checked_sub(1).map(|index| GenerationId { index, ..id });
                    let before = before
                        .filter(|generation| !sent_to_tts.contains(generation))
                        .and_then(|generation| requests.get(&generation));
                    if !exists || before.is_none_or(|before| before.use_fallback) {
                        return Err(format!("{id:?} asks another model, {at}"));
                    }
                }
                requests.insert(id, request.clone());
            }
            LogEntry::Output(_, Output::CancelLlm(generation)) => {
                answered.insert(*generation);
            }
            LogEntry::Output(
                _,
                Output::Synthesize(TtsRequest {
                    source: SpeechSource::Generation { generation, .. },
                    ..
                }),
            ) => {
                sent_to_tts.insert(*generation);
            }
            _ => {}
        }
    }
    Ok(())
}

/// If a voice fails before its first audio, the fallback voice (if any) replaces it. The fallback
/// voice itself is not replaced.
pub(super) fn fallback_voice_once(h: &RunLog) -> Result<(), String> {
    let exists = random_spec(&mut h.source.clone()).fallback_tts;
    let mut requests: BTreeMap<SegmentId, TtsRequest> = BTreeMap::new();
    let mut prepared: BTreeSet<Epoch> = BTreeSet::new();
    let mut over: BTreeSet<SegmentId> = BTreeSet::new();
    let mut again: Vec<(Epoch, SpeechSource, String)> = Vec::new();
    for (place, step) in h.entries.iter().enumerate() {
        match step {
            LogEntry::Input(at, Input::Tts { segment, event }) => {
                let open = over.insert(*segment);
                if matches!(event, TtsEvent::WordTimestamps(_)) && open {
                    over.remove(segment);
                }
                let Some(speech) = requests.get(segment).filter(|_| open && exists) else {
                    continue;
                };
                let due = !speech.use_fallback && !prepared.contains(&speech.epoch);
                // Deadlines of the same time come first and may have stopped the request.
                let replaced = |output: &Output| match output {
                    Output::Synthesize(other) => {
                        other.use_fallback && other.source == speech.source
                    }
                    Output::Discard(stopped) => stopped == segment,
                    Output::Cancel(epoch) => *epoch == speech.epoch,
                    Output::End(_) => true,
                    _ => false,
                };
                if matches!(event, TtsEvent::Failed(_))
                    && due
                    && !immediate_outputs(&h.entries, place).any(replaced)
                {
                    return Err(format!("{segment:?} failed and no other voice is asked, {at}"));
                }
            }
            LogEntry::Output(at, Output::Synthesize(speech)) => {
                if speech.use_fallback {
                    let key = (speech.epoch, speech.source.clone(), speech.text.clone());
                    if !exists || again.contains(&key) {
                        return Err(format!(
                            "{:?} asks another voice for {key:?}, {at}",
                            speech.segment
                        ));
                    }
                    again.push(key);
                }
                requests.insert(speech.segment, speech.clone());
            }
            LogEntry::Output(_, Output::RequestLlm(request)) if request.preemptive => {
                prepared.insert(request.generation.epoch);
            }
            LogEntry::Output(_, Output::Discard(segment)) => {
                over.insert(*segment);
            }
            LogEntry::Output(_, Output::Cancel(epoch)) => {
                over.extend(
                    requests
                        .values()
                        .filter(|speech| speech.epoch == *epoch)
                        .map(|speech| speech.segment),
                );
            }
            _ => {}
        }
    }
    Ok(())
}

/// If a guardrail fires for the last turn, the reply to that turn makes no further request and is
/// no longer played. The guardrail's response is played.
pub(super) fn guardrail_takes_the_place(h: &RunLog) -> Result<(), String> {
    let mut reply: Option<Epoch> = None;
    let mut replaced: BTreeSet<Epoch> = BTreeSet::new();
    let mut speeches: BTreeMap<SegmentId, Epoch> = BTreeMap::new();
    let (mut fired, mut words_due) = (false, false);
    for step in &h.entries {
        match step {
            LogEntry::Input(_, Input::GuardrailTriggered { .. }) => {
                fired = true;
                words_due |= reply.is_some();
            }
            // Deadlines of the same time come before the guardrail.
            LogEntry::Drained(..) if fired => {
                fired = false;
                replaced.extend(reply);
            }
            // It is unknown whether a preemptive reply becomes its answer.
            LogEntry::Output(_, Output::Emit(envelope))
                if matches!(envelope.event, Event::UtteranceCommitted { .. }) =>
            {
                reply = None;
            }
            LogEntry::Output(at, output) => {
                let epoch = match output {
                    Output::RequestLlm(request) => {
                        if request.generation.index == 0 && !request.preemptive {
                            reply = Some(request.generation.epoch);
                        }
                        request.generation.epoch
                    }
                    Output::Synthesize(speech) => {
                        speeches.insert(speech.segment, speech.epoch);
                        words_due &= speech.source != SpeechSource::Guardrail;
                        speech.epoch
                    }
                    Output::Play(segment) => match speeches.get(segment) {
                        Some(epoch) => *epoch,
                        None => continue,
                    },
                    _ => continue,
                };
                if replaced.contains(&epoch) {
                    return Err(format!(
                        "{output:?} after a guardrail took the reply's place, {at}"
                    ));
                }
            }
            _ => {}
        }
    }
    let over = events(&h.entries).iter().any(|(_, event)| matches!(event, Event::Ended { .. }));
    if words_due && h.came_to_rest && !over {
        return Err("a guardrail fired and its words were never spoken".into());
    }
    Ok(())
}

/// At rest every segment that was sent to the TTS was played, unless it failed or was discarded.
pub(super) fn what_was_asked_sounds(h: &RunLog) -> Result<(), String> {
    let mut due: BTreeMap<SegmentId, &TtsRequest> = BTreeMap::new();
    for step in &h.entries {
        match step {
            LogEntry::Output(_, Output::Synthesize(speech)) => {
                due.insert(speech.segment, speech);
            }
            LogEntry::Output(_, Output::Play(segment) | Output::Discard(segment))
            | LogEntry::Input(_, Input::Tts { segment, event: TtsEvent::Failed(_) }) => {
                due.remove(segment);
            }
            LogEntry::Output(_, Output::Cancel(epoch)) => {
                due.retain(|_, speech| speech.epoch != *epoch)
            }
            LogEntry::Output(_, Output::End(_)) => due.clear(),
            _ => {}
        }
    }
    match due.values().next().filter(|_| h.came_to_rest) {
        Some(speech) => Err(format!("{speech:?} never sounded")),
        None => Ok(()),
    }
}
