//! Edits of the config from the shell: what they print, what they write, and how they are taken back.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod clients;
mod link;
mod migrate;
mod projects;
mod refused;

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use insta::assert_snapshot;
use serde_json::{Value, json};

use crate::daemon::{run, steady};
use crate::reload::program::{Daemon, mcp_host};

/// A home folder, and the user's own config in it.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// Begins with a config of these servers.
    fn with(servers: &Value) -> Self {
        let home = Self::new();
        home.write("mcp-host/config.json", &format!("{:#}\n", json!({ "mcpServers": servers })));
        home
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn own(&self) -> PathBuf {
        self.path().join("mcp-host/config.json")
    }

    fn write(&self, name: &str, text: &str) {
        let file = self.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).unwrap()
    }

    fn text(&self) -> String {
        self.read("mcp-host/config.json")
    }

    /// Runs a command, and returns its exit code and all that it said.
    fn run(&self, args: &[&str]) -> String {
        let said = steady(&run(self.path(), args));
        said.replace(self.path().to_str().unwrap(), "~").replace(env!("CARGO_BIN_EXE_mcp-host"), "PROGRAM")
    }

    fn must(&self, args: &[&str]) -> String {
        let said = self.run(args);
        assert!(said.starts_with("exit 0"), "{args:?}: {said}");
        said
    }
}

/// Words that add a server which works.
fn demo<'a>(name: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["add", name], more, &["--", env!("CARGO_BIN_EXE_mcp-host"), "__demo-server"]].concat()
}

fn entry() -> Value {
    json!({ "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"] })
}

#[test]
fn a_server_is_started_once_and_added() {
    let home = Home::new();
    let said = home.run(&demo("echo", &["-e", "LEVEL=debug", "--lazy"]));
    let (head, tokens) = said.split_once('~').unwrap();
    assert_eq!(head, "exit 0\nadded echo: 3 tools, TIME, ", "{said}");
    assert!(tokens.contains(" tokens\nit stands in ~/mcp-host/config.json\nmcp-host undo 1 takes it back"), "{said}");
    assert_snapshot!(home.text().replace(env!("CARGO_BIN_EXE_mcp-host"), "PROGRAM"), @r#"
    {
      "mcpServers": {
        "echo": {
          "command": "PROGRAM",
          "args": ["__demo-server"],
          "env": {
            "LEVEL": "debug"
          },
          "start": "lazy"
        }
      }
    }
    "#);
    use std::os::unix::fs::PermissionsExt as _;
    assert_eq!(std::fs::metadata(home.own()).unwrap().permissions().mode() & 0o777, 0o600);
    assert_snapshot!(home.run(&["list"]), @"
    exit 0
    SERVER TRANSPORT STATE FILE TARGET
    echo stdio - ~/mcp-host/config.json:3 PROGRAM __demo-server
    ");
    assert_snapshot!(home.run(&["get", "echo"]), @r#"
    exit 0
    ~/mcp-host/config.json:3
    command: "PROGRAM"
    args: ["__demo-server"]
    env.LEVEL: "debug"
    start: "lazy"
    "#);
    let words = demo("more", &["--json"]);
    let told: Value = serde_json::from_str(run(home.path(), &words).lines().nth(1).unwrap()).unwrap();
    assert_eq!((&told["server"], &told["state"], &told["tools"]), (&json!("more"), &json!("connected"), &json!(3)));
    assert!(home.run(&["add", "echo", "--", "x"]).starts_with("exit 2\nerror: a server is called `echo` already"));
}

#[test]
fn a_server_that_does_not_start_is_not_added() {
    let home = Home::new();
    let words = ["add", "bad", "--", "/bin/sh", "-c", "echo first >&2; echo no such file >&2; exit 3"];
    let said = home.run(&words);
    assert!(
        said.starts_with("exit 4\nbad wrote to standard error:\nfirst\nno such file\nerror: server `bad`"),
        "{said}"
    );
    assert!(said.ends_with("help: nothing was written; --no-check writes it all the same"), "{said}");
    assert!(!home.own().exists());
    let unset = ["add", "unset", "-e", "TOKEN_OF_IT=${NOT_SET}", "--", "/bin/cat"];
    let said = home.run(&unset);
    assert!(said.starts_with("exit 2\n") && said.contains("the variable NOT_SET is not set"), "{said}");
    assert!(!home.own().exists());
    let said = home.must(&[&words[..2], &["--no-check"], &words[2..]].concat());
    assert!(said.starts_with("exit 0\nadded bad: not started"), "{said}");
    assert!(home.text().contains("exit 3"));
}

/// A server that wants a login.
fn locked() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let refusal = "HTTP/1.1 401 Unauthorized\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            let _ = stream.write_all(refusal.as_bytes());
        }
    });
    url
}

#[test]
fn a_server_that_wants_a_login_is_added_and_the_login_is_named() {
    let url = locked();
    let home = Home::new();
    let said = home.run(&["add", "locked", &url]);
    assert!(said.starts_with("exit 3\nadded locked: a login is missing"), "{said}");
    assert!(said.contains("error: server `locked` wants authorization"), "{said}");
    assert!(home.text().contains(&url));
}

#[test]
fn a_daemon_follows_each_edit() {
    let home = Home::with(&json!({ "a": entry() }));
    let daemon = Daemon::start(mcp_host(home.path(), &["serve", "--listen", "127.0.0.1:0"]));
    daemon.hears("a");
    home.must(&["add", "b", "--", env!("CARGO_BIN_EXE_mcp-host"), "__demo-server"]);
    daemon.hears("config reloaded: added b");
    assert!(home.must(&["list"]).contains("a stdio connected"), "the state is that of the daemon");
    home.must(&["disable", "a"]);
    daemon.hears("config reloaded");
    home.must(&["rename", "b", "c"]);
    daemon.hears("config reloaded");
    home.must(&["remove", "c"]);
    daemon.hears("config reloaded");
}

#[test]
fn each_edit_is_one_line_and_a_way_back() {
    let home = Home::with(&json!({ "a": { "command": "cat" }, "b": { "command": "cat" } }));
    let first = home.text();
    assert_snapshot!(home.run(&["disable", "a"]), @"
    exit 0
    disabled a in ~/mcp-host/config.json
    mcp-host undo 1 takes it back
    ");
    assert!(home.text().contains("\"disabled\": true"));
    assert_snapshot!(home.run(&["enable", "a"]), @"
    exit 0
    enabled a in ~/mcp-host/config.json
    mcp-host undo 2 takes it back
    ");
    assert_eq!(home.text(), first);
    assert_snapshot!(home.run(&["rename", "b", "other one"]), @"
    exit 0
    renamed b to other one in ~/mcp-host/config.json
    mcp-host undo 3 takes it back
    ");
    assert_snapshot!(home.run(&["remove", "other-one"]), @"
    exit 0
    removed other one from ~/mcp-host/config.json
    mcp-host undo 4 takes it back
    ");
    assert_snapshot!(home.run(&["undo", "--list"]).replace("0 ms", "AGE").replace("TIME", "AGE"), @"
    exit 0
    ID AGE EDIT STANDS FILE
    4 AGE removed other one yes ~/mcp-host/config.json
    3 AGE renamed b to other one yes ~/mcp-host/config.json
    2 AGE enabled a yes ~/mcp-host/config.json
    1 AGE disabled a yes ~/mcp-host/config.json
    ");
    assert_snapshot!(home.run(&["undo"]), @"
    exit 0
    took back edit 4: removed other one; ~/mcp-host/config.json is as before it
    mcp-host undo 5 does it again
    ");
    home.must(&["undo"]);
    assert_eq!(home.text(), first);
    let json: Value =
        serde_json::from_str(run(home.path(), &["undo", "--list", "--json"]).lines().nth(1).unwrap()).unwrap();
    let stand: Vec<&Value> = json.as_array().unwrap().iter().map(|edit| &edit["stands"]).collect();
    assert_eq!(stand, [true, true, false, false, true, true]);
    assert_snapshot!(home.run(&["undo", "4"]), @"
    exit 2
    error: edit 4 was taken back already
    help: mcp-host undo --list shows the edits
    ");
}

#[test]
fn programs_that_edit_at_once_lose_nothing() {
    let home = Home::with(&json!({}));
    let names: Vec<String> = (0..6).map(|number| format!("server{number}")).collect();
    let start = |name: &String| {
        let words = ["add", name, "--no-check", "--", "cat"];
        mcp_host(home.path(), &words).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let children: Vec<_> = names.iter().map(start).collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let config: Value = serde_json::from_str(&home.text()).unwrap();
    assert_eq!(config["mcpServers"].as_object().unwrap().len(), names.len());
}

#[test]
fn a_client_that_rewrites_its_file_keeps_what_it_wrote() {
    let home = Home::new();
    home.write(".cursor/mcp.json", "{\n  \"mcpServers\": { \"a\": { \"command\": \"cat\" } }\n}\n");
    home.must(&["add", "b", "--no-check", "--config", ".cursor/mcp.json", "--", "cat"]);
    // The client writes its file anew, with a server of its own.
    let mut config: Value = serde_json::from_str(&home.read(".cursor/mcp.json")).unwrap();
    config["mcpServers"]["c"] = json!({ "command": "cat" });
    home.write(".cursor/mcp.json", &config.to_string());
    let said = home.must(&["undo"]);
    assert!(said.contains("was changed since, and only this edit is taken back"), "{said}");
    let config: Value = serde_json::from_str(&home.read(".cursor/mcp.json")).unwrap();
    let names: Vec<&String> = config["mcpServers"].as_object().unwrap().keys().collect();
    assert_eq!(names, ["a", "c"]);
}

#[test]
fn a_client_that_writes_over_an_edit_is_named() {
    let home = Home::with(&json!({ "own": { "command": "cat" } }));
    written_over(&home, &["disable", "a", "--config", ".cursor/mcp.json"]);
    written_over(&home, &["link", "cursor", "--yes"]);
}

fn written_over(home: &Home, words: &[&str]) {
    let text = "{ \"mcpServers\": { \"a\": { \"command\": \"cat\" } } }";
    let warning = ".cursor/mcp.json again, without this edit";
    let mut said = String::new();
    // On a busy machine, the client may be too late for the look after a second.
    for _ in 0..10 {
        home.write(".cursor/mcp.json", text);
        let mut command = mcp_host(home.path(), words);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        while home.read(".cursor/mcp.json") == text && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        home.write(".cursor/mcp.json", text);
        said = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
        if said.contains(warning) && said.contains("warning: Cursor (it runs) has written ") {
            return;
        }
    }
    panic!("{said}");
}
