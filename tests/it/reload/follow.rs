//! What counts as a change, and how it is noticed.

use std::fs;
use std::os::unix::fs::symlink;

use mcp_host::StateName;
use serde_json::json;

use super::support::{Followed, config, echo, entry, follow, until};

#[tokio::test]
async fn h91_a_change_is_noticed_without_being_told() {
    let followed = Followed::start(&config(&json!({ "a": entry("1") }))).await;
    followed.write(r#"{ "mcpServers": { "#);
    until(&followed.host, |_| followed.problems().first().cloned()).await;
    echo(&followed.host, "a").await.unwrap();
    // An editor writes a new file and renames it.
    let beside = followed.file.with_extension("new");
    fs::write(&beside, config(&json!({ "a": entry("1"), "b": entry("1") }))).unwrap();
    fs::rename(&beside, &followed.file).unwrap();
    until(&followed.host, |_| (followed.state("b") == Some(StateName::Connected)).then_some(())).await;
    assert_eq!(followed.problems(), Vec::<String>::new());
    followed.host.shutdown().await;
}

#[tokio::test]
async fn h91_links_are_followed_wherever_they_lead() {
    // Like a Kubernetes volume: the file is a link through a link that is swapped.
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    for (version, servers) in [("v1", json!({ "a": entry("1") })), ("v2", json!({ "a": entry("1"), "b": entry("1") }))]
    {
        fs::create_dir(at(version)).unwrap();
        fs::write(at(version).join("mcp.json"), config(&servers)).unwrap();
    }
    symlink("v1", at("..data")).unwrap();
    symlink("..data/mcp.json", at("mcp.json")).unwrap();
    let host = follow(&at("mcp.json")).await;
    symlink("v2", at("..new")).unwrap();
    fs::rename(at("..new"), at("..data")).unwrap();
    until(&host, |host| host.status().iter().any(|server| server.name == "b").then_some(())).await;
    host.shutdown().await;
}

#[tokio::test]
async fn h91_an_empty_or_missing_file_is_an_error() {
    let followed = Followed::start(&config(&json!({ "a": entry("1") }))).await;
    let pid = followed.pid("a").await;
    for text in ["", "\n", "{}", "null"] {
        followed.write(text);
        followed.host.reload_files().await.unwrap_err();
        assert_eq!(followed.pid("a").await, pid, "{text:?}");
    }
    fs::remove_file(&followed.file).unwrap();
    let error = followed.host.reload_files().await.unwrap_err();
    assert!(error.to_string().contains("cannot be read"), "{error}");
    assert_eq!((followed.pid("a").await, followed.problems().len()), (pid, 1));
    // Having no server is fine, if the file says so.
    followed.write(config(&json!({})));
    assert_eq!(followed.host.reload_files().await.unwrap().removed, ["a"]);
    followed.host.shutdown().await;
}

#[tokio::test]
async fn h91_what_a_config_names_counts_as_the_config() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    let mut a = entry("1");
    a["envFile"] = json!("a.env");
    let mut b = entry("1");
    b["env"] = json!({ "KEY": "${file:key}" });
    fs::write(at("a.env"), "X=1").unwrap();
    fs::write(at("mcp.json"), config(&json!({ "a": a, "b": b, "c": entry("1") }))).unwrap();
    let host = follow(&at("mcp.json")).await;
    let pids = |host: &mcp_host::Host| host.status().iter().map(|server| server.pids.clone()).collect::<Vec<_>>();
    let before = pids(&host);
    assert_eq!(host.status()[1].state, StateName::Failed, "its file is not there yet");
    // Both at once: each look covers all files.
    fs::write(at("key"), "k").unwrap();
    fs::write(at("a.env"), "X=2").unwrap();
    until(&host, |host| (host.status()[1].state == StateName::Connected).then_some(())).await;
    let after = until(&host, |host| Some(pids(host)).filter(|pids| !pids[0].is_empty() && pids[0] != before[0])).await;
    assert_eq!(after[2], before[2], "it has nothing to do with them");
    host.shutdown().await;
}
