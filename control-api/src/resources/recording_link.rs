//! What the record of a conversation says about its recording.

use crate::clock;
use crate::events::record::RecordingView;
use crate::state::AppState;
use crate::store;
use crate::store::recording::{CAPTURED, CONVERTING, FAILED, FINISHED, STORED};

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
        let error = row.error.clone().filter(|_| row.status == FAILED);
        let waiting = match (row.status.as_str(), row.error) {
            (CAPTURED | CONVERTING, Some(reason)) => {
                Some(format!("The recording waits for its delivery: {reason}."))
            }
            (FINISHED, Some(reason)) => {
                Some(format!("The recording waits for the storage: {reason}."))
            }
            _ => None,
        };
        return Ok(RecordingView { is_recorded, url: String::new(), error, waiting });
    }
    // Of a folder on another server, this one knows nothing. A request to object storage would make
    // each response wait for it; its link says that the object is missing.
    let is_own_folder = state.storage.is_local() && row.server == *state.server_id;
    if is_own_folder
        && state.storage.size(&row.storage_key).await.is_err_and(|error| error.is_not_found())
    {
        let error = Some("the stored file is missing".into());
        return Ok(RecordingView { is_recorded, error, ..RecordingView::default() });
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
    Ok(RecordingView { is_recorded, url, ..RecordingView::default() })
}
