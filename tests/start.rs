//! How a server starts and stops: what it prints and logs, where it listens, what it tells a service
//! manager. The server runs without models, so it takes no calls.

#![allow(clippy::expect_used, clippy::unwrap_used, reason = "a failure ends the test")]

use std::fs;
use std::io::{BufRead as _, BufReader, Lines, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Output, Stdio};

use serde_json::Value;
use socket2::{Domain, Socket, Type};

struct TempFolder(PathBuf);

impl TempFolder {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("visavis-start-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn data(&self) -> String {
        self.path("data").display().to_string()
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A command of the program without variables of this process.
fn visavis(folder: &TempFolder, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_visavis"));
    command.args(arguments).current_dir(&folder.0).env_clear();
    command.env("VISAVIS_MODELS_DIR", folder.path("no-models"));
    command.env("VISAVIS_MEDIA_THREADS", "2");
    command
}

/// A process that ends at the latest with its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that runs until it is stopped or dropped.
struct Server {
    process: Process,
    out: Lines<BufReader<ChildStdout>>,
    log: Lines<BufReader<ChildStderr>>,
    /// The link of the first line, without its scheme.
    address: String,
}

impl Server {
    /// Starts it with the data folder `data` and reads its first line.
    fn start(folder: &TempFolder, listen: &str, variables: &[(&str, &str)]) -> Self {
        let mut server = Self::spawn(folder, listen, variables);
        let line = server.line();
        let address = line.strip_prefix("Visavis is listening on http://");
        server.address = address.unwrap_or_else(|| panic!("{line}")).to_owned();
        server
    }

    fn spawn(folder: &TempFolder, listen: &str, variables: &[(&str, &str)]) -> Self {
        let data = folder.data();
        let mut command = visavis(folder, &["serve", "--listen", listen, "--data", &data]);
        command.envs(variables.iter().copied());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap()).lines();
        let log = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { process: Process(child), out, log, address: String::new() }
    }

    /// The next line of standard output.
    fn line(&mut self) -> String {
        match self.out.next() {
            Some(line) => line.unwrap(),
            None => {
                let log: Vec<String> = self.log.by_ref().map(Result::unwrap).collect();
                panic!("the server has stopped: {}", log.join("\n"))
            }
        }
    }

    /// The next line of the log that contains `text`.
    fn log_line(&mut self, text: &str) -> String {
        let mut lines = self.log.by_ref().map(Result::unwrap);
        lines.find(|line| line.contains(text)).unwrap_or_else(|| panic!("no line has {text:?}"))
    }

    fn signal(&self, name: &str) {
        let id = self.process.0.id().to_string();
        assert!(Command::new("kill").args(["-s", name, &id]).status().unwrap().success());
    }

    /// Sends a signal and waits for the end of the process. Returns its exit status and the rest of
    /// its log.
    fn stop(mut self, signal: &str) -> (Option<i32>, String) {
        self.signal(signal);
        let log: Vec<String> = self.log.by_ref().map(Result::unwrap).collect();
        (self.process.0.wait().unwrap().code(), log.join("\n"))
    }
}

/// Status and body of a GET request.
fn get(address: &str, path: &str, key: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n");
    write!(stream, "{head}x-api-key: {key}\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (status, text.split_once("\r\n\r\n").unwrap().1.to_owned())
}

/// Status and body of `/readyz` once it has a reason that contains `text`.
fn wait_for_reason(address: &str, text: &str) -> (u16, Value) {
    loop {
        let (status, body) = get(address, "/readyz", "");
        let body: Value = serde_json::from_str(&body).unwrap();
        if body["reason"].as_str().is_some_and(|reason| reason.contains(text)) {
            return (status, body);
        }
    }
}

/// A port that refuses connections while the socket exists.
fn refusing_port() -> (Socket, u16) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    let port = socket.local_addr().unwrap().as_socket().unwrap().port();
    (socket, port)
}

fn text(output: &Output) -> String {
    let all = [&output.stdout[..], &output.stderr].concat();
    String::from_utf8(all).unwrap()
}

#[test]
fn a_first_start_prints_the_key_and_a_later_one_how_to_make_another() {
    let folder = TempFolder::new("key");
    let mut server = Server::start(&folder, "0", &[]);
    assert!(server.address.starts_with("127.0.0.1:"), "{}", server.address);
    let line = server.line();
    let key = line.strip_prefix("API key: ").unwrap_or_else(|| panic!("{line}")).to_owned();
    assert_eq!(get(&server.address, "/v1/ext/agent", &key).0, 200);
    let line = server.line();
    assert!(line.starts_with("No demo: cannot load the VAD model "), "{line}");
    assert!(!folder.path("data/first.key").exists());
    assert_eq!(server.stop("TERM").0, Some(0));

    let mut server = Server::start(&folder, "localhost:0", &[]);
    let data = folder.data();
    let expected =
        format!("For another API key: visavis keys create --workspace default --data {data}");
    assert_eq!(server.line(), expected);
    let command: Vec<&str> = expected.rsplit_once("visavis ").unwrap().1.split(' ').collect();
    let made = visavis(&folder, &command).output().unwrap();
    assert_eq!(get(&server.address, "/v1/ext/agent", text(&made).trim()).0, 200);
}

#[test]
fn a_given_key_is_not_printed() {
    let folder = TempFolder::new("given");
    let variables = [("VISAVIS_API_KEY", "key-of-the-operator")];
    let mut server = Server::start(&folder, "0", &variables);
    let line = server.line();
    assert!(line.starts_with("No demo: "), "{line}");
    assert_eq!(get(&server.address, "/v1/ext/agent", "key-of-the-operator").0, 200);
}

/// Checks that the next line names a private file with a key that works.
#[track_caller]
fn assert_key_in_file(folder: &TempFolder, address: &str, line: &str) {
    let file = folder.path("data/first.key");
    assert_eq!(line, format!("API key: in {}", file.display()));
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let key = fs::read_to_string(&file).unwrap();
    assert_eq!(get(address, "/v1/ext/agent", key.trim()).0, 200);
}

#[test]
fn the_key_is_written_to_a_file_if_it_must_not_be_printed() {
    let folder = TempFolder::new("no-print");
    let mut server = Server::start(&folder, "0", &[("VISAVIS_SERVER_PRINT_KEY", "false")]);
    let line = server.line();
    assert_key_in_file(&folder, &server.address, &line);
}

#[test]
fn the_key_does_not_get_into_the_journal() {
    let folder = TempFolder::new("journal");
    let (reader, writer) = std::io::pipe().unwrap();
    let stat = fs::File::from(OwnedFd::from(writer.try_clone().unwrap())).metadata().unwrap();
    let data = folder.data();
    let mut command = visavis(&folder, &["serve", "--listen", "0", "--data", &data]);
    command.env("JOURNAL_STREAM", format!("{}:{}", stat.dev(), stat.ino()));
    let _server = Process(command.stdout(writer).stderr(Stdio::null()).spawn().unwrap());
    drop(command);
    let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
    let listening = lines.next().unwrap();
    let address = listening.rsplit_once("http://").unwrap().1;
    assert_key_in_file(&folder, address, &lines.next().unwrap());
}

#[test]
fn the_log_begins_with_what_has_started() {
    let folder = TempFolder::new("log");
    let mut server = Server::start(
        &folder,
        "0",
        &[
            ("VISAVIS_SERVER_LOG_FORMAT", "json"),
            ("VISAVIS_MEDIA_TCP_PORT", "0"),
            ("VISAVIS_SERVER_PUBLIC_URL", "https://talk.example.com/"),
        ],
    );
    let line: Value = serde_json::from_str(&server.log_line("the server has started")).unwrap();
    for (field, expected) in [
        ("level", "INFO"),
        ("version", env!("CARGO_PKG_VERSION")),
        ("listen", &server.address),
        ("public_url", "https://talk.example.com"),
        ("data", &folder.data()),
        ("database", "SQLite"),
        ("models", folder.path("no-models").to_str().unwrap()),
    ] {
        assert_eq!(line[field], expected, "{field}: {line}");
    }
    assert_eq!(line["media_threads"], 2, "{line}");
    assert_eq!(line["udp_ports"].as_str().unwrap().split(", ").count(), 2, "{line}");
    assert!(line["tcp_port"].as_u64().unwrap() > 0, "{line}");
    assert_eq!(line["this_machine_only"], false, "a proxy is on this machine: {line}");
    assert!(server.line().starts_with("API key: "));
    assert_eq!(server.line(), "Public address: https://talk.example.com");
}

#[test]
fn media_of_a_loopback_server_is_for_this_machine() {
    let folder = TempFolder::new("loopback");
    let mut server = Server::start(&folder, "[::1]:0", &[("VISAVIS_SERVER_LOG_FORMAT", "json")]);
    let line: Value = serde_json::from_str(&server.log_line("the server has started")).unwrap();
    assert_eq!(line["this_machine_only"], true, "{line}");
    let addresses = line["media_addresses"].as_str().unwrap();
    assert_eq!(addresses.split(", ").next(), Some("127.0.0.1"), "{line}");
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    // 127.0.0.1 in the byte order of the kernel.
    let listening = format!(" 0100007F:{:04X} ", line["tcp_port"].as_u64().unwrap());
    assert!(sockets.contains(&listening), "{listening}: {sockets}");
}

#[test]
fn an_ipv6_listener_serves_pages_and_the_api() {
    let folder = TempFolder::new("ipv6");
    let mut server = Server::start(&folder, "[::1]:0", &[]);
    assert!(server.address.starts_with("[::1]:"), "{}", server.address);
    let line = server.line();
    let key = line.strip_prefix("API key: ").unwrap().to_owned();
    let (status, page) = get(&server.address, "/", "");
    assert!(status == 200 && page.contains("Visavis"), "{status} {page}");
    assert_eq!(get(&server.address, "/v1/ext/agent", &key).0, 200);
    // The metrics are for this machine only, and it is the same machine by IPv6.
    assert_eq!(get(&server.address, "/metrics", "").0, 200);
}

#[test]
fn all_addresses_are_those_of_both_families_and_the_server_warns() {
    let folder = TempFolder::new("all");
    let mut server = Server::start(&folder, ":0", &[("VISAVIS_MEDIA_PUBLIC_IP", "127.0.0.1")]);
    server.log_line("without https");
    assert!(server.line().starts_with("API key: "));
    assert_eq!(server.line(), "Other machines need https: set server.public_url");
    let port = server.address.parse::<SocketAddr>().unwrap().port();
    for address in [format!("127.0.0.1:{port}"), format!("[::1]:{port}")] {
        assert_eq!(get(&address, "/healthz", "").0, 200);
        // Its peers are recognized as this machine, also as IPv4 addresses in IPv6.
        assert_eq!(get(&address, "/metrics", "").0, 200, "{address}");
    }
}

#[test]
fn one_udp_port_is_enough_for_several_media_threads() {
    let folder = TempFolder::new("port");
    // Another program may take the port meanwhile.
    let started = (0..100).find_map(|_| {
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let variables = [("VISAVIS_MEDIA_UDP_PORTS", &*port.to_string())];
        let mut server = Server::spawn(&folder, "0", &variables);
        server.out.next().is_some().then_some((server, port))
    });
    let (mut server, port) = started.unwrap();
    let line = server.log_line("fewer ports than 2 media threads need");
    assert!(line.contains(&port.to_string()), "{line}");
    let line = server.log_line("the server has started");
    assert!(line.contains("media_threads=1"), "{line}");
}

#[test]
fn a_media_port_of_another_program_is_named() {
    let folder = TempFolder::new("taken");
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let arguments = ["serve", "--listen", "0", "--data", &folder.data()];
    let mut command = visavis(&folder, &arguments);
    let output = command.env("VISAVIS_MEDIA_UDP_PORTS", &port).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected = format!("cannot start the engine: other programs use UDP port {port}: ");
    assert!(text(&output).contains(&expected), "{}", text(&output));
}

#[test]
fn readiness_tells_what_is_missing_and_an_embedded_agent_refuses() {
    let folder = TempFolder::new("missing");
    let mut server = Server::start(&folder, "0", &[]);
    let (status, body) = wait_for_reason(&server.address, "cannot load the VAD model");
    assert_eq!(status, 503);
    let missing = body["missing"].as_array().unwrap();
    let of = |name: &str| missing.iter().find(|model| model["name"] == name).unwrap();
    for (name, kind, needed) in [
        ("Silero VAD", "vad", true),
        ("Moonshine", "stt", true),
        ("PocketSphinx", "stt", true),
        ("smart-turn", "turn", false),
    ] {
        let model = of(name);
        assert_eq!((&model["kind"], &model["needed"]), (&kind.into(), &needed.into()), "{model}");
        let reason = model["reason"].as_str().unwrap();
        assert!(reason.contains("make setup") || reason.contains("(models.dir)"), "{model}");
    }
    let line = server.line();
    let key = line.strip_prefix("API key: ").unwrap().to_owned();
    let (_, agents) = get(&server.address, "/v1/ext/agent", &key);
    let agents: Value = serde_json::from_str(&agents).unwrap();
    let demo = agents[0]["id"].as_str().or(agents[0]["agent_id"].as_str());
    let demo = demo.unwrap_or_else(|| panic!("{agents}"));
    let mut stream = TcpStream::connect(&server.address).unwrap();
    write!(
        stream,
        "POST /embed/{demo} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: \
         application/json\r\ncontent-length: 2\r\n\r\n{{}}",
        server.address
    )
    .unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
    let expected = "{\"error\":\"Service unavailable\",\"reason\":\"cannot load the VAD model";
    assert!(reply.contains(expected), "{reply}");
}

#[test]
fn a_closed_terminal_drains_the_server_as_a_termination_does() {
    for signal in ["HUP", "TERM", "INT"] {
        let folder = TempFolder::new(&format!("stop-{signal}"));
        let server = Server::start(&folder, "0", &[]);
        let (status, log) = server.stop(signal);
        assert_eq!(status, Some(0), "{signal}: {log}");
        assert!(log.contains("draining: no new calls are accepted"), "{signal}: {log}");
    }
}

#[test]
fn the_service_manager_learns_what_the_server_does() {
    let folder = TempFolder::new("notify");
    let path = folder.path("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    let variables = [("NOTIFY_SOCKET", path.to_str().unwrap()), ("WATCHDOG_USEC", "200000")];
    let server = Server::start(&folder, "0", &variables);
    let receive_until = |last: &str| {
        let mut received = Vec::new();
        while received.last().is_none_or(|state: &String| !state.starts_with(last)) {
            let mut buffer = [0; 4096];
            let length = socket.recv(&mut buffer).unwrap();
            received.push(String::from_utf8(buffer[..length].to_vec()).unwrap());
        }
        received
    };
    receive_until("READY=1");
    let status = receive_until("STATUS=").pop().unwrap();
    assert!(status.starts_with("STATUS=takes no calls: cannot load the VAD model"), "{status}");
    // Two of them: the first one is sent at the start.
    receive_until("WATCHDOG=1");
    receive_until("WATCHDOG=1");
    server.signal("TERM");
    receive_until("STOPPING=1");
    let status = receive_until("STATUS=").pop().unwrap();
    assert_eq!(status, "STATUS=draining: no new calls are accepted");
}

#[test]
fn a_server_waits_for_its_database_and_answers_health_checks() {
    let folder = TempFolder::new("database");
    let (_socket, database) = refusing_port();
    let url = format!("postgres://visavis:secret-of-the-test@127.0.0.1:{database}/db");
    let variables = [("VISAVIS_SERVER_DATABASE_URL", &*url), ("VISAVIS_SERVER_LOG_FORMAT", "json")];
    let mut server = Server::spawn(&folder, "0", &variables);
    let line: Value = serde_json::from_str(&server.log_line("connecting to the database")).unwrap();
    let address = line["listen"].as_str().unwrap().to_owned();
    let line = server.log_line("cannot connect to the database");
    assert!(line.contains(&format!("127.0.0.1:{database}/db")), "{line}");
    assert!(line.contains("refused") && !line.contains("secret-of-the-test"), "{line}");
    assert_eq!(get(&address, "/healthz", "").0, 200);
    let (status, body) = get(&address, "/readyz", "");
    assert_eq!(status, 503);
    assert!(
        body.contains(&format!("waiting for the database at 127.0.0.1:{database}/db")),
        "{body}"
    );
    let (status, log) = server.stop("TERM");
    assert_eq!(status, Some(0), "{log}");
    assert!(!log.contains("secret-of-the-test"), "{log}");
}

#[test]
fn a_database_that_does_not_start_in_time_ends_the_start() {
    let folder = TempFolder::new("no-database");
    let (_socket, database) = refusing_port();
    let url = format!("postgres://visavis:secret-of-the-test@127.0.0.1:{database}/db");
    let arguments = ["serve", "--listen", "0", "--data", &folder.data()];
    let mut command = visavis(&folder, &arguments);
    command.env("VISAVIS_SERVER_DATABASE_URL", url).env("VISAVIS_SERVER_DATABASE_WAIT", "0");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let expected =
        format!("server.database_url: the database at 127.0.0.1:{database}/db cannot be used: ");
    assert!(text(&output).contains(&expected), "{}", text(&output));
    assert!(!text(&output).contains("secret-of-the-test"), "{}", text(&output));
}

#[test]
fn a_backup_beside_a_running_server_starts_elsewhere_with_the_same_key() {
    let folder = TempFolder::new("backup");
    let mut server = Server::start(&folder, "0", &[]);
    let line = server.line();
    let key = line.strip_prefix("API key: ").unwrap().to_owned();
    let (_, agents) = get(&server.address, "/v1/ext/agent", &key);
    let data = folder.data();
    let run = |arguments: &[&str]| {
        let output = visavis(&folder, arguments).output().unwrap();
        (output.status.code(), text(&output))
    };
    let made = run(&["backup", "copy", "--data", &data]);
    assert_eq!(made, (Some(0), format!("copy is a backup of {data}\n")));
    let (status, sentence) = run(&["backup", "copy", "--data", &data]);
    assert_eq!((status, &*sentence), (Some(1), "copy is not empty: choose another folder\n"));
    let (status, sentence) = run(&["restore", "copy", "--data", &data]);
    assert_eq!(status, Some(1), "{sentence}");
    assert!(sentence.contains("is not empty: a restore needs an empty data folder"), "{sentence}");
    assert_eq!(server.stop("TERM").0, Some(0));

    fs::rename(&data, folder.path("old")).unwrap();
    let restored = run(&["restore", "copy", "--data", &data]);
    assert_eq!(restored, (Some(0), format!("{data} is restored from copy\n")));
    let server = Server::start(&folder, "0", &[]);
    assert_eq!(get(&server.address, "/v1/ext/agent", &key), (200, agents));
    assert!(!Path::new(&data).join("backup.json").exists());
}
