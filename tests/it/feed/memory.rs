//! What a daemon holds of calls and lines: no arguments while nobody asks for them, and rings that are small when full.

use std::fs::File;
use std::io::{BufRead as _, Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;

use serde_json::{Value, json};

use super::{Feed, PATIENCE};
use crate::daemon::daemon;
use crate::reload::program::Daemon;

/// How many calls have a word of their own in their arguments.
const WORDS: usize = 200;

fn demo() -> Value {
    json!({ "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"] })
}

/// Makes a call of `echo` with this text.
fn echo(daemon: &Daemon, text: &str) {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "a test", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({ "name": "echo__echo", "arguments": { "text": text }, "_meta": meta });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params }).to_string();
    let mut stream = TcpStream::connect(format!("127.0.0.1:{}", daemon.port)).unwrap();
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n\
         Mcp-Name: echo__echo\r\nContent-Length: {}\r\n\r\n",
        daemon.port,
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains(text), "{answer}");
}

/// Returns how many of the words are in the memory of the daemon.
fn found(daemon: &Daemon) -> usize {
    let process = format!("/proc/{}", daemon.process());
    let memory = File::open(format!("{process}/mem")).unwrap();
    let maps = std::fs::read_to_string(format!("{process}/maps")).unwrap();
    let written = maps.lines().filter(|line| line.split(' ').nth(1).is_some_and(|rights| rights.starts_with("rw")));
    let mut seen = [false; WORDS];
    for line in written {
        let range = line.split(' ').next().and_then(|range| range.split_once('-')).unwrap();
        let [from, to] = [range.0, range.1].map(|at| u64::from_str_radix(at, 16).unwrap());
        let mut bytes = vec![0; usize::try_from(to - from).unwrap()];
        // Some ranges are no memory that can be read.
        let Ok(read) = memory.read_at(&mut bytes, from) else { continue };
        for at in memchr::memmem::find_iter(&bytes[..read], "plover-") {
            let number = bytes[..read].get(at + 7..at + 11).and_then(|digits| std::str::from_utf8(digits).ok());
            if let Some(seen) = number.and_then(|number| seen.get_mut(number.parse::<usize>().ok()?)) {
                *seen = true;
            }
        }
    }
    seen.into_iter().filter(|seen| *seen).count()
}

/// Makes calls with words, and then others of the same size, which take the memory that became free.
fn talk(daemon: &Daemon) {
    let filler = "x".repeat(1000);
    (0..WORDS).for_each(|number| echo(daemon, &format!("plover-{number:04} {filler}")));
    (0..WORDS).for_each(|_| echo(daemon, &format!("nobody-0000 {filler}")));
}

#[test]
fn arguments_are_in_memory_only_while_a_feed_asks_for_them() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let daemon = daemon(home, &json!({ "mcpServers": { "echo": demo() } }));
    daemon.hears("✓ echo");
    // A feed that asks for none of them changes nothing: calls are events then.
    let mut feed = Feed::open(home, &daemon, &json!({}));
    feed.until(|event| event["type"] == "snapshot");
    talk(&daemon);
    let without = found(&daemon);
    drop(feed);
    let mut feed = Feed::open(home, &daemon, &json!({ "parts": ["calls"], "arguments": "masked" }));
    feed.until(|event| event["type"] == "snapshot");
    // It tells the arguments of the first fifty calls of each second.
    talk(&daemon);
    let with = found(&daemon);
    // Freed memory keeps its bytes for a while, so some are always found.
    assert!(without < WORDS / 4 && with > without + 20, "{without} without, {with} with");
}

/// Returns the next event of a feed; that it holds against the schema is for other tests.
fn line(feed: &mut Feed) -> Value {
    let mut line = String::new();
    feed.0.read_line(&mut line).unwrap();
    serde_json::from_str(&line).unwrap()
}

/// Returns the memory of a process that no file has, in KiB.
fn held(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.process())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn full_rings_of_fifty_servers_take_less_than_20_mib() {
    // Each writes more than its ring holds, and then says nothing.
    let script = "yes \"$(printf '%1000s' | tr ' ' z)\" | head -n 300 >&2; echo done >&2; exec cat >/dev/null";
    let servers: serde_json::Map<String, Value> = (0..50)
        .map(|number| (format!("s{number:02}"), json!({ "command": "/bin/sh", "args": ["-c", script] })))
        .collect();
    let sizes = [(1, "1KiB", false), (1000, "256KiB", true)].map(|(calls, lines, is_full)| {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path();
        let limits = json!({ "calls": calls, "lines": lines });
        let host = json!({ "limits": limits, "startupWait": "1s" });
        let daemon = daemon(home, &json!({ "mcpServers": servers, "host": host }));
        let mut feed = Feed::open(home, &daemon, &json!({ "parts": ["lines"] }));
        let (mut ended, begun) = (0, std::time::Instant::now());
        while ended < 50 {
            assert!(begun.elapsed() < PATIENCE);
            ended += usize::from(line(&mut feed)["text"] == "done");
        }
        drop(feed);
        // All that a feed may get of the past: some of it is left where there are no rings.
        let mut past = Feed::open(home, &daemon, &json!({ "parts": ["lines"], "past": 10_000 }));
        let told = std::iter::from_fn(|| Some(line(&mut past)).filter(|event| event["type"] != "snapshot"));
        let lines = told.filter(|event| event["source"] == "stderr").count();
        assert_eq!(lines > 9000, is_full, "{lines} lines");
        held(&daemon)
    });
    let more = sizes[1].saturating_sub(sizes[0]);
    assert!(more < 20 * 1024, "{more} KiB more: {sizes:?}");
}
