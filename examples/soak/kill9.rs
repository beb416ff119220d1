//! `kill -9` of the host in random states: two seconds later nothing of it may be alive (`hazards.md` H13).

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::process::{self, Process};
use crate::servers;
use crate::soak::{self, Plan, Verdict};

const PROMISE: Duration = Duration::from_secs(2);
/// Rounds at the same time, so that hosts and guards see each other's processes.
const BESIDE: usize = 4;

pub(crate) fn run(plan: &Plan) -> Verdict {
    let rounds = if plan.whole { 1000 } else { 100 };
    let next = AtomicUsize::new(0);
    let (times, failures) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..BESIDE {
            scope.spawn(|| {
                loop {
                    let round = next.fetch_add(1, Ordering::Relaxed);
                    if round >= rounds {
                        return;
                    }
                    match self::round(plan, round) {
                        Ok(time) => times.lock().expect("no panic inside").push(time),
                        Err(wrong) => failures.lock().expect("no panic inside").push(format!("round {round}: {wrong}")),
                    }
                }
            });
        }
    });
    let (mut times, failures) = (times.into_inner().expect("no panic"), failures.into_inner().expect("no panic"));
    times.sort();
    let seen: usize = times.iter().map(|(_, seen)| seen).sum();
    match failures.as_slice() {
        [] => Ok(format!(
            "{rounds} rounds, {seen} processes, 0 survivors; gone after {:?} (median), {:?} (longest)",
            times[times.len() / 2].0,
            times[times.len() - 1].0
        )),
        _ => {
            failures.iter().for_each(|wrong| soak::say(&format!("       {wrong}")));
            Err(format!("{} of {rounds} rounds with survivors", failures.len()))
        }
    }
}

/// One life of a host; how long its processes outlived it, and how many they were.
fn round(plan: &Plan, round: usize) -> Result<(Duration, usize), String> {
    let mut chance = Chance(plan.seed ^ (round as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let word = format!("soak-{}-{:x}-{round}", std::process::id(), plan.seed);
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = home.path().join("mcp.json");
    std::fs::write(&file, servers::config(&plan.host, &word).to_string()).map_err(|error| error.to_string())?;
    let mut host = start(plan, home.path(), &file).map_err(|error| error.to_string())?;
    let pid = host.id();
    // Now and then at once, mostly while servers start or serve.
    let life = Duration::from_millis([0, 3, 40, 400, 1200][chance.below(5)]).mul_f64(0.5 + chance.unit());
    let until = Instant::now() + life;
    let mut input = host.stdin.take();
    if chance.below(2) == 0 {
        for line in TALK {
            let _ = input.as_mut().map(|input| writeln!(input, "{line}"));
        }
    }
    process::pause(until.saturating_duration_since(Instant::now()));
    match chance.below(6) {
        // In the middle of its shutdown,
        0 => signal(&host, rustix::process::Signal::TERM),
        1 => drop(input.take()),
        // or of reading its config again.
        2 if life.as_millis() > 100 => signal(&host, rustix::process::Signal::HUP),
        _ => {}
    }
    process::pause(Duration::from_millis(chance.below(40) as u64));
    // Stopped, its tree stands still but for the servers; it is as dead as can be a moment later.
    let known = process::below(pid);
    let _ = host.kill();
    let gone = process::wait_gone(&known, &word, PROMISE);
    let _ = host.wait();
    match gone {
        Ok(time) => Ok((time, known.len())),
        Err(left) => {
            let names: BTreeSet<String> = left.iter().map(Process::name).collect();
            left.iter().for_each(Process::kill);
            Err(format!("killed after {life:?}: {names:?}"))
        }
    }
}

fn start(plan: &Plan, home: &Path, config: &Path) -> std::io::Result<Child> {
    let mut command = Command::new(&plan.host);
    command.arg("stdio").arg("--config").arg(config).current_dir(home);
    command.env_clear().env("HOME", home).env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
}

fn signal(host: &Child, signal: rustix::process::Signal) {
    if let Some(pid) = i32::try_from(host.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Random enough, and the same again for the same seed.
#[derive(Debug)]
pub(crate) struct Chance(pub(crate) u64);

impl Chance {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    /// From 0 to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A client that says hello, asks for all tools and calls one that takes a while.
const TALK: [&str; 4] = [
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"soak","version":"1"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"plain__countdown","arguments":{"from":5}}}"#,
];
