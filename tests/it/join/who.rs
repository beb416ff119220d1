//! Who joins whom, and who does not.

use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};

use serde_json::json;

use super::{Client, Daemon, Place, canonical};

const JOINED: &str = "note: joined the mcp-host on port ";

/// Reports whether a client of this command joins, and returns what stderr says about it.
fn joins(place: &Place, command: std::process::Command) -> (bool, String) {
    let before = place.starts();
    let mut client = Client::start(command).begun();
    assert!(client.tools() > 0);
    // A list alone may come from an earlier run, and its server starts behind it.
    let id = client.call("echo__echo", &json!({ "text": "here" }));
    assert!(client.answer(id)["result"].is_object());
    let (code, text) = client.leave();
    assert_eq!(code, 0, "{text}");
    let joined = text.contains(JOINED);
    assert_eq!(place.starts() == before, joined, "a host of its own starts the server: {text}");
    (joined, text)
}

#[test]
fn twenty_clients_share_one_process() {
    let place = Place::new();
    let daemon = place.serve();
    let mut clients: Vec<Client> = (0..20).map(|_| place.stdio()).collect();
    clients = clients.into_iter().map(Client::begun).collect();
    for client in &mut clients {
        assert!(client.tools() > 0);
        let id = client.call("echo__countdown", &json!({ "from": 1 }));
        assert!(client.answer(id)["result"].is_object());
    }
    assert_eq!(place.starts(), 1);
    for client in clients {
        let (code, text) = client.leave();
        assert_eq!((code, text.starts_with(JOINED)), (0, true), "{text}");
    }
    drop(daemon);
}

#[test]
fn h83_what_the_config_depends_on_is_compared() {
    let place = Place::new();
    std::fs::create_dir(place.file("elsewhere")).unwrap();
    let mut daemon = place.serve();
    let stdio = || place.command(&["stdio", "--config", "mcp.json"]);
    assert!(joins(&place, stdio()).0);
    // By another path of the file, from another folder, and with few variables.
    let mut other = place.command(&["stdio", "--config", "../mcp.json"]);
    other.current_dir(place.file("elsewhere"));
    assert!(joins(&place, other).0);
    // With the six variables that SDKs pass on.
    let mut six = stdio();
    six.envs([("LOGNAME", "u"), ("USER", "u"), ("SHELL", "/bin/sh"), ("TERM", "dumb")]);
    assert!(joins(&place, six).0);
    let mut token = stdio();
    token.env("SECRET", "of this client alone");
    let (joined, text) = joins(&place, token);
    assert!(!joined && text.contains("the variable SECRET has another value there"), "{text}");
    assert!(!text.contains("of this client alone"), "{text}");
    let mut setting = stdio();
    setting.env("MCP_HOST_TASKS", "false");
    assert!(!joins(&place, setting).0);
    assert!(!joins(&place, place.command(&["stdio", "--config", "mcp.json", "--own"])).0);
    let mut never = stdio();
    never.env("MCP_HOST_JOIN", "never");
    assert!(!joins(&place, never).0);
    // A copy is another file.
    std::fs::copy(place.file("mcp.json"), place.file("copy.json")).unwrap();
    let (joined, text) = joins(&place, place.command(&["stdio", "--config", "copy.json"]));
    assert!(!joined && text.contains(&canonical(&place.file("mcp.json"))), "{text}");
    // A config found in the working directory belongs to a project.
    std::fs::copy(place.file("mcp.json"), place.file("mcp-host.json")).unwrap();
    daemon.terminate();
    daemon.wait();
    daemon = Daemon::of(&place, "mcp-host.json");
    let mut client = Client::start(place.command(&["stdio"])).begun();
    assert_eq!(client.tools(), 0, "it is not approved");
    let (_, text) = client.leave();
    assert!(text.contains("the user's own config"), "{text}");
    drop(daemon);
}

impl Daemon {
    fn of(place: &Place, file: &str) -> Self {
        std::fs::rename(place.file(file), place.file("aside")).unwrap();
        std::fs::rename(place.file("aside"), place.file(file)).unwrap();
        let args = ["serve", "--quiet", "--config", file, "--listen", "127.0.0.1:0"];
        let mut command = place.command(&args);
        command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
        let daemon = Self(command.spawn().unwrap());
        super::until(|| !place.sockets().is_empty());
        daemon
    }
}

#[test]
fn a_relative_path_means_another_server_in_another_folder() {
    let place = Place::new();
    std::fs::create_dir(place.file("elsewhere")).unwrap();
    for folder in ["", "elsewhere/"] {
        std::fs::write(place.file(&format!("{folder}server.sh")), format!("exec {} __demo-server", super::PROGRAM))
            .unwrap();
    }
    let script = r#"echo started >>"$0"; exec sh "$1""#;
    let args = json!(["-c", script, place.file("starts"), "server.sh"]);
    place.write(&json!({ "mcpServers": { "echo": { "command": "sh", "args": args } } }));
    let daemon = place.serve();
    assert!(joins(&place, place.command(&["stdio", "--config", "mcp.json"])).0);
    let mut other = place.command(&["stdio", "--config", "../mcp.json"]);
    other.current_dir(place.file("elsewhere"));
    let (joined, text) = joins(&place, other);
    assert!(!joined && text.contains("has a relative path"), "{text}");
    drop(daemon);
}

#[test]
fn a_daemon_that_lets_nobody_in_is_not_joined() {
    let auth = json!({ "type": "bearer", "clients": { "a": format!("sha256:{}", "ab".repeat(32)) } });
    for (host, joined) in [
        (json!({ "join": "never" }), false),
        (json!({ "auth": auth }), false),
        (json!({ "auth": auth, "join": "auto" }), true),
    ] {
        let place = Place::with(&host);
        let daemon = place.serve();
        // Beside clients that prove who they are it is someone else, with servers of its own in the daemon.
        let mut client = place.stdio().begun();
        assert!(client.tools() > 0);
        let text = client.leave().1;
        assert_eq!(text.starts_with(JOINED), joined, "{host}: {text}");
        drop(daemon);
    }
}

#[test]
fn a_daemon_that_is_named_is_joined_or_nothing() {
    let place = Place::new();
    let daemon = place.serve();
    let port = place.sockets()[0].file_stem().unwrap().to_string_lossy().into_owned();
    // Nothing is compared, and no config is read.
    let mut other = place.command(&["stdio", "--join", &port]);
    other.env("SECRET", "another");
    assert!(joins(&place, other).0);
    daemon.terminate();
    daemon.wait();
    let (code, text) = Client::start(place.command(&["stdio", "--join", &port])).ended();
    assert_eq!(code, 4, "{text}");
    assert!(text.starts_with("error: no mcp-host is running"), "{text}");
}

#[test]
fn those_who_say_nothing_keep_nobody_out() {
    let place = Place::new();
    let daemon = place.serve();
    let silent: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(&place.sockets()[0]).unwrap()).collect();
    assert!(joins(&place, place.command(&["stdio", "--config", "mcp.json"])).0);
    drop((silent, daemon));
}

/// Creates a socket where a daemon would have its own.
pub(super) fn socket(place: &Place) -> UnixListener {
    let folder = place.file(".local/state/mcp-host");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(0o700)).unwrap();
    UnixListener::bind(folder.join("8808.sock")).unwrap()
}

#[test]
fn sockets_that_lead_nowhere_cost_a_line_at_most() {
    // One that a killed daemon left.
    let place = Place::new();
    drop(socket(&place));
    assert_eq!(joins(&place, place.command(&["stdio", "--config", "mcp.json"])), (false, String::new()));
    // One that dies between `connect` and the first byte, one that never answers, and one of another version.
    let replies: [(Option<&str>, &str); 3] = [
        (Some(""), "did not answer"),
        (None, "did not answer"),
        (Some("{\"error\":\"unknown request\"}\n"), "is a different version"),
    ];
    for (reply, says) in replies {
        let place = Place::new();
        let listener = socket(&place);
        let held = std::thread::spawn(move || {
            use std::io::{BufRead as _, BufReader, Write as _};
            let (mut stream, _) = listener.accept().unwrap();
            BufReader::new(&stream).read_line(&mut String::new()).unwrap();
            match reply {
                Some(reply) => drop(stream.write_all(reply.as_bytes())),
                None => return Some(stream),
            }
            None
        });
        let (joined, text) = joins(&place, place.command(&["stdio", "--config", "mcp.json"]));
        assert!(!joined && text.lines().count() == 1 && text.contains(says), "{text}");
        drop(held.join().unwrap());
    }
    // One of another user, which takes privileges to create.
    let place = Place::new();
    let listener = socket(&place);
    let path = place.file(".local/state/mcp-host/8808.sock");
    if std::os::unix::fs::chown(&path, Some(12345), None).is_ok() {
        assert_eq!(joins(&place, place.command(&["stdio", "--config", "mcp.json"])), (false, String::new()));
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err(), "nothing was said to it");
    }
}
