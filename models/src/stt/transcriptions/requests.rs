//! A stream of requests: one for each utterance, in order.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use egress::websocket::Refusal;
use egress::{Method, Request, Response};
use tokio::time::{Instant, sleep_until};
use tracing::Instrument as _;

use super::response::Transcription;
use super::settings::Field;
use super::upload::Upload;
use crate::hosted::connection::wait_until;
use crate::stt::streaming::{
    BYTES_PER_SECOND, Call, Command, Dropped, Endpoint, Failure, MAX_REQUESTED_DELAY, Transport,
    duration_of,
};

/// Default time for the transcript of a short utterance, with all attempts. A fifth of the audio's
/// duration is added.
const TRANSCRIPT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of requests for an utterance.
const MAX_ATTEMPTS: u32 = 3;
/// Delay before the third request. The second follows at once.
const RETRY_DELAY: Duration = Duration::from_millis(500);
/// Shorter audio contains no word, and is refused by some servers.
const MIN_AUDIO_BYTES: usize = BYTES_PER_SECOND / 10;
/// Servers close idle connections after this time, so a new one is opened when speech starts.
const IDLE_TIME: Duration = Duration::from_secs(30);
/// Time to open a connection in advance.
const WARM_UP_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum part of an error's body that is read, in bytes.
const MAX_REFUSAL_BYTES: usize = 4_096;

/// The requests of a stream.
pub(super) struct Requests {
    fields: Arc<[Field]>,
    /// Address of a request that only opens the connection.
    models_url: Arc<str>,
    used_at: Option<Instant>,
    retries: u32,
}

impl Transport for Requests {
    const MAX_BUFFERED_BYTES: usize = 120 * BYTES_PER_SECOND;

    async fn serve(&mut self, call: &mut Call) -> Result<Dropped, Failure> {
        self.warm_up(&call.endpoint);
        loop {
            let Some(audio) = self.next_utterance(call).await else { return Ok(Dropped) };
            let text = if audio.iter().map(Bytes::len).sum::<usize>() < MIN_AUDIO_BYTES {
                String::new()
            } else {
                let Some(transcription) = self.transcribe(call, &audio).await? else {
                    return Ok(Dropped);
                };
                let now = Instant::now();
                self.used_at = Some(now);
                call.meter.add_tokens(now, transcription.usage);
                call.note_answer();
                transcription.text
            };
            call.finish_utterance(text);
        }
    }

    fn statistics(&self, _: &Endpoint) -> String {
        format!("{} requests were repeated", self.retries)
    }
}

impl Requests {
    pub(super) fn new(fields: Arc<[Field]>, models_url: Arc<str>) -> Self {
        Self { fields, models_url, used_at: None, retries: 0 }
    }

    /// Collects the commands until the oldest utterance has ended, and returns its audio. `None` if
    /// the media side drops the stream.
    async fn next_utterance(&mut self, call: &mut Call) -> Option<Vec<Bytes>> {
        loop {
            if let Some(speech) = call.buffer.utterances().next().filter(|speech| speech.ended) {
                return Some(speech.audio.iter().cloned().collect());
            }
            tokio::select! {
                command = call.commands.recv() => {
                    let command = command?;
                    if command == Command::StartSpeech {
                        self.warm_up(&call.endpoint);
                    }
                    call.buffer.push(Instant::now(), &command);
                }
                () = wait_until(call.meter.report_at()) => {
                    call.meter.report(Instant::now(), &call.sink);
                }
            }
        }
    }

    /// Opens a connection if none is open. Any response is sufficient.
    fn warm_up(&mut self, endpoint: &Arc<Endpoint>) {
        let now = Instant::now();
        if self.used_at.is_some_and(|at| now.saturating_duration_since(at) < IDLE_TIME) {
            return;
        }
        self.used_at = Some(now);
        let (endpoint, url) = (Arc::clone(endpoint), Arc::clone(&self.models_url));
        let warm_up = async move {
            if let Ok(request) = request(&endpoint, Method::GET, &url)
                && let Ok(response) =
                    endpoint.client.send(request.timeout(Some(WARM_UP_TIMEOUT))).await
            {
                drop(response.body().await);
            }
        };
        tokio::spawn(warm_up.in_current_span());
    }

    /// Requests the transcript of an utterance, with several attempts. Collects the commands
    /// meanwhile. `None` if the media side drops the stream.
    async fn transcribe(
        &mut self,
        call: &mut Call,
        audio: &[Bytes],
    ) -> Result<Option<Transcription>, Failure> {
        let upload = Upload::new(&self.fields, audio);
        let start = Instant::now();
        let time = call.timeouts.final_transcript.unwrap_or(TRANSCRIPT_TIMEOUT);
        let deadline = start + time + duration_of(upload.audio_bytes) / 5;
        let mut attempt_at = start;
        for attempt in 1.. {
            let (endpoint, upload) = (Arc::clone(&call.endpoint), upload.clone());
            call.meter.add_request(attempt_at);
            call.meter.add_audio(attempt_at, upload.audio_bytes);
            let response = async move {
                sleep_until(attempt_at).await;
                post(&endpoint, upload).await
            };
            tokio::pin!(response);
            let result = loop {
                tokio::select! {
                    biased;
                    result = &mut response => break result,
                    () = sleep_until(deadline) => {
                        let what = "sends no transcript in time";
                        return Err(Failure::timeout(&call.endpoint, what));
                    }
                    command = call.commands.recv() => match command {
                        Some(command) => call.buffer.push(Instant::now(), &command),
                        None => return Ok(None),
                    }
                }
            };
            let failure = match result {
                Ok(transcription) => return Ok(Some(transcription)),
                Err(failure) => failure,
            };
            let delay = if attempt == 1 { Duration::ZERO } else { RETRY_DELAY };
            match failure.retry_after {
                Some(after) if attempt < MAX_ATTEMPTS && after <= MAX_REQUESTED_DELAY => {
                    tracing::info!(error = %failure.error, "a hosted STT is asked again");
                    self.retries += 1;
                    attempt_at = Instant::now() + after.max(delay);
                }
                _ => return Err(failure),
            }
        }
        Ok(None)
    }
}

fn request(endpoint: &Endpoint, method: Method, url: &str) -> Result<Request, egress::Error> {
    let request = Request::new(method, url)?;
    match &endpoint.authorization {
        Some((name, value)) => request.header(name, value),
        None => Ok(request),
    }
}

/// Sends a request and reads its response.
async fn post(endpoint: &Endpoint, upload: Upload) -> Result<Transcription, Failure> {
    let failed = |error| Failure::from_transport(endpoint, &error);
    let request = request(endpoint, Method::POST, &endpoint.url)
        .and_then(|request| request.header("content-type", &upload.content_type))
        .map_err(failed)?;
    // The caller limits the time.
    let request = request.json(upload.body).timeout(None);
    let response = endpoint.client.send(request).await.map_err(failed)?;
    if !response.is_success() {
        return Err(refusal(endpoint, response).await);
    }
    let body = response.body().await.map_err(failed)?.text();
    Transcription::read(&body).ok_or_else(|| Failure::unreadable(endpoint, &body))
}

/// The failure that a status other than 2xx means.
async fn refusal(endpoint: &Endpoint, response: Response) -> Failure {
    let header = |name| response.header(name).and_then(|value| value.trim().parse::<f64>().ok());
    let seconds = header("retry-after-ms").map(|ms| ms / 1_000.0).or(header("retry-after"));
    let retry_after = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let status = response.status();
    let body = response.limit(MAX_REFUSAL_BYTES).body().await;
    let body = body.map(|body| body.text()).unwrap_or_default();
    Failure::from_refusal(endpoint, &Refusal { status, retry_after, body })
}
