//! npx in two phases. The npx here is a script of this test; `tests/sandbox/run` has the real one.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::support::{Home, can_have_namespaces};

/// Fetches a page into its cache if it is to fetch, and starts the script in its arguments if not.
const NPX: &str = r#"#!/usr/bin/env python3
import os, runpy, sys, urllib.request
got = os.environ["npm_config_cache"] + "/got"
if "--package=files@1" in sys.argv:
    assert sys.argv[1:] == ["-y", "--package=files@1", "--", "true"], sys.argv
    assert "REAL" not in os.environ and "npm_config_offline" not in os.environ, os.environ
    os.makedirs(os.path.dirname(got), exist_ok=True)
    page = urllib.request.urlopen("http://127.0.0.1:PORT/", timeout=20).read()
    open(got, "ab").write(page)
else:
    assert os.environ["npm_config_offline"] == "true" and os.path.exists(got), os.environ
    sys.argv = sys.argv[3:]
    runpy.run_path(sys.argv[0])
"#;

/// A registry of one page: its port, and how often it was asked.
fn registry() -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (port, count) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
    let asked = count.clone();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            asked.fetch_add(1, Ordering::SeqCst);
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|count| count > 0) {
                head.extend(byte);
            }
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\na page");
        }
    });
    (port, count)
}

fn entry(home: &Home, port: u16, sandbox: &Value) -> Value {
    let npx = home.at("bin/npx");
    std::fs::create_dir_all(home.at("bin")).unwrap();
    std::fs::write(&npx, NPX.replace("PORT", &port.to_string())).unwrap();
    std::fs::set_permissions(&npx, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut entry = home.entry(sandbox);
    entry["command"] = json!(npx);
    entry["args"] = json!(["-y", "files@1", home.at("tools/server.py")]);
    entry
}

#[test]
fn h108_npx_fetches_once_with_a_network_and_runs_without() {
    if !can_have_namespaces("h108: two phases") {
        return;
    }
    let ((port, asked), home) = (registry(), Home::new());
    let sandbox = json!({ "level": "strict", "install": [format!("127.0.0.1:{port}")] });
    let entry = entry(&home, port, &sandbox);
    for _ in 0..2 {
        let mut program = home.start(&json!({ "box": entry }));
        let says = program.run("box", "r = open(os.environ['npm_config_cache'] + '/got').read()");
        assert_eq!(says.as_deref(), Ok("a page"));
        let network = program.run("box", &format!("socket.create_connection(('127.0.0.1', {port}), 5)"));
        assert!(network.is_err_and(|error| error.starts_with("PermissionError: ")));
        assert_eq!(asked.load(Ordering::SeqCst), 1, "once a command line");
    }
}

#[test]
fn h108_a_package_that_cannot_be_fetched_fails_the_server() {
    if !can_have_namespaces("h108: a fetch that fails") {
        return;
    }
    let ((port, asked), home) = (registry(), Home::new());
    home.write(&json!({ "box": entry(&home, port, &json!({ "level": "strict", "install": ["a.example"] })) }));
    let output = home.run(&["check", "--connect"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("the process ended (exit code 1, while its package was fetched): "), "{said}");
    let help = format!(
        "help: its sandbox refused 127.0.0.1:{port}: if `box` is to reach that, list it in its entry: \"sandbox\": {{ \"install\": "
    );
    assert!(said.contains(&help), "{said}");
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}
