//! Notifications of servers: how often clients hear of lists that keep changing, and that they hear nothing if nothing
//! changed (`docs/hazards.md` H50), or if it concerns another client (H54). On a paused clock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::support::{request, run};
use crate::config::{Config, Limits, Prefix, Server, Stdio, Transport};
use crate::in_process::InProcess;
use crate::manager::{Manager, Principal};
use crate::protocol::{Message, Method, Profile, ProtocolVersion, Raw};
use crate::registry::Kind;
use crate::router::{Client, Router};
use crate::upstream::Starter;

const STORM: Duration = Duration::from_secs(60);

fn tool(name: &str) -> Raw {
    Raw::from_value(&json!({ "name": name, "inputSchema": { "type": "object" } }))
}

/// A router over a server in this process, and a client.
fn router(server: InProcess) -> (Router, Arc<Client>) {
    router_within(server, |_| {})
}

/// Like `router`, with other limits.
pub(super) fn router_within(server: InProcess, set: impl FnOnce(&mut Limits)) -> (Router, Arc<Client>) {
    let server = crate::in_process::Running::new(server);
    let mut entry = Server::new("restless", Transport::Stdio(Stdio::default())).unwrap();
    entry.prefix = Prefix::Never;
    let mut config = Config::default();
    config.servers.push(entry);
    set(&mut config.host.limits);
    let start: Starter = Arc::new(move |wire, tasks| server.start(wire, tasks));
    let info = Raw::from_value(&json!({ "name": "test", "version": "0" }));
    let memory = HashMap::from([("restless".to_owned(), start)]);
    let (manager, news) = Manager::start(config, &memory, info.clone(), None, Default::default());
    let router = Router::start(manager, news, info);
    let client = router.admit(Principal::local(), ProtocolVersion::V2025_11_25, Profile::EMPTY, None);
    (router, client)
}

/// A server that adds any tool by `offer`, and removes it by `withdraw`.
fn restless() -> InProcess {
    InProcess::new("restless", "1")
        .tool(tool("offer"), |invocation| {
            async move {
                let name = invocation.arguments.text("name").unwrap();
                invocation.offer(Kind::Tools, tool(&name), |_| async { Ok(Raw::empty_object()) }.boxed()).await;
                Ok(Raw::from_value(&json!({ "content": [] })))
            }
            .boxed()
        })
        .tool(tool("withdraw"), |invocation| {
            async move {
                invocation.withdraw(Kind::Tools, &invocation.arguments.text("name").unwrap()).await;
                Ok(Raw::from_value(&json!({ "content": [] })))
            }
            .boxed()
        })
}

/// A router over such a server, and a client that has listed.
async fn listed() -> (Router, Arc<Client>) {
    let (router, client) = router(restless());
    let list = request(&router, &client, Method::ToolsList, &json!({})).answer().await;
    assert_eq!(list["tools"].as_array().unwrap().len(), 2, "{list}");
    (router, client)
}

async fn act(router: &Router, client: &Arc<Client>, tool: &str, name: &str) {
    let answer = run(router, client, &json!({ "name": tool, "arguments": { "name": name } })).answer().await;
    assert_eq!(answer["content"], json!([]), "{answer}");
}

/// Returns when the client is told that tools have changed, up to `until`.
async fn told(client: &Client, until: Instant) -> Vec<Instant> {
    let mut told = Vec::new();
    while let Ok(Some(message)) = tokio::time::timeout_at(until, client.mailbox().next()).await {
        assert!(matches!(&message, Message::Notification(notice) if notice.method == Method::ToolsListChanged));
        told.push(Instant::now());
    }
    told
}

#[tokio::test(start_paused = true)]
async fn h50_a_client_hears_of_a_storm_of_changes_every_two_seconds_at_most() {
    let (router, client) = listed().await;
    let end = Instant::now() + STORM;
    let storm = async {
        let mut number = 0;
        while Instant::now() < end {
            number += 1;
            act(&router, &client, "offer", &format!("t{number}")).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let (told, ()) = tokio::join!(told(&client, end), storm);
    assert!((10..=30).contains(&told.len()), "{} in a minute", told.len());
    let apart = told.windows(2).map(|pair| pair[1] - pair[0]).min().unwrap();
    assert!(apart >= Duration::from_secs(2), "{apart:?}");
}

#[tokio::test(start_paused = true)]
async fn h50_a_client_hears_of_no_change_that_left_its_lists_as_they_were() {
    let (router, client) = listed().await;
    act(&router, &client, "offer", "one").await;
    assert_eq!(told(&client, Instant::now() + Duration::from_secs(10)).await.len(), 1);
    // Gone and back before any client has looked.
    act(&router, &client, "withdraw", "one").await;
    act(&router, &client, "offer", "one").await;
    // And a client with other capabilities comes.
    let other = router.admit(Principal::local(), ProtocolVersion::V2025_11_25, Profile::ROOTS, None);
    request(&router, &other, Method::ToolsList, &json!({})).answer().await;
    assert_eq!(told(&client, Instant::now() + Duration::from_secs(10)).await, []);
}

/// The list changes while its client is between two pages.
#[tokio::test(start_paused = true)]
async fn h50_the_rest_of_an_old_list_does_not_stand_for_the_new_one() {
    let server = (0..20).fold(restless(), |server, number| {
        let text = "x".repeat(240 << 10);
        let large =
            json!({ "name": format!("large{number}"), "description": text, "inputSchema": { "type": "object" } });
        server.tool(Raw::from_value(&large), |_| async { Ok(Raw::empty_object()) }.boxed())
    });
    let (router, client) = router(server);
    let list = async |params: Value| request(&router, &client, Method::ToolsList, &params).answer().await;
    let first = list(json!({})).await;
    let count = |page: &Value| page["tools"].as_array().map_or(0, Vec::len);
    for change in 0..6 {
        let name = format!("t{change}");
        act(&router, &client, "offer", &name).await;
        while client.view(router.manager()).shown.tools().iter().all(|tool| tool.raw_name() != name) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // A list without a second page replaces no paged one.
        request(&router, &client, Method::PromptsList, &json!({})).answer().await;
        let rest = list(json!({ "cursor": first["nextCursor"] })).await;
        assert_eq!(count(&first) + count(&rest), 22, "as it was when it was begun: {change}");
        let told = told(&client, Instant::now() + Duration::from_secs(5)).await;
        assert_eq!(told.len(), 1, "it has not read that one: {change}");
    }
}

#[tokio::test(start_paused = true)]
async fn h54_an_update_is_for_who_watches_the_resource_and_for_nobody_beside() {
    let resource = |name: &str| Raw::from_value(&json!({ "uri": format!("test://{name}"), "name": name }));
    let read = |_| async { Ok(Raw::from_value(&json!({ "contents": [] }))) }.boxed();
    let server = InProcess::new("watched", "1").resource(resource("one"), read).resource(resource("two"), read).tool(
        tool("touch"),
        |invocation| {
            async move {
                let uri = json!({ "uri": invocation.arguments.text("name").unwrap() });
                invocation.notify(Method::ResourceUpdated, Raw::from_value(&uri)).await;
                Ok(Raw::from_value(&json!({ "content": [] })))
            }
            .boxed()
        },
    );
    let (router, one) = router(server);
    let other = router.admit(Principal::local(), ProtocolVersion::V2025_11_25, Profile::EMPTY, None);
    for (client, uri) in [(&one, "test://one"), (&other, "test://two")] {
        let agreed = request(&router, client, Method::ResourcesSubscribe, &json!({ "uri": uri })).answer().await;
        assert_eq!(agreed, json!({}));
    }
    assert_eq!(router.meter().gauges().leases, 1, "they share it");
    let heard = async |client: &Client| {
        let mut uris = Vec::new();
        let until = Instant::now() + Duration::from_secs(1);
        while let Ok(Some(message)) = tokio::time::timeout_at(until, client.mailbox().next()).await {
            let Message::Notification(notice) = message else { panic!("{message:?}") };
            uris.push(notice.params.unwrap().text("uri").unwrap());
        }
        uris
    };
    act(&router, &one, "touch", "test://one").await;
    assert_eq!((heard(&one).await, heard(&other).await), (vec!["test://one".to_owned()], Vec::new()));
    act(&router, &one, "touch", "test://two").await;
    assert_eq!((heard(&one).await, heard(&other).await), (Vec::new(), vec!["test://two".to_owned()]));
    // Nor does it end for a client that watches through a lease that a question has bound to another client.
    router.manager().servers()[0].upstreams()[0].bind(one.owner());
    act(&router, &one, "touch", "test://two").await;
    assert_eq!((heard(&one).await, heard(&other).await), (Vec::new(), vec!["test://two".to_owned()]));
    // When the last one of them unsubscribes, the other keeps its own.
    request(&router, &one, Method::ResourcesUnsubscribe, &json!({ "uri": "test://one" })).answer().await;
    act(&router, &one, "touch", "test://two").await;
    act(&router, &one, "touch", "test://one").await;
    assert_eq!((heard(&one).await, heard(&other).await), (Vec::new(), vec!["test://two".to_owned()]));
}
