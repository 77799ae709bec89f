//! JSON Merge Patch (RFC 7396), with one exception: where null is a meaningful value of an agent
//! (silence, or no time limit), it is stored.

use serde_json::{Map, Value};

/// Paths at which null is a value of its own.
const NULLABLE_PATHS: &[&str] =
    &["config.error_message", "config.turn.false_interruption_timeout", "config.turn.transcript_timeout"];

/// Merges `patch` into `target`.
pub(super) fn merge(target: &mut Value, patch: Value) {
    merge_at(target, patch, "");
}

fn merge_at(target: &mut Value, patch: Value, path: &str) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(map) = target else { return };
    for (name, value) in patch {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        if value.is_null() && !NULLABLE_PATHS.contains(&path.as_str()) {
            map.shift_remove(&name);
        } else {
            merge_at(map.entry(name).or_insert(Value::Null), value, &path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_patch_changes_what_it_names_and_null_removes() {
        let mut agent = json!({"a": {"b": 1, "c": 2}, "list": [1, 2], "d": "x"});
        merge(&mut agent, json!({"a": {"b": null, "e": {"f": null, "g": 3}}, "list": [3], "d": null}));
        assert_eq!(agent, json!({"a": {"c": 2, "e": {"g": 3}}, "list": [3]}));
    }

    #[test]
    fn null_stays_where_it_means_silence() {
        let mut agent = json!({"config": {"error_message": "x", "timeout": 3}});
        merge(
            &mut agent,
            json!({"config": {"error_message": null, "timeout": null, "turn": {"transcript_timeout": null}}}),
        );
        assert_eq!(agent, json!({"config": {"error_message": null, "turn": {"transcript_timeout": null}}}));
    }
}
