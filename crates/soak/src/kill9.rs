//! `kill -9` of the host in random states: two seconds later nothing of it may be alive (`docs/hazards.md` H13).
//!
//! In every fourth round the host is a daemon with relays beside it (`docs/bridging.md` 16.1), and the daemon is
//! killed, or a relay, or both. A relay has no process below it while it is joined, and outlives its daemon; once its
//! client leaves, or it is killed, nothing of it may be left either, even if it has become a host itself.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::Answer;
use crate::joined::{self, Caller, Joined};
use crate::process::{self, Process};
use crate::servers;
use crate::soak::{self, Plan, Verdict};

const PROMISE: Duration = Duration::from_secs(2);
/// Concurrent rounds, so that hosts and guards see each other's processes.
const BESIDE: usize = 4;
/// Relays of a round that has some, beside one more that is not killed.
const RELAYS: usize = 2;
/// How soon a client whose daemon is gone is served after its next message (`docs/bridging.md` 16.2).
const SERVED: Duration = Duration::from_secs(6);
/// How soon a relay that has become a host is gone after its client closed its side: its servers have 2.5 s, and half a
/// second is for the rest. The machine is busy.
const ENDED: Duration = Duration::from_secs(4);

pub(crate) fn run(plan: &Plan) -> Verdict {
    let rounds = if plan.whole { 1000 } else { 100 };
    let next = AtomicUsize::new(0);
    let (lives, failures) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..BESIDE {
            scope.spawn(|| {
                loop {
                    let round = next.fetch_add(1, Ordering::Relaxed);
                    if round >= rounds {
                        return;
                    }
                    match self::round(plan, round) {
                        Ok(life) => lives.lock().expect("no panic inside").push(life),
                        Err(wrong) => failures.lock().expect("no panic inside").push(format!("round {round}: {wrong}")),
                    }
                }
            });
        }
    });
    let (mut lives, failures) = (lives.into_inner().expect("no panic"), failures.into_inner().expect("no panic"));
    lives.sort_by_key(|life| life.gone);
    let seen: usize = lives.iter().map(|life| life.seen).sum();
    let joined: usize = lives.iter().map(|life| life.joined).sum();
    match failures.as_slice() {
        [] => Ok(format!(
            "{rounds} rounds, {seen} processes, {joined} joined, 0 survivors; gone after {:?} (median), {:?} (longest)",
            lives[lives.len() / 2].gone,
            lives[lives.len() - 1].gone
        )),
        _ => {
            failures.iter().for_each(|wrong| soak::say(&format!("       {wrong}")));
            Err(format!("{} of {rounds} rounds not as promised", failures.len()))
        }
    }
}

/// One life of a host.
struct Life {
    /// How long its processes outlived it.
    gone: Duration,
    /// The number of its processes.
    seen: usize,
    /// Relays beside it.
    joined: usize,
}

fn round(plan: &Plan, round: usize) -> Result<Life, String> {
    let mut chance = Chance(plan.seed ^ (round as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let word = format!("soak-{}-{:x}-{round}", std::process::id(), plan.seed);
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = home.path().join("mcp.json");
    std::fs::write(&file, servers::config(&plan.host, &word).to_string()).map_err(|error| error.to_string())?;
    if round % 4 == 3 {
        // In few of them a relay continues until it becomes a host: that takes a while.
        return Beside::start(plan, home.path(), &file, &word)?.end(&mut chance, round % 24 == 7);
    }
    let mut host = start(plan, home.path(), &file).map_err(|error| error.to_string())?;
    let pid = host.id();
    let life = life(&mut chance);
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
        // or of reloading its config.
        2 if life.as_millis() > 100 => signal(&host, rustix::process::Signal::HUP),
        _ => {}
    }
    process::pause(Duration::from_millis(chance.below(40) as u64));
    // While the host is stopped, only servers can change its process tree; a moment later it is killed.
    let known = process::below(pid);
    let _ = host.kill();
    let gone = process::wait_gone(&known, &word, PROMISE);
    let _ = host.wait();
    match gone {
        Ok(gone) => Ok(Life { gone, seen: known.len(), joined: 0 }),
        Err(left) => Err(format!("killed after {life:?}: {}", survivors(&left))),
    }
}

/// Returns a lifetime: sometimes none, mostly one that ends while servers start or serve.
fn life(chance: &mut Chance) -> Duration {
    Duration::from_millis([0, 3, 40, 400, 1200][chance.below(5)]).mul_f64(0.5 + chance.unit())
}

/// Names the survivors, and kills them.
fn survivors(left: &[Process]) -> String {
    let names: BTreeSet<String> = left.iter().map(Process::name).collect();
    left.iter().for_each(Process::kill);
    format!("{names:?}")
}

/// A daemon with relays beside it.
struct Beside<'a> {
    daemon: Daemon,
    /// A client with an open session; it is not killed with the daemon.
    caller: Caller,
    relays: Vec<Joined>,
    runtime: tokio::runtime::Runtime,
    word: &'a str,
}

impl<'a> Beside<'a> {
    /// Returns once all relays have joined.
    fn start(plan: &Plan, home: &Path, config: &Path, word: &'a str) -> Result<Self, String> {
        let daemon = Daemon::start(plan, home, config)?;
        let relay = || Joined::start(joined::command(&plan.host, home, config));
        let relays = (0..RELAYS).map(|_| relay()).collect::<Result<Vec<_>, _>>()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let caller = runtime.block_on(async { Caller::begin(relay()?).await })?;
        Ok(Self { daemon, caller, relays, runtime, word })
    }

    /// Ends the round; with `alone` the caller continues, and gets a host of its own.
    fn end(mut self, chance: &mut Chance, alone: bool) -> Result<Life, String> {
        let joined = self.relays.len() + 1;
        for relay in &mut self.relays {
            if chance.below(2) == 0 {
                TALK.iter().for_each(|line| relay.say(line));
            }
        }
        let life = life(chance);
        process::pause(life);
        let stops = chance.below(6) == 0;
        if stops {
            signal(&self.daemon.0, rustix::process::Signal::TERM);
        } else if chance.below(6) == 0 && life.as_millis() > 100 {
            signal(&self.daemon.0, rustix::process::Signal::HUP);
        }
        process::pause(Duration::from_millis(chance.below(40) as u64));
        let pids = self.relays.iter().map(Joined::pid).chain([self.caller.pid()]);
        let below: Vec<Process> = pids.flat_map(process::below).collect();
        if !below.is_empty() {
            return Err(format!("below joined relays: {}", survivors(&below)));
        }
        // None, some, or all of them, together with the daemon or before it.
        let victims = chance.below(RELAYS + 1);
        self.relays.drain(..victims).for_each(|mut relay| relay.kill());
        if victims > 0 && !stops && chance.below(2) == 0 {
            self.list(SERVED)?;
        }
        let known = process::below(self.daemon.0.id());
        let _ = self.daemon.0.kill();
        let gone = process::wait_gone(&known, self.word, PROMISE);
        let _ = self.daemon.0.wait();
        let gone = gone.map_err(|left| format!("daemon killed after {life:?}: {}", survivors(&left)))?;
        if !self.caller.is_running() || !self.relays.iter_mut().all(Joined::is_running) {
            return Err("a relay ended with its daemon".to_owned());
        }
        for relay in self.relays.drain(..) {
            let (status, said) = relay.leave(joined::ENDED)?;
            if !status.success() || !said.is_empty() {
                return Err(format!("a relay without a daemon ended with {status} and said {said:?}"));
            }
        }
        let seen = known.len();
        if alone {
            return Ok(Life { gone, seen: seen + self.alone(chance)?, joined });
        }
        let (status, said) = self.runtime.block_on(self.caller.leave(joined::ENDED))?;
        if !status.success() || !said.is_empty() {
            return Err(format!("a relay without a daemon ended with {status} and said {said:?}"));
        }
        let left = process::wait_gone(&BTreeSet::new(), self.word, PROMISE);
        left.map_err(|left| format!("after the end of all relays: {}", survivors(&left)))?;
        Ok(Life { gone, seen, joined })
    }

    /// The caller becomes a host, whose servers start on demand, and is killed or left. Returns the number of
    /// processes.
    fn alone(mut self, chance: &mut Chance) -> Result<usize, String> {
        self.list(SERVED)?;
        let text = json!({ "text": "alone" });
        match self.runtime.block_on(self.caller.call(2, "plain__echo", &text)) {
            Answer::One(answer) if answer["result"]["content"][0]["text"] == "alone" => {}
            other => return Err(format!("a relay that has become a host answers {other:?}")),
        }
        let known = process::below(self.caller.pid());
        if known.is_empty() {
            return Err("a relay that has become a host has no servers".to_owned());
        }
        let how = if chance.below(2) == 0 {
            self.caller.kill();
            "killed"
        } else {
            let (status, said) = self.runtime.block_on(self.caller.leave(ENDED))?;
            if !status.success() || !said.contains("a host of its own from now on") {
                return Err(format!("a relay that has become a host ended with {status} and said {said:?}"));
            }
            "left"
        };
        let gone = process::wait_gone(&known, self.word, PROMISE);
        gone.map_err(|left| format!("a relay that had become a host was {how}: {}", survivors(&left)))?;
        Ok(known.len())
    }

    /// Makes the caller request all tools.
    fn list(&mut self, patience: Duration) -> Result<(), String> {
        let begun = Instant::now();
        match self.runtime.block_on(self.caller.ask(1, "tools/list", &json!({}))) {
            Answer::One(answer) if answer["result"].is_object() && begun.elapsed() <= patience => Ok(()),
            other => Err(format!("a list after {:?}: {other:?}", begun.elapsed())),
        }
    }
}

/// The daemon of a round; killed when dropped.
struct Daemon(Child);

impl Daemon {
    /// Returns once the daemon serves.
    fn start(plan: &Plan, home: &Path, config: &Path) -> Result<Self, String> {
        let mut command = Command::new(&plan.host);
        command.args(["serve", "--quiet", "--listen", "127.0.0.1:0", "--config"]).arg(config).current_dir(home);
        command.env_clear().env("HOME", home).env("XDG_RUNTIME_DIR", home);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut daemon = Self(command.spawn().map_err(|error| error.to_string())?);
        let mut output = BufReader::new(daemon.0.stdout.take().ok_or("no stdout")?);
        let mut first = String::new();
        output.read_line(&mut first).map_err(|error| error.to_string())?;
        // Reads its output to the end, so that it never blocks on a full pipe.
        std::thread::spawn(move || output.lines().map_while(Result::ok).count());
        if first.contains("http://") { Ok(daemon) } else { Err(format!("no address: {first:?}")) }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
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

/// Random enough, and reproducible by seed.
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

    /// Returns a number from 0 to 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// A client that initializes, lists all tools, and makes a call that takes a while.
const TALK: [&str; 4] = [
    r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"soak","version":"1"}}}"#,
    r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
    r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#,
    r#"{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"plain__countdown","arguments":{"from":5}}}"#,
];
