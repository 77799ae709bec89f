//! The wall clock of this plane: µs since the Unix epoch, and its text formats.

use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};
use time::OffsetDateTime;
use time::macros::format_description;

/// Microseconds since the Unix epoch. Signed, like a database column.
pub(crate) type Micros = i64;

/// The current time.
pub(crate) fn now() -> Micros {
    to_micros(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// A duration in µs.
pub(crate) fn to_micros(span: Duration) -> Micros {
    Micros::try_from(span.as_micros()).unwrap_or(Micros::MAX)
}

/// ISO 8601 in UTC with milliseconds, such as `2026-11-21T12:55:46.817Z`.
pub(crate) fn to_iso8601(at: Micros) -> String {
    let format =
        format_description!("[year]-[month]-[day]T[hour]:[minute]:[second].[subsecond digits:3]Z");
    OffsetDateTime::from_unix_timestamp_nanos(i128::from(at) * 1000)
        .ok()
        .and_then(|t| t.format(&format).ok())
        .unwrap_or_else(|| "1970-01-01T00:00:00.000Z".into())
}

/// A time in a response, as [`to_iso8601`] writes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Iso8601(pub(crate) Micros);

impl Serialize for Iso8601 {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&to_iso8601(self.0))
    }
}

impl JsonSchema for Iso8601 {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Iso8601".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"type": "string", "format": "date-time"})
    }
}

/// The first instant of a day in the format `YYYY-MM-DD`.
pub(crate) fn parse_date(text: &str) -> Option<Micros> {
    let date = time::Date::parse(text, &format_description!("[year]-[month]-[day]")).ok()?;
    Some(date.midnight().assume_utc().unix_timestamp() * 1_000_000)
}

/// An instant in ISO 8601 (RFC 3339).
pub(crate) fn parse_timestamp(text: &str) -> Option<Micros> {
    let at = OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).ok()?;
    Micros::try_from(at.unix_timestamp_nanos() / 1000).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_are_written_in_utc_with_milliseconds() {
        assert_eq!(to_iso8601(1_795_265_746_817_999), "2026-11-21T12:55:46.817Z");
        assert_eq!(
            parse_date("2026-11-21").map(to_iso8601).as_deref(),
            Some("2026-11-21T00:00:00.000Z")
        );
        assert_eq!(parse_date("2026-02-30"), None);
        assert_eq!(parse_date("today"), None);
        assert_eq!(
            parse_timestamp("2026-11-21T13:55:46+01:00").map(to_iso8601).as_deref(),
            Some("2026-11-21T12:55:46.000Z")
        );
    }
}
