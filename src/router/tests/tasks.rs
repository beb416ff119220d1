//! Tasks between clients and servers of both revisions that have them.

use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::jobs::*;
use crate::manager::Principal;
use crate::protocol::Method::{TasksCancel, TasksGet, TasksList, TasksResult, TasksUpdate, ToolsCall, ToolsList};
use crate::protocol::{Message, Method, Notification, ProtocolVersion, Raw, Request, RequestId};
use crate::router::Mailbox;

fn as_task(tool: &str) -> Value {
    json!({ "name": tool, "arguments": {}, "task": { "ttl": 60_000 } })
}

fn call(tool: &str) -> Value {
    json!({ "name": tool, "arguments": {} })
}

fn about(handle: &Value) -> Value {
    json!({ "taskId": handle })
}

fn answer(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

fn accept() -> Value {
    json!({ "action": "accept", "content": {} })
}

#[tokio::test(start_paused = true)]
async fn both_of_2025_11_25_share_a_task_under_an_id_of_ours() {
    let shop = Shop::legacy();
    let client = shop.core();
    let created = shop.answer(&client, ToolsCall, &as_task("job")).await;
    let task = &created["task"];
    let handle = &task["taskId"];
    assert_eq!((&task["status"], &task["ttl"], &task["pollInterval"]), (&json!("working"), &json!(9000), &json!(20)));
    assert!(handle.as_str().unwrap().len() > 40, "sealed: {handle}");
    assert_eq!(shop.jobs.calls("tools/call")[0]["task"], json!({ "ttl": 60_000 }));
    let told = shop.answer(&client, TasksGet, &about(handle)).await;
    assert_eq!((&told["taskId"], &told["status"]), (handle, &json!("working")));
    assert_eq!(shop.jobs.calls("tasks/get"), [json!({ "taskId": "up-1" })]);
    let result = shop.begin(&client, TasksResult, &about(handle));
    shop.jobs.until("tasks/result").await;
    shop.jobs.finish("up-1", answer("done"));
    let mut expected = answer("done");
    expected["_meta"] = json!({ RELATED: { "taskId": handle } });
    assert_eq!(result.answer().await, expected);
    let listed = shop.answer(&client, TasksList, &json!({})).await;
    assert_eq!((&listed["tasks"][0]["taskId"], listed["tasks"].as_array().unwrap().len()), (handle, 1));
}

/// Returns the progress waiting in a mailbox: values and tokens.
fn steps(mailbox: &Mailbox) -> Vec<Value> {
    let told = std::iter::from_fn(|| mailbox.try_next()).filter_map(|message| match message {
        Message::Notification(Notification { method: Method::Progress, params }) => {
            let params: Value = params.unwrap().read().unwrap();
            Some(json!([params["progressToken"], params["progress"]]))
        }
        _ => None,
    });
    told.collect()
}

async fn rest() {
    tokio::time::sleep(Duration::from_millis(1)).await;
}

#[tokio::test(start_paused = true)]
async fn h53_the_token_of_a_call_is_good_for_as_long_as_its_task() {
    let shop = Shop::legacy();
    let client = shop.core();
    let mut params = as_task("job");
    params["_meta"] = json!({ "progressToken": "mine" });
    let created = shop.answer(&client, ToolsCall, &params).await;
    let handle = &created["task"]["taskId"];
    let told = |mailbox: &Mailbox| steps(mailbox);
    for value in [1.0, 1.0, 2.0] {
        shop.jobs.progress(0, value).await;
    }
    rest().await;
    assert_eq!(told(client.mailbox()), [json!(["mine", 1.0]), json!(["mine", 2.0])]);
    let result = shop.begin(&client, TasksResult, &about(handle));
    shop.jobs.until("tasks/result").await;
    shop.jobs.progress(0, 3.0).await;
    rest().await;
    assert_eq!(told(client.mailbox()), [json!(["mine", 3.0])], "beside the request for its result");
    shop.jobs.finish("up-1", answer("done"));
    assert_eq!(result.answer().await["content"], answer("done")["content"]);
    shop.jobs.progress(0, 4.0).await;
    rest().await;
    assert_eq!(told(client.mailbox()), Vec::<Value>::new(), "and no longer");
}

#[tokio::test(start_paused = true)]
async fn how_far_a_hidden_task_is_comes_with_its_call() {
    let shop = Shop::legacy();
    let capabilities = Raw::from_value(&json!({ "elicitation": {} }));
    let new = shop.router.modern(Principal::local(), &capabilities).unwrap();
    for (number, client) in [shop.core(), new].into_iter().enumerate() {
        let mut params = call("job");
        params["_meta"] = json!({ "progressToken": number });
        let polls = shop.jobs.calls("tasks/get").len();
        let running = shop.begin(&client, ToolsCall, &params);
        shop.jobs.until_times("tasks/get", polls + 1).await;
        shop.jobs.progress(number, 1.0).await;
        rest().await;
        assert_eq!(steps(&running.leg), [json!([number, 1.0])], "between two polls");
        shop.jobs.progress(number, 2.0).await;
        shop.jobs.finish(&format!("up-{}", number + 1), answer("done"));
        let leg = running.leg.clone();
        assert_eq!(running.answer().await["content"], answer("done")["content"]);
        assert_eq!(steps(&leg), [json!([number, 2.0])], "before its result");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_is_cancelled_and_its_client_told() {
    let shop = Shop::legacy();
    let client = shop.core();
    let created = shop.answer(&client, ToolsCall, &as_task("maybe")).await;
    let handle = &created["task"]["taskId"];
    let told = shop.answer(&client, TasksCancel, &about(handle)).await;
    assert_eq!((&told["taskId"], &told["status"]), (handle, &json!("cancelled")));
    let notice = loop {
        match client.mailbox().next().await.unwrap() {
            Message::Notification(notice) if notice.method == Method::TaskStatus => break notice,
            _ => {}
        }
    };
    assert_eq!(json!(notice.params.unwrap().text("taskId")), *handle);
    assert_eq!(shop.answer(&client, TasksCancel, &about(handle)).await["error"], -32602, "over already");
}

#[tokio::test(start_paused = true)]
async fn what_a_task_asks_comes_with_its_result_and_names_it() {
    let shop = Shop::legacy();
    let client = shop.core();
    let created = shop.answer(&client, ToolsCall, &as_task("job")).await;
    let handle = &created["task"]["taskId"];
    let other = shop.begin(&client, TasksResult, &about(handle));
    shop.jobs.until("tasks/result").await;
    shop.jobs.ask("up-1", "sure?");
    let question = other.question().await;
    let params: Value = question.params.unwrap().read().unwrap();
    assert_eq!((&params["message"], &params["_meta"][RELATED]["taskId"]), (&json!("sure?"), handle));
    // However long the user thinks, and the task works.
    tokio::time::sleep(Duration::from_secs(300)).await;
    shop.reply(&client, question.id, &accept());
    tokio::time::sleep(Duration::from_secs(300)).await;
    shop.jobs.finish("up-1", answer("after"));
    assert_eq!(other.answer().await["content"], answer("after")["content"]);
    assert_eq!(shop.jobs.answers("up-1")["sure?"], accept());
}

#[tokio::test(start_paused = true)]
async fn h66_nobody_else_knows_a_task() {
    let shop = Shop::legacy();
    let (ann, bob) = (shop.core(), shop.core_of(Principal::named("bob")));
    let created = shop.answer(&ann, ToolsCall, &as_task("job")).await;
    let handle = &created["task"]["taskId"];
    for method in [TasksGet, TasksResult, TasksCancel] {
        assert_eq!(shop.answer(&bob, method.clone(), &about(handle)).await["error"], -32602, "{method}");
        assert_eq!(shop.answer(&ann, method, &about(&json!("up-1"))).await["error"], -32602, "the server's own id");
    }
    let bobs = shop.extended_of(Principal::named("bob"));
    for method in [TasksGet, TasksUpdate, TasksCancel] {
        assert_eq!(shop.answer(&bobs, method, &about(handle)).await["error"], -32602);
    }
    assert_eq!(shop.answer(&bob, TasksList, &json!({})).await["tasks"], json!([]));
    assert!(shop.jobs.calls("tasks/get").is_empty() && shop.jobs.calls("tasks/cancel").is_empty());
    assert_eq!(shop.answer(&ann, TasksGet, &about(handle)).await["taskId"], *handle, "it is as it was");
}

#[tokio::test(start_paused = true)]
async fn a_task_dies_with_the_session_of_its_server() {
    let shop = Shop::legacy();
    let client = shop.core();
    let created = shop.answer(&client, ToolsCall, &as_task("job")).await;
    let handle = &created["task"]["taskId"];
    shop.jobs.crash();
    while shop.answer(&client, TasksGet, &about(handle)).await["error"] != -32602 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The server is back, and does know a task of that name.
    assert_eq!(shop.answer(&client, ToolsCall, &call("plain")).await["content"], answer("at once")["content"]);
    assert_eq!(shop.answer(&client, TasksGet, &about(handle)).await["error"], -32602);
}

#[tokio::test(start_paused = true)]
async fn a_client_of_2026_07_28_finds_in_a_task_what_2025_11_25_tells_apart() {
    let shop = Shop::legacy();
    let client = shop.extended();
    let created = shop.answer(&client, ToolsCall, &call("job")).await;
    let handle = &created["taskId"];
    assert_eq!((&created["resultType"], &created["status"]), (&json!("task"), &json!("working")));
    assert_eq!((&created["ttlMs"], &created["pollIntervalMs"], created.get("ttl")), (&json!(9000), &json!(20), None));
    let told = shop.answer(&client, TasksGet, &about(handle)).await;
    assert_eq!((&told["resultType"], &told["taskId"], told.get("result")), (&json!("complete"), handle, None));
    shop.jobs.finish("up-1", answer("done"));
    let told = shop.answer(&client, TasksGet, &about(handle)).await;
    assert_eq!((&told["status"], &told["result"]), (&json!("completed"), &answer("done")), "no word of the other id");
    assert_eq!(shop.answer(&client, TasksGet, &about(handle)).await, told, "and again");
    assert_eq!(shop.jobs.calls("tasks/result").len(), 1);
    let ack = shop.answer(&client, TasksCancel, &about(handle)).await;
    assert_eq!(
        (&ack["resultType"], ack.get("taskId")),
        (&json!("complete"), None),
        "over, and acknowledged all the same"
    );
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_failed_completed_and_a_broken_one_failed() {
    let shop = Shop::legacy();
    let client = shop.extended();
    let failed = shop.answer(&client, ToolsCall, &call("job")).await;
    let mut result = answer("no");
    result["isError"] = json!(true);
    shop.jobs.finish("up-1", result.clone());
    let told = shop.answer(&client, TasksGet, &about(&failed["taskId"])).await;
    assert_eq!((&told["status"], &told["result"]), (&json!("completed"), &result));
    let broken = shop.answer(&client, ToolsCall, &call("job")).await;
    shop.jobs.fail("up-2", -32603);
    let told = shop.answer(&client, TasksGet, &about(&broken["taskId"])).await;
    assert_eq!((&told["status"], &told["error"]["code"], told.get("result")), (&json!("failed"), &json!(-32603), None));
}

#[tokio::test(start_paused = true)]
async fn what_a_task_of_2025_11_25_asks_is_found_and_answered_by_key() {
    let shop = Shop::legacy();
    let client = shop.extended();
    let created = shop.answer(&client, ToolsCall, &call("job")).await;
    let handle = &created["taskId"];
    shop.jobs.ask("up-1", "a");
    shop.jobs.ask("up-1", "b");
    let told = shop.answer(&client, TasksGet, &about(handle)).await;
    assert_eq!(told["status"], "input_required");
    let requests = told["inputRequests"].as_object().unwrap();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests["i1"]["method"], "elicitation/create");
    assert_eq!(
        (&requests["i1"]["params"]["message"], requests["i1"]["params"].get("_meta")),
        (&json!("a"), Some(&json!({})))
    );
    let some = json!({ "taskId": handle, "inputResponses": { "i1": accept(), "i9": accept() } });
    assert_eq!(shop.answer(&client, TasksUpdate, &some).await["resultType"], "complete");
    let told = shop.answer(&client, TasksGet, &about(handle)).await;
    assert_eq!(told["inputRequests"].as_object().unwrap().keys().collect::<Vec<_>>(), ["i2"]);
    let bad = json!({ "taskId": handle, "inputResponses": { "i2": "yes" } });
    assert_eq!(shop.answer(&client, TasksUpdate, &bad).await["error"], -32602);
    let rest = json!({ "taskId": handle, "inputResponses": { "i1": { "action": "decline" }, "i2": accept() } });
    shop.answer(&client, TasksUpdate, &rest).await;
    while shop.jobs.answers("up-1").as_object().unwrap().len() < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(shop.jobs.answers("up-1"), json!({ "a": accept(), "b": accept() }), "each once");
    assert_eq!(shop.answer(&client, TasksGet, &about(handle)).await["status"], "working");
    shop.jobs.finish("up-1", answer("done"));
    assert_eq!(shop.answer(&client, TasksGet, &about(handle)).await["result"], answer("done"));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_knows_no_tasks_gets_the_result_of_a_tool_that_runs_as_one_only() {
    let shop = Shop::legacy();
    let old =
        shop.router.admit(Principal::local(), ProtocolVersion::V2025_06_18, crate::protocol::Profile::EMPTY, None);
    let new = shop.router.modern(Principal::local(), &Raw::empty_object()).unwrap();
    for (client, id) in [(shop.core(), "up-1"), (old, "up-2"), (new, "up-3")] {
        let running = shop.begin(&client, ToolsCall, &call("job"));
        tokio::time::sleep(Duration::from_secs(200)).await;
        shop.jobs.finish(id, answer("done"));
        let result = running.answer().await;
        assert_eq!((&result["content"], result.get("task")), (&answer("done")["content"], None));
        assert!(!result.to_string().contains("up-"), "{result}");
    }
    assert_eq!(shop.answer(&shop.core(), ToolsCall, &call("maybe")).await["content"], answer("at once")["content"]);
}

#[tokio::test(start_paused = true)]
async fn a_hidden_task_asks_the_client_of_its_call_and_ends_with_it() {
    let shop = Shop::legacy();
    let client = shop.core();
    let running = shop.begin(&client, ToolsCall, &call("job"));
    shop.jobs.until("tasks/get").await;
    shop.jobs.ask("up-1", "who?");
    let question = running.question().await;
    assert_eq!(question.params.unwrap().text("message").as_deref(), Some("who?"));
    shop.reply(&client, question.id, &accept());
    shop.jobs.finish("up-1", answer("done"));
    assert_eq!(running.answer().await["content"], answer("done")["content"]);
    assert!(shop.jobs.calls("tasks/cancel").is_empty());
    let running = shop.begin(&client, ToolsCall, &call("job"));
    let polls = shop.jobs.calls("tasks/get").len();
    shop.jobs.until_times("tasks/get", polls + 1).await;
    running.drop().await;
    shop.jobs.until("tasks/cancel").await;
    assert_eq!(shop.jobs.calls("tasks/cancel"), [json!({ "taskId": "up-2" })]);
}

#[tokio::test(start_paused = true)]
async fn a_hidden_task_asks_a_client_without_a_session_by_a_result() {
    let shop = Shop::legacy();
    let capabilities = Raw::from_value(&json!({ "elicitation": {} }));
    let client = shop.router.modern(Principal::local(), &capabilities).unwrap();
    let running = shop.begin(&client, ToolsCall, &call("job"));
    shop.jobs.until("tasks/get").await;
    shop.jobs.ask("up-1", "who?");
    let asked = running.answer().await;
    assert_eq!(
        (&asked["resultType"], &asked["inputRequests"]["i1"]["params"]["message"]),
        (&json!("input_required"), &json!("who?"))
    );
    let next = super::support::retry(&call("job"), &asked, &json!({ "i1": accept() }));
    let running = shop.begin(&client, ToolsCall, &next);
    while shop.jobs.answers("up-1").as_object().unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    shop.jobs.finish("up-1", answer("done"));
    let result = running.answer().await;
    assert_eq!((&result["resultType"], &result["content"]), (&json!("complete"), &answer("done")["content"]));
    assert_eq!(shop.jobs.calls("tools/call").len(), 1);
}

/// A server that asks before any client waits for the result: the question belongs to the task, not to a call in
/// flight.
#[tokio::test(start_paused = true)]
async fn what_a_task_asks_early_waits_for_its_client() {
    let shop = Shop::legacy();
    let client = shop.extended();
    let created = shop.answer(&client, ToolsCall, &call("job")).await;
    let other = shop.answer(&client, ToolsCall, &call("job")).await;
    let held = shop.begin(&client, TasksGet, &about(&other["taskId"]));
    held.answer().await;
    shop.jobs.ask_early("up-1", "early").await;
    while shop.answer(&client, TasksGet, &about(&created["taskId"])).await["status"] != "input_required" {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(shop.answer(&client, TasksGet, &about(&other["taskId"])).await["status"], "working");
    let told = shop.answer(&client, TasksGet, &about(&created["taskId"])).await;
    assert_eq!(told["inputRequests"]["i1"]["params"]["message"], "early");
    let update = json!({ "taskId": created["taskId"], "inputResponses": { "i1": accept() } });
    shop.answer(&client, TasksUpdate, &update).await;
    while shop.jobs.answers("up-1") != json!({ "early": accept() }) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Questions asked with a result that is awaited, and those asked before.
#[tokio::test(start_paused = true)]
async fn h52_what_a_task_takes_back_is_asked_of_nobody() {
    for early in [false, true] {
        let shop = Shop::legacy();
        let client = shop.extended();
        let created = shop.answer(&client, ToolsCall, &call("job")).await;
        let handle = &created["taskId"];
        for key in ["a", "b"] {
            if early { shop.jobs.ask_early("up-1", key).await } else { shop.jobs.ask("up-1", key) }
        }
        let open = async || {
            let told = shop.answer(&client, TasksGet, &about(handle)).await;
            told["inputRequests"].as_object().map(|open| open.keys().cloned().collect::<Vec<_>>()).unwrap_or_default()
        };
        while open().await.len() < 2 {
            rest().await;
        }
        shop.jobs.withdraw("up-1", "a").await;
        rest().await;
        assert_eq!(open().await, ["i2"], "early: {early}");
        let update = json!({ "taskId": handle, "inputResponses": { "i1": accept(), "i2": accept() } });
        shop.answer(&client, TasksUpdate, &update).await;
        rest().await;
        assert_eq!(shop.jobs.answers("up-1"), json!({ "b": accept() }), "early: {early}");
        assert_eq!(shop.jobs.calls("tasks/result").is_empty(), early);
    }
}

#[tokio::test(start_paused = true)]
async fn each_revision_has_its_own_requests_about_tasks() {
    let shop = Shop::legacy();
    let (core, extended) = (shop.core(), shop.extended());
    let old =
        shop.router.admit(Principal::local(), ProtocolVersion::V2025_06_18, crate::protocol::Profile::EMPTY, None);
    let plain = shop.router.modern(Principal::local(), &Raw::empty_object()).unwrap();
    for method in [TasksResult, TasksList] {
        assert_eq!(shop.answer(&extended, method, &json!({})).await["error"], -32601);
    }
    assert_eq!(shop.answer(&core, TasksUpdate, &json!({})).await["error"], -32601);
    for method in [TasksGet, TasksResult, TasksList, TasksCancel, TasksUpdate] {
        assert_eq!(shop.answer(&old, method, &about(&json!("x"))).await["error"], -32601);
    }
    for method in [TasksGet, TasksCancel, TasksUpdate] {
        assert_eq!(shop.answer(&plain, method, &about(&json!("x"))).await["error"], -32021, "undeclared");
    }
    let off = Shop::of_session(|config| config.host.tasks = false);
    assert_eq!(off.answer(&off.core(), TasksList, &json!({})).await["error"], -32601);
    assert_eq!(off.answer(&off.extended(), TasksGet, &about(&json!("x"))).await["error"], -32601);
    // What was not offered has no effect.
    assert_eq!(off.answer(&off.core(), ToolsCall, &as_task("maybe")).await["content"], answer("at once")["content"]);
}

#[tokio::test]
async fn a_client_of_2025_11_25_has_a_task_at_a_server_of_2026_07_28() {
    let shop = Shop::modern().await;
    let client = shop.core();
    let listed = shop.answer(&client, ToolsList, &json!({})).await;
    assert_eq!(listed["tools"][0]["execution"], json!({ "taskSupport": "optional" }), "the client has to be told");
    let modern = shop.answer(&shop.extended(), ToolsList, &json!({})).await;
    assert_eq!(modern["tools"][0].get("execution"), None);
    let created = shop.answer(&client, ToolsCall, &as_task("job")).await;
    let handle = &created["task"]["taskId"];
    assert_eq!((&created["task"]["ttl"], created.get("resultType")), (&json!(9000), None));
    assert_eq!(shop.jobs.calls("tools/call")[0].get("task"), None, "the server decides alone");
    let told = shop.answer(&client, TasksGet, &about(handle)).await;
    assert_eq!((&told["taskId"], &told["status"], told.get("ttlMs")), (handle, &json!("working"), None));
    let result = shop.begin(&client, TasksResult, &about(handle));
    shop.jobs.until("tasks/get").await;
    shop.jobs.ask("up-1", "k");
    let question = result.question().await;
    let params: Value = question.params.unwrap().read().unwrap();
    assert_eq!((&params["message"], &params["_meta"][RELATED]["taskId"]), (&json!("k"), handle));
    shop.reply(&client, question.id, &accept());
    shop.jobs.until("tasks/update").await;
    shop.jobs.finish("up-1", answer("done"));
    let mut expected = answer("done");
    expected["_meta"] = json!({ RELATED: { "taskId": handle } });
    assert_eq!(result.answer().await, expected);
    assert_eq!(shop.jobs.answers("up-1"), json!({ "k": accept() }));
    let mut failed = answer("no");
    failed["isError"] = json!(true);
    shop.jobs.finish("up-1", failed);
    assert_eq!(shop.answer(&client, TasksGet, &about(handle)).await["status"], "failed", "so says 2025-11-25");
    assert_eq!(shop.answer(&client, TasksCancel, &about(handle)).await["error"], -32602);
}

#[tokio::test]
async fn a_call_that_was_over_at_once_is_a_task_that_is_over() {
    let shop = Shop::modern().await;
    let client = shop.core();
    let created = shop.answer(&client, ToolsCall, &as_task("plain")).await;
    let handle = &created["task"]["taskId"];
    assert_eq!(created["task"]["status"], "completed");
    assert_eq!(shop.answer(&client, TasksGet, &about(handle)).await, created["task"]);
    let mut expected = answer("at once");
    expected["_meta"] = json!({ RELATED: { "taskId": handle } });
    assert_eq!(shop.answer(&client, TasksResult, &about(handle)).await, expected);
    assert_eq!(shop.answer(&client, TasksCancel, &about(handle)).await["error"], -32602);
    assert_eq!(shop.answer(&client, TasksList, &json!({})).await["tasks"], json!([created["task"]]));
    let bob = shop.core_of(Principal::named("bob"));
    assert_eq!(shop.answer(&bob, TasksGet, &about(handle)).await["error"], -32602);
    assert_eq!(shop.answer(&bob, TasksList, &json!({})).await["tasks"], json!([]));
}

#[tokio::test]
async fn both_of_2026_07_28_share_a_task_under_an_id_of_ours() {
    let shop = Shop::modern().await;
    let client = shop.extended();
    let created = shop.answer(&client, ToolsCall, &call("job")).await;
    let handle = &created["taskId"];
    assert_eq!(created["resultType"], "task");
    assert_ne!(*handle, json!("up-1"));
    shop.jobs.ask("up-1", "k");
    let told = shop.answer(&client, TasksGet, &about(handle)).await;
    assert_eq!((&told["taskId"], &told["inputRequests"]["k"]["params"]["message"]), (handle, &json!("k")));
    // Another kind of client of the same person, which shares the server.
    let other = json!({ "extensions": { TASKS: {} } });
    let other = shop.router.modern(Principal::local(), &Raw::from_value(&other)).unwrap();
    let update = json!({ "taskId": handle, "inputResponses": { "k": accept() } });
    assert_eq!(shop.answer(&other, TasksUpdate, &update).await["resultType"], "complete");
    assert_eq!(shop.jobs.answers("up-1"), json!({ "k": accept() }));
    let bob = shop.extended_of(Principal::named("bob"));
    assert_eq!(shop.answer(&bob, TasksGet, &about(handle)).await["error"], -32602);
    assert_eq!(shop.answer(&client, TasksCancel, &about(handle)).await.get("taskId"), None);
    assert_eq!(shop.answer(&client, TasksGet, &about(handle)).await["status"], "cancelled");
    let unknowing = shop.router.modern(Principal::local(), &Raw::empty_object()).unwrap();
    assert_eq!(shop.answer(&unknowing, ToolsCall, &call("job")).await["error"], -32021);
    assert_eq!(shop.answer(&unknowing, ToolsCall, &call("maybe")).await["content"], answer("at once")["content"]);
    let legacy = shop.answer(&shop.core(), ToolsCall, &call("job")).await;
    assert_eq!(legacy["isError"], true, "it cannot say what the server wants: {legacy}");
}

#[tokio::test]
async fn a_listen_hears_how_far_its_tasks_are() {
    for shop in [Shop::legacy(), Shop::modern().await] {
        let client = shop.extended();
        let created = shop.answer(&client, ToolsCall, &call("job")).await;
        let handle = created["taskId"].clone();
        let params = json!({ "notifications": { "taskIds": [handle, "nobody's"] } });
        let leg = shop.router.modern_leg(None);
        let request =
            Request { id: RequestId::Number(7), method: Method::Listen, params: Some(Raw::from_value(&params)) };
        let closing = CancellationToken::new();
        let listen = tokio::spawn(shop.router.stateless(&client, request, &leg, &closing));
        let next = async |wanted: Method| loop {
            if let Message::Notification(notice) = leg.next().await.unwrap()
                && notice.method == wanted
            {
                return notice.params.unwrap().read::<Value>().unwrap();
            }
        };
        let acknowledged = next(Method::Acknowledged).await;
        assert_eq!(acknowledged["notifications"], json!({ "taskIds": [handle] }), "what it knows");
        shop.jobs.ask("up-1", "k");
        let told = next(Method::TaskNews).await;
        assert_eq!((&told["taskId"], &told["status"]), (&handle, &json!("input_required")));
        assert_eq!(told["inputRequests"].as_object().unwrap().len(), 1);
        assert_eq!(told["_meta"], json!({ "io.modelcontextprotocol/subscriptionId": 7 }));
        shop.jobs.finish("up-1", answer("done"));
        let told = next(Method::TaskNews).await;
        assert_eq!((&told["status"], &told["result"]), (&json!("completed"), &answer("done")));
        assert!(!listen.is_finished(), "it goes on until it is closed");
        closing.cancel();
        assert!(listen.await.unwrap().unwrap().is_ok());
        let undeclared = shop.router.modern(Principal::local(), &Raw::empty_object()).unwrap();
        let request =
            Request { id: RequestId::Number(8), method: Method::Listen, params: Some(Raw::from_value(&params)) };
        let refused = shop.router.stateless(&undeclared, request, &leg, &CancellationToken::new()).await.unwrap();
        assert_eq!(refused.unwrap_err().code, -32021);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_without_tasks_gives_none() {
    let stage = super::support::stage().await;
    let client = stage.legacy(ProtocolVersion::V2025_11_25, crate::protocol::Profile::EMPTY);
    assert_eq!(stage.answer(&client, &as_task("echo")).await["error"], -32601);
    let listed = super::support::request(&stage.router, &client, ToolsList, &json!({})).answer().await;
    assert!(!listed.to_string().contains("taskSupport"));
}
