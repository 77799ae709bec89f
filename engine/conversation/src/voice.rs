//! The TTS's and playout's side of a reply.

use core::time::Duration;

use crate::conversation::Conversation;
use crate::event::{Event, Stage, UtteranceId};
use crate::input::{PieceId, PlayoutEvent, TtsEvent};
use crate::output::{Output, Source, SpeechRequest};
use crate::reply::{From, Piece, Reply, Utterance};
use crate::think::SILENT;
use crate::time::{Position, Time};
use crate::timers::Reason;

impl Conversation {
    /// Asks for the pieces of the head's front utterance that may be asked for and were not yet.
    pub(crate) fn ask_voice(&mut self) {
        let Some(mut head) = self.floor.pop_front() else { return };
        self.ask_pieces(&mut head);
        self.floor.push_front(head);
    }

    pub(crate) fn ask_voice_for_preparation(&mut self) {
        let Some(mut prep) = self.prep.take() else { return };
        self.ask_pieces(&mut prep);
        self.prep = Some(prep);
    }

    fn ask_pieces(&mut self, reply: &mut Reply) {
        let Some(utterance) = reply.utterances.front_mut() else { return };
        let ahead = self.spec.phrasing.ahead();
        for piece in utterance.pieces.iter_mut().take(ahead).filter(|piece| piece.asked.is_none()) {
            reply.voiced = true;
            let source = match &utterance.from {
                From::Words(step) => Source::Step { step: *step, part: piece.part },
                From::Message(source) => source.clone(),
            };
            if let (From::Words(id), Some(step)) = (&utterance.from, reply.step.as_mut()) {
                step.given |= step.id == *id;
            }
            self.ask_piece(piece, &utterance.text, reply.epoch, source);
        }
    }

    fn ask_piece(&mut self, piece: &mut Piece, text: &str, epoch: crate::input::Epoch, source: Source) {
        let id = PieceId(self.next_piece);
        self.next_piece += 1;
        piece.id = Some(id);
        piece.asked = Some(self.now);
        let text = text[piece.start..piece.end].to_owned();
        self.tell(Event::TtsStarted { text: text.clone() });
        let fallback = piece.fallback;
        self.outputs.push_back(Output::Synthesize(SpeechRequest {
            piece: id,
            epoch,
            text,
            source,
            fallback,
        }));
    }

    /// The piece with its utterance, and whose it is: `None` = the preparation's.
    fn find_piece(&self, id: PieceId) -> Option<(Option<usize>, usize, usize)> {
        let within = |reply: &Reply| {
            let in_utterance = |(at, utterance): (usize, &Utterance)| {
                Some((at, utterance.pieces.iter().position(|piece| piece.id == Some(id))?))
            };
            reply.utterances.iter().enumerate().find_map(in_utterance)
        };
        let found = self.floor.iter().enumerate().find_map(|(index, reply)| {
            let (utterance, piece) = within(reply)?;
            Some((Some(index), utterance, piece))
        });
        found.or_else(|| {
            let (utterance, piece) = within(self.prep.as_deref()?)?;
            Some((None, utterance, piece))
        })
    }

    fn piece_mut(&mut self, (reply, utterance, piece): (Option<usize>, usize, usize)) -> Option<&mut Piece> {
        let reply = match reply {
            Some(index) => self.floor.get_mut(index)?,
            None => self.prep.as_deref_mut()?,
        };
        reply.utterances.get_mut(utterance)?.pieces.get_mut(piece)
    }

    pub(crate) fn tts(&mut self, id: PieceId, event: TtsEvent) {
        let Some(at) = self.find_piece(id) else { return };
        let now = self.now;
        let Some(piece) = self.piece_mut(at) else { return };
        match event {
            TtsEvent::Ready => {
                piece.ready.get_or_insert(now);
                self.recovered(Stage::Tts);
            }
            TtsEvent::Words(words) => piece.times.extend(words),
            TtsEvent::End { duration } => {
                piece.ready.get_or_insert(now);
                piece.duration = Some(duration);
                self.recovered(Stage::Tts);
            }
            TtsEvent::Failed(reason) => self.tts_failed(at, reason),
        }
    }

    pub(crate) fn tts_silent(&mut self) {
        let now = self.now;
        let mut pieces =
            self.floor.iter().chain(self.prep.as_deref()).flat_map(|r| &r.utterances).flat_map(|u| &u.pieces);
        let late = pieces
            .find(|piece| piece.ready.is_none() && piece.asked.is_some_and(|asked| asked + SILENT <= now));
        if let Some((id, asked)) = late.and_then(|piece| piece.id.zip(piece.asked))
            && let Some(at) = self.find_piece(id)
        {
            self.because(|| format!("the TTS has failed: no first audio for 5s (fixed) since {asked}"));
            self.outputs.push_back(Output::Drop(id));
            self.tts_failed(at, "timeout".into());
        }
    }

    /// When the LLM, and when the TTS has been silent for too long.
    pub(crate) fn silence_deadlines(&self) -> (Option<Time>, Option<Time>) {
        let (mut llm, mut tts): (Option<Time>, Option<Time>) = (None, None);
        let earlier = |at: Option<Time>, new: Time| Some(at.map_or(new, |at| at.min(new)));
        for reply in self.floor.iter().chain(self.prep.as_deref()) {
            if let Some(step) = reply.step.as_ref().filter(|step| !step.ended) {
                llm = earlier(llm, step.last + SILENT);
            }
            for piece in reply.utterances.iter().flat_map(|utterance| &utterance.pieces) {
                if let (Some(asked), None) = (piece.asked, piece.ready) {
                    tts = earlier(tts, asked + SILENT);
                }
            }
        }
        (llm, tts)
    }

    fn tts_failed(&mut self, at: (Option<usize>, usize, usize), reason: String) {
        self.failed(Stage::Tts, reason);
        let (Some(index), in_reply, in_utterance) = at else {
            if let Some(prep) = self.prep.take() {
                self.outputs.push_back(Output::Cancel(prep.epoch));
                if let Some(step) = prep.step.filter(|step| !step.ended) {
                    self.outputs.push_back(Output::CancelLlm(step.id));
                    self.tell(Event::LlmCancelled);
                }
            }
            return;
        };
        let fallback = self.spec.fallback_tts;
        let Some(mut reply) = self.floor.remove(index) else { return };
        let utterance = &mut reply.utterances[in_reply];
        let piece = &mut utterance.pieces[in_utterance];
        if fallback && !piece.fallback && piece.ready.is_none() {
            piece.fallback = true;
            let source = match &utterance.from {
                From::Words(step) => Source::Step { step: *step, part: piece.part },
                From::Message(source) => source.clone(),
            };
            self.because(|| "the fallback voice is asked".into());
            self.ask_piece(piece, &utterance.text, reply.epoch, source);
            self.floor.insert(index, reply);
            return;
        }
        // What comes before the piece is spoken; the piece and what follows are not. A piece that fails in its middle ends there.
        let (sounds, start, position) = (piece.started, piece.start, piece.position(self.now).as_seconds());
        if sounds {
            self.outputs.extend(piece.id.map(Output::Drop));
            let heard = utterance.listen(self.now).get(start..).unwrap_or_default().to_owned();
            self.tell(Event::PlayoutFinished { position, interrupted: true, heard });
        }
        let mut lost: Vec<PieceId> =
            utterance.pieces.drain(in_utterance..).skip(1).filter_map(|piece| piece.id).collect();
        utterance.complete = true;
        if !sounds {
            utterance.text.truncate(start);
            utterance.text.truncate(utterance.text.trim_end().len());
        }
        if sounds {
            let heard = utterance.heard.max(start);
            utterance.text.truncate(heard);
            utterance.played = heard;
        }
        utterance.cut = utterance.text.len();
        let words = matches!(utterance.from, From::Words(_) | From::Message(Source::Guardrail));
        if words {
            lost.extend(
                reply.utterances.drain(in_reply + 1..).flat_map(|u| u.pieces).filter_map(|piece| piece.id),
            );
            if let Some(step) = reply.step.take().filter(|step| !step.ended) {
                self.outputs.push_back(Output::CancelLlm(step.id));
                self.tell(Event::LlmCancelled);
            }
            reply.tools_due = false;
            self.orphan_tools(reply.epoch);
            self.apologise(&mut reply);
        }
        self.outputs.extend(lost.into_iter().map(Output::Drop));
        self.floor.insert(index, reply);
        self.refresh_state();
    }

    pub(crate) fn playout(&mut self, id: PieceId, event: PlayoutEvent) {
        let now = self.now;
        let Some(head) = self.floor.front_mut() else { return };
        let held = head.held;
        let Some(piece) = head.utterances.front_mut().and_then(|utterance| utterance.pieces.front_mut())
        else {
            return;
        };
        if piece.id != Some(id) || !piece.permitted {
            return;
        }
        if !piece.started {
            // A position of zero, reported in answer to a hold, is no sample.
            let nothing = Position::ZERO;
            if matches!(event, PlayoutEvent::Progress(at) | PlayoutEvent::Stalled(at) if at == nothing) {
                return;
            }
            self.first_sample();
        }
        let Some(head) = self.floor.front_mut() else { return };
        let Some(utterance) = head.utterances.front_mut() else { return };
        let Some(piece) = utterance.pieces.front_mut() else { return };
        match event {
            PlayoutEvent::Started => {}
            PlayoutEvent::Progress(position) => {
                piece.base = position;
                piece.base_at = now;
                piece.running = !held;
            }
            PlayoutEvent::Stalled(position) => {
                piece.base = position;
                piece.base_at = now;
                piece.running = false;
            }
            PlayoutEvent::Finished(position) => {
                let heard = utterance.text[piece.start..piece.end].to_owned();
                utterance.played = piece.end;
                utterance.pieces.pop_front();
                let position = position.as_seconds();
                self.tell(Event::PlayoutFinished { position, interrupted: false, heard });
            }
        }
    }

    /// The first sample of the head's front piece leaves.
    fn first_sample(&mut self) {
        let now = self.now;
        let Some(head) = self.floor.front_mut() else { return };
        head.spoke = true;
        let held = head.held;
        let Some(utterance) = head.utterances.front_mut() else { return };
        let Some(piece) = utterance.pieces.front_mut() else { return };
        piece.started = true;
        piece.running = !held;
        piece.base = Position::ZERO;
        piece.base_at = now;
        let first = utterance.started.is_none();
        let (asked, ready) = (piece.asked, piece.ready);
        let mut times = None;
        if first {
            utterance.started = Some(now);
            utterance.id = UtteranceId(self.next_utterance);
            self.next_utterance += 1;
            times = head.times.take();
            if let Some(times) = times.as_mut() {
                times.tts_ttfb = asked.zip(ready).map(|(asked, ready)| ready.since(asked).as_secs_f64());
                times.playout = ready.map(|ready| now.since(ready).as_secs_f64());
                times.timeline.tts_first_byte = ready.map(Time::as_seconds);
                times.timeline.first_sample = Some(now.as_seconds());
                times.voice_to_voice = head.spoke_until.map(|end| now.since(end).as_secs_f64());
            }
        }
        let told = first.then(|| (utterance.text.trim_end().to_owned(), utterance.id));
        self.tell(Event::PlayoutStarted { position: 0.0 });
        if let Some((text, utterance)) = told {
            self.tell(Event::AgentStartedSpeaking { text, utterance });
            self.refresh_state();
            self.tell_turn(times);
            self.timers.set(Reason::Heard, now + Duration::from_secs(1));
        }
        if self.warmup_until.is_none() {
            let until = now + self.spec.echo_warmup;
            self.warmup_until = Some(until);
            self.timers.set(Reason::Warmup, until);
        }
        if self.speech.hearing && self.timers.at(Reason::Duck).is_none() {
            self.duck();
        }
    }

    /// Tells what was heard of the utterance that sounds, where there is more than before.
    pub(crate) fn heard_so_far(&mut self) {
        let now = self.now;
        let Some(utterance) = self.floor.front_mut().and_then(|head| head.utterances.front_mut()) else {
            return;
        };
        if utterance.started.is_none() {
            return;
        }
        self.timers.set(Reason::Heard, now + Duration::from_secs(1));
        let before = utterance.told_heard;
        let text = utterance.listen(now);
        if text.len() > before {
            let text = text.to_owned();
            utterance.told_heard = utterance.heard;
            let event = Event::AgentHeard { text, utterance: utterance.id };
            self.tell(event);
        }
    }
}
