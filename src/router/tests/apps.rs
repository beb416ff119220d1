//! MCP Apps and other extensions: what each side is told, and where their requests go.

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::jobs::*;
use super::support;
use crate::manager::Principal;
use crate::protocol::{Method, Raw, Request, RequestId};

fn apps() -> Value {
    json!({ "mimeTypes": ["text/html;profile=mcp-app"] })
}

/// Opens a session whose client has these extensions.
fn open(shop: &Shop, extensions: &Value) -> (std::sync::Arc<crate::router::Client>, Value) {
    let params =
        json!({ "protocolVersion": "2025-11-25", "capabilities": { "extensions": extensions }, "clientInfo": {} });
    let (client, result) =
        shop.router.open(Principal::local(), Some(&Raw::from_value(&params)), shop.router.queues().account()).unwrap();
    (client, result.read().unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_server_with_a_session_is_told_of_apps_and_of_nothing_that_we_do_not_carry() {
    let shop = Shop::legacy();
    let (with, _) = open(&shop, &json!({ UI: apps(), "x/unknown": {}, "io.modelcontextprotocol/auth/dpop": {} }));
    let (without, _) = open(&shop, &json!({}));
    for client in [&with, &without] {
        shop.answer(client, Method::ToolsCall, &json!({ "name": "plain" })).await;
    }
    let told: Vec<Value> = shop.jobs.calls("initialize").iter().map(|params| params["capabilities"].clone()).collect();
    // The server lists nothing for them, so one connection serves both.
    assert_eq!((told.len(), &told[0]["extensions"]), (1, &json!({ UI: apps() })), "{told:?}");
    // Both are connected: a new client is told what they declare, as far as the host forwards it.
    assert_eq!(open(&shop, &json!({})).1["capabilities"]["extensions"], json!({ UI: apps() }));
}

#[tokio::test]
async fn a_server_without_a_session_is_told_what_this_client_has() {
    let shop = Shop::modern().await;
    let capabilities = json!({ "extensions": { UI: { "mimeTypes": ["a/b"], "more": 1.50 }, "x/unknown": {} } });
    let client = shop.router.modern(Principal::local(), &Raw::from_value(&capabilities)).unwrap();
    shop.answer(&client, Method::ToolsCall, &json!({ "name": "plain" })).await;
    let told = &shop.jobs.calls("tools/call")[0]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    assert_eq!(*told, json!({ "extensions": { UI: { "mimeTypes": ["a/b"], "more": 1.50 } } }));
    let request = Request { id: RequestId::Number(1), method: Method::Discover, params: None };
    let (leg, closing) = (shop.router.modern_leg(None), CancellationToken::new());
    let found = shop.router.stateless(&client, request, &leg, &closing).await.unwrap().unwrap();
    let found: Value = found.read().unwrap();
    assert_eq!(found["capabilities"]["extensions"], json!({ TASKS: {}, UI: apps() }));
}

#[tokio::test(start_paused = true)]
async fn a_request_of_an_extension_goes_to_the_one_server_that_has_it() {
    let shop = Shop::legacy();
    let method = || Method::parse("ui/thing");
    let (with, _) = open(&shop, &json!({ UI: apps() }));
    let (without, _) = open(&shop, &json!({}));
    let params = json!({ "a": 1, "_meta": { "io.modelcontextprotocol/x": 1, "own": 2 } });
    shop.answer(&with, Method::ToolsCall, &json!({ "name": "plain" })).await;
    assert_eq!(shop.answer(&with, method(), &params).await, json!({}));
    assert_eq!(shop.jobs.calls("ui/thing"), [json!({ "a": 1, "_meta": { "own": 2 } })]);
    assert_eq!(shop.answer(&without, method(), &params).await["error"], -32601, "undeclared");
    assert_eq!(shop.answer(&with, Method::parse("x/unknown"), &params).await["error"], -32601);
    let stage = support::stage().await;
    let capabilities = Raw::from_value(&json!({ "extensions": { UI: apps() } }));
    let client = stage.router.modern(Principal::local(), &capabilities).unwrap();
    let refused = support::request(&stage.router, &client, method(), &params).answer().await;
    assert_eq!(refused["error"], -32601, "no server has it");
}
