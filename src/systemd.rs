//! What systemd needs to know of a service (`sd_notify`), and whether it stores standard output.

use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Sends states to the service manager that started this process, if it wants them.
#[derive(Default)]
pub(crate) struct Notifier(Option<(UnixDatagram, SocketAddr)>);

impl Notifier {
    /// The notifier of `NOTIFY_SOCKET`, the path of a socket or the name of an abstract one.
    pub(crate) fn from_environment() -> Self {
        let Some(name) = std::env::var_os("NOTIFY_SOCKET").filter(|name| !name.is_empty()) else {
            return Self::default();
        };
        Self::of(name.as_bytes()).unwrap_or_else(|error| {
            tracing::warn!(%error, "NOTIFY_SOCKET cannot be used");
            Self::default()
        })
    }

    fn of(name: &[u8]) -> io::Result<Self> {
        let address = match name.strip_prefix(b"@") {
            Some(name) => SocketAddr::from_abstract_name(name)?,
            None => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
        };
        Ok(Self(Some((UnixDatagram::unbound()?, address))))
    }

    /// Sends assignments such as `READY=1`, one on each line.
    pub(crate) fn send(&self, state: &str) {
        if let Some((socket, address)) = &self.0
            && let Err(error) = socket.send_to_addr(state.as_bytes(), address)
        {
            tracing::warn!(%error, "cannot notify the service manager");
        }
    }

    /// Sends a sentence that `systemctl status` shows. A line break would begin another assignment.
    pub(crate) fn send_status(&self, status: &str) {
        self.send(&format!("STATUS={}", status.replace('\n', " ")));
    }

    /// Tells the watchdog in half its interval that the runtime is alive. Returns only without a
    /// watchdog.
    pub(crate) async fn feed_watchdog(&self) {
        let variable = |name| std::env::var(name).ok();
        let Some(interval) = watchdog_interval(variable, std::process::id()) else { return };
        let mut ticks = tokio::time::interval(interval / 2);
        loop {
            ticks.tick().await;
            self.send("WATCHDOG=1");
        }
    }
}

/// The interval of the watchdog of the process with this id.
fn watchdog_interval(
    variable: impl Fn(&'static str) -> Option<String>,
    own_id: u32,
) -> Option<Duration> {
    let is_for_another = variable("WATCHDOG_PID").is_some_and(|id| id != own_id.to_string());
    let micros = variable("WATCHDOG_USEC")?.parse().ok().filter(|micros| *micros > 0)?;
    (!is_for_another).then(|| Duration::from_micros(micros))
}

/// Whether standard output is the journal: `JOURNAL_STREAM` names its device and inode.
pub(crate) fn is_stdout_journal() -> bool {
    let stream = std::env::var("JOURNAL_STREAM").unwrap_or_default();
    rustix::fs::fstat(std::io::stdout())
        .is_ok_and(|stat| is_stream(&stream, stat.st_dev, stat.st_ino))
}

fn is_stream(stream: &str, device: u64, inode: u64) -> bool {
    stream
        .split_once(':')
        .is_some_and(|(left, right)| left.parse() == Ok(device) && right.parse() == Ok(inode))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn states_go_to_sockets_with_a_path_and_to_abstract_ones() {
        let name = format!("visavis-notify-{}", std::process::id());
        let path = std::env::temp_dir().join(&name);
        let _ = std::fs::remove_file(&path);
        let sockets = [
            (UnixDatagram::bind(&path).unwrap(), path.as_os_str().as_bytes().to_vec()),
            (
                UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap(),
                format!("@{name}").into_bytes(),
            ),
        ];
        for (socket, name) in sockets {
            let notifier = Notifier::of(&name).unwrap();
            notifier.send("READY=1");
            assert_eq!(received(&socket), "READY=1");
            notifier.send_status("two\nlines");
            assert_eq!(received(&socket), "STATUS=two lines");
        }
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn the_watchdog_of_another_process_is_not_fed() {
        for (usec, pid, expected) in [
            (Some("3000000"), None, Some(3)),
            (Some("3000000"), Some("7"), Some(3)),
            (Some("3000000"), Some("8"), None),
            (Some("0"), None, None),
            (Some("soon"), None, None),
            (None, None, None),
        ] {
            let variable = |name| match name {
                "WATCHDOG_USEC" => usec.map(str::to_owned),
                _ => pid.map(str::to_owned),
            };
            let interval = watchdog_interval(variable, 7);
            assert_eq!(interval, expected.map(Duration::from_secs), "{usec:?} {pid:?}");
        }
    }

    #[test]
    fn the_journal_is_recognized_by_device_and_inode() {
        assert!(is_stream("9:1234", 9, 1234));
        for other in ["9:1235", "8:1234", "", "9", "9:", "a:b"] {
            assert!(!is_stream(other, 9, 1234), "{other}");
        }
    }
}
