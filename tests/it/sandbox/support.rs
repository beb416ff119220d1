//! A home with keys, and the program with servers that try to get at them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::watched;

/// A server that runs what it is told.
const SERVER: &str = include_str!("server.py");
/// How long to wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);

/// A home directory: with a key, a note, a folder for work, and the server.
pub(super) struct Home(tempfile::TempDir);

impl Home {
    pub(super) fn new() -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        for folder in [".ssh", "desk", "tools"] {
            std::fs::create_dir(home.at(folder)).unwrap();
        }
        for (file, text) in [(".ssh/id", "a planted key"), ("note", "a note"), ("tools/server.py", SERVER)] {
            std::fs::write(home.at(file), text).unwrap();
        }
        home
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Returns the entry of the server with this sandbox.
    pub(super) fn entry(&self, sandbox: &Value) -> Value {
        json!({
            "command": "python3", "args": [self.at("tools/server.py")], "env": { "REAL": self.0.path() },
            "inheritEnv": ["SSH_AUTH_SOCK", "DBUS_*", "DOCKER_HOST"], "sandbox": sandbox,
            "restart": { "minDelay": "20ms", "maxDelay": "100ms", "maxRetries": 1 },
        })
    }

    /// Writes the config: at once, as an editor does.
    pub(super) fn write(&self, servers: &Value) {
        std::fs::write(self.at("new.json"), json!({ "mcpServers": servers }).to_string()).unwrap();
        std::fs::rename(self.at("new.json"), self.at("mcp.json")).unwrap();
    }

    /// Returns a command of the program with this home.
    pub(super) fn command(&self, arguments: &[&str]) -> Command {
        self.command_by(env!("CARGO_BIN_EXE_mcp-host").as_ref(), &[], arguments)
    }

    /// Returns a command that another program starts, which takes these words first.
    pub(super) fn command_by(&self, program: &Path, first: &[&str], arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(first).args(arguments).arg("--config").arg(self.at("mcp.json")).current_dir(self.0.path());
        command.env_clear().env("HOME", self.0.path()).env("PATH", std::env::var_os("PATH").unwrap());
        command
    }

    pub(super) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Starts the program as a stdio server with these servers.
    pub(super) fn start(&self, servers: &Value) -> Program {
        self.write(servers);
        let mut command = self.command(&["stdio"]);
        command
            .env("SSH_AUTH_SOCK", self.at("agent"))
            .env("XDG_RUNTIME_DIR", self.0.path())
            .env("DOCKER_HOST", "unix:///x");
        Program::start(command)
    }
}

/// The program as a stdio server; killed when dropped.
pub(super) struct Program {
    pub(super) child: Child,
    lines: Receiver<String>,
    count: u64,
}

impl Program {
    pub(super) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
        let mut child = command.spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut program = Self { child, lines, count: 0 };
        program.ask(
            "initialize",
            &json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } }),
        );
        program.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        program
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.child.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    fn ask(&mut self, method: &str, params: &Value) -> Value {
        self.count += 1;
        let id = json!(self.count);
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let line = self.lines.recv_timeout(PATIENCE).unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message.get("id") == Some(&id) && message.get("method").is_none() {
                return message;
            }
        }
    }

    /// Runs Python in a server. Returns what it says, or how it fails.
    pub(super) fn run(&mut self, server: &str, code: &str) -> Result<String, String> {
        let params = json!({ "name": format!("{server}__run"), "arguments": { "code": code } });
        let answer = self.ask("tools/call", &params);
        let Some(text) = answer["result"]["content"][0]["text"].as_str() else { return Err(answer.to_string()) };
        if answer["result"]["isError"] == true { Err(text.to_owned()) } else { Ok(text.to_owned()) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tries until there is a result.
pub(super) fn wait<T>(found: impl FnMut() -> Option<T>) -> T {
    watched::wait(PATIENCE, found)
}

/// Reports whether this machine lets bubblewrap make namespaces. If not, says so; in CI it has to.
#[expect(clippy::print_stderr, reason = "a test that was not possible says so")]
pub(super) fn can_have_namespaces(test: &str) -> bool {
    let mut command = Command::new("bwrap");
    command.args(["--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]);
    command.args(["--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "true"]);
    let found = command.output();
    let can = found.as_ref().is_ok_and(|output| output.status.success());
    assert!(can || std::env::var_os("CI").is_none(), "{test} needs bubblewrap: {found:?}");
    if !can {
        eprintln!("{test} was not possible: no namespaces by bubblewrap: {found:?}");
    }
    can
}
