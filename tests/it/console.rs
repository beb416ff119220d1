//! The page of a daemon: the command that opens it, and its API with real servers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::daemon::{daemon, run};
use crate::feed;
use crate::reload::program::{Daemon, mcp_host};

fn config(host: &Value) -> Value {
    let program = env!("CARGO_BIN_EXE_mcp-host");
    json!({ "mcpServers": { "echo": { "command": program, "args": ["__demo-server"] } }, "host": host })
}

/// A session of the page of a daemon.
pub(crate) struct Page<'a> {
    daemon: &'a Daemon,
    token: String,
}

/// The lines of an answer, as they come.
pub(crate) struct Lines(BufReader<TcpStream>, VecDeque<Value>);

/// Returns the code of a link.
fn code(link: &str) -> &str {
    link.split("/#k=").nth(1).unwrap_or_else(|| panic!("{link}"))
}

/// Opens a link by the command.
fn link(home: &Path, args: &[&str]) -> String {
    let said = mcp_host(home, &[&["open", "--json"], args].concat()).output().unwrap();
    let link: Value = serde_json::from_slice(&said.stdout).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    link["url"].as_str().unwrap().to_owned()
}

impl<'a> Page<'a> {
    pub(crate) fn open(home: &Path, daemon: &'a Daemon) -> Self {
        let link = link(home, &[]);
        assert!(link.starts_with(&format!("http://127.0.0.1:{}/#k=", daemon.port)), "{link}");
        Self::begin(daemon, code(&link))
    }

    fn begin(daemon: &'a Daemon, code: &str) -> Self {
        let mut page = Self { daemon, token: "none".to_owned() };
        let begun = page.post("session", &json!({ "code": code }));
        page.token = begun["token"].as_str().unwrap_or_else(|| panic!("{begun}")).to_owned();
        page
    }

    fn send(&self, method: &str, path: &str, body: &str) -> (u16, Lines) {
        let address = format!("127.0.0.1:{}", self.daemon.port);
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        write!(
            stream,
            "{method} /console/{path} HTTP/1.1\r\nHost: {address}\r\nOrigin: http://{address}\r\nConnection: close\r\n\
             Authorization: Bearer {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.token,
            body.len()
        )
        .unwrap();
        let mut lines = BufReader::new(stream);
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).unwrap();
            if line.trim_end().is_empty() {
                break;
            }
            head.push(line);
        }
        (head[0].split(' ').nth(1).unwrap().parse().unwrap(), Lines(lines, VecDeque::new()))
    }

    fn whole(&self, method: &str, path: &str, body: &str) -> Value {
        let (_, mut lines) = self.send(method, path, body);
        let mut text = String::new();
        lines.0.read_to_string(&mut text).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }

    pub(crate) fn get(&self, path: &str) -> Value {
        self.whole("GET", path, "")
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        self.whole("POST", path, &body.to_string())
    }

    /// Calls a tool, and returns the lines.
    pub(crate) fn call(&self, tool: &str, arguments: &Value) -> Lines {
        let (status, lines) = self.send("POST", "call", &json!({ "tool": tool, "arguments": arguments }).to_string());
        assert_eq!(status, 200);
        lines
    }

    pub(crate) fn feed(&self, query: &str) -> Lines {
        let (status, lines) = self.send("GET", &format!("feed{query}"), "");
        assert_eq!(status, 200);
        lines
    }

    /// Waits until the daemon says of a server what a test wants, by the feed.
    pub(crate) fn until(&self, server: &str, holds: impl Fn(&Value) -> bool) {
        let mut feed = self.feed("?parts=servers");
        let mut last = Value::Null;
        loop {
            let event = feed.next().unwrap();
            let told = event["servers"].as_array().or(event["changed"].as_array()).cloned().unwrap_or_default();
            for members in told.iter().filter(|told| told["name"] == server) {
                match &mut last {
                    Value::Object(known) => known.extend(members.as_object().unwrap().clone()),
                    _ => last = members.clone(),
                }
                if holds(&last) {
                    return;
                }
            }
        }
    }
}

impl Lines {
    /// Returns the next line; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Value> {
        if let Some(line) = self.1.pop_front() {
            return Some(line);
        }
        let mut text = Vec::new();
        while !text.ends_with(b"\n") {
            let mut size = String::new();
            self.0.read_line(&mut size).unwrap();
            let size = usize::from_str_radix(size.trim_end(), 16).unwrap_or_default();
            if size == 0 {
                assert!(text.is_empty(), "a line was cut off");
                return None;
            }
            let at = text.len();
            text.resize(at + size + 2, 0);
            self.0.read_exact(&mut text[at..]).unwrap();
            text.truncate(at + size);
        }
        let read = |line: &str| -> Value {
            let line: Value = serde_json::from_str(line).unwrap();
            // An event of a feed holds against the schema.
            if line["seq"].is_u64() { feed::event(&line.to_string()) } else { line }
        };
        self.1 = std::str::from_utf8(&text).unwrap().lines().map(read).collect();
        self.1.pop_front()
    }

    /// Returns the lines up to the end, without times.
    pub(crate) fn all(&mut self) -> Vec<Value> {
        let mut all = Vec::new();
        while let Some(mut line) = self.next() {
            line.as_object_mut().unwrap().remove("ms");
            all.push(line);
        }
        all
    }
}

fn text(line: &Value) -> &str {
    line["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{line}"))
}

#[test]
fn a_newcomer_calls_a_tool_and_answers_its_question() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let daemon = daemon(home, &config(&json!({})));
    daemon.hears("✓ echo");
    let page = Page::open(home, &daemon);
    let tools = page.get("tools");
    let named =
        |name: &str| tools["tools"].as_array().unwrap().iter().find(|tool| tool["name"] == name).cloned().unwrap();
    assert_eq!((&named("echo__ask")["readOnly"], &named("echo__echo")["server"]), (&json!(true), &json!("echo")));

    let mut call = page.call("echo__ask", &json!({}));
    let begin = call.next().unwrap();
    assert_eq!(begin, json!({ "type": "begin", "call": begin["call"], "tool": "echo__ask", "server": "echo" }));
    let mut question = call.next().unwrap();
    let schema = question["params"]["requestedSchema"].take();
    assert_eq!(schema["required"], json!(["name"]));
    let number = question["question"].clone();
    assert_eq!(
        (&question["from"], &question["server"], &question["method"]),
        (&json!("server"), &json!("echo"), &json!("elicitation/create"))
    );
    let other = Page::open(home, &daemon);
    let answer = json!({ "call": begin["call"], "question": number, "action": "accept", "content": { "name": "Ada" } });
    assert_eq!(other.post("answer", &answer)["error"], "unknown", "it is another session's call");
    assert_eq!(
        page.post("answer", &json!({ "call": begin["call"], "question": 99, "action": "cancel" }))["error"],
        "unknown"
    );
    assert_eq!(page.post("answer", &answer), json!({ "answered": true }));
    assert_eq!(page.post("answer", &answer)["error"], "unknown", "it is answered once");
    assert_eq!(text(&call.all()[0]), "Hello Ada.");
}

#[test]
fn progress_comes_before_the_answer_and_the_feed_tells_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let daemon = daemon(home, &config(&json!({})));
    daemon.hears("✓ echo");
    let page = Page::open(home, &daemon);
    let mut feed = page.feed("?parts=calls");
    while feed.next().unwrap()["type"] != "snapshot" {}
    let said = page.call("echo__countdown", &json!({ "from": 2 })).all();
    let kinds: Vec<&str> = said.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert!(kinds.starts_with(&["begin", "progress"]) && kinds.ends_with(&["progress", "end"]), "{said:?}");
    assert_eq!(said.last().unwrap()["outcome"], "ok");
    let mut told = feed.next().unwrap();
    while told["phase"] != "end" {
        told = feed.next().unwrap();
    }
    let of = ["tool", "server", "client", "door", "outcome"]
        .map(|member| told[member].as_str().unwrap_or_default().to_owned());
    assert_eq!(of, ["countdown", "echo", "mcp-host console", "console", "ok"]);
}

#[test]
fn a_rule_asks_in_the_words_of_the_host() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let rules = json!({ "policy": { "rules": [{ "name": "careful", "tools": ["echo__echo"], "verdict": "ask" }] } });
    let daemon = daemon(home, &config(&rules));
    daemon.hears("✓ echo");
    let page = Page::open(home, &daemon);
    for (action, outcome) in [("accept", "ok"), ("decline", "host_error")] {
        let mut call = page.call("echo__echo", &json!({ "text": "hello" }));
        let begin = call.next().unwrap();
        let question = call.next().unwrap();
        assert_eq!((&question["type"], &question["from"]), (&json!("question"), &json!("host")), "{question}");
        let content = question["params"]["requestedSchema"]["properties"].as_object().unwrap();
        let content: Value = content.iter().map(|(name, form)| (name.clone(), form["enum"][0].clone())).collect();
        let mut answer = json!({ "call": begin["call"], "question": question["question"], "action": action });
        if action == "accept" {
            answer["content"] = content;
        }
        assert_eq!(page.post("answer", &answer), json!({ "answered": true }));
        let end = call.all().pop().unwrap();
        assert_eq!(end["outcome"], outcome, "{end}");
        if outcome == "host_error" {
            assert_eq!((&end["kind"], &end["rule"]), (&json!("denied"), &json!("careful")), "{end}");
        }
    }
}

#[test]
fn the_page_sees_and_calls_what_the_default_view_shows() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let small = json!({ "view": "small", "views": { "small": { "include": ["echo__echo"] } } });
    let daemon = daemon(home, &config(&small));
    daemon.hears("✓ echo");
    let page = Page::open(home, &daemon);
    let names: Vec<Value> =
        page.get("tools")["tools"].as_array().unwrap().iter().map(|tool| tool["name"].clone()).collect();
    assert_eq!(names, ["echo__echo"]);
    assert_eq!(page.call("echo__countdown", &json!({})).all()[1]["outcome"], "error");
}

#[test]
fn a_server_is_switched_off_and_on_and_every_other_byte_stays() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let program = env!("CARGO_BIN_EXE_mcp-host");
    let file = home.join("mcp.json");
    let text = format!(
        "{{\n  // mine\n  \"mcpServers\": {{\n    \"echo\": {{ \"command\": \"{program}\", \"args\": [\"__demo-server\"] }},\n  }},\n}}\n"
    );
    std::fs::write(&file, &text).unwrap();
    let daemon = Daemon::start(mcp_host(home, &["serve", "--config", "mcp.json", "--listen", "127.0.0.1:0"]));
    daemon.hears("✓ echo");
    let page = Page::open(home, &daemon);
    let shown = page.get("server?name=echo");
    assert_eq!((&shown["editable"], &shown["target"]), (&json!(true), &json!(format!("{program} __demo-server"))));
    assert!(shown["source"].as_str().unwrap().ends_with("mcp.json:4"), "{shown}");
    let done = page.post("disable", &json!({ "server": "echo" }));
    assert!(done["file"].as_str().unwrap().ends_with("mcp.json"), "{done}");
    page.until("echo", |server| server["state"] == "disabled");
    assert!(std::fs::read_to_string(&file).unwrap().contains("// mine"));
    let undo: Vec<&str> = done["undo"].as_str().unwrap().split(' ').skip(1).collect();
    let said = run(home, &[undo.as_slice(), &["--config", "mcp.json"]].concat());
    assert!(said.starts_with("exit 0\n"), "{said}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    page.until("echo", |server| server["state"] == "connected");
    page.post("disable", &json!({ "server": "echo" }));
    page.until("echo", |server| server["state"] == "disabled");
    assert!(page.post("enable", &json!({ "server": "echo" }))["undo"].is_string());
    page.until("echo", |server| server["state"] == "connected");
    assert_eq!(page.post("enable", &json!({ "server": "none" }))["error"], "unknown");
}

#[test]
fn a_server_is_started_anew_and_the_config_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let daemon = daemon(home, &config(&json!({})));
    daemon.hears("✓ echo");
    let page = Page::open(home, &daemon);
    let before = page.get("server?name=echo")["server"]["pids"].clone();
    assert_eq!(page.post("restart", &json!({ "server": "echo" })), json!({ "restarted": "echo" }));
    page.until("echo", |server| {
        server["state"] == "connected"
            && server["pids"] != before
            && server["pids"].as_array().is_some_and(|pids| pids.len() == 1)
    });
    let done = page.post("reload", &json!({}));
    assert_eq!((&done["reloaded"], &done["changed"]), (&json!(true), &json!([])));
    std::fs::write(home.join("mcp.json"), "{").unwrap();
    let refused = page.post("reload", &json!({}));
    assert!(refused["reloaded"] == false && refused["error"].as_str().unwrap().contains("mcp.json:1"), "{refused}");
    for (path, body) in [
        ("restart", json!({ "server": "none" })),
        ("logout", json!({ "server": "none" })),
        ("decide", json!({ "ask": 7, "verdict": "once" })),
    ] {
        assert_eq!(page.post(path, &body)["error"], "unknown", "{path}");
    }
    for (path, body) in [
        ("restart", json!({ "server": "echo", "command": "sh" })),
        ("login", json!({ "server": "echo", "url": "http://evil.example" })),
        ("reload", json!({ "config": {} })),
        ("approve", json!({ "kind": "project", "server": "echo", "hash": "" })),
        ("decide", json!({ "ask": 7, "verdict": "always" })),
    ] {
        assert_eq!(page.post(path, &body)["error"], "malformed", "{path}");
    }
    let no_login = page.post("login", &json!({ "server": "echo" }));
    assert!(no_login["message"].as_str().unwrap().contains("is a program of this machine"), "{no_login}");
}

#[test]
fn exactly_what_was_shown_is_approved() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let daemon = daemon(home, &config(&json!({ "approval": "ask" })));
    daemon.hears("echo");
    let page = Page::open(home, &daemon);
    page.until("echo", |server| server["withheld"].as_u64().is_some_and(|withheld| withheld > 0));
    assert_eq!(page.get("tools")["tools"], json!([]));
    let waiting = page.get("approvals");
    let one = &waiting["definitions"][0];
    assert_eq!((&one["server"], one["items"].as_array().unwrap().len()), (&json!("echo"), 3), "{waiting}");
    let approve =
        |hash: &Value| page.post("approve", &json!({ "kind": "definitions", "server": "echo", "hash": hash }));
    assert_eq!(approve(&json!("0".repeat(64)))["error"], "changed");
    assert_eq!(page.get("tools")["tools"], json!([]));
    assert_eq!(approve(&one["hash"]), json!({ "approved": 3 }));
    page.until("echo", |server| server["tools"] == 3);
    assert_eq!(page.get("tools")["tools"].as_array().unwrap().len(), 3);
    assert_eq!(page.get("approvals")["definitions"], json!([]));
    assert_eq!(approve(&one["hash"])["error"], "changed", "nothing waits");
}

#[test]
fn the_command_opens_the_page_and_ends_its_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    assert_snapshot!(run(home, &["open"]), @r"
    exit 4
    error: no mcp-host is running
    help: mcp-host serve
    ");
    let mut daemon = daemon(home, &config(&json!({})));
    daemon.hears("✓ echo");
    assert!(daemon.hears("open the web page").contains(&format!("mcp-host open --listen 127.0.0.1:{}", daemon.port)));
    let shown = run(home, &["open", "--no-browser"]);
    let secret = code(shown.lines().nth(1).unwrap()).to_owned();
    assert_snapshot!(shown.replace(&daemon.port, "PORT").replace(&secret, "CODE"), @r"
    exit 0
    http://127.0.0.1:PORT/#k=CODE
    it works once, and within 10 minutes
    from another machine, run first: ssh -L PORT:127.0.0.1:PORT THIS-MACHINE
    ");
    let page = Page::begin(&daemon, &secret);
    assert_eq!(page.get("server?name=echo")["server"]["name"], "echo");
    let looks = Page::begin(&daemon, code(&link(home, &["--read-only"])));
    assert_eq!(looks.post("restart", &json!({ "server": "echo" }))["error"], "read_only");
    assert_snapshot!(run(home, &["open", "--revoke"]), @r"
    exit 0
    ended 2 sessions
    ");
    assert_eq!(page.get("tools")["error"], "no_session");
    let Page { token, .. } = page;
    // The browser gets the link and nothing else.
    let browser = home.join("bin");
    std::fs::create_dir(&browser).unwrap();
    let open = |path: &Path| {
        let output = mcp_host(home, &["open"]).env("PATH", path).output().unwrap();
        [output.stdout, output.stderr].map(|bytes| String::from_utf8(bytes).unwrap()).concat()
    };
    for name in ["xdg-open", "open"] {
        let script = "#!/bin/sh\nfor one; do echo \"$one\"; done >\"$HOME/opened.new\"\n/bin/mv \"$HOME/opened.new\" \"$HOME/opened\"\n";
        std::fs::write(browser.join(name), script).unwrap();
        std::fs::set_permissions(browser.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    assert_eq!(open(&browser), format!("opened http://127.0.0.1:{}/ in your browser\n", daemon.port));
    let opened = || std::fs::read_to_string(home.join("opened")).ok();
    let begun = Instant::now();
    while opened().is_none() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the browser is not started");
        std::thread::yield_now();
    }
    let opened = opened().unwrap();
    assert_eq!(opened.lines().count(), 1, "{opened}");
    Page::begin(&daemon, code(opened.trim_end()));
    // Without a browser, the link is shown after all.
    let said = open(&home.join("nothing"));
    assert!(said.contains("warning: no browser could be started: ") && said.contains("/#k="), "{said}");
    let said = daemon.end().join("\n");
    assert!(!said.contains(&secret) && !said.contains(&token) && !said.contains("#k="), "{said}");
}

#[test]
fn without_a_page_there_is_no_link() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let daemon = daemon(home, &config(&json!({ "console": "off" })));
    daemon.hears("✓ echo");
    assert_snapshot!(run(home, &["open"]), @r#"
    exit 1
    error: there is no page (host.console is "off")
    help: host.console in its config decides who gets the page: "local", "on" or "off"
    "#);
    let page = Page { daemon: &daemon, token: "none".to_owned() };
    assert_eq!(page.send("GET", "tools", "").0, 404);
}

/// At a terminal, `serve` itself prints a link.
#[cfg(target_os = "linux")]
#[test]
fn serve_prints_a_link_at_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    std::fs::write(home.join("mcp.json"), config(&json!({})).to_string()).unwrap();
    let places = ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"];
    let mut command = Command::new("script");
    command
        .args(["-qc", r#"exec "$PROGRAM" serve -c mcp.json --listen 127.0.0.1:0"#, "/dev/null"])
        .env_clear()
        .envs(places.map(|place| (place, home)))
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("SHELL", "/bin/sh")
        .env("PROGRAM", env!("CARGO_BIN_EXE_mcp-host"))
        .current_dir(home);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("open the web page"));
    let line = line.unwrap_or_default();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(
        line.contains("http://127.0.0.1:") && line.contains("/#k=") && line.contains("good once, for 10 minutes"),
        "{line}"
    );
}
