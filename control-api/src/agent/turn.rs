//! The turn-taking settings of an agent, as the conversation's own settings judge them.

pub(crate) use conversation::settings::DEFAULT_ERROR_MESSAGE;
use conversation::settings::{Settings, TURN_SETTING_KEYS};
use serde_json::{Map, Value};

use crate::fields::Fields;

/// Values of `turn_handling`.
pub(crate) const HANDLINGS: &[&str] = &["proactive", "balanced", "deliberate"];
/// Values of `interruptability`.
pub(crate) const INTERRUPTABILITIES: &[&str] = &["low", "medium", "high"];

/// The two delays of a turn's end, by their names in `config.turn` and in `stt`.
const DELAYS: [&str; 2] = ["min_endpointing_delay", "max_endpointing_delay"];
/// Seconds that neither may exceed.
const LONGEST_DELAY: f64 = 10.0;

/// The endpointing delays of an agent whose `stt` states none, in seconds: those of `config.turn`, else those of its `turn_handling`.
pub(crate) fn delays(handling: &str, turn: &Value) -> (f64, f64) {
    let mut settings = Settings::product_defaults();
    // An unknown word leaves the product's defaults, and is refused elsewhere.
    let _ = settings.apply_presets(Some(handling), None);
    for key in DELAYS {
        if let Some(value) = turn.get(key) {
            // What is no delay is refused elsewhere, too.
            let _ = settings.set(key, value);
        }
    }
    (settings.min_endpointing_delay, settings.max_endpointing_delay)
}

/// 0 ≤ min ≤ max ≤ 10 of an avatar's delays, `config.turn`'s or the preset's value standing for one that `stt` does not state. What is at
/// fault is named where the request states it; false if that is `config.turn`.
pub(super) fn check_delays(stt: &Fields<'_>, handling: &str, turn: &Value) -> bool {
    let (min, max) = delays(handling, turn);
    let stated = |name: &str, default: f64| stt.raw(name).and_then(Value::as_f64).unwrap_or(default);
    let (min, max) = (stated(DELAYS[0], min), stated(DELAYS[1], max));
    if !(0.0..=LONGEST_DELAY).contains(&max) || min <= max {
        return true;
    }
    let own = DELAYS.iter().any(|name| stt.raw(name).is_some_and(|value| !value.is_null()));
    if own {
        stt.fault("max_endpointing_delay", "must not be below min_endpointing_delay");
    }
    own
}

/// The stated keys of `config.turn`, each in range; keys that are no agent's are ignored.
pub(super) fn parse(turn: &Fields<'_>) -> Value {
    let mut settings = Settings::product_defaults();
    let mut kept = Map::new();
    for key in TURN_SETTING_KEYS {
        let Some(value) = turn.raw(key) else { continue };
        let long = DELAYS.contains(&key) && value.as_f64().is_some_and(|delay| delay > LONGEST_DELAY);
        match settings.set(key, value) {
            Ok(_) if long => turn.fault(key, "must be between 0 and 10"),
            Ok(_) => {
                kept.insert(key.into(), value.clone());
            }
            Err(bad) => turn.fault(key, bad.reason),
        }
    }
    // Whether the delays go together is seen with those of an avatar.
    (settings.min_endpointing_delay, settings.max_endpointing_delay) = (0.0, LONGEST_DELAY);
    if let Err(bad) = settings.to_spec() {
        turn.fault(&bad.field, bad.reason);
    }
    Value::Object(kept)
}

/// `config.turn` and an avatar's preset do not go together.
pub(super) fn fault_delays(turn: &Fields<'_>) {
    let name = DELAYS.into_iter().find(|name| turn.states(name)).unwrap_or(DELAYS[0]);
    let reason = if name == DELAYS[0] {
        "must not be above max_endpointing_delay"
    } else {
        "must not be below min_endpointing_delay"
    };
    turn.fault(name, reason);
}
