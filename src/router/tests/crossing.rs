//! Two clients and one server: ids, tokens, questions, states, subscriptions, and log levels of one never mix with
//! those of the other.

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use super::support::{FORM, Stage, call, retry, run, stage, stage_of, text};
use crate::manager::Principal;
use crate::protocol::{
    Message, Method, Notification, Outcome, Profile, ProtocolVersion, Raw, Request, RequestId, Response,
};
use crate::router::question::may_visit;
use crate::router::{Client, Mailbox};

const NEW: ProtocolVersion = ProtocolVersion::V2025_11_25;

/// Sends a request under an id of the client's own.
fn send(
    stage: &Stage,
    client: &Arc<Client>,
    id: &RequestId,
    params: &Value,
) -> (JoinHandle<Option<Outcome>>, Arc<Mailbox>) {
    let leg = client.leg(stage.router.limits());
    let request = Request { id: id.clone(), method: Method::ToolsCall, params: Some(Raw::from_value(params)) };
    (tokio::spawn(stage.router.request(client, request, &leg)), leg)
}

fn cancel(stage: &Stage, client: &Arc<Client>, id: &RequestId) {
    let params = Some(Raw::from_value(&json!({ "requestId": id })));
    stage.router.notify(client, Notification { method: Method::Cancelled, params });
}

/// Runs all tasks until they wait.
async fn settle() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

/// What happens to the ids of one client.
#[derive(Clone, Debug)]
enum Step {
    Send(usize),
    Cancel(usize),
    /// The server answers the oldest call.
    Answer,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => (0usize..6).prop_map(Step::Send),
        2 => (0usize..6).prop_map(Step::Cancel),
        2 => Just(Step::Answer),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn h36_an_id_is_in_use_until_its_answer_and_no_longer(steps in steps()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(interleave(&steps));
    }
}

async fn interleave(steps: &[Step]) {
    let ids = [1, 2, 3].map(RequestId::Number).into_iter();
    let ids: Vec<RequestId> = ids.chain(["1", "2", "3"].map(|text| RequestId::Text(text.into()))).collect();
    let stage = stage().await;
    let client = stage.legacy(NEW, Profile::EMPTY);
    // Requests without a response, in order of arrival.
    let mut pending: Vec<(usize, JoinHandle<Option<Outcome>>)> = Vec::new();
    for step in steps {
        match *step {
            Step::Send(at) => {
                let (answer, _) = send(&stage, &client, &ids[at], &call("held"));
                settle().await;
                if pending.iter().any(|(id, _)| *id == at) {
                    let error = answer.await.unwrap().unwrap().unwrap_err();
                    assert_eq!(error.code, -32600, "the first one lives, the second one is refused");
                } else {
                    pending.push((at, answer));
                }
            }
            Step::Cancel(at) => {
                cancel(&stage, &client, &ids[at]);
                settle().await;
                if let Some(place) = pending.iter().position(|(id, _)| *id == at) {
                    assert!(pending.remove(place).1.await.unwrap().is_none(), "a cancelled call has no answer");
                }
            }
            Step::Answer if pending.is_empty() => {}
            Step::Answer => {
                stage.script.release.notify_one();
                settle().await;
                let result = pending.remove(0).1.await.unwrap().unwrap().unwrap();
                assert_eq!(text(&result.read::<Value>().unwrap()), "held");
            }
        }
        assert!(pending.iter().all(|(_, answer)| !answer.is_finished()), "no client gets another's response");
    }
}

#[tokio::test(start_paused = true)]
async fn h52_a_call_is_cancelled_by_its_own_client_once_and_at_any_time() {
    let stage = stage().await;
    let (mine, other) = (stage.legacy(NEW, Profile::EMPTY), stage.legacy(NEW, Profile::EMPTY));
    let id = RequestId::Number(0);
    let begun = |stage: &Stage| stage.script.begun.load(std::sync::atomic::Ordering::SeqCst);
    let cancelled = |stage: &Stage| stage.script.cancelled.load(std::sync::atomic::Ordering::SeqCst);
    // Right behind the request, which may not even have begun.
    let (answer, _) = send(&stage, &mine, &id, &call("held"));
    cancel(&stage, &mine, &id);
    assert!(answer.await.unwrap().is_none());
    settle().await;
    assert_eq!(begun(&stage), cancelled(&stage));
    // Another client uses the same id for its own call, and cancels that one.
    let (answer, _) = send(&stage, &mine, &id, &call("held"));
    let (others, _) = send(&stage, &other, &id, &call("held"));
    settle().await;
    let before = cancelled(&stage);
    for _ in 0..2 {
        cancel(&stage, &other, &id);
        settle().await;
    }
    assert!(others.await.unwrap().is_none());
    assert_eq!((cancelled(&stage), answer.is_finished()), (before + 1, false), "foreign, and twice");
    // An id of the same digits but another type is another id.
    cancel(&stage, &mine, &RequestId::Text("0".into()));
    settle().await;
    assert!(!answer.is_finished());
    cancel(&stage, &mine, &id);
    assert!(answer.await.unwrap().is_none());
    settle().await;
    assert_eq!(cancelled(&stage), before + 2, "the server is told");
    // After the response there is nothing to cancel.
    let (answer, _) = send(&stage, &mine, &id, &json!({ "name": "echo", "arguments": {} }));
    assert!(answer.await.unwrap().unwrap().is_ok());
    cancel(&stage, &mine, &id);
    let (answer, _) = send(&stage, &mine, &id, &json!({ "name": "echo", "arguments": { "n": 2 } }));
    assert_eq!(text(&answer.await.unwrap().unwrap().unwrap().read::<Value>().unwrap()), r#"{"n":2}"#);
}

#[tokio::test(start_paused = true)]
async fn h53_equal_tokens_of_two_clients_are_two() {
    // Which of two calls is released first is open: no heartbeat of the other one may count as a crossing.
    let stage = stage_of(|config| config.host.heartbeat = Duration::ZERO).await;
    let clients = [stage.legacy(NEW, Profile::EMPTY), stage.legacy(ProtocolVersion::V2024_11_05, Profile::EMPTY)];
    for token in [json!("same"), json!(1), json!("1")] {
        let params = json!({ "name": "held", "arguments": {}, "_meta": { "progressToken": token } });
        let calls = clients.each_ref().map(|client| send(&stage, client, &RequestId::Number(1), &params));
        settle().await;
        for (_, leg) in &calls {
            let Some(Message::Notification(notice)) = leg.try_next() else { panic!("no progress") };
            assert_eq!(notice.method, Method::Progress);
            let told: Value = notice.params.unwrap().member("progressToken").unwrap().read().unwrap();
            assert_eq!(told, token, "in value and type");
            assert!(leg.try_next().is_none(), "and that of the other call is not for it");
        }
        for (answer, leg) in calls {
            stage.script.release.notify_one();
            assert!(answer.await.unwrap().unwrap().is_ok());
            assert!(leg.try_next().is_none());
        }
    }
    // A client that gave no token hears nothing.
    let (answer, leg) = send(&stage, &clients[0], &RequestId::Number(1), &call("held"));
    settle().await;
    assert!(leg.try_next().is_none());
    stage.script.release.notify_one();
    assert!(answer.await.unwrap().unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn h45_a_question_reaches_the_client_of_its_call() {
    let stage = stage().await;
    let clients: Vec<_> = (0..4).map(|_| stage.legacy(NEW, Profile::ELICITATION_FORM)).collect();
    let of = |who: usize| json!({ "name": "ask", "arguments": { "mark": format!("for {who}") } });
    let calls: Vec<_> = clients.iter().enumerate().map(|(who, client)| run(&stage.router, client, &of(who))).collect();
    // The questions are answered in another order than they were asked.
    for (who, running) in calls.into_iter().enumerate().rev() {
        let question = running.question().await;
        assert_eq!(question.params.unwrap().text("message").unwrap(), format!("for {who}"));
        // All questions have the same id, and only one client's answer counts.
        for (other, client) in clients.iter().enumerate().filter(|(other, _)| *other != who) {
            let answer = json!({ "action": "accept", "content": { "name": format!("stolen by {other}") } });
            let id = RequestId::Number(1000 + i64::try_from(other).unwrap());
            client.answer(Response { id: Some(id), outcome: Ok(Raw::from_value(&answer)) });
        }
        let answer = json!({ "action": "accept", "content": { "name": format!("of {who}") } });
        let response = Response { id: Some(question.id), outcome: Ok(Raw::from_value(&answer)) };
        clients[who].answer(response);
        let result = running.answer().await;
        assert!(text(&result).contains(&format!("of {who}")), "{result}");
    }
}

#[tokio::test(start_paused = true)]
async fn h45_who_did_not_declare_it_is_not_asked() {
    let stage = stage().await;
    let silent = stage.legacy(NEW, Profile::EMPTY);
    let running = run(&stage.router, &silent, &call("ask"));
    let leg = running.leg.clone();
    assert_eq!(text(&running.answer().await), "error -32601");
    assert!(leg.try_next().is_none());
}

#[test]
fn h45_pages_are_visited_over_https_or_here() {
    let cases = [
        ("https://example.com/a?b#c", true),
        ("HTTPS://EXAMPLE.COM", true),
        ("http://localhost:3000/", true),
        ("http://127.0.0.1/", true),
        ("http://[::1]:8/", true),
        ("http://example.com/", false),
        ("http://localhost.example.com/", false),
        ("http://169.254.169.254/", false),
        ("javascript:alert(1)", false),
        ("data:text/html,x", false),
        ("file:///etc/passwd", false),
        ("vbscript:x", false),
        ("//example.com/", false),
        ("example.com", false),
        ("", false),
        ("https://", false),
        ("https://user:pass@example.com/", false),
        (" \u{1}javascript:alert(1)", false),
    ];
    for (url, may) in cases {
        assert_eq!(may_visit(&Raw::from_value(&json!({ "mode": "url", "url": url }))), may, "{url}");
    }
    assert!(!may_visit(&Raw::from_value(&json!({ "mode": "url" }))));
    assert!(!may_visit(&Raw::from_value(&json!({ "mode": "url", "url": ["https://example.com/"] }))));
}

#[tokio::test(start_paused = true)]
async fn h45_a_page_of_another_kind_is_shown_to_nobody() {
    let stage = stage().await;
    let all = Profile::ELICITATION_FORM.with(Profile::ELICITATION_URL);
    let legacy = stage.legacy(NEW, all);
    let modern = stage.modern(super::support::ALL);
    for url in ["http://example.com/", "javascript:alert(1)"] {
        let params = json!({ "name": "visit", "arguments": { "url": url } });
        let running = run(&stage.router, &legacy, &params);
        let leg = running.leg.clone();
        let answer = running.answer().await;
        assert_eq!(answer["error"], -32602, "the server is told: {answer}");
        assert!(leg.try_next().is_none());
        let answer = stage.answer(&modern, &params).await;
        assert!(answer.get("inputRequests").is_none() && !answer.to_string().contains(url), "{answer}");
        stage.script.begun.store(0, std::sync::atomic::Ordering::SeqCst);
        let answer = stage.answer(&modern, &json!({ "name": "page", "arguments": { "url": url } })).await;
        assert!(answer.get("inputRequests").is_none() && !answer.to_string().contains(url), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn h46_a_state_of_one_client_leads_no_other_anywhere() {
    let stage = stage().await;
    let (ann, bob) = (Principal::named("ann"), Principal::named("bob"));
    let (mine, other) = (stage.modern_of(ann, FORM), stage.modern_of(bob, FORM));
    let asked = [stage.answer(&mine, &call("ask")).await, stage.answer(&other, &call("ask")).await];
    let yes = |name: &str| json!({ "i1": { "action": "accept", "content": { "name": name } } });
    // Each with the state of the other; then twice, and for another tool.
    for (client, asked) in [(&mine, &asked[1]), (&other, &asked[0])] {
        for tool in ["ask", "twice", "echo"] {
            let answer = stage.answer(client, &retry(&call(tool), asked, &yes("stolen"))).await;
            assert_eq!(answer["error"], -32602, "{tool}: {answer}");
        }
    }
    for (client, asked, name) in [(&mine, &asked[0], "ann"), (&other, &asked[1], "bob")] {
        let answer = stage.answer(client, &retry(&call("ask"), asked, &yes(name))).await;
        assert!(text(&answer).contains(name), "{answer}");
        let again = stage.answer(client, &retry(&call("ask"), asked, &yes(name))).await;
        assert!(again["error"] == -32602 || text(&again).contains(name), "no other client's: {again}");
    }
}
