//! The cost of a hop through `mcp-host`, side by side with a direct connection and with purpose-built floors.
//!
//! `cargo bench --bench hop` measures everything in one run: requests directly to an echo server, through a floor (the
//! least that a hop of this kind can do), and through the host, in turn. It prints the latency of each way, the CPU
//! time of the program in the middle, the ratio of the host's CPU time to the floor's, and the bounds that this project
//! sets itself. Slow results do not fail the run.
//!
//! `cargo bench --bench hop -- [--quick] [--floors | --against PROGRAM | --watched | --sampled | --top] [--only TEXT]...`:
//! `--quick` runs fewer rounds, `--floors` leaves out the host, and `--only` selects rows whose name contains the text.
//!
//! `--against PROGRAM` compares this build with another one in place of the floors: see [`against`]. On two cores, where
//! the processes happen to run changes a figure by half, so run that on one. `--watched` compares this build with itself in
//! the same way: one of the two is watched by a feed, and its metrics are read every five seconds. `--sampled` does so, too:
//! one of the two sends a span of each call to a collector; both are built with the cargo feature `otel`. `--top` measures the
//! share of a core that `mcp-host top` takes.
//!
//! Figures are only comparable within one run. `taskset -c 0 cargo bench --bench hop` keeps everything on one core: the
//! figures are steadier, and free of the cost of waking another core, which is most of the latency on an idle machine.
//!
//! This binary is also the echo server and the floors: it starts itself again in another role.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a benchmark reports to its user")]

mod against;
mod call;
mod collector;
mod echo;
mod floors;
mod hop;
mod host;
mod http;
mod load;
mod measure;
mod pipe;
mod process;
mod report;
mod rows;
mod state;
#[cfg(unix)]
mod top;
#[cfg(unix)]
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail, ensure};

use crate::process::Role;
use crate::report::Outcome;
use crate::rows::{Kind, ROWS, Row};

const USAGE: &str = "usage: cargo bench --bench hop -- [--quick] [--floors | --against PROGRAM | --watched | --sampled | --top] [--only TEXT]...";

/// The command line.
#[derive(Debug)]
struct Settings {
    /// Rounds of each way.
    rounds: usize,
    /// The divisor of each row's number of requests.
    share: usize,
    ways: Ways,
    only: Vec<String>,
}

/// What is measured.
#[derive(Debug, PartialEq, Eq)]
enum Ways {
    All,
    /// Everything but the host.
    Floors,
    /// The host, and another build of it.
    Against(PathBuf),
    /// The host, and the same build while somebody watches it.
    #[cfg_attr(not(unix), allow(dead_code, reason = "a feed needs the status socket"))]
    Watched,
    /// The host, and the same build that sends a span of each call.
    Sampled,
    /// `mcp-host top`.
    #[cfg_attr(not(unix), allow(dead_code, reason = "a terminal of its own needs Unix"))]
    Top,
}

impl Settings {
    fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self> {
        let mut settings = Self { rounds: 15, share: 1, ways: Ways::All, only: Vec::new() };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--bench" => {}
                "--quick" => (settings.rounds, settings.share) = (5, 4),
                "--floors" => settings.ways = Ways::Floors,
                "--against" => {
                    let program = arguments.next().with_context(|| format!("--against what? {USAGE}"))?;
                    settings.ways = Ways::Against(program.into());
                }
                #[cfg(unix)]
                "--watched" => settings.ways = Ways::Watched,
                "--sampled" => {
                    ensure!(cfg!(feature = "otel"), "--sampled needs `cargo bench --features otel --bench hop`");
                    settings.ways = Ways::Sampled;
                }
                #[cfg(unix)]
                "--top" => settings.ways = Ways::Top,
                "--only" => settings.only.push(arguments.next().with_context(|| format!("--only what? {USAGE}"))?),
                other => bail!("unknown argument {other}; {USAGE}"),
            }
        }
        Ok(settings)
    }

    fn with_host(&self) -> bool {
        self.ways != Ways::Floors
    }

    /// Reports whether somebody watches the host.
    fn is_watched(&self) -> bool {
        self.ways == Ways::Watched
    }

    /// Returns the number of requests in one round.
    fn calls(&self, calls: usize) -> usize {
        calls / self.share
    }

    fn wants(&self, row: &Row) -> bool {
        let asked = self.only.is_empty() || self.only.iter().any(|text| row.name.contains(text.as_str()));
        let possible = self.with_host()
            || !matches!(row.kind, Kind::Ten { .. } | Kind::Rules { .. } | Kind::Threads { .. } | Kind::Idle { .. });
        // A host that is watched has started before.
        asked && possible && !(self.is_watched() && matches!(row.kind, Kind::Start { .. }))
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match run(arguments) {
        Ok(code) => code,
        Err(cause) => {
            eprintln!("error: {cause:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Vec<String>) -> Result<ExitCode> {
    // One thread: servers and floors are simple, and the client must not compete with what it measures.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if let Some(role) = Role::parse(&arguments)? {
        runtime.block_on(play(role)).with_context(|| format!("{role:?}"))?;
        return Ok(ExitCode::SUCCESS);
    }
    if !arguments.iter().any(|argument| argument == "--bench") {
        // `cargo test --all-targets` runs benchmarks too, without this flag; it should not wait for them.
        println!("nothing measured; {USAGE}");
        return Ok(ExitCode::SUCCESS);
    }
    let settings = Settings::parse(arguments)?;
    runtime.block_on(bench(&settings))
}

async fn play(role: Role) -> std::io::Result<()> {
    match role {
        Role::EchoStdio { tools } => echo::serve_stdio(tools).await,
        Role::EchoHttp { port, tools } => echo::serve_http(port, tools, false).await,
        Role::EchoEvents { port, tools } => echo::serve_http(port, tools, true).await,
        Role::FloorHttp { port, upstream } => floors::serve_http(port, upstream).await,
        Role::FloorBridge { port, tools } => floors::serve_bridge(port, tools).await,
    }
}

/// Measures every selected row; a row that fails does not stop the others.
async fn bench(settings: &Settings) -> Result<ExitCode> {
    let rows: Vec<&Row> = ROWS.iter().filter(|row| settings.wants(row)).collect();
    ensure!(!rows.is_empty(), "no row matches {:?}", settings.only);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    match &settings.ways {
        Ways::Against(other) => return against::run(other, &rows, settings).await,
        Ways::Sampled => return against::run(Path::new(host::PROGRAM), &rows, settings).await,
        #[cfg(unix)]
        Ways::Watched => return against::run(Path::new(host::PROGRAM), &rows, settings).await,
        #[cfg(unix)]
        Ways::Top => return top::run().await,
        _ => {}
    }
    println!("hop: {} rounds of each way in turn, medians, {cores} cores", settings.rounds);
    let mut outcomes = Vec::with_capacity(rows.len());
    for row in rows {
        eprintln!("measuring {}", row.name);
        let outcome = measure(row.kind, settings).await.unwrap_or_else(Outcome::Failed);
        outcomes.push((row, outcome));
    }
    report::print(&outcomes);
    let failed = outcomes.iter().any(|(_, outcome)| matches!(outcome, Outcome::Failed(_)));
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

async fn measure(kind: Kind, settings: &Settings) -> Result<Outcome> {
    let state = |unit, values| Outcome::State { unit, values };
    Ok(match kind {
        Kind::Hop { servers, work, callers, calls } => {
            Outcome::Hop(hop::requests(servers, work, callers, calls, settings).await?)
        }
        Kind::Ten { calls } => Outcome::Hop(hop::ten(calls, settings).await?),
        Kind::Rules { calls } => Outcome::Hop(hop::rules(calls, settings).await?),
        Kind::Threads { servers, calls } => Outcome::Hop(hop::threads(servers, calls, settings).await?),
        Kind::Churn { clients } => Outcome::Hop(hop::churn(clients, settings).await?),
        Kind::Idle { sessions, after } => state("KB each", state::idle(sessions, after, settings).await?),
        Kind::Memory { servers } => state("MB", state::memory(servers, settings).await?),
        Kind::Start { servers } => state("ms", state::start(servers, settings).await?),
        Kind::Slow { link, calls } => state("p99 ratio", state::slow(link, calls, settings).await?),
    })
}
