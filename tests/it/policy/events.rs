//! What embedders are told of rules and rates.

use std::time::Duration;

use mcp_host::policy::Decision;
use mcp_host::{Asked, Event, Events, LimitedNews, Method, VerdictNews};
use serde_json::{Value, json};

use super::{call, config, open};
use crate::views::clients::{Client, Transport};

/// The longest that a test waits for an event.
const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for the next event about a rule or a rate.
async fn next(events: &mut Events) -> Event {
    let found = async {
        loop {
            let event = events.next().await.expect("the host is there");
            if matches!(event, Event::Verdict(_) | Event::Limited(_)) {
                return event;
            }
        }
    };
    tokio::time::timeout(PATIENCE, found).await.expect("an event")
}

async fn verdict(events: &mut Events) -> VerdictNews {
    match next(events).await {
        Event::Verdict(news) => news,
        other => panic!("{other:?}"),
    }
}

/// What a verdict says, but for the server and the method.
type Said = (Decision, Option<String>, bool, Option<Asked>);

#[tokio::test]
async fn each_verdict_is_told_with_its_rule_and_nothing_of_the_principal() {
    let says = |answer: &str| json!({ "action": "accept", "content": { "answer": answer } });
    let rule = |more: Value| {
        let mut rule = json!({ "name": "r", "tools": ["db__write"] });
        rule.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({ "rules": [rule] })
    };
    let named = |name: &str| Some(name.to_owned());
    let cases: [(Value, Value, Said); 6] = [
        (rule(json!({ "verdict": "deny", "hide": false })), Value::Null, (Decision::Deny, named("r"), true, None)),
        (rule(json!({ "verdict": "deny", "report": true })), Value::Null, (Decision::Deny, named("r"), false, None)),
        (json!({ "mode": "report", "default": "deny" }), Value::Null, (Decision::Deny, named("default"), false, None)),
        (rule(json!({ "verdict": "ask" })), says("once"), (Decision::Ask, named("r"), true, Some(Asked::Yes))),
        (rule(json!({ "verdict": "ask" })), says("no"), (Decision::Ask, named("r"), true, Some(Asked::No))),
        (json!({ "default": "ask" }), says("once"), (Decision::Ask, None, true, Some(Asked::Yes))),
    ];
    for (policy, answer, said) in cases {
        let shop = open(config(&policy), None).await;
        let mut events = shop.host.events();
        let able = json!({ "elicitation": {} });
        let mut client = Client::able(&shop.host, shop.to, Transport::Pipe, "2025-11-25", ("", able)).await;
        client.answer = answer;
        let (method, params) = call("db__write", json!({}));
        client.ask(method, params).await;
        let news = verdict(&mut events).await;
        assert_eq!((news.server.as_str(), &news.method), ("db", &Method::ToolsCall), "{policy}");
        assert_eq!((news.decision, news.rule.clone(), news.enforced, news.asked), said, "{policy}");
        assert!(!format!("{news:?}").contains("local"), "{news:?}");
        shop.host.shutdown().await;
    }
}

#[tokio::test]
async fn requests_that_no_rule_matches_are_not_told_and_other_methods_are() {
    let rules = json!({ "rules": [{ "name": "p", "verdict": "deny", "prompts": ["db__ask"], "hide": false }] });
    let shop = open(config(&rules), None).await;
    let mut events = shop.host.events();
    let mut client = Client::enter(&shop.host, shop.to, Transport::Pipe, "2025-11-25", "").await;
    let (method, params) = call("db__write", json!({}));
    client.ask(method, params).await;
    client.ask("prompts/get", json!({ "name": "db__ask" })).await;
    let news = verdict(&mut events).await;
    assert_eq!((&news.method, news.rule.as_deref()), (&Method::PromptsGet, Some("p")));
    shop.host.shutdown().await;
}

#[tokio::test]
async fn a_call_over_its_rate_is_told() {
    let mut config = config(&json!({}));
    config.host.rates.server = Some(mcp_host::config::Rate::new(1, mcp_host::config::Per::Hour));
    let shop = open(config, None).await;
    let mut events = shop.host.events();
    shop.host.call_tool("db__read", json!({})).await.unwrap();
    shop.host.call_tool("db__read", json!({})).await.unwrap_err();
    let Event::Limited(LimitedNews { server, retry_after, .. }) = next(&mut events).await else { panic!("no limit") };
    assert_eq!(server, "db");
    assert!(retry_after.is_some_and(|after| (3500..=3600).contains(&after.as_secs())), "{retry_after:?}");
    shop.host.shutdown().await;
}
