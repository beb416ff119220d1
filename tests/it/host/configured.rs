//! Configs of a host: files, followed or not, and configs by value.

use mcp_host::{Config, ErrorKind, Host};
use serde_json::{Value, json};

use super::until;

fn text(servers: &Value) -> String {
    json!({ "mcpServers": servers }).to_string()
}

/// A server that never starts.
fn entry() -> Value {
    json!({ "command": "sh", "start": "lazy" })
}

fn names(host: &Host) -> Vec<String> {
    host.status().into_iter().map(|server| server.name).collect()
}

#[tokio::test]
async fn a_config_beside_a_config_file_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("mcp.json");
    std::fs::write(&file, text(&json!({ "a": entry() }))).unwrap();
    for builder in [
        Host::builder().config(Config::default()).config_file(&file),
        Host::builder().config_file(&file).config(Config::default()),
    ] {
        let error = builder.start().await.unwrap_err();
        assert_eq!((error.kind(), error.help().is_some()), (ErrorKind::Config, true), "{error}");
    }
    let error = Host::builder().config(Config::default()).config_file(&file).enter().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Config, "{error}");
}

#[tokio::test]
async fn files_are_followed_where_that_is_wanted() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("mcp.json");
    std::fs::write(&file, text(&json!({ "a": entry() }))).unwrap();
    let host = Host::builder().config_file(&file).follow().start().await.unwrap();
    std::fs::write(&file, text(&json!({ "a": entry(), "b": entry() }))).unwrap();
    // Without a request.
    until(&host, |host| host.status().iter().any(|server| server.name == "b").then_some(())).await;
    std::fs::write(&file, text(&json!({ "b": entry() }))).unwrap();
    // At once.
    host.reload_files().await.unwrap();
    assert_eq!(names(&host), ["b"]);
    let name_of = |server: &str| host.status_of(server).map(|status| status.name);
    assert_eq!((name_of("b").as_deref(), name_of("a")), (Some("b"), None));
    host.shutdown().await;
    // After `enter`, reloads read the same files.
    let host = Host::builder().config_file(&file).follow().enter().unwrap().start().await.unwrap();
    std::fs::write(&file, text(&json!({ "b": entry(), "c": entry() }))).unwrap();
    host.reload_files().await.unwrap();
    assert_eq!(names(&host), ["b", "c"]);
    host.shutdown().await;
    let host = Host::builder().config_file(&file).start().await.unwrap();
    assert_eq!(host.reload_files().await.unwrap_err().kind(), ErrorKind::Config, "this one follows nothing");
    host.shutdown().await;
}

#[tokio::test]
async fn there_must_be_something_to_follow() {
    for builder in [Host::builder().follow(), Host::builder().config(Config::default()).follow()] {
        let error = builder.start().await.unwrap_err();
        assert_eq!((error.kind(), error.help().is_some()), (ErrorKind::Config, true), "{error}");
    }
}
