//! What people are told of a change beside its classes: too many forms, a former name, and a server that is reached in
//! another way than before.

use std::time::{Duration, Instant};

use mcp_host::Host;
use mcp_host::config::{self, Syntax, Vars};
use mcp_host::pins::{Class, What};
use serde_json::{Value, json};

use super::{Way, World, act, call, tools, until_waiting};

/// The tool with a limit on its argument: the smaller it is, the less the tool takes.
fn narrow(length: usize) -> Value {
    let mut tool = act();
    tool["inputSchema"]["properties"]["a"] = json!({ "type": "string", "maxLength": length });
    tool
}

/// Starts a host while the server lists this tool, and waits until that is compared with the record.
async fn with(world: &World, approval: &str, tool: Value) -> Host {
    world.list(&[tool]);
    let host = world.host(approval).await;
    tools(&host).await;
    host
}

/// Waits until clients see the tool.
async fn shown(host: &Host) {
    let end = Instant::now() + Duration::from_secs(20);
    while tools(host).await.is_empty() {
        assert!(Instant::now() < end, "{:?}", host.status());
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn h85_of_three_forms_within_an_hour_each_needs_a_yes_of_its_own() {
    for way in super::WAYS {
        let world = World::new(way).await;
        world.first("tofu").await;
        let host = with(&world, "tofu", narrow(9)).await;
        shown(&host).await;
        assert!(host.status()[0].changed.is_empty(), "it takes less: it passes");
        host.shutdown().await;
        // The third form takes less again. It waits, and so does the second one, if the server goes back to it.
        for length in [5, 9] {
            let host = with(&world, "tofu", narrow(length)).await;
            let waiting = until_waiting(&host, 1).await;
            assert!(waiting[0].unstable && !waiting[0].passes, "{waiting:?}");
            assert_eq!(host.status()[0].changed, [r#"tool "act" (arguments-, unstable)"#], "{length}");
            assert_eq!((tools(&host).await.len(), host.status()[0].withheld), (0, 1), "{length}");
            assert!(call(&host, "it__act").await.contains("mcp-host approve it"), "{length}");
            host.shutdown().await;
        }
        // What was there before is approved, and a yes counts for one form.
        let host = with(&world, "tofu", act()).await;
        shown(&host).await;
        host.shutdown().await;
        let host = with(&world, "tofu", narrow(5)).await;
        let waiting = until_waiting(&host, 1).await;
        assert_eq!(host.approve(&waiting).await.unwrap(), 1);
        assert_eq!(tools(&host).await.len(), 1);
        host.shutdown().await;
        let host = with(&world, "tofu", narrow(9)).await;
        until_waiting(&host, 1).await;
        assert_eq!(tools(&host).await.len(), 0);
        assert_eq!(world.calls(), 0);
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h85_a_tool_with_a_new_name_is_told_as_renamed_wherever_it_waits() {
    for (approval, between) in [("warn", false), ("tofu", false), ("ask", true)] {
        let world = World::new(Way::Stdio).await;
        world.first("tofu").await;
        if between {
            // The tool goes first, and comes back under another name later.
            world.list(&[]);
            world.host(approval).await.shutdown().await;
        }
        let mut renamed = act();
        renamed["name"] = json!("perform");
        for _ in 0..2 {
            let host = with(&world, approval, renamed.clone()).await;
            let waiting = until_waiting(&host, 1).await;
            assert_eq!(
                (waiting[0].name.as_str(), waiting[0].renamed.as_deref()),
                ("perform", Some("act")),
                "{approval}"
            );
            assert_eq!(host.status()[0].changed, [r#"tool "perform" (added, renamed from "act")"#], "{approval}");
            host.shutdown().await;
        }
        let host = with(&world, approval, renamed).await;
        let waiting = until_waiting(&host, 1).await;
        assert_eq!(host.approve(&waiting).await.unwrap(), 1);
        until_waiting(&host, 0).await;
        assert_eq!(tools(&host).await, ["it__perform"]);
        host.shutdown().await;
    }
}

#[tokio::test]
async fn h85_a_server_that_is_reached_in_another_way_is_compared_with_what_was_approved_before() {
    for approval in ["warn", "tofu", "ask"] {
        let world = World::new(Way::Stdio).await;
        world.first("tofu").await;
        let mut changed = act();
        changed["description"] = json!("Acts otherwise.");
        world.list(&[changed, json!({ "name": "new", "inputSchema": { "type": "object" } })]);
        let more = json!({ "args": ["-c", super::SERVER, world.folder.path(), "more"] });
        for _ in 0..2 {
            let host = world.host_with(approval, &more).await;
            world.listed(&host).await;
            // Under `ask` the prompt and the instructions wait, too: it is a new server.
            let count = if approval == "ask" { 4 } else { 2 };
            let waiting = until_waiting(&host, count).await;
            let act = waiting.iter().find(|one| one.name == "act").unwrap();
            assert_eq!(act.changes.iter().map(|change| change.class).collect::<Vec<_>>(), [Class::Text], "{approval}");
            assert_eq!(act.changes[0].before.as_deref(), Some("Acts."));
            let new = waiting.iter().find(|one| (one.what, one.name.as_str()) == (What::Tool, "new")).unwrap();
            assert_eq!(new.changes[0].class, Class::Added);
            let passes = approval != "ask";
            assert!(waiting.iter().all(|one| one.passes == passes), "{waiting:?}");
            let status = host.status();
            assert!(status[0].changed.contains(&r#"tool "act" (text)"#.to_owned()), "{:?}", status[0].changed);
            assert_eq!(status[0].withheld, if passes { 0 } else { 4 });
            assert_eq!(tools(&host).await.len(), if passes { 2 } else { 0 });
            host.shutdown().await;
        }
        let host = world.host_with(approval, &more).await;
        world.listed(&host).await;
        let waiting = host.waiting_for_approval().await.unwrap();
        assert_eq!(host.approve(&waiting).await.unwrap(), waiting.len());
        until_waiting(&host, 0).await;
        assert_eq!(tools(&host).await.len(), 2, "{approval}");
        host.shutdown().await;
    }
}

/// A server is first reached in one way, then in another one, at a host that keeps nothing.
async fn moved(approval: &str, more: &dyn Fn(&World) -> Value, same: Option<Value>) {
    let world = World::new(Way::Stdio).await;
    let parsed = |more: &Value| {
        let text = world.config(approval, more);
        config::parse_str(&text, Syntax::Json, "mcp.json", &Vars::from_process()).unwrap()
    };
    let (is_asked, first) = (approval == "ask", json!({}));
    let host = Host::builder().config(parsed(&first)).start().await.unwrap();
    world.listed(&host).await;
    if is_asked {
        let waiting = until_waiting(&host, 3).await;
        assert_eq!(host.approve(&waiting).await.unwrap(), 3);
    }
    assert_eq!(tools(&host).await, ["it__act"], "{approval}");
    let mut changed = act();
    changed["description"] = json!("Acts otherwise.");
    world.list(&[changed]);
    // What is another server to the host is compared with what was approved before, and told; it passes but under `ask`.
    for more in std::iter::once(more(&world)).chain(same) {
        host.reload(parsed(&more));
        world.listed(&host).await;
        let waiting = until_waiting(&host, if is_asked { 3 } else { 1 }).await;
        let act = waiting.iter().find(|one| one.name == "act").unwrap();
        assert_eq!(
            act.changes.iter().map(|change| change.class).collect::<Vec<_>>(),
            [Class::Text],
            "{approval} {more}"
        );
        assert_eq!(act.changes[0].before.as_deref(), Some("Acts."), "{approval} {more}");
        assert!(waiting.iter().all(|one| one.passes != is_asked), "{approval} {more}: {waiting:?}");
        assert_eq!(tools(&host).await.len(), usize::from(!is_asked), "{approval} {more}");
    }
    let waiting = host.waiting_for_approval().await.unwrap();
    assert_eq!(host.approve(&waiting).await.unwrap(), waiting.len());
    until_waiting(&host, 0).await;
    assert_eq!(tools(&host).await.len(), 1, "{approval}");
    // The first entry has its own record, which knows the first form alone.
    host.reload(parsed(&first));
    world.listed(&host).await;
    let waiting = until_waiting(&host, 1).await;
    assert_eq!((waiting[0].name.as_str(), waiting[0].passes), ("act", false), "{approval}");
    assert_eq!(tools(&host).await.len(), usize::from(approval == "warn"), "{approval}");
    host.shutdown().await;
}

#[tokio::test]
async fn h85_without_a_state_directory_a_server_is_known_by_how_it_is_reached_as_well() {
    for approval in ["warn", "tofu", "ask"] {
        let with = |value: &str| json!({ "env": { "TOKEN": value } });
        // Another value of a variable makes no other server of it.
        moved(approval, &|_| with("one"), Some(with("two"))).await;
        moved(approval, &|world| json!({ "args": ["-c", super::SERVER, world.folder.path(), "more"] }), None).await;
    }
}
