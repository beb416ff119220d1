//! What a daemon holds of calls: no arguments while no feed asks for them.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;

use serde_json::{Value, json};

use super::Feed;
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
    assert!(without < WORDS / 4 && with >= without + 5, "{without} without, {with} with");
}
