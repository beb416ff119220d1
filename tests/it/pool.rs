//! `pool`: several processes, or sessions, of one server while all are busy; with real ones.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use mcp_host::config::{Config, Syntax, Vars, parse_str};
use mcp_host::in_process::InProcess;
use mcp_host::protocol::Raw;
use mcp_host::{CallResult, Error, Host};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio::task::JoinHandle;

/// A server in shell, which takes one call at a time. `$0` is the folder of its files. It answers with its process id:
/// `quick` at once, `meet` once five calls have begun, and `hold` once the file `go` is there. `ask` asks for roots.
const SERVER: &str = r#"
say() { printf '%s\n' "$1"; }
reply() { say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$1}"; }
done_() { reply "{\"content\":[{\"type\":\"text\",\"text\":\"$$\"}]}"; }
while read -r line; do
  id=$(printf %s "$line" | sed -n 's/^{"jsonrpc":"2.0","id":\([0-9]*\),.*/\1/p')
  case $line in
    *'"initialize"'*) reply '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}' ;;
    *'"tools/list"'*) reply '{"tools":[{"name":"quick","inputSchema":{"type":"object"}},{"name":"meet","inputSchema":{"type":"object"}},{"name":"hold","inputSchema":{"type":"object"}},{"name":"ask","inputSchema":{"type":"object"}}]}' ;;
    *'"name":"quick"'*) done_ ;;
    *'"name":"meet"'*) echo $$ >> "$0/meeting"; until [ "$(wc -l < "$0/meeting")" -ge 5 ]; do sleep 0.02; done; done_ ;;
    *'"name":"hold"'*) echo $$ >> "$0/held"; until [ -e "$0/go" ]; do sleep 0.02; done; done_ ;;
    *'"name":"ask"'*) say '{"jsonrpc":"2.0","id":"r","method":"roots/list"}'; done_ ;;
  esac
done"#;

struct Stage {
    folder: tempfile::TempDir,
    host: Host,
}

fn parsed(entry: &Value) -> Config {
    let text = json!({ "mcpServers": { "it": entry } }).to_string();
    parse_str(&text, Syntax::Json, "mcp.json", &Vars::from_process()).unwrap()
}

impl Stage {
    async fn of(more: &Value) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let host = Host::builder().config(Self::config(&folder, more)).start().await.unwrap();
        host.settled().await;
        Self { folder, host }
    }

    fn config(folder: &tempfile::TempDir, more: &Value) -> Config {
        let mut entry = json!({ "command": "sh", "args": ["-c", SERVER, folder.path()] });
        entry.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        parsed(&entry)
    }

    fn begin(&self, tool: &str) -> JoinHandle<Result<CallResult, Error>> {
        tokio::spawn(self.host.call_tool(&format!("it__{tool}"), json!({})).into_future())
    }

    /// Begins that many calls that hold their processes. Returns them, and the ids of the processes.
    async fn hold(&self, count: usize) -> (Vec<JoinHandle<Result<CallResult, Error>>>, Vec<String>) {
        let calls = (0..count).map(|_| self.begin("hold")).collect();
        let held = || fs::read_to_string(self.folder.path().join("held")).unwrap_or_default();
        until(|| held().lines().count() == count).await;
        (calls, held().lines().map(str::to_owned).collect())
    }

    fn go(&self) {
        fs::write(self.folder.path().join("go"), "").unwrap();
    }

    fn processes(&self) -> usize {
        self.host.status_of("it").unwrap().pids.len()
    }
}

/// Waits until the condition holds.
async fn until(condition: impl Fn() -> bool) {
    let holds = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), holds).await.expect("it never holds");
}

#[tokio::test]
async fn five_processes_of_a_server_that_takes_one_call_at_a_time_work_at_once() {
    let stage = Stage::of(&json!({ "pool": 5 })).await;
    let calls: Vec<_> = (0..5).map(|_| stage.begin("meet")).collect();
    let mut pids = Vec::new();
    for call in calls {
        pids.push(call.await.unwrap().unwrap().text());
    }
    pids.sort();
    pids.dedup();
    assert_eq!((pids.len(), stage.processes()), (5, 5));
    let status = stage.host.status_of("it").unwrap();
    assert_eq!((status.pool, status.leases), (Some(5), 5));
    assert_eq!(status.sharing.iter().filter(|line| line.contains("one more, while all are busy")).count(), 4);
    stage.host.shutdown().await;
}

#[tokio::test]
async fn a_killed_process_of_a_pool_fails_only_its_own_call() {
    // The first one, which lists, and one that was opened beside it.
    for victim in [0, 2] {
        let stage = Stage::of(&json!({ "pool": 3 })).await;
        let first = stage.begin("quick").await.unwrap().unwrap().text();
        let (calls, mut pids) = stage.hold(3).await;
        pids.sort_by_key(|pid| *pid != first);
        assert_eq!(pids[0], first, "the first one is among them");
        let killed = tokio::process::Command::new("kill").args(["-9", &pids[victim]]).status().await.unwrap();
        assert!(killed.success());
        // While it is away, others serve: nothing waits for it.
        until(|| calls.iter().any(JoinHandle::is_finished)).await;
        stage.go();
        let mut ends = Vec::new();
        for call in calls {
            ends.push(call.await.unwrap().map(|result| result.text()));
        }
        let lost: Vec<_> = ends.iter().filter_map(|end| end.as_ref().err()).collect();
        assert_eq!(lost.len(), 1, "{ends:?}");
        assert!(lost[0].to_string().contains("the outcome is unknown"), "{lost:?}");
        let mut served: Vec<_> = ends.iter().filter_map(|end| end.as_ref().ok()).collect();
        let mut others: Vec<_> = pids.iter().filter(|pid| **pid != pids[victim]).collect();
        served.sort();
        others.sort();
        assert_eq!(served, others);
        assert!(stage.begin("quick").await.unwrap().is_ok());
        stage.host.shutdown().await;
    }
}

#[tokio::test]
async fn a_reload_with_another_pool_counts_from_the_next_call() {
    let stage = Stage::of(&json!({ "pool": 2 })).await;
    let (calls, _) = stage.hold(2).await;
    assert_eq!(stage.processes(), 2);
    assert_eq!(stage.host.reload(Stage::config(&stage.folder, &json!({ "pool": 5 }))).changed, ["it"]);
    let meeting: Vec<_> = (0..5).map(|_| stage.begin("meet")).collect();
    for call in meeting {
        assert!(call.await.unwrap().is_ok());
    }
    assert_eq!(stage.processes(), 5);
    stage.go();
    for call in calls {
        assert!(call.await.unwrap().is_ok(), "calls end where they began");
    }
    stage.host.shutdown().await;
}

#[tokio::test]
async fn a_server_that_asks_for_roots_keeps_to_one_process() {
    let stage = Stage::of(&json!({ "pool": 5 })).await;
    stage.begin("ask").await.unwrap().unwrap();
    until(|| stage.host.status_of("it").unwrap().pool == Some(1)).await;
    let calls: Vec<_> = (0..5).map(|_| stage.begin("quick")).collect();
    for call in calls {
        assert!(call.await.unwrap().is_ok());
    }
    let sharing = stage.host.status_of("it").unwrap().sharing;
    let line = "pool: 1 connection for the same clients, because it asks them something";
    assert!(sharing.iter().any(|said| said == line), "{sharing:?}");
    assert!(!sharing.iter().any(|said| said.contains("one more")), "{sharing:?}");
    stage.host.shutdown().await;
}

#[tokio::test]
async fn a_pool_over_http_has_several_sessions() {
    let meeting = Arc::new(Barrier::new(5));
    let definition = json!({ "name": "meet", "inputSchema": { "type": "object" } });
    let server = InProcess::new("far", "1").tool(definition.into(), move |_| {
        let meeting = meeting.clone();
        async move {
            meeting.wait().await;
            Ok::<Raw, _>(json!({ "content": [{ "type": "text", "text": "met" }] }).into())
        }
        .boxed()
    });
    let far = Host::builder().in_process("far", server).start().await.unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/mcp", listener.local_addr().unwrap());
    let serving = far.clone();
    let served = tokio::spawn(async move { serving.serve_http(listener).await });
    for era in ["legacy", "modern"] {
        let entry = json!({ "type": "http", "url": url, "pool": 5, "era": era });
        let host = Host::builder().config(parsed(&entry)).start().await.unwrap();
        host.settled().await;
        let calls: Vec<_> =
            (0..5).map(|_| tokio::spawn(host.call_tool("it__far__meet", json!({})).into_future())).collect();
        for call in calls {
            assert_eq!(call.await.unwrap().unwrap().text(), "met", "{era}");
        }
        assert_eq!(host.status_of("it").unwrap().leases, 5, "{era}");
        host.shutdown().await;
    }
    far.shutdown().await;
    served.abort();
}
