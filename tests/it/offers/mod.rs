//! Kept listings: files that were tampered with, and who sees a listing.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod poison;
mod shown;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::{Value, json};

use crate::reload::program::mcp_host;

/// A shell server. `$0` is the folder of its files: `tools` is what it lists; with `hang` it is silent; with `slow` it
/// is silent until that file is gone.
const SERVER: &str = r#"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; };
[ -e "$0/hang" ] && exec sleep 100
while [ -e "$0/slow" ]; do sleep 0.05; done
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
  case $line in
    *'"initialize"'*) reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true},"resources":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) reply "{\"tools\":[$(cat "$0/tools")]}" ;;
    *'"resources/templates/list"'*) reply '{"resourceTemplates":[]}' ;;
    *'"resources/list"'*) reply '{"resources":[{"uri":"file:///r","name":"r"}]}' ;;
    *'"tools/call"'*) reply '{"content":[]}' ;;
  esac
done"#;

const ACT: &str = r#"{"name":"act","inputSchema":{"type":"object"}}"#;

/// A folder with a state directory, and with files that control the server.
struct Home(tempfile::TempDir);

impl Home {
    fn new(tools: &str) -> Self {
        let home = Self(tempfile::tempdir().unwrap());
        home.put("tools", tools);
        home
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn put(&self, name: &str, text: &str) {
        fs::write(self.path().join(name), text).unwrap();
    }

    /// Returns the server's entry.
    fn entry(&self) -> Value {
        json!({ "command": "sh", "args": ["-c", SERVER, self.path()], "restart": { "maxRetries": 0 } })
    }
}

/// Returns the files of listings below a state directory.
fn kept(state: &Path) -> Vec<PathBuf> {
    let files = fs::read_dir(state.join("offers")).into_iter().flatten();
    files.map(|file| file.unwrap().path()).filter(|path| path.extension().is_some_and(|end| end == "json")).collect()
}

/// The program as a stdio server, and its client; ended when dropped.
struct Client {
    child: Child,
    input: Option<ChildStdin>,
    said: Receiver<Value>,
}

impl Client {
    fn start(home: &Path, args: &[&str]) -> Self {
        let mut command = mcp_host(home, args);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (sender, said) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| sender.send(serde_json::from_str(&line).unwrap()))
        });
        Self { input: child.stdin.take(), child, said }
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{message}").unwrap();
    }

    /// Initializes as a client with a session.
    fn hello(&mut self) {
        self.say(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "c", "version": "1" } } }));
        self.hears(|message| message["id"] == 0);
        self.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    }

    /// Lists the tools, and returns the result.
    fn list(&mut self, id: u64, params: &Value) -> Value {
        self.ask(id, "tools/list", params);
        self.hears(|message| message["id"] == id)["result"].clone()
    }

    fn ask(&mut self, id: u64, method: &str, params: &Value) {
        self.say(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
    }

    /// Returns the next matching message.
    fn hears(&self, wanted: impl Fn(&Value) -> bool) -> Value {
        loop {
            let message = self.said.recv_timeout(Duration::from_secs(20)).unwrap();
            if wanted(&message) {
                return message;
            }
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.input.take());
        let _ = self.child.wait();
    }
}

fn names(list: &Value) -> Vec<&str> {
    list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect()
}
