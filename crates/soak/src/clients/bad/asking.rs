//! Clients that make the host keep state, and do not return for it.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::Target;
use super::wire::{Wire, call, get, modern_post, post, request, within};

const AGAIN: Duration = Duration::from_millis(50);

/// Very many URIs, and very long ones.
pub(super) fn subscriptions(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.clone();
    target.many(2, AGAIN, move |number| {
        let target = of.clone();
        async move {
            let mut wire = Wire::open(&target).await?;
            let uri = |round: usize| {
                let length = if round.is_multiple_of(20) { 1 << 20 } else { 7 << 10 };
                format!("shared://{number}/{round}/{}", "x".repeat(length))
            };
            if number % 2 == 0 {
                let session = wire.session(&target, &json!({})).await?;
                for round in 0..1500 {
                    let subscribe = request(1, "resources/subscribe", &json!({ "uri": uri(round) }));
                    let answer = wire.ask(&post(&target, &within(&session), &subscribe)).await?;
                    let refused = answer.text.contains("-32602");
                    // The longest exceed `limits.uri`, and their number exceeds `limits.subscriptions`.
                    if (round.is_multiple_of(20) || round > 1000) && answer.status == 200 && !refused {
                        target.wrong(format!("subscription {round} was taken: {}", start(&answer.text)));
                    }
                }
                return wire.end(&target, &session).await;
            }
            for count in [400, 100_000] {
                let uris: Vec<_> = if count == 400 {
                    (1..count).map(&uri).filter(|uri| uri.len() < 8 << 10).collect()
                } else {
                    (0..count).map(|round| format!("shared://{round}")).collect()
                };
                let params = json!({ "notifications": { "resourceSubscriptions": uris } });
                wire.send(&modern_post(&target, "subscriptions/listen", params, "watch")).await?;
                let answer = wire.answer(true).await?;
                if count > 1000 && answer.status == 200 && !answer.text.contains("-32602") {
                    target.wrong(format!("{count} URIs were taken: {}", start(&answer.text)));
                }
                sleep(Duration::from_secs(1)).await;
                wire = Wire::open(&target).await?;
            }
            Ok(())
        }
    })
}

fn start(text: &str) -> String {
    text.chars().take(300).collect()
}

/// Calls that wait for the answer to a question: of clients with a session, which stay, and of clients without, which
/// are gone.
pub(super) fn questions(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.clone();
    target.many(80, Duration::from_secs(1), move |number| {
        let target = of.clone();
        async move {
            let mut wire = Wire::open(&target).await?;
            if number < 16 {
                let session = wire.session(&target, &json!({ "elicitation": {} })).await?;
                wire.send(&post(&target, &within(&session), &call(1, "work__ask"))).await?;
                sleep(Duration::from_secs(20)).await;
                return Wire::open(&target).await?.end(&target, &session).await;
            }
            let params = json!({ "name": "work__ask", "arguments": {} });
            wire.ask(&modern_post(&target, "tools/call", params, &number.to_string())).await?;
            Ok(())
        }
    })
}

/// Starts tasks and never fetches their results.
pub(super) fn tasks(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.clone();
    target.many(2, AGAIN, move |_| {
        let target = of.clone();
        async move {
            let mut wire = Wire::open(&target).await?;
            let session = wire.session(&target, &json!({})).await?;
            for round in 0..50 {
                let mut call = call(round, "work__later");
                call["params"]["task"] = json!({ "ttl": 10_000 });
                wire.ask(&post(&target, &within(&session), &call)).await?;
            }
            wire.end(&target, &session).await
        }
    })
}

/// Change streams, each dropped as soon as it is open.
pub(super) fn listens(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.clone();
    target.many(8, Duration::from_millis(5), move |number| {
        let target = of.clone();
        async move {
            let mut wire = Wire::open(&target).await?;
            let filter = json!({ "toolsListChanged": true, "resourceSubscriptions": ["shared://one"] });
            let params = json!({ "notifications": filter });
            wire.send(&modern_post(&target, "subscriptions/listen", params, &number.to_string())).await?;
            wire.answer(true).await?;
            Ok(())
        }
    })
}

/// Resumes streams, events, and sessions that belong to others.
pub(super) fn resumes(target: &Target) -> LocalBoxFuture<'static, ()> {
    let of = target.clone();
    target.many(2, AGAIN, move |_| {
        let target = of.clone();
        async move {
            let mut wire = Wire::open(&target).await?;
            let session = wire.session(&target, &Value::Object(serde_json::Map::new())).await?;
            for round in 1..50 {
                let event = format!("{}Last-Event-ID: {round}-{}\r\n", within(&session), round % 7);
                let answer = wire.ask(&get(&target, &event)).await?;
                if answer.status < 400 {
                    target.wrong(format!("a stream that was never opened was resumed: {}", start(&answer.text)));
                }
            }
            wire.end(&target, &session).await
        }
    })
}
