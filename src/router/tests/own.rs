//! Limits of single tools, from the server's entry and from the client's view. On a paused clock.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::support::*;
use crate::config::{Argument, Config, Per, Rate, ToolResults, ToolRules, ToolSettings, Validate, View};
use crate::in_process::InProcess;
use crate::manager::{Chosen, Identity, Principal, Viewed};
use crate::protocol::{Method, Profile, ProtocolVersion, Raw};
use crate::router::Client;

const SECOND: Duration = Duration::from_secs(1);

/// A server whose tools `slow` and `other` answer after ten seconds.
fn server() -> InProcess {
    ["slow", "other"].into_iter().fold(InProcess::new("own", "1"), |server, name| {
        let schema = json!({ "type": "object", "additionalProperties": false, "required": ["text"],
            "properties": { "text": { "type": "string" } } });
        let definition = json!({ "name": name, "inputSchema": schema });
        server.tool(Raw::from_value(&definition), |invocation| {
            async move {
                sleep(10 * SECOND).await;
                Ok(Raw::from_value(&json!({ "content": [], "structuredContent": { "got": serde_json::from_str::<Value>(invocation.arguments.as_str()).unwrap() } })))
            }
            .boxed()
        })
    })
}

/// A stage whose view `review` has `of_view` as settings of tools, and whose server has `of_server`.
fn staged(of_server: ToolRules, of_view: ToolRules, change: impl FnOnce(&mut Config)) -> Stage {
    stage_with_server(server(), |config| {
        config.servers[0].tools = of_server;
        config.host.views.insert("review".to_owned(), View { tools: of_view, ..View::default() });
        change(config);
    })
}

fn only(name: &str, settings: ToolSettings) -> ToolRules {
    ToolRules::default().with(name, settings)
}

async fn come(stage: &Stage, name: &str, view: Chosen) -> Arc<Client> {
    let who = Identity { view: Viewed { name: view, is_private: false }, ..Principal::named(name).into() };
    let client = stage.router.admit(who, ProtocolVersion::V2025_11_25, Profile::EMPTY, None);
    request(&stage.router, &client, Method::ToolsList, &json!({})).answer().await;
    client
}

async fn called(stage: &Stage, client: &Arc<Client>, tool: &str, arguments: &Value) -> Value {
    request(&stage.router, client, Method::ToolsCall, &json!({ "name": tool, "arguments": arguments })).answer().await
}

fn kind(answer: &Value) -> &str {
    answer["_meta"]["mcp-host/error"]["kind"].as_str().unwrap_or("answered")
}

#[tokio::test(start_paused = true)]
async fn arguments_over_the_size_of_their_tool_are_refused() {
    let most = |max_arguments| ToolSettings { max_arguments: Some(max_arguments), ..ToolSettings::default() };
    let stage = staged(only("slow", most(20)), only("*slow", most(15)), |_| {});
    let (whole, review) = (come(&stage, "ann", Chosen::All).await, come(&stage, "ann", Chosen::named("review")).await);
    // {"text":"xxxxxxxxx"} has 20 bytes.
    for (client, letters, expected) in [
        (&whole, 9, "answered"),
        (&whole, 10, "invalid_arguments"),
        (&review, 4, "answered"),
        (&review, 5, "invalid_arguments"),
    ] {
        let answer = called(&stage, client, "slow", &json!({ "text": "x".repeat(letters) })).await;
        assert_eq!(kind(&answer), expected, "{letters}: {answer}");
    }
    let refused = called(&stage, &whole, "slow", &json!({ "text": "x".repeat(10) })).await;
    assert_eq!(
        text(&refused),
        "server \"script\" did not get the call: the arguments of slow are wrong: they have 21 bytes, and at most 20 are allowed (`maxArguments`)"
    );
    assert_eq!(kind(&called(&stage, &whole, "other", &json!({ "text": "x".repeat(100) })).await), "answered");
}

#[tokio::test(start_paused = true)]
async fn a_tool_has_its_own_times() {
    let times = |silent: Option<u64>, most: Option<u64>| {
        let of = |seconds: Option<u64>| seconds.map(Duration::from_secs);
        ToolSettings { call_timeout: of(silent), max_call_time: of(most), ..ToolSettings::default() }
    };
    let stage = staged(only("slow", times(Some(3), None)), only("*slow", times(None, Some(2))), |_| {});
    let (whole, review) = (come(&stage, "ann", Chosen::All).await, come(&stage, "ann", Chosen::named("review")).await);
    for (client, tool, seconds, member) in
        [(&whole, "slow", 3, "callTimeout"), (&review, "slow", 2, "maxCallTime"), (&whole, "other", 10, "")]
    {
        let begun = Instant::now();
        let answer = called(&stage, client, tool, &json!({ "text": "x" })).await;
        assert_eq!(begun.elapsed().as_secs(), seconds, "{answer}");
        assert_eq!(kind(&answer), if member.is_empty() { "answered" } else { "timeout" });
        assert!(member.is_empty() || text(&answer).contains(member), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_has_its_own_number_of_calls_at_once() {
    let most = |calls| ToolSettings { max_concurrent: Some(calls), ..ToolSettings::default() };
    let stage = staged(only("slow", most(2)), only("*slow", most(0)), |_| {});
    let (whole, review) = (come(&stage, "ann", Chosen::All).await, come(&stage, "ann", Chosen::named("review")).await);
    for (client, tool, seconds) in [(&whole, "slow", 20), (&whole, "other", 10), (&review, "slow", 10)] {
        let (begun, arguments) = (Instant::now(), json!({ "text": "x" }));
        let answers = join_all((0..4).map(|_| called(&stage, client, tool, &arguments))).await;
        assert!(answers.iter().all(|answer| kind(answer) == "answered"), "{answers:?}");
        assert_eq!(begun.elapsed().as_secs(), seconds, "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_too_long_for_its_tool_is_refused() {
    let one = ToolSettings { max_concurrent: Some(1), ..ToolSettings::default() };
    let stage = staged(only("slow", one), ToolRules::default(), |config| config.servers[0].queue_timeout = 5 * SECOND);
    let (ann, arguments) = (come(&stage, "ann", Chosen::All).await, json!({ "text": "x" }));
    let answers = join_all((0..2).map(|_| called(&stage, &ann, "slow", &arguments))).await;
    assert_eq!(answers.iter().map(kind).collect::<Vec<_>>(), ["answered", "overloaded"]);
}

#[tokio::test(start_paused = true)]
async fn a_view_says_before_the_server_how_often_a_tool_may_be_called() {
    let rated = |limit| ToolSettings { rate: Some(Rate::new(limit, Per::Hour)), ..ToolSettings::default() };
    let stage = staged(only("slow", rated(2)), only("*slow", rated(1)), |_| {});
    let (whole, review) = (come(&stage, "ann", Chosen::All).await, come(&stage, "ann", Chosen::named("review")).await);
    let mut kinds = Vec::new();
    for client in [&review, &review, &whole, &whole, &whole] {
        kinds.push(kind(&called(&stage, client, "slow", &json!({ "text": "x" })).await).to_owned());
    }
    assert_eq!(kinds, ["answered", "rate_limited", "answered", "answered", "rate_limited"]);
    let refused = called(&stage, &review, "slow", &json!({ "text": "x" })).await;
    assert!(text(&refused).contains("1 call an hour of slow (`rate` in the view's `tools`)"), "{refused}");
    let limited = stage.router.manager().limited();
    let mut views: Vec<_> = limited.into_iter().map(|over| over.held.key.view).collect();
    views.sort();
    assert_eq!(views, [None, Some("review".into())]);
}

#[tokio::test(start_paused = true)]
async fn a_view_says_before_the_server_what_is_checked() {
    let checked = |validate| ToolSettings { validate: Some(validate), ..ToolSettings::default() };
    let stage = staged(ToolRules::default(), only("*", checked(Validate::Arguments)), |_| {});
    let (whole, review) = (come(&stage, "ann", Chosen::All).await, come(&stage, "ann", Chosen::named("review")).await);
    assert_eq!(kind(&called(&stage, &whole, "slow", &json!({})).await), "answered");
    assert_eq!(kind(&called(&stage, &review, "slow", &json!({})).await), "invalid_arguments");
}

#[tokio::test(start_paused = true)]
async fn arguments_are_checked_as_the_client_sees_them() {
    let preset =
        Argument { value: Some(crate::config::Preset::new(&json!("set"))), hide: Some(true), ..Argument::default() };
    let renamed = Argument { name: Some("words".to_owned()), ..Argument::default() };
    let edited = |argument: Argument| {
        let arguments = [("text".to_owned(), argument)].into();
        ToolSettings { arguments, validate: Some(Validate::Arguments), ..ToolSettings::default() }
    };
    let rules = only("slow", edited(renamed)).with("other", edited(preset));
    let stage = staged(rules, ToolRules::default(), |_| {});
    let ann = come(&stage, "ann", Chosen::All).await;
    let got = |answer: &Value| answer["structuredContent"]["got"].clone();
    assert_eq!(got(&called(&stage, &ann, "slow", &json!({ "words": "hello" })).await), json!({ "text": "hello" }));
    assert_eq!(got(&called(&stage, &ann, "other", &json!({})).await), json!({ "text": "set" }));
    let refused = called(&stage, &ann, "slow", &json!({})).await;
    assert_eq!(kind(&refused), "invalid_arguments");
    assert!(text(&refused).contains("words") && !text(&refused).contains("`text`"), "{refused}");
    let refused = called(&stage, &ann, "other", &json!({ "more": 1 })).await;
    assert_eq!(kind(&refused), "invalid_arguments");
    assert!(!refused.to_string().contains("set"), "a preset is nobody's business: {refused}");
}

#[tokio::test(start_paused = true)]
async fn a_view_says_before_the_server_how_much_of_a_result_comes_at_once() {
    let limited = |limit| {
        let results = ToolResults { limit: Some(limit), preview: Some(50), ..ToolResults::default() };
        ToolSettings { results, ..ToolSettings::default() }
    };
    let stage = staged(ToolRules::default().with("*", limited(100)), only("slow", limited(0)), |_| {});
    let (whole, review) = (come(&stage, "ann", Chosen::All).await, come(&stage, "ann", Chosen::named("review")).await);
    let words = json!({ "text": "many words ".repeat(20) });
    for (client, tool, is_cut) in
        [(&whole, "slow", true), (&whole, "other", true), (&review, "slow", false), (&review, "other", true)]
    {
        let answer = called(&stage, client, tool, &words).await;
        assert_eq!(answer["_meta"]["mcp-host/cut"].is_object(), is_cut, "{tool}: {answer}");
        assert_eq!(answer["structuredContent"]["got"] == words, !is_cut, "{tool}: {answer}");
    }
}
