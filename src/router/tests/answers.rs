//! Cached answers and joined requests, between clients and servers of both eras. On a paused clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::time::{advance, sleep};

use super::support::*;
use crate::config::{Sharing, ToolSettings};
use crate::in_process::InProcess;
use crate::manager::Principal;
use crate::protocol::{Message, Method, Profile, ProtocolVersion, Raw};
use crate::router::Client;

const HOUR: Duration = Duration::from_secs(3600);

async fn caching() -> Stage {
    stage_of(|config| {
        let tools = std::mem::take(&mut config.servers[0].tools);
        config.servers[0].tools = ["echo", "held", "ask", "page"]
            .into_iter()
            .fold(tools, |tools, name| tools.with(name, ToolSettings { cache: Some(HOUR), ..ToolSettings::default() }));
    })
    .await
}

fn of(stage: &Stage, name: &str) -> Arc<Client> {
    stage.router.admit(Principal::named(name), ProtocolVersion::V2025_11_25, Profile::EMPTY, None)
}

fn age(answer: &Value) -> Option<u64> {
    answer["_meta"]["mcp-host/cache"]["ageMs"].as_u64()
}

fn begun(stage: &Stage) -> usize {
    stage.script.begun.load(Ordering::SeqCst)
}

/// Lets a client list the tools: answers of a tool that is not listed yet are not cached.
async fn list(stage: &Stage, client: &Arc<Client>) {
    request(&stage.router, client, Method::ToolsList, &json!({})).answer().await;
    rest().await;
}

/// Waits until all other tasks wait.
async fn rest() {
    sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn clients_of_both_eras_get_the_same_answer_each_in_its_own_form() {
    let stage = caching().await;
    // During a call of this client the server may ask, so the call is parked.
    let modern = stage.modern(FORM);
    let first = stage.answer(&modern, &call("echo")).await;
    assert_eq!((age(&first), &first["resultType"]), (None, &json!("complete")));
    advance(Duration::from_millis(1500)).await;
    let again = stage.answer(&modern, &call("echo")).await;
    assert_eq!((age(&again), &again["resultType"], text(&again)), (Some(1500), &json!("complete"), "{}"));
    let legacy = stage.legacy(ProtocolVersion::V2025_06_18, Profile::EMPTY);
    let theirs = stage.answer(&legacy, &call("echo")).await;
    assert_eq!((age(&theirs), theirs.get("resultType"), text(&theirs)), (Some(1500), None, "{}"));
    assert_eq!(begun(&stage), 1);
    advance(HOUR).await;
    assert_eq!(age(&stage.answer(&legacy, &call("echo")).await), None, "it is too old");
}

#[tokio::test(start_paused = true)]
async fn each_principal_has_answers_of_its_own_unless_all_are_one_to_the_server() {
    let stage = caching().await;
    for (name, kept) in [("ann", None), ("bob", None), ("ann", Some(0))] {
        assert_eq!(age(&stage.answer(&of(&stage, name), &call("echo")).await), kept, "{name}");
    }
    let stage = stage_of(|config| {
        let settings = ToolSettings { cache: Some(HOUR), ..ToolSettings::default() };
        config.servers[0].tools = std::mem::take(&mut config.servers[0].tools).with("echo", settings);
        config.servers[0].sharing = Sharing::Host;
    })
    .await;
    for (name, kept) in [("ann", None), ("bob", Some(0))] {
        assert_eq!(age(&stage.answer(&of(&stage, name), &call("echo")).await), kept, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn those_who_wait_get_progress_and_signs_of_life_under_their_own_tokens() {
    let stage = caching().await;
    let (ann, bob) = (of(&stage, "ann"), of(&stage, "ann"));
    list(&stage, &ann).await;
    let held = |token: &str| json!({ "name": "held", "arguments": {}, "_meta": { "progressToken": token } });
    let (one, two) = (stage.call(&ann, &held("one")), stage.call(&bob, &held("two")));
    let silent = stage.call(&bob, &call("held"));
    rest().await;
    assert_eq!(begun(&stage), 1);
    sleep(Duration::from_secs(16)).await;
    let told = |running: &Running| -> Vec<String> {
        let mut told = Vec::new();
        while let Some(message) = running.leg.try_next() {
            let Message::Notification(notice) = message else { panic!("{message:?}") };
            let params = notice.params.unwrap();
            told.push(format!("{} {}", params.text("progressToken").unwrap(), params.text("message").unwrap()));
        }
        told
    };
    assert_eq!(told(&one), ["one working", "one script has not answered for 15 s"]);
    assert_eq!(told(&two), ["two working", "two script has not answered for 15 s"]);
    assert_eq!(told(&silent), Vec::<String>::new());
    stage.script.release.notify_one();
    for running in [one, two, silent] {
        assert_eq!(text(&running.answer().await), "held");
    }
    assert_eq!(begun(&stage), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_cancels_leaves_the_others_and_the_last_one_ends_the_request() {
    let stage = caching().await;
    let clients: Vec<_> = (0..100).map(|_| of(&stage, "ann")).collect();
    list(&stage, &clients[0]).await;
    let mut calls: Vec<_> = clients.iter().map(|client| stage.call(client, &call("held"))).collect();
    rest().await;
    assert_eq!(begun(&stage), 1);
    let last = calls.pop().unwrap();
    for (client, running) in clients.iter().zip(calls) {
        // The first client's request is the one that was sent; its whole session ends.
        stage.router.clients().close(client);
        assert_eq!(running.answer().await, Value::Null);
    }
    rest().await;
    assert_eq!((begun(&stage), stage.script.cancelled.load(Ordering::SeqCst)), (1, 0));
    stage.script.release.notify_one();
    assert_eq!(text(&last.answer().await), "held");
    let last = &clients[99];
    let params = json!({ "name": "held", "arguments": { "other": 1 } });
    let calls: Vec<_> = (0..100).map(|_| stage.call(last, &params)).collect();
    rest().await;
    assert_eq!(begun(&stage), 2);
    for running in calls {
        running.drop().await;
    }
    rest().await;
    assert_eq!((begun(&stage), stage.script.cancelled.load(Ordering::SeqCst)), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn a_question_during_a_request_is_for_its_first_client_alone() {
    let stage = caching().await;
    let ask = |profile| stage.router.admit(Principal::named("ann"), ProtocolVersion::V2025_11_25, profile, None);
    let (ann, bob) = (ask(Profile::ELICITATION_FORM), ask(Profile::ELICITATION_FORM));
    list(&stage, &ann).await;
    let answer = |client: &Arc<Client>, question: &crate::protocol::Request, name: &str| {
        let outcome = Ok(Raw::from_value(&json!({ "action": "accept", "content": { "name": name } })));
        client.answer(crate::protocol::Response { id: Some(question.id.clone()), outcome });
    };
    let (one, two) = (stage.call(&ann, &call("ask")), stage.call(&bob, &call("ask")));
    let (of_ann, of_bob) = (one.question().await, two.question().await);
    answer(&bob, &of_bob, "bob");
    answer(&ann, &of_ann, "ann");
    assert!(text(&one.answer().await).contains("ann"));
    assert!(text(&two.answer().await).contains("bob"));
    assert_eq!(begun(&stage), 2);
    // Nothing of this is cached, in either era.
    let modern = stage.modern_of(Principal::named("ann"), FORM);
    let asked = stage.answer(&modern, &call("ask")).await;
    assert_eq!(asked["resultType"], "input_required");
    let key = asked["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let answers = json!({ key: { "action": "accept", "content": { "name": "eve" } } });
    let answered = stage.answer(&modern, &retry(&call("ask"), &asked, &answers)).await;
    assert!(text(&answered).contains("eve") && age(&answered).is_none());
    assert_eq!(stage.answer(&modern, &call("ask")).await["resultType"], "input_required");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_was_not_sent_is_made_by_each_of_the_others() {
    let stage = stage_of(|config| {
        let settings = ToolSettings { cache: Some(HOUR), ..ToolSettings::default() };
        config.servers[0].tools = std::mem::take(&mut config.servers[0].tools).with("echo", settings);
        config.servers[0].max_concurrent = 1;
        config.servers[0].queue_timeout = Duration::from_secs(1);
    })
    .await;
    let ann = of(&stage, "ann");
    let held = stage.call(&ann, &call("held"));
    stage.until(|script| script.begun.load(Ordering::SeqCst) == 1).await;
    let (one, two) = (stage.call(&ann, &call("echo")), stage.call(&ann, &call("echo")));
    sleep(Duration::from_millis(1500)).await;
    assert!(one.is_over() && !two.is_over(), "it waits for a slot of its own");
    stage.script.release.notify_one();
    held.answer().await;
    assert_eq!(one.answer().await["_meta"]["mcp-host/error"]["kind"], "overloaded");
    assert_eq!(text(&two.answer().await), "{}");
}

/// A server with a resource whose contents say how often they were read, and for how long they are fresh.
fn reader(reads: &Arc<AtomicUsize>) -> InProcess {
    let reads = reads.clone();
    InProcess::new("script", "1").resource(Raw::from_value(&json!({ "uri": "thing:/one", "name": "one" })), move |_| {
        let count = reads.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            let contents = json!([{ "uri": "thing:/one", "text": count.to_string() }]);
            Ok(Raw::from_value(&json!({ "contents": contents })))
        }
        .boxed()
    })
}

#[tokio::test(start_paused = true)]
async fn reads_are_kept_if_the_config_says_so() {
    for (time, expected) in [(Duration::ZERO, ["1", "2"]), (HOUR, ["1", "1"])] {
        let reads = Arc::<AtomicUsize>::default();
        let stage = stage_with_server(reader(&reads), |config| config.host.cache.reads = time);
        let ann = of(&stage, "ann");
        let mut told = Vec::new();
        for _ in 0..2 {
            let read = request(&stage.router, &ann, Method::ResourcesRead, &json!({ "uri": "thing:/one" }));
            told.push(read.answer().await["contents"][0]["text"].as_str().unwrap().to_owned());
        }
        assert_eq!(told, expected, "{time:?}");
    }
}
