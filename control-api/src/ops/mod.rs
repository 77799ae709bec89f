//! What operators observe: health checks and metrics.

pub(crate) mod health;
pub(crate) mod metrics;
