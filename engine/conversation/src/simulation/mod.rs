//! Tools around the state machine: scenarios with scripted models, traces, replay, reports.

pub mod replay;
pub(crate) mod report;
pub(crate) mod scenario;
pub(crate) mod scenario_fields;
pub(crate) mod scripted_models;
pub mod simulate;
pub(crate) mod strict_json;
pub mod trace;
