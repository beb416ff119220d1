//! Each call has exactly one line, whole, and no call goes unrecorded.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::file::File;
use super::line::timestamp;
use crate::config::{self, Config};
use crate::protocol::{ErrorObject, Raw};
use crate::{Host, InProcess};

fn read(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'));
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect()
}

fn members<'a>(line: &'a Value, names: &[&str]) -> Vec<&'a Value> {
    names.iter().map(|name| &line[*name]).collect()
}

/// A host with one server, whose tools answer, fail, disconnect, and wait.
async fn host(audit: config::Audit, waits: Arc<Notify>) -> Result<Host, crate::Error> {
    let tool = |name: &str| Raw::from_value(&json!({ "name": name, "inputSchema": { "type": "object" } }));
    let text = |text: &str, wrong: bool| {
        Raw::from_value(&json!({ "content": [{ "type": "text", "text": text }], "isError": wrong }))
    };
    let server = InProcess::new("s", "1")
        .tool(tool("answer"), move |_| async move { Ok(text("yes", false)) }.boxed())
        .tool(tool("fail"), move |_| async move { Ok(text("no", true)) }.boxed())
        .tool(tool("refuse"), |_| async { Err(ErrorObject::new(-32000, "never")) }.boxed())
        .tool(tool("wait"), move |_| {
            let waits = waits.clone();
            async move {
                waits.notify_one();
                std::future::pending().await
            }
            .boxed()
        });
    let mut config = Config::default();
    config.host.audit = Some(audit);
    let host = Host::builder().config(config).client_info("tester", "1").in_process("mine", server).start().await?;
    host.catalog_ready().await;
    Ok(host)
}

fn arguments(value: &Value) -> Raw {
    Raw::from_value(value)
}

#[tokio::test]
async fn h99_a_line_tells_who_called_what_and_how_it_ended() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("audit.jsonl");
    let begun = Arc::<Notify>::default();
    let host = host(config::Audit::new(&file), begun.clone()).await.unwrap();
    let secret = json!({ "token": "never-written" });
    host.call_tool("mine__answer", arguments(&secret)).await.unwrap();
    let _ = host.call_tool("mine__fail", arguments(&json!({}))).await;
    let _ = host.call_tool("mine__refuse", arguments(&json!({}))).await;
    let _ = host.call_tool("mine__nothing", arguments(&json!({}))).await;
    let cancelled = async {
        tokio::select! {
            _ = host.call_tool("mine__wait", arguments(&json!({}))).into_future() => unreachable!("it waits for ever"),
            () = begun.notified() => {}
        }
    };
    cancelled.await;
    let _ = host.read_resource("mine+https://example.com/x?key=never-written").await;
    let pins: Vec<String> = host.definitions().await.iter().map(|stated| stated.pin.to_string()).collect();
    host.shutdown().await;
    let lines = read(&file);
    let told: Vec<_> =
        lines.iter().map(|line| members(line, &["method", "server", "target", "outcome", "code"])).collect();
    assert_eq!(
        json!(told),
        json!([
            ["tools/call", "mine", "answer", "ok", null],
            ["tools/call", "mine", "fail", "tool_error", null],
            ["tools/call", "mine", "refuse", "error", -32000],
            ["tools/call", null, "mine__nothing", "error", -32602],
            ["tools/call", "mine", "wait", "cancelled", null],
            ["resources/read", "mine", "https://example.com/x?…", "error", -32002],
        ])
    );
    let first = &lines[0];
    assert_eq!(members(first, &["principal", "client", "view"]), [&json!("local"), &json!("tester"), &json!("all")]);
    let called: Vec<_> = lines.iter().map(|line| &line["pin"]).collect();
    assert_eq!(json!(called), json!([pins[0], pins[1], pins[2], null, pins[3], null]));
    // The output of `sha256sum` for these bytes.
    assert_eq!(first["arguments"], "sha256:08c2d2f34d6af81efd2d609a293ea7dcf8db1a92d5d5bd126152ab0b489a8725");
    assert_eq!(lines[1]["arguments"], "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a");
    assert!(first["bytesIn"].as_u64() > Some(25) && first["bytesOut"].as_u64() > Some(25), "{first}");
    assert!(first["durationMs"].is_u64() && first["time"].as_str().is_some_and(|time| time.ends_with('Z')), "{first}");
    assert!(!std::fs::read_to_string(&file).unwrap().contains("never-written"));
}

#[tokio::test]
async fn h99_there_are_as_many_lines_as_calls() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("audit.jsonl");
    let audit = config::Audit { max_size: 64 << 10, keep: 20, ..config::Audit::new(&file) };
    let host = host(audit, Arc::default()).await.unwrap();
    let calls = (0..500).map(|number| {
        let host = host.clone();
        async move { host.call_tool("mine__answer", arguments(&json!({ "n": number }))).await.unwrap() }
    });
    futures_util::future::join_all(calls).await;
    host.shutdown().await;
    let files: Vec<_> = std::fs::read_dir(home.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() > 1, "it was put aside meanwhile");
    let lines: Vec<Value> = files.iter().flat_map(|file| read(file)).collect();
    let hashes: std::collections::BTreeSet<_> = lines.iter().map(|line| line["arguments"].as_str()).collect();
    assert_eq!((lines.len(), hashes.len()), (500, 500));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn h99_what_cannot_be_written_down_is_not_called() {
    let home = tempfile::tempdir().unwrap();
    let (file, real) = (home.path().join("audit.jsonl"), home.path().join("real.jsonl"));
    std::os::unix::fs::symlink("/dev/full", &file).unwrap();
    let host = host(config::Audit::new(&file), Arc::default()).await.unwrap();
    let mut served = 0;
    // The first calls begin before the full disk is noticed.
    let refusal = async {
        loop {
            match host.call_tool("mine__answer", arguments(&json!({}))).await {
                Ok(_) => served += 1,
                Err(error) => break error.to_string(),
            }
            tokio::task::yield_now().await;
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(20), refusal).await.unwrap();
    assert!(refused.contains("the audit cannot be written"), "{refused}");
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink(&real, &file).unwrap();
    let again = async {
        while host.call_tool("mine__answer", arguments(&json!({}))).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), again).await.unwrap();
    host.shutdown().await;
    assert_eq!(read(&real).len(), served + 1);
}

#[tokio::test]
async fn h99_a_folder_that_is_not_there_is_told_at_the_start() {
    let home = tempfile::tempdir().unwrap();
    let error = host(config::Audit::new(home.path().join("none/audit.jsonl")), Arc::default()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("host.audit.file") && text.contains("no such folder"), "{text}");
}

#[test]
fn h99_a_full_file_is_put_aside_and_the_oldest_goes() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a");
    let settings = config::Audit { file: path.clone(), max_size: 8, keep: 2 };
    let mut file = File::open(&settings).unwrap();
    for line in ["1234567\n", "2\n", "3\n", "4567\n", "5\n", "6789012\n"] {
        file.append(line.as_bytes()).unwrap();
    }
    let text = |name: &str| std::fs::read_to_string(home.path().join(name)).unwrap_or_default();
    assert_eq!([text("a"), text("a.1"), text("a.2"), text("a.3")], ["6789012\n", "4567\n5\n", "2\n3\n", ""]);
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }
}

#[test]
fn h99_a_line_that_was_cut_off_spoils_no_other() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a");
    std::fs::write(&path, "{\"cut").unwrap();
    File::open(&config::Audit::new(&path)).unwrap().append(b"{}\n").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "{\"cut\n{}\n");
}

/// Runs in a process of its own whose files may not exceed one block, as if the disk were full.
#[cfg(unix)]
#[test]
fn h99_a_disk_that_is_full_gets_no_half_line() {
    const FILE: &str = "MCP_HOST_TEST_FULL_DISK";
    let line = format!("{}\n", "x".repeat(99));
    if let Some(path) = std::env::var_os(FILE) {
        let mut file = File::open(&config::Audit::new(Path::new(&path))).unwrap();
        assert!((0..100).any(|_| file.append(line.as_bytes()).is_err()));
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("a");
    let script = r#"trap '' XFSZ; ulimit -f 1; exec "$0" --exact "$1""#;
    let test = "audit::tests::h99_a_disk_that_is_full_gets_no_half_line";
    let mut full = std::process::Command::new("sh");
    full.args(["-c", script]).arg(std::env::current_exe().unwrap()).arg(test).env(FILE, &path);
    let ended = full.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    let count = std::fs::read_to_string(&path).unwrap().len() / line.len();
    assert!((5..=10).contains(&count), "{count}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), line.repeat(count));
    File::open(&config::Audit::new(&path)).unwrap().append(line.as_bytes()).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), line.repeat(count + 1));
}

#[cfg(unix)]
#[test]
fn h99_hosts_that_share_a_file_lose_no_line() {
    let home = tempfile::tempdir().unwrap();
    let settings = config::Audit { file: home.path().join("a"), max_size: 1000, keep: 1000 };
    std::thread::scope(|scope| {
        for host in 0..4 {
            let mut file = File::open(&settings).unwrap();
            scope.spawn(move || {
                for number in 0..250 {
                    file.append(format!("{{\"n\":\"{host}-{number}\"}}\n").as_bytes()).unwrap();
                }
            });
        }
    });
    let files = std::fs::read_dir(home.path()).unwrap();
    let lines: std::collections::BTreeSet<String> =
        files.flat_map(|file| read(&file.unwrap().path())).map(|line| line.to_string()).collect();
    assert_eq!(lines.len(), 1000);
}

#[test]
fn times_are_those_of_the_calendar() {
    for (seconds, expected) in [
        (0, "1970-01-01T00:00:00.123Z"),
        (951_782_399, "2000-02-28T23:59:59.123Z"),
        (951_782_400, "2000-02-29T00:00:00.123Z"),
        (4_107_542_400, "2100-03-01T00:00:00.123Z"),
        (1_795_354_504, "2026-11-22T13:35:04.123Z"),
    ] {
        assert_eq!(timestamp(UNIX_EPOCH + Duration::new(seconds, 123_456_789)), expected);
    }
}
