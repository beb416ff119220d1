//! A real terminal in which `serve` runs, and which is closed.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::scene::{PATIENCE, Scene};

const SETSID: &str = "/usr/bin/setsid";

pub(super) fn act(scene: &mut Scene) {
    if !Path::new(SETSID).exists() {
        scene.lacks = Some("setsid");
        return;
    }
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    // The leader of a session gets the terminal that it opens first. The server reports who it is.
    scene.program("~/bin/told-server", &super::servers::good("echo $$ >pid"));
    scene.file("mcp.json", &super::servers::config("s", r#"{ "command": "told-server" }"#));
    let line = "mcp-host serve --config mcp.json --listen 127.0.0.1:0";
    scene.typed(line);
    let mut command = scene.command(SETSID);
    // The test runner may have been told to outlive a terminal, and its children inherit that.
    command
        .args(["env", "--default-signal=HUP", "/bin/sh", "-c", &format!("exec {line} <>\"$0\" >&0 2>&0"), &name])
        .env("TERM", "dumb");
    let mut child = command.spawn().unwrap();
    let text = read_until(&terminal, "1 server: ");
    let port = text.split("127.0.0.1:").nth(1).and_then(|rest| rest.split('/').next()).unwrap().to_owned();
    scene.hide(&format!("127.0.0.1:{port}"), "127.0.0.1:PORT");
    let end = text.find("1 server: ").unwrap();
    let lines = text[end..].lines().next().unwrap().len();
    scene.note(&text[..end + lines].replace('\r', ""));
    let server: i32 = std::fs::read_to_string(scene.path("pid")).unwrap().trim().parse().unwrap();
    scene.remark("the user closes the window");
    drop(terminal);
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if begun.elapsed() > PATIENCE / 3 {
            let _ = child.kill();
            let _ = child.wait();
            break None;
        }
        wait_a_moment();
    };
    scene.note(&match status.map(|status| status.code()) {
        Some(Some(code)) => format!("[exit {code}]"),
        Some(None) => "[a signal]".to_owned(),
        None => "[it goes on]".to_owned(),
    });
    let server = rustix::process::Pid::from_raw(server).unwrap();
    let is_gone = rustix::process::test_kill_process(server).is_err();
    scene.note(if is_gone { "no process of it is left" } else { "its server is left" });
}

/// Returns what the terminal shows, up to these words.
fn read_until(terminal: &OwnedFd, words: &str) -> String {
    let (mut shown, begun) = (Vec::new(), Instant::now());
    loop {
        let text = String::from_utf8_lossy(&shown);
        if text.split(words).nth(1).is_some_and(|rest| rest.contains('\n')) {
            return text.into_owned();
        }
        assert!(begun.elapsed() < PATIENCE, "not shown: {words:?}; but {text}");
        let mut waiting = [PollFd::new(terminal, PollFlags::IN)];
        let second = rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 };
        if poll(&mut waiting, Some(&second)).unwrap() == 0 {
            continue;
        }
        let mut buffer = [0; 4096];
        // Until the other end is open there is nothing to read, which shows as an error.
        match rustix::io::read(terminal, &mut buffer) {
            Ok(read) => shown.extend_from_slice(&buffer[..read]),
            Err(_) => wait_a_moment(),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "processes can only be looked at again")]
fn wait_a_moment() {
    std::thread::sleep(Duration::from_millis(5));
}
