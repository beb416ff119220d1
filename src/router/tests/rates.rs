//! Rates of tool calls. On a paused clock.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, advance, sleep};

use super::support::*;
use crate::config::{OnLimit, Per, Rate, ToolSettings, View};
use crate::manager::{Chosen, Identity, Principal, RateKey, Viewed};
use crate::protocol::{Method, Profile, ProtocolVersion};
use crate::router::Client;

fn of(stage: &Stage, name: &str) -> std::sync::Arc<Client> {
    stage.router.admit(Principal::named(name), ProtocolVersion::V2025_11_25, Profile::EMPTY, None)
}

fn rated(rate: Rate) -> ToolSettings {
    ToolSettings { rate: Some(rate), ..ToolSettings::default() }
}

fn details(answer: &Value) -> &Value {
    &answer["_meta"]["mcp-host/error"]
}

#[tokio::test(start_paused = true)]
async fn a_call_over_the_rate_of_its_tool_is_refused_and_told_when() {
    let stage = stage_of(|config| {
        let tools = std::mem::take(&mut config.servers[0].tools);
        config.servers[0].tools = tools.with("ec*", rated(Rate::new(2, Per::Minute)));
    })
    .await;
    let ann = of(&stage, "ann");
    for _ in 0..2 {
        assert_eq!(stage.answer(&ann, &call("echo")).await["isError"], Value::Null);
    }
    let refused = stage.answer(&ann, &call("echo")).await;
    assert_eq!(refused["isError"], true);
    assert_eq!(
        *details(&refused),
        json!({ "server": "script", "kind": "rate_limited", "sent": false, "retryable": true, "retryAfterMs": 30_000 })
    );
    assert_eq!(
        text(&refused),
        "server \"script\" did not get the call: one client may make 2 calls a minute of echo (`rate` in its `tools`); call again in 30 s"
    );
    assert_eq!(stage.answer(&ann, &call("page")).await["isError"], Value::Null, "it has no rate");
    assert_eq!(stage.answer(&of(&stage, "bob"), &call("echo")).await["isError"], Value::Null, "counted for himself");
    let limited = stage.router.manager().limited();
    assert_eq!(limited.len(), 1);
    assert_eq!(limited[0].after, Duration::from_secs(30));
    advance(Duration::from_secs(30)).await;
    assert_eq!(stage.router.manager().limited(), []);
    assert_eq!(stage.answer(&ann, &call("echo")).await["isError"], Value::Null);
}

/// What a rate counts by.
#[derive(Clone, Copy, Debug)]
enum By {
    Tool,
    Principal,
    Server,
    View,
}

#[tokio::test(start_paused = true)]
async fn each_rate_lets_as_many_calls_pass_as_it_says_and_not_one_more() {
    for by in [By::Tool, By::Principal, By::Server, By::View] {
        for limit in [1, 2, 10] {
            let rate = Rate::new(limit, Per::Minute);
            let stage = stage_of(|config| match by {
                By::Tool => {
                    let tools = std::mem::take(&mut config.servers[0].tools);
                    config.servers[0].tools = tools.with("echo", rated(rate));
                }
                By::Principal => config.host.rates.principal = Some(rate),
                By::Server => config.host.rates.server = Some(rate),
                By::View => {
                    config.host.rates.view = Some(rate);
                    config.host.views.insert("review".to_owned(), View::default());
                    config.host.default_view = "review".to_owned();
                }
            })
            .await;
            let ann = of(&stage, "ann");
            let passes = async || details(&stage.answer(&ann, &call("echo")).await)["kind"] != "rate_limited";
            for number in 1..=limit + 1 {
                assert_eq!(passes().await, number <= limit, "{by:?} {limit}: call {number}");
            }
            let share = Duration::from_secs(60) / limit;
            advance(share - Duration::from_millis(1)).await;
            assert!(!passes().await, "{by:?} {limit}: a moment too early");
            advance(Duration::from_millis(1)).await;
            assert_eq!([passes().await, passes().await], [true, false], "{by:?} {limit}: one more, and no second one");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_sessions_of_one_principal_share_one_rate() {
    let stage = stage_of(|config| config.host.rates.principal = Some(Rate::new(10, Per::Minute))).await;
    let mut kinds = std::collections::BTreeMap::new();
    for _ in 0..1000 {
        let session = of(&stage, "ann");
        let answer = stage.answer(&session, &call("echo")).await;
        let kind = details(&answer)["kind"].as_str().unwrap_or("answered").to_owned();
        *kinds.entry(kind).or_insert(0) += 1;
        stage.router.clients().close(&session);
    }
    assert_eq!(Vec::from_iter(kinds), [("answered".to_owned(), 10), ("rate_limited".to_owned(), 990)]);
    let modern = stage.modern_of(Principal::named("ann"), "{}");
    let refused = stage.answer(&modern, &call("echo")).await;
    assert_eq!(details(&refused)["server"], Value::Null);
    assert_eq!(text(&refused), "one client may make 10 calls a minute (host.rates.principal); call again in 6 s");
}

#[tokio::test(start_paused = true)]
async fn the_rate_of_a_server_counts_all_clients_and_only_calls_of_tools() {
    let stage = stage_of(|config| config.host.rates.server = Some(Rate::new(2, Per::Second))).await;
    let (ann, bob) = (of(&stage, "ann"), of(&stage, "bob"));
    for client in [&ann, &bob] {
        assert_eq!(stage.answer(client, &call("echo")).await["isError"], Value::Null);
    }
    let refused = stage.answer(&ann, &call("echo")).await;
    assert_eq!(
        text(&refused),
        "server \"script\" did not get the call: it takes 2 calls a second from all clients together (host.rates.server); call again in 1 s"
    );
    assert_eq!(details(&refused)["retryAfterMs"], 500);
    let list = request(&stage.router, &ann, Method::ToolsList, &json!({})).answer().await;
    assert!(list["tools"].is_array());
}

#[tokio::test(start_paused = true)]
async fn the_rate_of_a_view_counts_all_clients_in_it() {
    let stage = stage_of(|config| {
        config.host.rates.view = Some(Rate::new(2, Per::Minute));
        config.host.views.insert("review".to_owned(), View::default());
        config.host.default_view = "review".to_owned();
    })
    .await;
    let at = |name: &str, view: Chosen| {
        let view = Viewed { name: view, is_private: false };
        let who = Identity { view, ..Principal::named(name).into() };
        stage.router.admit(who, ProtocolVersion::V2025_11_25, Profile::EMPTY, None)
    };
    let (ann, bob) = (at("ann", Chosen::named("review")), at("bob", Chosen::Default));
    for client in [&ann, &bob] {
        assert_eq!(stage.answer(client, &call("echo")).await["isError"], Value::Null);
    }
    for client in [&ann, &bob] {
        let refused = stage.answer(client, &call("echo")).await;
        assert_eq!(
            text(&refused),
            "view \"review\" takes 2 calls a minute from all its clients together (host.rates.view); call again in 30 s"
        );
        assert_eq!(details(&refused)["retryAfterMs"], 30_000);
    }
    let elsewhere = at("ann", Chosen::All);
    assert_eq!(stage.answer(&elsewhere, &call("echo")).await["isError"], Value::Null, "another view counts for itself");
    let key = RateKey { view: Some("review".into()), ..RateKey::default() };
    let limited = stage.router.manager().limited();
    assert_eq!(limited.into_iter().map(|over| over.held.key).collect::<Vec<_>>(), [key]);
}

#[tokio::test(start_paused = true)]
async fn a_call_may_wait_for_its_rate_but_not_longer_than_for_a_slot() {
    let rate = Rate { burst: 1, on_limit: OnLimit::Wait, ..Rate::new(1, Per::Second) };
    let stage = stage_of(|config| {
        config.host.rates.principal = Some(rate);
        config.servers[0].queue_timeout = Duration::from_secs(2);
    })
    .await;
    let ann = of(&stage, "ann");
    stage.answer(&ann, &call("echo")).await;
    let begun = Instant::now();
    let (one, two) = (stage.call(&ann, &call("echo")), stage.call(&ann, &call("echo")));
    sleep(Duration::from_millis(1)).await;
    let refused = stage.answer(&ann, &call("echo")).await;
    assert_eq!(details(&refused)["kind"], "rate_limited");
    assert_eq!(one.answer().await["isError"], Value::Null);
    assert_eq!(begun.elapsed(), Duration::from_secs(1));
    // A call that is taken back while it waits makes way.
    two.drop().await;
    assert_eq!(stage.answer(&ann, &call("echo")).await["isError"], Value::Null);
    assert_eq!(begun.elapsed(), Duration::from_secs(2));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_reach_its_server_does_not_count() {
    let stage = stage_of(|config| {
        config.host.rates.principal = Some(Rate::new(2, Per::Day));
        config.servers[0].max_concurrent = 1;
        config.servers[0].queue_timeout = Duration::from_secs(1);
    })
    .await;
    let ann = of(&stage, "ann");
    let held = stage.call(&ann, &call("held"));
    stage.until(|script| script.begun.load(std::sync::atomic::Ordering::SeqCst) == 1).await;
    for _ in 0..3 {
        let refused = stage.answer(&ann, &call("echo")).await;
        assert_eq!(details(&refused)["kind"], "overloaded", "{refused}");
    }
    stage.script.release.notify_one();
    held.answer().await;
    assert_eq!(stage.answer(&ann, &call("echo")).await["isError"], Value::Null);
    assert_eq!(details(&stage.answer(&ann, &call("echo")).await)["kind"], "rate_limited");
}

#[tokio::test(start_paused = true)]
async fn a_reload_changes_rates_and_keeps_their_counts() {
    let stage = stage_of(|config| config.host.rates.principal = Some(Rate::new(1, Per::Minute))).await;
    let ann = of(&stage, "ann");
    stage.answer(&ann, &call("echo")).await;
    let mut config = crate::config::Config::default();
    config.servers.push(stage.router.manager().servers()[0].config.clone());
    let reload = |rate| {
        config.host.rates.principal = rate;
        stage.router.manager().reload(config.clone(), &std::collections::HashMap::new());
    };
    let mut reload = reload;
    reload(None);
    assert_eq!(stage.answer(&ann, &call("echo")).await["isError"], Value::Null);
    reload(Some(Rate::new(1, Per::Minute)));
    assert_eq!(details(&stage.answer(&ann, &call("echo")).await)["kind"], "rate_limited");
}
