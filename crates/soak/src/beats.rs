//! Heartbeats of the host that race answers (`host.heartbeat`): a server answers each call about when its first or second
//! heartbeat is due. Clients over stdio, which have one stream for everything, get no heartbeat after an answer, each under
//! the token of its call, and with a number that rises.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::joined::{self, Joined};
use crate::kill9::Chance;
use crate::soak::{Plan, Verdict};

/// The host's shortest heartbeat.
const BEAT: Duration = Duration::from_secs(1);
/// How long before and after a heartbeat answers come.
const AROUND: Duration = Duration::from_millis(20);
/// Clients through relays to a daemon, and clients with a host of their own.
const CLIENTS: [usize; 2] = [3, 1];
/// Calls of one client at once.
const AT_ONCE: usize = 250;
/// How long to wait for a message, in the end for one too many.
const PATIENCE: Duration = Duration::from_secs(30);
const LATE: Duration = Duration::from_millis(2500);

/// The argument that makes this program the server.
pub(crate) const SERVER: &str = "beats-server";

/// That server: answers calls side by side, each as late as it asks.
pub(crate) fn serve() -> std::io::Result<()> {
    let (says, said) = mpsc::channel::<(Instant, u64)>();
    std::thread::spawn(move || answer(&said));
    for line in std::io::stdin().lock().lines() {
        let Ok(message) = serde_json::from_str::<Value>(&line?) else { continue };
        let Some(id) = message["id"].as_u64() else { continue };
        let result = match message["method"].as_str() {
            Some("initialize") => json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "tools": {} },
                "serverInfo": { "name": "beats", "version": "1" },
            }),
            Some("tools/list") => json!({ "tools": [{ "name": "wait", "inputSchema": { "type": "object" } }] }),
            Some("tools/call") => {
                let micros = message["params"]["arguments"]["micros"].as_u64().unwrap_or_default();
                let _ = says.send((Instant::now() + Duration::from_micros(micros), id));
                continue;
            }
            _ => json!({}),
        };
        say(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))?;
    }
    Ok(())
}

fn say(message: &Value) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{message}")?;
    output.flush()
}

/// Answers each call at its time.
fn answer(said: &mpsc::Receiver<(Instant, u64)>) {
    let mut waiting = BinaryHeap::new();
    loop {
        let next = waiting.peek().map_or(PATIENCE, |Reverse((at, _)): &Reverse<(Instant, u64)>| {
            at.saturating_duration_since(Instant::now())
        });
        match said.recv_timeout(next) {
            Ok(call) => waiting.push(Reverse(call)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        while waiting.peek().is_some_and(|Reverse((at, _))| *at <= Instant::now()) {
            let Some(Reverse((_, id))) = waiting.pop() else { break };
            let result = json!({ "content": [{ "type": "text", "text": "done" }] });
            if say(&json!({ "jsonrpc": "2.0", "id": id, "result": result })).is_err() {
                return;
            }
        }
    }
}

pub(crate) fn run(plan: &Plan) -> Verdict {
    let calls = if plan.whole { 100_000 } else { 6_000 };
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let config = json!({
        "mcpServers": { "it": { "command": own, "args": [SERVER] } },
        "host": { "heartbeat": format!("{}s", BEAT.as_secs()) },
    });
    let file = home.path().join("mcp.json");
    std::fs::write(&file, config.to_string()).map_err(|error| error.to_string())?;
    let mut daemon = daemon(plan, home.path(), &file)?;
    let outcome = load(plan, home.path(), &file, calls);
    let _ = daemon.kill();
    let _ = daemon.wait();
    let sum = outcome?;
    let text = format!("{calls} calls, {} heartbeats, none late, none that does not rise", sum.beats);
    // Half of the answers come after a heartbeat.
    if sum.beats > calls / 4 { Ok(text) } else { Err(format!("{text}: too few to say anything")) }
}

/// Starts the daemon and waits until it listens.
fn daemon(plan: &Plan, home: &Path, config: &Path) -> Result<Child, String> {
    let mut command = Command::new(&plan.host);
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(config).current_dir(home);
    command.env_clear().env("HOME", home).env("XDG_RUNTIME_DIR", home);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut daemon = command.spawn().map_err(|error| error.to_string())?;
    let mut lines = BufReader::new(daemon.stdout.take().ok_or("no stdout")?).lines();
    let first = lines.next().and_then(Result::ok).unwrap_or_default();
    // Reads its output to the end, so that it never blocks on a full pipe.
    std::thread::spawn(move || lines.map_while(Result::ok).count());
    if first.contains("http://") { Ok(daemon) } else { Err(format!("the daemon said {first:?}")) }
}

/// What clients have seen.
#[derive(Debug, Default)]
struct Sum {
    beats: usize,
}

fn load(plan: &Plan, home: &Path, config: &Path, calls: usize) -> Result<Sum, String> {
    let each = calls / CLIENTS.iter().sum::<usize>();
    std::thread::scope(|scope| {
        let mut clients = Vec::new();
        for (kind, count) in CLIENTS.into_iter().enumerate() {
            for number in 0..count {
                let chance = Chance(plan.seed ^ (kind * 100 + number + 1) as u64);
                clients.push(scope.spawn(move || match kind {
                    0 => joined_client(plan, home, config, (each, chance)),
                    _ => own_client(plan, home, config, (each, chance)),
                }));
            }
        }
        let mut sum = Sum::default();
        for client in clients {
            sum.beats += client.join().map_err(|_| "a client panicked")??.beats;
        }
        Ok(sum)
    })
}

/// Runs a client through a relay.
fn joined_client(plan: &Plan, home: &Path, config: &Path, load: (usize, Chance)) -> Result<Sum, String> {
    let mut relay = Joined::start(joined::command(&plan.host, home, config))?;
    let (input, output) = relay.pipes()?;
    let sum = client(input, output, load)?;
    relay.end()?;
    Ok(sum)
}

/// Runs a client with a host of its own.
fn own_client(plan: &Plan, home: &Path, config: &Path, load: (usize, Chance)) -> Result<Sum, String> {
    let mut command = joined::command(&plan.host, home, config);
    command.arg("--own").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut host = command.spawn().map_err(|error| error.to_string())?;
    let (input, output) = host.stdin.take().zip(host.stdout.take()).ok_or("no pipes")?;
    let done = client(input, output, load);
    if done.is_err() {
        let _ = host.kill();
    }
    let _ = host.wait();
    done
}

/// Makes calls, several at once, and checks everything that comes. Drops the input once every call is answered and nothing
/// more came.
fn client(
    mut input: impl std::io::Write,
    output: impl std::io::Read + Send + 'static,
    (calls, mut chance): (usize, Chance),
) -> Result<Sum, String> {
    let (says, said) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if says.send(line).is_err() {
                return;
            }
        }
    });
    let mut say = |message: &Value| writeln!(input, "{message}").map_err(|error| error.to_string());
    let who = json!({ "name": "beats", "version": "1" });
    let params = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who });
    say(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params }))?;
    said.recv_timeout(PATIENCE).map_err(|_| "no answer to initialize")?;
    say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
    let mut sum = Sum::default();
    // Each call under way, and its last progress.
    let mut open: HashMap<u64, f64> = HashMap::new();
    let mut begun = 0;
    loop {
        while open.len() < AT_ONCE && begun < calls {
            begun += 1;
            let id = begun as u64;
            let beat = BEAT * u32::try_from(1 + chance.below(2)).unwrap_or(1);
            let around = Duration::from_micros(chance.below(2 * AROUND.as_micros() as usize) as u64);
            let micros = (beat + around).saturating_sub(AROUND).as_micros() as u64;
            let params =
                json!({ "name": "it__wait", "arguments": { "micros": micros }, "_meta": { "progressToken": id } });
            say(&json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }))?;
            open.insert(id, f64::MIN);
        }
        let is_over = open.is_empty();
        let line = match said.recv_timeout(if is_over { LATE } else { PATIENCE }) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) if is_over => return Ok(sum),
            Err(_) => return Err(format!("{} calls have no answer", open.len())),
        };
        let message: Value = serde_json::from_str(&line).map_err(|error| format!("{error}: {line}"))?;
        let params = &message["params"];
        match message["method"].as_str() {
            Some("notifications/progress") => {
                let token = params["progressToken"].as_u64().ok_or_else(|| format!("no token of ours: {line}"))?;
                let last = open.get_mut(&token).ok_or_else(|| format!("a heartbeat after the answer: {line}"))?;
                let progress = params["progress"].as_f64().ok_or_else(|| format!("no number: {line}"))?;
                if progress <= *last {
                    return Err(format!("progress after {last}: {line}"));
                }
                *last = progress;
                sum.beats += usize::from(params["_meta"]["mcp-host/heartbeat"].is_object());
            }
            Some(_) => {}
            None => {
                let id = message["id"].as_u64().ok_or_else(|| format!("no id of ours: {line}"))?;
                open.remove(&id).ok_or_else(|| format!("an answer too many: {line}"))?;
                if message["result"]["content"][0]["text"] != "done" {
                    return Err(format!("call {id} got {line}"));
                }
            }
        }
    }
}
