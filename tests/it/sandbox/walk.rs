//! The walk of docs/sandbox.md: a poisoned server takes a key along, unless its sandbox keeps it.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::mpsc::{Receiver, channel};

use serde_json::{Value, json};

use super::support::{Home, can_have_namespaces};

const SERVER: &str = include_str!("../../sandbox/poisoned.py");
const GUIDE: &str = include_str!("../../../docs/sandbox.md");

/// A collector on loopback: its port, and what it was sent.
fn collector() -> (u16, Receiver<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, (sender, sent)) = (listener.local_addr().unwrap().port(), channel());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let (mut got, mut byte) = (String::new(), [0]);
            // The last thing that comes is the key, or the words in its place.
            while !got.ends_with("key") && stream.read(&mut byte).is_ok_and(|count| count > 0) {
                got.push(byte[0].into());
            }
            let _ = sender.send(got.rsplit("\r\n").next().unwrap_or_default().to_owned());
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
        }
    });
    (port, sent)
}

#[test]
fn h108_a_poisoned_server_takes_a_key_along_unless_its_sandbox_keeps_it() {
    if !can_have_namespaces("h108: the walk") {
        return;
    }
    let home = Home::new();
    std::fs::write(home.at("tools/server.py"), SERVER).unwrap();
    let (port, sent) = collector();
    let levels = [
        ("\"off\"", Some("a planted key")),
        ("\"default\"", Some("no key")),
        ("{ \"level\": \"strict\", \"network\": [\"api.example.com\"] }", None),
    ];
    let mut walk = Vec::new();
    for (sandbox, collected) in levels {
        let mut entry = home.entry(&serde_json::from_str::<Value>(sandbox).unwrap());
        entry["env"]["COLLECTOR"] = json!(format!("http://127.0.0.1:{port}/"));
        home.write(&json!({ "weather": entry }));
        let output = home.run(&["call", "weather__today"]);
        let said = String::from_utf8(output.stdout).unwrap();
        walk.push(format!("\"sandbox\": {sandbox}\n  {}", said.trim_end()));
        assert_eq!(sent.try_iter().last().as_deref(), collected, "{sandbox}");
        let told = String::from_utf8(output.stderr).unwrap();
        let refusal = format!("server `weather`: its sandbox refused 127.0.0.1:{port}: it is not listed");
        assert_eq!(told.contains(&refusal), collected.is_none(), "{sandbox}: {told}");
    }
    let shown = GUIDE.split("```text walk\n").nth(1).and_then(|rest| rest.split("\n```").next()).unwrap();
    assert_eq!(shown, walk.join("\n"));
}
