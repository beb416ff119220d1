//! `host.threads`: connections are served on several threads, and clients notice nothing of it.

use std::collections::BTreeMap;
use std::fs;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use serde_json::json;

use super::clients::{open, send};
use super::daemon;

/// Returns the threads for clients of a process, and how often each was given a core.
fn turns(process: u32) -> BTreeMap<String, u64> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).unwrap().map(|thread| thread.unwrap().path());
    let named = threads.map(|thread| (fs::read_to_string(thread.join("comm")).unwrap().trim().to_owned(), thread));
    let turns = |thread: std::path::PathBuf| {
        let times = fs::read_to_string(thread.join("schedstat")).unwrap();
        times.split_whitespace().next_back().unwrap().parse().unwrap()
    };
    named.filter(|(name, _)| name.starts_with("clients-")).map(|(name, thread)| (name, turns(thread))).collect()
}

#[test]
fn several_threads_serve_the_connections_of_clients() {
    let home = tempfile::tempdir().unwrap();
    let servers = json!({ "s": { "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"] } });
    let mut daemon = daemon(home.path(), &json!({ "mcpServers": servers, "host": { "threads": 3 } }));
    let process = daemon.process();
    // A thread says its name once it runs.
    let begun = Instant::now();
    let before = loop {
        let named = turns(process);
        if named.keys().eq(["clients-1", "clients-2"]) {
            break named;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{named:?}");
    };

    // Each of these occupies a thread, so that whatever comes next is spread over all of them.
    let idle: Vec<TcpStream> =
        (0..3).map(|_| TcpStream::connect(format!("127.0.0.1:{}", daemon.port)).unwrap()).collect();
    let session = open(&daemon.port, "one", "1");
    std::thread::scope(|scope| {
        for client in 0..9 {
            let (port, session) = (&daemon.port, &session);
            scope.spawn(move || {
                for call in 0..20 {
                    let text = format!("{client} asks {call}");
                    let params = json!({ "name": "s__echo", "arguments": { "text": text } });
                    let body = json!({ "jsonrpc": "2.0", "id": client, "method": "tools/call", "params": params });
                    let answer = send(port, "POST", session, &body.to_string());
                    assert!(answer.contains(&format!("\"{text}\"")), "{answer}");
                }
            });
        }
    });
    let after = turns(process);
    assert!(before.iter().all(|(name, turns)| after[name] > *turns), "{before:?} {after:?}");
    drop(idle);
    daemon.end();
}
