//! The turn-taking settings of an agent, validated by the settings of crate `conversation`.

pub(crate) use conversation::settings::DEFAULT_ERROR_MESSAGE;
use conversation::settings::{Settings, TURN_SETTING_KEYS};
use serde_json::{Map, Value};

use crate::http::validate::Fields;

/// Values of `turn_handling`.
pub(crate) const HANDLINGS: &[&str] = &["proactive", "balanced", "deliberate"];
/// Values of `interruptability`.
pub(crate) const INTERRUPTABILITIES: &[&str] = &["low", "medium", "high"];

/// The two endpointing delays, by their names in `config.turn` and in `stt`.
const DELAY_FIELDS: [&str; 2] = ["min_endpointing_delay", "max_endpointing_delay"];
/// Maximum of both, in seconds.
const MAX_DELAY_SECONDS: f64 = 10.0;

/// The endpointing delays of an agent whose `stt` sets none, in seconds: those of `config.turn`,
/// otherwise those of its `turn_handling`.
pub(crate) fn endpointing_delays(handling: &str, turn: &Value) -> (f64, f64) {
    let mut settings = Settings::product_defaults();
    // An unknown preset leaves the product defaults, and is rejected elsewhere.
    let _ = settings.apply_presets(Some(handling), None);
    for key in DELAY_FIELDS {
        if let Some(value) = turn.get(key) {
            // An invalid delay is rejected elsewhere, too.
            let _ = settings.set(key, value);
        }
    }
    (settings.min_endpointing_delay, settings.max_endpointing_delay)
}

/// Checks 0 ≤ min ≤ max ≤ 10 for an avatar's delays. The value of `config.turn` or of the preset
/// replaces one that `stt` does not set. An error is reported at the field that the request sets.
/// Returns false if that field is in `config.turn`.
pub(super) fn check_delays(stt: &Fields<'_>, handling: &str, turn: &Value) -> bool {
    let (min, max) = endpointing_delays(handling, turn);
    let stated = |name: &str, default: f64| stt.raw(name).and_then(Value::as_f64).unwrap_or(default);
    let (min, max) = (stated(DELAY_FIELDS[0], min), stated(DELAY_FIELDS[1], max));
    if !(0.0..=MAX_DELAY_SECONDS).contains(&max) || min <= max {
        return true;
    }
    let stated_in_stt = DELAY_FIELDS.iter().any(|name| stt.raw(name).is_some_and(|value| !value.is_null()));
    if stated_in_stt {
        stt.add_error("max_endpointing_delay", "must not be below min_endpointing_delay");
    }
    stated_in_stt
}

/// The keys that `config.turn` sets, each in range; keys that an agent does not have are ignored.
pub(super) fn parse(turn: &Fields<'_>) -> Value {
    let mut settings = Settings::product_defaults();
    let mut document = Map::new();
    for key in TURN_SETTING_KEYS {
        let Some(value) = turn.raw(key) else { continue };
        let too_long =
            DELAY_FIELDS.contains(&key) && value.as_f64().is_some_and(|delay| delay > MAX_DELAY_SECONDS);
        match settings.set(key, value) {
            Ok(_) if too_long => turn.add_error(key, "must be between 0 and 10"),
            Ok(_) => {
                document.insert(key.into(), value.clone());
            }
            Err(bad) => turn.add_error(key, bad.reason),
        }
    }
    // The consistency of the delays is checked with those of an avatar.
    (settings.min_endpointing_delay, settings.max_endpointing_delay) = (0.0, MAX_DELAY_SECONDS);
    if let Err(bad) = settings.to_spec() {
        turn.add_error(&bad.field, bad.reason);
    }
    Value::Object(document)
}

/// Reports that `config.turn` and an avatar's preset are inconsistent.
pub(super) fn report_inconsistent_delays(turn: &Fields<'_>) {
    let name = DELAY_FIELDS.into_iter().find(|name| turn.contains(name)).unwrap_or(DELAY_FIELDS[0]);
    let reason = if name == DELAY_FIELDS[0] {
        "must not be above max_endpointing_delay"
    } else {
        "must not be below min_endpointing_delay"
    };
    turn.add_error(name, reason);
}
