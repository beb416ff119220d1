//! Two builds of the host, side by side: what a change costs.
//!
//! Both builds are up at once, each in front of servers of its own, and take short turns: other load on the machine
//! then meets both alike. A process is faster or slower for its whole life by where its memory happens to lie, so every
//! row is measured with several pairs of processes. The figure of a row is the median of the ratios of neighboring
//! turns; starts, memory and idle sessions have one figure for each pair. The same build against itself shows how much
//! of a difference is chance.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark reports to its user")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;
use tempfile::TempDir;
use tokio::time::timeout;

use crate::call::Work;
use crate::collector::Collector;
use crate::hop::{Load, ROUND, Way, many_rules};
use crate::host::{Host, Link, PROGRAM, Servers};
use crate::load;
use crate::process::loopback;
use crate::report::{cells, number, table};
use crate::rows::{Callers, Kind, Row};
use crate::state;
#[cfg(unix)]
use crate::watch::{self, Watch};
use crate::{Settings, Ways};

/// Turns of each pair of processes.
const TURNS: usize = 4;
/// The requests of a row's round are divided by this: enough remain that the first ones, which find the caches cold,
/// hardly count.
const SHARE: usize = 2;

/// The builds, in the order of all pairs.
const WHICH: [&str; 2] = ["the other build", "this build"];

/// The figures of the other build and of this one, a pair for each turn.
type Pairs = Vec<[f64; 2]>;

/// The figures of a row, by unit.
type Measured = Vec<(&'static str, Pairs)>;

/// How long a pair runs before its first turn: a host drops pages that only its start needed.
const SETTLED: Duration = Duration::from_millis(500);

/// Measures the rows with this build and with `other`, and prints a table of the ratios.
pub(crate) async fn run(other: &Path, rows: &[&Row], settings: &Settings) -> Result<ExitCode> {
    // Both are copied, since the system may keep a file that it reads for the first time in larger pieces: that alone is
    // worth 3 % of the CPU time and a tenth of the memory.
    let copies = TempDir::new()?;
    let copied = |program: &Path, name: &str| {
        let copy = copies.path().join(name);
        fs::copy(program, &copy).with_context(|| format!("cannot copy {}", program.display()))?;
        anyhow::Ok(copy)
    };
    let programs = [copied(other, "other").context("--against")?, copied(Path::new(PROGRAM), "this")?];
    let which = match settings.ways {
        Ways::Watched => "this build, watched, against itself".to_owned(),
        Ways::Sampled => "this build, with a span of each call, against itself".to_owned(),
        _ => format!("this build against {}", other.display()),
    };
    println!("hop: {which}, {} pairs of processes, medians", pairs_of(settings));
    let mut lines = vec![cells(["row", "unit", "other", "this", "this/other"])];
    let mut failures = Vec::new();
    for row in rows {
        eprintln!("measuring {}", row.name);
        match measure(&programs, row.kind, settings).await {
            Ok(measured) => lines.extend(measured.iter().map(|(unit, pairs)| line(row.name, unit, pairs))),
            Err(cause) => failures.push(format!("{}: {cause:#}", row.name)),
        }
    }
    println!();
    table(&lines);
    println!(
        "\nCPU: milliseconds of the host a request. p50, p99: microseconds. this/other: the median of the ratios."
    );
    println!("\"10 servers : 1\" is calls beside ten servers here, \"2 threads : 1\" calls through two threads.");
    for failure in &failures {
        println!("\nnot measured: {failure}");
    }
    Ok(if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Returns an even number of pairs: in half of them this build is the older process.
fn pairs_of(settings: &Settings) -> usize {
    settings.rounds.next_multiple_of(2)
}

fn line(row: &str, unit: &str, pairs: &Pairs) -> Vec<String> {
    let of = |figure: fn(&[f64; 2]) -> f64| {
        let mut figures: Vec<f64> = pairs.iter().map(figure).filter(|figure| figure.is_finite()).collect();
        figures.sort_by(f64::total_cmp);
        // The number of figures is even: the median lies between the two in the middle.
        let half = figures.len() / 2;
        Some((figures.get(half.checked_sub(1)?)? + figures.get(half)?) / 2.0)
    };
    let mut line = vec![row.to_owned(), unit.to_owned()];
    line.extend([
        number(of(|pair| pair[0]), 4),
        number(of(|pair| pair[1]), 4),
        number(of(|pair| pair[1] / pair[0]), 3),
    ]);
    line
}

/// Measures one row with pairs of fresh processes.
async fn measure(programs: &[PathBuf; 2], kind: Kind, settings: &Settings) -> Result<Measured> {
    let mut all = Measured::new();
    for pair in 0..pairs_of(settings) {
        let order = if pair % 2 == 0 { [0, 1] } else { [1, 0] };
        let collector = match settings.ways {
            Ways::Sampled => Some(Collector::start().await?),
            _ => None,
        };
        let endpoint = collector.as_ref().map(|collector| collector.endpoint.as_str());
        let of = [None, endpoint];
        let mut started = [None, None];
        for at in order {
            started[at] = Some(start(&programs[at], kind, of[at]).await.context(WHICH[at])?);
        }
        let [Some(theirs), Some(ours)] = started else { unreachable!("both are started") };
        #[cfg(unix)]
        let watch = match settings.is_watched() {
            true => Some(Watch::start(&ours).await.context("--watched")?),
            false => None,
        };
        let mut measured = compare([&theirs, &ours], order, kind, settings).await?;
        #[cfg(unix)]
        if collector.is_some() {
            // Spans that are dropped cost nothing, so they are told beside the figures.
            let dropped = dropped(&watch::metrics(ours.port).await.context("--sampled")?);
            measured.push(("spans dropped", vec![[0.0, dropped.context("the number of dropped spans is not told")?]]));
        }
        for (unit, mut pairs) in measured {
            match all.iter_mut().find(|(known, _)| *known == unit) {
                Some((_, known)) => known.append(&mut pairs),
                None => all.push((unit, pairs)),
            }
        }
        #[cfg(unix)]
        watch.map(Watch::end).transpose().context("--watched")?;
        theirs.process.stop().await?;
        ours.process.stop().await?;
    }
    Ok(all)
}

/// Returns how many spans were dropped, as metrics tell it.
#[cfg(unix)]
fn dropped(metrics: &str) -> Option<f64> {
    let line = metrics.lines().find(|line| line.starts_with("mcp_host_otel_dropped_total{signal=\"traces\"}"))?;
    line.rsplit(' ').next()?.parse().ok()
}

/// Starts a build with the servers and settings that the row needs. `endpoint` is where it sends spans to.
async fn start(program: &Path, kind: Kind, endpoint: Option<&str>) -> Result<Host> {
    let one = Servers::one(Link::Http);
    let plain = json!({ "threads": 1 });
    let (servers, mut host) = match kind {
        Kind::Hop { servers, .. } | Kind::Memory { servers } | Kind::Start { servers } => (servers, plain),
        Kind::Ten { .. } => (Servers { count: 10, ..one }, plain),
        Kind::Rules { .. } => (one, many_rules()),
        Kind::Threads { servers, .. } => (servers, json!({ "threads": 2 })),
        Kind::Churn { .. } => (one, plain),
        Kind::Idle { sessions, .. } => (one, state::room(sessions)),
        Kind::Slow { link, .. } => (Servers::one(link), plain),
    };
    if let Some(endpoint) = endpoint {
        host["otel"] = json!({ "endpoint": endpoint, "metrics": false });
    }
    Host::of(program, servers, &host).await
}

/// Measures a row with one pair of processes; where one is measured at a time, in this order.
async fn compare(hosts: [&Host; 2], order: [usize; 2], kind: Kind, settings: &Settings) -> Result<Measured> {
    let mut pair = [0.0; 2];
    match kind {
        Kind::Hop { work, callers, calls, .. } => turns(open(hosts, work, callers).await?, calls, settings).await,
        Kind::Ten { calls } | Kind::Rules { calls } => {
            turns(open(hosts, Work::Echo(32), Callers::One).await?, calls, settings).await
        }
        Kind::Threads { calls, .. } => {
            turns(open(hosts, Work::Echo(32), Callers::SixtyFour).await?, calls, settings).await
        }
        Kind::Churn { clients } => {
            let loads = hosts.map(|host| Load::Churn(loopback(host.port)));
            turns(ways(hosts, loads), clients, settings).await
        }
        Kind::Idle { sessions, after } => {
            for at in order {
                let each = state::each_idle(hosts[at], sessions, after).await.context(WHICH[at])?;
                pair[at] = each.context("the memory of a process is not told here")?;
            }
            Ok(vec![("KB each", vec![pair])])
        }
        Kind::Memory { .. } => {
            for at in order {
                let used = state::after_use(hosts[at].port, &hosts[at].process).await.context(WHICH[at])?;
                pair[at] = used.context("the memory of a process is not told here")?;
            }
            Ok(vec![("MB", vec![pair])])
        }
        Kind::Start { .. } => Ok(vec![("ms", vec![hosts.map(|host| host.started_in.as_secs_f64() * 1000.0)])]),
        Kind::Slow { calls, .. } => Ok(vec![("p99", state::tails(hosts, settings.calls(calls) / SHARE, TURNS).await?)]),
    }
}

async fn open(hosts: [&Host; 2], work: Work, callers: Callers) -> Result<[Way; 2]> {
    let [theirs, ours] = hosts;
    let open = async |host: &Host| {
        load::Callers::open(loopback(host.port), work, callers.count(), callers.sessions()).await.map(Load::Callers)
    };
    let [other, this] = WHICH;
    Ok(ways(hosts, [open(theirs).await.context(other)?, open(ours).await.context(this)?]))
}

fn ways(hosts: [&Host; 2], loads: [Load; 2]) -> [Way; 2] {
    let [their_load, our_load] = loads;
    let [theirs, ours] = hosts;
    [Way::new(their_load, Some(theirs.process.pid())), Way::new(our_load, Some(ours.process.pid()))]
}

/// Lets both builds take their turns.
async fn turns(mut ways: [Way; 2], calls: usize, settings: &Settings) -> Result<Measured> {
    let calls = settings.calls(calls).div_ceil(SHARE);
    tokio::time::sleep(SETTLED).await;
    for turn in 0..=TURNS {
        let first = turn % 2;
        for at in [first, 1 - first] {
            let turn = timeout(ROUND, ways[at].round(calls)).await.context("a turn timed out");
            turn.and_then(|turn| turn).context(WHICH[at])?;
        }
        if turn == 0 {
            // The first turn only warms up.
            ways.iter_mut().for_each(Way::forget);
        }
    }
    let pairs = |figures: fn(&Way) -> Vec<f64>| {
        let [theirs, ours] = ways.each_ref().map(figures);
        theirs.into_iter().zip(ours).map(<[f64; 2]>::from).collect()
    };
    let micros = |way: &Way| way.p50s.iter().map(|took| took.as_secs_f64() * 1e6).collect();
    Ok(vec![("CPU", pairs(|way| way.cpus.clone())), ("p50", pairs(micros))])
}
