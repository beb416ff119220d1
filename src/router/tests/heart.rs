//! Heartbeats of silent calls. On a paused clock.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::support::*;
use crate::in_process::InProcess;
use crate::manager::Principal;
use crate::protocol::{Message, Method, Profile, ProtocolVersion, Raw, Response};
use crate::router::Mailbox;

const BEAT: Duration = Duration::from_secs(15);

fn with_token(tool: &str, token: &Value) -> Value {
    json!({ "name": tool, "arguments": {}, "_meta": { "progressToken": token } })
}

/// Returns the params of the progress that waits to be read.
fn heard(leg: &Mailbox) -> Vec<Value> {
    let mut all = Vec::new();
    while let Some(message) = leg.try_next() {
        if let Message::Notification(notice) = message
            && notice.method == Method::Progress
        {
            all.push(notice.params.unwrap().read().unwrap());
        }
    }
    all
}

fn texts(heard: &[Value]) -> Vec<&str> {
    heard.iter().map(|params| params["message"].as_str().unwrap_or_default()).collect()
}

fn assert_rises(heard: &[Value]) {
    let values: Vec<f64> = heard.iter().map(|params| params["progress"].as_f64().unwrap()).collect();
    assert!(values.windows(2).all(|pair| pair[0] < pair[1]), "{values:?}");
}

#[tokio::test(start_paused = true)]
async fn a_silent_call_beats_every_15_seconds_under_the_callers_token_and_no_clock_of_ours_moves() {
    let stage = stage().await;
    let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::EMPTY);
    stage.answer(&client, &call("echo")).await;
    let begun = Instant::now();
    let running = stage.call(&client, &with_token("held", &json!("mine")));
    sleep(BEAT * 4 - Duration::from_millis(1)).await;
    let heard = heard(&running.leg);
    assert_eq!(
        texts(&heard),
        [
            "working",
            "script has not answered for 15 s",
            "script has not answered for 30 s",
            "script has not answered for 45 s"
        ]
    );
    assert_rises(&heard);
    let last = json!({
        "progressToken": "mine", "progress": heard[3]["progress"], "message": "script has not answered for 45 s",
        "_meta": { "mcp-host/heartbeat": { "silentMs": 45_000 } },
    });
    assert_eq!(heard[3], last, "without a total");
    assert!((1.000_002..1.000_01).contains(&heard[3]["progress"].as_f64().unwrap()));
    let leg = running.leg.clone();
    let answer = running.answer().await;
    assert_eq!(answer["_meta"]["mcp-host/error"]["kind"], "timeout", "{answer}");
    assert_eq!(begun.elapsed(), BEAT * 4, "callTimeout");
    sleep(BEAT * 4).await;
    assert_eq!(self::heard(&leg), [] as [Value; 0]);
}

#[tokio::test(start_paused = true)]
async fn no_heartbeat_without_a_token_nor_with_heartbeat_0() {
    let stage = stage().await;
    let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::EMPTY);
    let running = stage.call(&client, &call("held"));
    sleep(BEAT * 3).await;
    assert_eq!(heard(&running.leg), [] as [Value; 0]);

    let stage = stage_of(|config| config.host.heartbeat = Duration::ZERO).await;
    let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::EMPTY);
    let running = stage.call(&client, &with_token("held", &json!(7)));
    sleep(BEAT * 3).await;
    assert_eq!(texts(&heard(&running.leg)), ["working"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_turn_or_for_a_person_says_so() {
    let stage = stage_of(|config| config.servers[0].max_concurrent = 1).await;
    let client = stage.legacy(ProtocolVersion::V2025_11_25, Profile::ELICITATION_FORM);
    let first = stage.call(&client, &with_token("ask", &json!(1)));
    stage.until(|script| script.begun.load(Ordering::SeqCst) == 1).await;
    let second = stage.call(&client, &with_token("echo", &json!(2)));
    let question = first.question().await;
    sleep(BEAT + Duration::from_millis(1)).await;
    assert_eq!(texts(&heard(&first.leg)), ["script waits for the answer to its question"]);
    assert_eq!(texts(&heard(&second.leg)), ["the call has waited 15 s for its turn at script"]);
    let outcome = Ok(Raw::from_value(&json!({ "action": "decline" })));
    client.answer(Response { id: Some(question.id), outcome });
    first.answer().await;
    assert_eq!(second.answer().await["isError"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_attends_a_parked_call_hears_heartbeats() {
    let stage = stage().await;
    let client = stage.modern(FORM);
    let running = stage.call(&client, &with_token("held", &json!("m")));
    sleep(BEAT * 2 + Duration::from_millis(1)).await;
    let heard = heard(&running.leg);
    assert_eq!(texts(&heard), ["working", "script has not answered for 15 s", "script has not answered for 30 s"]);
    assert_rises(&heard);
    stage.script.release.notify_one();
    assert_eq!(text(&running.answer().await), "held");
}

/// Many calls that are answered around the moments of heartbeats, some with progress of their own.
/// `MCP_HOST_BEAT_CALLS=100000` makes that many.
#[tokio::test(start_paused = true)]
#[expect(clippy::print_stderr, reason = "a long run tells how it went")]
async fn of_many_calls_none_hears_a_value_that_does_not_rise_nor_anything_after_its_answer() {
    const CALLS: u64 = 900;
    let wanted = std::env::var("MCP_HOST_BEAT_CALLS").ok().map(|count| count.parse::<u64>().unwrap());
    let rounds = wanted.map_or(5, |count| count.div_ceil(CALLS));
    let definition = Raw::from_value(&json!({ "name": "takes", "inputSchema": { "type": "object" } }));
    let server = InProcess::new("slow", "1").tool(definition, |invocation| {
        async move {
            let millis: u64 = invocation.arguments.member("millis").and_then(|value| value.read().ok()).unwrap();
            for step in 0..millis % 4 {
                sleep(Duration::from_millis(millis / 4)).await;
                #[expect(clippy::cast_precision_loss, reason = "it is small")]
                invocation.progress(step as f64 / 1e7, None, "step").await;
            }
            sleep(Duration::from_millis(millis - millis / 4 * (millis % 4))).await;
            Ok(Raw::from_value(&json!({ "content": [] })))
        }
        .boxed()
    });
    let stage = stage_with_server(server, |config| {
        config.host.limits.pending_per_client = 5000;
        config.host.limits.pending_per_server = 5000;
        config.servers[0].call_timeout = Duration::from_secs(600);
    });
    let clients: Vec<_> = (0..8).map(|_| stage.legacy(ProtocolVersion::V2025_11_25, Profile::EMPTY)).collect();
    let (mut beats, mut legs) = (0, Vec::<Arc<Mailbox>>::new());
    for round in 0..rounds {
        let calls: Vec<_> = (round * CALLS..(round + 1) * CALLS)
            .map(|number| {
                // A few milliseconds around 15, 30, and 45 s.
                let millis = 15_000 * (1 + number % 3) - 5 + number / 3 % 11;
                let params =
                    json!({ "name": "takes", "arguments": { "millis": millis }, "_meta": { "progressToken": number } });
                (number, millis, stage.call(&clients[usize::try_from(number % 8).unwrap()], &params))
            })
            .collect();
        for (number, millis, running) in calls {
            let leg = running.leg.clone();
            let answer = running.answer().await;
            assert_eq!(answer["isError"], Value::Null, "{answer}");
            let heard = heard(&leg);
            assert_rises(&heard);
            assert!(heard.iter().all(|params| params["progressToken"] == number), "{heard:?}");
            let steps = heard.iter().filter(|params| params["message"] == "step").count();
            assert_eq!(steps as u64, millis % 4, "no progress of the server is lost: {heard:?}");
            beats += heard.len() - steps;
            legs.push(leg);
        }
    }
    assert!(beats > 1000, "{beats}");
    sleep(BEAT * 10).await;
    assert!(legs.iter().all(|leg| heard(leg).is_empty()));
    eprintln!("{} calls, {beats} heartbeats, none after an answer", legs.len());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_for_its_rate_says_so() {
    use crate::config::{OnLimit, Per, Rate};
    let stage = stage_of(|config| {
        config.host.rates.principal = Some(Rate { on_limit: OnLimit::Wait, ..Rate::new(1, Per::Minute) });
        config.servers[0].queue_timeout = Duration::from_secs(100);
    })
    .await;
    let client = stage.router.admit(Principal::named("a"), ProtocolVersion::V2025_11_25, Profile::EMPTY, None);
    stage.answer(&client, &call("echo")).await;
    let running = stage.call(&client, &with_token("echo", &json!(1)));
    sleep(BEAT * 2 + Duration::from_millis(1)).await;
    assert_eq!(
        texts(&heard(&running.leg)),
        ["the call has waited 15 s for its turn at script", "the call has waited 30 s for its turn at script"]
    );
    assert_eq!(running.answer().await["isError"], Value::Null);
}
