//! The config of a host under load, truncated at every byte and then changed for good: no call to an unchanged server
//! fails, none of these servers restarts, and each change is applied (`docs/hazards.md` H91). Some of the callers are
//! joined relays.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use crate::client::{Answer, Peer};
use crate::joined::{self, Caller, Joined};
use crate::process;
use crate::soak::{Plan, Verdict};

/// Servers that stay unchanged.
const STAYING: usize = 5;
const CALLERS: usize = 8;
/// Callers of these that connect through a relay.
const JOINED: usize = 2;
/// How long a change may take to be noticed.
const SEEN: Duration = Duration::from_secs(20);

pub(crate) fn run(plan: &Plan) -> Verdict {
    let home = tempfile::tempdir().map_err(said)?;
    let file = home.path().join("mcp.json");
    std::fs::write(&file, config(&plan.host, "0")).map_err(said)?;
    let mut daemon = Daemon::start(plan, home.path(), &file)?;
    // All have joined before the first cut.
    let relays = (0..JOINED).map(|_| Joined::start(joined::command(&plan.host, home.path(), &file)));
    let load = Load::begin(&daemon.url, relays.collect::<Result<_, _>>()?);
    let outcome = cut_and_change(plan, &daemon, &file);
    let load = load.end();
    let ended = daemon.end();
    let (cuts, swaps) = outcome?;
    let calls = load?;
    ended?;
    Ok(format!(
        "{cuts} cuts, {swaps} changes, {calls} calls of {CALLERS} clients, {JOINED} joined: 0 failed, 0 restarts of {STAYING} \
         unchanged servers"
    ))
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn config(host: &Path, word: &str) -> String {
    let server = |word: &str| json!({ "command": host, "args": ["__demo-server"], "env": { "WORD": word } });
    let mut servers: Map<String, Value> = (0..STAYING).map(|n| (format!("stays{n}"), server("stays"))).collect();
    servers.insert("turns".to_owned(), server(word));
    json!({ "mcpServers": servers }).to_string()
}

fn cut_and_change(plan: &Plan, daemon: &Daemon, file: &Path) -> Result<(usize, usize), String> {
    let text = config(&plan.host, "0");
    let before = daemon.ready()?;
    let mut cuts = 0;
    for pass in 0..if plan.whole { 3 } else { 1 } {
        for length in 0..text.len() {
            std::fs::write(file, &text[..length]).map_err(said)?;
            let answer = daemon.ask("reload")?;
            if answer["reloaded"] != false {
                return Err(format!("cut at byte {length} it was taken: {answer}"));
            }
            // Sometimes the daemon notices by itself.
            if (length + pass) % 200 == 0 {
                process::pause(Duration::from_millis(900));
            }
            cuts += 1;
        }
    }
    std::fs::write(file, &text).map_err(said)?;
    let answer = daemon.ask("reload")?;
    if answer["reloaded"] != true || answer["changed"] != json!([]) {
        return Err(format!("the whole of it: {answer}"));
    }
    let swaps = if plan.whole { 100 } else { 10 };
    let mut turned = before["turns"];
    for swap in 1..=swaps {
        let text = config(&plan.host, &swap.to_string());
        if swap % 2 == 0 {
            std::fs::write(file, text).map_err(said)?;
        } else {
            let beside = file.with_extension("new");
            std::fs::write(&beside, text).map_err(said)?;
            std::fs::rename(&beside, file).map_err(said)?;
        }
        // The daemon may notice before it is asked.
        let answer = if swap % 3 == 0 { json!({ "reloaded": true }) } else { daemon.ask("reload")? };
        if answer["reloaded"] != true {
            return Err(format!("change {swap} was not taken: {answer}"));
        }
        let begun = Instant::now();
        turned = loop {
            let now = daemon.processes()?.get("turns").copied().filter(|pid| *pid != turned);
            match now {
                Some(pid) => break pid,
                None if begun.elapsed() > SEEN => return Err(format!("change {swap} was not taken in {SEEN:?}")),
                None => process::pause(Duration::from_millis(10)),
            }
        };
    }
    let after = daemon.ready()?;
    let other = |name: &&String| name.starts_with("stays") && after.get(*name) != before.get(*name);
    match before.keys().find(other) {
        Some(name) => Err(format!("{name} is another process than before")),
        None => Ok((cuts, swaps)),
    }
}

/// The host under test.
#[derive(Debug)]
struct Daemon {
    child: Child,
    url: String,
    socket: PathBuf,
}

impl Daemon {
    fn start(plan: &Plan, home: &Path, file: &Path) -> Result<Self, String> {
        let mut command = Command::new(&plan.host);
        command.args(["serve", "--quiet", "--listen", "127.0.0.1:0", "--config"]).arg(file).current_dir(home);
        command.env_clear().env("HOME", home).env("XDG_RUNTIME_DIR", home);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(said)?;
        let out = child.stdout.take().ok_or("no stdout")?;
        let mut lines = BufReader::new(out).lines();
        let first = lines.next().ok_or("the host said nothing")?.map_err(said)?;
        // Reads its output to the end, so that it never blocks on a full pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).count());
        let url = first.split_whitespace().find(|word| word.starts_with("http://")).ok_or(first.clone())?.to_owned();
        let port = url.trim_end_matches("/mcp").rsplit(':').next().unwrap_or_default();
        let socket = home.join(format!("mcp-host/{port}.sock"));
        Ok(Self { child, url, socket })
    }

    /// Sends one word over the status socket.
    fn ask(&self, word: &str) -> Result<Value, String> {
        let mut socket = UnixStream::connect(&self.socket).map_err(said)?;
        writeln!(socket, "{word}").map_err(said)?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer).map_err(said)?;
        serde_json::from_str(&answer).map_err(|error| format!("{word}: {error}"))
    }

    /// Returns the process of each connected server. None of the unchanged ones may have been lost.
    fn processes(&self) -> Result<BTreeMap<String, u64>, String> {
        let status = self.ask("status")?;
        let mut found = BTreeMap::new();
        for server in status["servers"].as_array().ok_or("no servers")? {
            let name = server["name"].as_str().unwrap_or_default();
            if name.starts_with("stays") && server["restarts"] != 0 {
                return Err(format!("{name} was restarted: {server}"));
            }
            if let (Some("connected"), Some(pid)) = (server["state"].as_str(), server["pids"][0].as_u64()) {
                found.insert(name.to_owned(), pid);
            }
        }
        Ok(found)
    }

    /// Returns these processes once all are connected.
    fn ready(&self) -> Result<BTreeMap<String, u64>, String> {
        let begun = Instant::now();
        loop {
            let found = self.processes()?;
            if found.len() > STAYING {
                return Ok(found);
            }
            if begun.elapsed() > SEEN {
                return Err(format!("only {:?} are connected", found.keys()));
            }
            process::pause(Duration::from_millis(20));
        }
    }

    fn end(&mut self) -> Result<(), String> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let begun = Instant::now();
        loop {
            match self.child.try_wait().map_err(said)? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(format!("it ended with {status}")),
                None if begun.elapsed() > SEEN => {
                    let _ = self.child.kill();
                    let _ = self.child.wait();
                    return Err("it did not end".to_owned());
                }
                None => process::pause(Duration::from_millis(20)),
            }
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Clients that call the unchanged servers all the time.
struct Load {
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
    wrong: Arc<Mutex<Vec<String>>>,
    thread: std::thread::JoinHandle<Result<(), String>>,
}

impl Load {
    fn begin(url: &str, relays: Vec<Joined>) -> Self {
        let (stop, calls, wrong) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default(), Arc::default());
        let thread = std::thread::spawn({
            let (url, stop, calls, wrong) = (url.to_owned(), stop.clone(), calls.clone(), Arc::clone(&wrong));
            move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(said)?;
                runtime.block_on(async {
                    let mut relays = relays.into_iter();
                    let callers = (0..CALLERS).map(|caller| {
                        let door = relays.next().map_or_else(|| Door::Http(url.clone()), Door::Relay);
                        let (stop, calls, wrong) = (stop.clone(), calls.clone(), Arc::clone(&wrong));
                        call(door, caller, stop, calls, wrong)
                    });
                    futures_util::future::join_all(callers).await;
                });
                Ok(())
            }
        });
        Self { stop, calls, wrong, thread }
    }

    /// Returns how many calls were answered, if all succeeded.
    fn end(self) -> Result<usize, String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().map_err(|_| "a caller panicked".to_owned())??;
        let wrong = self.wrong.lock().expect("no panic inside");
        match (wrong.first(), self.calls.load(Ordering::Relaxed)) {
            (Some(first), _) => Err(format!("{} calls failed; {first}", wrong.len())),
            (None, 0) => Err("no call was answered at all: there was no load".to_owned()),
            (None, calls) => Ok(calls),
        }
    }
}

/// How a caller connects.
enum Door {
    Http(String),
    Relay(Joined),
}

/// The session of a caller.
enum Session {
    Http(Peer),
    Relay(Caller),
}

impl Session {
    async fn open(door: Door) -> Result<Self, String> {
        match door {
            Door::Http(url) => {
                Peer::open(url).await.map(Self::Http).map_err(|answer| format!("no session: {answer:?}"))
            }
            Door::Relay(relay) => Caller::begin(relay).await.map(Self::Relay),
        }
    }

    async fn call(&mut self, id: u64, name: &str, arguments: &Value) -> Answer {
        match self {
            Self::Http(peer) => peer.call(id, name, arguments).await,
            Self::Relay(caller) => caller.call(id, name, arguments).await,
        }
    }

    /// Ends the session; a relay must still be with its daemon.
    async fn end(self) -> Result<(), String> {
        match self {
            Self::Http(_) => Ok(()),
            Self::Relay(caller) => caller.end().await,
        }
    }
}

async fn call(
    door: Door,
    caller: usize,
    stop: Arc<AtomicBool>,
    calls: Arc<AtomicUsize>,
    wrong: Arc<Mutex<Vec<String>>>,
) {
    let fails = |text: String| wrong.lock().expect("no panic inside").push(format!("caller {caller}: {text}"));
    let mut session = match Session::open(door).await {
        Ok(session) => session,
        Err(text) => return fails(text),
    };
    for id in 1u64.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let name = format!("stays{}__echo", (caller + id as usize) % STAYING);
        match session.call(id, &name, &json!({ "text": "hello" })).await {
            Answer::One(answer) if answer["result"]["content"][0]["text"] == "hello" => {
                calls.fetch_add(1, Ordering::Relaxed);
            }
            answer => return fails(format!("call {id}: {answer:?}")),
        }
        // A load, not a flood: what is tested beside it needs the processor, too.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    if let Err(text) = session.end().await {
        fails(text);
    }
}
