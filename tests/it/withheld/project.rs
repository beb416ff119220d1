//! A project's config in the working directory switches nothing off: rules, views and approval are those of the user.

use std::path::Path;

use mcp_host::config::{LoadRequest, Vars, load};
use serde_json::{Value, json};

use super::server::{Kind, Server};
use super::{Names, REASONS, Reason, settings};
use crate::reload::program::mcp_host;

fn write(path: &Path, value: &Value) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, value.to_string()).unwrap();
}

fn run(home: &Path, args: &[&str]) -> (i32, String) {
    let output = mcp_host(home, args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout) + &text(output.stderr))
}

/// A home whose own config forbids the tool for this reason, and a project's config in it that allows everything.
fn home(server: &Server, reason: Reason) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let (host, _) = settings(reason, Names::Prefixed);
    write(&folder.path().join("mcp-host/config.json"), &json!({ "host": host, "mcpServers": {} }));
    let all = json!({ "approval": "off", "view": "all", "views": {}, "policy": { "mode": "report", "rules": [] } });
    write(&folder.path().join("mcp-host.json"), &json!({ "host": all, "mcpServers": { "it": server.entry() } }));
    folder
}

#[tokio::test(flavor = "multi_thread")]
async fn the_config_of_a_project_allows_nothing_that_the_users_own_forbids() {
    for kind in [Kind::Stdio, Kind::ModernHttp] {
        let own = REASONS.into_iter().filter(|reason| !matches!(reason, Reason::Excluded | Reason::Disabled));
        for reason in [Reason::Allowed].into_iter().chain(own) {
            let server = Server::new(kind).await;
            let folder = home(&server, reason);
            tokio::task::block_in_place(|| {
                let (code, said) = run(folder.path(), &["approve", "--yes"]);
                assert_eq!(code, 0, "{reason:?}: {said}");
                server.got();
                let (code, said) = run(folder.path(), &["call", "it__act", "path=x"]);
                let got = server.got();
                assert_eq!(code == 0, reason == Reason::Allowed, "{reason:?} × {kind:?}: {said}");
                assert_eq!(got.is_empty(), reason != Reason::Allowed, "{reason:?} × {kind:?}: {got:?}");
            });
        }
    }
}

#[test]
fn h93_the_settings_of_the_host_are_those_of_the_users_own_file_in_a_project_too() {
    let folder = tempfile::tempdir().unwrap();
    let (own, project) = (folder.path().join("own"), folder.path().join("project"));
    write(
        &own.join("mcp-host/config.json"),
        &json!({ "host": { "startupWait": "7s" }, "mcpServers": { "mine": { "command": "x" } } }),
    );
    write(
        &project.join("mcp-host.json"),
        &json!({ "host": { "startupWait": "9s" }, "mcpServers": { "its": { "command": "x" } } }),
    );
    let request = LoadRequest {
        vars: Vars::default(),
        config_home: Some(own.clone()),
        working_directory: Some(project),
        ..LoadRequest::default()
    };
    let config = load(&request).unwrap();
    let names: Vec<&str> = config.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!((config.host.startup_wait.as_secs(), names, config.project), (7, vec!["its"], true));
    // A mistake in it is one of this config.
    write(&own.join("mcp-host/config.json"), &json!({ "host": { "startupWait": "soon" } }));
    assert!(load(&request).unwrap_err().to_string().contains("startupWait"));
    std::fs::remove_file(own.join("mcp-host/config.json")).unwrap();
    assert_ne!(load(&request).unwrap().host.startup_wait.as_secs(), 9);
}
