//! The TTS's and playout's side of a reply.

use core::time::Duration;

use crate::conversation::Conversation;
use crate::event::{Event, Stage, UtteranceId};
use crate::input::{PlayoutEvent, SegmentId, TtsEvent};
use crate::output::{Output, SpeechSource, TtsRequest};
use crate::reply::{Reply, Segment, Utterance, UtteranceOrigin};
use crate::think::PROVIDER_TIMEOUT;
use crate::time::{Position, Time};
use crate::timers::TimerKind;

impl Conversation {
    /// Asks for the pieces of the head's front utterance that may be asked for and were not yet.
    pub(crate) fn request_tts(&mut self) {
        let Some(mut head) = self.floor.pop_front() else { return };
        self.request_segments(&mut head);
        self.floor.push_front(head);
    }

    pub(crate) fn request_preemptive_tts(&mut self) {
        let Some(mut prep) = self.preemptive_reply.take() else { return };
        self.request_segments(&mut prep);
        self.preemptive_reply = Some(prep);
    }

    fn request_segments(&mut self, reply: &mut Reply) {
        let Some(utterance) = reply.utterances.front_mut() else { return };
        let ahead = self.spec.phrasing.max_segments_ahead();
        for piece in utterance.segments.iter_mut().take(ahead).filter(|piece| piece.requested_at.is_none()) {
            reply.tts_requested = true;
            let source = match &utterance.origin {
                UtteranceOrigin::Generation(step) => {
                    SpeechSource::Generation { generation: *step, segment_index: piece.index }
                }
                UtteranceOrigin::Message(source) => source.clone(),
            };
            if let (UtteranceOrigin::Generation(id), Some(step)) =
                (&utterance.origin, reply.generation.as_mut())
            {
                step.sent_to_tts |= step.id == *id;
            }
            self.request_segment(piece, &utterance.text, reply.epoch, source);
        }
    }

    fn request_segment(
        &mut self,
        piece: &mut Segment,
        text: &str,
        epoch: crate::input::Epoch,
        source: SpeechSource,
    ) {
        let id = SegmentId(self.next_segment);
        self.next_segment += 1;
        piece.id = Some(id);
        piece.requested_at = Some(self.now);
        let text = text[piece.start..piece.end].to_owned();
        self.emit(Event::TtsStarted { text: text.clone() });
        let fallback = piece.is_fallback;
        self.outputs.push_back(Output::Synthesize(TtsRequest {
            segment: id,
            epoch,
            text,
            source,
            use_fallback: fallback,
        }));
    }

    /// The piece with its utterance, and whose it is: `None` = the preparation's.
    fn find_segment(&self, id: SegmentId) -> Option<(Option<usize>, usize, usize)> {
        let within = |reply: &Reply| {
            let in_utterance = |(at, utterance): (usize, &Utterance)| {
                Some((at, utterance.segments.iter().position(|piece| piece.id == Some(id))?))
            };
            reply.utterances.iter().enumerate().find_map(in_utterance)
        };
        let found = self.floor.iter().enumerate().find_map(|(index, reply)| {
            let (utterance, piece) = within(reply)?;
            Some((Some(index), utterance, piece))
        });
        found.or_else(|| {
            let (utterance, piece) = within(self.preemptive_reply.as_deref()?)?;
            Some((None, utterance, piece))
        })
    }

    fn segment_mut(
        &mut self,
        (reply, utterance, piece): (Option<usize>, usize, usize),
    ) -> Option<&mut Segment> {
        let reply = match reply {
            Some(index) => self.floor.get_mut(index)?,
            None => self.preemptive_reply.as_deref_mut()?,
        };
        reply.utterances.get_mut(utterance)?.segments.get_mut(piece)
    }

    pub(crate) fn handle_tts_event(&mut self, id: SegmentId, event: TtsEvent) {
        let Some(at) = self.find_segment(id) else { return };
        let now = self.now;
        let Some(piece) = self.segment_mut(at) else { return };
        match event {
            TtsEvent::FirstAudio => {
                piece.ready_at.get_or_insert(now);
                self.stage_recovered(Stage::Tts);
            }
            TtsEvent::WordTimestamps(words) => piece.word_times.extend(words),
            TtsEvent::End { duration } => {
                piece.ready_at.get_or_insert(now);
                piece.duration = Some(duration);
                self.stage_recovered(Stage::Tts);
            }
            TtsEvent::Failed(reason) => self.tts_failed(at, reason),
        }
    }

    pub(crate) fn tts_timed_out(&mut self) {
        let now = self.now;
        let mut pieces = self
            .floor
            .iter()
            .chain(self.preemptive_reply.as_deref())
            .flat_map(|r| &r.utterances)
            .flat_map(|u| &u.segments);
        let late = pieces.find(|piece| {
            piece.ready_at.is_none()
                && piece.requested_at.is_some_and(|asked| asked + PROVIDER_TIMEOUT <= now)
        });
        if let Some((id, asked)) = late.and_then(|piece| piece.id.zip(piece.requested_at))
            && let Some(at) = self.find_segment(id)
        {
            self.explain_decision(|| {
                format!("the TTS has failed: no first audio for 5s (fixed) since {asked}")
            });
            self.outputs.push_back(Output::Discard(id));
            self.tts_failed(at, "timeout".into());
        }
    }

    /// When the LLM, and when the TTS has been silent for too long.
    pub(crate) fn provider_deadlines(&self) -> (Option<Time>, Option<Time>) {
        let (mut llm, mut tts): (Option<Time>, Option<Time>) = (None, None);
        let earlier = |at: Option<Time>, new: Time| Some(at.map_or(new, |at| at.min(new)));
        for reply in self.floor.iter().chain(self.preemptive_reply.as_deref()) {
            if let Some(step) = reply.generation.as_ref().filter(|step| !step.ended) {
                llm = earlier(llm, step.last_token_at + PROVIDER_TIMEOUT);
            }
            for piece in reply.utterances.iter().flat_map(|utterance| &utterance.segments) {
                if let (Some(asked), None) = (piece.requested_at, piece.ready_at) {
                    tts = earlier(tts, asked + PROVIDER_TIMEOUT);
                }
            }
        }
        (llm, tts)
    }

    fn tts_failed(&mut self, at: (Option<usize>, usize, usize), reason: String) {
        self.stage_failed(Stage::Tts, reason);
        let (Some(index), in_reply, in_utterance) = at else {
            if let Some(prep) = self.preemptive_reply.take() {
                self.outputs.push_back(Output::Cancel(prep.epoch));
                if let Some(step) = prep.generation.filter(|step| !step.ended) {
                    self.outputs.push_back(Output::CancelLlm(step.id));
                    self.emit(Event::LlmCancelled);
                }
            }
            return;
        };
        let fallback = self.spec.fallback_tts;
        let Some(mut reply) = self.floor.remove(index) else { return };
        let utterance = &mut reply.utterances[in_reply];
        let piece = &mut utterance.segments[in_utterance];
        if fallback && !piece.is_fallback && piece.ready_at.is_none() {
            piece.is_fallback = true;
            let source = match &utterance.origin {
                UtteranceOrigin::Generation(step) => {
                    SpeechSource::Generation { generation: *step, segment_index: piece.index }
                }
                UtteranceOrigin::Message(source) => source.clone(),
            };
            self.explain_decision(|| "the fallback voice is asked".into());
            self.request_segment(piece, &utterance.text, reply.epoch, source);
            self.floor.insert(index, reply);
            return;
        }
        // What comes before the piece is spoken; the piece and what follows are not. A piece that fails in its middle ends there.
        let (sounds, start, position) =
            (piece.has_started, piece.start, piece.position(self.now).as_seconds());
        if sounds {
            self.outputs.extend(piece.id.map(Output::Discard));
            let heard = utterance.update_heard_text(self.now).get(start..).unwrap_or_default().to_owned();
            self.emit(Event::PlayoutFinished { position, interrupted: true, heard });
        }
        let mut lost: Vec<SegmentId> =
            utterance.segments.drain(in_utterance..).skip(1).filter_map(|piece| piece.id).collect();
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
            lost.extend(
                reply.utterances.drain(in_reply + 1..).flat_map(|u| u.segments).filter_map(|piece| piece.id),
            );
            if let Some(step) = reply.generation.take().filter(|step| !step.ended) {
                self.outputs.push_back(Output::CancelLlm(step.id));
                self.emit(Event::LlmCancelled);
            }
            reply.awaiting_tools = false;
            self.orphan_tools(reply.epoch);
            self.push_error_message(&mut reply);
        }
        self.outputs.extend(lost.into_iter().map(Output::Discard));
        self.floor.insert(index, reply);
        self.update_agent_state();
    }

    pub(crate) fn handle_playout_event(&mut self, id: SegmentId, event: PlayoutEvent) {
        let now = self.now;
        let Some(head) = self.floor.front_mut() else { return };
        let held = head.held;
        let Some(piece) = head.utterances.front_mut().and_then(|utterance| utterance.segments.front_mut())
        else {
            return;
        };
        if piece.id != Some(id) || !piece.play_allowed {
            return;
        }
        if !piece.has_started {
            // A position of zero, reported in answer to a hold, is no sample.
            let nothing = Position::ZERO;
            if matches!(event, PlayoutEvent::Progress(at) | PlayoutEvent::Stalled(at) if at == nothing) {
                return;
            }
            self.handle_first_sample();
        }
        let Some(head) = self.floor.front_mut() else { return };
        let Some(utterance) = head.utterances.front_mut() else { return };
        let Some(piece) = utterance.segments.front_mut() else { return };
        match event {
            PlayoutEvent::Started => {}
            PlayoutEvent::Progress(position) => {
                piece.base_position = position;
                piece.base_time = now;
                piece.playing = !held;
            }
            PlayoutEvent::Stalled(position) => {
                piece.base_position = position;
                piece.base_time = now;
                piece.playing = false;
            }
            PlayoutEvent::Finished(position) => {
                let heard = utterance.text[piece.start..piece.end].to_owned();
                utterance.played_bytes = piece.end;
                utterance.segments.pop_front();
                let position = position.as_seconds();
                self.emit(Event::PlayoutFinished { position, interrupted: false, heard });
            }
        }
    }

    /// The first sample of the head's front piece leaves.
    fn handle_first_sample(&mut self) {
        let now = self.now;
        let Some(head) = self.floor.front_mut() else { return };
        head.has_spoken = true;
        let held = head.held;
        let Some(utterance) = head.utterances.front_mut() else { return };
        let Some(piece) = utterance.segments.front_mut() else { return };
        piece.has_started = true;
        piece.playing = !held;
        piece.base_position = Position::ZERO;
        piece.base_time = now;
        let first = utterance.started_at.is_none();
        let (asked, ready) = (piece.requested_at, piece.ready_at);
        let mut times = None;
        if first {
            utterance.started_at = Some(now);
            utterance.id = UtteranceId(self.next_utterance);
            self.next_utterance += 1;
            times = head.turn_times.take();
            if let Some(times) = times.as_mut() {
                times.tts_ttfb = asked.zip(ready).map(|(asked, ready)| ready.since(asked).as_secs_f64());
                times.playout = ready.map(|ready| now.since(ready).as_secs_f64());
                times.timeline.tts_first_byte = ready.map(Time::as_seconds);
                times.timeline.first_sample = Some(now.as_seconds());
                times.voice_to_voice = head.user_speech_end.map(|end| now.since(end).as_secs_f64());
            }
        }
        let told = first.then(|| (utterance.text.trim_end().to_owned(), utterance.id));
        self.emit(Event::PlayoutStarted { position: 0.0 });
        if let Some((text, utterance)) = told {
            self.emit(Event::AgentStartedSpeaking { text, utterance });
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

    /// Tells what was heard of the utterance that sounds, where there is more than before.
    pub(crate) fn emit_heard_text(&mut self) {
        let now = self.now;
        let Some(utterance) = self.floor.front_mut().and_then(|head| head.utterances.front_mut()) else {
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
