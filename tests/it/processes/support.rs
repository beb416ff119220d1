//! A small shell server, the program over its own pipes, and processes as Linux reports them.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::watched;
pub(super) use crate::watched::{below, is_alive, stat};

/// A shell server: answers by line; `$0` is a file that it may write to. It runs `on_call` for a call.
pub(super) fn server(on_start: &str, on_call: &str) -> String {
    [
        "reply() { printf '{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":%s}\\n' \"$id\" \"$1\"; };",
        on_start,
        r#"
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\|"[^"]*"\),.*/\1/p')
  case $line in
    *'"initialize"'*) reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) reply '{"tools":[{"name":"act","inputSchema":{"type":"object"}}]}' ;;
    *'"tools/call"'*) "#,
        on_call,
        r#" ;;
  esac
done"#,
    ]
    .concat()
}

/// A config entry that runs a script.
pub(super) fn entry(script: &str, file: &Path) -> Value {
    json!({ "command": "sh", "args": ["-c", script, file], "restart": { "minDelay": "20ms", "maxDelay": "100ms" } })
}

/// The program as a stdio server; killed when dropped.
pub(super) struct Program {
    pub(super) child: Child,
    pub(super) stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    _home: tempfile::TempDir,
}

impl Program {
    pub(super) fn start(servers: &Value) -> Self {
        Self::start_by(servers, |program| Command::new(program))
    }

    /// Starts it by a command built from its path.
    pub(super) fn start_by(servers: &Value, command: impl FnOnce(&str) -> Command) -> Self {
        Self::start_with(&json!({ "mcpServers": servers }), command)
    }

    /// Starts it with a whole config.
    pub(super) fn start_with(config: &Value, command: impl FnOnce(&str) -> Command) -> Self {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("mcp.json");
        std::fs::write(&file, config.to_string()).unwrap();
        let mut command = command(env!("CARGO_BIN_EXE_mcp-host"));
        command.args(["stdio", "--config"]).arg(&file).current_dir(home.path());
        command.env_clear().env("HOME", home.path()).env("PATH", std::env::var_os("PATH").unwrap());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        // Ctrl-C at the terminal must not reach it.
        command.process_group(0);
        let mut child = command.spawn().unwrap();
        let (stdin, out) = (child.stdin.take(), child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let mut program = Self { child, stdin, lines, _home: home };
        program.say(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } }));
        assert!(program.answer(0).get("result").is_some());
        program.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        program
    }

    pub(super) fn say(&mut self, message: &Value) {
        writeln!(self.stdin.as_mut().unwrap(), "{message}").unwrap();
    }

    pub(super) fn ask(&mut self, id: u64, method: &str, params: &Value) -> Value {
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        self.answer(id)
    }

    /// Returns its remaining output.
    pub(super) fn rest(&self) -> impl Iterator<Item = String> + '_ {
        std::iter::from_fn(|| self.lines.recv_timeout(Duration::from_secs(20)).ok())
    }

    pub(super) fn answer(&self, id: u64) -> Value {
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(60)).unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message.get("id") == Some(&json!(id)) && message.get("method").is_none() {
                return message;
            }
        }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Tries until there is a result, ten seconds at most.
pub(super) fn wait<T>(found: impl FnMut() -> Option<T>) -> T {
    watched::wait(Duration::from_secs(10), found)
}

/// Returns the guard of a host.
pub(super) fn guard_of(host: u32) -> Option<u32> {
    let is_guard =
        |pid: &u32| std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "mcp-host-guard\n");
    below(host).into_iter().find(is_guard)
}

pub(super) fn assert_gone(pids: impl IntoIterator<Item = u32>, within: Duration) {
    let (pids, begun): (Vec<u32>, _) = (pids.into_iter().collect(), Instant::now());
    wait(|| {
        let left: Vec<u32> = pids.iter().copied().filter(|pid| is_alive(*pid)).collect();
        assert!(left.is_empty() || begun.elapsed() < within, "alive: {left:?}");
        left.is_empty().then_some(())
    });
}
