//! The worst kinds of clients, all at once and for minutes, beside eight healthy ones: the healthy ones are served
//! nearly as if they were alone, and nothing of the others is left once they are gone (`docs/hazards.md` H49, H62, H100
//! to H107).
//!
//! The healthy clients have one principal, those that hoard sessions a second, all other bad ones a third or none. The
//! bad ones have the lowest priority (`nice -n 19`): the host is measured, not the competition for the core. All limits
//! have their defaults; only timeouts are shortened to seconds, so that the end can be awaited.

pub(crate) mod bad;
mod good;
pub(crate) mod server;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

use self::good::{Client, KINDS, Place, Seen, Times};
use crate::hostile::{end, memory, waited, worked};
use crate::process::{Process, below};
use crate::soak::{Plan, Verdict};

/// Above this share of time that the host waited for a core, percentiles of a quick run are not trusted.
const BUSY: f64 = 0.2;
/// A healthy call beside the bad clients may take half as long again as alone, and as long as the host works on this many
/// calls alone. A limit in milliseconds would judge the machine: the same host took 40 ms on one and 95 ms on another.
const CALLS: u32 = 1000;
/// How much memory may exceed that of the healthy phase: at most, and after the bad clients are gone.
const BOUND_KIB: u64 = 128 * 1024;
const LEFT_KIB: u64 = 32 * 1024;
/// How long memory may take to come back.
const MEMORY_BACK: Duration = Duration::from_secs(60);
/// How long processes may take to be gone. A call in flight has ten seconds (`limits.answer` of the stage), its session
/// ten more until it is idle (`sessionIdle`) and 2.5 until that is noticed; its process then lingers for a minute
/// (`docs/hazards.md` H101). That is 83 seconds, and a server that reads nothing meanwhile is given up only after a
/// while.
const PROCESSES_BACK: Duration = Duration::from_secs(120);
/// Descriptors that may come and go by themselves.
const DESCRIPTORS: usize = 16;
/// Enough for the bad clients, and for the host's `connections`.
const FILES: u64 = 8192;
/// The most memory of a host over stdio after an endless line.
const PIPE_KIB: u64 = 192 * 1024;

pub(crate) fn run(plan: &Plan) -> Verdict {
    raise_files()?;
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let tokens = ["good", "hoard", "bad"].map(|name| format!("{name}-{:016x}", plan.seed));
    let mut host = start(plan, home.path(), &tokens)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let verdict = LocalSet::new().block_on(&runtime, beside(plan, home.path(), &host, &tokens));
    end(&mut host.child);
    verdict
}

/// The host's use of what it could leak.
#[derive(Clone, Copy, Debug)]
struct Held {
    kib: u64,
    descriptors: usize,
    processes: usize,
}

impl Held {
    fn of(pid: u32) -> Result<Self, String> {
        let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).map_err(|error| error.to_string())?.count();
        Ok(Self { kib: memory(pid, "VmRSS:")?, descriptors, processes: below(pid).len() })
    }
}

async fn beside(plan: &Plan, home: &Path, host: &Program, tokens: &[String; 3]) -> Verdict {
    let (alone, attack) = if plan.whole { (30, 600) } else { (6, 40) };
    let (alone, attack) = (Duration::from_secs(alone), Duration::from_secs(attack));
    let pid = host.child.id();
    let place = Place { origin: host.origin.clone(), token: tokens[0].clone(), host: &plan.host, home };
    let seen = Rc::new(Seen::default());
    for (number, kind) in KINDS.into_iter().enumerate() {
        let client = Client::open(kind, &place, &seen).await?;
        tokio::task::spawn_local(client.run(number));
    }
    // The first calls create what stays: connections, buffers, servers.
    sleep(Duration::from_secs(2)).await;
    seen.take_times();
    let before = worked(pid)?;
    sleep(alone).await;
    let (quiet, idle) = (seen.take_times().ok_or("no call at all")?, Held::of(pid)?);
    let work = worked(pid)?.saturating_sub(before).div_f64(quiet.count as f64);
    // From here on, its peak is that of the attack.
    std::fs::write(format!("/proc/{pid}/clear_refs"), "5").map_err(|error| error.to_string())?;
    let (before, begun) = (waited(pid)?, Instant::now());
    let mut crowd = crowd(plan, home, host, tokens)?;
    let mut most = idle;
    while begun.elapsed() < attack {
        sleep(Duration::from_millis(500)).await;
        let now = Held::of(pid).map_err(|error| format!("the host is gone: {error}"))?;
        most.descriptors = most.descriptors.max(now.descriptors);
        most.processes = most.processes.max(now.processes);
    }
    let loud = seen.take_times().ok_or("no call was answered beside the bad clients")?;
    most.kib = memory(pid, "VmHWM:")?;
    let busy = waited(pid)?.saturating_sub(before).as_secs_f64() / begun.elapsed().as_secs_f64();
    let report = dismiss(&mut crowd).await?;
    let (back, last) = leave(pid, idle).await?;
    seen.end();
    let left = below(pid).iter().map(Process::name).collect();
    let run = Run { seen: &seen, quiet, work, loud, idle, most, last, left, back, report, busy };
    let wrong = run.wrong(plan.whole);
    let told = run.told();
    if wrong.is_empty() { Ok(told) } else { Err(format!("{}; {told}", wrong.join("; "))) }
}

/// Waits until nothing of the bad clients is left. Returns how long memory and the rest took to come back, and what the
/// host still holds.
async fn leave(pid: u32, idle: Held) -> Result<([Option<Duration>; 2], Held), String> {
    let begun = Instant::now();
    let mut back = [None; 2];
    loop {
        let now = Held::of(pid)?;
        let elapsed = begun.elapsed();
        if now.kib <= idle.kib + LEFT_KIB && elapsed <= MEMORY_BACK {
            back[0] = back[0].or(Some(elapsed));
        }
        if now.processes <= idle.processes && now.descriptors <= idle.descriptors + DESCRIPTORS {
            back[1] = Some(elapsed);
        }
        if elapsed > PROCESSES_BACK || back.iter().all(Option::is_some) {
            return Ok((back, now));
        }
        sleep(Duration::from_millis(250)).await;
    }
}

/// A finished run.
struct Run<'a> {
    seen: &'a Seen,
    quiet: Times,
    /// How long the host works on one call while there are no bad clients.
    work: Duration,
    loud: Times,
    idle: Held,
    most: Held,
    last: Held,
    /// Processes that are still alive.
    left: Vec<String>,
    /// When memory, and when descriptors and processes were back.
    back: [Option<Duration>; 2],
    report: Value,
    /// The share of time that the host waited for a core.
    busy: f64,
}

impl Run<'_> {
    fn is_judged(&self, whole: bool) -> bool {
        whole || self.busy < BUSY
    }

    fn grown(&self) -> u64 {
        self.most.kib.saturating_sub(self.idle.kib)
    }

    /// Lists every broken promise.
    fn wrong(&self, whole: bool) -> Vec<String> {
        let mut wrong: Vec<String> = self.seen.wrong().into_iter().collect();
        let gone = self.seen.gone.get();
        if gone > 0 {
            wrong.push(format!("{gone} × 404 for a session in use"));
        }
        let promised = self.quiet.p99.mul_f64(1.5) + self.work * CALLS;
        if self.is_judged(whole) && self.loud.p99 > promised {
            wrong.push(format!("p99 {} is over {}", millis(self.loud.p99), millis(promised)));
        }
        if self.grown() > BOUND_KIB {
            wrong.push(format!("{} MiB more is over {}", self.grown() >> 10, BOUND_KIB >> 10));
        }
        if self.back[0].is_none() {
            wrong.push(format!("memory is not back after {MEMORY_BACK:?}"));
        }
        if self.back[1].is_none() {
            let text = format!("descriptors or processes are not back: {}", self.left.join(", "));
            wrong.push(text);
        }
        for text in self.report["wrong"].as_array().into_iter().flatten() {
            wrong.push(text.as_str().unwrap_or_default().to_owned());
        }
        if let Some(pipe) = self.report["pipe"].as_u64().filter(|pipe| *pipe > PIPE_KIB) {
            wrong.push(format!("{} MiB for a line without end over stdio", pipe >> 10));
        }
        let did = self.report["did"].as_object().into_iter().flatten();
        let idle: Vec<&str> = did.filter(|(_, count)| **count == 0).map(|(name, _)| name.as_str()).collect();
        if !idle.is_empty() {
            wrong.push(format!("no attack by: {}", idle.join(", ")));
        }
        wrong
    }

    fn told(&self) -> String {
        let (quiet, loud, seen) = (&self.quiet, &self.loud, self.seen);
        let after = |time: Option<Duration>| time.map_or("never".to_owned(), |time| format!("in {} s", time.as_secs()));
        let note = if self.busy < BUSY { "" } else { ", the machine was busy" };
        format!(
            "{} kinds of bad clients beside {} healthy ones: p99 {} alone ({} of work a call) and {} beside ({} calls, {} at most, {}: {}{note}), \
             {} × 503, {} connections closed, {} listened anew, {} × 404; {} MiB at rest, {} MiB more at most, {} MiB more {}; \
             {} descriptors and {} processes, {} and {} at most, {} and {} {}; a line without end {} MiB",
            bad::COUNT,
            KINDS.len(),
            millis(quiet.p99),
            millis(self.work),
            millis(loud.p99),
            loud.count,
            millis(loud.most),
            loud.slowest.0,
            millis(loud.slowest.1),
            seen.refused.get(),
            seen.broken.get(),
            seen.anew.get(),
            seen.gone.get(),
            self.idle.kib >> 10,
            self.grown() >> 10,
            self.last.kib.saturating_sub(self.idle.kib) >> 10,
            after(self.back[0]),
            self.idle.descriptors,
            self.idle.processes,
            self.most.descriptors,
            self.most.processes,
            self.last.descriptors,
            self.last.processes,
            after(self.back[1]),
            self.report["pipe"].as_u64().unwrap_or_default() >> 10,
        )
    }
}

fn millis(time: Duration) -> String {
    format!("{:.2} ms", time.as_secs_f64() * 1000.0)
}

struct Program {
    child: Child,
    origin: String,
}

/// Starts the host over the servers of the stage.
fn start(plan: &Plan, home: &Path, tokens: &[String; 3]) -> Result<Program, String> {
    let soak = std::env::current_exe().map_err(|error| error.to_string())?;
    let servers = json!({
        "good": { "command": &plan.host, "args": ["__demo-server"] },
        "work": { "command": &soak, "args": [server::MODE] },
        "big": { "command": &soak, "args": [crate::sessions::SERVER] },
    });
    let hash = |token: &String| {
        let hash = Sha256::digest(token.as_bytes());
        format!("sha256:{}", hash.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
    };
    let [good, hoard, bad] = tokens.each_ref().map(hash);
    let config = json!({ "mcpServers": servers, "host": {
        "auth": { "type": "bearer", "clients": { "good": good, "hoard": hoard, "bad": bad } },
        "limits": { "answer": "10s", "sessionIdle": "10s" } } });
    let file = home.join("mcp.json");
    std::fs::write(&file, config.to_string()).map_err(|error| error.to_string())?;
    std::fs::write(stdio_config(home), json!({ "mcpServers": servers }).to_string())
        .map_err(|error| error.to_string())?;
    let mut command = Command::new(&plan.host);
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&file);
    environment(&mut command, home);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| error.to_string())?;
    let mut lines = BufReader::new(child.stdout.take().ok_or("no stdout")?).lines();
    // The host announces each server when it is ready; waits for all.
    let (mut origin, mut ready) = (None, 0);
    while let Some(Ok(line)) = lines.next() {
        let url = line.split_whitespace().find(|word| word.starts_with("http://"));
        origin = origin.or_else(|| url.map(|url| url.trim_end_matches("/mcp").to_owned()));
        ready += usize::from(line.contains(" connected "));
        if ready >= 3 {
            break;
        }
    }
    std::thread::spawn(move || lines.map_while(Result::ok).count());
    match origin.filter(|_| ready >= 3) {
        Some(origin) => Ok(Program { child, origin }),
        None => {
            end(&mut child);
            Err("the host did not start".to_owned())
        }
    }
}

/// Starts the bad clients, in a process that ends with its standard input.
fn crowd(plan: &Plan, home: &Path, host: &Program, tokens: &[String; 3]) -> Result<Child, String> {
    let soak = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new("nice");
    command.args(["-n", "19"]).arg(soak).arg(bad::MODE).arg(host.origin.trim_start_matches("http://"));
    command.args(&tokens[1..]).arg(&plan.host).arg(home);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().map_err(|error| format!("nice: {error}"))
}

/// Ends them, and returns their report.
async fn dismiss(crowd: &mut Child) -> Result<Value, String> {
    drop(crowd.stdin.take());
    let mut out = crowd.stdout.take().ok_or("no stdout")?;
    let read = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        out.read_to_string(&mut text).map(|_| text)
    });
    let text = timeout(Duration::from_secs(20), read).await;
    end(crowd);
    let text = text.map_err(|_| "the bad clients do not end")?.map_err(|error| error.to_string())?;
    let text = text.map_err(|error| error.to_string())?;
    serde_json::from_str(&text).map_err(|error| format!("the bad clients told {text:?}: {error}"))
}

/// Writes the config of the hosts over stdio.
fn stdio_config(home: &Path) -> PathBuf {
    home.join("stdio.json")
}

/// Sets the environment of a host.
fn environment(command: &mut Command, home: &Path) {
    command.current_dir(home).env_clear().env("HOME", home).env("XDG_RUNTIME_DIR", home);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
}

/// Raises the limit of descriptors as far as possible: this stage needs thousands of connections.
pub(crate) fn raise_files() -> Result<(), String> {
    let maximum = getrlimit(Resource::Nofile).maximum;
    if maximum.is_some_and(|maximum| maximum < FILES) {
        return Err(format!("{FILES} descriptors are wanted: `ulimit -Hn` says {maximum:?}"));
    }
    let current = maximum.map_or(FILES, |maximum| maximum.min(1 << 16));
    setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum })
        .map_err(|error| format!("more descriptors: {error}"))
}
