//! What the record of a conversation says about its recording.

use crate::clock;
use crate::events::record::RecordingView;
use crate::state::AppState;
use crate::store;
use crate::store::recording::{FAILED, STORED};

/// The recording of a conversation. `is_recorded`: according to its events. `base`: `{base_url}`.
pub(crate) async fn view(
    state: &AppState,
    id: &str,
    is_recorded: bool,
    base: &str,
) -> store::Result<RecordingView> {
    let Some(row) = state.store.recording(id).await? else {
        return Ok(RecordingView { is_recorded, ..RecordingView::default() });
    };
    let is_recorded = row.is_present();
    if row.status != STORED {
        let error = row.error.filter(|_| row.status == FAILED);
        return Ok(RecordingView { is_recorded, url: String::new(), error });
    }
    let validity = state.config.recordings.link_validity;
    let url = match state.storage.link(&row.storage_key, validity).await {
        Some(Ok(url)) => url.into(),
        Some(Err(error)) => {
            tracing::error!(conversation = id, %error, "cannot sign a link to a recording");
            String::new()
        }
        None => {
            let expires = clock::now().saturating_add(clock::to_micros(validity)) / 1_000_000;
            let expires = u64::try_from(expires).unwrap_or(0);
            state.media_links.link(base, &row.storage_key, expires)
        }
    };
    Ok(RecordingView { is_recorded, url, error: None })
}
