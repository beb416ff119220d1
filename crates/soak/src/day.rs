//! A day of ordinary use, or an hour of it: the host's own memory, descriptors and threads stay as they were
//! (`docs/hazards.md` H62).
//!
//! Clients come, list, call with small and large arguments, and leave; every second one does not say that it leaves. A
//! server ends every few seconds, another is taken out of the config and put back, a third is another host over HTTP.
//! The second quarter of the time is compared with the last one.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::client::{Answer, Peer};
use crate::hostile;
use crate::kill9::Chance;
use crate::sessions;
use crate::soak::{Plan, Verdict};

const CLIENTS: usize = 6;
/// Calls of one session.
const CALLS: u64 = 24;
/// Time between two calls of a client.
const PACE: Duration = Duration::from_millis(10);
/// Time between two changes of the config.
const CHANGE: Duration = Duration::from_secs(7);
const LOOK: Duration = Duration::from_secs(1);
/// The memory by which a quarter may exceed another, in KiB and as a share.
const SLACK_KIB: u64 = 1024;
const SHARE: u64 = 20;

/// What the host holds at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Held {
    kib: u64,
    descriptors: usize,
    threads: usize,
}

pub(crate) fn run(plan: &Plan) -> Verdict {
    let minutes = plan.minutes.unwrap_or(if plan.whole { 24 * 60 } else { 60 });
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let other = tempfile::tempdir().map_err(|error| error.to_string())?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let behind = json!({ "mcpServers": { "far": demo(plan) } });
    let file = other.path().join("mcp.json");
    write(&file, &behind)?;
    let mut behind = sessions::Host::start(plan, other.path(), &file)?;
    let url = format!("http://{}/mcp", behind.address()?);
    let file = home.path().join("mcp.json");
    write(&file, &config(plan, &url, true))?;
    let mut host = sessions::Host::start(plan, home.path(), &file)?;
    let address = format!("http://{}/mcp", host.address()?);
    let day = use_it(plan, &host, &address, &url, &file, Duration::from_secs(minutes * 60));
    let told = runtime.block_on(day);
    hostile::end(&mut host.0);
    hostile::end(&mut behind.0);
    told
}

fn demo(plan: &Plan) -> Value {
    json!({ "command": plan.host, "args": ["__demo-server"] })
}

/// Returns a config with a server that stays, one that ends every few seconds, one over HTTP, and perhaps one more.
fn config(plan: &Plan, url: &str, more: bool) -> Value {
    let restart = json!({ "minDelay": "20ms", "maxDelay": "200ms", "maxRetries": 1_000_000 });
    // A command in the background has no standard input unless it is given one.
    let script = r#"exec 3<&0; "$0" __demo-server <&3 & sleep 3; kill $!"#;
    let mut servers = json!({
        "stays": demo(plan),
        "ends": { "command": "/bin/sh", "args": ["-c", script, plan.host], "restart": restart, "callTimeout": "5s" },
        "web": { "type": "http", "url": url },
    });
    if more {
        servers["more"] = demo(plan);
    }
    json!({ "mcpServers": servers, "host": { "limits": { "sessionIdle": "30s" } } })
}

fn write(file: &Path, config: &Value) -> Result<(), String> {
    std::fs::write(file, config.to_string()).map_err(|error| format!("{}: {error}", file.display()))
}

async fn use_it(
    plan: &Plan,
    host: &sessions::Host,
    address: &str,
    url: &str,
    file: &Path,
    whole: Duration,
) -> Result<String, String> {
    let begun = Instant::now();
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(client(address.to_owned(), plan.seed.wrapping_add(number as u64), begun + whole));
    }
    let (mut seen, mut more, mut changed) = (Vec::new(), true, begun);
    while begun.elapsed() < whole {
        sleep(LOOK).await;
        if changed.elapsed() > CHANGE {
            (more, changed) = (!more, Instant::now());
            write(file, &config(plan, url, more))?;
        }
        seen.push((begun.elapsed(), Held::of(host.0.id())?));
    }
    let mut calls = 0;
    while let Some(ended) = clients.join_next().await {
        calls += ended.map_err(|error| error.to_string())??;
    }
    judge(&seen, whole, calls)
}

fn judge(seen: &[(Duration, Held)], whole: Duration, calls: u64) -> Verdict {
    let quarter = |number: u32| {
        let (from, to) = (whole * (number - 1) / 4, whole * number / 4);
        let within = seen.iter().filter(|(at, _)| (from..to).contains(at)).map(|(_, held)| *held);
        let median = |mut values: Vec<u64>| {
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or_default()
        };
        let all: Vec<Held> = within.collect();
        [
            median(all.iter().map(|held| held.kib).collect()),
            median(all.iter().map(|held| held.descriptors as u64).collect()),
            median(all.iter().map(|held| held.threads as u64).collect()),
        ]
    };
    let quarters = [1, 2, 3, 4].map(quarter);
    let [_, early, _, late] = quarters;
    let row = |at: usize| quarters.map(|quarter| quarter[at].to_string()).join(", ");
    let told =
        format!("{calls} calls; medians of the quarters: {} KiB, {} descriptors, {} threads", row(0), row(1), row(2));
    let grew = late[0] > early[0] + early[0] / SHARE + SLACK_KIB;
    // A client more or less has a few descriptors, and a thread for what blocks stays for ten seconds.
    let more = late[1] > early[1] + 4 || late[2] > early[2] + 2;
    if grew || more { Err(format!("{told}: it grows")) } else { Ok(told) }
}

impl Held {
    fn of(pid: u32) -> Result<Self, String> {
        let count = |folder: &str| std::fs::read_dir(format!("/proc/{pid}/{folder}")).map_or(0, Iterator::count);
        Ok(Self { kib: hostile::memory(pid, "RssAnon:")?, descriptors: count("fd"), threads: count("task") })
    }
}

/// Runs one client after another until `end`, and returns how many calls were answered.
async fn client(address: String, seed: u64, end: Instant) -> Result<u64, String> {
    let mut chance = Chance(seed);
    let mut answered = 0;
    while Instant::now() < end {
        let mut peer = Peer::open(address.clone()).await.map_err(|other| format!("no session: {other:?}"))?;
        peer.list().await?;
        for id in 1..=CALLS {
            let server = ["stays", "ends", "web", "more"][chance.below(4)];
            let name = if server == "web" { "web__far__echo".to_owned() } else { format!("{server}__echo") };
            let length = [1, 100, 10_000, 300_000][chance.below(4)];
            match peer.call(id, &name, &json!({ "text": "x".repeat(length) })).await {
                Answer::One(_) => answered += 1,
                other => return Err(format!("{name}, {length} bytes: {other:?}")),
            }
            sleep(PACE).await;
        }
        if chance.below(2) == 0 {
            peer.leave().await?;
        }
    }
    Ok(answered)
}
