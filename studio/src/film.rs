//! Plays speech to the animator of calls, in the time of the video, and writes what it shows.

use std::io::{Seek, Write};
use std::sync::Arc;
use std::time::Duration;

use conversation::direction::Expression;
use conversation::event::AgentState;
use conversation::input::SegmentId;
use conversation::time::{Position, Time};
use engine::show::AvatarAnimator;
use engine::speak::manners::Manner;
use models::face::PoseSet;
use models::tts::Phone;
use recording::Size;
use recording::film::{self, FilmWriter};

use crate::sound::Sound;
use crate::{Captions, Error, SAMPLE_RATE, SpeechSource, Spoken, duration, samples};

/// Silence before the first segment.
const LEAD_IN: Duration = Duration::from_millis(400);
/// Silence after the last one.
const TAIL: Duration = Duration::from_millis(800);
/// The face prepares for speech this long before it, as in a call.
const PREPARATION: Duration = Duration::from_millis(360);
/// In a pause of this length, the avatar looks as if it listened. Shorter ones are a part of speech.
const LONG_PAUSE: Duration = Duration::from_millis(1_200);
/// Longest video.
const MAX_LENGTH: Duration = Duration::from_secs(60 * 60);

/// How a video is made.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Pictures per second.
    pub frame_rate: u32,
    /// Seed of gaze, blinks and motion.
    pub seed: u64,
}

/// A video that was made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rendered {
    /// Its length.
    pub duration: Duration,
    /// Its bytes.
    pub bytes: u64,
    /// Its size in pixels.
    pub size: Size,
}

/// Writes a video to `out`. `captions` get the words of the speech, and `progress` shares of it from
/// 0 to 1.
///
/// # Errors
/// See [`Error`].
pub fn render<W: Write + Seek>(
    set: Arc<PoseSet>,
    speech: &mut dyn SpeechSource,
    options: &Options,
    out: W,
    captions: Option<&mut Captions>,
    progress: &mut dyn FnMut(f32),
) -> Result<Rendered, Error> {
    let mut stage = Stage {
        speech,
        captions,
        animator: AvatarAnimator::new(set, options.frame_rate, options.seed),
        sound: Sound::default(),
        now: Time::ZERO,
        end: samples(LEAD_IN),
        count: 0,
        expression: Expression::Calm,
        current: None,
        next: None,
        progress,
    };
    let size = stage.animator.size();
    let mut film = FilmWriter::new(out, size).map_err(writing)?;
    stage.read_next()?;
    if stage.next.as_ref().is_some_and(|first| first.shown_as.expression == Expression::Warm) {
        stage.animator.expect_greeting();
    }
    let rate = u64::from(options.frame_rate.max(1));
    let mut pending = Vec::new();
    for picture in 0.. {
        let at = picture * SAMPLE_RATE / rate;
        stage.now = Time::from_micros(picture * 1_000_000 / rate);
        stage.advance(at)?;
        let end = stage.total();
        if end.is_some_and(|end| at >= end) {
            break;
        }
        if let Some(frame) = stage.animator.next_frame(stage.now, stage.position(at)) {
            let (kind, data) = stage.animator.finest(&frame);
            film.push_video(stage.now.since(Time::ZERO), kind, &data);
        }
        let until = (picture + 1) * SAMPLE_RATE / rate;
        stage.sound.read(end.map_or(until, |end| until.min(end)), &mut pending);
        film.push_sound(&pending).map_err(writing)?;
    }
    let film::Summary { duration, bytes } = film.finish().map_err(writing)?;
    (stage.progress)(1.0);
    Ok(Rendered { duration, bytes, size })
}

fn writing(error: film::Error) -> Error {
    match error {
        film::Error::Write(cause) => Error::Write(cause),
        film::Error::Sound(_) => Error::failed(error),
    }
}

/// A segment at its place in the video. Positions are in samples.
struct Placed {
    id: SegmentId,
    start: u64,
    end: u64,
    /// When the animator gets it.
    known_from: u64,
    /// Whether the pause before it is long.
    is_after_pause: bool,
    shown_as: Manner,
    phones: Vec<Phone>,
    words: Vec<(String, Position)>,
    /// Whether the animator has it.
    is_known: bool,
    /// Share of the speech before it.
    done: f32,
}

/// What is going on at a time of the video.
struct Stage<'a> {
    speech: &'a mut dyn SpeechSource,
    captions: Option<&'a mut Captions>,
    animator: AvatarAnimator,
    sound: Sound,
    now: Time,
    /// End of the last segment that was read.
    end: u64,
    /// Number of segments that were read.
    count: u32,
    /// The expression of the last segment that was read.
    expression: Expression,
    /// The segment that plays or has played last.
    current: Option<Placed>,
    /// The one after it, which is synthesized while the current one plays.
    next: Option<Placed>,
    progress: &'a mut dyn FnMut(f32),
}

impl Stage<'_> {
    /// Reads and places the segment after the last one.
    fn read_next(&mut self) -> Result<(), Error> {
        let done = self.speech.done();
        let Some(spoken) = self.speech.next_segment()? else { return Ok(()) };
        let gap = self.gap(&spoken);
        let gap_start = self.end.max(self.sound.position());
        let start = gap_start + gap;
        let end = start + spoken.samples.len() as u64;
        if end > samples(MAX_LENGTH) {
            return Err(Error::Input("the video would last longer than 60 minutes".into()));
        }
        if let Some(captions) = &mut self.captions {
            captions.add(start, &spoken);
        }
        let is_first = self.count == 0;
        let is_after_pause = is_first || gap >= samples(LONG_PAUSE);
        let preparation = start.saturating_sub(samples(PREPARATION));
        self.next = Some(Placed {
            id: SegmentId(self.count),
            start,
            end,
            known_from: if is_after_pause { preparation } else { 0 },
            is_after_pause,
            shown_as: spoken.shown_as,
            phones: spoken.phones,
            words: spoken.words,
            is_known: false,
            done,
        });
        self.sound.push(gap_start, spoken.gap_samples);
        self.sound.push(start, spoken.samples);
        self.count += 1;
        (self.end, self.expression) = (end, spoken.shown_as.expression);
        Ok(())
    }

    /// Samples of the pause before a segment. If a tag changes the expression, the face gets the
    /// time to show it.
    fn gap(&self, spoken: &Spoken) -> u64 {
        let expression = spoken.shown_as.expression;
        let gap = samples(spoken.gap).max(spoken.gap_samples.len() as u64);
        if !spoken.is_tagged || expression == self.expression || self.count == 0 {
            return gap;
        }
        let needed = self.animator.time_to_show(expression, self.now).min(PREPARATION);
        gap.max(samples(needed))
    }

    /// Goes on to a position: gives the animator what it needs from here on.
    fn advance(&mut self, at: u64) -> Result<(), Error> {
        self.prepare(at);
        while let Some(started) = self.next.take_if(|next| at >= next.start) {
            (self.progress)(started.done);
            self.animator.retain_segments(|id| id >= started.id);
            self.current = Some(started);
            self.read_next()?;
            self.prepare(at);
        }
        let is_playing = self.current.as_ref().is_some_and(|current| at < current.end);
        let is_due = self
            .next
            .as_ref()
            .is_some_and(|next| !next.is_after_pause || at + samples(PREPARATION) >= next.start);
        let state = if is_playing || is_due { AgentState::Speaking } else { AgentState::Listening };
        self.animator.set_state(state, false);
        Ok(())
    }

    /// Gives the animator the next segment, if it is time.
    fn prepare(&mut self, at: u64) {
        let Some(next) = self.next.as_mut().filter(|next| !next.is_known && at >= next.known_from)
        else {
            return;
        };
        next.is_known = true;
        self.animator.announce_segment(next.id, next.shown_as);
        self.animator.add_phones(next.id, &next.phones);
        self.animator.add_words(next.id, &next.words);
    }

    /// The segment that plays, and the seconds of it that have played.
    fn position(&self, at: u64) -> Option<(SegmentId, f32)> {
        let current = self.current.as_ref().filter(|current| at < current.end)?;
        Some((current.id, duration(at - current.start).as_secs_f32()))
    }

    /// Length of the video, if all segments were read.
    fn total(&self) -> Option<u64> {
        let is_last = self.next.is_none();
        is_last.then(|| self.end + samples(TAIL) + samples(self.speech.tail()))
    }
}
