//! The daemon, its signals, its status socket.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::support::{config, entry};

/// The program with its own home and no other environment.
pub(crate) fn mcp_host(home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-host"));
    let places = ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"];
    command.env_clear().envs(places.map(|place| (place, home))).current_dir(home).args(args).stdin(Stdio::null());
    command
}

/// A daemon; killed when dropped.
pub(crate) struct Daemon {
    pub(super) child: Child,
    pub(crate) port: String,
    said: Receiver<String>,
    /// Unclaimed output: its two streams are in no order.
    heard: RefCell<Vec<String>>,
}

impl Daemon {
    /// Starts a daemon and collects its stdout and stderr, as lines.
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let (sender, said) = channel();
        let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let streams: [Box<dyn std::io::Read + Send>; 2] = [Box::new(out), Box::new(err)];
        for stream in streams {
            let sender = sender.clone();
            std::thread::spawn(move || {
                BufReader::new(stream).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
            });
        }
        let mut daemon = Self { child, port: String::new(), said, heard: RefCell::default() };
        let line = daemon.hears("listening");
        let port = line.split("127.0.0.1:").nth(1).unwrap_or_else(|| panic!("{line}"));
        daemon.port = port.chars().take_while(char::is_ascii_digit).collect();
        daemon
    }

    /// Ends it cleanly, and returns its unclaimed output.
    #[cfg(feature = "cli")]
    pub(crate) fn end(&mut self) -> Vec<String> {
        self.signal(Signal::TERM);
        self.child.wait().unwrap();
        self.heard.borrow_mut().drain(..).chain(self.said.iter()).collect()
    }

    /// Waits for a line with this text; each line is heard once.
    pub(crate) fn hears(&self, text: &str) -> String {
        let mut heard = self.heard.borrow_mut();
        if let Some(at) = heard.iter().position(|line| line.contains(text)) {
            return heard.remove(at);
        }
        loop {
            let line = self.said.recv_timeout(Duration::from_secs(20));
            let line = line.unwrap_or_else(|_| panic!("not heard: {text:?}; but: {heard:#?}"));
            if line.contains(text) {
                return line;
            }
            heard.push(line);
        }
    }

    /// Returns the id of its process.
    #[cfg(feature = "cli")]
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(super) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends one word over the status socket, and returns the reply.
fn ask(home: &Path, port: &str, word: &str) -> Value {
    let mut socket = UnixStream::connect(home.join(format!("mcp-host/{port}.sock"))).unwrap();
    writeln!(socket, "{word}").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    serde_json::from_str(&answer).unwrap()
}

#[test]
fn h95_a_second_signal_waits_for_nobody() {
    let home = tempfile::tempdir().unwrap();
    let script = r#"trap '' TERM; "$0" __demo-server; sleep 600 & wait"#;
    let stubborn = json!({ "command": "/bin/sh", "args": ["-c", script, env!("CARGO_BIN_EXE_mcp-host")] });
    std::fs::write(home.path().join("mcp.json"), config(&json!({ "a": stubborn }))).unwrap();
    let mut daemon = Daemon::start(mcp_host(home.path(), &["serve", "-c", "mcp.json", "--listen", "127.0.0.1:0"]));
    daemon.hears("✓ a");
    let begun = std::time::Instant::now();
    daemon.signal(Signal::TERM);
    daemon.hears("stopping: waiting for servers to end");
    daemon.signal(Signal::TERM);
    assert_eq!(daemon.child.wait().unwrap().code(), Some(130));
    // Waiting patiently would have taken five seconds.
    assert!(begun.elapsed() < Duration::from_millis(4500), "{:?}", begun.elapsed());
}

#[test]
fn h91_a_daemon_tells_what_it_goes_by() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("mcp.json");
    std::fs::write(&file, config(&json!({ "a": entry("1") }))).unwrap();
    let daemon = Daemon::start(mcp_host(home.path(), &["serve", "--config", "mcp.json", "--listen", "127.0.0.1:0"]));
    daemon.hears("✓ a");
    std::fs::write(&file, "{\n  \"mcpServers\": { \"a\": { \"command\": \"a\", \"callTimeout\": 5 } }\n}").unwrap();
    daemon.signal(Signal::HUP);
    daemon.hears("warning: config not reloaded: mcp.json:2: server \"a\": callTimeout: 5 has no unit");
    let status = mcp_host(home.path(), &["status"]).output().unwrap();
    let shown = String::from_utf8(status.stdout).unwrap();
    assert!(shown.starts_with("config: not reloaded: mcp.json:2: server \"a\": callTimeout"), "{shown}");
    assert!(shown.contains("connected"), "{shown}");

    let refused = ask(home.path(), &daemon.port, "reload");
    assert_eq!(refused["reloaded"], false, "{refused}");
    std::fs::write(&file, config(&json!({ "a": entry("1"), "b": entry("1") }))).unwrap();
    // It may have noticed by itself by the time it is asked.
    let done = ask(home.path(), &daemon.port, "reload");
    assert_eq!(done["reloaded"], true, "{done}");
    daemon.hears("config reloaded: ");
    daemon.hears("✓ b");
    let status = ask(home.path(), &daemon.port, "status");
    assert_eq!(status["config"]["problems"], Value::Null, "{status}");
    assert!(ask(home.path(), &daemon.port, "sing")["error"].is_string());
    daemon.signal(Signal::TERM);
    daemon.hears("stopped");
}

/// An unusable entry changes nothing for the others.
#[test]
fn first_hour_h4_a_daemon_takes_a_file_with_an_entry_that_fails() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("mcp.json");
    std::fs::write(&file, config(&json!({ "a": entry("1"), "lan": entry("1") }))).unwrap();
    let daemon = Daemon::start(mcp_host(home.path(), &["serve", "--config", "mcp.json", "--listen", "127.0.0.1:0"]));
    daemon.hears("✓ a");
    daemon.hears("✓ lan");
    let pid = |status: &Value| status["servers"][0]["pids"].clone();
    let before = pid(&ask(home.path(), &daemon.port, "status"));
    let lan = json!({ "url": "http://homeassistant.local:8123/mcp" });
    std::fs::write(&file, config(&json!({ "a": entry("1"), "lan": lan }))).unwrap();
    let done = ask(home.path(), &daemon.port, "reload");
    assert_eq!(done["reloaded"], true, "{done}");
    let status = ask(home.path(), &daemon.port, "status");
    assert_eq!(pid(&status), before, "{status}");
    let lan = &status["servers"][1];
    assert_eq!((&lan["name"], &lan["state"]), (&json!("lan"), &json!("failed")), "{status}");
    let why = lan["lastError"].as_str().unwrap();
    assert!(why.starts_with("url: plain http beyond this machine") && why.contains("\"insecureHttp\": true"), "{why}");
    daemon.signal(Signal::TERM);
    daemon.hears("stopped");
}

/// The project is the one in which the daemon was started, even after its file changes.
#[test]
fn first_hour_h8_a_daemon_follows_claude_codes_projects() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().canonicalize().unwrap();
    let shop = root.join("shop");
    std::fs::create_dir(&shop).unwrap();
    let write = |local: Value| {
        let projects = json!({ shop.to_str().unwrap(): { "mcpServers": local } });
        let text = json!({ "mcpServers": { "a": entry("1") }, "projects": projects }).to_string();
        std::fs::write(root.join(".claude.json"), text).unwrap();
    };
    write(json!({ "b": entry("1") }));
    let mut command = mcp_host(&root, &["serve", "--config", "../.claude.json", "--listen", "127.0.0.1:0"]);
    command.current_dir(&shop);
    let daemon = Daemon::start(command);
    daemon.hears("✓ b");
    write(json!({ "b": entry("1"), "c": entry("1") }));
    daemon.hears("✓ c");
    daemon.signal(Signal::TERM);
    daemon.hears("stopped");
}

#[test]
fn a_renewed_certificate_is_noticed() {
    let home = tempfile::tempdir().unwrap();
    let renew = || {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        std::fs::write(home.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
        std::fs::write(home.path().join("cert.pem"), made.cert.pem()).unwrap();
    };
    renew();
    let text = json!({ "mcpServers": {}, "host": { "tls": { "cert": "cert.pem", "key": "key.pem" } } }).to_string();
    std::fs::write(home.path().join("mcp.json"), text).unwrap();
    let daemon = Daemon::start(mcp_host(home.path(), &["serve", "--listen", "127.0.0.1:0", "--config", "mcp.json"]));
    renew();
    daemon.hears("config reloaded");
    assert_eq!(ask(home.path(), &daemon.port, "status")["config"]["pending"], Value::Null);
}
