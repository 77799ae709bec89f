//! The laws of what is asked again: fallbacks, and the guardrail that takes a reply's place.

use std::collections::{BTreeMap, BTreeSet};

use conversation::event::Event;
use conversation::input::{Epoch, Input, LlmEvent, PieceId, StepId, TtsEvent};
use conversation::output::{LlmRequest, Output, Source, SpeechRequest};

use super::{History, facts};
use crate::world::{Step, spec};

/// The outputs that follow from the input at this place, all of its instant.
fn at_once(steps: &[Step], input: usize) -> impl Iterator<Item = &Output> {
    let until_drained = steps[input + 1..].iter().take_while(|step| !matches!(step, Step::Drained(..)));
    until_drained.filter_map(|step| if let Step::Out(_, output) = step { Some(output) } else { None })
}

/// A model that fails before its first words were given to the voice is replaced, where there is another; the other one is not.
pub(super) fn fallback_model_once(h: &History) -> Result<(), String> {
    let exists = spec(&mut h.source.clone()).fallback_llm;
    let mut asked: BTreeMap<StepId, LlmRequest> = BTreeMap::new();
    let mut answered: BTreeSet<StepId> = BTreeSet::new();
    let mut given: BTreeSet<StepId> = BTreeSet::new();
    for (place, step) in h.steps.iter().enumerate() {
        match step {
            Step::In(at, Input::Llm { step, event }) => {
                let open = !answered.contains(step);
                if matches!(event, LlmEvent::End { .. } | LlmEvent::Failed(_)) {
                    answered.insert(*step);
                }
                let Some(request) = asked.get(step).filter(|_| open) else { continue };
                let due = exists && !request.fallback && !request.preemptive && !given.contains(step);
                // What is due at that instant goes first, and may have stopped it.
                let again = |output: &Output| match output {
                    Output::AskLlm(again) => again.fallback && again.step.epoch == step.epoch,
                    Output::CancelLlm(stopped) => stopped == step,
                    Output::Synthesize(speech) => {
                        matches!(speech.source, Source::Step { step: of, .. } if of == *step)
                    }
                    Output::End(_) => true,
                    _ => false,
                };
                if matches!(event, LlmEvent::Failed(_)) && due && !at_once(&h.steps, place).any(again) {
                    return Err(format!("{step:?} failed and no other model is asked, {at}"));
                }
            }
            Step::Out(at, Output::AskLlm(request)) => {
                let id = request.step;
                if request.fallback {
                    let before = id.step.checked_sub(1).map(|step| StepId { step, ..id });
                    let before =
                        before.filter(|step| !given.contains(step)).and_then(|step| asked.get(&step));
                    if !exists || before.is_none_or(|before| before.fallback) {
                        return Err(format!("{id:?} asks another model, {at}"));
                    }
                }
                asked.insert(id, request.clone());
            }
            Step::Out(_, Output::CancelLlm(step)) => {
                answered.insert(*step);
            }
            Step::Out(_, Output::Synthesize(SpeechRequest { source: Source::Step { step, .. }, .. })) => {
                given.insert(*step);
            }
            _ => {}
        }
    }
    Ok(())
}

/// A voice that fails before its first sound is replaced, where there is another; the other one is not.
pub(super) fn fallback_voice_once(h: &History) -> Result<(), String> {
    let exists = spec(&mut h.source.clone()).fallback_tts;
    let mut asked: BTreeMap<PieceId, SpeechRequest> = BTreeMap::new();
    let mut prepared: BTreeSet<Epoch> = BTreeSet::new();
    let mut over: BTreeSet<PieceId> = BTreeSet::new();
    let mut again: Vec<(Epoch, Source, String)> = Vec::new();
    for (place, step) in h.steps.iter().enumerate() {
        match step {
            Step::In(at, Input::Tts { piece, event }) => {
                let open = over.insert(*piece);
                if matches!(event, TtsEvent::Words(_)) && open {
                    over.remove(piece);
                }
                let Some(speech) = asked.get(piece).filter(|_| open && exists) else { continue };
                let due = !speech.fallback && !prepared.contains(&speech.epoch);
                // What is due at that instant goes first, and may have stopped it.
                let replaced = |output: &Output| match output {
                    Output::Synthesize(other) => other.fallback && other.source == speech.source,
                    Output::Drop(stopped) => stopped == piece,
                    Output::Cancel(epoch) => *epoch == speech.epoch,
                    Output::End(_) => true,
                    _ => false,
                };
                if matches!(event, TtsEvent::Failed(_)) && due && !at_once(&h.steps, place).any(replaced) {
                    return Err(format!("{piece:?} failed and no other voice is asked, {at}"));
                }
            }
            Step::Out(at, Output::Synthesize(speech)) => {
                if speech.fallback {
                    let key = (speech.epoch, speech.source.clone(), speech.text.clone());
                    if !exists || again.contains(&key) {
                        return Err(format!("{:?} asks another voice for {key:?}, {at}", speech.piece));
                    }
                    again.push(key);
                }
                asked.insert(speech.piece, speech.clone());
            }
            Step::Out(_, Output::AskLlm(request)) if request.preemptive => {
                prepared.insert(request.step.epoch);
            }
            Step::Out(_, Output::Drop(piece)) => {
                over.insert(*piece);
            }
            Step::Out(_, Output::Cancel(epoch)) => {
                over.extend(
                    asked.values().filter(|speech| speech.epoch == *epoch).map(|speech| speech.piece),
                );
            }
            _ => {}
        }
    }
    Ok(())
}

/// Where a guardrail fires for the last turn, the reply to that turn asks for nothing more and does not sound any more; the guardrail's
/// own words do.
pub(super) fn guardrail_takes_the_place(h: &History) -> Result<(), String> {
    let mut reply: Option<Epoch> = None;
    let mut replaced: BTreeSet<Epoch> = BTreeSet::new();
    let mut voices: BTreeMap<PieceId, Epoch> = BTreeMap::new();
    let (mut fired, mut words_due) = (false, false);
    for step in &h.steps {
        match step {
            Step::In(_, Input::Guardrail { .. }) => {
                fired = true;
                words_due |= reply.is_some();
            }
            // What was due at that instant went before it.
            Step::Drained(..) if fired => {
                fired = false;
                replaced.extend(reply);
            }
            // Whether a prepared reply is its answer is not known.
            Step::Out(_, Output::Tell(fact)) if matches!(fact.event, Event::UtteranceCommitted { .. }) => {
                reply = None;
            }
            Step::Out(at, output) => {
                let epoch = match output {
                    Output::AskLlm(request) => {
                        if request.step.step == 0 && !request.preemptive {
                            reply = Some(request.step.epoch);
                        }
                        request.step.epoch
                    }
                    Output::Synthesize(speech) => {
                        voices.insert(speech.piece, speech.epoch);
                        words_due &= speech.source != Source::Guardrail;
                        speech.epoch
                    }
                    Output::Play(piece) => match voices.get(piece) {
                        Some(epoch) => *epoch,
                        None => continue,
                    },
                    _ => continue,
                };
                if replaced.contains(&epoch) {
                    return Err(format!("{output:?} after a guardrail took the reply's place, {at}"));
                }
            }
            _ => {}
        }
    }
    let over = facts(&h.steps).iter().any(|(_, event)| matches!(event, Event::Ended { .. }));
    if words_due && h.rested && !over {
        return Err("a guardrail fired and its words were never spoken".into());
    }
    Ok(())
}

/// At rest all that the voice was asked for has sounded, but for what failed or was taken back.
pub(super) fn what_was_asked_sounds(h: &History) -> Result<(), String> {
    let mut due: BTreeMap<PieceId, &SpeechRequest> = BTreeMap::new();
    for step in &h.steps {
        match step {
            Step::Out(_, Output::Synthesize(speech)) => {
                due.insert(speech.piece, speech);
            }
            Step::Out(_, Output::Play(piece) | Output::Drop(piece))
            | Step::In(_, Input::Tts { piece, event: TtsEvent::Failed(_) }) => {
                due.remove(piece);
            }
            Step::Out(_, Output::Cancel(epoch)) => due.retain(|_, speech| speech.epoch != *epoch),
            Step::Out(_, Output::End(_)) => due.clear(),
            _ => {}
        }
    }
    match due.values().next().filter(|_| h.rested) {
        Some(speech) => Err(format!("{speech:?} never sounded")),
        None => Ok(()),
    }
}
