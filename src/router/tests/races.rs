//! Races, each by name, on a paused clock.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use super::support::*;
use crate::manager::Principal;
use crate::protocol::{Method, Notification, Profile, ProtocolVersion, Raw, RequestId, Response};

fn accept() -> serde_json::Value {
    json!({ "action": "accept", "content": {} })
}

/// Two connections bring the same answers: the server gets them once, and both get the one result.
#[tokio::test(start_paused = true)]
async fn race_3_a_retry_comes_twice() {
    let stage = stage().await;
    let client = stage.modern(FORM);
    let asked = stage.answer(&client, &call("twice")).await;
    let again = retry(&call("twice"), &asked, &json!({ "i1": accept() }));
    let (first, second) = (stage.call(&client, &again), stage.call(&client, &again));
    let (first, second) = (first.answer().await, second.answer().await);
    assert_eq!(first["resultType"], "input_required");
    assert_eq!(first, second);
    assert_eq!(stage.script.answers.lock().unwrap().len(), 1);
    assert_eq!(stage.answer(&client, &again).await, first, "and later, too");
    let last = stage.answer(&client, &retry(&call("twice"), &first, &json!({ "i2": accept() }))).await;
    assert_eq!(last["resultType"], "complete");
    assert_eq!(stage.script.begun.load(Ordering::SeqCst), 1);
}

/// The answers come when no request waits for them any more.
#[tokio::test(start_paused = true)]
async fn race_2_a_retry_comes_when_the_time_is_over() {
    let stage = stage().await;
    let client = stage.modern(FORM);
    let asked = stage.answer(&client, &call("ask")).await;
    tokio::time::sleep(stage.router.limits().answer + Duration::from_millis(1)).await;
    let late = stage.answer(&client, &retry(&call("ask"), &asked, &json!({ "i1": accept() }))).await;
    assert!(late["isError"] == true || late["error"] == -32602, "{late}");
    let answers = stage.script.answers.lock().unwrap();
    assert_eq!(answers[..], [Ok(Raw::trusted(r#"{"action":"cancel"}"#.into()))], "the server was told once");
}

/// The client disconnects just as its questions are written: the call waits for its retry, and then times out.
#[tokio::test(start_paused = true)]
async fn race_4_the_client_vanishes_with_the_questions() {
    let stage = stage().await;
    let client = stage.modern(FORM);
    let asked = stage.answer(&client, &call("ask")).await;
    let again = stage.call(&client, &retry(&call("ask"), &asked, &json!({ "i1": accept() })));
    assert_eq!(again.answer().await["resultType"], "complete");
    let lost = stage.answer(&client, &call("ask")).await;
    assert_eq!(lost["resultType"], "input_required");
    tokio::time::sleep(stage.router.limits().answer * 2).await;
    stage.until(|script| script.answers.lock().unwrap().len() == 2).await;
}

/// A request that is dropped while the server works is cancelled there.
#[tokio::test(start_paused = true)]
async fn a_client_that_leaves_before_any_question_cancels() {
    let stage = stage().await;
    let client = stage.modern(FORM);
    let running = stage.call(&client, &call("held"));
    stage.until(|script| script.begun.load(Ordering::SeqCst) == 1).await;
    running.drop().await;
    stage.until(|script| script.cancelled.load(Ordering::SeqCst) == 1).await;
}

/// The server finishes before its question is answered: the next retry gets the result, its answers go nowhere.
#[tokio::test(start_paused = true)]
async fn race_5_the_result_is_there_before_the_answers() {
    let stage = stage().await;
    let client = stage.modern(FORM);
    let asked = stage.answer(&client, &call("late")).await;
    assert_eq!(asked["resultType"], "input_required");
    stage.script.release.notify_one();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let last = stage.answer(&client, &retry(&call("late"), &asked, &json!({ "i1": accept() }))).await;
    assert_eq!(text(&last), "done all the same");
}

/// The answer and the cancel of a call cross: one of them counts, and nothing hangs.
#[tokio::test(start_paused = true)]
async fn race_1_answer_and_cancel_cross() {
    let stage = stage().await;
    let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::EMPTY);
    for release_first in [true, false] {
        let running = stage.call(&client, &call("held"));
        let begun = stage.script.begun.load(Ordering::SeqCst);
        stage.until(|script| script.begun.load(Ordering::SeqCst) > begun.saturating_sub(1)).await;
        let params = Raw::from_value(&json!({ "requestId": running.id }));
        let cancel = Notification { method: Method::Cancelled, params: Some(params) };
        if release_first {
            stage.script.release.notify_one();
        }
        stage.router.notify(&client, cancel);
        stage.script.release.notify_one();
        let answer = running.answer().await;
        assert!(answer.is_null() || answer["content"][0]["text"] == "held", "{answer}");
    }
    assert_eq!(text(&stage.answer(&client, &json!({ "name": "echo", "arguments": { "a": 1 } })).await), r#"{"a":1}"#);
}

/// The session ends while its client is asked: the server gets an answer, and its call ends.
#[tokio::test(start_paused = true)]
async fn race_17_a_session_ends_during_a_question() {
    let stage = stage().await;
    let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::ELICITATION_FORM);
    let running = stage.call(&client, &call("ask"));
    assert_eq!(running.question().await.method, Method::Elicit);
    stage.router.clients().close(&client);
    assert!(running.answer().await.is_null());
    stage.until(|script| script.cancelled.load(Ordering::SeqCst) + script.answers.lock().unwrap().len() > 0).await;
}

/// Clients of two eras use one server that asks, at once: each answer reaches the call of its client.
#[tokio::test(start_paused = true)]
async fn h45_two_eras_ask_at_once_and_nothing_crosses() {
    let stage = stage().await;
    let (old, new) = (stage.legacy(ProtocolVersion::V2025_06_18, Profile::ELICITATION_FORM), stage.modern(FORM));
    for round in 0..50 {
        let of = |who: &str| json!({ "name": "ask", "arguments": { "mark": format!("{who} {round}") } });
        let running = stage.call(&old, &of("old"));
        let asked = stage.answer(&new, &of("new")).await;
        let question = running.question().await;
        assert_eq!(question.params.unwrap().text("message").unwrap(), format!("old {round}"));
        assert_eq!(asked["inputRequests"]["i1"]["params"]["message"], format!("new {round}"));
        let answer = json!({ "action": "accept", "content": { "name": format!("old {round}") } });
        let response = Response { id: Some(question.id), outcome: Ok(Raw::from_value(&answer)) };
        old.answer(response);
        let mine = json!({ "i1": { "action": "accept", "content": { "name": format!("new {round}") } } });
        let last = stage.answer(&new, &retry(&of("new"), &asked, &mine)).await;
        assert!(text(&last).contains(&format!("new {round}")), "{last}");
        let first = running.answer().await;
        assert!(text(&first).contains(&format!("old {round}")), "{first}");
    }
}

/// An answer to a question that was never put is ignored.
#[tokio::test(start_paused = true)]
async fn an_answer_to_nothing_is_dropped() {
    let stage = stage().await;
    let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::ELICITATION_FORM);
    let response = Response { id: Some(RequestId::Number(7)), outcome: Ok(Raw::empty_object()) };
    client.answer(response);
    assert_eq!(text(&stage.answer(&client, &json!({ "name": "echo", "arguments": {} })).await), "{}");
}

/// Progress after the response goes nowhere: the token expires with the response.
#[tokio::test(start_paused = true)]
async fn race_13_progress_after_the_answer() {
    let stage = stage().await;
    let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::EMPTY);
    let params = json!({ "name": "straggler", "arguments": {}, "_meta": { "progressToken": "mine" } });
    let running = stage.call(&client, &params);
    let leg = running.leg.clone();
    assert_eq!(text(&running.answer().await), "answered");
    stage.script.release.notify_one();
    stage.until(|script| script.cancelled.load(Ordering::SeqCst) == 1).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(leg.try_next().is_none() && client.mailbox().try_next().is_none());
    assert_eq!(text(&stage.answer(&client, &json!({ "name": "echo", "arguments": {} })).await), "{}");
}

/// The tool disappears between the list and the call: the error names it, and the list has changed.
#[tokio::test(start_paused = true)]
async fn race_15_a_tool_goes_between_list_and_call() {
    let stage = stage().await;
    let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::EMPTY);
    let listed = client.settled_view(stage.router.manager(), stage.router.background()).await.shown;
    assert!(listed.tools().iter().any(|tool| tool.name() == "echo"));
    stage.answer(&client, &call("drop")).await;
    let gone =
        |stage: &Stage| !client.view(stage.router.manager()).shown.tools().iter().any(|tool| tool.name() == "echo");
    while !gone(&stage) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let answer = stage.answer(&client, &json!({ "name": "echo", "arguments": {} })).await;
    assert!(answer["message"].as_str().unwrap_or_default().contains("echo"), "{answer}");
}

/// A state expires by the wall clock and the call by a monotonic one: a jump of an hour ends the state, with the
/// documented error, and the call by its own timeout.
#[test]
fn race_19_a_jump_of_the_clock_ends_a_state_and_nothing_else() {
    use crate::router::state::{expires_at, is_good};
    let now = std::time::SystemTime::now();
    let life = Duration::from_secs(600);
    let expires = expires_at(now, life);
    assert!(is_good(expires, now) && is_good(expires, now + life), "the slack of two clocks");
    assert!(is_good(expires, now - Duration::from_secs(3600)), "backwards it only lives longer");
    assert!(!is_good(expires, now + Duration::from_secs(3600)));
}

/// The same person with another token may continue a call; another person may not, and cannot tell why.
#[tokio::test(start_paused = true)]
async fn race_20_the_token_of_a_client_changes_between_two_requests() {
    let stage = stage().await;
    let (before, after) = (Principal::named("ann"), Principal::named("ann"));
    let client = stage.modern_of(before, FORM);
    let asked = stage.answer(&client, &call("ask")).await;
    let again = retry(&call("ask"), &asked, &json!({ "i1": accept() }));
    let other = stage.modern_of(Principal::named("bob"), FORM);
    assert_eq!(stage.answer(&other, &again).await["error"], -32602);
    let renewed = stage.modern_of(after, FORM);
    assert_eq!(text(&stage.answer(&renewed, &again).await), accept().to_string());
}
