//! Scripted hostile servers, one per fault, behind a real host: the promise about the fault holds, and a good server
//! beside the hostile one is served meanwhile.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod eras;
mod garbage;
mod http;
mod server;
mod streams;

use std::time::Duration;

use mcp_host::config::{Syntax, Vars, parse_str};
use mcp_host::protocol::Raw;
use mcp_host::{Host, StateName, demo};
use serde_json::{Value, json};

/// A host over one hostile server, `bad`, whose tools keep their names, and a good one in this process.
async fn host(entry: Value) -> Host {
    host_with(entry, json!({})).await
}

/// Like `host`, with these limits.
async fn host_with(mut entry: Value, limits: Value) -> Host {
    entry["prefix"] = json!("never");
    let config = json!({ "mcpServers": { "bad": entry }, "host": { "startupWait": "300ms", "limits": limits } });
    let config = parse_str(&config.to_string(), Syntax::Json, "test.json", &Vars::default()).unwrap();
    Host::builder().config(config).in_process("good", demo::echo()).start().await.unwrap()
}

async fn good(host: &Host) {
    let arguments = Raw::from_value(&json!({ "text": "hello" }));
    let answer = host.call_tool("good__echo", arguments).timeout(Duration::from_secs(5)).await;
    assert!(answer.unwrap().to_string().contains("hello"));
}

/// Calls the good server repeatedly during `work`, at least once.
async fn beside<T>(host: &Host, work: impl Future<Output = T>) -> T {
    let calls = async {
        loop {
            good(host).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let out = tokio::select! {
        biased;
        () = calls => unreachable!("they never end"),
        out = work => out,
    };
    good(host).await;
    out
}

/// Returns the outcome of a call to the hostile server: its text, or the error; the good server is called meanwhile.
async fn call(host: &Host, tool: &str) -> Result<String, String> {
    beside(host, async {
        match host.call_tool(tool, Raw::empty_object()).await {
            Ok(result) => {
                let result: Value = result.read().unwrap();
                Ok(result["content"][0]["text"].as_str().unwrap_or_default().to_owned())
            }
            Err(error) => Err(error.to_string()),
        }
    })
    .await
}

/// Asserts that the hostile server serves its next good call as if nothing had happened.
async fn still_serves(host: &Host) {
    assert_eq!(call(host, "good").await.as_deref(), Ok("good"));
}

/// Waits until the hostile server is in this state, and returns its last error.
async fn reach(host: &Host, state: StateName) -> String {
    let reached = async {
        loop {
            let status = host.status().into_iter().find(|status| status.name == "bad").unwrap();
            if status.state == state {
                return status.last_error.unwrap_or_default();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    beside(host, tokio::time::timeout(Duration::from_secs(60), reached))
        .await
        .unwrap_or_else(|_| panic!("{:?}", host.status()))
}
