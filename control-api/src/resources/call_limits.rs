//! Limits of an agent's calls.

use crate::resources::model_choices::number;
use crate::store::agent::{AgentConfig, Avatar};

/// Maximum duration of a call of this agent, in seconds: the first positive one of three settings.
pub(crate) fn max_call_duration(config: &AgentConfig, avatar: &Avatar) -> Option<f64> {
    let limits =
        [&config.max_call_duration, &config.timeout, &avatar.exit_message.max_call_duration];
    limits.into_iter().find_map(|limit| number(limit.as_ref()).filter(|seconds| *seconds > 0.0))
}

#[cfg(test)]
mod tests {
    use serde_json::Number;

    use super::*;

    #[test]
    fn the_first_positive_limit_counts() {
        let avatar = |seconds: Option<u32>| {
            let mut avatar = Avatar::default();
            avatar.exit_message.max_call_duration = seconds.map(Number::from);
            avatar
        };
        let limit = |max: Option<u32>, timeout: Option<u32>, exit: Option<u32>| {
            let config = AgentConfig {
                max_call_duration: max.map(Number::from),
                timeout: timeout.map(Number::from),
                ..AgentConfig::default()
            };
            max_call_duration(&config, &avatar(exit))
        };
        assert_eq!(limit(Some(120), Some(90), Some(60)), Some(120.0));
        assert_eq!(limit(Some(0), Some(90), Some(60)), Some(90.0));
        assert_eq!(limit(None, None, Some(60)), Some(60.0));
        assert_eq!(limit(None, Some(0), None), None);
    }
}
