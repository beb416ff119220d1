//! What a search for tools costs: the index of a thousand tools, what that holds, and one call of `find_tools`.
//!
//! The tools are those of real servers (`tests/fixtures/definitions`), as often as it takes, and the queries are the labelled
//! ones of `tests/retrieval`. The first search of a host makes the index, so that its time is both.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use mcp_host::config::{Config, Syntax, Vars, parse_str};
use mcp_host::in_process::InProcess;
use mcp_host::{Host, Raw};
use serde_json::{Value, json};

use super::{median, micros, tell};

const RECORDED: &str = include_str!("../../tests/fixtures/definitions/recorded.jsonl");
const QUERIES: &str = include_str!("../../tests/retrieval/frozen.tsv");
const TOOLS: usize = 1000;
/// Fresh hosts whose first search is measured. They stay until the end, so that what their indexes hold adds up.
const HOSTS: usize = 9;

/// Returns servers with a thousand tools in all, by name.
fn servers() -> Result<BTreeMap<String, Vec<Value>>> {
    let mut servers = BTreeMap::new();
    let mut left = TOOLS;
    for round in 0.. {
        for line in RECORDED.lines() {
            let mut recorded: Value = serde_json::from_str(line)?;
            let mut tools: Vec<Value> = serde_json::from_value(recorded["tools"].take())?;
            tools.truncate(left);
            left -= tools.len();
            servers.insert(format!("s{round}-{}", servers.len()), tools);
            if left == 0 {
                return Ok(servers);
            }
        }
    }
    Ok(servers)
}

async fn host(servers: &BTreeMap<String, Vec<Value>>) -> Result<Host> {
    let text = json!({ "mcpServers": {}, "host": { "catalog": { "mode": "search" } } }).to_string();
    let config: Config = parse_str(&text, Syntax::Json, "bench.json", &Vars::default())?;
    let mut builder = Host::builder().config(config);
    for (name, tools) in servers {
        let server = tools.iter().fold(InProcess::new(name, "1"), |server, tool| {
            server.tool(tool.clone().into(), |_| Box::pin(async { Ok(json!({ "content": [] }).into()) }))
        });
        builder = builder.in_process(name, server);
    }
    let host = builder.start().await?;
    host.settled().await;
    ensure!(host.catalog().tools().len() == TOOLS, "{} tools", host.catalog().tools().len());
    Ok(host)
}

/// Returns the time of one search, in microseconds.
async fn search(host: &Host, query: &str) -> Result<f64> {
    let begun = Instant::now();
    host.call_tool("find_tools", Raw::from(json!({ "query": query }))).await?;
    Ok(micros(begun.elapsed()))
}

/// Returns how much memory of its own this process has, in KiB.
fn held() -> Result<f64> {
    let status = std::fs::read_to_string("/proc/self/status").context("this needs Linux")?;
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

pub(super) async fn searches() -> Result<()> {
    let servers = servers()?;
    let mut hosts = Vec::new();
    for _ in 0..HOSTS {
        hosts.push(host(&servers).await?);
    }
    let before = held()?;
    let mut first = Vec::new();
    for host in &hosts {
        first.push(search(host, "read a file").await? / 1000.0);
    }
    #[expect(clippy::cast_precision_loss, reason = "a handful")]
    let each = (held()? - before) / HOSTS as f64 / 1024.0;
    let mut times = Vec::new();
    for query in QUERIES.lines().filter_map(|line| line.split('\t').nth(1)) {
        times.push(search(&hosts[0], query).await? / 1000.0);
    }
    times.sort_by(f64::total_cmp);
    println!("\nA search among {TOOLS} tools of {} servers\n", servers.len());
    tell("the first search of a host: with its index", median(first), "ms", 30.0);
    tell("what an index holds", each, "MiB", 3.0);
    tell("find_tools, p95 of the frozen queries", times[times.len() * 95 / 100], "ms", 1.0);
    for host in hosts {
        host.shutdown().await;
    }
    Ok(())
}
