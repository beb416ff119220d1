//! What people read of the feed: `logs`, `calls`, `status --watch`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Stdio};

use insta::assert_snapshot;

use super::{call, config, event, host};
use crate::daemon::{run, steady};
use crate::reload::program::mcp_host;

/// Removes times.
fn timeless(text: &str) -> String {
    let is_clock = |word: &str| word.len() == "00:00:00.000Z".len() && word.ends_with('Z');
    let line = |line: &str| {
        line.split_whitespace().map(|word| if is_clock(word) { "CLOCK" } else { word }).collect::<Vec<_>>().join(" ")
    };
    steady(&text.lines().map(line).collect::<Vec<_>>().join("\n"))
}

/// A command that follows; it is killed when dropped.
struct Following(Child, BufReader<std::process::ChildStdout>);

impl Following {
    fn start(home: &std::path::Path, args: &[&str]) -> Self {
        let mut child = mcp_host(home, args).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self(child, out)
    }

    /// Returns the lines up to the first one with this text.
    fn until(&mut self, text: &str) -> String {
        let mut said = String::new();
        while !said.lines().last().is_some_and(|line| line.contains(text)) {
            assert!(self.1.read_line(&mut said).unwrap() > 0, "no {text:?} in {said}");
        }
        said
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn logs_show_the_last_lines_and_those_that_come() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let daemon = host(home);
    // What a server writes and what becomes of it are in no order.
    let logs = timeless(&run(home, &["logs"]));
    let mut logs: Vec<&str> = logs.lines().collect();
    logs[1..].sort_unstable();
    assert_snapshot!(logs.join("\n"), @r"
    exit 0
    CLOCK echo idle -> initializing
    CLOCK echo initializing -> connected
    CLOCK echo warming up\u{7}
    ");
    assert_snapshot!(timeless(&run(home, &["logs", "echo", "--source", "stderr"])), @r"
    exit 0
    CLOCK warming up\u{7}
    ");
    assert_snapshot!(timeless(&run(home, &["logs", "-n", "1", "--since", "1h", "--level", "info", "--source", "state"])), @"
    exit 0
    CLOCK echo initializing -> connected
    ");
    assert_snapshot!(timeless(&run(home, &["logs", "--level", "error"])), @"
    exit 0
    no lines so far
    ");
    assert_snapshot!(run(home, &["logs", "ecko"]), @"
    exit 2
    error: no server is called `ecko`
    help: did you mean `echo`?
    ");
    let json = run(home, &["logs", "--json"]);
    let events: Vec<_> = json.lines().skip(1).map(event).collect();
    assert_eq!((&events[0]["type"], &events.last().unwrap()["type"]), (&"hello".into(), &"snapshot".into()));

    let mut follow = Following::start(home, &["logs", "-f", "second"]);
    let mut other = Following::start(home, &["logs", "-f", "-n", "0"]);
    let mut more = config();
    more["mcpServers"]["second"] = more["mcpServers"]["echo"].clone();
    // `second` is not there yet, so the first one ends at once.
    assert_eq!(follow.0.wait().unwrap().code(), Some(2));
    std::fs::write(home.join("mcp.json"), more.to_string()).unwrap();
    daemon.hears("✓ second");
    let said = other.until("initializing -> connected");
    assert!(said.contains("second  warming up\\u{7}"), "{said}");
    assert!(said.contains("config reloaded: new: second"), "{said}");
}

#[test]
fn calls_show_who_called_what_and_how_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let daemon = host(home);
    assert_snapshot!(run(home, &["calls"]), @"
    exit 0
    no calls so far
    ");
    let mut follow = Following::start(home, &["calls", "-f", "--json"]);
    follow.until("snapshot");
    call(home);
    // A tool that fails, and one that nobody lists.
    run(home, &["call", "echo__countdown", "from=-1", "--no-check"]);
    run(home, &["call", "echo__echo", "--no-check"]);
    assert_snapshot!(timeless(&run(home, &["calls"])), @"
    exit 0
    TIME SERVER CALL CLIENT TOOK OUTCOME
    CLOCK echo echo mcp-host TIME ok
    CLOCK echo countdown mcp-host TIME error
    CLOCK echo echo mcp-host TIME error
    ");
    assert_snapshot!(timeless(&run(home, &["calls", "--failed", "--server", "echo"])), @"
    exit 0
    TIME SERVER CALL CLIENT TOOK OUTCOME
    CLOCK echo countdown mcp-host TIME error
    CLOCK echo echo mcp-host TIME error
    ");
    assert_snapshot!(run(home, &["calls", "--server", "nobody"]), @"
    exit 2
    error: no server is called `nobody`
    help: the running mcp-host has: echo
    ");
    let followed = follow.until(r#""id":1,"phase":"end""#);
    followed.lines().for_each(|line| drop(event(line)));
    drop(daemon);
    assert_eq!(follow.0.wait().unwrap().code(), Some(4), "the daemon has stopped");
}

#[test]
fn calls_show_what_was_called_before_anybody_looked() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let _daemon = host(home);
    call(home);
    run(home, &["call", "echo__countdown", "from=-1", "--no-check"]);
    let shown = "
    exit 0
    TIME SERVER CALL CLIENT TOOK OUTCOME
    CLOCK echo echo mcp-host TIME ok
    CLOCK echo countdown mcp-host TIME error";
    let lines = |text: &str| text.trim().lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>();
    assert_eq!(lines(&timeless(&run(home, &["calls"]))), lines(shown));
    // Whoever looks next sees the same, and what came meanwhile.
    call(home);
    let now = timeless(&run(home, &["calls"]));
    assert_eq!(lines(&now), [lines(shown), vec!["CLOCK echo echo mcp-host TIME ok".to_owned()]].concat());
    let json = run(home, &["calls", "--json"]);
    let calls: Vec<_> = json.lines().skip(1).map(event).filter(|event| event["type"] == "call").collect();
    let told: Vec<_> = calls.iter().map(|call| (call["id"].as_u64(), call["door"].as_str())).collect();
    assert_eq!(told, [(Some(1), Some("socket")), (Some(2), Some("socket")), (Some(3), Some("socket"))]);
}

#[test]
fn status_is_watched() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let _daemon = host(home);
    let mut watch = Following::start(home, &["status", "--watch"]);
    assert_snapshot!(timeless(&watch.until("echo")), @"
    SERVER STATE SINCE REVISION TRANSPORT LEASES CALLS LAST ERROR
    echo connected TIME 2025-11-25 stdio 1 0
    ");
    let mut json = Following::start(home, &["status", "--watch", "--json"]);
    json.until("snapshot").lines().for_each(|line| drop(event(line)));
    let mut more = config();
    more["mcpServers"]["second"] = more["mcpServers"]["echo"].clone();
    std::fs::write(home.join("mcp.json"), more.to_string()).unwrap();
    let said = watch.until("second  initializing -> connected");
    assert!(said.contains(" -> initializing"), "{said}");
    json.until(r#""to":"connected""#).lines().for_each(|line| drop(event(line)));
}

#[test]
fn without_a_daemon_there_is_nothing_to_read() {
    let home = tempfile::tempdir().unwrap();
    for args in [&["logs"][..], &["calls"], &["status", "--watch"], &["logs", "a", "-f"]] {
        let said = run(home.path(), args);
        assert_eq!(said, "exit 4\nerror: no mcp-host is running\nhelp: mcp-host serve\n", "{args:?}");
    }
}
