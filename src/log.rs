//! Logging: one line per record on stderr, as text or as JSON. A record of a call names its
//! conversation. The id comes from the record's own field, from the span of its task, or, on a
//! media thread, from the call that the thread currently works for.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::{Format as Line, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, MakeWriter};
use tracing_subscriber::registry::LookupSpan;

/// Format of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// One object a line, for collectors.
    Json,
}

/// The field with the conversation's id.
const CONVERSATION_FIELD: &str = "conversation";

/// Initializes logging; `VISAVIS_LOG` is the filter (`info`, `visavis_engine=debug` …).
///
/// # Errors
/// The filter is invalid.
pub(crate) fn init(format: Format) -> Result<(), String> {
    let filter_text = std::env::var_os("VISAVIS_LOG").filter(|text| !text.is_empty());
    let filter_text = filter_text.map_or_else(
        // `rmcp` calls each failure of a customer's tool server an error. The control plane warns of
        // it, with the server's name.
        || "info,str0m=warn,rmcp=off".into(),
        |text| text.to_string_lossy().into_owned(),
    );
    let filter = parse_filter(&filter_text).map_err(|reason| {
        format!(
            "VISAVIS_LOG: {reason}; use a level (off, error, warn, info, debug, trace) or \
             \"info,str0m=debug\""
        )
    })?;
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    tracing::subscriber::set_global_default(build_subscriber(
        format,
        filter,
        terminal,
        std::io::stderr,
    ))
    .map_err(|error| error.to_string())
}

/// Parses a filter of levels. A bare word must be a level: as the name of a module it would silence
/// everything else.
fn parse_filter(text: &str) -> Result<EnvFilter, String> {
    for part in text.split(',').map(str::trim).filter(|part| !part.contains(['=', '['])) {
        if part.parse::<tracing_subscriber::filter::LevelFilter>().is_err() {
            return Err(format!("\"{part}\" is not a log level"));
        }
    }
    text.parse().map_err(|_| format!("\"{text}\" is not a valid log filter"))
}

fn build_subscriber(
    format: Format,
    filter: EnvFilter,
    ansi: bool,
    to: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> Box<dyn Subscriber + Send + Sync> {
    // A line that cannot be written, because the disk is full, is lost. A report of that error
    // would panic for the same reason.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(to)
        .log_internal_errors(false);
    match format {
        Format::Text => {
            Box::new(builder.with_ansi(ansi).event_format(TextFormat(Line::default())).finish())
        }
        Format::Json => {
            let line = Line::default().json().flatten_event(true);
            let line = line.with_current_span(false).with_span_list(false);
            Box::new(builder.fmt_fields(JsonFields::new()).event_format(JsonFormat(line)).finish())
        }
    }
}

/// The call that this thread works for, unless the record has its own field.
fn current_call(event: &Event<'_>) -> Option<String> {
    let has_field = event.metadata().fields().field(CONVERSATION_FIELD).is_some();
    engine::thread::current_call().filter(|_| !has_field).map(|id| id.to_string())
}

struct TextFormat<F>(F);

impl<S, N, F> FormatEvent<S, N> for TextFormat<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    /// The standard format, followed by the call's id. The format itself writes the spans.
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let Some(id) = current_call(event) else { return self.0.format_event(ctx, writer, event) };
        let mut line = String::new();
        self.0.format_event(ctx, Writer::new(&mut line), event)?;
        writeln!(writer, "{} {CONVERSATION_FIELD}={id}", line.trim_end())
    }
}

struct JsonFormat<F>(F);

impl<S, N, F> FormatEvent<S, N> for JsonFormat<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    /// One object. Its first field is the conversation, unless the record has its own field.
    fn format_event(
        &self,
        ctx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let has_field = event.metadata().fields().field(CONVERSATION_FIELD).is_some();
        let id = current_call(event).or_else(|| conversation_from_span(ctx).filter(|_| !has_field));
        let Some(id) = id else { return self.0.format_event(ctx, writer, event) };
        let mut line = String::new();
        self.0.format_event(ctx, Writer::new(&mut line), event)?;
        let fields = line.strip_prefix('{').ok_or(fmt::Error)?;
        write!(writer, "{{\"{CONVERSATION_FIELD}\":{},{fields}", Value::from(id))
    }
}

/// The conversation of the innermost span that names one.
fn conversation_from_span<S, N>(ctx: &FmtContext<'_, S, N>) -> Option<String>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    ctx.event_scope()?.find_map(|span| {
        let extensions = span.extensions();
        let fields: Value = serde_json::from_str(extensions.get::<FormattedFields<N>>()?).ok()?;
        Some(fields.get(CONVERSATION_FIELD)?.as_str()?.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_log_filter_that_means_nothing_is_refused() {
        for good in
            ["info", "WARN", "off", "info,str0m=warn", "visavis_engine=debug", "engine[span]=trace"]
        {
            assert!(parse_filter(good).is_ok(), "{good}");
        }
        for bad in ["inof", "a=b", "info,,x", "!?", "info,str0m=wran"] {
            let reason = parse_filter(bad).unwrap_err();
            assert!(reason.starts_with('"'), "{bad}: {reason}");
        }
    }

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// The lines that are logged while `work` runs.
    fn capture_log(format: Format, work: impl FnOnce()) -> Vec<String> {
        let buffer = LogBuffer::default();
        let to = buffer.clone();
        let subscriber =
            build_subscriber(format, parse_filter("warn").unwrap(), false, move || to.clone());
        tracing::subscriber::with_default(subscriber, work);
        let bytes = buffer.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    fn emit_events() {
        tracing::warn!(n = 1, "no call");
        tracing::warn!(conversation = "a", "own field");
        // The engine opens such a span for its tasks on the net pool. Its level is `error`, so no
        // filter disables it.
        tracing::error_span!("call", conversation = "b").in_scope(|| {
            tracing::warn!("from a \"span\"");
            tracing::warn!(conversation = "c", "own field and span");
        });
        tracing::info!("below the level");
    }

    #[test]
    fn a_line_of_json_is_one_object_that_names_its_conversation() {
        let lines = capture_log(Format::Json, emit_events);
        let fields: Vec<(Value, Value)> = lines
            .iter()
            .map(|line| {
                serde_json::from_str::<Value>(line).unwrap_or_else(|e| panic!("{e}: {line}"))
            })
            .map(|line| {
                assert!(line["timestamp"].is_string() && line["level"] == "WARN", "{line}");
                assert_eq!(line["target"], "visavis::log::tests", "{line}");
                (line["message"].clone(), line[CONVERSATION_FIELD].clone())
            })
            .collect();
        let of = |message: &str, id: Option<&str>| (Value::from(message), Value::from(id));
        assert_eq!(
            fields,
            [
                of("no call", None),
                of("own field", Some("a")),
                of("from a \"span\"", Some("b")),
                of("own field and span", Some("c")),
            ]
        );
        assert_eq!(
            lines.iter().map(|line| line.matches(CONVERSATION_FIELD).count()).collect::<Vec<_>>(),
            [0, 1, 1, 1]
        );
    }

    #[test]
    fn a_line_of_text_names_it_too() {
        let lines = capture_log(Format::Text, emit_events);
        assert!(
            lines[0].contains("no call n=1") && !lines[0].contains(CONVERSATION_FIELD),
            "{lines:?}"
        );
        assert!(lines[1].contains("own field conversation=\"a\""), "{lines:?}");
        assert!(
            lines[2].contains("call{conversation=\"b\"}") && lines[2].contains("from a \"span\""),
            "{lines:?}"
        );
        assert_eq!(lines.len(), 4, "{lines:?}");
    }
}
