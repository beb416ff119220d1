//! Heartbeats and rates, through the crate's own interface.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use mcp_host::config::{Config, HostSettings, Per, Rate, Rates};
use mcp_host::{ErrorKind, Host, InProcess, Raw};
use serde_json::json;
use tokio::sync::Notify;

fn tool(name: &str) -> Raw {
    json!({ "name": name, "inputSchema": { "type": "object" } }).into()
}

fn said(text: &str) -> Raw {
    json!({ "content": [{ "type": "text", "text": text }] }).into()
}

async fn host(state: &Path) -> Host {
    let server = InProcess::new("it", "1").tool(tool("act"), |_| Box::pin(async { Ok(said("done")) }));
    let rates = Rates { principal: Some(Rate::new(2, Per::Day)), ..Rates::default() };
    let config = Config::default().host(HostSettings::default().rates(rates));
    Host::builder().config(config).in_process("it", server).state_directory(state).start().await.unwrap()
}

#[tokio::test]
async fn the_calls_of_a_day_are_counted_over_restarts_of_the_host() {
    let state = tempfile::tempdir().unwrap();
    for _ in 0..2 {
        let host = host(state.path()).await;
        assert_eq!(host.call_tool("it__act", json!({})).await.unwrap().text(), "done");
        host.shutdown().await;
    }
    let host = host(state.path()).await;
    let refused = host.call_tool("it__act", json!({})).await.unwrap_err();
    assert_eq!((refused.kind(), refused.is_retryable()), (ErrorKind::Unreachable, true));
    let said = refused.to_string();
    assert!(said.starts_with("one client may make 2 calls a day (host.rates.principal); call again in "), "{said}");
    host.shutdown().await;
}

#[tokio::test]
async fn a_call_that_is_silent_shows_that_it_is_alive() {
    let heard = Arc::new(Notify::new());
    let goes_on = heard.clone();
    let server = InProcess::new("it", "1").tool(tool("slow"), move |_| {
        let goes_on = goes_on.clone();
        Box::pin(async move {
            goes_on.notified().await;
            Ok(said("done"))
        })
    });
    let config = Config::default().host(HostSettings::default().heartbeat(Duration::from_secs(1)));
    let host = Host::builder().config(config).in_process("it", server).start().await.unwrap();
    let call = host.call_tool("it__slow", json!({})).on_progress(move |step| {
        assert_eq!((step.message.as_deref(), step.total), (Some("it has not answered for 1 s"), None));
        heard.notify_one();
    });
    assert_eq!(call.await.unwrap().text(), "done");
    host.shutdown().await;
}
