//! What a principal may see and call: in lists, in calls, and in what is said about all servers.

use std::sync::Arc;

use serde_json::{Value, json};

use super::support::{Stage, call, request, stage, text};
use crate::manager::{Principal, Scope, Sight};
use crate::protocol::{Method, Profile, ProtocolVersion};
use crate::router::Client;

/// A client of a principal that may not see, or may not call, the only server.
fn limited(stage: &Stage, name: &str, limit: fn(&mut Sight) -> &mut Scope) -> Arc<Client> {
    let principal = Principal::named(name);
    let mut sight = Sight::default();
    limit(&mut sight).without.insert(stage.router.manager().servers()[0].id);
    stage.router.manager().limit(principal.clone(), sight);
    stage.router.admit(principal, ProtocolVersion::V2025_11_25, Profile::EMPTY, None)
}

async fn tools(stage: &Stage, client: &Arc<Client>) -> usize {
    let listed = request(&stage.router, client, Method::ToolsList, &json!({})).answer().await;
    listed["tools"].as_array().map_or(0, Vec::len)
}

#[tokio::test(start_paused = true)]
async fn what_is_shown_and_what_may_be_called_are_two_things() {
    let stage = stage().await;
    let free = stage.legacy(ProtocolVersion::V2025_11_25, Profile::EMPTY);
    let unseeing = limited(&stage, "unseeing", |sight| &mut sight.shown);
    let idle = limited(&stage, "idle", |sight| &mut sight.callable);
    let all = tools(&stage, &free).await;
    assert!(all > 0);
    assert_eq!((tools(&stage, &unseeing).await, tools(&stage, &idle).await), (0, all));
    let answer = async |client: &Arc<Client>| stage.answer(client, &call("echo")).await;
    assert_eq!(text(&answer(&free).await), "{}");
    assert_eq!(text(&answer(&unseeing).await), "{}");
    let refused: Value = answer(&idle).await;
    assert_eq!((&refused["error"], &refused["message"]), (&json!(-32602), &json!("unknown tool: echo")));
    assert_eq!((tools(&stage, &free).await, tools(&stage, &unseeing).await), (all, 0), "the others see what they saw");
}

#[tokio::test(start_paused = true)]
async fn one_catalog_serves_whoever_sees_and_calls_the_same() {
    let stage = stage().await;
    let one = stage.legacy(ProtocolVersion::V2025_11_25, Profile::EMPTY);
    let other = stage.legacy(ProtocolVersion::V2025_11_25, Profile::EMPTY);
    let view = one.settled_view(stage.router.manager(), stage.router.background()).await;
    assert!(Arc::ptr_eq(&view.shown, &view.callable));
    assert!(Arc::ptr_eq(
        &view.shown,
        &other.settled_view(stage.router.manager(), stage.router.background()).await.shown
    ));
}
