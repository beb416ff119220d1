//! A host over the program's own small server, each run of which is a process.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mcp_host::config::{self, LoadRequest};
use mcp_host::protocol::Raw;
use mcp_host::{Host, StateName};
use serde_json::{Value, json};

/// A host that follows a file in its own folder.
pub(super) struct Followed {
    pub(super) host: Host,
    pub(super) file: PathBuf,
    _home: tempfile::TempDir,
}

/// An entry that runs `echo` and `countdown`; another word makes it another entry.
pub(super) fn entry(word: &str) -> Value {
    json!({ "command": env!("CARGO_BIN_EXE_mcp-host"), "args": ["__demo-server"], "env": { "WORD": word } })
}

pub(super) fn config(servers: &Value) -> String {
    json!({ "mcpServers": servers }).to_string()
}

impl Followed {
    pub(super) async fn start(text: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("mcp.json");
        std::fs::write(&file, text).unwrap();
        let host = follow(&file).await;
        Self { host, file, _home: home }
    }

    pub(super) fn write(&self, text: impl AsRef<[u8]>) {
        std::fs::write(&self.file, text).unwrap();
    }

    /// Returns the process of a server, once it is connected.
    pub(super) async fn pid(&self, server: &str) -> u32 {
        until(&self.host, |host| {
            let status = host.status().into_iter().find(|status| status.name == server)?;
            status.pids.first().copied().filter(|_| status.state == StateName::Connected)
        })
        .await
    }

    pub(super) fn state(&self, server: &str) -> Option<StateName> {
        self.host.status().iter().find(|status| status.name == server).map(|status| status.state)
    }

    pub(super) fn problems(&self) -> Vec<String> {
        self.host.config_status().borrow().problems.clone()
    }
}

/// A host over a file, which it follows.
pub(super) async fn follow(file: &Path) -> Host {
    let request = LoadRequest::default().file(file);
    let host = Host::builder().config(config::load(&request).unwrap()).start().await.unwrap();
    host.follow_config(move || config::load(&request));
    host.settled().await;
    host
}

/// Tries until there is a result, twenty seconds at most.
pub(crate) async fn until<T>(host: &Host, mut found: impl FnMut(&Host) -> Option<T>) -> T {
    let look = async {
        loop {
            if let Some(found) = found(host) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), look).await.unwrap_or_else(|_| panic!("{:?}", host.status()))
}

pub(super) async fn echo(host: &Host, server: &str) -> Result<(), mcp_host::Error> {
    let arguments = Raw::from_value(&json!({ "text": "hello" }));
    let answer = host.call_tool(&format!("{server}__echo"), arguments).await?;
    assert!(answer.as_str().contains("hello"));
    Ok(())
}
