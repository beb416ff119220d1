//! Calls of many clients to servers of both eras and all transports, which are killed again and again: every call has
//! exactly one response, its own, and is executed at most once (`docs/hazards.md` H9, H34, H35, H57). Every server
//! keeps a ledger of what it executed. A quarter of the clients connects through relays that have joined the daemon.

mod client;
mod history;
pub(crate) mod server;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use self::client::{Door, Load};
use self::history::{History, Sum};
use self::server::{KINDS, Kind, Wire};
use crate::kill9::Chance;
use crate::process::{self, Process};
use crate::soak::{self, Plan, Verdict};

/// How many clients use each endpoint.
const CLIENTS: [(Door, usize); 7] = [
    (Door::Session, 9),
    (Door::Modern, 8),
    (Door::Sse, 5),
    (Door::Pipe, 1),
    (Door::ModernPipe, 1),
    (Door::Joined, 4),
    (Door::ModernJoined, 4),
];
/// How long all servers may take to be ready.
const READY: Duration = Duration::from_secs(30);
/// How long the host may take to end (`docs/hazards.md` H95).
const ENDED: Duration = Duration::from_secs(17);

pub(crate) fn run(plan: &Plan) -> Verdict {
    let (calls, pause) =
        if plan.whole { (200_000, Duration::from_secs(2)) } else { (20_000, Duration::from_millis(500)) };
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let ledgers = home.path().join(format!("ledgers-{}-{:x}", std::process::id(), plan.seed));
    std::fs::create_dir(&ledgers).map_err(|error| error.to_string())?;
    let word = ledgers.to_str().ok_or("a folder name that is not UTF-8")?.to_owned();
    let mut chance = Chance(plan.seed);
    let mut fleet = Fleet::start(&ledgers, &mut chance)?;
    let config = home.path().join("mcp.json");
    std::fs::write(&config, fleet.config()?.to_string()).map_err(|error| error.to_string())?;
    let begun = Instant::now();
    let outcome = serve(plan, home.path(), &config, calls, |origin| {
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let killer = scope.spawn(|| fleet.kill_all_the_time(pause, &mut chance, &stop));
            let histories = load(plan, home.path(), &config, calls, origin);
            stop.store(true, Ordering::Relaxed);
            let kills = killer.join().map_err(|_| "the killer panicked".to_owned())?;
            Ok((histories?, kills?))
        })
    });
    let took = begun.elapsed();
    drop(fleet);
    let left = process::wait_gone(&BTreeSet::new(), &word, Duration::from_secs(2));
    let (histories, kills) = outcome?;
    left.map_err(|left| {
        left.iter().for_each(Process::kill);
        format!("left behind: {:?}", left.iter().map(Process::name).collect::<Vec<_>>())
    })?;
    let sum = Sum::of(&histories, &ledgers)?;
    sum.told().iter().for_each(|text| soak::say(&format!("       {text}")));
    let joined = CLIENTS.iter().filter(|(door, _)| door.is_joined()).map(|(_, count)| count).sum::<usize>();
    let text = format!(
        "{sum}; {} clients, {joined} joined, {} servers, {kills} kills, {:.0} calls/s",
        histories.len(),
        KINDS.len(),
        sum.calls as f64 / took.as_secs_f64()
    );
    if sum.is_good() && kills > 0 { Ok(text) } else { Err(text) }
}

/// Runs the daemon for as long as `work` takes.
fn serve<T>(
    plan: &Plan,
    home: &Path,
    config: &Path,
    calls: usize,
    work: impl FnOnce(&str) -> Result<T, String>,
) -> Result<T, String> {
    let mut command = Command::new(&plan.host);
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(config).current_dir(home);
    environment(&mut command, home);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut host = command.spawn().map_err(|error| error.to_string())?;
    let mut lines = BufReader::new(host.stdout.take().ok_or("no stdout")?).lines();
    let first = lines.next().and_then(Result::ok).unwrap_or_default();
    let url = first.split_whitespace().find(|word| word.starts_with("http://")).map(str::to_owned);
    // Reads its output to the end, so that it never blocks on a full pipe.
    let reader = std::thread::spawn(move || lines.map_while(Result::ok).count());
    let done = match url {
        Some(url) => work(url.trim_end_matches("/mcp")),
        None => Err(format!("no address for {calls} calls: {first:?}")),
    };
    let ended = end(&mut host);
    let _ = reader.join();
    let done = done?;
    ended?;
    Ok(done)
}

fn end(host: &mut Child) -> Result<(), String> {
    if let Some(pid) = i32::try_from(host.id()).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
    let begun = Instant::now();
    loop {
        match host.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("the host ended with {status}")),
            None if begun.elapsed() > ENDED => {
                let _ = host.kill();
                let _ = host.wait();
                return Err(format!("the host is alive {ENDED:?} after SIGTERM"));
            }
            None => process::pause(Duration::from_millis(10)),
        }
    }
}

fn environment(command: &mut Command, home: &Path) {
    command.env_clear().env("HOME", home).env("XDG_RUNTIME_DIR", home);
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
}

/// Runs all clients from their first call to their last.
fn load(plan: &Plan, home: &Path, config: &Path, calls: usize, origin: &str) -> Result<Vec<History>, String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let left = Rc::new(Cell::new(calls));
    let load = Load { origin: origin.to_owned(), host: &plan.host, home, config, left, seed: plan.seed };
    let doors = CLIENTS.iter().flat_map(|(door, count)| std::iter::repeat_n(*door, *count));
    tokio::task::LocalSet::new().block_on(&runtime, async {
        client::ready(&load, READY).await?;
        let clients = doors.enumerate().map(|(number, door)| client::run(number, door, &load));
        futures_util::future::join_all(clients).await.into_iter().collect()
    })
}

/// The servers reached by URL, which run beside the host, and the names of all servers.
struct Fleet {
    ledgers: PathBuf,
    listening: Vec<(Kind, u16, Child)>,
}

impl Fleet {
    fn start(ledgers: &Path, chance: &mut Chance) -> Result<Self, String> {
        let mut fleet = Self { ledgers: ledgers.to_owned(), listening: Vec::new() };
        for kind in KINDS.into_iter().filter(|kind| kind.wire != Wire::Pipe) {
            let port = free_port(chance).ok_or("no free port")?;
            let child = fleet.listen(kind, port)?;
            fleet.listening.push((kind, port, child));
        }
        Ok(fleet)
    }

    fn listen(&self, kind: Kind, port: u16) -> Result<Child, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(program);
        command.arg(server::MODE).arg(self.ledgers.join(kind.name)).arg(port.to_string());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map_err(|error| error.to_string())
    }

    /// With unlimited retries at short intervals: otherwise half of the servers would be down at any moment.
    fn config(&self) -> Result<Value, String> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut servers = Map::new();
        for kind in KINDS {
            let at = self.listening.iter().find(|(other, ..)| other.name == kind.name);
            let mut entry = match (at, kind.wire) {
                (Some((_, port, _)), Wire::Sse) => {
                    json!({ "type": "sse", "url": format!("http://127.0.0.1:{port}/sse") })
                }
                (Some((_, port, _)), _) => json!({ "type": "http", "url": format!("http://127.0.0.1:{port}/mcp") }),
                (None, _) => json!({ "command": program, "args": [server::MODE, self.ledgers.join(kind.name)] }),
            };
            entry["restart"] = json!({ "maxRetries": 1_000_000, "minDelay": "50ms", "maxDelay": "500ms" });
            entry["callTimeout"] = "20s".into();
            servers.insert(kind.name.to_owned(), entry);
        }
        Ok(json!({ "mcpServers": servers, "host": { "startupWait": "30s" } }))
    }

    /// Kills one server after the other, wherever it runs, and returns the number of kills.
    fn kill_all_the_time(&mut self, pause: Duration, chance: &mut Chance, stop: &AtomicBool) -> Result<usize, String> {
        let mut kills = 0;
        let mut next = Instant::now() + pause;
        loop {
            while Instant::now() < next {
                if stop.load(Ordering::Relaxed) {
                    return Ok(kills);
                }
                process::pause(Duration::from_millis(20));
            }
            next += pause;
            let kind = KINDS[kills % KINDS.len()];
            kills += 1;
            match self.listening.iter().position(|(other, ..)| other.name == kind.name) {
                Some(at) => {
                    let (_, port, child) = &mut self.listening[at];
                    let port = *port;
                    child.kill().and_then(|()| child.wait()).map_err(|error| error.to_string())?;
                    // Sometimes no server listens for a moment.
                    process::pause(Duration::from_millis([0, 0, 50, 200][chance.below(4)]));
                    self.listening[at].2 = self.listen(kind, port)?;
                }
                None => {
                    let word = self.ledgers.join(kind.name);
                    process::with_word(&word.to_string_lossy()).iter().for_each(Process::kill);
                }
            }
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for (_, _, child) in &mut self.listening {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns a port that no outgoing connection takes while its server is down.
fn free_port(chance: &mut Chance) -> Option<u16> {
    let ports = (0..200).map(|_| 20_000 + u16::try_from(chance.below(10_000)).unwrap_or_default());
    ports.into_iter().find(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, *port)).is_ok())
}
