//! Lets a hosted voice speak the text of a video, sentence by sentence, into a file. A sentence that
//! is in the file is not asked for again: its vendor has been paid.

use std::io::{Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use conversation::script;
use engine_api::TtsChoice;
use models::film::{SpoolReader, SpoolRecord, SpoolWriter};
use models::registry::Registry;
use models::tts::{Event, Request, Tts};
use models::{Error as ModelError, ErrorKind, Sink};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::document::Document;
use super::voice::choice_of;
use crate::resources::model_choices::Account;
use crate::resources::recordings::child::{Failure, io_failure};
use crate::store::Store;
use crate::store::vault::Vault;

/// Maximum time until the first event of a sentence, and between two events.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum duration of a sentence in seconds.
const MAX_SENTENCE_SECONDS: u64 = 120;
/// The sentences of a video are one speech.
const REPLY: u64 = 1;

/// Speaks with hosted voices.
pub(super) struct Speaker<'a> {
    pub(super) store: &'a Store,
    pub(super) vault: &'a Vault,
    pub(super) registry: Option<&'a Arc<Registry>>,
    pub(super) workspace: &'a str,
}

impl Speaker<'_> {
    /// Completes the file with the sound of all sentences. `on_progress` gets the share that is
    /// done.
    pub(super) async fn speak(
        &self,
        document: &Document,
        file: &Path,
        on_progress: impl Fn(f32),
    ) -> Result<(), Failure> {
        let (Some(text), Some(tts)) = (&document.text, &document.tts) else { return Ok(()) };
        let segments = script::parse(text).segments;
        let (mut writer, done) = open(file.to_owned()).await?;
        let choice = choice_of(tts);
        let (voice, choice) = self.voice(choice).await?;
        let request = |text: &str| Request {
            text: text.to_owned(),
            voice: choice.voice_id.clone(),
            reply: REPLY,
            language: Some(choice.language.clone()).filter(|language| !language.is_empty()),
            pronunciation: choice
                .custom_pronunciation
                .iter()
                .map(|one| (one.word.clone(), one.pronunciation.clone()))
                .collect(),
            ..Request::default()
        };
        // The connection is closed with it.
        let voice = voice.open_call(&request("")).unwrap_or(voice);
        for (index, segment) in segments.iter().enumerate().skip(done) {
            on_progress(index as f32 / segments.len() as f32);
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let records = speak_sentence(&*voice, request(&segment.text), index).await;
            let records = records.map_err(|error| {
                let provider = tts.provider.as_deref().unwrap_or_default();
                tracing::warn!(%provider, %error, "a hosted voice cannot speak a video");
                let reason = error.to_string();
                let reason = reason.trim_end_matches('.');
                Failure::Temporary(format!("the voice of {provider} failed: {reason}"))
            })?;
            writer = append(writer, records).await?;
        }
        on_progress(1.0);
        Ok(())
    }

    /// The voice, and its choice with the key of the workspace. Nothing replaces it: another voice
    /// would speak in the middle of the video.
    async fn voice(&self, choice: TtsChoice) -> Result<(Arc<dyn Tts>, TtsChoice), Failure> {
        let registry =
            self.registry.ok_or_else(|| Failure::Waiting("this server has no models".into()))?;
        let credentials =
            self.store.credentials(self.vault, self.workspace).await.map_err(|error| {
                tracing::error!(%error, "cannot read the credentials for a video");
                Failure::Waiting("the store cannot be read".into())
            })?;
        let account = Account {
            workspace: self.workspace,
            credentials: &credentials,
            registry: Some(registry),
        };
        let choice = account.apply(choice);
        let without_stop = |reason: String| reason.trim_end_matches('.').to_owned();
        let voice = registry
            .single_tts(&choice)
            .map_err(|reason| Failure::Temporary(without_stop(reason)))?;
        Ok((voice, choice))
    }
}

type Spool = SpoolWriter<std::fs::File>;

/// The file, at the end of its complete sentences, and their number.
async fn open(file: PathBuf) -> Result<(Spool, usize), Failure> {
    let open = move || {
        let mut options = std::fs::OpenOptions::new();
        let mut file = options.create(true).truncate(false).read(true).write(true).open(file)?;
        let mut reader = SpoolReader::new(std::io::BufReader::new(&file));
        let mut done = 0;
        while reader.next_segment()?.is_some() {
            done += 1;
        }
        let bytes = reader.complete_bytes();
        file.set_len(bytes)?;
        file.seek(SeekFrom::Start(bytes))?;
        Ok((SpoolWriter::new(file), done))
    };
    blocking(open).await
}

/// Appends a sentence. It is on the disk afterwards.
async fn append(mut writer: Spool, records: Vec<SpoolRecord>) -> Result<Spool, Failure> {
    let append = move || {
        for record in &records {
            writer.push(record)?;
        }
        writer.get_mut().sync_data()?;
        Ok(writer)
    };
    blocking(append).await
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(std::io::Error::other(error)))
        .map_err(|error| io_failure(&error))
}

/// The records of a sentence.
async fn speak_sentence(
    voice: &dyn Tts,
    request: Request,
    index: u32,
) -> Result<Vec<SpoolRecord>, ModelError> {
    let (sender, events) = unbounded_channel();
    // Fails only if nobody waits for the events any more.
    let sink = Sink::new(move |event| _ = sender.send(event));
    let _request = voice.speak(request, sink)?;
    collect(events, index).await
}

async fn collect(
    mut events: UnboundedReceiver<Event>,
    index: u32,
) -> Result<Vec<SpoolRecord>, ModelError> {
    let failed = |message: &str| ModelError::new(ErrorKind::Failed, message);
    let mut records = vec![SpoolRecord::Begin(index)];
    let mut samples = 0;
    loop {
        let event = timeout(EVENT_TIMEOUT, events.recv()).await.map_err(|_| {
            let message = format!("no sound within {} s", EVENT_TIMEOUT.as_secs());
            ModelError::new(ErrorKind::Timeout, message)
        })?;
        match event {
            Some(Event::Audio { pcm, sample_rate }) => {
                samples += pcm.len() as u64;
                if samples > MAX_SENTENCE_SECONDS * u64::from(sample_rate) {
                    return Err(failed("the voice does not stop speaking"));
                }
                records.push(SpoolRecord::Audio(sample_rate, pcm));
            }
            Some(Event::Words(words)) => records.push(SpoolRecord::Words(words)),
            Some(Event::Phones(phones)) => records.push(SpoolRecord::Phones(phones)),
            // A sentence of a script that the voice does not know has no sound.
            Some(Event::End) => {
                records.push(SpoolRecord::End);
                return Ok(records);
            }
            Some(Event::Failed(error)) => return Err(error),
            // Another voice speaks.
            Some(Event::Warning(sentence)) => return Err(failed(&sentence)),
            Some(Event::Usage { .. } | Event::Provider(_) | Event::ServedBy(_)) => {}
            None => return Err(failed("the voice stopped without an end")),
        }
    }
}
