//! One-shot commands beside a daemon: its servers are used.

use serde_json::Value;

use super::{Daemon, Place};

fn run(place: &Place, args: &[&str]) -> (i32, String, String) {
    let output = place.command(args).args(["--config", "mcp.json"]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// Each tool and its server.
fn names(listed: &str) -> Vec<(Value, Value)> {
    let tools: Vec<Value> = serde_json::from_str(listed).unwrap();
    tools.into_iter().map(|mut tool| (tool["name"].take(), tool["server"].take())).collect()
}

/// A daemon whose server is connected; how often that was started so far.
fn connected(place: &Place) -> (Daemon, usize) {
    let daemon = place.serve();
    super::until(|| {
        let status = place.command(&["status", "--json"]).output().unwrap();
        serde_json::from_slice::<Value>(&status.stdout).is_ok_and(|status| status["servers"][0]["state"] == "connected")
    });
    (daemon, place.starts())
}

#[test]
fn lists_start_no_server_once_more() {
    let place = Place::new();
    let alone = run(&place, &["tools", "--json"]);
    assert!(place.starts() > 0);
    let (daemon, starts) = connected(&place);
    for args in [["tools", "--json"], ["tools", "echo"], ["tools", "echo.ask"]] {
        let (code, out, err) = run(&place, &args);
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
        assert!(out.contains("ask"), "{out}");
        assert_eq!(place.starts(), starts, "{args:?}");
    }
    assert_eq!(names(&run(&place, &["tools", "--json"]).1), names(&alone.1));
    drop(daemon);
}

#[test]
fn calls_start_no_server_once_more() {
    let place = Place::new();
    place.share_by_all();
    let (daemon, starts) = connected(&place);
    let (code, out, err) = run(&place, &["call", "echo__countdown", "from=1"]);
    assert_eq!(code, 0, "{out}{err}");
    assert_eq!(run(&place, &["call", "echo__countdown", "from=x"]).0, 2);
    assert_eq!(place.starts(), starts);
    drop(daemon);
}
