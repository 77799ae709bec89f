//! The turn-taking settings of an agent, as the conversation's own settings judge them.

pub(crate) use conversation::settings::ERROR_MESSAGE;
use conversation::settings::{Settings, TURN_KEYS};
use serde_json::{Map, Value};

use crate::fields::Fields;

/// Values of `turn_handling`.
pub(crate) const HANDLINGS: &[&str] = &["proactive", "balanced", "deliberate"];
/// Values of `interruptability`.
pub(crate) const INTERRUPTABILITIES: &[&str] = &["low", "medium", "high"];

/// The endpointing delays of a `turn_handling`, in seconds.
pub(crate) fn delays(handling: &str) -> (f64, f64) {
    let mut settings = Settings::product();
    // An unknown word leaves the product's defaults, and is refused elsewhere.
    let _ = settings.preset(Some(handling), None);
    (settings.min_endpointing_delay, settings.max_endpointing_delay)
}

/// 0 ≤ min ≤ max ≤ 10, the preset's value standing for one that is not stated.
pub(super) fn check_delays(stt: &Fields<'_>, handling: &str) {
    let (min, max) = delays(handling);
    let stated = |name: &str, default: f64| stt.raw(name).and_then(Value::as_f64).unwrap_or(default);
    let (min, max) = (stated("min_endpointing_delay", min), stated("max_endpointing_delay", max));
    if (0.0..=10.0).contains(&max) && min > max {
        stt.fault("max_endpointing_delay", "must not be below min_endpointing_delay");
    }
}

/// The stated keys of `config.turn`, each in range; keys that are no agent's are ignored.
pub(super) fn parse(turn: &Fields<'_>) -> Value {
    let mut settings = Settings::product();
    let mut kept = Map::new();
    for key in TURN_KEYS {
        let Some(value) = turn.raw(key) else { continue };
        match settings.set(key, value) {
            Ok(_) => {
                kept.insert(key.into(), value.clone());
            }
            Err(bad) => turn.fault(key, bad.reason),
        }
    }
    if let (false, Err(bad)) = (kept.is_empty(), settings.spec()) {
        turn.fault(&bad.field, bad.reason);
    }
    Value::Object(kept)
}
