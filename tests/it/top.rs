//! `mcp-host top` in a real terminal: what it shows, and that it gives the terminal back however it ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use crate::console::Page;
use crate::daemon::{daemon, run};
use crate::reload::program::Daemon;

/// How long the program may take for one step.
const PATIENCE: Duration = Duration::from_secs(60);
/// The sequences that take the terminal and give it back.
const TAKEN: &str = "\x1b[?1049h";
const GIVEN_BACK: &str = "\x1b[?1049l";

/// `top` in a terminal of its own.
struct Top {
    terminal: OwnedFd,
    child: Child,
    shown: String,
    columns: u16,
}

impl Top {
    fn start(home: &Path, daemon: &Daemon, options: &[&str]) -> Self {
        Self::start_in(100, home, daemon, options)
    }

    /// Starts it in a terminal with so many columns.
    fn start_in(columns: u16, home: &Path, daemon: &Daemon, options: &[&str]) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        tcsetwinsize(&terminal, Winsize { ws_row: 20, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let side = || Stdio::from(std::fs::OpenOptions::new().read(true).write(true).open(&name).unwrap());
        let mut command = Command::new(env!("CARGO_BIN_EXE_mcp-host"));
        command.args(["top", "--listen", &daemon.port.to_string()]).args(options).env_clear();
        command.env("XDG_RUNTIME_DIR", home).env("HOME", home).env("TERM", "xterm").current_dir(home);
        let child = command.stdin(side()).stdout(side()).stderr(side()).spawn().unwrap();
        Self { terminal, child, shown: String::new(), columns }
    }

    /// Reads until the screen shows these words, or the terminal got this sequence.
    fn until(&mut self, words: &str) {
        let begun = Instant::now();
        while !self.shown.contains(words) && !screen(&self.shown, self.columns.into()).contains(words) {
            assert!(begun.elapsed() < PATIENCE, "not shown: {words:?}; but {:?}", self.shown);
            let mut waiting = [PollFd::new(&self.terminal, PollFlags::IN)];
            let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
            if poll(&mut waiting, Some(&second)).unwrap() == 0 {
                continue;
            }
            let mut buffer = [0; 4096];
            let read = rustix::io::read(&self.terminal, &mut buffer).unwrap_or_default();
            self.shown += &String::from_utf8_lossy(&buffer[..read]);
        }
    }

    fn press(&self, keys: &[u8]) {
        rustix::io::write(&self.terminal, keys).unwrap();
    }

    /// Checks that the terminal is as it was, and returns the exit code.
    fn ends(mut self) -> Option<i32> {
        self.until(GIVEN_BACK);
        let status = self.child.wait().unwrap();
        let modes = tcgetattr(&self.terminal).unwrap().local_modes;
        assert!(modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG), "{modes:?}");
        status.code()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

/// Returns what is on the screen after these bytes: only what has changed is sent, each piece with its place.
fn screen(sent: &str, columns: usize) -> String {
    let (mut rows, mut row, mut column) = (vec![vec![' '; columns]; 20], 0_usize, 0_usize);
    let mut letters = sent.chars();
    while let Some(letter) = letters.next() {
        if letter != '\u{1b}' {
            if let Some(cell) = rows.get_mut(row).and_then(|row| row.get_mut(column)) {
                *cell = letter;
            }
            column += 1;
            continue;
        }
        // What begins with a bracket ends with a letter.
        if letters.next() != Some('[') {
            continue;
        }
        let mut numbers = String::new();
        let end = letters.by_ref().find(|letter| {
            numbers.push(*letter);
            letter.is_ascii_alphabetic()
        });
        if end == Some('H') {
            let mut place = numbers.trim_end_matches('H').split(';').map(|number| number.parse().unwrap_or(1_usize));
            row = place.next().unwrap_or(1).saturating_sub(1);
            column = place.next().unwrap_or(1).saturating_sub(1);
        }
    }
    rows.into_iter().map(|row| row.into_iter().collect::<String>()).collect::<Vec<_>>().join("\n")
}

fn config() -> serde_json::Value {
    serde_json::json!({ "mcpServers": {
        "echo": { "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"] },
    } })
}

#[test]
fn top_shows_the_servers_and_gives_the_terminal_back() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let daemon = daemon(home, &config());
    daemon.hears("✓ echo");
    let mut top = Top::start(home, &daemon, &[]);
    top.until(TAKEN);
    top.until("connected");
    top.press(b"\r");
    top.until("Changes of echo");
    top.press(b"\x1b[B\t");
    top.until("Tools by use");
    top.press(b"q");
    assert_eq!(top.ends(), Some(0));
    for signal in [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT] {
        let mut top = Top::start(home, &daemon, &["--color", "never"]);
        top.until("connected");
        assert!(!top.shown.contains("\x1b[32m") && !top.shown.contains("\x1b[38;5;2m"), "{:?}", top.shown);
        top.signal(signal);
        assert_eq!(top.ends(), Some(130), "{signal:?}");
    }
    // Ctrl-C is a key in this mode.
    let mut top = Top::start(home, &daemon, &[]);
    top.until("connected");
    top.press(b"\x03");
    assert_eq!(top.ends(), Some(0));
    // The daemon ends: so does top, and the terminal is as it was.
    let mut top = Top::start(home, &daemon, &[]);
    top.until("connected");
    drop(daemon);
    assert_eq!(top.ends(), Some(4));
}

#[test]
fn top_restarts_a_server_after_it_has_asked() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let daemon = daemon(home, &config());
    daemon.hears("✓ echo");
    let mut top = Top::start(home, &daemon, &[]);
    top.until("connected");
    top.press(b"r");
    top.until("y or n");
    top.press(b"y");
    top.until("echo restarts");
    top.press(b"lq");
    assert_eq!(top.ends(), Some(0));
}

#[test]
fn a_server_that_does_not_start_is_told_everywhere_in_the_same_words() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let script = "echo opening the store >&2; echo no such database >&2; exit 3";
    let mut config = config();
    config["mcpServers"]["broken"] = serde_json::json!({
        "command": "/bin/sh", "args": ["-c", script], "restart": { "maxRetries": 0 },
    });
    let daemon = daemon(home, &config);
    let page = Page::open(home, &daemon);
    page.until("broken", |server| server["state"] == "failed");
    let of_page = page.get("server?name=broken");
    let reason = of_page["server"]["lastError"].as_str().unwrap_or_else(|| panic!("{of_page}"));
    let lines = ["opening the store", "no such database"];
    assert!(reason.contains(lines[1]), "{reason}");
    let texts: Vec<&str> =
        of_page["lines"].as_array().unwrap().iter().filter_map(|line| line["text"].as_str()).collect();
    assert!(lines.iter().all(|line| texts.contains(line)), "{texts:?}");
    let says = |place: &str, said: &str| {
        let missing: Vec<&str> = lines.into_iter().chain([reason]).filter(|words| !said.contains(words)).collect();
        assert!(missing.is_empty(), "{place} lacks {missing:?}: {said}");
    };
    says("status SERVER", &run(home, &["status", "broken"]));
    says("logs SERVER", &run(home, &["logs", "broken"]));
    let mut top = Top::start_in(240, home, &daemon, &[]);
    // What has failed comes first.
    top.until("failed");
    top.press(b"\r");
    top.until(reason);
    top.press(b"\t\t\t");
    lines.iter().for_each(|line| top.until(line));
    top.press(b"q");
    assert_eq!(top.ends(), Some(0));
}

#[test]
fn top_wants_a_terminal_and_prints_no_json() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let said = run(home, &["top"]);
    assert!(said.starts_with("exit 2\n") && said.contains("top needs a terminal"), "{said}");
    let said = run(home, &["top", "--json"]);
    assert!(said.contains("top is for people, and has no --json"), "{said}");
}
