//! A host that would start or dial itself: however it gets there, no second generation starts, and no list grows.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use mcp_host::{Catalog, Host, StateName};
use serde_json::{Value, json};

const PROGRAM: &str = env!("CARGO_BIN_EXE_mcp-host");

/// A folder with a config of one ordinary server, which writes a line each time it is started.
struct Place {
    home: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        Self { home: tempfile::tempdir().unwrap() }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes a config with the ordinary server and these.
    fn config(&self, name: &str, servers: &Value) -> PathBuf {
        let script = r#"echo started >>"$0"; exec "$1" __demo-server"#;
        let starts = self.file("starts");
        let mut all = json!({ "plain": { "command": "sh", "args": ["-c", script, starts, PROGRAM] } });
        all.as_object_mut().unwrap().extend(servers.as_object().unwrap().clone());
        let file = self.file(name);
        std::fs::write(&file, json!({ "mcpServers": all }).to_string()).unwrap();
        file
    }

    /// Returns how often the ordinary server was started.
    fn starts(&self) -> usize {
        std::fs::read_to_string(self.file("starts")).unwrap_or_default().lines().count()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(args).current_dir(self.home.path()).stdin(Stdio::null());
        command.env_clear().env("HOME", self.home.path()).env("PATH", std::env::var_os("PATH").unwrap());
        command
    }

    fn serve(&self, file: &Path, port: u16) -> Daemon {
        let listen = format!("127.0.0.1:{port}");
        let mut command = self.command(&["serve", "--json", "--listen", &listen, "--config"]);
        let mut child = command.arg(file).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = child.stdout.take().unwrap();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Daemon { child, lines, url: format!("http://{listen}/mcp") }
    }
}

/// A running daemon; ended when dropped.
struct Daemon {
    child: Child,
    lines: Receiver<String>,
    url: String,
}

impl Daemon {
    /// Waits until a server is in one of these states, and returns the state and its cause.
    fn reaches(&self, server: &str, states: &[&str]) -> (String, String) {
        loop {
            let line = self.lines.recv_timeout(Duration::from_secs(30)).unwrap();
            let event: Value = serde_json::from_str(&line).unwrap();
            let state = event["to"].as_str().unwrap_or_default();
            if event["server"] == json!(server) && states.contains(&state) {
                return (state.to_owned(), event["cause"].as_str().unwrap_or_default().to_owned());
            }
        }
    }

    fn listening(&self) {
        let first = self.lines.recv_timeout(Duration::from_secs(30)).unwrap();
        assert!(first.contains("listening"), "{first}");
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Returns an entry that is this host itself, given the path of its config.
fn entry(command: &str, args: &[&str]) -> Value {
    json!({ "me": { "command": command, "args": args, "restart": { "maxRetries": 0 } } })
}

/// Serves a config with this entry, and returns its outcome.
fn served(place: &Place, file: &Path) -> (String, String) {
    let daemon = place.serve(file, 0);
    let ended = daemon.reaches("me", &["disabled", "failed", "connected"]);
    daemon.reaches_all();
    ended
}

impl Daemon {
    /// Waits for the summary of the start.
    fn reaches_all(&self) {
        while !self.lines.recv_timeout(Duration::from_secs(30)).unwrap().contains("settled") {}
    }
}

#[test]
fn c1_an_entry_that_starts_this_host_again_is_never_started() {
    let place = Place::new();
    let file = place.file("mcp.json");
    let path = file.to_str().unwrap();
    let link = place.file("link");
    std::os::unix::fs::symlink(PROGRAM, &link).unwrap();
    let other = place.file("other.json");
    std::os::unix::fs::symlink(&file, &other).unwrap();
    let entries = [
        entry(PROGRAM, &["stdio", "--config", path]),
        entry(PROGRAM, &["-c", path, "serve", "--listen", "127.0.0.1:0"]),
        entry(link.to_str().unwrap(), &["stdio", "--config", path]),
        entry(PROGRAM, &["stdio", "--config", other.to_str().unwrap()]),
        entry(PROGRAM, &["stdio", "--config", "mcp.json"]),
    ];
    for (done, entry) in entries.iter().enumerate() {
        place.config("mcp.json", entry);
        let (state, cause) = served(&place, &file);
        assert_eq!(state, "disabled", "{entry}: {cause}");
        assert!(cause.starts_with("this is this host itself; take it out of"), "{cause}");
        assert_eq!(place.starts(), done + 1, "{entry}");
    }
}

#[test]
fn c1_a_host_of_another_config_is_a_server_like_any_other() {
    let place = Place::new();
    let inner = place.file("inner.json");
    std::fs::write(
        &inner,
        json!({ "mcpServers": { "x": { "command": PROGRAM, "args": ["__demo-server"] } } }).to_string(),
    )
    .unwrap();
    let file = place.config("mcp.json", &entry(PROGRAM, &["stdio", "--config", inner.to_str().unwrap()]));
    assert_eq!(served(&place, &file).0, "connected");
}

#[test]
fn a_host_of_another_config_keeps_the_names_of_its_servers() {
    let place = Place::new();
    let inner = place.file("inner.json");
    let demo = json!({ "command": PROGRAM, "args": ["__demo-server"] });
    std::fs::write(&inner, json!({ "mcpServers": { "x": demo, "plain": demo } }).to_string()).unwrap();
    let words = json!(["stdio", "--own", "--config", inner]);
    let office = json!({ "office": { "command": PROGRAM, "args": words, "prefix": "inner" } });
    let file = place.config("mcp.json", &office);
    let file = file.to_str().unwrap();
    let said = |words: &[&str]| {
        let done = place.command(&[words, &["--config", file]].concat()).output().unwrap();
        (String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap())
    };
    let (listed, _) = said(&["tools", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let mut names: Vec<&str> = listed.as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    let of = |alias: &str| ["ask", "countdown", "echo"].map(|tool| format!("{alias}__{tool}"));
    assert_eq!(names, [of("plain"), of("x")].concat());
    assert_eq!(said(&["call", "x__echo", "text=hello"]).0, "hello\n");
    let (out, told) = said(&["check", "--connect"]);
    let told = out + &told;
    assert!(told.contains(r#"tool "plain__echo" left out: the name plain__echo belongs to plain"#), "{told}");
}

#[test]
fn c1_a_host_below_itself_starts_no_server_however_it_is_reached() {
    let place = Place::new();
    let file = place.file("mcp.json");
    let path = file.to_str().unwrap();
    let copied = place.file("copied");
    std::fs::copy(PROGRAM, &copied).unwrap();
    let copy = place.file("copy.json");
    let copy = copy.to_str().unwrap();
    let entries = [
        entry("sh", &["-c", r#""$0" stdio --config "$1"; exit"#, PROGRAM, path]),
        entry("env", &["-i", PROGRAM, "stdio", "--config", path]),
        entry("sh", &["-c", r#"env -i "$0" stdio --config "$1"; exit"#, PROGRAM, path]),
        entry(copied.to_str().unwrap(), &["stdio", "--config", path]),
        entry(PROGRAM, &["stdio", "--config", copy]),
    ];
    for (done, entry) in entries.iter().enumerate() {
        place.config("mcp.json", entry);
        std::fs::copy(&file, copy).unwrap();
        let (state, cause) = served(&place, &file);
        assert_eq!(state, "failed", "{entry}: {cause}");
        assert!(cause.contains("has mcp-host itself as a server, with this same config"), "{entry}: {cause}");
        assert_eq!(place.starts(), done + 1, "{entry}");
    }
}

#[test]
fn c1_who_finds_its_own_mark_exits_2_with_one_line() {
    let place = Place::new();
    let file = place.config("mcp.json", &json!({}));
    let script = format!("{PROGRAM} tools --config {} >out 2>&1; echo $? >>out", file.display());
    let outer = place.config("mcp.json", &entry("sh", &["-c", &script]));
    drop(served(&place, &outer));
    let said = std::fs::read_to_string(place.file("out")).unwrap();
    let lines: Vec<&str> = said.lines().collect();
    let [error, help, code] = &lines[..] else { panic!("one line of what is wrong, one that mends it: {said}") };
    assert!(error.contains("has mcp-host itself as a server, with this same config") && *code == "2", "{said}");
    assert!(help.starts_with(&format!("help: remove that entry from {}", file.display())), "{said}");
    assert_eq!(place.starts(), 1);
}

#[test]
fn c1_check_names_what_leads_back() {
    let place = Place::new();
    let mut servers = entry(PROGRAM, &["stdio", "--config", "mcp.json"]);
    servers["daemon"] = json!({ "url": "http://localhost:8808/mcp" });
    let file = place.config("mcp.json", &servers);
    let output = place.command(&["check", "--config"]).arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("server `me` starts this host again"), "{said}");
    assert!(said.contains("server `daemon` is the address of `mcp-host serve`"), "{said}");
    assert!(said.contains("help: remove `daemon` from"), "{said}");
}

#[test]
fn c1_a_host_that_dials_itself_asks_once_and_no_more() {
    for (path, kind) in [("mcp", "http"), ("sse", "sse"), ("mcp", "streamable-http")] {
        let place = Place::new();
        let port = free_port();
        let url = format!("http://127.0.0.1:{port}/{path}");
        let file = place.config("mcp.json", &json!({ "me": { "type": kind, "url": url } }));
        let daemon = place.serve(&file, port);
        let (state, cause) = daemon.reaches("me", &["disabled", "failed", "connected"]);
        assert_eq!(state, "disabled", "{kind}: {cause}");
        assert!(cause.starts_with("this is this host itself"), "{cause}");
        daemon.reaches_all();
        assert_eq!(place.starts(), 1);
    }
}

/// Returns the names of the tools that a daemon shows to a client of the crate.
async fn seen(host: &Host) -> Vec<String> {
    let catalog: std::sync::Arc<Catalog> = host.catalog_ready().await;
    catalog.tools().iter().map(|tool| tool.name().to_owned()).collect()
}

#[tokio::test]
async fn c1_two_hosts_that_name_each_other_list_each_other_once() {
    let (one, two) = (Place::new(), Place::new());
    let ports = [free_port(), free_port()];
    let url = |port: u16| format!("http://127.0.0.1:{port}/mcp");
    let file = one.config("mcp.json", &json!({ "other": { "url": url(ports[1]) } }));
    let other = two.config("mcp.json", &json!({ "first": { "url": url(ports[0]) } }));
    let first = one.serve(&file, ports[0]);
    first.listening();
    let second = two.serve(&other, ports[1]);
    second.listening();
    let client = one.file("client.json");
    std::fs::write(&client, json!({ "mcpServers": { "a": { "url": first.url } } }).to_string()).unwrap();
    let host = Host::builder().config_file(&client).start().await.unwrap();
    let begun = Instant::now();
    let of_other = loop {
        let names = seen(&host).await;
        if names.iter().any(|name| name.contains("other__plain__echo")) {
            break names;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "{names:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    // A change of one list makes both list again; what they had from each other must not return.
    for round in 0..3 {
        let more = json!({ "other": { "url": url(ports[1]) }, format!("more{round}"): { "command": PROGRAM, "args": ["__demo-server"] } });
        one.config("mcp.json", &more);
        let wanted = format!("a__more{round}__echo");
        let begun = Instant::now();
        while !seen(&host).await.contains(&wanted) {
            assert!(begun.elapsed() < Duration::from_secs(60), "no {wanted}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let after = seen(&host).await;
    assert!(after.iter().all(|name| !name.contains("first__")), "{after:?}");
    // The ordinary server and one more of ours, and the ordinary one of the other.
    assert_eq!(after.len(), 9, "before {of_other:?}, after {after:?}");
    assert_eq!((one.starts(), two.starts()), (1, 1));
    assert!(host.status().iter().all(|server| server.state == StateName::Connected));
    host.shutdown().await;
}
