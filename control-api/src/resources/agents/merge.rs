//! JSON Merge Patch (RFC 7396), with one exception: where null is a meaningful value of an agent
//! (silence, or no time limit), it is stored.

use std::sync::LazyLock;

use serde_json::{Map, Value};

use super::parse::AgentDocument as _;
use crate::http::body;
use crate::store::agent::Agent;

/// Paths at which null is a value of an agent. Lists are replaced as a whole, so none leads into
/// one.
pub(super) static NULLABLE_PATHS: LazyLock<Vec<String>> =
    LazyLock::new(|| body::nullable_paths(Agent::request_schema()));

/// Merges `patch` into `target`. A null is stored at `nullable_paths`.
pub(super) fn merge(target: &mut Value, patch: Value, nullable_paths: &[String]) {
    merge_at(target, patch, "", nullable_paths);
}

fn merge_at(target: &mut Value, patch: Value, path: &str, nullable_paths: &[String]) {
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
        if value.is_null() && !nullable_paths.contains(&path) {
            map.shift_remove(&name);
        } else {
            merge_at(map.entry(name).or_insert(Value::Null), value, &path, nullable_paths);
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
        merge(
            &mut agent,
            json!({"a": {"b": null, "e": {"f": null, "g": 3}}, "list": [3], "d": null}),
            &[],
        );
        assert_eq!(agent, json!({"a": {"c": 2, "e": {"g": 3}}, "list": [3]}));
    }

    #[test]
    fn null_has_a_meaning_at_three_paths() {
        assert_eq!(
            *NULLABLE_PATHS,
            [
                "config.error_message",
                "config.turn.false_interruption_timeout",
                "config.turn.transcript_timeout"
            ]
        );
    }

    #[test]
    fn null_stays_where_it_means_silence() {
        let mut agent = json!({"config": {"error_message": "x", "timeout": 3}});
        merge(
            &mut agent,
            json!({
                "config": {
                    "error_message": null,
                    "timeout": null,
                    "turn": {"transcript_timeout": null},
                },
            }),
            &NULLABLE_PATHS,
        );
        assert_eq!(
            agent,
            json!({"config": {"error_message": null, "turn": {"transcript_timeout": null}}})
        );
    }
}
