//! `mcp-host stdio` beside a daemon of the same config: one process for everyone, and a session that outlives the
//! daemon.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod apart;
mod client;
mod load;
mod losses;
mod once;
mod shut;
mod start;
mod views;
mod who;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use self::client::Client;

const PROGRAM: &str = env!("CARGO_BIN_EXE_mcp-host");

/// A home with a config of one server, which writes a line each time it is started.
struct Place {
    home: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self::with(&json!({}))
    }

    /// A home with these host settings.
    fn with(host: &Value) -> Self {
        let place = Self { home: tempfile::tempdir().unwrap() };
        place.write(&json!({ "mcpServers": { "echo": place.server() }, "host": host }));
        place
    }

    /// A home with this many servers: `echo0`, `echo1`, and so on.
    fn several(count: usize) -> Self {
        let place = Self { home: tempfile::tempdir().unwrap() };
        let servers: serde_json::Map<String, Value> =
            (0..count).map(|number| (format!("echo{number}"), place.server())).collect();
        place.write(&json!({ "mcpServers": servers }));
        place
    }

    fn server(&self) -> Value {
        let script = r#"echo started >>"$0"; exec "$1" __demo-server"#;
        json!({
            "command": "sh",
            "args": ["-c", script, self.file("starts"), PROGRAM],
            "env": { "SECRET": "${SECRET:-none}" },
        })
    }

    fn write(&self, config: &Value) {
        std::fs::write(self.file("mcp.json"), config.to_string()).unwrap();
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Returns how often the server was started.
    fn starts(&self) -> usize {
        std::fs::read_to_string(self.file("starts")).unwrap_or_default().lines().count()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(args).current_dir(self.home.path()).stdin(Stdio::null());
        command.env_clear().env("HOME", self.home.path()).env("PATH", std::env::var_os("PATH").unwrap());
        command
    }

    /// Starts a daemon, and returns once it starts its servers.
    fn serve(&self) -> Daemon {
        let args = ["serve", "--quiet", "--config", "mcp.json", "--listen", "127.0.0.1:0"];
        let (before, starts) = (self.sockets(), self.starts());
        let child = self.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let daemon = Daemon(child);
        until(|| self.sockets().iter().any(|socket| !before.contains(socket)));
        until(|| self.command(&["status"]).output().unwrap().status.success() || self.sockets().len() > 1);
        // It listens before its servers start.
        until(|| self.starts() > starts);
        daemon
    }

    fn sockets(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.file(".local/state/mcp-host"));
        let paths = entries.into_iter().flatten().flatten().map(|entry| entry.path());
        paths.filter(|path| path.extension().is_some_and(|extension| extension == "sock")).collect()
    }

    fn stdio(&self) -> Client {
        Client::start(self.command(&["stdio", "--config", "mcp.json"]))
    }
}

/// A running daemon; killed when dropped.
struct Daemon(Child);

impl Daemon {
    fn terminate(&self) {
        rustix::process::kill_process(pid(&self.0), rustix::process::Signal::TERM).unwrap();
    }

    fn wait(mut self) {
        self.0.wait().unwrap();
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if self.0.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.terminate();
            let _ = self.0.wait();
        }
    }
}

fn pid(child: &Child) -> rustix::process::Pid {
    rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

/// Waits until a condition from outside holds.
fn until(mut is_so: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !is_so() {
        assert!(std::time::Instant::now() < end, "it did not come");
        #[expect(clippy::disallowed_methods, reason = "nothing tells when a process has come so far")]
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

fn canonical(path: &Path) -> String {
    path.canonicalize().unwrap().to_string_lossy().into_owned()
}
