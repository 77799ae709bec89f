//! The options that an agent may set.

use serde_json::{Map, Value};

use crate::tts::hosted::{ignored_options, number};

/// Options of a connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// Speed of the speech, from 0.7 to 1.5; `None` = the vendor's default, 1. Only for English and
    /// Spanish voices of Aura-2; the vendor refuses it for others.
    pub speed: Option<f64>,
}

impl Options {
    /// Reads the options of an agent; also returns the names of those that are unknown or have a
    /// value that the protocol does not allow.
    #[must_use]
    pub fn read(values: &Map<String, Value>) -> (Self, Vec<&str>) {
        let mut options = Self::default();
        let ignored = ignored_options(values, |name, value| {
            if name != "speed" {
                return None;
            }
            options.speed = Some(number(value, 0.7..=1.5)?);
            Some(())
        });
        (options, ignored)
    }
}
