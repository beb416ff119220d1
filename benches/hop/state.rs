//! Rows that measure a state: memory, start time, and fairness between slow and fast calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::Settings;
use crate::call::Work;
use crate::hop::Ground;
use crate::host::{Host, Link, Servers, first_list};
use crate::http::{Connection, Session};
use crate::load::{self, Callers};
use crate::measure::{median, quantile, resident, written};
use crate::pipe::Pipe;
use crate::process::{Process, Role, free_port, loopback};
use crate::rows::After;

/// How long a process may settle before its memory is read.
const SETTLE: Duration = Duration::from_millis(500);
/// Sessions in addition to those that are counted: warming up needs some.
const SPARE: usize = 100;
/// The default cap on a host's sessions.
const SESSIONS: usize = 1024;
/// Calls that trigger lazy initialization before memory is read.
const WAKING: usize = 500;
/// How many slow calls run at any time, and how many milliseconds each sleeps: long enough that fewer than one in a
/// hundred fast calls coincides with the end of a slow one.
const SLOW: (usize, u64) = (16, 300);
/// How long slow calls need to get going.
const UNDER_WAY: Duration = Duration::from_millis(20);

/// The share of rounds whose tails count as undisturbed.
const QUIET: f64 = 0.1;
/// Rounds for tails are shorter and more numerous by this factor, so that some of them are quiet.
const SHORTER: usize = 4;

/// One figure for each way; `None` for a way that has none.
#[derive(Debug, Default)]
pub(crate) struct Values {
    pub(crate) direct: Option<f64>,
    pub(crate) floor: Option<f64>,
    pub(crate) host: Option<f64>,
}

/// Returns the kilobytes that the host holds for each idle session.
pub(crate) async fn idle(sessions: usize, after: After, settings: &Settings) -> Result<Values> {
    if !settings.with_host() {
        return Ok(Values::default());
    }
    let host = Host::with(Servers::one(Link::Http), &room(sessions)).await?;
    Ok(Values { host: each_idle(&host, sessions, after).await?, ..Values::default() })
}

/// Returns the settings of a host with room for so many sessions.
pub(crate) fn room(sessions: usize) -> Value {
    json!({ "threads": 1, "limits": { "sessions": SESSIONS.max(sessions + SPARE) } })
}

/// Opens idle sessions, and returns the kilobytes that `host` holds for each.
pub(crate) async fn each_idle(host: &Host, sessions: usize, after: After) -> Result<Option<f64>> {
    let pid = host.process.pid();
    let mut connection = Connection::open(loopback(host.port)).await?;
    for _ in 0..SPARE {
        let session = Session::open(&mut connection).await?;
        load::list(&mut connection, &session).await?;
        connection.delete(&session).await?;
    }
    tokio::time::sleep(SETTLE).await;
    let before = written(pid);
    let mut opened = Vec::with_capacity(sessions);
    for _ in 0..sessions {
        let session = Session::open(&mut connection).await?;
        if matches!(after, After::List) {
            load::list(&mut connection, &session).await?;
        }
        opened.push(session);
    }
    tokio::time::sleep(SETTLE).await;
    let grown = before.zip(written(pid)).map(|(before, after)| after.saturating_sub(before));
    // The first session must still answer: the figure is about live sessions.
    let first = opened.first().context("no session")?;
    load::list(&mut connection, first).await.context("the oldest session is gone")?;
    Ok(grown.map(|bytes| bytes as f64 / 1024.0 / sessions as f64))
}

/// Returns the megabytes that the program in the middle holds after a tool list and [`WAKING`] calls.
pub(crate) async fn memory(servers: Servers, settings: &Settings) -> Result<Values> {
    let ground = Ground::start(servers, settings).await?;
    let floor = after_use(ground.floor_port, &ground.floor).await.context("floor")?;
    let host = match &ground.host {
        Some(host) => after_use(host.port, &host.process).await.context("host")?,
        None => None,
    };
    Ok(Values { direct: None, floor, host })
}

pub(crate) async fn after_use(port: u16, process: &Process) -> Result<Option<f64>> {
    let mut callers = Callers::open(loopback(port), Work::Echo(32), 1, 1).await?;
    callers.round(WAKING).await?;
    tokio::time::sleep(SETTLE).await;
    Ok(resident(process.pid()).map(|bytes| bytes as f64 / (1024.0 * 1024.0)))
}

/// Returns the milliseconds until all tools are listed; the direct way starts all servers itself, side by side.
pub(crate) async fn start(servers: Servers, settings: &Settings) -> Result<Values> {
    let (mut direct, mut floor, mut host) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..settings.rounds {
        direct.push(start_directly(servers).await.context("direct")?);
        // A bridge has one server: with several there is no floor to compare with.
        if servers.count == 1 {
            floor.push(start_floor(servers.tools).await.context("floor")?);
        }
        if settings.with_host() {
            let started = Host::start(servers).await?;
            host.push(started.started_in);
            started.process.stop().await?;
        }
    }
    let millis = |times: &[Duration]| median(times).map(|time| time.as_secs_f64() * 1000.0);
    Ok(Values { direct: millis(&direct), floor: millis(&floor), host: millis(&host) })
}

async fn start_directly(servers: Servers) -> Result<Duration> {
    let started = Instant::now();
    let mut starting = JoinSet::new();
    for _ in 0..servers.count {
        starting.spawn(async move {
            let mut pipe = Pipe::start(servers.tools).await?;
            Ok::<_, anyhow::Error>((pipe.count_tools().await?, pipe))
        });
    }
    let mut pipes = Vec::with_capacity(servers.count);
    while let Some(listed) = starting.join_next().await {
        let (tools, pipe) = listed??;
        ensure!(tools == servers.tools, "{tools} tools, expected {}", servers.tools);
        pipes.push(pipe);
    }
    Ok(started.elapsed())
}

async fn start_floor(tools: usize) -> Result<Duration> {
    let port = free_port()?;
    let started = Instant::now();
    let mut bridge = Process::start(Role::FloorBridge { port, tools })?;
    let took = first_list(&mut bridge, port, tools, started).await?;
    bridge.stop().await?;
    Ok(took)
}

/// Returns the 99th percentile of the latency of fast calls beside slow ones, divided by that of fast calls alone.
pub(crate) async fn slow(link: Link, calls: usize, settings: &Settings) -> Result<Values> {
    let ground = Ground::start(Servers::one(link), settings).await?;
    let ports = [ground.server_port, Some(ground.floor_port), ground.host.as_ref().map(|host| host.port)];
    let mut fast = Vec::new();
    for port in ports {
        fast.push(match port {
            Some(port) => Some(Callers::open(loopback(port), Work::Echo(32), 1, 1).await?),
            None => None,
        });
    }
    let calls = settings.calls(calls) / SHORTER;
    let mut tails = [const { (Vec::new(), Vec::new()) }; 3];
    for round in 0..=settings.rounds * SHORTER {
        for ((fast, port), (alone, loaded)) in fast.iter_mut().zip(ports).zip(&mut tails) {
            let Some((fast, port)) = fast.as_mut().zip(port) else { continue };
            let tail =
                [fast.round(calls).await?, beside_slow(fast, port, calls).await?].map(|took| quantile(&took, 0.99));
            // The first round only warms up.
            if round > 0 {
                alone.extend(tail[0]);
                loaded.extend(tail[1]);
            }
        }
    }
    // Other load on the machine only makes a tail longer, so the quiet rounds count.
    let quiet = |tails: &[Duration]| Some(quantile(tails, QUIET)?.as_secs_f64());
    let [direct, floor, host] =
        tails.map(|(alone, loaded)| quiet(&alone).zip(quiet(&loaded)).map(|(alone, loaded)| loaded / alone));
    Ok(Values { direct, floor, host })
}

/// Returns the 99th percentile, in microseconds, of the latency of fast calls beside slow ones, through two hosts in
/// turns.
pub(crate) async fn tails(hosts: [&Host; 2], calls: usize, turns: usize) -> Result<Vec<[f64; 2]>> {
    let [first, second] = hosts;
    let open = async |host: &Host| Callers::open(loopback(host.port), Work::Echo(32), 1, 1).await;
    let mut fast = [open(first).await?, open(second).await?];
    let mut tails = Vec::with_capacity(turns);
    for turn in 0..=turns {
        let mut pair = [0.0; 2];
        for at in [turn % 2, 1 - turn % 2] {
            let took = beside_slow(&mut fast[at], hosts[at].port, calls).await?;
            pair[at] = quantile(&took, 0.99).context("no call")?.as_secs_f64() * 1e6;
        }
        // The first turn only warms up.
        if turn > 0 {
            tails.push(pair);
        }
    }
    Ok(tails)
}

async fn beside_slow(fast: &mut Callers, port: u16, calls: usize) -> Result<Vec<Duration>> {
    let (count, millis) = SLOW;
    let slow = Callers::open(loopback(port), Work::Slow(millis), count, 1).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let mut running = JoinSet::new();
    running.spawn(slow.until(Arc::clone(&stop)));
    // The fast calls wait until the slow ones run: before that, there is no load.
    tokio::time::sleep(UNDER_WAY).await;
    let took = fast.round(calls).await;
    stop.store(true, Ordering::Relaxed);
    while let Some(ended) = running.join_next().await {
        ensure!(ended?.context("slow calls")? >= count, "the slow calls did not run");
    }
    took
}
