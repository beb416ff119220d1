//! SIGTERM at random moments under load: every caller gets one response or a closed connection, the host is gone within
//! 17 seconds, and nothing of it is left (`docs/hazards.md` H14, H95).

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::client::{Answer, Peer};
use crate::kill9::Chance;
use crate::process::{self, Process};
use crate::servers;
use crate::soak::{Plan, Verdict};

/// The drain, then the stop of the servers, then a little.
const PROMISE: Duration = Duration::from_secs(17);
/// How many hosts run at once. Each mostly waits: for the drain, and for processes that ignore SIGTERM.
const BESIDE: usize = 6;
/// The same, in a run with `--whole`.
const BESIDE_WHOLE: usize = 10;
const CALLERS: usize = 8;

pub(crate) fn run(plan: &Plan) -> Verdict {
    let (rounds, beside) = if plan.whole { (200, BESIDE_WHOLE) } else { (12, BESIDE) };
    let next = AtomicUsize::new(0);
    let (good, bad) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..beside {
            scope.spawn(|| {
                loop {
                    let round = next.fetch_add(1, Ordering::Relaxed);
                    if round >= rounds {
                        return;
                    }
                    match self::round(plan, round) {
                        Ok(end) => good.lock().expect("no panic inside").push(end),
                        Err(wrong) => bad.lock().expect("no panic inside").push(format!("round {round}: {wrong}")),
                    }
                }
            });
        }
    });
    let (good, bad) = (good.into_inner().expect("no panic"), bad.into_inner().expect("no panic"));
    if let [first, ..] = bad.as_slice() {
        return Err(format!("{} of {rounds} rounds; {first}", bad.len()));
    }
    let (answered, closed) = good.iter().fold((0, 0), |(a, c), end| (a + end.answered, c + end.closed));
    let longest = good.iter().map(|end| end.took).max().unwrap_or_default();
    if answered == 0 {
        return Err("no call was answered at all: there was no load".to_owned());
    }
    Ok(format!("{rounds} rounds, {answered} answers, {closed} closed connections; the longest end took {longest:?}"))
}

#[derive(Debug)]
struct End {
    took: Duration,
    answered: usize,
    closed: usize,
}

fn round(plan: &Plan, round: usize) -> Result<End, String> {
    let mut chance = Chance(plan.seed ^ (round as u64).wrapping_mul(0xd1b5_4a32_d192_ed03));
    let word = format!("soak-{}-{:x}-term-{round}-", std::process::id(), plan.seed);
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let file = home.path().join("mcp.json");
    std::fs::write(&file, servers::config(&plan.host, &word).to_string()).map_err(|error| error.to_string())?;
    let mut command = Command::new(&plan.host);
    command.args(["serve", "--listen", "127.0.0.1:0", "--config"]).arg(&file).current_dir(home.path());
    command.env_clear().env("HOME", home.path()).env("XDG_RUNTIME_DIR", home.path());
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    let mut host = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| error.to_string())?;
    let outcome = load_and_end(&mut host, &mut chance);
    let gone = match &outcome {
        Ok((known, _)) => process::wait_gone(known, &word, Duration::from_secs(2)),
        Err(_) => {
            let _ = host.kill();
            let _ = host.wait();
            process::wait_gone(&BTreeSet::new(), &word, Duration::from_secs(2))
        }
    };
    let (_, end) = outcome?;
    gone.map_err(|left| {
        let names: Vec<String> = left.iter().map(Process::name).collect();
        left.iter().for_each(Process::kill);
        format!("left behind: {names:?}")
    })?;
    Ok(end)
}

fn load_and_end(host: &mut Child, chance: &mut Chance) -> Result<(BTreeSet<Process>, End), String> {
    let out = host.stdout.take().ok_or("no stdout")?;
    let mut lines = BufReader::new(out).lines();
    let first = lines.next().ok_or("the host said nothing")?.map_err(|error| error.to_string())?;
    let url =
        first.split_whitespace().find(|word| word.starts_with("http://")).ok_or(format!("no address: {first}"))?;
    // Reads its output to the end, so that it never blocks on a full pipe.
    let reader = std::thread::spawn(move || lines.map_while(Result::ok).count());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let counts = Arc::new(Mutex::new(Counts::default()));
    let life = Duration::from_millis(chance.below(1500) as u64);
    let pid = host.id();
    let ended = runtime.block_on(async {
        let mut callers = tokio::task::JoinSet::new();
        for caller in 0..CALLERS {
            callers.spawn(call(url.to_owned(), caller, counts.clone()));
        }
        tokio::time::sleep(life).await;
        let known = process::below(pid);
        let begun = Instant::now();
        if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let status = loop {
            match host.try_wait() {
                Ok(Some(status)) => break Ok(status),
                Ok(None) if begun.elapsed() > PROMISE => break Err(format!("alive {PROMISE:?} after SIGTERM")),
                Ok(None) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(error) => break Err(error.to_string()),
            }
        };
        let took = begun.elapsed();
        // Callers that still wait now have a closed connection.
        let all = async { while callers.join_next().await.is_some() {} };
        tokio::time::timeout(Duration::from_secs(2), all).await.map_err(|_| "a caller waits forever".to_owned())?;
        Ok::<_, String>((known, status?, took))
    });
    let (known, status, took) = ended?;
    let _ = reader.join();
    let counts = counts.lock().expect("no panic inside");
    if !status.success() {
        return Err(format!("it ended with {status}"));
    }
    match counts.wrong.first() {
        Some(wrong) => Err(wrong.clone()),
        None => Ok((known, End { took, answered: counts.answered, closed: counts.closed })),
    }
}

#[derive(Debug, Default)]
struct Counts {
    answered: usize,
    closed: usize,
    wrong: Vec<String>,
}

/// Runs one client: a session, then call after call until the connection is refused.
async fn call(url: String, caller: usize, counts: Arc<Mutex<Counts>>) {
    let Ok(mut peer) = Peer::open(url).await else { return };
    for id in 1u64.. {
        let (name, arguments) = match (caller, id % 3) {
            // A call that outlasts the drain.
            (0, _) => ("plain__countdown", json!({ "from": 60 })),
            (_, 0) => ("wrapped__countdown", json!({ "from": 1 })),
            (_, 1) => ("escaped__echo", json!({ "text": "x".repeat(10_000) })),
            _ => ("plain__echo", json!({ "text": "hello" })),
        };
        let answer = peer.call(id, name, &arguments).await;
        let mut counts = counts.lock().expect("no panic inside");
        match answer {
            Answer::One(_) => counts.answered += 1,
            Answer::Closed => {
                counts.closed += 1;
                return;
            }
            Answer::Refused(_) => return,
            Answer::Wrong(wrong) => {
                counts.wrong.push(format!("caller {caller}, call {id} ({name}): {wrong}"));
                return;
            }
        }
    }
}
