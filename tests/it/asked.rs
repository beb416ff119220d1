//! Questions of a server behind pipes to a client without a session: calls that must not be confused with each other,
//! and calls whose host is gone.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

/// The program, serving its own demo server as a child process.
struct Daemon {
    child: Child,
    address: String,
}

impl Daemon {
    fn start(home: &Path) -> Self {
        let program = env!("CARGO_BIN_EXE_mcp-host");
        let file = home.join("mcp.json");
        let config = json!({ "mcpServers": { "echo": { "command": program, "args": ["__demo-server"] } } });
        std::fs::write(&file, config.to_string()).unwrap();
        let places = ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "USERPROFILE", "APPDATA"];
        let mut child = Command::new(program)
            .env_clear()
            .envs(places.map(|place| (place, home)))
            .args(["serve", "--listen", "127.0.0.1:0", "--config"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().trim_start_matches("listening on http://").trim_end_matches("/mcp").to_owned();
        Self { child, address }
    }

    /// Calls `echo__ask` and returns the response; `more` holds further members of the params.
    fn ask(&self, more: &Value) -> Value {
        let mut params = json!({ "name": "echo__ask", "arguments": {} });
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
        });
        for (name, value) in more.as_object().unwrap() {
            params[name] = value.clone();
        }
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\
             MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: echo__ask\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream.write_all(body.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        // As JSON, or as an event of a stream in pieces.
        let json = answer.lines().find_map(|line| {
            let line = line.strip_prefix("data: ").unwrap_or(line);
            line.starts_with('{').then(|| serde_json::from_str::<Value>(line).unwrap())
        });
        json.unwrap_or_else(|| panic!("no answer in {answer}"))
    }

    /// Answers the questions of a result.
    fn tell(&self, asked: &Value, name: &str) -> Value {
        let requests =
            asked["result"]["inputRequests"].as_object().unwrap_or_else(|| panic!("no questions in {asked}"));
        let key = requests.keys().next().unwrap();
        let answer = json!({ "action": "accept", "content": { "name": name } });
        self.ask(&json!({ "inputResponses": { (key): answer }, "requestState": asked["result"]["requestState"] }))
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {answer}"))
}

/// Over pipes a question does not say during which call it is asked, and the person asked during one call may need the
/// other first.
#[test]
fn race_16_a_call_that_waits_for_its_client_holds_up_no_other() {
    let home = tempfile::tempdir().unwrap();
    let daemon = Daemon::start(home.path());
    let first = daemon.ask(&json!({}));
    assert_eq!(text(&daemon.tell(&first, "Ada")), "Hello Ada.");
    let (waiting, beside) = (daemon.ask(&json!({})), daemon.ask(&json!({})));
    assert_eq!(text(&daemon.tell(&beside, "Bob")), "Hello Bob.");
    assert_eq!(text(&daemon.tell(&waiting, "Cy")), "Hello Cy.");
}

#[test]
fn a_call_that_waited_in_a_host_that_is_gone_is_told_so_and_not_run_again() {
    let home = tempfile::tempdir().unwrap();
    let asked = Daemon::start(home.path()).ask(&json!({}));
    let restarted = Daemon::start(home.path());
    let answer = restarted.tell(&asked, "Ada");
    assert_eq!(answer["error"]["code"], -32602, "{answer}");
    let message = answer["error"]["message"].as_str().unwrap();
    assert!(message.contains("expired") && message.contains("unknown"), "{message}");
}

/// `status SERVER --forget`: what the server asks is shown, forgotten, and learned anew from the next question.
#[cfg(unix)]
#[test]
fn what_a_server_asks_is_told_and_forgotten() {
    let home = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let output = crate::reload::program::mcp_host(home.path(), args).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        format!("exit {}\n{}{}", output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    };
    let daemon = Daemon::start(home.path());
    let sharing = || {
        let told = run(&["status", "echo"]);
        told.lines().find(|line| line.starts_with("sharing")).unwrap_or_else(|| panic!("{told}")).to_owned()
    };
    assert!(sharing().contains("has asked clients nothing so far"), "{}", sharing());
    let asked = daemon.ask(&json!({}));
    assert_eq!(text(&daemon.tell(&asked, "Ada")), "Hello Ada.");
    assert!(sharing().contains("asks clients for elicitation"), "{}", sharing());
    assert_eq!(run(&["status", "echo", "--forget"]), "exit 0\nforgotten what echo asks its clients: elicitation\n");
    assert!(sharing().contains("has asked clients nothing so far"), "{}", sharing());
    assert_eq!(run(&["status", "echo", "--forget", "--json"]), "exit 0\n{\"forgotten\":[]}\n");
    assert!(run(&["status", "nobody", "--forget"]).starts_with("exit 2\nerror: no server \"nobody\""));
    assert!(run(&["status", "--forget"]).starts_with("exit 2\n"));
    let again = daemon.ask(&json!({}));
    assert_eq!(text(&daemon.tell(&again, "Bob")), "Hello Bob.");
    assert!(sharing().contains("asks clients for elicitation"), "{}", sharing());
}
