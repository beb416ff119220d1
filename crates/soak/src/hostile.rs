//! One server does its worst while another is called: the host's memory stays under a bound, and the other server's
//! calls take no longer than they do alone (`docs/hazards.md` H3, H6, H21, H27, H50).
//!
//! Phases alone and under attack alternate, so that other load on the machine affects both; the median of all rounds
//! counts. A quick run judges percentiles only if the host did not have to wait for a core. The hostile processes have
//! the lowest priority (`nice -n 19`): the host is measured, not the competition for the core.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::rude;
use crate::soak::{Plan, Verdict};

/// Each attack: its name, the server, and the tool that its clients call meanwhile.
const ATTACKS: [(&str, &str, Option<&str>); 5] = [
    ("an endless line", "line", None),
    ("a flood", "flood", None),
    ("never reads", "deaf", Some("deaf__go")),
    ("an endless event", "http", Some("http__event")),
    ("an endless body", "http", Some("http__body")),
];
/// Above this share of time that the host waited for a core, percentiles of a quick run are not trusted.
const BUSY: f64 = 0.05;
/// Concurrent callers of the hostile server.
const CALLERS: usize = 8;
/// Time between two calls of the good server.
const PACE: Duration = Duration::from_millis(3);
/// The bound over the memory at rest: three messages of the largest size and a little.
const BOUND_KIB: u64 = (3 * 16 + 16) * 1024;
/// How much longer a call may take beside an attack, besides half as long again as alone: this time, or as long as the
/// host works on so many calls alone, whichever is longer. A fixed time alone would judge the machine.
const SLACK: Duration = Duration::from_millis(5);
const SLACK_CALLS: u32 = 50;

pub(crate) fn run(plan: &Plan) -> Verdict {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    runtime.block_on(attack(plan))
}

async fn attack(plan: &Plan) -> Verdict {
    let (rounds, phase) = if plan.whole { (7, Duration::from_secs(8)) } else { (3, Duration::from_millis(1500)) };
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let (mut web, port) = web(home.path())?;
    let mut host = start(plan, home.path(), port)?;
    let run = async {
        let url = host.url.clone();
        let mut good = Caller::open(&url).await?;
        let pid = host.child.id();
        // The first calls create what stays: connections, buffers.
        good.timed("good__echo", Duration::from_secs(1)).await?;
        let idle = memory(pid, "VmRSS:")?;
        let (mut told, mut most) = (Vec::new(), 0);
        for (name, server, tool) in ATTACKS {
            // From here on, its peak is that of this attack.
            std::fs::write(format!("/proc/{pid}/clear_refs"), "5").map_err(|error| error.to_string())?;
            let (before, begun) = (waited(pid)?, Instant::now());
            let worst = compare((&mut good, pid), (&url, tool), &home.path().join(server), rounds, phase).await?;
            let waited = waited(pid)?.saturating_sub(before).as_secs_f64() / begun.elapsed().as_secs_f64();
            // If the host has to wait for a core, a few seconds say more about that than about the host.
            let is_judged = plan.whole || waited < BUSY;
            if is_judged && worst.excess > 1.0 {
                return Err(format!("{name}: {worst}; at most {:.1} ms are promised", millis(worst.promised)));
            }
            let worst = if is_judged { worst.to_string() } else { format!("{worst} (the machine was busy)") };
            let grown = memory(pid, "VmHWM:")?.saturating_sub(idle);
            told.push(format!("{name} {worst} {} MiB", grown >> 10));
            most = most.max(grown);
        }
        let told = format!(
            "{} MiB at rest, {} MiB more at most; p99 alone and beside, and memory: {}",
            idle >> 10,
            most >> 10,
            told.join(", ")
        );
        if most > BOUND_KIB { Err(format!("{told}; {} MiB more are promised", BOUND_KIB >> 10)) } else { Ok(told) }
    };
    let outcome = tokio::time::timeout(Duration::from_secs(1800), run).await;
    end(&mut host.child);
    end(&mut web);
    outcome.unwrap_or_else(|_| Err("it hangs".to_owned()))
}

/// The 99th percentiles of one attack, in its median round.
struct Worst {
    alone: Duration,
    beside: Duration,
    promised: Duration,
    /// Relative to the promised bound.
    excess: f64,
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

impl std::fmt::Display for Worst {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1}/{:.1} ms", millis(self.alone), millis(self.beside))
    }
}

async fn compare(
    (good, pid): (&mut Caller, u32),
    victims: (&str, Option<&str>),
    flag: &Path,
    rounds: usize,
    phase: Duration,
) -> Result<Worst, String> {
    let mut all = Vec::new();
    for _ in 0..rounds {
        let (worked_before, calls_before) = (worked(pid)?, good.calls);
        let alone = good.timed("good__echo", phase).await?;
        let calls = u32::try_from(good.calls - calls_before).unwrap_or(u32::MAX).max(1);
        let each = worked(pid)?.saturating_sub(worked_before) / calls;
        std::fs::write(flag, "").map_err(|error| error.to_string())?;
        let over = Arc::new(AtomicBool::new(false));
        let suffered = Arc::new(AtomicUsize::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        if let Some(tool) = victims.1 {
            for _ in 0..CALLERS {
                tasks.spawn(suffer(victims.0.to_owned(), tool.to_owned(), over.clone(), suffered.clone()));
            }
        }
        let beside = good.timed("good__echo", phase).await;
        std::fs::remove_file(flag).map_err(|error| error.to_string())?;
        over.store(true, Ordering::Relaxed);
        let suffering = async { while tasks.join_next().await.is_some() {} };
        tokio::time::timeout(Duration::from_secs(20), suffering)
            .await
            .map_err(|_| "a caller waits forever".to_owned())?;
        let beside = beside?;
        if victims.1.is_some() && suffered.load(Ordering::Relaxed) == 0 {
            return Err("the hostile server got no calls: there was no attack".to_owned());
        }
        let promised = alone.mul_f64(1.5) + SLACK.max(each * SLACK_CALLS);
        let excess = beside.as_secs_f64() / promised.as_secs_f64();
        all.push(Worst { alone, beside, promised, excess });
    }
    all.sort_by(|a, b| a.excess.total_cmp(&b.excess));
    let middle = all.len() / 2;
    Ok(all.swap_remove(middle))
}

/// Calls the hostile server until the phase is over, ignoring the results.
async fn suffer(url: String, tool: String, over: Arc<AtomicBool>, suffered: Arc<AtomicUsize>) {
    let Ok(mut caller) = Caller::open(&url).await else { return };
    let text = "x".repeat(if tool.starts_with("deaf") { 100_000 } else { 10 });
    while !over.load(Ordering::Relaxed) {
        let arguments = json!({ "text": text });
        let _ = tokio::time::timeout(Duration::from_millis(500), caller.call(&tool, &arguments)).await;
        suffered.fetch_add(1, Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A client with a session.
struct Caller {
    client: Client<HttpConnector, Full<bytes::Bytes>>,
    url: String,
    session: Option<String>,
    calls: u64,
}

impl Caller {
    async fn open(url: &str) -> Result<Self, String> {
        let client = Client::builder(TokioExecutor::new()).build_http();
        let mut caller = Self { client, url: url.to_owned(), session: None, calls: 0 };
        let info = json!({ "name": "soak", "version": "1" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info });
        caller.post(&json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello })).await?;
        caller.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await?;
        Ok(caller)
    }

    async fn call(&mut self, tool: &str, arguments: &Value) -> Result<String, String> {
        self.calls += 1;
        let params = json!({ "name": tool, "arguments": arguments });
        self.post(&json!({ "jsonrpc": "2.0", "id": self.calls, "method": "tools/call", "params": params })).await
    }

    /// Calls at a steady pace for `phase`, and returns the 99th percentile.
    async fn timed(&mut self, tool: &str, phase: Duration) -> Result<Duration, String> {
        let (begun, mut times) = (Instant::now(), Vec::new());
        let mut pace = tokio::time::interval(PACE);
        pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while begun.elapsed() < phase {
            pace.tick().await;
            let sent = Instant::now();
            let answer = self.call(tool, &json!({ "text": "hello" })).await?;
            times.push(sent.elapsed());
            if !answer.contains("hello") || answer.contains("isError\":true") {
                return Err(format!("the good server answered {answer}"));
            }
        }
        times.sort_unstable();
        times.get(times.len() * 99 / 100).copied().ok_or_else(|| "no call at all".to_owned())
    }

    async fn post(&mut self, message: &Value) -> Result<String, String> {
        let mut request = hyper::Request::post(&self.url)
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream");
        if let Some(session) = &self.session {
            request = request.header("mcp-session-id", session).header("mcp-protocol-version", "2025-11-25");
        }
        let request = request.body(Full::new(message.to_string().into())).map_err(|error| error.to_string())?;
        let response = self.client.request(request).await.map_err(|error| error.to_string())?;
        if let Some(id) = response.headers().get("mcp-session-id").and_then(|id| id.to_str().ok()) {
            self.session = Some(id.to_owned());
        }
        let status = response.status();
        let body = response.into_body().collect().await.map_err(|error| error.to_string())?.to_bytes();
        let body = String::from_utf8_lossy(&body).into_owned();
        if status.is_success() { Ok(body) } else { Err(format!("{status}: {body}")) }
    }
}

struct Program {
    child: Child,
    url: String,
}

/// Starts the host over the good server and all hostile ones.
fn start(plan: &Plan, home: &Path, port: u16) -> Result<Program, String> {
    let soak = std::env::current_exe().map_err(|error| error.to_string())?;
    let restart = json!({ "minDelay": "50ms", "maxDelay": "200ms", "maxRetries": 1_000_000 });
    let pipe = |kind: &str| {
        json!({ "command": "nice", "args": ["-n", "19", &soak, rude::SERVER, kind, home.join(kind)],
            "restart": restart, "callTimeout": "2s" })
    };
    let web =
        json!({ "type": "http", "url": format!("http://127.0.0.1:{port}/mcp"), "era": "legacy", "callTimeout": "10s" });
    let servers = json!({ "good": { "command": &plan.host, "args": ["__demo-server"] }, "line": pipe("line"),
        "flood": pipe("flood"), "deaf": pipe("deaf"), "http": web });
    let file = home.join("mcp.json");
    std::fs::write(&file, json!({ "mcpServers": servers }).to_string()).map_err(|error| error.to_string())?;
    let mut command = Command::new(&plan.host);
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&file).current_dir(home);
    command.env_clear().env("HOME", home).env("XDG_RUNTIME_DIR", home);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
    // The host announces each server when it is ready; waits for all five.
    let mut url = None;
    let mut ready = 0;
    while let Some(Ok(line)) = lines.next() {
        url = url.or_else(|| line.split_whitespace().find(|word| word.starts_with("http://")).map(str::to_owned));
        ready += usize::from(line.contains(" connected "));
        if ready >= 5 {
            break;
        }
    }
    std::thread::spawn(move || lines.map_while(Result::ok).count());
    match url {
        Some(url) => Ok(Program { child, url }),
        None => {
            end(&mut child);
            Err("the host said nothing".to_owned())
        }
    }
}

/// Starts the hostile server behind a URL, and returns its port. It ends with its standard input.
fn web(home: &Path) -> Result<(Child, u16), String> {
    let soak = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(soak).args([rude::SERVER, "http"]).arg(home.join("http"));
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|error| format!("nice: {error}"))?;
    let mut line = String::new();
    let mut out = BufReader::new(child.stdout.take().ok_or("no stdout")?);
    out.read_line(&mut line).map_err(|error| error.to_string())?;
    let port = line.trim().parse().map_err(|_| format!("no port: {line:?}"))?;
    std::thread::spawn(move || out.read_to_end(&mut Vec::new()));
    Ok((child, port))
}

/// Ends a process of this stage, and waits for it.
pub(crate) fn end(child: &mut Child) {
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(20) && matches!(child.try_wait(), Ok(None)) {
        crate::process::pause(Duration::from_millis(10));
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Returns a line of `/proc/PID/status`, in KiB.
pub(crate) fn memory(pid: u32, name: &str) -> Result<u64, String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(|error| error.to_string())?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("no such line")?;
    line.trim().trim_end_matches(" kB").trim().parse().map_err(|_| format!("no number: {line}"))
}

/// Returns how long the host was ready to run but had no core.
pub(crate) fn waited(pid: u32) -> Result<Duration, String> {
    scheduled(pid, 1)
}

/// Returns how long the host's first thread, which serves all clients, has had a core.
pub(crate) fn worked(pid: u32) -> Result<Duration, String> {
    scheduled(pid, 0)
}

fn scheduled(pid: u32, field: usize) -> Result<Duration, String> {
    let path = format!("/proc/{pid}/schedstat");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let nanos = text.split_whitespace().nth(field).and_then(|nanos| nanos.parse().ok());
    nanos.map(Duration::from_nanos).ok_or(format!("{path}: {text}"))
}
