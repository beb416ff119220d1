//! A client that connects through a relay: `mcp-host stdio` beside a running daemon of the same config, which it joins
//! over its socket.
//!
//! A process that finds no daemon becomes a host itself, and would test nothing here. So a relay counts once it has
//! reported on stderr that it joined. Any further word is a fault while its daemon lives: it would report that it was
//! cut off, or became a host of its own.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

use crate::client::Answer;
use crate::process;

/// The first words of a relay.
const JOINED: &str = "note: joined the mcp-host";
/// How long a relay may take to join: it waits at most a second for each reply of the daemon.
const JOINS: Duration = Duration::from_secs(10);
/// How long a relay may outlive its client's input: 2.5 s are promised, and the machine is busy.
pub(crate) const ENDED: Duration = Duration::from_millis(3500);
/// Longer than a daemon waits for any server.
const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the command of a relay beside the daemon of a stage, in the same environment.
pub(crate) fn command(host: &Path, home: &Path, config: &Path) -> Command {
    let mut command = Command::new(host);
    command.arg("stdio").arg("--config").arg(config).current_dir(home);
    command.env_clear().env("HOME", home).env("XDG_RUNTIME_DIR", home);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

/// A relay that has joined a daemon; killed when dropped.
#[derive(Debug)]
pub(crate) struct Joined {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<ChildStdout>,
    /// Everything on stderr after its first line, once it is closed.
    said: mpsc::Receiver<String>,
}

impl Joined {
    /// Starts a relay, and blocks until it has joined.
    pub(crate) fn start(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let mut errors = BufReader::new(child.stderr.take().ok_or("no stderr")?);
        let (says, said) = mpsc::channel();
        // Reads to the end, so that the relay never blocks on a full pipe.
        std::thread::spawn(move || {
            let (mut first, mut rest) = (String::new(), Vec::new());
            let _ = errors.read_line(&mut first);
            let _ = says.send(first);
            let _ = errors.read_to_end(&mut rest);
            let _ = says.send(String::from_utf8_lossy(&rest).into_owned());
        });
        let joined = Self { child, input, output, said };
        match joined.said.recv_timeout(JOINS) {
            Ok(first) if first.starts_with(JOINED) => Ok(joined),
            Ok(first) => Err(format!("a relay did not join: {first:?}")),
            Err(_) => Err(format!("a relay did not join, and said nothing of it in {JOINS:?}")),
        }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Takes the client's ends of its pipes, once.
    pub(crate) fn pipes(&mut self) -> Result<(ChildStdin, ChildStdout), String> {
        self.input.take().zip(self.output.take()).ok_or_else(|| "its pipes are taken".to_owned())
    }

    /// Writes a line to it, heard or not.
    pub(crate) fn say(&mut self, line: &str) {
        let _ = self.input.as_mut().map(|input| writeln!(input, "{line}"));
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|ended| ended.is_none())
    }

    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Closes its stdin if still open. Blocks until it ends, and returns its status and its stderr since it joined.
    pub(crate) fn leave(mut self, patience: Duration) -> Result<(ExitStatus, String), String> {
        self.input = None;
        let begun = Instant::now();
        let status = loop {
            match self.child.try_wait().map_err(|error| error.to_string())? {
                Some(status) => break status,
                None if begun.elapsed() > patience => {
                    self.kill();
                    let said = self.said.recv_timeout(patience).unwrap_or_default();
                    return Err(format!("a relay is alive {patience:?} after the end of its input, and said {said:?}"));
                }
                None => process::pause(Duration::from_millis(5)),
            }
        };
        let said =
            self.said.recv_timeout(patience).map_err(|_| "another process holds the stderr of a relay that is gone")?;
        Ok((status, said))
    }

    /// Like `leave`, while its daemon lives: it must end successfully, and silently.
    pub(crate) fn end(self) -> Result<(), String> {
        match self.leave(ENDED)? {
            (status, said) if status.success() && said.is_empty() => Ok(()),
            (status, said) => Err(format!("a relay ended with {status} and said {said:?}")),
        }
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A session through a relay, one request after the other.
#[derive(Debug)]
pub(crate) struct Caller {
    input: tokio::process::ChildStdin,
    lines: tokio::io::Lines<tokio::io::BufReader<tokio::process::ChildStdout>>,
    relay: Joined,
}

impl Caller {
    /// Starts a relay and opens a session.
    pub(crate) async fn open(command: Command) -> Result<Self, String> {
        let relay = tokio::task::spawn_blocking(|| Joined::start(command)).await;
        Self::begin(relay.map_err(|error| error.to_string())??).await
    }

    /// Opens a session.
    pub(crate) async fn begin(mut relay: Joined) -> Result<Self, String> {
        let (input, output) = relay.pipes()?;
        let input = tokio::process::ChildStdin::from_std(input).map_err(|error| error.to_string())?;
        let output = tokio::process::ChildStdout::from_std(output).map_err(|error| error.to_string())?;
        let lines = tokio::io::BufReader::new(output).lines();
        let mut caller = Self { input, lines, relay };
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "soak", "version": "1" } });
        match caller.ask(0, "initialize", &params).await {
            Answer::One(answer) if answer["result"].is_object() => {}
            other => return Err(format!("no session through a relay: {other:?}")),
        }
        caller.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
        Ok(caller)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.relay.pid()
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.relay.is_running()
    }

    /// Calls a tool.
    pub(crate) async fn call(&mut self, id: u64, name: &str, arguments: &Value) -> Answer {
        self.ask(id, "tools/call", &json!({ "name": name, "arguments": arguments })).await
    }

    /// Sends a request and returns its response; no other response may come first.
    pub(crate) async fn ask(&mut self, id: u64, method: &str, params: &Value) -> Answer {
        if self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })).await.is_err() {
            return Answer::Closed;
        }
        match timeout(PATIENCE, self.answer()).await {
            Ok(Ok(Some(answer))) if answer["id"] == id => Answer::One(answer),
            Ok(Ok(Some(answer))) => Answer::Wrong(format!("not the answer to {id}: {answer}")),
            Ok(Ok(None)) => Answer::Closed,
            Ok(Err(wrong)) => Answer::Wrong(wrong),
            Err(_) => Answer::Wrong(format!("{method} {id} has no answer after {PATIENCE:?}")),
        }
    }

    /// Returns the next response; `None` at the end.
    async fn answer(&mut self) -> Result<Option<Value>, String> {
        while let Some(line) = self.lines.next_line().await.map_err(|error| error.to_string())? {
            let message: Value = serde_json::from_str(&line).map_err(|error| format!("no message: {error}"))?;
            match (message.get("method"), message.get("id")) {
                (None, _) => return Ok(Some(message)),
                (Some(_), Some(id)) => self.say(&json!({ "jsonrpc": "2.0", "id": id, "result": {} })).await?,
                (Some(_), None) => {}
            }
        }
        Ok(None)
    }

    async fn say(&mut self, message: &Value) -> Result<(), String> {
        self.input.write_all(format!("{message}\n").as_bytes()).await.map_err(|error| error.to_string())
    }

    /// Closes its side; any response after that is one too many.
    pub(crate) async fn end(self) -> Result<(), String> {
        let relay = self.close(ENDED).await?;
        tokio::task::spawn_blocking(|| relay.end()).await.map_err(|error| error.to_string())?
    }

    /// Like `end`, with its daemon gone: returns its status and its stderr since it joined.
    pub(crate) async fn leave(self, patience: Duration) -> Result<(ExitStatus, String), String> {
        let relay = self.close(patience).await?;
        tokio::task::spawn_blocking(move || relay.leave(patience)).await.map_err(|error| error.to_string())?
    }

    async fn close(self, patience: Duration) -> Result<Joined, String> {
        let Self { input, mut lines, relay } = self;
        drop(input);
        let rest = async {
            while let Some(line) = lines.next_line().await.map_err(|error| error.to_string())? {
                let message: Value = serde_json::from_str(&line).map_err(|error| format!("no message: {error}"))?;
                if message.get("method").is_none() {
                    return Err(format!("an answer to nothing: {message}"));
                }
            }
            Ok(())
        };
        let ended = timeout(patience, rest).await;
        ended.map_err(|_| format!("a relay writes {patience:?} after the end of its input"))??;
        Ok(relay)
    }

    /// Kills the relay.
    pub(crate) fn kill(mut self) {
        self.relay.kill();
    }
}
