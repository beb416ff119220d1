//! What is kept for clients that do not come, or never let go: it counts, has an end, and holds no more than it has to.

use std::time::Duration;

use serde_json::{Value, json};

use super::jobs::Shop;
use super::support::*;
use crate::protocol::Method::{TasksGet, TasksUpdate, ToolsCall};
use crate::protocol::{Profile, ProtocolVersion, Raw, Response};

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
    assert!(params.as_bytes().len() > 100_000 && params.bytes().is_unique(), "whoever took it has it alone");
    let outcome = Ok(Raw::from_value(&decline()));
    stage.router.answer(&client, Response { id: Some(question.id), outcome });
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
