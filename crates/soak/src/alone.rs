//! A client with a host of its own (`mcp-host stdio --own`), over its pipes.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use serde_json::{Value, json};

use crate::joined;

/// Longer than a host waits for any server.
const PATIENCE: Duration = Duration::from_secs(60);

/// The client, and its host; killed when dropped.
#[derive(Debug)]
pub(crate) struct Alone {
    child: Child,
    input: Option<ChildStdin>,
    said: Receiver<String>,
    log: Receiver<String>,
    count: u64,
    /// How often it was told that a list has changed.
    pub(crate) changes: usize,
}

/// Passes lines on, to the end, so that the host never blocks on a full pipe.
fn lines(pipe: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (says, said) = mpsc::channel();
    std::thread::spawn(move || BufReader::new(pipe).lines().map_while(Result::ok).all(|line| says.send(line).is_ok()));
    said
}

impl Alone {
    /// Starts the host, and begins a session.
    pub(crate) fn start(host: &Path, home: &Path, config: &Path) -> Result<Self, String> {
        let mut command = joined::command(host, home, config);
        command.arg("--own").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let (input, output) = (child.stdin.take(), child.stdout.take().ok_or("no stdout")?);
        let log = lines(child.stderr.take().ok_or("no stderr")?);
        let mut alone = Self { child, input, said: lines(output), log, count: 0, changes: 0 };
        let who = json!({ "name": "soak", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who });
        alone.ask("initialize", &hello)?;
        alone.write(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(alone)
    }

    fn write(&mut self, message: &Value) -> Result<(), String> {
        let input = self.input.as_mut().ok_or("its input is closed")?;
        writeln!(input, "{message}").map_err(|error| error.to_string())
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, method: &str, params: &Value) -> Result<(), String> {
        self.count += 1;
        self.write(&json!({ "jsonrpc": "2.0", "id": self.count, "method": method, "params": params }))
    }

    /// Returns the next response. Counts the notices before it.
    pub(crate) fn next(&mut self) -> Result<Value, String> {
        loop {
            let line = self.said.recv_timeout(PATIENCE).map_err(|_| "no answer")?;
            let message: Value = serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?;
            match message["method"].as_str() {
                Some(method) => self.changes += usize::from(method.ends_with("/list_changed")),
                None => return Ok(message),
            }
        }
    }

    /// Makes one request, while no other is under way.
    pub(crate) fn ask(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.send(method, params)?;
        let answer = self.next()?;
        if answer["result"].is_object() { Ok(answer) } else { Err(format!("{method}: {answer}")) }
    }

    /// Returns the id of the request that was sent last.
    pub(crate) fn sent(&self) -> u64 {
        self.count
    }

    /// Cancels a request. There is no answer to it then.
    pub(crate) fn cancel(&mut self, id: u64) -> Result<(), String> {
        self.write(&json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": id } }))
    }

    /// Returns the process id of the host.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Counts the notices that came meanwhile, while no request is under way.
    pub(crate) fn hear(&mut self) {
        self.changes += self.said.try_iter().filter(|line| line.contains("/list_changed\"")).count();
    }

    /// Returns what the host wrote to its log since this was last asked.
    pub(crate) fn logged(&self) -> Vec<String> {
        self.log.try_iter().collect()
    }

    /// Ends the session, and waits until the host has ended.
    pub(crate) fn end(mut self) -> Result<(), String> {
        drop(self.input.take());
        let status = self.child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("the host ended with {status}")) }
    }
}

impl Drop for Alone {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
