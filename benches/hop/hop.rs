//! Rows that measure requests: the latency of the three ways (direct, floor, host), and the CPU time of the program in
//! the middle. The ways take turns.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::Settings;
use crate::call::{Call, Work};
use crate::host::{Host, Link, Servers};
use crate::load::{self, Callers};
use crate::measure::{Cpu, median};
use crate::pipe::Pipe;
use crate::process::{Process, Role, free_port, loopback};
use crate::rows;

/// How long one round may take before its row counts as failed.
pub(crate) const ROUND: Duration = Duration::from_secs(120);

/// The medians of one way over all rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    pub(crate) p50: Duration,
    /// CPU seconds of the program in the middle per thousand requests.
    pub(crate) cpu: Option<f64>,
}

/// The columns of one row.
#[derive(Debug)]
pub(crate) struct Figured {
    pub(crate) direct: Option<Figures>,
    pub(crate) floor: Option<Figures>,
    pub(crate) host: Option<Figures>,
    /// The host's CPU time divided by the floor's: the median of one ratio per round, since the two times in a round
    /// are from about the same moment.
    pub(crate) ratio: Option<f64>,
}

/// What sends the requests: callers over HTTP, one pipe, or clients that come and go.
#[derive(Debug)]
pub(crate) enum Load {
    Callers(Callers),
    Pipe { pipe: Box<Pipe>, call: Call, window: usize },
    Churn(SocketAddr),
}

/// One way to the server, with its measurements.
#[derive(Debug)]
pub(crate) struct Way {
    load: Load,
    middle: Option<u32>,
    pub(crate) p50s: Vec<Duration>,
    pub(crate) cpus: Vec<f64>,
}

/// Measures requests over all three ways.
pub(crate) async fn requests(
    servers: Servers,
    work: Work,
    callers: rows::Callers,
    calls: usize,
    settings: &Settings,
) -> Result<Figured> {
    let ground = Ground::start(servers, settings).await?;
    let (count, sessions) = (callers.count(), callers.sessions());
    let open = |port| Callers::open(loopback(port), work, count, sessions);
    let direct = match ground.server_port {
        Some(port) => Load::Callers(open(port).await.context("direct")?),
        None => {
            let pipe = Box::new(Pipe::start(servers.all_tools()).await.context("direct")?);
            Load::Pipe { pipe, call: Call::new(work, work.tool()), window: count }
        }
    };
    let floor = Load::Callers(open(ground.floor_port).await.context("floor")?);
    let mut ways = vec![Way::new(direct, None), Way::new(floor, Some(ground.floor.pid()))];
    if let Some(host) = &ground.host {
        let load = Load::Callers(open(host.port).await.context("host")?);
        ways.push(Way::new(load, Some(host.process.pid())));
    }
    take_turns(&mut ways, calls, settings).await?;
    Ok(Figured::of(ways.first(), ways.get(1), ways.get(2)))
}

/// Measures clients that come and go.
pub(crate) async fn churn(clients: usize, settings: &Settings) -> Result<Figured> {
    let ground = Ground::start(Servers::one(Link::Http), settings).await?;
    let server = ground.server_port.context("a server over HTTP has a port")?;
    let way = |port, middle| Way::new(Load::Churn(loopback(port)), middle);
    let mut ways = vec![way(server, None), way(ground.floor_port, Some(ground.floor.pid()))];
    ways.extend(ground.host.as_ref().map(|host| way(host.port, Some(host.process.pid()))));
    take_turns(&mut ways, clients, settings).await?;
    Ok(Figured::of(ways.first(), ways.get(1), ways.get(2)))
}

/// Measures how nine more servers affect calls to the tenth.
pub(crate) async fn ten(calls: usize, settings: &Settings) -> Result<Figured> {
    let one = Servers::one(Link::Http);
    let few = Host::start(one).await?;
    let many = Host::start(Servers { count: 10, ..one }).await?;
    compare(&few, &many, rows::Callers::One, calls, settings).await
}

/// Measures how a hundred rules about other tools affect calls.
pub(crate) async fn rules(calls: usize, settings: &Settings) -> Result<Figured> {
    let one = Servers::one(Link::Http);
    let without = Host::start(one).await?;
    let with = Host::with(one, &many_rules()).await?;
    compare(&without, &with, rows::Callers::One, calls, settings).await
}

/// Returns the settings of a host with a hundred rules that no call matches.
pub(crate) fn many_rules() -> Value {
    let rule = |number: usize| json!({ "name": format!("r{number}"), "verdict": "deny", "tools": [format!("other{number}__*")] });
    json!({ "policy": { "rules": (0..100).map(rule).collect::<Vec<_>>() } })
}

/// Measures how a second thread affects calls to two servers.
pub(crate) async fn threads(servers: Servers, calls: usize, settings: &Settings) -> Result<Figured> {
    let one = Host::start(servers).await?;
    let two = Host::with(servers, &json!({ "threads": 2 })).await?;
    compare(&one, &two, rows::Callers::SixtyFour, calls, settings).await
}

/// Measures small calls through two hosts, of which the first is in the floor's column.
async fn compare(
    first: &Host,
    second: &Host,
    callers: rows::Callers,
    calls: usize,
    settings: &Settings,
) -> Result<Figured> {
    let mut ways = Vec::new();
    for host in [first, second] {
        let callers = Callers::open(loopback(host.port), Work::Echo(32), callers.count(), callers.sessions()).await?;
        ways.push(Way::new(Load::Callers(callers), Some(host.process.pid())));
    }
    take_turns(&mut ways, calls, settings).await?;
    Ok(Figured::of(None, ways.first(), ways.get(1)))
}

/// Lets each way take its turn in every round, so that other load on the machine affects all alike.
async fn take_turns(ways: &mut [Way], calls: usize, settings: &Settings) -> Result<()> {
    for way in ways.iter_mut() {
        way.load.round(calls.div_ceil(4)).await.context("warming up")?;
    }
    for _ in 0..settings.rounds {
        // The order alternates, so that no way always follows the same one.
        ways.reverse();
        for way in ways.iter_mut() {
            tokio::time::timeout(ROUND, way.round(settings.calls(calls))).await.context("a round timed out")??;
        }
    }
    if settings.rounds % 2 == 1 {
        ways.reverse();
    }
    Ok(())
}

impl Figured {
    fn of(direct: Option<&Way>, floor: Option<&Way>, host: Option<&Way>) -> Self {
        let ratios = floor.zip(host).map(|(floor, host)| {
            let pairs = host.cpus.iter().zip(&floor.cpus);
            pairs.map(|(host, floor)| host / floor).collect::<Vec<_>>()
        });
        let figures = |way: Option<&Way>| way.and_then(Way::figures);
        Self {
            direct: figures(direct),
            floor: figures(floor),
            host: figures(host),
            ratio: ratios.and_then(|ratios| median(&ratios)),
        }
    }
}

impl Way {
    pub(crate) fn new(load: Load, middle: Option<u32>) -> Self {
        Self { load, middle, p50s: Vec::new(), cpus: Vec::new() }
    }

    pub(crate) async fn round(&mut self, calls: usize) -> Result<()> {
        let before = self.middle.and_then(Cpu::of);
        let took = self.load.round(calls).await?;
        if let (Some(before), Some(after)) = (before, self.middle.and_then(Cpu::of)) {
            self.cpus.push(after.since(&before).as_secs_f64() * 1000.0 / took.len() as f64);
        }
        self.p50s.extend(median(&took));
        Ok(())
    }

    /// Removes all figures.
    pub(crate) fn forget(&mut self) {
        self.p50s.clear();
        self.cpus.clear();
    }

    fn figures(&self) -> Option<Figures> {
        Some(Figures { p50: median(&self.p50s)?, cpu: median(&self.cpus) })
    }
}

impl Load {
    async fn round(&mut self, calls: usize) -> Result<Vec<Duration>> {
        match self {
            Self::Callers(callers) => callers.round(calls).await,
            Self::Pipe { pipe, call, window } => pipe.round(call, calls, *window).await,
            Self::Churn(address) => load::churn(*address, calls).await,
        }
    }
}

/// The processes that a row needs: one server with all tools for the direct way and the floor, and a host with its own
/// servers.
#[derive(Debug)]
pub(crate) struct Ground {
    pub(crate) server_port: Option<u16>,
    pub(crate) floor: Process,
    pub(crate) floor_port: u16,
    pub(crate) host: Option<Host>,
    _server: Option<Process>,
}

impl Ground {
    pub(crate) async fn start(servers: Servers, settings: &Settings) -> Result<Self> {
        let tools = servers.all_tools();
        let floor_port = free_port()?;
        let (server_port, server, role) = match servers.link {
            Link::Stdio => (None, None, Role::FloorBridge { port: floor_port, tools }),
            Link::Http | Link::Events => {
                let port = free_port()?;
                let mut server = Process::start(servers.link.over_http(port, tools))?;
                server.wait_for(port).context("the echo server")?;
                (Some(port), Some(server), Role::FloorHttp { port: floor_port, upstream: port })
            }
        };
        let mut floor = Process::start(role)?;
        floor.wait_for(floor_port).context("the floor")?;
        let host = match settings.with_host() {
            true => Some(Host::start(servers).await?),
            false => None,
        };
        Ok(Self { server_port, floor, floor_port, host, _server: server })
    }
}
