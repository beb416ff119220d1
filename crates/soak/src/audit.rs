//! One audit line per call (`docs/hazards.md` H99): as many lines as calls, each complete, while files rotate.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::client::{Answer, Peer};
use crate::soak::{Plan, Verdict};

const CALLERS: usize = 8;

pub(crate) fn run(plan: &Plan) -> Verdict {
    let calls = if plan.whole { 100_000 } else { 10_000 };
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let config = json!({
        "mcpServers": { "echo": { "command": plan.host, "args": ["__demo-server"] } },
        "host": { "audit": { "file": "audit.jsonl", "maxSize": "1MiB", "keep": 1000 } },
    });
    let file = home.path().join("mcp.json");
    std::fs::write(&file, config.to_string()).map_err(|error| error.to_string())?;
    let mut command = Command::new(&plan.host);
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&file).current_dir(home.path());
    command.env_clear().env("HOME", home.path()).env("XDG_RUNTIME_DIR", home.path());
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut host = command.spawn().map_err(|error| error.to_string())?;
    let called = call_and_end(&mut host, (calls / CALLERS) as u64);
    if called.is_err() {
        let _ = host.kill();
        let _ = host.wait();
    }
    called?;
    let (files, lines, hashes) = count(home.path())?;
    if lines != calls || hashes != calls {
        return Err(format!("{calls} calls, but {lines} lines about {hashes} of them"));
    }
    Ok(format!("{calls} calls, {lines} lines in {files} files, none twice, none missing"))
}

fn call_and_end(host: &mut Child, each: u64) -> Result<(), String> {
    let out = host.stdout.take().ok_or("no stdout")?;
    let mut lines = BufReader::new(out).lines();
    let first = lines.next().ok_or("the host said nothing")?.map_err(|error| error.to_string())?;
    let url =
        first.split_whitespace().find(|word| word.starts_with("http://")).ok_or(format!("no address: {first}"))?;
    let reader = std::thread::spawn(move || lines.map_while(Result::ok).count());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let mut callers = tokio::task::JoinSet::new();
        for caller in 0..CALLERS {
            callers.spawn(call(url.to_owned(), caller, each));
        }
        while let Some(called) = callers.join_next().await {
            called.map_err(|error| error.to_string())??;
        }
        Ok::<_, String>(())
    })?;
    if let Some(pid) = i32::try_from(host.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    let status = host.wait().map_err(|error| error.to_string())?;
    let _ = reader.join();
    if status.success() { Ok(()) } else { Err(format!("it ended with {status}")) }
}

/// Runs one client: a session, then its calls, all with distinct arguments.
async fn call(url: String, caller: usize, each: u64) -> Result<(), String> {
    let mut peer = Peer::open(url).await.map_err(|other| format!("caller {caller} has no session: {other:?}"))?;
    for id in 1..=each {
        match peer.call(id, "echo__echo", &json!({ "text": format!("{caller}-{id}") })).await {
            Answer::One(_) => {}
            other => return Err(format!("caller {caller}, call {id}: {other:?}")),
        }
    }
    Ok(())
}

/// Counts the audit's files, the lines in them, and the distinct arguments in those.
fn count(home: &Path) -> Result<(usize, usize, usize), String> {
    let (mut files, mut lines, mut hashes) = (0, 0, BTreeSet::new());
    for entry in std::fs::read_dir(home).map_err(|error| error.to_string())? {
        let path = entry.map_err(|error| error.to_string())?.path();
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("audit.jsonl")) {
            continue;
        }
        files += 1;
        for line in std::fs::read_to_string(&path).map_err(|error| error.to_string())?.lines() {
            let line: Value = serde_json::from_str(line).map_err(|error| format!("{error}: {line}"))?;
            if line["outcome"] != "ok" || line["server"] != "echo" {
                return Err(line.to_string());
            }
            lines += 1;
            hashes.insert(line["arguments"].to_string());
        }
    }
    Ok((files, lines, hashes.len()))
}
