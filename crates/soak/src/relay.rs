//! What a relay costs (`mcp-host stdio` beside a daemon of the same config): its private memory while messages of 16
//! MiB pass, and the time from its start to the response to `initialize`.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::peer;
use crate::process;
use crate::soak::{Plan, Verdict};

/// Relays whose start is timed.
const STARTS: usize = 40;
const STARTS_WHOLE: usize = 400;
/// From exec to the response to `initialize`, in the median.
const START: Duration = Duration::from_millis(5);
/// Where the machine is slow, the same in starts of the server alone, which is a small program that does nothing else.
const STARTS_OF_SERVER: u32 = 4;
/// The most memory that a relay may have written, in KiB. Pages of the program's file are not private: the system keeps
/// them once for all processes.
const PRIVATE: u64 = 1024;
/// How much more it may be if the program was built without link-time optimization: its tables of addresses are larger, and
/// the loader writes to them.
const TABLES: u64 = 512;
/// The most resident memory of a relay, shared pages included, in KiB: mostly the program's file.
const RESIDENT: u64 = 6 * 1024;
/// Bytes of a long text: with its envelope, the message has 16 MiB.
const LONG: usize = (16 << 20) - (1 << 10);
const ROUNDS: usize = 4;

/// The argument that makes this program the server behind the daemon.
pub(crate) const SERVER: &str = "relay-server";

/// That server: echoes texts of any length.
pub(crate) fn serve() -> std::io::Result<()> {
    let tool = || json!({ "name": "echo", "inputSchema": { "type": "object" } });
    peer::serve("relay", tool, |params| params["arguments"]["text"].clone())
}

pub(crate) fn run(plan: &Plan) -> Verdict {
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let server = json!({ "command": own, "args": [SERVER] });
    let config =
        json!({ "mcpServers": { "echo": server }, "host": { "limits": { "message": "32MiB", "body": "32MiB" } } });
    fs::write(home.path().join("mcp.json"), config.to_string()).map_err(|error| error.to_string())?;
    let mut daemon = command(plan, home.path(), &["serve", "--quiet", "--listen", "127.0.0.1:0"]);
    let mut daemon = daemon.stdout(Stdio::null()).spawn().map_err(|error| error.to_string())?;
    let outcome = measure(plan, home.path());
    let _ = daemon.kill();
    let _ = daemon.wait();
    outcome
}

fn command(plan: &Plan, home: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(&plan.host);
    command.args(args).args(["--config", "mcp.json"]).current_dir(home).env_clear().env("HOME", home);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::null()).stderr(Stdio::null());
    command
}

fn measure(plan: &Plan, home: &Path) -> Verdict {
    let end = Instant::now() + Duration::from_secs(10);
    while !command(plan, home, &["status"]).stdout(Stdio::null()).status().is_ok_and(|status| status.success()) {
        if Instant::now() > end {
            return Err("the daemon does not answer".to_owned());
        }
    }
    let starts = if plan.whole { STARTS_WHOLE } else { STARTS };
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let (mut took, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..starts {
        let begun = Instant::now();
        let relay = Relay::start(plan, home)?;
        took.push(begun.elapsed());
        relay.end()?;
        let begun = Instant::now();
        let mut server = Command::new(&own);
        server.arg(SERVER).stderr(Stdio::null());
        let server = Relay::of(server)?;
        alone.push(begun.elapsed());
        server.end()?;
    }
    took.sort();
    alone.sort();
    let median = took[took.len() / 2];
    let slowest = took[took.len() * 99 / 100];
    let alone = alone[alone.len() / 2];
    // Another relay that has done the same: the pages of the program's file that all relays have in common are shared.
    let mut beside = Relay::start(plan, home)?;
    beside.echo(LONG)?;
    let mut relay = Relay::start(plan, home)?;
    relay.echo(1)?;
    let (private, resident) = passed(&mut relay)?;
    relay.end()?;
    beside.end()?;
    let text = format!(
        "initialize p50 {:.1} ms, p99 {:.1} ms ({:.1} ms by the server alone); {private} KiB private and {resident} KiB resident at most, with messages of 16 MiB",
        median.as_secs_f64() * 1e3,
        slowest.as_secs_f64() * 1e3,
        alone.as_secs_f64() * 1e3,
    );
    let soon = START.max(alone * STARTS_OF_SERVER);
    let most = if plan.untrimmed { PRIVATE + TABLES } else { PRIVATE };
    if median > soon || private > most || resident > RESIDENT {
        return Err(format!("{text}; promised: {:.1} ms, {most} KiB, {RESIDENT} KiB", soon.as_secs_f64() * 1e3));
    }
    Ok(text)
}

/// Returns the most memory that a relay has while long messages pass, private and resident, in KiB.
fn passed(relay: &mut Relay) -> Result<(u64, u64), String> {
    let (pid, over) = (relay.child.id(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let looks = scope.spawn(|| {
            let mut most = (0, 0);
            while !over.load(Ordering::Relaxed) {
                let (private, resident) = process::halted(pid, || memory(pid));
                most = (most.0.max(private), most.1.max(resident));
                process::pause(Duration::from_millis(1));
            }
            most
        });
        let outcome = (0..ROUNDS).try_for_each(|_| relay.echo(LONG));
        over.store(true, Ordering::Relaxed);
        let most = looks.join().map_err(|_| "the memory watcher panicked")?;
        outcome.map(|()| most)
    })
}

/// Returns the private and the resident memory of a process, in KiB.
fn memory(pid: u32) -> (u64, u64) {
    let text = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
    let of = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or_default()
    };
    (of("Private_Dirty:"), of("Rss:"))
}

/// A relay and its client.
struct Relay {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Relay {
    /// Starts a relay, and waits until it has answered `initialize`.
    fn start(plan: &Plan, home: &Path) -> Result<Self, String> {
        Self::of(command(plan, home, &["stdio"]))
    }

    /// Starts what a command runs in the same way.
    fn of(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|error| error.to_string())?;
        let (input, output) = (child.stdin.take().ok_or("no stdin")?, child.stdout.take().ok_or("no stdout")?);
        let mut relay = Self { child, input, output: BufReader::new(output) };
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "soak", "version": "1" },
        });
        let answer = relay.ask("initialize", &params)?;
        if !answer["result"].is_object() {
            return Err(format!("no session: {answer}"));
        }
        relay.say(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(relay)
    }

    fn say(&mut self, message: &Value) -> Result<(), String> {
        writeln!(self.input, "{message}").map_err(|error| error.to_string())
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<Value, String> {
        self.say(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))?;
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).map_err(|error| error.to_string())? == 0 {
                return Err("the relay ended".to_owned());
            }
            let message: Value = serde_json::from_str(&line).map_err(|error| error.to_string())?;
            if message["id"] == 1 && message.get("method").is_none() {
                return Ok(message);
            }
        }
    }

    /// Sends `bytes` bytes there and back.
    fn echo(&mut self, bytes: usize) -> Result<(), String> {
        let arguments = json!({ "text": "x".repeat(bytes) });
        let answer = self.ask("tools/call", &json!({ "name": "echo__echo", "arguments": arguments }))?;
        let text = answer["result"]["content"][0]["text"].as_str().unwrap_or_default();
        match text.len() == bytes {
            true => Ok(()),
            false => Err(format!("{} bytes of {bytes} came back", text.len())),
        }
    }

    /// Ends it like a client does.
    fn end(self) -> Result<(), String> {
        let Self { mut child, input, .. } = self;
        drop(input);
        let status = child.wait().map_err(|error| error.to_string())?;
        if status.success() { Ok(()) } else { Err(format!("a relay ended with {status}")) }
    }
}
