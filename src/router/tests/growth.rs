//! State kept for clients that do not return, or never release it: it is counted, expires, and holds no more than it
//! must.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use super::jobs::Shop;
use super::support::*;
use crate::manager::Principal;
use crate::protocol::Method::{Progress, SetLevel, TasksGet, TasksUpdate, ToolsCall};
use crate::protocol::{Message, Method, Profile, ProtocolVersion, Raw, Request, RequestId, Response};
use crate::router::Client;

const LITTLE: Duration = Duration::from_millis(1);

fn asking(size: usize) -> Value {
    json!({ "name": "ask", "arguments": { "mark": "x".repeat(size) } })
}

fn decline() -> Value {
    json!({ "action": "decline" })
}

#[tokio::test(start_paused = true)]
async fn h55_a_question_that_was_put_is_kept_no_longer() {
    let stage = stage().await;
    let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::ELICITATION_FORM);
    let running = stage.call(&client, &asking(100_000));
    let question = running.question().await;
    let params = question.params.unwrap();
    assert!(params.as_bytes().len() > 100_000 && params.bytes().is_unique(), "the buffer is not shared");
    let outcome = Ok(Raw::from_value(&decline()));
    client.answer(Response { id: Some(question.id), outcome });
    assert_eq!(text(&running.answer().await), decline().to_string());
}

#[tokio::test(start_paused = true)]
async fn h49_what_a_parked_call_asks_counts_until_it_is_answered() {
    let stage = stage().await;
    let client = stage.modern(FORM);
    let waiting = || stage.router.queues().waiting();
    let asked = stage.answer(&client, &asking(100_000)).await;
    assert!(waiting() > 200_000, "the question, and the result that asks it: {}", waiting());
    let answered = stage.answer(&client, &retry(&asking(100_000), &asked, &json!({ "i1": decline() }))).await;
    assert_eq!(text(&answered), decline().to_string());
    assert!(waiting() < 200_000, "{}", waiting());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(waiting(), 0);
}

/// Serves a request of which the test keeps a handle.
async fn serve(shop: &Shop, client: &Arc<Client>, method: Method, params: &Raw) -> Value {
    static IDS: AtomicI64 = AtomicI64::new(0);
    let id = RequestId::Number(IDS.fetch_add(1, Ordering::SeqCst));
    let leg = client.leg(shop.router.limits());
    let request = Request { id, method, params: Some(params.clone()) };
    shop.router.request(client, request, &leg).await.unwrap().unwrap().read().unwrap()
}

#[tokio::test(start_paused = true)]
async fn h55_nothing_of_a_message_is_kept_with_what_lasts() {
    let shop = Shop::legacy();
    let hello = Raw::from_value(&json!({
        "protocolVersion": "2025-11-25", "clientInfo": { "name": "large", "version": "x".repeat(1000) },
        "capabilities": { "elicitation": {}, "roots": {}, "extensions": { "io.modelcontextprotocol/ui": { "a": 1 } } },
    }));
    let (client, _) = shop.router.open(Principal::local(), Some(&hello), shop.router.queues().account()).unwrap();
    let level = Raw::from_value(&json!({ "level": "info" }));
    serve(&shop, &client, SetLevel, &level).await;
    let begin = Raw::from_value(&json!({
        "name": "job", "arguments": { "much": "x".repeat(1000) }, "task": { "ttl": 60_000 }, "_meta": { "progressToken": "mine" }
    }));
    let created = serve(&shop, &client, ToolsCall, &begin).await;
    assert!(created["task"]["taskId"].is_string(), "{created}");
    shop.jobs.progress(0, 1.0).await;
    while !matches!(client.mailbox().next().await, Some(Message::Notification(told)) if told.method == Progress) {}
    let alone = [hello, level, begin].map(|params| params.bytes().is_unique());
    assert_eq!(alone, [true; 3], "and the token of the task is known all the same");
}

#[tokio::test(start_paused = true)]
async fn h55_the_id_of_a_task_has_a_length() {
    let shop = Shop::legacy();
    let client = shop.core();
    let begin = async |length: usize| {
        let params = json!({ "name": "job", "arguments": { "id": "x".repeat(length) }, "task": {} });
        shop.answer(&client, ToolsCall, &params).await
    };
    assert!(begin(1024).await["task"]["taskId"].is_string());
    let refused = begin(1025).await;
    assert!(text(&refused).contains("longer than 1 KiB"), "{refused}");
    assert_eq!(refused["_meta"]["mcp-host/error"]["kind"], "malformed");
    assert_eq!(shop.router.0.tasks.registry.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn h55_tasks_go_with_the_session_of_their_server() {
    let shop = Shop::legacy();
    let client = shop.core();
    let begin = json!({ "name": "job", "arguments": {}, "task": {} });
    for _ in 0..3 {
        shop.answer(&client, ToolsCall, &begin).await;
    }
    assert_eq!(shop.router.0.tasks.registry.len(), 3);
    shop.jobs.crash();
    while shop.answer(&client, ToolsCall, &begin).await["task"].is_null() {
        tokio::time::sleep(LITTLE).await;
    }
    assert_eq!(shop.router.0.tasks.registry.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn h49_a_task_asks_only_as_much_as_there_is_room_for() {
    let shop = Shop::of_session(|config| config.host.limits.client_queues = 8000);
    let client = shop.extended();
    let waiting = || shop.router.queues().waiting();
    let created = shop.answer(&client, ToolsCall, &call("job")).await;
    let told = async || shop.answer(&client, TasksGet, &json!({ "taskId": created["taskId"] })).await;
    let (first, second) = ("1".repeat(3000), "2".repeat(3000));
    shop.jobs.ask_early("up-1", &first).await;
    while told().await["status"] != "input_required" {
        tokio::time::sleep(LITTLE).await;
    }
    assert!(waiting() > 3000, "{}", waiting());
    shop.jobs.ask_early("up-1", &second).await;
    while shop.jobs.answers("up-1") == json!({}) {
        tokio::time::sleep(LITTLE).await;
    }
    assert_eq!(shop.jobs.answers("up-1"), json!({ &*second: { "error": -32603 } }));
    let update = json!({ "taskId": created["taskId"], "inputResponses": { "i1": decline() } });
    shop.answer(&client, TasksUpdate, &update).await;
    while shop.jobs.answers("up-1").get(&first).is_none() {
        tokio::time::sleep(LITTLE).await;
    }
    assert_eq!(waiting(), 0);
}
