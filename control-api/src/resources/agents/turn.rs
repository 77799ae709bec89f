//! The turn-taking settings of an agent, validated by the settings of crate `conversation`.

use conversation::contract::participation_settings::MEETING_SETTING_KEYS;
use conversation::participation::Participation;
use conversation::settings::{Settings, TURN_SETTING_KEYS};
use serde_json::{Map, Number, Value};

use crate::http::validate::FieldErrors;
use crate::store::agent::{TurnHandling, TurnSettings};
use crate::store::providers::Stt;

/// The two endpointing delays, by their names in `config.turn` and in `stt`.
const DELAY_FIELDS: [&str; 2] = ["min_endpointing_delay", "max_endpointing_delay"];
/// Maximum of both, in seconds.
const MAX_DELAY_SECONDS: f64 = 10.0;
/// The settings of meetings, within `config.turn`.
const MEETING_KEY: &str = "meeting";
/// Path of the settings in a request.
const TURN_PATH: &str = "config.turn";

/// The endpointing delays of an agent whose `stt` sets none, in seconds: those of `config.turn`,
/// otherwise those of its `turn_handling`.
pub(crate) fn endpointing_delays(handling: TurnHandling, turn: &TurnSettings) -> (f64, f64) {
    let mut settings = Settings::product_defaults();
    // Every preset of the type exists.
    let _ = settings.apply_presets(Some(handling.name()), None);
    for key in DELAY_FIELDS {
        if let Some(value) = turn.0.get(key) {
            // An invalid delay is rejected elsewhere, too.
            let _ = settings.set(key, value);
        }
    }
    (settings.min_endpointing_delay, settings.max_endpointing_delay)
}

/// Checks 0 ≤ min ≤ max ≤ 10 for an avatar's delays. The value of `config.turn` or of the preset
/// replaces one that `stt` does not set. An error is reported at the field that the request sets.
/// Returns false if that field is in `config.turn`.
pub(super) fn check_delays(
    stt: &Stt,
    stt_path: &str,
    handling: TurnHandling,
    turn: &TurnSettings,
    errors: &FieldErrors,
) -> bool {
    let (min, max) = endpointing_delays(handling, turn);
    let stated_min = stt.min_endpointing_delay.as_ref().and_then(Number::as_f64);
    let stated_max = stt.max_endpointing_delay.as_ref().and_then(Number::as_f64);
    let (min, max) = (stated_min.unwrap_or(min), stated_max.unwrap_or(max));
    if !(0.0..=MAX_DELAY_SECONDS).contains(&max) || min <= max {
        return true;
    }
    let stated_in_stt = stated_min.is_some() || stated_max.is_some();
    if stated_in_stt {
        errors.add(
            format!("{stt_path}.max_endpointing_delay"),
            "must not be below min_endpointing_delay",
        );
    }
    stated_in_stt
}

/// The keys that `config.turn` sets, each in range; keys that an agent does not have are ignored.
pub(super) fn parse(turn: &Map<String, Value>, errors: &FieldErrors) -> TurnSettings {
    let mut settings = Settings::product_defaults();
    let mut document = Map::new();
    let add_error = |key: &str, reason: String| errors.add(format!("{TURN_PATH}.{key}"), reason);
    for key in TURN_SETTING_KEYS {
        let Some(value) = turn.get(key) else { continue };
        let too_long = DELAY_FIELDS.contains(&key)
            && value.as_f64().is_some_and(|delay| delay > MAX_DELAY_SECONDS);
        match settings.set(key, value) {
            Ok(_) if too_long => add_error(key, "must be between 0 and 10".into()),
            Ok(_) => {
                document.insert(key.into(), value.clone());
            }
            Err(bad) => add_error(key, bad.reason),
        }
    }
    if let Some(meeting) = turn.get(MEETING_KEY).filter(|meeting| !meeting.is_null()) {
        match Participation::default().apply(Some(meeting)) {
            Ok(()) => {
                let known = meeting.as_object().into_iter().flatten();
                let known: Map<String, Value> = known
                    .filter(|(key, _)| MEETING_SETTING_KEYS.contains(&key.as_str()))
                    .map(|(key, value)| (key.clone(), value.clone()))
                    .collect();
                document.insert(MEETING_KEY.into(), known.into());
            }
            Err(bad) => add_error(&bad.field, bad.reason),
        }
    }
    // The consistency of the delays is checked with those of an avatar.
    (settings.min_endpointing_delay, settings.max_endpointing_delay) = (0.0, MAX_DELAY_SECONDS);
    if let Err(bad) = settings.to_spec() {
        add_error(&bad.field, bad.reason);
    }
    TurnSettings(document)
}

/// Reports that `config.turn` and an avatar's preset are inconsistent.
pub(super) fn report_inconsistent_delays(turn: &Map<String, Value>, errors: &FieldErrors) {
    let name =
        DELAY_FIELDS.into_iter().find(|name| turn.contains_key(*name)).unwrap_or(DELAY_FIELDS[0]);
    let reason = if name == DELAY_FIELDS[0] {
        "must not be above max_endpointing_delay"
    } else {
        "must not be below min_endpointing_delay"
    };
    errors.add(format!("{TURN_PATH}.{name}"), reason);
}
