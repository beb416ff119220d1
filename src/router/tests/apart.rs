//! What belongs to one client stays with it (`docs/bridging.md` 15.1, 15.5): the lists of its server after its call,
//! its roots, the leases of clients that are gone. On a paused clock.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};

use super::sharing::{FORM, GONE, Person, ROOTS, World, world, world_of};
use super::support::request;
use crate::config::{Config, Roots, Secret, Server, Sharing, Stdio, Transport};
use crate::in_process::{InProcess, Running as Runs};
use crate::manager::{Asked, Principal};
use crate::protocol::{Method, Notification, Profile, ProtocolVersion, Raw};
use crate::registry::Kind;
use crate::upstream::{Item, Starter, Terms};

/// By then, changed lists are read again and announced.
const LISTED: Duration = Duration::from_secs(10);

/// Tool `echo`; `make` adds one more, named after the first root if there is one.
fn making(number: Arc<AtomicUsize>) -> Starter {
    Arc::new(move |wire, tasks| {
        let start = number.fetch_add(1, Ordering::SeqCst);
        wire.mute.store(true, Ordering::Relaxed);
        let text = move || Ok(Raw::from_value(&json!({ "content": [{ "type": "text", "text": start.to_string() }] })));
        let define = |name: &str| Raw::from_value(&json!({ "name": name, "inputSchema": { "type": "object" } }));
        let server = InProcess::new("script", &"9".repeat(5000));
        let server = server.tool(define("echo"), move |_| async move { text() }.boxed());
        let server = server.tool(define("make"), move |invocation| {
            async move {
                let told = invocation.request(Method::RootsList, None).await.ok();
                let told: Value = told.map_or(Value::Null, |told| told.read().unwrap());
                let name = told["roots"][0]["uri"].as_str().map_or("made", |uri| uri.trim_start_matches("file:///"));
                invocation.offer(Kind::Tools, define(name), move |_| async move { text() }.boxed()).await;
                text()
            }
            .boxed()
        });
        Runs::new(server).start(wire, tasks);
    })
}

async fn listed(world: &World, person: &Person) -> Vec<String> {
    let list = request(&world.router, &person.client, Method::ToolsList, &json!({})).answer().await;
    let names = list["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap().to_owned());
    names.collect()
}

#[tokio::test(start_paused = true)]
async fn what_a_clients_own_server_lists_after_its_call_is_shown_to_no_other() {
    let world = world_of(&[Asked::NOTHING], |entry| entry.sharing = Sharing::Session, making);
    let (one, two) = (world.person(FORM, ""), world.person(FORM, ""));
    assert_eq!(world.call(&one, 0, "echo").await, "1");
    assert_eq!(world.call(&one, 0, "make").await, "1");
    tokio::time::sleep(LISTED).await;
    assert_eq!(listed(&world, &one).await, ["s0__echo", "s0__make", "s0__made"]);
    assert_eq!(listed(&world, &two).await, ["s0__echo", "s0__make"]);
    tokio::time::sleep(LISTED).await;
    assert_eq!(listed(&world, &two).await, ["s0__echo", "s0__make"]);
    world.router.clients().close(&one.client);
    let three = world.person(FORM, "");
    assert_eq!(listed(&world, &three).await, ["s0__echo", "s0__make"]);
}

#[tokio::test(start_paused = true)]
async fn who_only_lists_is_shown_nothing_of_the_roots_of_who_calls() {
    let world = world_of(&[Asked::NOTHING], |_| {}, making);
    let (one, two) = (world.person(ROOTS, "file:///a"), world.person(ROOTS, "file:///b"));
    assert_eq!(listed(&world, &two).await, ["s0__echo", "s0__make"]);
    tokio::time::sleep(LISTED).await;
    assert_eq!(world.call(&one, 0, "make").await, "0");
    tokio::time::sleep(LISTED).await;
    assert_eq!(listed(&world, &one).await, ["s0__echo", "s0__make", "s0__a"]);
    assert_eq!(listed(&world, &two).await, ["s0__echo", "s0__make"]);
}

/// The client has its lease, and waits for something else before its call is sent.
#[tokio::test(start_paused = true)]
async fn a_call_that_waits_goes_elsewhere_once_its_server_was_told_the_roots_of_another_client() {
    let world = world_of(&[Asked::NOTHING], |_| {}, making);
    let (one, two) = (world.person(ROOTS, "file:///a"), world.person(ROOTS, "file:///b"));
    let manager = world.router.manager();
    let server = manager.servers()[0].clone();
    assert_eq!(world.call(&one, 0, "echo").await, "0");
    let who = two.client.who_now();
    let upstream = manager.lease(&server, &who).unwrap();
    let turn = Some(upstream.turn());
    assert!(manager.suits(&server, &upstream, &who));
    assert_eq!(world.call(&one, 0, "make").await, "0");
    assert!(!manager.suits(&server, &upstream, &who), "its server works in the roots of another client");
    // Nor if the roots arrive between the check and the call.
    let connection = upstream.connection().unwrap();
    let terms = Terms { owner: who.owner, turn, ..Terms::host() };
    let params = Raw::from_value(&json!({ "name": "echo", "arguments": {} }));
    let mut exchange = connection.open(connection.next_id(), &Method::ToolsCall, Some(&params), &terms);
    assert!(matches!(exchange.next().await, Item::Lost(crate::transport::Error::Unwritten)));
    let elsewhere = manager.lease(&server, &who).unwrap();
    assert_ne!(elsewhere.id, upstream.id);
    assert_eq!(world.call(&one, 0, "echo").await, "0");
    assert_ne!(world.call(&two, 0, "echo").await, "0");
}

#[tokio::test(start_paused = true)]
async fn no_lease_is_taken_for_a_client_that_goes_while_it_is_asked_for_roots() {
    let world = world(&[Asked::ROOTS.with(Asked::ELICITATION)], |_| {});
    let client = world.router.admit(Principal::local(), ProtocolVersion::V2025_11_25, ROOTS.with(FORM), None);
    let params = json!({ "name": "s0__echo", "arguments": {} });
    request(&world.router, &client, Method::ToolsList, &json!({})).answer().await;
    let before = world.leases();
    let running = request(&world.router, &client, Method::ToolsCall, &params);
    while client.questions() == 0 {
        tokio::task::yield_now().await;
    }
    world.router.clients().close(&client);
    let answer = running.answer().await;
    assert!(answer.is_null() || answer["isError"] == true, "{answer}");
    tokio::time::sleep(GONE).await;
    assert_eq!((before, world.leases()), (1, 1), "none is its own");
}

#[tokio::test(start_paused = true)]
async fn who_only_lists_keeps_no_process_that_declares_too_much() {
    let world = world(&[Asked::NOTHING], |_| {});
    let (lists, one, two) =
        (world.person(Profile::EMPTY, ""), world.person(FORM, ""), world.person(Profile::EMPTY, ""));
    for person in [&lists, &one] {
        request(&world.router, &person.client, Method::ToolsList, &json!({})).answer().await;
    }
    tokio::time::sleep(LISTED).await;
    for person in [&one, &two] {
        assert_eq!(world.call(person, 0, "echo").await, "0 {}");
    }
    let said = world.call(&one, 0, "ask").await;
    assert!(said.starts_with("0 "), "{said}");
    for person in [&one, &two] {
        assert!(!world.call(person, 0, "echo").await.starts_with("0 "), "it moves");
    }
    tokio::time::sleep(GONE).await;
    assert_eq!(world.leases(), 2, "one is for one client, one for all others");
    world.router.clients().close(&one.client);
    tokio::time::sleep(GONE).await;
    assert_eq!(world.leases(), 1);
}

#[tokio::test(start_paused = true)]
async fn roots_that_the_config_tells_make_a_lease_nobodys_own() {
    let world = world(&[Asked::NOTHING], |entry| entry.roots = Roots::Fixed(vec!["file:///x".to_owned()]));
    let (one, two) = (world.person(ROOTS, "file:///a"), world.person(ROOTS, "file:///b"));
    for person in [&one, &two, &one] {
        let said = world.call(person, 0, "roots").await;
        assert!(said.starts_with("0 ") && said.contains("file:///x"), "{said}");
    }
    assert_eq!((world.leases(), world.starts(0)), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_says_again_and_again_that_its_roots_have_changed_is_asked_once() {
    let world = world(&[Asked::ROOTS], |_| {});
    let one = world.person(ROOTS, "file:///a");
    assert!(world.call(&one, 0, "roots").await.contains("file:///a"));
    for _ in 0..50 {
        world.router.notify(&one.client, Notification { method: Method::RootsListChanged, params: None });
    }
    tokio::time::sleep(LISTED).await;
    assert_eq!(one.asked_for_roots.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_version_is_kept_as_far_as_it_is_one() {
    let world = world_of(&[Asked::NOTHING], |_| {}, making);
    let one = world.person(ROOTS, "file:///a");
    assert_eq!(world.call(&one, 0, "echo").await, "0");
    let upstream = world.router.manager().servers()[0].upstreams().remove(0);
    let version = upstream.connection().unwrap().server_version().unwrap();
    assert_eq!(version.len(), 200);
}

#[tokio::test(start_paused = true)]
async fn another_lists_once_the_lease_that_did_is_one_clients() {
    let world = world(&[Asked::NOTHING], |_| {});
    let one = world.person(FORM, "");
    assert!(world.call(&one, 0, "ask").await.starts_with("0 "));
    assert!(world.call(&one, 0, "echo").await.starts_with("0 "));
    tokio::time::sleep(GONE).await;
    assert_eq!((world.leases(), world.starts(0)), (2, 2));
    world.router.clients().close(&one.client);
    tokio::time::sleep(GONE).await;
    assert_eq!(world.leases(), 1);
}

/// Each lives from its own reload on; what it says before the next one is not awaited.
#[tokio::test(start_paused = true)]
async fn a_reload_shows_what_was_listed_to_the_same_account_alone() {
    let world = world_of(&[Asked::NOTHING], |_| {}, making);
    let one = world.person(Profile::EMPTY, "");
    assert_eq!(listed(&world, &one).await.len(), 2);
    let silent: Starter = Arc::new(|_, _| {});
    let memory = HashMap::from([("s0".to_owned(), silent)]);
    let tools = |token: Option<&str>, call_timeout: u64| {
        let env = token.map(|token| ("TOKEN".to_owned(), Secret::new(token)));
        let stdio = Stdio { env: env.into_iter().collect(), ..Stdio::default() };
        let mut entry = Server::new("s0", Transport::Stdio(stdio)).unwrap();
        entry.call_timeout = Duration::from_secs(call_timeout);
        let mut config = Config::default();
        config.servers.push(entry);
        world.router.manager().reload(config, &memory);
        world.router.manager().view(&one.client.who_now()).shown.tools().len()
    };
    assert_eq!(tools(None, 7), 2, "it is the same account");
    assert_eq!(tools(Some("one"), 7), 0);
    assert_eq!(tools(None, 7), 0, "nor does it come back");
}
