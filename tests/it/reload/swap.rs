//! What another config does to servers and their calls.

use mcp_host::StateName;
use mcp_host::protocol::Raw;
use serde_json::json;

use super::support::{Followed, config, echo, entry, until};

#[tokio::test]
async fn h91_a_config_cut_at_any_byte_changes_nothing() {
    let text = config(&json!({ "a": entry("1"), "b": entry("2") }));
    let followed = Followed::start(&text).await;
    let pids = (followed.pid("a").await, followed.pid("b").await);
    for length in 0..text.len() {
        followed.write(&text[..length]);
        followed.host.reload_files().await.unwrap_err();
        assert!(followed.problems()[0].contains("mcp.json"), "{:?}", followed.problems());
        if length % 16 == 0 {
            echo(&followed.host, "a").await.unwrap();
        }
    }
    followed.write(&text);
    let done = followed.host.reload_files().await.unwrap();
    assert_eq!(done, Default::default(), "nothing is another");
    assert_eq!((followed.pid("a").await, followed.pid("b").await), pids);
    assert!(followed.host.status().iter().all(|server| server.restarts == 0));
    assert_eq!(followed.problems(), Vec::<String>::new());
    followed.host.shutdown().await;
}

#[tokio::test]
async fn h91_only_what_changed_restarts_and_calls_end_well() {
    let text = |servers| config(&servers);
    let followed = Followed::start(&text(json!({ "a": entry("1"), "b": entry("1"), "c": entry("1") }))).await;
    let (a, b) = (followed.pid("a").await, followed.pid("b").await);
    followed.pid("c").await;
    let count = |server: &str| {
        let call = followed.host.call_tool(&format!("{server}__countdown"), Raw::from_value(&json!({ "from": 1 })));
        let begun = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let tell = begun.clone();
        let call = call.on_progress(move |_| tell.store(true, std::sync::atomic::Ordering::Relaxed));
        (tokio::spawn(async move { call.await }), begun)
    };
    let calls = ["a", "b", "c"].map(count);
    for (_, begun) in &calls {
        until(&followed.host, |_| begun.load(std::sync::atomic::Ordering::Relaxed).then_some(())).await;
    }
    followed.write(text(json!({ "a": entry("1"), "b": entry("2"), "d": entry("1") })));
    let done = followed.host.reload_files().await.unwrap();
    assert_eq!((done.changed, done.removed, done.added), (vec!["b".into()], vec!["c".into()], vec!["d".into()]));
    // New servers take calls at once, while old ones finish theirs.
    echo(&followed.host, "b").await.unwrap();
    assert_ne!(followed.pid("b").await, b);
    let unknown = echo(&followed.host, "c").await.unwrap_err();
    assert_eq!(unknown.kind(), mcp_host::ErrorKind::Unknown, "{unknown}");
    for (call, _) in calls {
        let answer = call.await.unwrap().unwrap();
        assert!(answer.as_str().contains("counted down from 1"), "{answer}");
    }
    assert_eq!(followed.pid("a").await, a, "it was not touched");
    // The old `b` is gone once its call is over.
    until(&followed.host, |_| rustix::process::test_kill_process(rustix::process::Pid::from_raw(b as i32)?).err())
        .await;
    assert_eq!((followed.state("c"), followed.state("d")), (None, Some(StateName::Connected)));
    followed.host.shutdown().await;
}

#[tokio::test]
async fn h91_a_call_that_outlasts_the_drain_is_ended() {
    let text = |word: &str| {
        json!({ "mcpServers": { "a": entry(word) }, "host": { "limits": { "drain": "100ms" } } }).to_string()
    };
    let followed = Followed::start(&text("1")).await;
    let old = followed.pid("a").await;
    let begun = std::sync::Arc::new(tokio::sync::Notify::new());
    let tell = begun.clone();
    let call = followed.host.call_tool("a__countdown", Raw::from_value(&json!({ "from": 60 })));
    let call = tokio::spawn(call.on_progress(move |_| tell.notify_one()).into_future());
    begun.notified().await;
    followed.write(text("2"));
    followed.host.reload_files().await.unwrap();
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.server(), Some("a"));
    assert_ne!(followed.pid("a").await, old);
    followed.host.shutdown().await;
}

#[tokio::test]
async fn h91_what_of_the_host_can_change_changes() {
    let text = |host| json!({ "mcpServers": { "a": entry("1") }, "host": host }).to_string();
    let followed = Followed::start(&text(json!({}))).await;
    let pid = followed.pid("a").await;
    followed.write(text(json!({ "limits": { "pendingPerClient": 1, "sessions": 7 }, "listen": "127.0.0.1:1" })));
    let done = followed.host.reload_files().await.unwrap();
    assert_eq!(done.pending, ["host.listen", "host.limits.sessions"]);
    assert_eq!(followed.host.config_status().borrow().pending, done.pending);
    assert_eq!(followed.pid("a").await, pid);
    // One call at a time from now on.
    let call = followed.host.call_tool("a__countdown", Raw::from_value(&json!({ "from": 60 })));
    let call = tokio::spawn(call.into_future());
    until(&followed.host, |host| host.status().first().filter(|server| server.calls_running > 0).map(drop)).await;
    let refused = echo(&followed.host, "a").await.unwrap_err();
    assert!(refused.to_string().contains("pendingPerClient"), "{refused}");
    call.abort();
    followed.host.shutdown().await;
}
