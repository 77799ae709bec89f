//! Operations on videos of a text or of a sound, one row each.

use super::operation::{Body, DONE_RESPONSE, Operation, VIDEOS, op};

/// All rows of this file.
pub(crate) const OPERATIONS: &[Operation] = &[
    op(
        VIDEOS,
        "post",
        "/v1/ext/video",
        "Create a video of a text or of a sound",
        &[
            (201, "CreatedVideo", "Created; the video is made in the background"),
            (409, "Error", "The Idempotency-Key was used for another request"),
            (503, "NoCapacity", "The server has no models, or its disk is full"),
        ],
    )
    .body(Body::JsonOrForm("VideoBody", "VideoForm"))
    .operate_scope()
    .idempotent()
    .workspace_limited(),
    op(
        VIDEOS,
        "get",
        "/v1/ext/videos",
        "List videos, newest first; the type is a status in lower case",
        &[(200, "[ListedVideo]", "Videos")],
    )
    .list(),
    op(
        VIDEOS,
        "get",
        "/v1/ext/video/{id}",
        "Read a video with its status and its links",
        &[(200, "Video", "The video")],
    )
    .not_found_message(),
    op(
        VIDEOS,
        "delete",
        "/v1/ext/video/{id}",
        "Delete a video in any status, with all of its files",
        DONE_RESPONSE,
    )
    .not_found_message()
    .operate_scope(),
];
