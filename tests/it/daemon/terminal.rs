//! The terminal is closed: what was started there ends cleanly with it; what was started to outlive it continues.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::run;

/// Runs a shell line at its own terminal. Killing it closes the terminal.
fn terminal(home: &Path, line: &str) -> Child {
    let places = ["HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"];
    std::fs::write(home.join("mcp.json"), r#"{ "mcpServers": {} }"#).unwrap();
    // The test runner may have been told to outlive a terminal, and its children inherit that.
    let mut command = Command::new("env");
    command
        .args(["--default-signal=HUP", "script", "-qc", line, "/dev/null"])
        .env_clear()
        .envs(places.map(|place| (place, home)));
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default()).env("SHELL", "/bin/sh");
    command.env("PROGRAM", env!("CARGO_BIN_EXE_mcp-host")).current_dir(home);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Waits until the condition holds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "in vain: {what}");
        #[expect(clippy::disallowed_methods, reason = "another process can only be looked at again")]
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn serving(home: &Path) -> bool {
    run(home, &["status", "--json"]).starts_with("exit 0")
}

/// Counts the status sockets. A killed process leaves its socket behind.
fn sockets(home: &Path) -> usize {
    let entries = std::fs::read_dir(home.join("mcp-host")).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().extension().is_some_and(|extension| extension == "sock")).count()
}

#[test]
fn first_hour_r5_a_daemon_whose_terminal_goes_away_stops() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let mut terminal = terminal(home, r#"exec "$PROGRAM" serve -c mcp.json --listen 127.0.0.1:0"#);
    until("it serves", || serving(home));
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    // It removes its socket.
    until("it has stopped", || sockets(home) == 0);
}

#[test]
fn first_hour_r5_what_was_started_to_outlive_its_terminal_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let home = home.path();
    let line = r#"exec nohup "$PROGRAM" serve -c mcp.json --listen 127.0.0.1:0 >log 2>&1"#;
    let mut terminal = terminal(home, line);
    until("it serves", || serving(home));
    terminal.kill().unwrap();
    terminal.wait().unwrap();
    // The hangup has arrived, and means what it means to a service.
    let log = || std::fs::read_to_string(home.join("log")).unwrap_or_default();
    until("the hangup comes", || log().contains("config reloaded"));
    assert!(serving(home));
    let pid = super::status(home)["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    until("it has stopped", || sockets(home) == 0);
}
