//! Events: states, changes of lists, log messages, standard error, updates of resources.

use mcp_host::registry::Kind;
use mcp_host::{ErrorKind, Event, Events, Host, InProcess, Method, StateName, demo};
use serde_json::json;
use tokio::time::timeout;

use super::{PATIENCE, config, said, tool};

/// Waits for the next event that `wanted` accepts.
async fn next<T>(events: &mut Events, wanted: impl Fn(Event) -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = wanted(events.next().await.expect("the host is there")) {
                return found;
            }
        }
    };
    timeout(PATIENCE, found).await.expect("the event comes")
}

fn server() -> InProcess {
    let resource = json!({ "uri": "it:notes", "name": "notes" });
    InProcess::new("it", "1")
        .tool(tool("grow"), |call| {
            Box::pin(async move {
                call.offer(Kind::Tools, tool("grown"), |_| Box::pin(async { Ok(said("hello")) })).await;
                Ok(said("done"))
            })
        })
        .tool(tool("log"), |call| {
            Box::pin(async move {
                call.log("warning", json!({ "disk": "full" }).into()).await;
                Ok(said("done"))
            })
        })
        .tool(tool("write"), |call| {
            Box::pin(async move {
                let uri = call.arguments.text("uri").unwrap_or_default();
                call.notify(Method::ResourceUpdated, json!({ "uri": uri }).into()).await;
                let watched = call.is_watched("it:notes");
                Ok(said(&watched.to_string()))
            })
        })
        .resource(resource.into(), |_| Box::pin(async { Ok(json!({ "contents": [] }).into()) }))
}

#[tokio::test]
async fn a_change_of_lists_is_told_once_they_were_looked_at() {
    let host = Host::builder().in_process("it", server()).start().await.unwrap();
    let mut events = host.events();
    assert_eq!(host.catalog_ready().await.tools().len(), 3);
    host.call_tool("it__grow", json!({})).await.unwrap();
    let lists = next(&mut events, |event| match event {
        Event::Lists(lists) => Some(lists),
        _ => None,
    });
    let lists = lists.await;
    assert_eq!((lists.tools, lists.prompts, lists.resources), (true, false, false));
    assert!(host.catalog().tools().iter().any(|tool| tool.name() == "it__grown"), "the lists change before it is told");
    assert_eq!(host.call_tool("it__grown", json!({})).await.unwrap().text(), "hello");
    host.shutdown().await;
}

#[tokio::test]
async fn log_messages_of_servers_are_told() {
    let host = Host::builder().in_process("it", server()).start().await.unwrap();
    let mut events = host.events();
    host.call_tool("it__log", json!({})).await.unwrap();
    let message = next(&mut events, |event| match event {
        Event::Log(message) => Some(message),
        _ => None,
    });
    let message = message.await;
    assert_eq!((message.server.as_str(), message.level.as_str(), message.logger), ("it", "warning", None));
    assert_eq!(message.data.to_string(), r#"{"disk":"full"}"#);
    host.shutdown().await;
}

#[cfg(unix)]
#[tokio::test]
async fn standard_error_of_servers_is_told_without_secrets() {
    let entry = json!({
        "command": "sh",
        "args": ["-c", r#"echo "the key is $API_KEY" >&2; cat >/dev/null"#],
        "env": { "API_KEY": "correct-horse-battery-staple" },
        "startTimeout": "30s",
    });
    let host = Host::builder().config(config(&json!({ "My Server": entry }))).start().await.unwrap();
    let mut events = host.events();
    let line = next(&mut events, |event| match event {
        Event::Stderr(line) => Some(line),
        _ => None,
    });
    let line = line.await;
    assert_eq!((line.server.as_str(), line.text.as_str()), ("My Server", "the key is ***"));
    host.shutdown().await;
}

#[tokio::test]
async fn states_are_told_by_the_names_of_the_config() {
    let host = Host::builder().in_process("My Server", server()).start().await.unwrap();
    // No task has run since.
    let mut events = host.events();
    let change = next(&mut events, |event| match event {
        Event::State(change) if change.to == StateName::Connected => Some(change),
        _ => None,
    });
    let change = change.await;
    assert_eq!((change.server.as_str(), change.from, change.cause), ("My Server", StateName::Initializing, None));
    host.shutdown().await;
}

#[tokio::test]
async fn a_removed_server_is_told_disconnected() {
    let lazy = json!({ "command": "sh", "start": "lazy" });
    let builder = Host::builder().in_process("My Server", server()).config(config(&json!({ "never used": lazy })));
    let host = builder.start().await.unwrap();
    host.settled().await;
    for (name, wanted) in [
        (
            "My Server",
            [(StateName::Connected, StateName::Disconnecting), (StateName::Disconnecting, StateName::Disconnected)],
        ),
        (
            "never used",
            [(StateName::Idle, StateName::Disconnecting), (StateName::Disconnecting, StateName::Disconnected)],
        ),
    ] {
        let mut events = host.events();
        assert!(host.remove_server(name));
        for wanted in wanted {
            let change = next(&mut events, |event| match event {
                Event::State(change) if change.server == name && change.from != StateName::Initializing => Some(change),
                _ => None,
            });
            let change = change.await;
            assert_eq!((change.from, change.to, change.cause), (wanted.0, wanted.1, None), "{name}");
        }
    }
    assert!(host.status().is_empty());
    host.shutdown().await;
}

#[tokio::test]
async fn updates_of_a_watched_resource_are_told_while_it_is_watched() {
    let host = Host::builder().in_process("it", server()).start().await.unwrap();
    let write = async |uri: &str| host.call_tool("it__write", json!({ "uri": uri })).await.unwrap().text();
    let watched = async |wanted: &str| {
        let look = async {
            while write("it:other").await != wanted {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, look).await.expect("it is watched, or no more");
    };
    let mut updates = host.subscribe("it+it:notes").await.unwrap();
    let mut again = host.subscribe("it+it:notes").await.unwrap();
    write("it:other").await;
    write("it:notes").await;
    for updates in [&mut updates, &mut again] {
        assert_eq!(timeout(PATIENCE, updates.next()).await.unwrap().as_deref(), Some("it+it:notes"));
    }
    drop(again);
    watched("true").await;
    write("it:notes").await;
    assert_eq!(timeout(PATIENCE, updates.next()).await.unwrap().as_deref(), Some("it+it:notes"), "one still watches");
    drop(updates);
    watched("false").await;
    let mut last = host.subscribe("it+it:notes").await.unwrap();
    host.shutdown().await;
    assert_eq!(timeout(PATIENCE, last.next()).await.unwrap(), None, "the host is gone");
}

#[tokio::test]
async fn what_nobody_has_cannot_be_watched() {
    // A URI that no list has would lead to the only server with resources.
    let builder = Host::builder().in_process("echo", demo::echo()).in_process("clock", demo::clock());
    let host = builder.start().await.unwrap();
    host.catalog_ready().await;
    let error = host.subscribe("it:notes").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unknown, "{error}");
    host.shutdown().await;
}
