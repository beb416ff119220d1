//! Twenty secrets on every path into the program, and none in anything that it prints, at any log level: H97.
//!
//! Children print what they were given, HTTP servers echo what they were sent, clients put tokens where none belong.
//! What a server answers to its own client is not our output, so nothing is planted there.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

pub(crate) mod echo;
mod injection;
mod sentences;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

/// Words that no key generator would choose: only their position shows that they are secret.
fn canary(number: usize) -> String {
    let words = ["amber", "basil", "cedar", "delta", "ember", "fjord", "grove", "heron", "iris", "jolly"];
    format!("{}-{}-canary", words[number % 10], words[number / 10 + 3])
}

/// The secrets of the config: 0 to 13. Those of requests: 14 to 19. Those of header programs: 20 to 22.
const ALL: std::ops::Range<usize> = 0..23;

/// Secrets that no response to a client may contain.
fn ours() -> impl Iterator<Item = usize> {
    ALL.filter(|number| !(14..20).contains(number))
}

/// A program that prints a header, shouts it everywhere, and ends in this way.
fn gives(home: &Path, number: usize, form: &str, end: &str) -> Value {
    let script = format!("set -x\nprintf '{form}' '{0}'\necho \"gave {0}\" >&2\n{end}\n", canary(number));
    let file = home.join(format!("gives-{number}.sh"));
    std::fs::write(&file, script).unwrap();
    json!(["sh", file])
}

/// Prints everything that it was given, everywhere, and ends.
const TELLS_ALL: &str = r#"env >&2; echo "args: $0 $*" >&2; env; echo "last words: $API_TOKEN $0 $*" >&2; exit 3"#;

/// Works until it is called; then it prints its secrets to the log only, and ends in the middle of the call.
const DIES_IN_A_CALL: &str = r#"
reply() { printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"; }
echo "started with $SIGNING_KEY" >&2
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\|"[^"]*"\),.*/\1/p')
  case $line in
    *'"initialize"'*) reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},"serverInfo":{"name":"s","version":"'$SIGNING_KEY'"}}' ;;
    *'"tools/list"'*) reply '{"tools":[{"name":"act","inputSchema":{"type":"object"}}]}'
      printf '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"%s"}}\n' "$SIGNING_KEY" ;;
    *'"tools/call"'*) printf 'noise %s\n' "$SIGNING_KEY"; echo "fatal: cannot use $SIGNING_KEY" >&2; exit 1 ;;
  esac
done"#;

fn config(home: &Path, upstream: &str) -> Value {
    std::fs::write(home.join("two.env"), format!("DOTENV_SECRET='{}'\n", canary(2))).unwrap();
    std::fs::write(home.join("five.txt"), format!("{}\n", canary(5))).unwrap();
    std::fs::write(home.join("eleven.txt"), format!("{}\n", canary(11))).unwrap();
    let once = json!({ "maxRetries": 0 });
    json!({
        "host": { "audit": { "file": "audit.jsonl" } },
        "inputs": [{ "id": "twelve", "type": "promptString", "password": true }],
        "mcpServers": {
            "tells-all": { "command": "sh", "restart": once, "envFile": "two.env",
                "args": ["-c", TELLS_ALL, "--password", canary(3), format!("--api-key={}", canary(4)), "${file:five.txt}"],
                "env": { "API_TOKEN": canary(0), "DATABASE_URL": format!("postgres://ada:{}@db/x", canary(1)),
                         "FORWARDED_SECRET": null } },
            "dies": { "command": "sh", "args": ["-c", DIES_IN_A_CALL], "env": { "SIGNING_KEY": canary(7) } },
            "echo-500": { "type": "http", "restart": once, "url": format!("{upstream}/500/mcp?sig={}", canary(8)),
                "headers": { "Authorization": format!("Bearer {}", canary(9)), "X-Team": canary(10) } },
            "echo-error": { "type": "http", "restart": once, "url": format!("{upstream}/error"),
                "auth": { "type": "api-key", "apiKey": "${file:eleven.txt}" } },
            "echo-type": { "type": "http", "restart": once, "url": format!("{upstream}/type"),
                "headers": { "X-Input": "${input:twelve}" } },
            "echo-redirect": { "type": "http", "restart": once, "url": format!("{upstream}/redirect"),
                "auth": { "type": "basic", "username": "ada", "password": canary(13) } },
            "given-500": { "type": "http", "restart": once, "url": format!("{upstream}/500/mcp"),
                "headersHelper": gives(home, 20, r#"{"X-Given": "Word %s"}"#, "exit 0") },
            "gives-and-fails": { "type": "http", "restart": once, "url": format!("{upstream}/500/mcp"),
                "headersHelper": gives(home, 21, r#"{"X-Given": "Word %s"}"#, "exit 3") },
            "gives-garbage": { "type": "http", "restart": once, "url": format!("{upstream}/500/mcp"),
                "headersHelper": gives(home, 22, r"X-Given: Word %s", "exit 0") },
        },
    })
}

/// The program in its own home.
fn program(home: &Path, level: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-host"));
    command.env_clear().envs(["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"].map(|name| (name, home)));
    command.env("PATH", std::env::var_os("PATH").unwrap()).env("RUST_LOG", level).env("RUST_BACKTRACE", "1");
    command.env("FORWARDED_SECRET", canary(6)).env("MCP_HOST_INPUT_TWELVE", canary(12));
    command.current_dir(home).args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// A daemon, and its complete output once it has ended.
struct Daemon {
    child: Child,
    address: String,
    reader: BufReader<std::process::ChildStdout>,
    stderr: Option<std::thread::JoinHandle<String>>,
    said: String,
}

impl Daemon {
    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        let stderr = std::thread::spawn(move || {
            let mut text = Vec::new();
            stderr.read_to_end(&mut text).unwrap();
            String::from_utf8_lossy(&text).into_owned()
        });
        let mut daemon = Self {
            reader: BufReader::new(child.stdout.take().unwrap()),
            child,
            address: String::new(),
            stderr: Some(stderr),
            said: String::new(),
        };
        let first = daemon.until("listening on");
        let url = first.split("http://").nth(1).unwrap();
        daemon.address = url.split('/').next().unwrap().to_owned();
        daemon
    }

    /// Reads standard output until a line contains this.
    fn until(&mut self, wanted: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.reader.read_line(&mut line).unwrap() > 0, "no {wanted:?} in {}", self.said);
            self.said += &line;
            if line.contains(wanted) {
                return line;
            }
        }
    }

    /// Makes one request over its own connection.
    fn ask(&self, line: &str, heads: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let length = body.len();
        write!(
            stream,
            "{line} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\ncontent-length: {length}\r\n{heads}\r\n{body}",
            self.address
        )
        .unwrap();
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn end(mut self) -> String {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        self.reader.read_to_string(&mut self.said).unwrap();
        self.child.wait().unwrap();
        std::mem::take(&mut self.said) + &self.stderr.take().unwrap().join().unwrap()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Acts as a client that puts its secrets into requests, and returns our responses.
fn visit(daemon: &Daemon) -> String {
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "1" } } });
    let own = format!("authorization: Bearer {}\r\ncookie: sid={}\r\n", canary(14), canary(15));
    let opened = daemon.ask(&format!("POST /mcp?access_token={}", canary(16)), &own, &hello.to_string());
    let session =
        opened.lines().find_map(|line| line.strip_prefix("mcp-session-id: ")).unwrap_or_else(|| panic!("{opened}"));
    let heads = format!("{own}mcp-session-id: {session}\r\nmcp-protocol-version: 2025-11-25\r\n");
    let call = |id: u64, method: &str, params: &Value| {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        daemon.ask("POST /mcp", &heads, &message.to_string())
    };
    let told = [
        call(2, "tools/call", &json!({ "name": "dies__act", "arguments": { "token": canary(17) } })),
        call(3, "resources/read", &json!({ "uri": format!("https://example.com/x?token={}", canary(17)) })),
        daemon.ask("POST /mcp", &heads, &format!("{{\"broken\": {}", canary(18))),
        daemon.ask(&format!("GET /nowhere?code={}", canary(19)), &own, ""),
    ];
    assert!(told[0].contains("the process ended"), "{}", told[0]);
    told.concat()
}

fn files(folder: &Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, text);
        } else if let Ok(bytes) = std::fs::read(&path) {
            *text += &String::from_utf8_lossy(&bytes);
        }
    }
}

fn assert_hidden(said: &str, which: impl IntoIterator<Item = usize>, by: &str) {
    for number in which {
        let secret = canary(number);
        let found = said.lines().find(|line| line.contains(&secret));
        assert!(found.is_none(), "secret {number} ({secret}) in {by}: {}", found.unwrap_or_default());
    }
    // The one that goes out in another form.
    assert!(!said.contains("YWRhOm"), "basic credentials in {by}");
}

fn serves_hidden(level: &str) {
    let home = tempfile::tempdir().unwrap();
    let upstream = echo::start();
    let file = home.path().join("mcp.json");
    std::fs::write(&file, config(home.path(), &upstream).to_string()).unwrap();
    let named = file.to_str().unwrap();
    let mut daemon =
        Daemon::start(program(home.path(), level, &["serve", "--listen", "127.0.0.1:0", "--config", named]));
    for server in [
        "dies",
        "tells-all",
        "echo-500",
        "echo-error",
        "echo-type",
        "echo-redirect",
        "given-500",
        "gives-and-fails",
        "gives-garbage",
    ] {
        if !daemon.said.contains(&format!(" {server} ")) {
            daemon.until(&format!(" {server} "));
        }
    }
    // What a server says to its own client passes.
    let answers: Vec<String> =
        visit(&daemon).lines().filter(|line| !line.contains("notifications/message")).map(str::to_owned).collect();
    let answers = answers.join("\n");
    assert_hidden(&answers, ours(), "an answer");
    let address = daemon.address.clone();
    for arguments in [&["status", "--listen", &address][..], &["status", "--json", "--listen", &address]] {
        let out = program(home.path(), level, arguments).output().unwrap();
        let said = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
        assert!(said.contains("fatal: cannot use ***"), "the tail of standard error is shown: {said}");
        assert!(said.contains("it failed (exit code 3): "), "and that of a program for headers: {said}");
        assert_hidden(&said, ALL, "status");
    }
    let said = daemon.end();
    assert!(said.contains("echo-500"), "{said}");
    assert_hidden(&said, ALL, "what the daemon said");
    let mut kept = std::fs::read_to_string(home.path().join("audit.jsonl")).unwrap();
    assert!(kept.contains(r#""target":"act""#) && kept.contains("host_error"), "{kept}");
    assert!(kept.contains("https://example.com/x?…"), "{kept}");
    if home.path().join("mcp-host").exists() {
        files(&home.path().join("mcp-host"), &mut kept);
    }
    assert_hidden(&kept, ALL, "what is kept of servers");
}

#[test]
fn h97_no_secret_is_seen_when_all_is_logged() {
    serves_hidden("trace");
}

#[test]
fn h97_no_secret_is_seen_when_nothing_is_logged() {
    serves_hidden("off");
}

#[test]
fn h97_no_secret_is_seen_by_commands() {
    let home = tempfile::tempdir().unwrap();
    let upstream = echo::start();
    let file = home.path().join("mcp.json");
    std::fs::write(&file, config(home.path(), &upstream).to_string()).unwrap();
    let named = file.to_str().unwrap();
    for arguments in [
        &["check", "--config", named][..],
        &["check", "--json", "--config", named],
        &["check", "--connect", "--config", named],
        &["check", "--connect", "--json", "--config", named],
        &["call", "dies__act", "--config", named],
        &["tools", "--config", named],
    ] {
        let out = program(home.path(), "trace", arguments).output().unwrap();
        let said = String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned();
        assert!(said.contains("dies"), "{said}");
        assert_hidden(&said, ours(), &arguments.join(" "));
    }
}

/// With an invalid config its secrets are not known yet: no part of a value may be in the message.
#[test]
fn h97_errors_of_a_config_quote_no_secret() {
    let home = tempfile::tempdir().unwrap();
    let secret = canary(0);
    for (name, text) in [
        ("userinfo.json", format!(r#"{{"mcpServers":{{"a":{{"url":"https://ada:{secret}@example.com/mcp"}}}}}}"#)),
        (
            "broken.json",
            format!(r#"{{"mcpServers":{{"a":{{"url":"https://x/","headers":{{"Authorization":"Bearer {secret}"#),
        ),
        ("broken.toml", format!("[mcpServers.a]\ncommand = \"x\"\nenv = {{ API_TOKEN = {secret} }}\n")),
        ("broken.yaml", format!("mcpServers:\n  a:\n    command: x\n    env: {{ API_TOKEN: '{secret} }}\n")),
        (
            "twice.yaml",
            format!(
                "mcpServers:\n  a:\n    command: x\n    env:\n      API_TOKEN: {secret}\n      API_TOKEN: {secret}\n"
            ),
        ),
        ("types.json", format!(r#"{{"mcpServers":{{"a":{{"command":"x","env":["API_TOKEN={secret}"]}}}}}}"#)),
        (
            "auth.json",
            format!(r#"{{"mcpServers":{{"a":{{"url":"https://x/","auth":{{"type":"bearer","toke":"{secret}"}}}}}}}}"#),
        ),
        (
            "header.json",
            format!(r#"{{"mcpServers":{{"a":{{"url":"https://x/","headers":{{"X-Key":"{secret}\n"}}}}}}}}"#),
        ),
        (
            "variable.json",
            r#"{"mcpServers":{"a":{"url":"${A_URL}","callTimeout":"${A_URL}","type":"${A_URL}"}}}"#.to_owned(),
        ),
    ] {
        let file = home.path().join(name);
        std::fs::write(&file, text).unwrap();
        for more in [&[][..], &["--json"]] {
            let mut check = program(home.path(), "trace", &["check", "--config", file.to_str().unwrap()]);
            let out = check.args(more).env("A_URL", &secret).output().unwrap();
            let said = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
            assert_eq!(out.status.code(), Some(2), "{name}: {said}");
            assert!(said.contains(name), "{said}");
            assert_hidden(&said, [0], name);
        }
    }
}
