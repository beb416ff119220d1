//! Behavior at and beyond limits, and the form of our own errors (`docs/bridging.md` 14). On a paused clock.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::far::told;
use super::news::router_within;
use super::support::*;
use crate::config::{Config, Prefix, Server, Sharing, Stdio, Transport};
use crate::in_process::InProcess;
use crate::manager::{Manager, Principal};
use crate::protocol::{Message, Method, Profile, ProtocolVersion, Raw, Request, RequestId, Response};
use crate::router::{Client, Router};
use crate::upstream::Starter;

const LITTLE: Duration = Duration::from_millis(1);

fn legacy(stage: &Stage) -> Arc<Client> {
    stage.legacy(ProtocolVersion::V2025_11_25, Profile::EMPTY)
}

/// Returns the details of an error of ours.
fn details(answer: &Value) -> &Value {
    let place = if answer["isError"] == true { "_meta" } else { "data" };
    &answer[place]["mcp-host/error"]
}

fn overloaded(server: Option<&str>) -> Value {
    json!({ "server": server, "kind": "overloaded", "sent": false, "retryable": true })
}

/// Makes calls that are held, and returns those that reach the server, and the responses of the others.
async fn held(stage: &Stage, clients: &[&Arc<Client>]) -> (Vec<Running>, Vec<Value>) {
    let (mut running, mut refused) = (Vec::new(), Vec::new());
    for client in clients {
        let before = stage.script.begun.load(Ordering::SeqCst);
        let call = stage.call(client, &call("held"));
        while !call.is_over() && stage.script.begun.load(Ordering::SeqCst) == before {
            tokio::task::yield_now().await;
        }
        if call.is_over() { refused.push(call.whole_answer().await) } else { running.push(call) }
    }
    (running, refused)
}

/// Withdraws calls.
async fn end(running: impl IntoIterator<Item = Running>) {
    for call in running {
        call.drop().await;
    }
    tokio::time::sleep(LITTLE).await;
}

#[tokio::test(start_paused = true)]
async fn limit_pending_of_all_clients() {
    let stage = stage_with(|limits| limits.pending = 3).await;
    let (one, other) = (legacy(&stage), legacy(&stage));
    stage.answer(&one, &call("echo")).await;
    let (running, refused) = held(&stage, &[&one, &other]).await;
    assert_eq!((running.len(), refused.len()), (2, 0));
    assert!(!stage.router.clients().is_full());
    let (third, _) = held(&stage, &[&one]).await;
    assert!(stage.router.clients().is_full(), "the door turns requests away from here on");
    let (none, refused) = held(&stage, &[&other]).await;
    assert_eq!((third.len(), none.len()), (1, 0));
    assert_eq!(*details(&refused[0]), overloaded(None));
    let list = request(&stage.router, &other, Method::ToolsList, &json!({})).whole_answer().await;
    assert_eq!((&list["error"], details(&list)), (&json!(-32603), &overloaded(None)));
    end(running.into_iter().chain(third)).await;
    assert_eq!(stage.answer(&other, &call("echo")).await["isError"], Value::Null);
}

#[tokio::test(start_paused = true)]
async fn h101_nobody_has_more_than_half_of_all_requests_where_others_are() {
    let stage = stage_with(|limits| limits.pending = 4).await;
    let of =
        |name: &str| stage.router.admit(Principal::named(name), ProtocolVersion::V2025_11_25, Profile::EMPTY, None);
    // Two sessions of one principal, and another principal that has asked nothing yet.
    let (greedy, again, other) = (of("greedy"), of("greedy"), of("other"));
    let (running, refused) = held(&stage, &[&greedy, &again, &greedy, &again]).await;
    assert_eq!((running.len(), refused.len()), (2, 2));
    assert!(text(&refused[0]).contains("half of host.limits.pending"), "{}", refused[0]);
    assert_eq!(*details(&refused[0]), overloaded(None));
    let (theirs, none) = held(&stage, &[&other, &other]).await;
    assert_eq!((theirs.len(), none.len()), (2, 0));
    end(running.into_iter().chain(theirs)).await;
}

#[tokio::test(start_paused = true)]
async fn limit_pending_per_client() {
    let stage = stage_with(|limits| limits.pending_per_client = 2).await;
    let (one, other) = (legacy(&stage), legacy(&stage));
    let (running, refused) = held(&stage, &[&one, &one, &one, &other]).await;
    assert_eq!((running.len(), refused.len()), (3, 1));
    assert_eq!(*details(&refused[0]), overloaded(None));
}

#[tokio::test(start_paused = true)]
async fn limit_pending_per_server_and_h51_half_of_it_where_others_are() {
    let stage = stage_with(|limits| limits.pending_per_server = 4).await;
    let one = legacy(&stage);
    let (running, refused) = held(&stage, &[&one; 5]).await;
    assert_eq!((running.len(), refused.len()), (4, 1), "alone it may have all");
    assert_eq!(*details(&refused[0]), overloaded(Some("script")));
    end(running).await;
    let other = legacy(&stage);
    stage.answer(&other, &call("echo")).await;
    let (running, refused) = held(&stage, &[&one, &one, &one, &other, &other, &other]).await;
    assert_eq!((running.len(), refused.len()), (4, 2), "half for each");
    assert!(text(&refused[0]).contains("others use it"), "{}", refused[0]);
    assert_eq!(*details(&refused[0]), overloaded(Some("script")));
    stage.router.clients().close(&other);
    end(running).await;
    let (running, _) = held(&stage, &[&one; 5]).await;
    assert_eq!(running.len(), 4, "alone again");
}

#[tokio::test(start_paused = true)]
async fn limit_max_concurrent_and_queue_timeout() {
    let stage = stage_of(|config| {
        config.servers[0].max_concurrent = 2;
        config.servers[0].queue_timeout = Duration::from_secs(5);
    })
    .await;
    let (one, other) = (legacy(&stage), legacy(&stage));
    let (running, _) = held(&stage, &[&one, &one]).await;
    let begun = Instant::now();
    let late = stage.call(&one, &call("echo")).whole_answer().await;
    assert_eq!((*details(&late)).clone(), overloaded(Some("script")));
    assert_eq!(begun.elapsed().as_secs(), 5);
    // The next free slot goes to the other client, though the first one asked earlier.
    let first = stage.call(&one, &call("held"));
    stage.until(|_| stage.router.meter().gauges().queued == 1).await;
    let second = stage.call(&other, &call("echo"));
    stage.until(|_| stage.router.meter().gauges().queued == 2).await;
    assert_eq!(stage.router.meter().gauges().slots, 2);
    stage.script.release.notify_one();
    assert_eq!(second.whole_answer().await["isError"], Value::Null);
    end(running.into_iter().chain([first])).await;
    assert_eq!(stage.router.meter().gauges().slots, 0);
}

#[tokio::test(start_paused = true)]
async fn limit_leases_in_all_and_per_server() {
    for (change, name) in [
        ((|config: &mut Config| config.host.limits.leases = 2) as fn(&mut Config), "host.limits.leases)"),
        (|config: &mut Config| config.host.limits.leases_per_server = 2, "host.limits.leasesPerServer)"),
    ] {
        let stage = stage_of(|config| {
            config.servers[0].sharing = Sharing::Session;
            change(config);
        })
        .await;
        let clients = [legacy(&stage), legacy(&stage), legacy(&stage)];
        // The second one takes the place of the lease that listed, once that is a second old.
        for client in &clients[..2] {
            assert_eq!(stage.answer(client, &call("echo")).await["isError"], Value::Null);
        }
        let (running, refused) = held(&stage, &[&clients[0], &clients[1]]).await;
        assert_eq!((running.len(), refused.len()), (2, 0), "two may be");
        assert_eq!(stage.router.meter().gauges().leases, 2);
        let (_, refused) = held(&stage, &[&clients[2]]).await;
        assert_eq!(*details(&refused[0]), overloaded(Some("script")));
        assert!(text(&refused[0]).contains(name), "{}", refused[0]);
        end(running).await;
        assert_eq!(stage.answer(&clients[2], &call("echo")).await["isError"], Value::Null, "an idle one makes room");
        assert_eq!(stage.router.meter().gauges().leases, 2);
    }
}

#[tokio::test(start_paused = true)]
async fn limit_leases_of_one_server_make_room_for_another() {
    let stage = stage_of(|config| {
        let mut second = config.servers[0].clone();
        second.name = "second".to_owned();
        second.alias = Server::new("second", Transport::Stdio(Stdio::default())).unwrap().alias;
        second.start = crate::config::Start::Lazy;
        config.servers.push(second);
        config.host.limits.leases = 1;
    })
    .await;
    let client = legacy(&stage);
    assert_eq!(stage.answer(&client, &call("echo")).await["isError"], Value::Null);
    assert_eq!(stage.router.meter().gauges().leases, 1);
}

/// Makes calls whose server says nothing, or only reports progress.
async fn clocks(config: impl FnOnce(&mut Server)) -> (Router, Arc<Client>) {
    let tool = |name: &str| Raw::from_value(&json!({ "name": name, "inputSchema": { "type": "object" } }));
    let server = InProcess::new("slow", "1")
        .tool(tool("silent"), |invocation| {
            async move {
                let wait: u64 = invocation.arguments.text("ms").unwrap().parse().unwrap();
                tokio::time::sleep(Duration::from_millis(wait)).await;
                Ok(Raw::from_value(&json!({ "content": [] })))
            }
            .boxed()
        })
        .tool(tool("busy"), |invocation| {
            async move {
                for step in 1.. {
                    tokio::time::sleep(Duration::from_secs(9)).await;
                    invocation.progress(f64::from(step), None, "on it").await;
                }
                Ok(Raw::empty_object())
            }
            .boxed()
        });
    let server = crate::in_process::Running::new(server);
    let mut entry = Server::new("slow", Transport::Stdio(Stdio::default())).unwrap();
    entry.prefix = Prefix::Never;
    config(&mut entry);
    router_over(entry, Arc::new(move |wire, tasks| server.start(wire, tasks)))
}

fn router_over(entry: Server, start: Starter) -> (Router, Arc<Client>) {
    let mut config = Config::default();
    let memory = HashMap::from([(entry.name.clone(), start)]);
    config.servers.push(entry);
    let info = Raw::from_value(&json!({ "name": "test", "version": "0" }));
    let (manager, news) = Manager::start(config, &memory, info.clone(), None, Default::default());
    let router = Router::start(manager, news, info);
    let client = router.admit(Principal::local(), ProtocolVersion::V2025_11_25, Profile::EMPTY, None);
    (router, client)
}

#[tokio::test(start_paused = true)]
async fn limit_call_timeout_and_max_call_time() {
    let (idle, whole) = (Duration::from_secs(10), Duration::from_secs(100));
    let (router, client) = clocks(|entry| (entry.call_timeout, entry.max_call_time) = (idle, whole)).await;
    let silent = async |time: Duration| {
        let call = json!({ "name": "silent", "arguments": { "ms": time.as_millis().to_string() } });
        run(&router, &client, &call).whole_answer().await
    };
    let timeout = json!({ "server": "slow", "kind": "timeout", "sent": true, "retryable": false });
    assert_eq!(silent(idle - LITTLE).await["isError"], Value::Null);
    // At the limit itself, either may come first.
    silent(idle).await;
    let late = silent(idle + LITTLE).await;
    assert_eq!(*details(&late), timeout);
    assert!(text(&late).contains("callTimeout"), "{late}");
    let begun = Instant::now();
    let late = run(&router, &client, &call("busy")).whole_answer().await;
    assert_eq!(*details(&late), timeout);
    assert!(text(&late).contains("maxCallTime"), "{late}");
    assert_eq!(begun.elapsed().as_secs(), whole.as_secs(), "progress puts off the one, not the other");
}

#[tokio::test(start_paused = true)]
async fn limit_answer_of_a_person_stops_both_clocks() {
    for (over, wanted) in [(false, "accept"), (true, "cancel")] {
        let stage = stage_of(|config| {
            config.servers[0].call_timeout = Duration::from_secs(10);
            config.servers[0].max_call_time = Duration::from_secs(20);
        })
        .await;
        let profile = Profile::from_capabilities(Raw::from_value(&json!({ "elicitation": {} })).as_value());
        let client = stage.legacy(ProtocolVersion::V2025_11_25, profile);
        let call = stage.call(&client, &call("ask"));
        let question = call.question().await;
        let patience = stage.router.limits().answer;
        tokio::time::sleep(if over { patience + LITTLE } else { patience - LITTLE }).await;
        let outcome = Ok(Raw::from_value(&json!({ "action": "accept", "content": {} })));
        client.answer(Response { id: Some(question.id), outcome });
        let answer = call.whole_answer().await;
        assert!(text(&answer).contains(wanted), "{answer}");
    }
}

/// A server that is lost after its first list and never returns.
fn gone_for_good(dead: watch::Receiver<bool>) -> (Router, Arc<Client>) {
    let first = Mutex::new(Some(dead));
    let start: Starter = Arc::new(move |mut wire, tasks| {
        let Some(mut dead) = first.lock().unwrap().take() else {
            tasks.spawn(async move { while wire.input.recv().await.is_some() {} });
            return;
        };
        tasks.spawn(async move {
            loop {
                let message = tokio::select! {
                    _ = dead.wait_for(|dead| *dead) => break,
                    message = wire.input.recv() => message,
                };
                if let Some(Message::Request(request)) = message {
                    let outcome = Ok(Raw::from_value(&told(request.method.as_str()).unwrap()));
                    let answer = Message::Response(Response { id: Some(request.id), outcome });
                    wire.out.send((None, answer)).await.unwrap_or_else(|_| panic!("open"));
                }
            }
        });
    });
    let mut entry = Server::new("far", Transport::Stdio(Stdio::default())).unwrap();
    entry.era = crate::config::Era::Legacy;
    // It is not given up earlier.
    entry.restart.max_retries = 1000;
    router_over(entry, start)
}

#[tokio::test(start_paused = true)]
async fn limit_stale_max_ends_what_a_lost_server_listed() {
    let (kill, dead) = watch::channel(false);
    let (router, client) = gone_for_good(dead);
    let listed = async || {
        let list = request(&router, &client, Method::ToolsList, &json!({})).whole_answer().await;
        list["tools"].as_array().unwrap().len()
    };
    assert_eq!(listed().await, 2);
    kill.send(true).unwrap();
    tokio::time::sleep(LITTLE).await;
    let (died, stale) = (Instant::now(), router.limits().stale_max);
    assert_eq!(listed().await, 2);
    while client.mailbox().try_next().is_some() {}
    tokio::time::sleep_until(died + stale - 2 * LITTLE).await;
    assert_eq!(listed().await, 2);
    tokio::time::sleep_until(died + stale + LITTLE).await;
    // The client that does not ask is told, too.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let mut told = Vec::new();
    while let Some(Message::Notification(notice)) = client.mailbox().try_next() {
        told.push(notice.method);
    }
    assert!(told.contains(&Method::ToolsListChanged), "{told:?}");
    assert_eq!(listed().await, 0);
}

/// A machine that sleeps ends no call, and one that is awake does.
#[tokio::test(start_paused = true)]
async fn h59_calls_that_slept_with_us_go_on() {
    let stage = stage().await;
    let client = legacy(&stage);
    let (running, _) = held(&stage, &[&client, &client]).await;
    let mut running = running.into_iter();
    let (first, second) = (running.next().unwrap(), running.next().unwrap());
    tokio::time::advance(Duration::from_secs(8 * 3600)).await;
    tokio::time::sleep(Duration::from_secs(50)).await;
    stage.script.release.notify_one();
    let answer = first.whole_answer().await;
    assert_eq!(answer["content"][0]["text"], "held", "{answer}");
    let late = second.whole_answer().await;
    assert_eq!(details(&late)["kind"], "timeout", "its own time goes on: {late}");
}

/// A server that keeps coming back, but takes no more requests once it has listed.
#[tokio::test(start_paused = true)]
async fn h57_what_never_leaves_is_not_sent_after_its_deadline() {
    let (kill, dead) = watch::channel(false);
    let start: Starter = Arc::new(move |mut wire, tasks| {
        let mut dead = dead.clone();
        tasks.spawn(async move {
            for _ in 0..6 {
                let Some(message) = wire.input.recv().await else { return };
                let Message::Request(request) = message else { continue };
                let outcome = Ok(Raw::from_value(&told(request.method.as_str()).unwrap()));
                let answer = Message::Response(Response { id: Some(request.id), outcome });
                let _ = wire.out.send((None, answer)).await;
            }
            // The end of its output is noticed a little later.
            let _ = dead.wait_for(|dead| *dead).await;
            drop(wire.input);
            tokio::time::sleep(100 * LITTLE).await;
        });
    });
    let mut entry = Server::new("far", Transport::Stdio(Stdio::default())).unwrap();
    entry.era = crate::config::Era::Legacy;
    entry.prefix = Prefix::Never;
    entry.call_timeout = Duration::from_secs(10);
    (entry.restart.max_retries, entry.restart.min_delay) = (1000, LITTLE);
    entry.restart.max_delay = LITTLE;
    let (router, client) = router_over(entry, start);
    request(&router, &client, Method::ToolsList, &json!({})).whole_answer().await;
    kill.send(true).unwrap();
    tokio::time::sleep(LITTLE).await;
    let begun = Instant::now();
    let called = run(&router, &client, &call("go")).whole_answer();
    let answer = tokio::time::timeout(Duration::from_secs(60), called).await.expect("it is sent forever");
    let unavailable = json!({ "server": "far", "kind": "unavailable", "sent": false, "retryable": true });
    assert_eq!(*details(&answer), unavailable, "{answer}");
    assert!((9..=16).contains(&begun.elapsed().as_secs()), "{:?}", begun.elapsed());
    assert!(router.manager().status()[0].restarts > 10);
}

#[tokio::test(start_paused = true)]
async fn limit_parked() {
    let stage = stage_with(|limits| limits.parked = 2).await;
    let client = stage.modern(FORM);
    for _ in 0..2 {
        assert_eq!(stage.answer(&client, &call("ask")).await["resultType"], "input_required");
    }
    let third = stage.call(&client, &call("ask")).whole_answer().await;
    assert_eq!(*details(&third), overloaded(None), "{third}");
}

/// A silent server: the first client waits for it, later ones do not.
#[tokio::test(start_paused = true)]
async fn h7_the_wait_for_a_server_is_counted_from_its_start_and_not_from_each_list() {
    let start: Starter = Arc::new(|wire, tasks| {
        tasks.spawn(async move {
            let _wire = wire;
            std::future::pending::<()>().await;
        });
    });
    let entry = Server::new("hangs", Transport::Stdio(Stdio::default())).unwrap();
    let (router, client) = router_over(entry, start);
    let took = async |client: &Arc<Client>| {
        let begun = Instant::now();
        let list = request(&router, client, Method::ToolsList, &json!({})).answer().await;
        assert_eq!(list["tools"], json!([]), "{list}");
        begun.elapsed()
    };
    // The default of `startupWait`.
    assert_eq!(took(&client).await.as_secs(), 3);
    let other = router.admit(Principal::local(), ProtocolVersion::V2025_11_25, Profile::EMPTY, None);
    for client in [&other, &client, &other] {
        assert!(took(client).await < 250 * LITTLE, "a later one");
    }
}

/// A host over a server with four resources, `test://0` to `test://3`.
fn with_resources(set: impl FnOnce(&mut crate::config::Limits)) -> (Router, Arc<Client>) {
    let server = (0..4).fold(InProcess::new("it", "1"), |server, number| {
        let resource = json!({ "uri": resource(number), "name": "r" });
        let read = |_| async { Ok(Raw::from_value(&json!({ "contents": [] }))) }.boxed();
        server.resource(Raw::from_value(&resource), read)
    });
    router_within(server, set)
}

#[tokio::test(start_paused = true)]
async fn h102_limit_subscriptions_of_sessions_and_of_streams() {
    let (router, client) = with_resources(|limits| limits.subscriptions = 2);
    let ask = async |method: Method, number: u32| {
        request(&router, &client, method, &json!({ "uri": resource(number) })).whole_answer().await
    };
    for number in [0, 1, 1] {
        assert_eq!(ask(Method::ResourcesSubscribe, number).await, json!({}));
    }
    let refused = ask(Method::ResourcesSubscribe, 2).await;
    assert_eq!(refused["error"], -32602, "{refused}");
    assert!(
        refused["message"].as_str().unwrap().contains("2 resources at most (host.limits.subscriptions)"),
        "{refused}"
    );
    assert_eq!(ask(Method::ResourcesUnsubscribe, 0).await, json!({}));
    assert_eq!(ask(Method::ResourcesSubscribe, 2).await, json!({}));
    // Another client has as many.
    let modern = router.modern(Principal::local(), &Raw::empty_object()).unwrap();
    let closing = CancellationToken::new();
    let listen = |numbers: [u32; 2]| tokio::spawn(listening(&router, &modern, &numbers.map(resource), &closing));
    let (first, second) = (listen([0, 1]), listen([1, 2]));
    let refused = second.await.unwrap().unwrap().unwrap_err();
    assert_eq!(refused.code, -32602, "{refused:?}");
    assert!(refused.message.contains("(host.limits.subscriptions)"), "{refused:?}");
    assert!(!first.is_finished());
    first.abort();
    let _ = first.await;
    let third = listen([1, 2]);
    closing.cancel();
    third.await.unwrap().unwrap().unwrap();
}

fn resource(number: u32) -> String {
    format!("test://{number}")
}

/// Opens a change stream about those resources.
fn listening(
    router: &Router,
    client: &Arc<Client>,
    uris: &[String],
    closing: &CancellationToken,
) -> impl Future<Output = Option<crate::protocol::Outcome>> + use<> {
    let params = Raw::from_value(&json!({ "notifications": { "resourceSubscriptions": uris } }));
    let request = Request { id: RequestId::Number(1), method: Method::Listen, params: Some(params) };
    let (router, leg, closing) = (router.clone(), router.modern_leg(None), closing.clone());
    let client = client.clone();
    async move { router.stateless(&client, request, &leg, &closing).await }
}

#[tokio::test(start_paused = true)]
async fn h102_limit_uri_of_any_request() {
    let (router, client) = with_resources(|limits| limits.uri = 20);
    let text = |length: usize| format!("test://{}", "x".repeat(length - 7));
    let of = |method: Method, length: usize| {
        let uri = text(length);
        match method {
            Method::Complete => {
                json!({ "ref": { "type": "ref/resource", "uri": uri }, "argument": { "name": "a", "value": "" } })
            }
            Method::ToolsList => json!({ "cursor": uri }),
            _ => json!({ "uri": uri }),
        }
    };
    let methods = [Method::ResourcesRead, Method::ResourcesSubscribe, Method::Complete, Method::ToolsList];
    for method in methods {
        let ask =
            async |length| request(&router, &client, method.clone(), &of(method.clone(), length)).whole_answer().await;
        let (at, over) = (ask(20).await, ask(21).await);
        assert_eq!(over["error"], -32602, "{method}: {over}");
        assert!(
            over["message"].as_str().unwrap().contains("has 21 bytes; 20 at most (host.limits.uri)"),
            "{method}: {over}"
        );
        assert!(!at.to_string().contains("limits.uri"), "{method}: {at}");
    }
    let modern = router.modern(Principal::local(), &Raw::empty_object()).unwrap();
    let closing = CancellationToken::new();
    let listen = |length| listening(&router, &modern, &[text(length)], &closing);
    let over = listen(21).await.unwrap().unwrap_err();
    assert!(over.message.contains("has 21 bytes; 20 at most (host.limits.uri)"), "{over:?}");
    closing.cancel();
    listen(20).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn h105_an_error_of_ours_names_others_in_few_characters() {
    let stage = stage().await;
    let client = legacy(&stage);
    let long = format!("a\n\u{202e}{}", "x".repeat(1 << 20));
    let unknown = Method::parse(&long);
    let cases = [
        (Method::ToolsCall, json!({ "name": long })),
        (Method::ToolsCall, json!({ "name": long, "arguments": [] })),
        (Method::ToolsCall, json!({ "name": format!("{long}__tool") })),
        (Method::PromptsGet, json!({ "name": long })),
        (Method::ResourcesRead, json!({ "uri": long })),
        (unknown, json!({})),
    ];
    for (method, params) in cases {
        let answer = request(&stage.router, &client, method, &params).whole_answer().await.to_string();
        assert!(answer.len() < 1024, "{} bytes: {answer:.300}", answer.len());
        assert!(!answer.contains('\u{202e}') && answer.contains("error"), "{answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn h105_a_key_of_an_answer_is_told_in_few_characters() {
    let stage = stage().await;
    let long = format!("a\n\u{202e}{}", "x".repeat(1 << 20));
    let modern = stage.modern(FORM);
    let asked = stage.answer(&modern, &call("ask")).await;
    let answer = stage.answer(&modern, &retry(&call("ask"), &asked, &json!({ &*long: 1 }))).await.to_string();
    assert!(answer.len() < 1024 && answer.contains("is no object"), "{} bytes: {answer:.300}", answer.len());
    assert!(!answer.contains('\u{202e}'), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn h105_a_page_to_visit_is_told_in_few_characters() {
    let stage = stage().await;
    let long = format!("a\n\u{202e}{}", "x".repeat(1 << 20));
    let page = json!({ "name": "page", "arguments": { "url": format!("https://example.com/{long}") } });
    let answer = stage.answer(&legacy(&stage), &page).await;
    assert!(text(&answer).len() < 10 << 10, "{} bytes", text(&answer).len());
    assert!(!text(&answer).contains('\u{202e}') && text(&answer).contains("https://example.com/"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_request_sees_one_config_to_its_end() {
    let stage = stage().await;
    let client = legacy(&stage);
    let refusal = async |leg: &Arc<crate::router::Mailbox>| {
        let params = Some(Raw::from_value(&json!({ "uri": "file:///a/b" })));
        let request = Request { id: RequestId::Number(1), method: Method::ResourcesRead, params };
        stage.router.request(&client, request, leg).await.unwrap().unwrap_err().message
    };
    let before = client.leg(stage.router.limits());
    stage.router.manager().configure(|settings| settings.limits.uri = 10);
    assert!(!refusal(&before).await.contains("host.limits.uri"), "it came before that limit did");
    assert!(refusal(&client.leg(stage.router.limits())).await.contains("11 bytes; 10 at most (host.limits.uri)"));
}
