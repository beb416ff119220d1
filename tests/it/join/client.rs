//! A client of `mcp-host stdio`, by hand.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

/// A client and the process that it started.
pub(super) struct Client {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    next: u64,
    /// Messages other than responses.
    pub(super) heard: Vec<Value>,
}

impl Client {
    pub(super) fn start(mut command: Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output, next: 1, heard: Vec::new() }
    }

    /// Begins its session; it cannot be asked anything.
    pub(super) fn begun(self) -> Self {
        self.begun_with(&json!({}))
    }

    /// Begins its session, with support for forms.
    pub(super) fn begun_asked(self) -> Self {
        self.begun_with(&json!({ "elicitation": {} }))
    }

    fn begun_with(mut self, capabilities: &Value) -> Self {
        let params = json!({
            "protocolVersion": "2025-11-25",
            "capabilities": capabilities,
            "clientInfo": { "name": "test", "version": "1" },
        });
        let answer = self.ask("initialize", &params);
        assert_eq!(answer["result"]["protocolVersion"], "2025-11-25", "{answer}");
        self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        self
    }

    pub(super) fn say(&self, message: &Value) {
        writeln!(self.input.as_ref().unwrap(), "{message}").unwrap();
    }

    /// Sends a request, and returns its id.
    pub(super) fn send(&mut self, method: &str, params: &Value) -> u64 {
        let id = self.next;
        self.next += 1;
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        id
    }

    pub(super) fn call(&mut self, tool: &str, arguments: &Value) -> u64 {
        self.send("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// Returns the next message; `None` at the end.
    pub(super) fn next(&mut self) -> Option<Value> {
        let mut line = String::new();
        (self.output.read_line(&mut line).unwrap() > 0).then(|| serde_json::from_str(&line).unwrap())
    }

    /// Returns the response to a request.
    pub(super) fn answer(&mut self, id: u64) -> Value {
        loop {
            let message = self.next().expect("an answer before the end");
            if message["id"] == id && message.get("method").is_none() {
                return message;
            }
            self.heard.push(message);
        }
    }

    /// Waits for a message with this method.
    pub(super) fn hears(&mut self, method: &str) -> Value {
        if let Some(at) = self.heard.iter().position(|message| message["method"] == method) {
            return self.heard.remove(at);
        }
        loop {
            let message = self.next().expect("a message before the end");
            if message["method"] == method {
                return message;
            }
            self.heard.push(message);
        }
    }

    pub(super) fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        self.answer(id)
    }

    pub(super) fn tools(&mut self) -> usize {
        self.ask("tools/list", &json!({}))["result"]["tools"].as_array().map_or(0, Vec::len)
    }

    pub(super) fn process(&self) -> &Child {
        &self.child
    }

    /// Closes its side.
    pub(super) fn close(&mut self) {
        self.input = None;
    }

    /// Closes its side, and returns the exit code and stderr of the process.
    pub(super) fn leave(mut self) -> (i32, String) {
        self.input = None;
        self.ended()
    }

    /// Waits until it ends by itself, and returns its exit code and stderr.
    pub(super) fn ended(mut self) -> (i32, String) {
        let code = self.child.wait().unwrap().code().unwrap();
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (code, text)
    }
}
