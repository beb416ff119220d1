//! Which clients users see: sessions while they last, and names without a session for a while after their last request.

use std::time::Duration;

use serde_json::json;

use super::support::stage_with;
use crate::manager::Principal;
use crate::protocol::{Method, Raw, Request, RequestId};
use crate::router::{ClientChange, ClientEvents, ClientNews, Router, Via};

fn info(name: &str) -> Raw {
    Raw::from_value(&json!({ "name": name, "version": "1" }))
}

fn seen(router: &Router, name: &str, method: &Method) {
    router.clients().roster().seen(&Principal::local(), Some(&info(name)), method, Via::Http);
}

/// Returns what was reported so far: each client's name, whether it came, and the number of clients then.
fn heard(events: &ClientEvents) -> Vec<(String, bool, usize)> {
    let one = |news| match news {
        ClientNews::One(event) => (event.client.name, event.change == ClientChange::Connected, event.clients),
        ClientNews::Many { connected, left, clients } => (format!("{connected} and {left}"), connected > left, clients),
    };
    std::iter::from_fn(|| events.heard_so_far()).map(one).collect()
}

#[tokio::test(start_paused = true)]
async fn first_hour_r12_a_client_without_a_session_is_one_by_its_name_and_goes_when_it_is_silent() {
    let stage = stage_with(|_| {}).await;
    let router = &stage.router;
    let events = router.clients().roster().events();
    seen(router, "agent", &Method::Discover);
    assert!(router.clients().list().is_empty(), "it has only asked what we speak");
    for _ in 0..100 {
        seen(router, "agent", &Method::ToolsCall);
        seen(router, "agent", &Method::ToolsList);
    }
    seen(router, "other", &Method::ToolsList);
    // Another person's client is a different one, even with the same name.
    router.clients().roster().seen(
        &Principal::named("bearer:ada"),
        Some(&info("agent")),
        &Method::ToolsList,
        Via::Http,
    );
    let roster = router.clients().list();
    let mut rows: Vec<_> = roster.iter().map(|row| (row.name.as_str(), row.user.as_deref(), row.calls)).collect();
    rows.sort_unstable();
    assert_eq!(rows, [("agent", None, 100), ("agent", Some("ada"), 0), ("other", None, 0)]);

    tokio::time::advance(Duration::from_secs(200)).await;
    seen(router, "agent", &Method::ToolsList);
    tokio::time::sleep(Duration::from_secs(200)).await;
    let names: Vec<_> = router.clients().list().into_iter().map(|row| row.name).collect();
    assert_eq!(names, ["agent"], "the others were silent for five minutes");
    let heard = heard(&events);
    let came = |name: &str, clients| (name.to_owned(), true, clients);
    assert_eq!(heard[..3], [came("agent", 1), came("other", 2), came("agent", 3)]);
    assert!(heard.len() == 5 && !heard[3].1 && !heard[4].1 && heard[4].2 == 1, "{heard:?}");
}

#[tokio::test]
async fn first_hour_r12_names_without_end_have_an_end() {
    let stage = stage_with(|_| {}).await;
    for number in 0..2_000 {
        seen(&stage.router, &format!("name {number}"), &Method::ToolsList);
    }
    let large = Raw::from_value(&json!({ "name": "x".repeat(100_000), "version": "y".repeat(100_000) }));
    stage.router.clients().roster().seen(&Principal::local(), Some(&large), &Method::ToolsList, Via::Http);
    let roster = stage.router.clients().list();
    assert_eq!(roster.len(), 256);
    assert!(roster.iter().all(|row| row.name.len() <= 200), "{}", roster.len());
    assert!(roster.iter().any(|row| row.name == "name 1999"), "the newest stay");
}

#[tokio::test]
async fn first_hour_r12_a_session_is_there_until_it_is_closed() {
    let stage = stage_with(|_| {}).await;
    let router = &stage.router;
    let events = router.clients().roster().events();
    let params =
        json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "a", "version": "2" } });
    let (client, _) =
        router.open(Principal::local(), Some(&Raw::from_value(&params)), router.queues().account()).unwrap();
    assert!(router.clients().list().is_empty(), "its door has not shown it");
    router.clients().roster().welcome(&client, Via::Sse);
    router.clients().roster().welcome(&client, Via::Sse);
    let leg = client.leg(router.limits());
    for (id, method) in [(1, Method::ToolsList), (2, Method::ToolsCall)] {
        let params = Some(Raw::from_value(&json!({ "name": "echo", "arguments": {} })));
        let request = Request { id: RequestId::Number(id), method, params };
        let _ = router.request(&client, request, &leg).await;
    }
    let row = router.clients().list().pop().unwrap();
    assert_eq!(
        (row.revision.as_str(), row.transport, row.version.as_deref(), row.calls),
        ("2025-06-18", "sse", Some("2"), 1)
    );
    router.clients().close(&client);
    router.clients().close(&client);
    assert!(router.clients().list().is_empty());
    assert_eq!(heard(&events), [("a".to_owned(), true, 1), ("a".to_owned(), false, 0)]);
    // The host's own end reports none of its clients.
    let (client, _) =
        router.open(Principal::local(), Some(&Raw::from_value(&params)), router.queues().account()).unwrap();
    router.clients().roster().welcome(&client, Via::Http);
    assert_eq!(heard(&events).len(), 1);
    router.close_doors();
    router.clients().close(&client);
    assert_eq!(heard(&events), []);
}

#[tokio::test]
async fn first_hour_r12_a_listener_that_is_behind_hears_the_sum_of_the_rest() {
    let stage = stage_with(|_| {}).await;
    let router = &stage.router;
    let (mut slow, mut gathers) = (router.clients().roster().events(), router.clients().roster().events());
    let params = Raw::from_value(
        &json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": { "name": "a", "version": "2" } }),
    );
    let open = || {
        let (client, _) = router.open(Principal::local(), Some(&params), router.queues().account()).unwrap();
        router.clients().roster().welcome(&client, Via::Http);
        client
    };
    let first = open();
    assert!(
        matches!(gathers.gathered().await, Some(ClientNews::One(event)) if event.client.version.as_deref() == Some("2"))
    );
    for _ in 0..1000 {
        router.clients().close(&open());
    }
    router.clients().close(&first);
    let told = heard(&slow);
    assert_eq!(told.len(), 17);
    assert_eq!((&told[0], &told[16]), (&("a".to_owned(), true, 1), &("992 and 994".to_owned(), false, 0)));
    assert!(matches!(gathers.gathered().await, Some(ClientNews::Many { connected: 1000, left: 1001, clients: 0 })));
    // A listener that has caught up hears single events again.
    drop(open());
    assert!(matches!(slow.next().await, Some(ClientNews::One(_))));
}
