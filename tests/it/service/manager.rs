//! `serve` under a service manager that the test plays: its socket, and what it is told.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::reload::program::{Daemon, mcp_host};

/// Waits for a message to the manager.
fn told(manager: &UnixDatagram) -> String {
    let mut message = [0; 64];
    let length = manager.recv(&mut message).unwrap();
    String::from_utf8_lossy(&message[..length]).into_owned()
}

fn manager(home: &Path) -> UnixDatagram {
    let manager = UnixDatagram::bind(home.join("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    manager
}

fn config(home: &Path) {
    std::fs::write(home.join("mcp.json"), json!({ "mcpServers": {} }).to_string()).unwrap();
}

/// Asks whether the daemon lives.
fn lives(port: u16) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_manager_hears_that_the_door_is_open_and_that_the_threads_turn() {
    let home = tempfile::tempdir().unwrap();
    let manager = manager(home.path());
    config(home.path());
    let mut command = mcp_host(home.path(), &["serve", "--config", "mcp.json", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", home.path().join("notify")).env("WATCHDOG_USEC", "300000");
    let daemon = Daemon::start(command);
    assert_eq!(told(&manager), "READY=1");
    assert!(lives(daemon.port.parse().unwrap()).starts_with("HTTP/1.1 200"));
    for _ in 0..3 {
        assert_eq!(told(&manager), "WATCHDOG=1");
    }
}

#[test]
fn without_a_watchdog_only_the_door_is_told() {
    let home = tempfile::tempdir().unwrap();
    let manager = manager(home.path());
    config(home.path());
    let mut command = mcp_host(home.path(), &["serve", "--config", "mcp.json", "--listen", "127.0.0.1:0"]);
    command.env("NOTIFY_SOCKET", home.path().join("notify")).env("WATCHDOG_USEC", "300000").env("WATCHDOG_PID", "1");
    let mut daemon = Daemon::start(command);
    assert_eq!(told(&manager), "READY=1");
    daemon.end();
    manager.set_nonblocking(true).unwrap();
    assert!(manager.recv(&mut [0; 64]).is_err());
}

/// Starts the program as a manager does that holds a socket: it is descriptor 3, and the process is named.
fn with_socket(home: &Path, socket: OwnedFd, count: usize) -> Command {
    let script =
        format!("LISTEN_PID=$$ LISTEN_FDS={count}; export LISTEN_PID LISTEN_FDS; exec \"$@\" 3<&0 4<&0 </dev/null");
    let mut command = Command::new("/bin/sh");
    let places = ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"];
    command.env_clear().envs(places.map(|place| (place, home))).current_dir(home).stdin(Stdio::from(socket));
    command.args(["-c", &script, "sh", env!("CARGO_BIN_EXE_mcp-host"), "serve", "--config", "mcp.json"]);
    command
}

#[test]
fn a_socket_of_the_manager_is_served() {
    let home = tempfile::tempdir().unwrap();
    config(home.path());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // The client comes before the program, and waits in the queue of the socket.
    let early = std::thread::spawn(move || lives(port));
    let daemon = Daemon::start(with_socket(home.path(), listener.into(), 1));
    assert_eq!(daemon.port, port.to_string());
    assert!(early.join().unwrap().starts_with("HTTP/1.1 200"));
}

#[test]
fn what_is_no_listening_socket_is_refused_by_name() {
    let home = tempfile::tempdir().unwrap();
    config(home.path());
    let said = |command: &mut Command| {
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let file = std::fs::File::open(home.path().join("mcp.json")).unwrap();
    let wrong = said(&mut with_socket(home.path(), file.into(), 1));
    assert!(wrong.contains("error: the service manager passed no TCP socket that listens\nhelp: "), "{wrong}");
    let two = TcpListener::bind("127.0.0.1:0").unwrap();
    let wrong = said(&mut with_socket(home.path(), two.into(), 2));
    assert!(wrong.contains("error: the service manager passed 2 sockets, and one is expected\nhelp: "), "{wrong}");
}
