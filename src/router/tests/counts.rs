//! Counters of requests by server, method, and outcome; and how much of the requests' time mcp-host itself takes. On a
//! paused clock, on which mcp-host takes no time.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::support::*;
use crate::answered::{End, Failed, Kind};
use crate::config::{Fallback, FallbackOn, Metrics, OnLimit, Per, Rate, ToolSettings};
use crate::counts::{Count, Counts, Group};
use crate::observe::{Begun, Ended, Listener, Pending, Wants, is_call};
use crate::protocol::{Method, Profile, ProtocolVersion, Raw, Response};
use crate::router::Client;

const SECOND: Duration = Duration::from_secs(1);

fn legacy(stage: &Stage, profile: Profile) -> Arc<Client> {
    stage.legacy(ProtocolVersion::V2025_11_25, profile)
}

fn counts(stage: &Stage) -> &Counts {
    stage.router.observer().counted()
}

/// Returns how many requests of a group ended at the server, by how they ended.
fn ends(stage: &Stage, server: &str, group: Group) -> Vec<(&'static str, u64)> {
    let of = if server.is_empty() { counts(stage).none().clone() } else { counts(stage).of(server) };
    End::ALL.into_iter().map(|end| (end.word(), of.calls(group, end))).filter(|(_, count)| *count > 0).collect()
}

fn rate_limited_to(tool: &str) -> Fallback {
    Fallback::to(tool).on([FallbackOn::RateLimited])
}

/// Returns how long all calls of tools took together, and how much of that mcp-host itself took, in seconds.
fn times(stage: &Stage) -> (f64, f64) {
    let taken = counts(stage).of("script").durations(Group::ToolsCall).map_or(0.0, |taken| taken.sum);
    (taken, counts(stage).overhead().sum)
}

#[tokio::test(start_paused = true)]
async fn requests_count_for_their_server_with_their_end() {
    let stage = stage_of(|config| {
        let rated = ToolSettings { rate: Some(Rate::new(1, Per::Minute)), ..ToolSettings::default() };
        config.servers[0].tools = std::mem::take(&mut config.servers[0].tools).with("page", rated);
    })
    .await;
    let client = legacy(&stage, Profile::EMPTY);
    for method in [Method::Ping, Method::ToolsList] {
        request(&stage.router, &client, method, &json!({})).answer().await;
    }
    stage.answer(&client, &call("echo")).await;
    stage.answer(&client, &json!({ "arguments": {} })).await;
    stage.answer(&client, &call("nothing")).await;
    let held = stage.call(&client, &call("held"));
    stage.until(|script| script.begun.load(Ordering::SeqCst) == 2).await;
    held.drop().await;
    stage.answer(&client, &call("page")).await;
    assert_eq!(stage.answer(&client, &call("page")).await["isError"], true);
    assert_eq!(
        ends(&stage, "script", Group::ToolsCall),
        [("ok", 2), ("error", 1), ("host_error", 1), ("cancelled", 1)],
        "the server answers a call of a tool that no list has"
    );
    assert_eq!(ends(&stage, "", Group::ToolsCall), [("error", 1)], "it names no tool");
    assert_eq!((ends(&stage, "", Group::List), ends(&stage, "", Group::Other)), (vec![("ok", 1)], vec![("ok", 1)]));
    let script = counts(&stage).of("script");
    assert_eq!((script.failures(Kind::RateLimited), script.failures(Kind::Timeout)), (1, 0));
    assert_eq!(script.read(Count::RequestBytes), 30 + 33 + 30 + 30 + 30);
    assert!(script.read(Count::ResponseBytes) > 0);
    // Two results; errors are none.
    assert!(script.results() > 0 && script.results() < script.read(Count::ResponseBytes));
    assert_eq!((script.results_in("all", false), script.results_in("other", false)), (script.results(), 0));
}

#[tokio::test(start_paused = true)]
async fn the_parts_of_each_call_add_up() {
    let stage = stage_of(|config| {
        config.servers[0].max_concurrent = 1;
        config.host.rates.server = Some(Rate { on_limit: OnLimit::Wait, ..Rate::new(600, Per::Minute) });
    })
    .await;
    let client = legacy(&stage, Profile::ELICITATION_FORM);
    stage.answer(&client, &call("echo")).await;
    assert_eq!(times(&stage), (0.0, 0.0));

    // The server works for 5 s, and another call waits for its slot meanwhile.
    let held = stage.call(&client, &call("held"));
    stage.until(|script| script.begun.load(Ordering::SeqCst) == 2).await;
    let waits = stage.call(&client, &call("echo"));
    sleep(5 * SECOND).await;
    stage.script.release.notify_one();
    held.answer().await;
    waits.answer().await;
    assert_eq!(times(&stage), (10.0, 0.0));
    let queue = counts(&stage).of("script").queue().unwrap();
    assert_eq!((queue.count(), queue.sum), (3, 5.0), "each call takes a slot; one waited for it");

    // A person takes 7 s to answer.
    let asks = stage.call(&client, &call("ask"));
    let question = asks.question().await;
    sleep(7 * SECOND).await;
    client.answer(Response { id: Some(question.id), outcome: Ok(Raw::trusted(r#"{"action":"accept"}"#.into())) });
    asks.answer().await;
    assert_eq!(times(&stage), (17.0, 0.0));
    assert_eq!(counts(&stage).of("script").read(Count::ElicitationAnswered), 1);

    // A client without a session is asked by a result, and its call is parked until it comes back.
    let modern = stage.modern(FORM);
    let first = stage.answer(&modern, &call("ask")).await;
    assert_eq!(first["resultType"], "input_required");
    sleep(3 * SECOND).await;
    let key = first["inputRequests"].as_object().unwrap().keys().next().unwrap().clone();
    let again = retry(&call("ask"), &first, &json!({ key: { "action": "accept" } }));
    stage.answer(&modern, &again).await;
    assert_eq!(times(&stage), (17.025, 0.0), "questions are gathered for 25 ms, and nobody waits in between");
    assert_eq!(counts(&stage).overhead().count(), 6);
    assert_eq!(ends(&stage, "script", Group::ToolsCall), [("ok", 5), ("input_required", 1)],);
}

#[tokio::test(start_paused = true)]
async fn calls_that_are_over_a_rate_or_get_a_kept_answer_are_counted_as_such() {
    let stage = stage_of(|config| {
        let kept = ToolSettings { cache: Some(60 * SECOND), ..ToolSettings::default() };
        let rated = ToolSettings { rate: Some(Rate::new(1, Per::Minute)), ..ToolSettings::default() };
        let tools = std::mem::take(&mut config.servers[0].tools);
        config.servers[0].tools = tools.with("echo", kept.clone()).with("held", kept).with("page", rated);
    })
    .await;
    let client = legacy(&stage, Profile::EMPTY);
    request(&stage.router, &client, Method::ToolsList, &json!({})).answer().await;
    sleep(SECOND).await;
    for _ in 0..3 {
        stage.answer(&client, &call("echo")).await;
    }
    let (one, other) = (stage.call(&client, &call("held")), stage.call(&client, &call("held")));
    sleep(4 * SECOND).await;
    stage.script.release.notify_waiters();
    one.answer().await;
    other.answer().await;
    let script = counts(&stage).of("script");
    let seen = [Count::CacheHit, Count::CacheMiss, Count::CacheJoined].map(|count| script.read(count));
    assert_eq!(seen, [2, 2, 1]);
    assert_eq!(times(&stage), (8.0, 0.0), "whoever waits for the answer of another call is not in the host either");
    stage.answer(&client, &call("page")).await;
    stage.answer(&client, &call("page")).await;
    assert_eq!(script.failures(Kind::RateLimited), 1);
}

#[tokio::test(start_paused = true)]
async fn both_calls_of_a_fallback_are_counted() {
    let stage = stage_of(|config| {
        let settings = ToolSettings { fallback: Some(rate_limited_to("echo")), ..ToolSettings::default() };
        let settings = ToolSettings { rate: Some(Rate::new(1, Per::Minute)), ..settings };
        let tools = std::mem::take(&mut config.servers[0].tools);
        config.servers[0].tools = tools.with("visit", settings);
    })
    .await;
    let client = legacy(&stage, Profile::EMPTY);
    stage.answer(&client, &call("visit")).await;
    let answered = stage.answer(&client, &call("visit")).await;
    assert_eq!(answered["_meta"]["mcp-host/fallback"]["to"], "echo");
    assert_eq!(ends(&stage, "script", Group::ToolsCall), [("ok", 1), ("error", 1), ("host_error", 1)]);
    assert_eq!(stage.router.observer().counts(), [1, 1, 0, 0], "its client made two calls");
}

#[tokio::test(start_paused = true)]
async fn only_tools_that_the_config_names_are_counted_one_by_one() {
    let stage = stage_of(|config| config.host.metrics = Metrics::default().tools(["e*", "hidden"])).await;
    let client = legacy(&stage, Profile::EMPTY);
    request(&stage.router, &client, Method::ToolsList, &json!({})).answer().await;
    for name in ["echo", "echo", "page", "enothing"] {
        stage.answer(&client, &call(name)).await;
    }
    let tools = counts(&stage).of("script").tools();
    let seen: Vec<(&str, u64)> =
        tools.iter().map(|(name, of)| (&**name, End::ALL.iter().map(|end| of.calls(*end)).sum())).collect();
    assert_eq!(seen, [("_other", 1), ("echo", 2)]);
    let answer: Value = stage.answer(&client, &call("echo")).await;
    assert!(answer["isError"].is_null());
}

/// What a listener such as the audit hears: how often requests ended, by server, group of methods, and end.
#[derive(Clone, Debug, Default)]
struct Ear(Arc<Mutex<Table>>);

type Table = BTreeMap<(String, &'static str, &'static str), u64>;

#[derive(Debug)]
struct Open(Ear, Group);

impl Listener for Ear {
    fn wants(&self, method: &Method) -> Wants {
        Wants::whole_if(is_call(method))
    }

    fn begin(&self, call: &Begun<'_>) -> Result<Box<dyn Pending>, Failed> {
        Ok(Box::new(Open(self.clone(), Group::of(call.method))))
    }

    fn finish(&self) -> BoxFuture<'_, ()> {
        async {}.boxed()
    }
}

impl Pending for Open {
    fn end(self: Box<Self>, ended: &Ended<'_>) {
        let Self(ear, group) = *self;
        let server = ended.at.map(|at| at.server.to_string()).unwrap_or_default();
        *ear.0.lock().unwrap().entry((server, group.word(), ended.end.word())).or_default() += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn calls_are_as_many_as_an_audit_would_have_lines() {
    let stage = stage_of(|config| {
        let settings = ToolSettings { fallback: Some(rate_limited_to("echo")), ..ToolSettings::default() };
        let settings = ToolSettings { rate: Some(Rate::new(30, Per::Minute)), ..settings };
        config.servers[0].tools = std::mem::take(&mut config.servers[0].tools).with("visit", settings);
        config.host.limits.pending_per_server = 4;
    })
    .await;
    let ear = Ear::default();
    stage.router.observer().tell(vec![Arc::new(ear.clone())]);
    let (client, modern) = (legacy(&stage, Profile::EMPTY), stage.modern(FORM));
    for round in 0..100 {
        let held: Vec<_> = (0..6).map(|_| stage.call(&client, &call("held"))).collect();
        sleep(SECOND).await;
        stage.answer(&modern, &call("ask")).await;
        for (at, call) in held.into_iter().enumerate() {
            if at % 2 == 0 { call.drop().await } else { stage.script.release.notify_one() }
        }
        sleep(SECOND).await;
        stage.answer(&client, &call(["echo", "nothing", "visit", "straggler"][round % 4])).await;
        let read = request(&stage.router, &client, Method::ResourcesRead, &json!({ "uri": "x://y" }));
        if round % 2 == 0 { read.drop().await } else { drop(read.answer().await) }
    }
    stage.script.release.notify_waiters();
    sleep(SECOND).await;
    let mut counted = Table::new();
    for server in ["", "script"] {
        let groups = Group::ALL.into_iter().filter(|group| *group != Group::List);
        for (group, (end, count)) in
            groups.flat_map(|group| ends(&stage, server, group).into_iter().map(move |of| (group, of)))
        {
            counted.insert((server.to_owned(), group.word(), end), count);
        }
    }
    let heard = ear.0.lock().unwrap().clone();
    assert_eq!(counted, heard);
    assert!(heard.len() >= 6, "{heard:?}");
}
