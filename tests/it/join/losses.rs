//! Daemons that stop, die, and come back under a relay: each request gets one response.

use serde_json::{Value, json};

use super::client::Client;
use super::{Place, pid, until};

fn kind(answer: &Value) -> &Value {
    &answer["result"]["_meta"]["mcp-host/error"]["kind"]
}

#[test]
fn a_restart_loses_no_call() {
    let place = Place::new();
    let daemon = place.serve();
    let mut client = place.stdio().begun_asked();
    assert!(client.tools() > 0);
    client.ask("logging/setLevel", &json!({ "level": "error" }));
    // A call that the stopping daemon answers, after the client has answered its question.
    let asks = client.call("echo__ask", &json!({}));
    let question = client.hears("elicitation/create");
    daemon.terminate();
    until(|| place.sockets().is_empty());
    let late = client.call("echo__countdown", &json!({ "from": 1 }));
    client.say(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "decline" } }));
    let answer = client.answer(asks);
    assert!(answer["result"].is_object() && kind(&answer).is_null(), "{answer}");
    daemon.wait();
    let daemon = place.serve();
    let answer = client.answer(late);
    assert!(answer["result"].is_object() && kind(&answer).is_null(), "{answer}");
    client.hears("notifications/tools/list_changed");
    // A question of the new daemon has an id that the old one never used.
    let asks = client.call("echo__ask", &json!({}));
    let second = client.hears("elicitation/create");
    assert!(second["id"].as_u64() > question["id"].as_u64(), "{second}");
    client.say(&json!({ "jsonrpc": "2.0", "id": second["id"], "result": { "action": "decline" } }));
    assert!(client.answer(asks)["result"].is_object());
    assert_eq!(client.leave().0, 0);
    drop(daemon);
}

#[test]
fn a_death_is_told_and_the_session_goes_on() {
    let place = Place::new();
    let daemon = place.serve();
    let mut client = place.stdio().begun_asked();
    let asks = client.call("echo__ask", &json!({}));
    let question = client.hears("elicitation/create");
    daemon.kill();
    assert_eq!(kind(&client.answer(asks)), "outcome_unknown");
    assert_eq!(client.hears("notifications/cancelled")["params"]["requestId"], question["id"]);
    let daemon = place.serve();
    // Answers to the dead daemon's question go nowhere, and lists work again.
    client.say(&json!({ "jsonrpc": "2.0", "id": question["id"], "result": { "action": "accept" } }));
    assert!(client.tools() > 0);
    assert_eq!(client.leave().0, 0);
    drop(daemon);
}

#[test]
fn without_another_daemon_the_process_becomes_a_host() {
    let place = Place::new();
    let daemon = place.serve();
    let mut client = place.stdio().begun_asked();
    assert!(client.tools() > 0);
    let asks = client.call("echo__ask", &json!({}));
    let first = client.hears("elicitation/create");
    daemon.kill();
    assert_eq!(kind(&client.answer(asks)), "outcome_unknown");
    assert!(client.tools() > 0);
    // Its questions have ids that the daemon never used.
    let asks = client.call("echo__ask", &json!({}));
    let second = client.hears("elicitation/create");
    assert!(second["id"].as_u64() > first["id"].as_u64(), "{second}");
    client.say(&json!({ "jsonrpc": "2.0", "id": second["id"], "result": { "action": "decline" } }));
    assert!(client.answer(asks)["result"].is_object());
    let (code, text) = client.leave();
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("a host of its own from now on"), "{text}");
}

#[test]
fn the_end_of_stdin_and_a_signal_bring_the_last_answers() {
    let place = Place::new();
    let daemon = place.serve();
    for by_signal in [false, true] {
        let mut client = place.stdio().begun_asked();
        client.tools();
        let id = client.call("echo__countdown", &json!({ "from": 1 }));
        if by_signal {
            // Messages are handled in order.
            client.ask("ping", &json!({}));
            rustix::process::kill_process(pid(client.process()), rustix::process::Signal::TERM).unwrap();
            assert!(client.answer(id)["result"].is_object());
            assert_eq!(client.ended().0, 0);
        } else {
            client.close();
            assert!(client.answer(id)["result"].is_object());
            assert_eq!(client.ended().0, 0);
        }
    }
    drop(daemon);
}

/// What a call without its client is worth: the same through a relay as at the client's own host, which is nothing.
#[test]
fn a_client_that_leaves_in_a_call_gets_no_made_up_answer() {
    let place = Place::new();
    let daemon = place.serve();
    for arguments in [&["stdio", "--config", "mcp.json"][..], &["stdio", "--config", "mcp.json", "--own"]] {
        let mut client = Client::start(place.command(arguments)).begun_asked();
        let asks = client.call("echo__ask", &json!({}));
        client.hears("elicitation/create");
        client.close();
        while let Some(message) = client.next() {
            assert!(message["id"] != asks || !message["method"].is_null(), "{arguments:?}: {message}");
        }
        let (code, text) = client.ended();
        assert_eq!((code, text.contains("note: joined")), (0, arguments.len() == 3), "{text}");
    }
    drop(daemon);
}
