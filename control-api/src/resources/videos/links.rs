//! Links to the files of a video.

use super::files::StoredFile;
use crate::clock;
use crate::state::AppState;
use crate::store::video::Row;

/// The reason if a file is not where it was stored.
const MISSING: &str = "The stored file is missing.";

/// Links; empty where there is no file.
#[derive(Default)]
pub(super) struct Links {
    pub(super) url: String,
    pub(super) poster_url: String,
    pub(super) captions_url: String,
}

/// The links of a COMPLETED video. `base`: `{base_url}`.
///
/// # Errors
/// Why there are none, in one sentence.
pub(super) async fn of_video(
    state: &AppState,
    row: &Row,
    base: &str,
) -> Result<Links, &'static str> {
    // Of a folder on another server, this one knows nothing. A request to object storage would make
    // each response wait for it; its link says that the object is missing.
    let is_own_folder = state.storage.is_local() && row.server == *state.server_id;
    let video = StoredFile::of_format(&row.format).key(&row.id);
    if is_own_folder && state.storage.size(&video).await.is_err_and(|error| error.is_not_found()) {
        return Err(MISSING);
    }
    let mut links = Links::default();
    for file in StoredFile::all_of(row) {
        let link = link(state, &file.key(&row.id), base).await;
        match file {
            StoredFile::Poster => links.poster_url = link,
            StoredFile::Captions => links.captions_url = link,
            StoredFile::Webm | StoredFile::Mp4 => links.url = link,
        }
    }
    Ok(links)
}

async fn link(state: &AppState, key: &str, base: &str) -> String {
    let validity = state.config.recordings.link_validity;
    match state.storage.link(key, validity).await {
        Some(Ok(url)) => url.into(),
        Some(Err(error)) => {
            tracing::error!(%key, %error, "cannot sign a link to a video");
            String::new()
        }
        None => {
            let expires = clock::now().saturating_add(clock::to_micros(validity)) / 1_000_000;
            state.media_links.link(base, key, u64::try_from(expires).unwrap_or(0))
        }
    }
}
