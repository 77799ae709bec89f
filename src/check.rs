//! `visavis check`: reports for every provider, model and device whether it is ready, and what to
//! install otherwise.

mod built_in;
mod providers;
mod reachability;

use std::process::ExitCode;

use engine::show::Avatars;
use engine::transport::socket::{self, Socket};

use crate::cli::ConfigPaths;
use crate::config::{Config, Setting};
use crate::{CommandError, load_config};

/// One line of the report.
#[derive(serde::Serialize)]
struct CheckResult {
    name: String,
    kind: String,
    ready: bool,
    /// Whether calls need it.
    #[serde(rename = "needed")]
    required: bool,
    detail: String,
    /// Where a setting comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<String>,
}

/// `live`: sends one real request to each account of the operator.
pub(crate) fn run(place: &ConfigPaths, json: bool, live: bool) -> Result<ExitCode, CommandError> {
    let config = load_config(place)?;
    let mut lines = vec![check_models_folder(&config)];
    lines.extend(built_in::check(&config)?);
    let (provider_lines, failed) = providers::check(&config, live)?;
    lines.extend(provider_lines);
    lines.push(match all_avatars(&config) {
        Ok(avatars) if !avatars.as_slice().is_empty() => {
            let names: Vec<String> =
                avatars.stock_avatars().into_iter().map(|a| a.avatar_name).collect();
            check_result("faces", "face", true, true, names.join(", "))
        }
        Ok(_) => check_result("faces", "face", false, true, "no built-in avatars".into()),
        Err(error) => check_result("faces", "face", false, true, error),
    });
    lines.push(check_media_ports(&config));
    lines.push(reachability::check(&config, &socket::host_addresses(false)));
    lines.push(receive_buffer_result(reported_receive_buffer()));
    lines.push(check_sandbox(documents::Sandbox::available()));
    lines.push(check_storage(&config)?);
    lines.push(check_meetings(&config));
    lines.extend(check_data(&config)?);
    lines.extend(failed_events_result(count_failed_events(&config)?));
    if json {
        let settings = config.changed.iter().map(setting_row);
        let rows: Vec<CheckResult> = lines.into_iter().chain(settings).collect();
        println!("{}", serde_json::to_string_pretty(&rows)?);
        return Ok(exit_code(failed, &rows));
    }
    print_lines(&lines);
    print_settings(&config.changed);
    Ok(exit_code(failed, &lines))
}

fn exit_code(failed: bool, lines: &[CheckResult]) -> ExitCode {
    let broken = failed || lines.iter().any(|l| l.required && !l.ready);
    if broken { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn print_lines(lines: &[CheckResult]) {
    let width = lines.iter().map(|l| l.name.chars().count()).max().unwrap_or(0);
    for l in lines {
        // Further lines of a detail belong into the configuration.
        let detail = l.detail.replace('\n', "\n    ");
        println!("{:8} {:5} {:width$}  {detail}", state_word(l), l.kind, l.name);
    }
}

/// The first word of a line.
fn state_word(line: &CheckResult) -> &'static str {
    match (line.ready, line.required) {
        (true, _) => "ready",
        (false, _) if line.detail.starts_with("failed: ") => "FAILED",
        // Nothing can be installed that would repair it.
        (false, true) if line.kind == "store" => "FAILED",
        (false, true) => "MISSING",
        (false, false) => "optional",
    }
}

/// The settings, as lines of a configuration with their places.
fn print_settings(settings: &[Setting]) {
    if settings.is_empty() {
        println!("\nAll settings have their defaults.");
        return;
    }
    println!("\nSettings that differ from their defaults:");
    for Setting { key, value, origin } in settings {
        println!("{key} = {value}  ({origin})");
    }
}

/// A setting as a row of the JSON report.
fn setting_row(setting: &Setting) -> CheckResult {
    let row = check_result(&setting.key, "setting", true, false, setting.value.clone());
    CheckResult { source: Some(setting.origin.clone()), ..row }
}

/// Where the models are.
fn check_models_folder(config: &Config) -> CheckResult {
    let missing = config.models.missing_reason();
    let folder = std::path::absolute(config.models.folder());
    let folder = folder.unwrap_or_else(|_| config.models.folder()).display().to_string();
    let is_there = missing.is_none();
    check_result("models folder", "files", is_there, true, missing.unwrap_or(folder))
}

/// That no server has used the data folder or the database, or that none can use the folder, if so.
fn check_data(config: &Config) -> Result<Option<CheckResult>, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (data, url) = (&config.server.data, config.server.database_url.as_deref());
    Ok(data_result(runtime.block_on(control_api::check_store::unused_store(data, url))))
}

/// The line about unused data. Before the first start, that is no failure.
fn data_result(found: Result<Option<String>, impl std::fmt::Display>) -> Option<CheckResult> {
    match found {
        Ok(unused) => unused.map(|reason| check_result("data", "store", false, false, reason)),
        Err(error) => Some(check_result("data", "store", false, true, error.to_string())),
    }
}

/// The avatars that `serve` would offer.
fn all_avatars(config: &Config) -> Result<Avatars, String> {
    let mut avatars = Avatars::built_in().map_err(|error| error.to_string())?;
    if let Some(dir) = &config.avatars.dir {
        avatars.add_dir(dir).map_err(|error| format!("avatars.dir: {error}"))?;
    }
    Ok(avatars)
}

fn check_result(name: &str, kind: &str, ready: bool, needed: bool, detail: String) -> CheckResult {
    let (name, kind) = (name.into(), kind.into());
    CheckResult { name, kind, ready, required: needed, detail, source: None }
}

/// Number of events that the store rejected; `None` if there is no store yet.
fn count_failed_events(
    config: &Config,
) -> Result<Result<Option<u64>, control_api::OpenError>, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(control_api::check_store::failed_events(
        &config.server.data,
        config.server.database_url.as_deref(),
    )))
}

/// Whether recordings can be stored.
fn check_storage(config: &Config) -> Result<CheckResult, CommandError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let checked =
        runtime.block_on(control_api::check_storage(&config.server.data, &config.storage.config()));
    let (ready, detail) = match checked {
        Ok(place) => (true, place),
        Err(reason) => (false, format!("failed: {reason}")),
    };
    // Only the default folder can be unusable without the operator's knowledge.
    Ok(check_result("storage", "files", ready, config.storage.url.is_some(), detail))
}

/// Whether agents can join external meetings with the operator's account.
fn check_meetings(config: &Config) -> CheckResult {
    let meetings = config.meetings.config();
    let check = control_api::check_meetings::MeetingsCheck {
        config: &meetings,
        public_url: config.server.public_url.as_deref(),
        data: &config.server.data,
        tokens_key: config.server.tokens_key.as_ref(),
    };
    match check.report() {
        Ok(Some(detail)) => check_result("meetings", "http", true, true, detail),
        Ok(None) => {
            let detail = "no meetings.provider: only workspaces with a key of a meeting service \
                          send agents into meetings";
            check_result("meetings", "http", false, false, detail.into())
        }
        Err(reason) => check_result("meetings", "http", false, true, reason),
    }
}

/// Whether the store rejected events; `None` if there is no store yet.
fn failed_events_result(found: Result<Option<u64>, impl std::fmt::Display>) -> Option<CheckResult> {
    let name = "events";
    match found {
        Ok(None) => None,
        Ok(Some(0)) => {
            Some(check_result(name, "store", true, false, "all events are stored".into()))
        }
        Ok(Some(count)) => Some(check_result(
            name,
            "store",
            false,
            false,
            format!("the store rejected {count} events; their text is in the table failed_event"),
        )),
        Err(error) => Some(check_result(name, "store", false, true, error.to_string())),
    }
}

/// Size of the receive buffer of a media thread's socket, as the kernel reports it.
fn reported_receive_buffer() -> std::io::Result<usize> {
    let hosts = vec![std::net::Ipv4Addr::LOCALHOST.into()];
    let bound = Socket::bind(&socket::SocketConfig {
        host_addresses: hosts,
        ..socket::SocketConfig::default()
    });
    bound?.receive_buffer()
}

/// Whether the socket buffer holds the datagrams of a burst until the next tick of a media thread.
fn receive_buffer_result(reported: std::io::Result<usize>) -> CheckResult {
    let name = "UDP receive buffer";
    // Linux reports twice the size that it granted: it adds room for its own data.
    match reported.map(|bytes| bytes / 2) {
        Ok(bytes) if bytes >= socket::SOCKET_BUFFER_BYTES => {
            check_result(name, "net", true, false, format!("{} KiB", bytes >> 10))
        }
        Ok(bytes) => check_result(
            name,
            "net",
            false,
            false,
            format!(
                "{} KiB: packet bursts may be lost; run `sysctl -w net.core.rmem_max={}` or grant \
                 the server CAP_NET_ADMIN",
                bytes >> 10,
                socket::SOCKET_BUFFER_BYTES
            ),
        ),
        Err(error) => check_result(name, "net", false, false, error.to_string()),
    }
}

/// Which mechanisms isolate the process that parses uploaded documents.
fn check_sandbox(sandbox: documents::Sandbox) -> CheckResult {
    let ready = sandbox.refuses_files();
    let mut detail = sandbox.to_string();
    if !ready {
        detail += ": an exploited document parser can read everything that the server can; \
            use a kernel that supports one of them";
    }
    check_result("documents", "files", ready, false, detail)
}

/// Whether media can flow: enough UDP ports of the range can be bound. With fewer ports than
/// threads, each port gets a thread.
fn check_media_ports(config: &Config) -> CheckResult {
    let ports = match config.media.ports() {
        Ok(ports) => ports,
        Err(why) => return check_result("media ports", "net", false, true, why),
    };
    let free =
        ports.clone().filter(|port| std::net::UdpSocket::bind(("0.0.0.0", *port)).is_ok()).count();
    let threads =
        if config.media.threads == 0 { engine::thread::cores() } else { config.media.threads };
    let needed = threads.min(ports.len());
    let any = *ports.start() == 0;
    let detail = if any {
        "any free UDP port".into()
    } else {
        format!("{free} of {} UDP ports free, {needed} media threads", ports.len())
    };
    check_result("media ports", "net", any || free >= needed, true, detail)
}

#[cfg(test)]
mod tests {
    use documents::Sandbox;

    use super::*;

    #[test]
    fn a_receive_buffer_is_judged_by_what_the_kernel_granted() {
        // The kernel reports 4 MiB if `net.core.rmem_max` is 2 MiB.
        let small = receive_buffer_result(Ok(4 << 20));
        assert!(!small.ready && !small.required, "{}", small.detail);
        assert!(small.detail.starts_with("2048 KiB: "), "{}", small.detail);
        assert!(small.detail.contains("net.core.rmem_max=4194304"), "{}", small.detail);
        let whole = receive_buffer_result(Ok(8 << 20));
        assert_eq!((whole.ready, whole.detail.as_str()), (true, "4096 KiB"));
        let failed = receive_buffer_result(Err(std::io::Error::other("no socket")));
        assert!(
            !failed.ready && !failed.required && failed.detail == "no socket",
            "{}",
            failed.detail
        );
    }

    #[test]
    fn events_that_the_store_rejected_are_reported_and_fail_no_check() {
        type Found = Result<Option<u64>, &'static str>;
        assert!(failed_events_result(Found::Ok(None)).is_none(), "there is no store yet");
        let none = failed_events_result(Found::Ok(Some(0))).unwrap();
        assert!(none.ready, "{}", none.detail);
        let some = failed_events_result(Found::Ok(Some(3))).unwrap();
        assert!(!some.ready && !some.required, "{}", some.detail);
        assert!(
            some.detail.contains("3 events") && some.detail.contains("failed_event"),
            "{}",
            some.detail
        );
        let failed = failed_events_result(Found::Err("no database")).unwrap();
        assert!(
            !failed.ready && failed.required && failed.detail == "no database",
            "{}",
            failed.detail
        );
    }

    #[test]
    fn data_that_no_server_has_used_fail_no_check_unlike_data_that_none_can_use() {
        type Found = Result<Option<String>, &'static str>;
        assert!(data_result(Found::Ok(None)).is_none(), "a server has used them");
        let unused = data_result(Found::Ok(Some("no data".into()))).unwrap();
        assert!(!unused.ready && !unused.required, "{}", unused.detail);
        assert_eq!(state_word(&unused), "optional");
        let unusable = data_result(Found::Err("cannot be read")).unwrap();
        assert!(!unusable.ready && unusable.required, "{}", unusable.detail);
        assert_eq!(state_word(&unusable), "FAILED");
    }

    #[test]
    fn the_first_word_of_a_line_says_whether_something_is_to_be_done() {
        for (ready, needed, kind, detail, expected) in [
            (true, true, "tts", "16000 Hz", "ready"),
            (true, false, "tts", "16000 Hz", "ready"),
            (false, true, "vad", "run `make setup`", "MISSING"),
            (false, false, "tts", "run `make setup`", "optional"),
            (false, false, "net", "208 KiB", "optional"),
            (false, false, "llm", "failed: no answer", "FAILED"),
            (false, true, "files", "failed: access denied", "FAILED"),
            (false, true, "store", "a newer release has changed it", "FAILED"),
        ] {
            let line = check_result("name", kind, ready, needed, detail.into());
            assert_eq!(state_word(&line), expected, "{kind} {detail}");
        }
    }

    #[test]
    fn a_kernel_without_a_sandbox_is_told_and_fails_no_check() {
        for (landlock, seccomp) in [(true, true), (true, false), (false, true)] {
            let result = check_sandbox(Sandbox { landlock, seccomp });
            assert!(result.ready && !result.required, "{}", result.detail);
            assert_eq!(result.detail.contains("Landlock"), landlock, "{}", result.detail);
            assert_eq!(result.detail.contains("seccomp"), seccomp, "{}", result.detail);
        }
        let result = check_sandbox(Sandbox::default());
        assert!(
            !result.ready && !result.required && result.detail.contains("neither"),
            "{}",
            result.detail
        );
    }
}
