//! The TTS's and playout's side of a reply.

use core::time::Duration;

use crate::contract::event::{Event, Stage, UtteranceId};
use crate::contract::input::{PlayoutEvent, SegmentId, TtsEvent};
use crate::contract::output::{Output, SpeechSource, TtsRequest};
use crate::contract::time::{Position, Time};
use crate::machine::conversation::Conversation;
use crate::machine::reply::{Reply, ReplyKind, Segment, Utterance, UtteranceOrigin};
use crate::machine::think::PROVIDER_TIMEOUT;
use crate::machine::timers::TimerKind;

impl Conversation {
    /// Requests the segments of the head's front utterance that may be requested and were not yet.
    pub(crate) fn request_tts(&mut self) {
        let Some(mut head) = self.floor.pop_front() else { return };
        self.request_segments(&mut head);
        self.floor.push_front(head);
    }

    pub(crate) fn request_preemptive_tts(&mut self) {
        let Some(mut preemptive_reply) = self.preemptive_reply.take() else { return };
        self.request_segments(&mut preemptive_reply);
        self.preemptive_reply = Some(preemptive_reply);
    }

    fn request_segments(&mut self, reply: &mut Reply) {
        let Some(utterance) = reply.utterances.front_mut() else { return };
        while let Some(index) = utterance.next_request(self.spec.phrasing) {
            let segment = &mut utterance.segments[index];
            reply.tts_requested = true;
            let source = match &utterance.origin {
                UtteranceOrigin::Generation(generation) => SpeechSource::Generation {
                    generation: *generation,
                    segment_index: segment.index,
                },
                UtteranceOrigin::Message(source) => source.clone(),
            };
            if let (UtteranceOrigin::Generation(id), Some(generation)) =
                (&utterance.origin, reply.generation.as_mut())
            {
                generation.sent_to_tts |= generation.id == *id;
            }
            self.request_segment(segment, &utterance.text, reply.epoch, source);
        }
    }

    fn request_segment(
        &mut self,
        segment: &mut Segment,
        text: &str,
        epoch: crate::contract::input::Epoch,
        source: SpeechSource,
    ) {
        let id = SegmentId(self.next_segment);
        self.next_segment += 1;
        segment.id = Some(id);
        segment.requested_at = Some(self.now);
        segment.is_next_since = None;
        let text = text[segment.start..segment.end].to_owned();
        self.emit(Event::TtsStarted { text: text.clone() });
        self.outputs.push_back(Output::Synthesize(TtsRequest {
            segment: id,
            epoch,
            text,
            source,
            use_fallback: segment.is_fallback,
            expression: segment.expression,
            nod: segment.nod,
        }));
    }

    /// Indices of a segment: reply on the floor (`None` for the preemptive reply), utterance,
    /// segment.
    fn find_segment(&self, id: SegmentId) -> Option<(Option<usize>, usize, usize)> {
        let within = |reply: &Reply| {
            let in_utterance = |(at, utterance): (usize, &Utterance)| {
                Some((at, utterance.segments.iter().position(|segment| segment.id == Some(id))?))
            };
            reply.utterances.iter().enumerate().find_map(in_utterance)
        };
        let found = self.floor.iter().enumerate().find_map(|(index, reply)| {
            let (utterance, segment) = within(reply)?;
            Some((Some(index), utterance, segment))
        });
        found.or_else(|| {
            let (utterance, segment) = within(self.preemptive_reply.as_deref()?)?;
            Some((None, utterance, segment))
        })
    }

    fn segment_mut(
        &mut self,
        (reply, utterance, segment): (Option<usize>, usize, usize),
    ) -> Option<&mut Segment> {
        let reply = match reply {
            Some(index) => self.floor.get_mut(index)?,
            None => self.preemptive_reply.as_deref_mut()?,
        };
        reply.utterances.get_mut(utterance)?.segments.get_mut(segment)
    }

    pub(crate) fn handle_tts_event(&mut self, id: SegmentId, event: TtsEvent) {
        let Some(at) = self.find_segment(id) else { return };
        let now = self.now;
        let Some(segment) = self.segment_mut(at) else { return };
        match event {
            TtsEvent::Provider(provider) => {
                let has_started = segment.has_started;
                segment.provider = Some(provider.clone());
                // It goes on with a segment of another one.
                if has_started && let Some(reply) = self.floor.front_mut() {
                    reply.note_tts_provider(Some(&provider));
                }
            }
            TtsEvent::FirstAudio => {
                segment.ready_at.get_or_insert(now);
                self.stage_recovered(Stage::Tts);
            }
            TtsEvent::WordTimestamps(words) => segment.word_times.extend(words),
            TtsEvent::End { duration } => {
                segment.ready_at.get_or_insert(now);
                segment.duration = Some(duration);
                let reply = match at.0 {
                    Some(index) => self.floor.get_mut(index),
                    None => self.preemptive_reply.as_deref_mut(),
                };
                reply.into_iter().for_each(|reply| reply.tts_ended(now));
                self.stage_recovered(Stage::Tts);
            }
            TtsEvent::Failed(reason) => self.tts_failed(at, reason),
        }
    }

    pub(crate) fn tts_timed_out(&mut self) {
        let now = self.now;
        let replies = self.floor.iter().chain(self.preemptive_reply.as_deref());
        let late = replies
            .flat_map(Reply::segments_without_audio)
            .find(|(_, since)| *since + PROVIDER_TIMEOUT <= now);
        if let Some((id, since)) = late.and_then(|(segment, since)| Some((segment.id?, since)))
            && let Some(at) = self.find_segment(id)
        {
            self.explain_decision(|| {
                format!("the TTS has failed: no first audio for 5s (fixed) since {since}")
            });
            self.outputs.push_back(Output::Discard(id));
            self.tts_failed(at, "timeout".into());
        }
    }

    /// The next timeout of the LLM, and the next timeout of the TTS.
    pub(crate) fn provider_deadlines(&self) -> (Option<Time>, Option<Time>) {
        let (mut llm, mut tts): (Option<Time>, Option<Time>) = (None, None);
        let earlier = |at: Option<Time>, new: Time| Some(at.map_or(new, |at| at.min(new)));
        let undecided = self.decisions.pending_reply();
        for reply in self.floor.iter().chain(self.preemptive_reply.as_deref()).chain(undecided) {
            if let Some(generation) =
                reply.generation.as_ref().filter(|generation| !generation.ended)
            {
                llm = earlier(llm, generation.last_token_at + PROVIDER_TIMEOUT);
            }
            for (_, since) in reply.segments_without_audio() {
                tts = earlier(tts, since + PROVIDER_TIMEOUT);
            }
        }
        (llm, tts)
    }

    fn tts_failed(&mut self, location: (Option<usize>, usize, usize), reason: String) {
        self.stage_failed(Stage::Tts, reason);
        let (Some(index), in_reply, in_utterance) = location else {
            if let Some(preemptive_reply) = self.preemptive_reply.take() {
                self.outputs.push_back(Output::Cancel(preemptive_reply.epoch));
                if let Some(generation) =
                    preemptive_reply.generation.filter(|generation| !generation.ended)
                {
                    self.outputs.push_back(Output::CancelLlm(generation.id));
                    self.emit(Event::LlmCancelled);
                }
            }
            return;
        };
        let fallback = self.spec.fallback_tts;
        let Some(mut reply) = self.floor.remove(index) else { return };
        let utterance = &mut reply.utterances[in_reply];
        let segment = &mut utterance.segments[in_utterance];
        if fallback && !segment.is_fallback && segment.ready_at.is_none() {
            segment.is_fallback = true;
            // They are those of the voice that has failed.
            segment.word_times.clear();
            let source = match &utterance.origin {
                UtteranceOrigin::Generation(generation) => SpeechSource::Generation {
                    generation: *generation,
                    segment_index: segment.index,
                },
                UtteranceOrigin::Message(source) => source.clone(),
            };
            self.explain_decision(|| "the fallback TTS is requested".into());
            self.request_segment(segment, &utterance.text, reply.epoch, source);
            self.floor.insert(index, reply);
            return;
        }
        // The text before the failed segment is spoken. The segment and the text after it are not.
        // A segment that fails while it plays ends at the current position.
        let (sounds, start, position) =
            (segment.has_started, segment.start, segment.position(self.now).as_seconds());
        if sounds {
            self.outputs.extend(segment.id.map(Output::Discard));
            let heard =
                utterance.update_heard_text(self.now).get(start..).unwrap_or_default().to_owned();
            let words = self.departures.as_ref().and_then(|departures| {
                departures.words_event(utterance, utterance.heard_bytes, self.now)
            });
            self.emit(Event::PlayoutFinished { position, interrupted: true, heard });
            words.into_iter().for_each(|words| self.emit(words));
        }
        let mut discarded: Vec<SegmentId> = utterance
            .segments
            .drain(in_utterance..)
            .skip(1)
            .filter_map(|segment| segment.id)
            .collect();
        utterance.complete = true;
        if !sounds {
            utterance.text.truncate(start);
            utterance.text.truncate(utterance.text.trim_end().len());
        }
        if sounds {
            let heard = utterance.heard_bytes.max(start);
            utterance.text.truncate(heard);
            utterance.played_bytes = heard;
        }
        utterance.segmented_bytes = utterance.text.len();
        let words = matches!(
            utterance.origin,
            UtteranceOrigin::Generation(_) | UtteranceOrigin::Message(SpeechSource::Guardrail)
        );
        if words {
            discarded.extend(
                reply
                    .utterances
                    .drain(in_reply + 1..)
                    .flat_map(|u| u.segments)
                    .filter_map(|segment| segment.id),
            );
            if let Some(generation) = reply.generation.take().filter(|generation| !generation.ended)
            {
                self.outputs.push_back(Output::CancelLlm(generation.id));
                self.emit(Event::LlmCancelled);
            }
            reply.awaiting_tools = false;
            self.orphan_tools(reply.epoch);
            self.push_error_message(&mut reply);
        }
        self.outputs.extend(discarded.into_iter().map(Output::Discard));
        self.floor.insert(index, reply);
        self.update_agent_state();
    }

    pub(crate) fn handle_playout_event(&mut self, id: SegmentId, event: PlayoutEvent) {
        let now = self.now;
        let Some(head) = self.floor.front_mut() else { return };
        let held = head.held;
        let Some(segment) =
            head.utterances.front_mut().and_then(|utterance| utterance.segments.front_mut())
        else {
            return;
        };
        if segment.id != Some(id) || !segment.play_allowed {
            return;
        }
        if !segment.has_started {
            // A position of zero is the answer to a hold. It does not prove that a sample has left.
            let nothing = Position::ZERO;
            if matches!(
                event,
                PlayoutEvent::Progress(at) | PlayoutEvent::Stalled(at) if at == nothing
            ) {
                return;
            }
            self.handle_first_sample();
        }
        let Some(head) = self.floor.front_mut() else { return };
        let Some(utterance) = head.utterances.front_mut() else { return };
        let Some(segment) = utterance.segments.front_mut() else { return };
        match event {
            PlayoutEvent::Started => {}
            PlayoutEvent::Progress(position) => {
                segment.base_position = position;
                segment.base_time = now;
                segment.playing = !held;
                utterance.silent_since.take_if(|_| !held);
                if let Some(departures) = self.departures.as_mut().filter(|_| !held) {
                    departures.observe(now, position);
                }
            }
            PlayoutEvent::Stalled(position) => {
                segment.base_position = position;
                segment.base_time = now;
                segment.playing = false;
                utterance.silent_since.get_or_insert(now);
            }
            PlayoutEvent::Finished(position) => {
                let heard = utterance.text[segment.start..segment.end].to_owned();
                let end = segment.end;
                utterance.played_bytes = end;
                utterance.silent_since.get_or_insert(now);
                let words = self
                    .departures
                    .as_ref()
                    .and_then(|departures| departures.words_event(utterance, end, now));
                let segment = utterance.segments.pop_front();
                if segment.is_some_and(|segment| segment.duration.is_none()) {
                    head.tts_ended(now);
                }
                let position = position.as_seconds();
                self.emit(Event::PlayoutFinished { position, interrupted: false, heard });
                words.into_iter().for_each(|words| self.emit(words));
            }
        }
    }

    /// Handles the first sample of the head's front segment.
    fn handle_first_sample(&mut self) {
        let now = self.now;
        let Some(head) = self.floor.front_mut() else { return };
        head.has_spoken = true;
        if head.kind == ReplyKind::RecordingMessage {
            self.recording_message_pending = false;
        }
        let held = head.held;
        let segment = head.utterances.front().and_then(|utterance| utterance.segments.front());
        let provider = segment.and_then(|segment| segment.provider.clone());
        head.note_tts_provider(provider.as_ref());
        let Some(utterance) = head.utterances.front_mut() else { return };
        let Some(segment) = utterance.segments.front_mut() else { return };
        segment.has_started = true;
        segment.playing = !held;
        utterance.silent_since.take_if(|_| !held);
        segment.base_position = Position::ZERO;
        segment.base_time = now;
        if let Some(departures) = &mut self.departures {
            departures.start_segment(now);
        }
        let first = utterance.started_at.is_none();
        let (requested_at, ready) = (segment.requested_at, segment.ready_at);
        let (mut times, mut announcement) = (None, None);
        if first {
            utterance.started_at = Some(now);
            utterance.id = UtteranceId(self.next_utterance);
            self.next_utterance += 1;
            announcement = Some((utterance.text.trim_end().to_owned(), utterance.id));
            times = head.take_turn_times();
            if let Some(times) = times.as_mut() {
                times.tts_ttfb = requested_at
                    .zip(ready)
                    .map(|(requested_at, ready)| ready.since(requested_at).as_secs_f64());
                times.playout = ready.map(|ready| now.since(ready).as_secs_f64());
                times.timeline.tts_first_byte = ready.map(Time::as_seconds);
                times.timeline.first_sample = Some(now.as_seconds());
                times.voice_to_voice = head.user_speech_end.map(|end| now.since(end).as_secs_f64());
            }
        }
        self.emit(Event::PlayoutStarted { position: 0.0 });
        if let Some((text, utterance)) = announcement {
            self.emit(Event::AgentStartedSpeaking { text, utterance });
            self.forget_answered_utterances();
            self.update_agent_state();
            self.emit_turn_times(times);
            self.timers.set(TimerKind::HeardUpdate, now + Duration::from_secs(1));
        }
        if self.warmup_until.is_none() {
            let until = now + self.spec.echo_warmup;
            self.warmup_until = Some(until);
            self.timers.set(TimerKind::WarmupEnd, until);
        }
        if self.speech.active && self.timers.deadline(TimerKind::Duck).is_none() {
            self.duck();
        }
    }

    /// Emits the heard text of the playing utterance, if it has grown.
    pub(crate) fn emit_heard_text(&mut self) {
        let now = self.now;
        let Some(utterance) = self.floor.front_mut().and_then(|head| head.utterances.front_mut())
        else {
            return;
        };
        if utterance.started_at.is_none() {
            return;
        }
        self.timers.set(TimerKind::HeardUpdate, now + Duration::from_secs(1));
        let before = utterance.reported_heard_bytes;
        let text = utterance.update_heard_text(now);
        if text.len() > before {
            let text = text.to_owned();
            utterance.reported_heard_bytes = utterance.heard_bytes;
            let event = Event::AgentSpeechHeard { text, utterance: utterance.id };
            self.emit(event);
        }
    }
}
