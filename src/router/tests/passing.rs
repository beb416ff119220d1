//! What is kept of calls while no feed watches, and how their time is split. On a paused clock, on which mcp-host
//! itself takes no time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::support::*;
use crate::config::{Fallback, FallbackOn, Per, Rate, ToolSettings};
use crate::protocol::{Method, Profile, ProtocolVersion, Raw, Response};
use crate::record::{Arguments, At, Part, Wanted};

const SECOND: Duration = Duration::from_secs(1);

/// Keeps calls from now on, as a daemon does.
fn keep(stage: &Stage) {
    let record = stage.router.manager().record();
    record.open();
    stage.router.observer().tell(vec![Arc::new(record.clone())]);
}

/// Returns these members of each call, in the order of their ends, as the first feed sees them.
fn kept<const N: usize>(stage: &Stage, members: [&str; N]) -> Vec<[Value; N]> {
    let watcher = stage.router.manager().record().watch(At::Socket, Arguments::None).unwrap();
    let wanted = Wanted { parts: Some(vec![Part::Calls]), ..Wanted::default() };
    let shown = |event: crate::record::Event| {
        let mut line = Vec::new();
        event.write(&mut line, &wanted, str::to_owned);
        let event: Value = serde_json::from_slice(&line).unwrap();
        members.map(|member| event[member].clone())
    };
    watcher.past(100, &wanted).1.kept().into_iter().map(shown).collect()
}

#[tokio::test(start_paused = true)]
async fn the_parts_of_a_call_are_kept() {
    let stage = stage_of(|config| config.servers[0].max_concurrent = 1).await;
    keep(&stage);
    let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::ELICITATION_FORM);
    let held = stage.call(&client, &call("held"));
    stage.until(|script| script.begun.load(Ordering::SeqCst) == 1).await;
    let waits = stage.call(&client, &call("echo"));
    sleep(5 * SECOND).await;
    stage.script.release.notify_one();
    held.answer().await;
    waits.answer().await;
    let asks = stage.call(&client, &call("ask"));
    let question = asks.question().await;
    sleep(7 * SECOND).await;
    client.answer(Response { id: Some(question.id), outcome: Ok(Raw::trusted(r#"{"action":"accept"}"#.into())) });
    asks.answer().await;
    let calls = kept(&stage, ["tool", "outcome", "ms", "hostMs", "queueMs", "personMs"]);
    let none = Value::Null;
    let mut expected = [
        [json!("held"), json!("ok"), json!(5000.0), json!(0.0), none.clone(), none.clone()],
        [json!("echo"), json!("ok"), json!(5000.0), json!(0.0), json!(5000.0), none.clone()],
        [json!("ask"), json!("ok"), json!(7000.0), json!(0.0), none, json!(7000.0)],
    ];
    // Two of them end in the same moment.
    if calls[0][0] == "echo" {
        expected.swap(0, 1);
    }
    assert_eq!(calls, expected);
}

#[tokio::test(start_paused = true)]
async fn both_calls_of_a_fallback_and_what_is_read_and_left_are_kept() {
    let stage = stage_of(|config| {
        let fallback = Fallback::to("echo").on([FallbackOn::RateLimited]);
        let settings = ToolSettings { fallback: Some(fallback), ..ToolSettings::default() };
        let settings = ToolSettings { rate: Some(Rate::new(1, Per::Minute)), ..settings };
        let tools = std::mem::take(&mut config.servers[0].tools);
        config.servers[0].tools = tools.with("visit", settings);
    })
    .await;
    keep(&stage);
    let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::EMPTY);
    stage.answer(&client, &call("visit")).await;
    request(&stage.router, &client, Method::Ping, &json!({})).answer().await;
    stage.answer(&client, &call("visit")).await;
    let held = stage.call(&client, &call("held"));
    sleep(SECOND).await;
    held.drop().await;
    let calls = kept(&stage, ["server", "tool", "outcome", "kind", "via"]);
    let expected = [
        ["script", "visit", "error", "", ""],
        ["script", "echo", "ok", "", "fallback"],
        ["script", "visit", "host_error", "rate_limited", ""],
        ["script", "held", "cancelled", "", ""],
    ];
    let said = |members: &[Value; 5]| members.clone().map(|member| member.as_str().unwrap_or_default().to_owned());
    assert_eq!(calls.iter().map(said).collect::<Vec<_>>(), expected.map(|call| call.map(str::to_owned)));
}
