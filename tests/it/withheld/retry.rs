//! A call that asked is sent again with its answers when it is no longer allowed.

use mcp_host::Host;
use mcp_host::pins::Pins;
use serde_json::{Value, json};

use super::server::{Kind, Server};
use super::{Names, REASONS, Reason, config, start};
use crate::reload::until;
use crate::views::clients::{Client, Transport};

fn call() -> Value {
    json!({ "name": "it__act", "arguments": { "path": "asks" } })
}

/// Forbids the tool at a running host.
async fn forbid(host: &Host, server: &Server, reason: Reason, state: &std::path::Path) {
    if reason == Reason::Unapproved {
        let entry = config(server, server, Reason::Allowed, Names::Prefixed).servers.remove(0);
        // Its first sight is recorded soon.
        while Pins::of(state).revoke(&entry, Some("act")).await.unwrap() == 0 {
            tokio::task::yield_now().await;
        }
        until(host, |host| (host.status()[0].withheld == 1).then_some(())).await;
    } else {
        host.reload(config(server, server, reason, Names::Prefixed));
    }
}

#[tokio::test]
async fn a_retry_of_what_is_no_longer_allowed_is_not_sent() {
    for kind in [Kind::Stdio, Kind::ModernHttp] {
        for reason in [Reason::Allowed].into_iter().chain(REASONS) {
            let case = format!("{reason:?} × {kind:?}");
            let (server, folder) = (Server::new(kind).await, tempfile::tempdir().unwrap());
            let mut first = config(&server, &server, Reason::Allowed, Names::Prefixed);
            if reason == Reason::Unapproved {
                first.host.approval = mcp_host::config::Approval::Tofu;
            }
            let builder = Host::builder().config(first).state_directory(folder.path());
            let (host, to) = start(builder.start().await.unwrap(), Reason::Allowed).await;
            let able = json!({ "elicitation": {} });
            let mut client = Client::able(&host, to, Transport::Http, "2026-07-28", ("", able)).await;
            let asked = client.ask("tools/call", call()).await;
            assert_eq!(asked["result"]["resultType"], "input_required", "{case}: {asked}");
            assert_eq!(server.got().len(), 1, "{case}");
            if reason != Reason::Allowed {
                forbid(&host, &server, reason, folder.path()).await;
            }
            let mut again = call();
            again["requestState"] = asked["result"]["requestState"].clone();
            let keys = asked["result"]["inputRequests"].as_object().unwrap().keys();
            let answers = keys.map(|key| (key.clone(), json!({ "action": "accept", "content": {} })));
            again["inputResponses"] = answers.collect();
            let answer = client.ask("tools/call", again).await;
            let got = server.got();
            if reason == Reason::Allowed {
                assert!(answer["result"]["content"].is_array() && !got.is_empty(), "{case}: {answer}");
            } else {
                // A rule that asks may ask about it now.
                let result = &answer["result"];
                let is_refused = answer["error"].is_object() || result["isError"] == true;
                let asks = reason == Reason::Asked && result["inputRequests"]["mcp-host-ask"].is_object();
                assert!(is_refused || asks, "{case}: {answer}");
                assert!(got.is_empty(), "{case}: the server got {got:?}, the client {answer}");
            }
            host.shutdown().await;
        }
    }
}
