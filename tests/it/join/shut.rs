//! Clients that the config no longer admits: they are disconnected, and no other client notices.

use serde_json::{Value, json};

use super::apart::post;
use super::{Place, until};

/// Makes the daemon serve its server with these host settings from now on.
fn set(place: &Place, host: &Value) {
    place.write(&json!({ "mcpServers": { "echo": place.server() }, "host": host }));
}

fn status(place: &Place) -> Value {
    let status = place.command(&["status", "--json"]).output().unwrap();
    serde_json::from_slice(&status.stdout).unwrap_or_default()
}

fn clients(place: &Place) -> usize {
    status(place)["clients"].as_array().map_or(usize::MAX, Vec::len)
}

fn port(place: &Place) -> u16 {
    place.sockets()[0].file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

#[test]
fn one_that_is_shut_out_goes_alone() {
    let place = Place::with(&json!({ "join": "auto", "limits": { "drain": "100ms" } }));
    let daemon = place.serve();
    let port = port(&place);
    let mut guest = place.stdio().begun();
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "a", "version": "1" },
    });
    let begin = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params });
    let session = post(port, None, &begin).0.expect("a session");
    let call = |from: u64| {
        let params = json!({ "name": "echo__countdown", "arguments": { "from": from } });
        json!({ "jsonrpc": "2.0", "id": from, "method": "tools/call", "params": params })
    };
    // Both have a call in flight.
    let id = guest.call("echo__countdown", &json!({ "from": 60 }));
    let other = std::thread::spawn({
        let (session, call) = (session.clone(), call(59));
        move || post(port, Some(&session), &call)
    });
    until(|| status(&place)["servers"][0]["callsRunning"] == 2);
    set(&place, &json!({ "join": "never", "limits": { "drain": "100ms" } }));
    let answer = guest.answer(id);
    assert!(
        answer["result"]["isError"] == true && answer.to_string().contains("serves this client no more"),
        "{answer}"
    );
    until(|| clients(&place) == 1);
    assert_eq!(status(&place)["servers"][0]["callsRunning"], 1, "the other call goes on");
    let answer = post(port, Some(&session), &call(1)).1;
    assert!(answer["result"]["content"].is_array() && answer["result"]["isError"] != true, "{answer}");
    assert!(post(port, None, &begin).0.is_some(), "more clients come");
    assert!(guest.tools() > 0, "it has a host of its own");
    assert_eq!(guest.leave().0, 0);
    drop(daemon);
    other.join().unwrap();
}

#[test]
fn one_that_would_not_be_let_in_any_more_goes() {
    let auth = json!({ "type": "bearer", "clients": { "a": format!("sha256:{}", "ab".repeat(32)) } });
    let place = Place::with(&json!({ "auth": auth, "join": "auto" }));
    let daemon = place.serve();
    let guest = place.stdio().begun();
    until(|| clients(&place) == 1);
    set(&place, &json!({ "auth": auth }));
    until(|| clients(&place) == 0);
    assert_eq!(guest.leave().0, 0);
    drop(daemon);
}
