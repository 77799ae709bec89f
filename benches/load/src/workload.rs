//! What the callers say and how they are answered: a recording with onsets and ends that are exact
//! to the sample, and the script of the server's models.

use std::sync::Arc;

use models::scripted::{ProviderTimings, Script};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The built-in workload.
const BUILT_IN_FILES: (&str, &[u8]) =
    (include_str!("../workload/workload.json"), include_bytes!("../workload/user.wav"));

/// Sample rate of the recording, in Hz.
pub(crate) const SAMPLE_RATE: usize = 16_000;
/// Samples of 20 ms at 16 kHz.
pub(crate) const FRAME_SAMPLES_16K: usize = 320;
/// The VAD delays of every agent of this server, in s: from an onset to its report, and from an end
/// to its report.
const VAD_DELAYS: (f64, f64) = (0.05, 0.25);

/// Maximum delay of a scripted model, in s: with longer delays no call of a run would be answered.
const MAX_MODEL_DELAY: f64 = 60.0;

/// One utterance of the recording.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Utterance {
    /// First sample of speech, in s from the start of the recording.
    #[serde(rename = "onset_s")]
    pub(crate) onset: f64,
    /// Last sample of speech, in s from the start of the recording.
    #[serde(rename = "end_s")]
    pub(crate) end: f64,
    /// Its text.
    pub(crate) transcript: String,
    /// The reply to it.
    pub(crate) reply: String,
    /// Whether it starts while the agent speaks.
    pub(crate) barge_in: bool,
}

#[derive(Deserialize)]
struct WorkloadFile {
    settings: Map<String, Value>,
    utterances: Vec<Utterance>,
}

/// The recording, which is repeated, and its description.
#[derive(Debug)]
pub(crate) struct Workload {
    /// The description as JSON; a scripted agent gets it as its models.
    pub(crate) json: String,
    /// The same, as scripted models parse it.
    pub(crate) script: Script,
    /// The agent's settings, by their names in scenarios; without those of the VAD.
    pub(crate) settings: Map<String, Value>,
    /// The utterances of one round.
    pub(crate) utterances: Vec<Utterance>,
    /// The recording: 16 kHz mono, whole frames.
    pub(crate) speech: Arc<[i16]>,
}

/// One utterance of a caller, in any round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpokenUtterance<'a> {
    /// Its index in the recording.
    pub(crate) index: usize,
    /// Its description.
    pub(crate) utterance: &'a Utterance,
    /// True onset, in s from the caller's first sample.
    pub(crate) onset: f64,
    /// True end, in s from the caller's first sample.
    pub(crate) end: f64,
}

impl Workload {
    /// The built-in workload.
    ///
    /// # Errors
    /// Never: a test parses it.
    pub(crate) fn built_in() -> Result<Self, String> {
        Self::parse(BUILT_IN_FILES.0, BUILT_IN_FILES.1)
    }

    /// Parses the contents of the two files.
    ///
    /// # Errors
    /// What is wrong with them, in one sentence.
    pub(crate) fn parse(json: &str, wav: &[u8]) -> Result<Self, String> {
        let bad = |what: String| format!("the workload {what}");
        let file: WorkloadFile =
            serde_json::from_str(json).map_err(|e| bad(format!("cannot be read: {e}")))?;
        let script: Script =
            serde_json::from_str(json).map_err(|e| bad(format!("is not a valid script: {e}")))?;
        let mut speech = parse_wav(wav)?;
        speech.resize(speech.len().next_multiple_of(FRAME_SAMPLES_16K), 0);
        let length = speech.len() as f64 / SAMPLE_RATE as f64;
        check_pacing(&script.providers).map_err(bad)?;
        let mut last = 0.0;
        for (i, utterance) in file.utterances.iter().enumerate() {
            let Utterance { onset, end, .. } = utterance;
            if !(last <= *onset && onset < end && *end <= length) {
                return Err(bad(format!(
                    "has an utterance {i} from {onset} to {end} s, which does not follow the \
                     previous one or exceeds the recording of {length:.2} s"
                )));
            }
            if utterance.transcript.trim().is_empty() || utterance.reply.trim().is_empty() {
                return Err(bad(format!("has an utterance {i} with an empty transcript or reply")));
            }
            last = *end;
        }
        if file.utterances.is_empty() {
            return Err(bad("has no utterances".into()));
        }
        let mut settings = file.settings;
        if let Some(vad) = settings.shift_remove("vad") {
            let time = |key: &str, own: f64| vad.get(key).map_or(Some(own), Value::as_f64);
            if (time("start", VAD_DELAYS.0), time("silence", VAD_DELAYS.1))
                != (Some(VAD_DELAYS.0), Some(VAD_DELAYS.1))
            {
                return Err(bad(format!(
                    "sets vad to {vad}, but every agent uses {{\"start\":{},\"silence\":{}}}",
                    VAD_DELAYS.0, VAD_DELAYS.1
                )));
            }
        }
        let endpointing = settings.get("min_endpointing_delay").and_then(Value::as_f64);
        if endpointing.is_none_or(|s| !(0.0..=MAX_MODEL_DELAY).contains(&s)) {
            return Err(bad(
                "has no settings.min_endpointing_delay in seconds, which the ideal response time \
                 is computed from"
                    .into(),
            ));
        }
        Ok(Self {
            json: json.to_owned(),
            script,
            settings,
            utterances: file.utterances,
            speech: speech.into(),
        })
    }

    /// Duration of one round, in s.
    #[must_use]
    pub(crate) fn round_duration(&self) -> f64 {
        self.speech.len() as f64 / SAMPLE_RATE as f64
    }

    /// The caller's utterance number `n`, counted over all rounds.
    #[must_use]
    pub(crate) fn spoken_utterance(&self, n: usize) -> SpokenUtterance<'_> {
        let number = n % self.utterances.len();
        let round_start = (n / self.utterances.len()) as f64 * self.round_duration();
        let utterance = &self.utterances[number];
        SpokenUtterance {
            index: number,
            utterance,
            onset: round_start + utterance.onset,
            end: round_start + utterance.end,
        }
    }

    /// Frame number `n` of the caller's audio.
    #[must_use]
    pub(crate) fn frame(&self, n: usize) -> &[i16] {
        let at = n % (self.speech.len() / FRAME_SAMPLES_16K) * FRAME_SAMPLES_16K;
        &self.speech[at..at + FRAME_SAMPLES_16K]
    }

    /// Time of an ideal engine from the end of an utterance to the first audio of its reply, in s.
    /// It is the sum of endpointing, the LLM's first token, the tokens up to the one that ends the
    /// first sentence, and the TTS's first audio.
    #[must_use]
    pub(crate) fn ideal_response_time(&self, number: usize) -> f64 {
        let endpointing = self.settings["min_endpointing_delay"].as_f64().unwrap_or_default();
        let providers = &self.script.providers;
        let tokens = first_sentence_tokens(&self.utterances[number].reply);
        let sentence = tokens.saturating_sub(1) as f64 / providers.llm.tokens_per_s;
        endpointing + providers.llm.first_token_delay + sentence + providers.tts.first_audio_delay
    }
}

/// Checks that scripted models support this timing.
fn check_pacing(providers: &ProviderTimings) -> Result<(), String> {
    let ProviderTimings { stt, llm, tts } = providers;
    let bounds = [
        ("stt.interim_after_onset_s", stt.interim_delay, 0.0, MAX_MODEL_DELAY),
        ("stt.final_after_end_s", stt.final_delay, 0.0, MAX_MODEL_DELAY),
        ("llm.first_token_s", llm.first_token_delay, 0.0, MAX_MODEL_DELAY),
        ("llm.tokens_per_s", llm.tokens_per_s, 0.1, 10_000.0),
        ("tts.first_audio_s", tts.first_audio_delay, 0.0, MAX_MODEL_DELAY),
        ("tts.speed_x_realtime", tts.speed_x_realtime, 0.1, 1_000.0),
        ("tts.sample_rate", f64::from(tts.sample_rate), 8_000.0, 48_000.0),
        ("tts.chunk_s", tts.chunk_seconds, 0.01, MAX_MODEL_DELAY),
        ("tts.s_per_char", tts.seconds_per_char, 0.001, 1.0),
        ("tts.tone_hz", f64::from(tts.tone_hz), 20.0, 4_000.0),
    ];
    match bounds.iter().find(|(_, value, min, max)| !(min..=max).contains(&value)) {
        Some((name, value, min, max)) => {
            Err(format!("has providers.{name} of {value}: must be between {min} and {max}"))
        }
        None => Ok(()),
    }
}

/// Number of tokens (words with their spaces) up to and including the one that ends the first
/// sentence.
fn first_sentence_tokens(reply: &str) -> usize {
    reply[..conversation::phrase::first_sentence_len(reply)].split_inclusive(' ').count()
}

/// The samples of a WAV file with 16 kHz, mono, 16 bits.
fn parse_wav(wav: &[u8]) -> Result<Vec<i16>, String> {
    let bad = |what: &str| Err(format!("the speech {what}"));
    if wav.len() < 12 || &wav[..4] != b"RIFF" || &wav[8..12] != b"WAVE" {
        return bad("is not a WAV file");
    }
    let mut rest = &wav[12..];
    let mut format = None;
    while rest.len() >= 8 {
        let length = u32::from_le_bytes([rest[4], rest[5], rest[6], rest[7]]) as usize;
        let body = &rest[8..rest.len().min(8 + length)];
        match &rest[..4] {
            b"fmt " if body.len() >= 16 => {
                let number = |at: usize| u32::from(u16::from_le_bytes([body[at], body[at + 1]]));
                let rate = number(4) | number(6) << 16;
                format = Some((number(0), number(2), rate, number(14)));
            }
            b"data" => {
                if format != Some((1, 1, SAMPLE_RATE as u32, 16)) {
                    return bad("must be 16 kHz, mono, 16 bits per sample");
                }
                return Ok(body
                    .as_chunks::<2>()
                    .0
                    .iter()
                    .map(|b| i16::from_le_bytes(*b))
                    .collect());
            }
            _ => {}
        }
        rest = &rest[(8 + length + length % 2).min(rest.len())..];
    }
    bad("contains no samples")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_built_in_workload_is_whole_and_goes_round() {
        let workload = Workload::built_in().unwrap();
        assert_eq!(workload.utterances.len(), 8);
        assert!((workload.round_duration() - 42.42).abs() < 1e-9);
        assert_eq!(workload.script.utterances[1].reply, "Yes, that works fine.");
        let again = workload.spoken_utterance(8);
        assert_eq!((again.index, again.onset), (0, 43.42));
        assert_eq!(workload.frame(2121), workload.frame(0));
        assert!(!workload.settings.contains_key("vad"));
    }

    #[test]
    fn true_ends_part_speech_from_silence() {
        let workload = Workload::built_in().unwrap();
        let loud = |from: f64, to: f64| {
            let part = &workload.speech
                [(from * SAMPLE_RATE as f64) as usize..(to * SAMPLE_RATE as f64) as usize];
            let power = part.iter().map(|s| f64::from(*s).powi(2)).sum::<f64>() / part.len() as f64;
            power.sqrt() > 32.0
        };
        for utterance in (0..8).map(|n| workload.spoken_utterance(n)) {
            assert!(
                loud(utterance.onset, utterance.end)
                    && !loud(utterance.end + 0.01, utterance.end + 1.0),
                "{utterance:?}"
            );
        }
    }

    #[test]
    fn the_ideal_answer_waits_for_the_token_that_ends_the_first_sentence() {
        let workload = Workload::built_in().unwrap();
        // .5 endpointing, .2 first token, five more tokens of 20 ms each, .1 for the TTS.
        assert!((workload.ideal_response_time(0) - 0.9).abs() < 1e-9);
        assert!((workload.ideal_response_time(1) - 0.86).abs() < 1e-9);
        assert_eq!(first_sentence_tokens("no end here"), 3);
        assert_eq!(first_sentence_tokens("Dr. Smith pays 3.5 dollars. Fine!"), 5);
    }

    #[test]
    fn a_workload_error_is_reported() {
        let (json, wav) = BUILT_IN_FILES;
        let refused = |json: &str, wav: &[u8]| Workload::parse(json, wav).unwrap_err();
        assert_eq!(refused(json, b"RIFFxxxxWAVE"), "the speech contains no samples");
        assert_eq!(refused(json, b"ID3"), "the speech is not a WAV file");
        let mut stereo = wav.to_vec();
        stereo[22] = 2;
        assert_eq!(refused(json, &stereo), "the speech must be 16 kHz, mono, 16 bits per sample");
        assert!(refused("{}", wav).starts_with("the workload cannot be read: missing field"));
        let late = json.replace("\"end_s\": 39.42", "\"end_s\": 139.42");
        assert!(refused(&late, wav).contains("has an utterance 7 from 37.14 to 139.42 s"));
        let slow = json.replace("\"start\": 0.05", "\"start\": 0.5");
        assert!(refused(&slow, wav).contains("sets vad to"));
        let early = json.replace("\"first_token_s\": 0.2", "\"first_token_s\": -0.2");
        assert_eq!(
            refused(&early, wav),
            "the workload has providers.llm.first_token_s of -0.2: must be between 0 and 60"
        );
        let still = json.replace("\"speed_x_realtime\": 5.0", "\"speed_x_realtime\": 0");
        assert!(refused(&still, wav).contains("tts.speed_x_realtime of 0: must be between 0.1"));
        let mute = json.replace("\"reply\": \"Yes, that works fine.\"", "\"reply\": \" \"");
        assert!(refused(&mute, wav).contains("utterance 1 with an empty transcript or reply"));
        let never =
            json.replace("\"min_endpointing_delay\": 0.5", "\"min_endpointing_delay\": \"soon\"");
        assert!(refused(&never, wav).contains("no settings.min_endpointing_delay in seconds"));
    }
}
