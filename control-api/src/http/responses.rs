//! Bodies of responses that several resources share.

use schemars::JsonSchema;
use serde::Serialize;

use crate::error::ApiError;

/// The result of a handler.
pub(crate) type JsonResult<T> = Result<axum::Json<T>, ApiError>;

/// The response of a request that returns no data.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Message {
    pub(crate) message: &'static str,
}

/// The response to a change of one record.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Done {
    /// The record.
    pub(crate) id: String,
    pub(crate) message: &'static str,
}

/// The response to a new agent, or to a new webhook secret.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Created {
    #[schemars(extend("format" = "uuid"))]
    pub(crate) id: String,
    pub(crate) message: &'static str,
    /// Signs the agent's webhooks. It is not shown again.
    pub(crate) webhook_secret: String,
}
