//! A client without a session and a server with one: questions as results, answers as retries.

use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};

use super::support::*;
use crate::manager::Principal;
use crate::protocol::{Message, Method, Notification};
use crate::router::Mailbox;

fn accept(name: &str) -> Value {
    json!({ "action": "accept", "content": { "name": name } })
}

#[tokio::test(start_paused = true)]
async fn a_question_comes_as_a_result_and_its_answer_as_a_retry() {
    let stage = stage().await;
    let client = stage.modern(FORM);
    let params = json!({ "name": "ask", "arguments": { "mark": "who?" } });
    let asked = stage.answer(&client, &params).await;
    assert_eq!(asked["resultType"], "input_required");
    let question = &asked["inputRequests"]["i1"];
    assert_eq!(question["method"], "elicitation/create");
    assert_eq!(question["params"]["message"], "who?");
    let answered = stage.answer(&client, &retry(&params, &asked, &json!({ "i1": accept("ann") }))).await;
    assert_eq!((text(&answered), &answered["resultType"]), (accept("ann").to_string().as_str(), &json!("complete")));
    assert_eq!(stage.script.begun.load(Ordering::SeqCst), 1, "the tool ran once");
}

#[tokio::test(start_paused = true)]
async fn rounds_follow_each_other() {
    let stage = stage().await;
    let client = stage.modern(FORM);
    let first = stage.answer(&client, &call("twice")).await;
    let second = stage.answer(&client, &retry(&call("twice"), &first, &json!({ "i1": accept("a") }))).await;
    assert_eq!(second["inputRequests"]["i2"]["params"]["message"], "second", "keys are not used twice");
    let last = stage.answer(&client, &retry(&call("twice"), &second, &json!({ "i2": { "action": "decline" } }))).await;
    assert_eq!(text(&last), format!("{} {}", accept("a"), json!({ "action": "decline" })));
}

#[tokio::test(start_paused = true)]
async fn what_is_said_while_the_client_is_away_is_told_when_it_is_back() {
    let stage = stage().await;
    let client = stage.modern(FORM);
    let begin = |params: &Value| request_with(&stage.router, &client, Method::ToolsCall, params, Some("info"));
    // On a paused clock: waits until all other tasks wait.
    let rest = || tokio::time::sleep(Duration::from_millis(1));
    let params = |token: &str| json!({ "name": "busy", "arguments": {}, "_meta": { "progressToken": token } });

    let call = begin(&params("a"));
    let leg = call.leg.clone();
    let first = call.answer().await;
    assert_eq!(said(&leg), [r#"1 of "a""#]);
    stage.script.release.notify_one();
    rest().await;

    let answered = retry(&params("b"), &first, &json!({ "i1": accept("ann") }));
    let call = begin(&answered);
    let leg = call.leg.clone();
    let second = call.answer().await;
    assert_eq!(second["inputRequests"]["i2"]["params"]["message"], "second");
    assert_eq!(said(&leg), [r#"2 of "b""#, r#""script" "a line""#, r#"3 of "b""#]);
    stage.script.release.notify_one();
    rest().await;

    // The client repeats the answers of its round; questions that came since then are not among them.
    let again = begin(&answered);
    let leg = again.leg.clone();
    assert_eq!((again.answer().await, said(&leg)), (second.clone(), Vec::new()));
    let call = begin(&retry(&params("c"), &second, &json!({ "i2": accept("bob") })));
    let leg = call.leg.clone();
    assert_eq!(text(&call.answer().await), format!("{} {}", accept("ann"), accept("bob")));
    assert_eq!(said(&leg), [r#"4 of "c""#, r#""script" "a line""#]);
}

/// Returns the progress and log lines waiting on a stream.
fn said(leg: &Mailbox) -> Vec<String> {
    let told = std::iter::from_fn(|| leg.try_next()).map(|message| {
        let Message::Notification(Notification { method, params }) = message else { panic!("{message:?}") };
        let params: Value = params.unwrap().read().unwrap();
        match method {
            Method::Progress => format!("{} of {}", params["progress"], params["progressToken"]),
            _ => format!("{} {}", params["logger"], params["data"]),
        }
    });
    told.collect()
}

#[tokio::test(start_paused = true)]
async fn what_is_asked_side_by_side_is_one_result_and_what_stays_open_is_asked_again() {
    let stage = stage().await;
    let client = stage.modern(ALL);
    let asked = stage.answer(&client, &call("three")).await;
    let requests = asked["inputRequests"].as_object().unwrap();
    let key = |method: &str| requests.iter().find(|(_, request)| request["method"] == method).unwrap().0.clone();
    let (form, sampling, roots) = (key("elicitation/create"), key("sampling/createMessage"), key("roots/list"));
    let some = json!({ (form): accept("x"), "unknown": { "a": 1 } });
    let again = stage.answer(&client, &retry(&call("three"), &asked, &some)).await;
    assert_eq!(again["resultType"], "input_required");
    let open: Vec<&String> = again["inputRequests"].as_object().unwrap().keys().collect();
    assert_eq!(open.len(), 2);
    assert!(open.contains(&&sampling) && open.contains(&&roots), "the same keys");
    let sample = json!({ "role": "assistant", "content": { "type": "text", "text": "hi" }, "model": "m" });
    let rest = json!({ (sampling): sample, (roots): { "roots": [{ "uri": "file:///r" }] } });
    let last = stage.answer(&client, &retry(&call("three"), &again, &rest)).await;
    assert!(text(&last).contains("file:///r") && text(&last).contains(r#""text":"hi""#), "{last}");
}

#[tokio::test(start_paused = true)]
async fn what_the_client_cannot_do_is_refused_to_the_server() {
    let stage = stage().await;
    let client = stage.modern(FORM);
    let asked = stage.answer(&client, &call("three")).await;
    assert_eq!(asked["inputRequests"].as_object().unwrap().len(), 1, "{asked}");
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let last = stage.answer(&client, &retry(&call("three"), &asked, &json!({ (key): accept("x") }))).await;
    assert!(text(&last).ends_with("-32601 -32601"), "{last}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_declared_nothing_is_not_asked() {
    let stage = stage().await;
    let client = stage.modern("{}");
    assert_eq!(text(&stage.answer(&client, &call("ask")).await), "error -32601");
}

#[tokio::test(start_paused = true)]
async fn h46_a_state_is_good_for_its_principal_and_its_request_only() {
    let stage = stage().await;
    let client = stage.modern(FORM);
    let asked = stage.answer(&client, &call("ask")).await;
    let good = retry(&call("ask"), &asked, &json!({ "i1": accept("ann") }));
    let other_arguments = json!({ "name": "ask", "arguments": { "mark": "x" }, "requestState": good["requestState"] });
    let other_tool = retry(&call("twice"), &asked, &json!({}));
    let mut altered = good.clone();
    let state = good["requestState"].as_str().unwrap();
    let swapped = if state.ends_with('A') { "B" } else { "A" };
    altered["requestState"] = json!(format!("{}{swapped}", &state[..state.len() - 1]));
    for bad in [other_arguments, other_tool, altered] {
        assert_eq!(stage.answer(&client, &bad).await["error"], -32602, "{bad}");
    }
    let bob = stage.modern_of(Principal::named("bob"), FORM);
    assert_eq!(stage.answer(&bob, &good).await["error"], -32602);
    assert_eq!(text(&stage.answer(&client, &good).await), accept("ann").to_string(), "and the call is as it was");
}

#[tokio::test(start_paused = true)]
async fn answers_that_are_no_objects_are_refused_by_name_and_the_call_waits_on() {
    let stage = stage().await;
    let client = stage.modern(FORM);
    let asked = stage.answer(&client, &call("ask")).await;
    let bad = stage.answer(&client, &retry(&call("ask"), &asked, &json!({ "i1": "yes" }))).await;
    assert_eq!(bad["error"], -32602);
    assert!(bad["message"].as_str().unwrap().contains("i1"));
    let good = stage.answer(&client, &retry(&call("ask"), &asked, &json!({ "i1": accept("b") }))).await;
    assert_eq!(text(&good), accept("b").to_string());
}

#[tokio::test(start_paused = true)]
async fn of_too_many_calls_that_wait_the_oldest_ends() {
    let stage = stage_with(|limits| limits.parked_per_principal = 2).await;
    let client = stage.modern(FORM);
    let mut asked = Vec::new();
    for _ in 0..3 {
        asked.push(stage.answer(&client, &call("ask")).await);
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let answers = json!({ "i1": accept("x") });
    let mut outcomes = Vec::new();
    for asked in &asked {
        outcomes.push(stage.answer(&client, &retry(&call("ask"), asked, &answers)).await);
    }
    assert_eq!(outcomes[0]["error"], -32602);
    assert_eq!(outcomes[1..].iter().map(text).collect::<Vec<_>>(), [accept("x").to_string(), accept("x").to_string()]);
    let told = stage.script.answers.lock().unwrap();
    assert!(
        told.contains(&Ok(crate::protocol::Raw::from_value(&json!({ "action": "cancel" })))),
        "its server was told"
    );
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_over_do_not_count_as_waiting() {
    let stage = stage_with(|limits| limits.parked_per_principal = 2).await;
    let client = stage.modern(FORM);
    for _ in 0..6 {
        let asked = stage.answer(&client, &call("ask")).await;
        let last = stage.answer(&client, &retry(&call("ask"), &asked, &json!({ "i1": accept("b") }))).await;
        assert_eq!(text(&last), accept("b").to_string());
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_asked_nothing_leaves_nothing_behind() {
    let stage = stage_with(|limits| limits.parked = 2).await;
    let client = stage.modern(FORM);
    for _ in 0..6 {
        let answer = stage.answer(&client, &call("echo")).await;
        assert_eq!(answer["resultType"], "complete", "{answer}");
        // On a paused clock: waits until all other tasks wait.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_page_to_visit_is_asked_for_and_the_call_sent_afresh() {
    let stage = stage().await;
    let client = stage.modern(ALL);
    let asked = stage.answer(&client, &call("page")).await;
    let question = &asked["inputRequests"]["u1"];
    assert_eq!(question["params"]["url"], "https://example.com/visit");
    assert_eq!(question["params"].get("elicitationId"), None);
    let last = stage.answer(&client, &retry(&call("page"), &asked, &json!({ "u1": { "action": "accept" } }))).await;
    assert_eq!((text(&last), stage.script.begun.load(Ordering::SeqCst)), ("visited", 2));
}

#[tokio::test(start_paused = true)]
async fn a_page_that_is_declined_ends_the_call() {
    let stage = stage().await;
    let client = stage.modern(ALL);
    let asked = stage.answer(&client, &call("page")).await;
    let last = stage.answer(&client, &retry(&call("page"), &asked, &json!({ "u1": { "action": "decline" } }))).await;
    assert_eq!((&last["isError"], stage.script.begun.load(Ordering::SeqCst)), (&json!(true), 1));
}

#[tokio::test(start_paused = true)]
async fn a_server_may_wish_for_a_key_and_get_an_answer_that_came_before_the_question() {
    let stage = stage().await;
    let client = stage.modern(FORM);
    let asked = stage.answer(&client, &call("keyed")).await;
    let requests = asked["inputRequests"].as_object().unwrap();
    assert_eq!(requests.keys().collect::<Vec<_>>(), ["user_name"]);
    assert_eq!(requests["user_name"]["params"].get("_meta"), None);
    let mut early = call("keyed");
    early["inputResponses"] = json!({ "user_name": accept("early"), "other": accept("x") });
    assert_eq!(text(&stage.answer(&client, &early).await), accept("early").to_string());
    early["inputResponses"] = json!({ "user_name": 5 });
    assert_eq!(stage.answer(&client, &early).await["resultType"], "input_required");
}
