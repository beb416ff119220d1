//! Where requests go: to tools of the host itself, to servers, or nowhere.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::support::{FORM, call, stage, text};
use crate::answered::Answered;
use crate::exposed::Naming;
use crate::protocol::{Method, Profile, ProtocolVersion, Raw, Request, RequestId};
use crate::registry::{Catalog, Entry, Owners};
use crate::router::route::{Astray, Listed, Map, One, OwnTool, Route, What};
use crate::router::{Client, Mailbox, Router};

/// A tool of the host that returns its caller and arguments.
#[derive(Debug)]
struct Mirror(&'static str);

impl OwnTool for Mirror {
    fn name(&self) -> &str {
        self.0
    }

    fn call<'a>(
        &'a self,
        _: &'a Router,
        client: &'a Arc<Client>,
        params: Raw,
        _: &'a Arc<Mailbox>,
    ) -> BoxFuture<'a, Answered> {
        async move {
            let text = format!("{} {}", client.revision(), params.member("arguments").unwrap());
            Ok(Raw::from_value(&json!({ "content": [{ "type": "text", "text": text }] })))
        }
        .boxed()
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_of_the_host_is_called_without_a_server() {
    let stage = stage().await;
    // The second one has the name of a tool that the server has, too.
    stage.router.offer_own(vec![Arc::new(Mirror("mirror")), Arc::new(Mirror("busy"))]);
    let legacy = stage.legacy(ProtocolVersion::V2025_06_18, Profile::EMPTY);
    let modern = stage.modern(FORM);
    for (client, revision) in [(&legacy, "2025-06-18"), (&modern, "2026-07-28")] {
        for name in ["mirror", "busy"] {
            let answer = stage.answer(client, &json!({ "name": name, "arguments": { "a": 1 } })).await;
            assert_eq!(text(&answer), format!(r#"{revision} {{"a":1}}"#));
            assert_eq!(answer["resultType"] == json!("complete"), revision == "2026-07-28", "{answer}");
        }
    }
    assert_eq!(stage.script.begun.load(Ordering::SeqCst), 0, "no server was called");
    stage.answer(&legacy, &call("echo")).await;
    assert_eq!(stage.script.begun.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_route_has_the_server_and_the_tool_in_hand() {
    let stage = stage().await;
    let client = stage.legacy(ProtocolVersion::V2025_06_18, Profile::EMPTY);
    let catalog = client.settled_view(stage.router.manager(), stage.router.background()).await.callable;
    let servers = stage.router.manager().servers();
    let map = Map { own: &[], callable: &catalog, servers: &servers };
    let one = |what, name: &str| match map.find(what, name) {
        Ok(Route::One(one)) => one,
        other => panic!("{name}: {other:?}"),
    };
    let One { server, target, listed } = one(What::Tool, "echo");
    assert!(Arc::ptr_eq(&server, &servers[0]));
    assert_eq!((&*target, listed.entry().map(Entry::raw_name)), ("echo", Some("echo")));
    // This server is never prefixed, so it may have unlisted tools.
    assert!(matches!(one(What::Tool, "nameless").listed, Listed::Not));
    let removed = Map { servers: &[], ..map };
    assert!(matches!(removed.find(What::Tool, "echo"), Err(Astray::Removed)));
    let nothing = Catalog::merge(&[], &Naming::default().into(), &mut Owners::default());
    assert!(matches!(Map { callable: &nothing, ..map }.find(What::Tool, "echo"), Err(Astray::Unknown)));
    assert!(matches!(map.find(What::Nothing, ""), Err(Astray::Unknown)));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_a_door_has_routed_is_not_routed_again() {
    let stage = stage().await;
    let client = stage.legacy(ProtocolVersion::V2025_06_18, Profile::EMPTY);
    client.settled_view(stage.router.manager(), stage.router.background()).await;
    let params = Some(Raw::from_value(&call("echo")));
    let request = Request { id: RequestId::Number(1), method: Method::ToolsCall, params };
    let mut routed = stage.router.look_up(&client, request);
    let Some(Route::One(one)) = &mut routed.route else { panic!("{routed:?}") };
    // A second lookup of its name would lead to the other tool.
    one.target = "held".into();
    let leg = client.leg(stage.router.limits());
    let served = tokio::spawn(stage.router.stateless(&client, routed, &leg, &CancellationToken::new()));
    stage.until(|script| script.begun.load(Ordering::SeqCst) == 1).await;
    stage.script.release.notify_one();
    let answer: Value = served.await.unwrap().unwrap().unwrap().read().unwrap();
    assert_eq!(text(&answer), "held");
}
