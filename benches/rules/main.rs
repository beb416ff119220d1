//! What rules cost a call, what a catalog with a view, rules and pins costs, and what a search for tools costs, beside the
//! bounds that this project sets itself: `cargo bench --bench rules [-- calls | catalogs | searches]`. Slow results do not fail the run. `taskset -c 0` makes the
//! figures steadier.
//!
//! Calls go to a server in this process, so a figure is the time of the host's own work for one call, and what rules add is
//! a difference of two hosts in turn. `cargo bench --bench hop` has the share of a whole hop ("100 rules : 0").
#![expect(clippy::print_stdout, reason = "a benchmark reports to its user")]

mod search;
mod servers;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use mcp_host::config::{Config, Syntax, Vars, parse_str};
use mcp_host::in_process::InProcess;
use mcp_host::{Host, Raw};
use serde_json::{Value, json};

use crate::servers::{FLIP, Servers};

const ROUNDS: usize = 15;
const CALLS: u32 = 2000;
/// Fresh hosts whose first catalog is measured.
const HOSTS: usize = 7;
/// Changes of one server that are measured at each. It has a tool for each change in all.
const CHANGES: usize = 2;
const _: () = assert!(HOSTS * CHANGES < TOOLS);
const SERVERS: usize = 50;
const TOOLS: usize = 20;
/// The members of arguments that a rule reads.
const MEMBERS: usize = 64;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        // `cargo test --all-targets` runs benchmarks too, without this flag.
        println!("nothing measured; usage: cargo bench --bench rules [-- calls | catalogs | searches]");
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let wants = |part: &str| arguments.len() == 1 || arguments.iter().any(|argument| argument == part);
    runtime.block_on(async {
        if wants("calls") {
            calls().await?;
        }
        if wants("catalogs") {
            catalogs().await?;
        }
        if wants("searches") {
            search::searches().await?;
        }
        Ok(())
    })
}

/// Prints a line: the figure, and the bound.
fn tell(row: &str, figure: f64, unit: &str, most: f64) {
    let verdict = if figure <= most { "holds" } else { "FAILS" };
    println!("{row:<44} {figure:>9.2} {unit}   at most {most} {unit}: {verdict}");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn config(policy: &Value) -> Result<Config> {
    let text = json!({ "mcpServers": {}, "host": { "policy": policy } }).to_string();
    Ok(parse_str(&text, Syntax::Json, "bench.json", &Vars::default())?)
}

/// Returns a hundred rules about other tools.
fn misses() -> Value {
    let rule = |number: usize| json!({ "name": format!("r{number}"), "verdict": "deny", "tools": [format!("other{number}__*")] });
    json!({ "rules": (0..100).map(rule).collect::<Vec<_>>() })
}

/// Returns a rule with this condition, that many times.
fn conditions(count: usize, when: &str) -> Value {
    let rule = |number: usize| json!({ "name": format!("r{number}"), "verdict": "deny", "when": when });
    json!({ "rules": (0..count).map(rule).collect::<Vec<_>>() })
}

async fn host(policy: &Value) -> Result<Host> {
    let definition = json!({ "name": "act", "inputSchema": { "type": "object" } });
    let server = InProcess::new("it", "1").tool(definition.into(), |_| {
        Box::pin(async { Ok(json!({ "content": [{ "type": "text", "text": "done" }] }).into()) })
    });
    let host = Host::builder().config(config(policy)?).in_process("it", server).start().await?;
    host.catalog_ready().await;
    Ok(host)
}

/// Returns the time of one call, in microseconds.
async fn round(host: &Host, arguments: &Raw, calls: u32) -> Result<f64> {
    let begun = Instant::now();
    for _ in 0..calls {
        host.call_tool("it__act", arguments.clone()).await?;
    }
    Ok(micros(begun.elapsed()) / f64::from(calls))
}

/// Measures a call without rules, and what these rules add.
async fn added(arguments: &Value, policy: &Value, calls: u32) -> Result<(f64, f64)> {
    let (plain, ruled) = (host(&json!({ "rules": [] })).await?, host(policy).await?);
    let arguments = Raw::from(arguments.clone());
    let (mut alone, mut more) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let without = round(&plain, &arguments, calls).await?;
        more.push(round(&ruled, &arguments, calls).await? - without);
        alone.push(without);
    }
    plain.shutdown().await;
    ruled.shutdown().await;
    Ok((median(alone), median(more)))
}

async fn calls() -> Result<()> {
    println!("What rules add to a call: medians of {ROUNDS} rounds of {CALLS} calls\n");
    let body = json!({ "body": "x".repeat(4096) });
    let (alone, more) = added(&body, &misses(), CALLS).await?;
    println!("a call of 4 KiB without rules                {alone:>9.2} µs");
    // A small hop takes 27 µs of CPU at least (docs/operating.md), of which 2 % are half a microsecond.
    tell("100 rules about other tools", more, "µs", 0.5);
    let reads = "has(args.body) && args.body.contains('forbidden')";
    let (_, more) = added(&body, &conditions(1, reads), CALLS).await?;
    tell("a rule that reads a member of 4 KiB", more, "µs", 25.0);
    let (_, more) = added(&body, &conditions(100, reads), CALLS).await?;
    tell("100 rules that read it", more, "µs", 300.0);
    let members: serde_json::Map<_, _> =
        (0..MEMBERS).map(|number| (format!("m{number}"), json!("x".repeat(4096 / MEMBERS)))).collect();
    let each: Vec<String> = (0..MEMBERS).map(|number| format!("args.m{number} == 'y'")).collect();
    let (_, more) = added(&Value::Object(members), &conditions(1, &each.join(" || ")), CALLS).await?;
    tell("a rule that reads 64 members of 4 KiB in all", more, "µs", 300.0);
    // It fails at the bound of its steps, so it would deny; it only reports that.
    let list = json!({ "list": (0..1000).map(|number| format!("{number:0>200}")).collect::<Vec<_>>() });
    let mut costly = conditions(1, "args.list.all(x, args.list.exists(y, y.contains(x) && !x.contains(y)))");
    costly["rules"][0]["report"] = json!(true);
    let (_, more) = added(&list, &costly, CALLS / 50).await?;
    tell("a condition that goes to its bounds", more, "µs", 5000.0);
    Ok(())
}

/// Returns the config: all servers, a view that goes by hints, so that these are compared by pins, and a hundred rules.
fn many(servers: &Servers) -> Result<Config> {
    let entries: serde_json::Map<_, _> = (0..SERVERS)
        .map(|number| (format!("s{number:02}"), json!({ "type": "http", "url": servers.url(number), "era": "legacy" })))
        .collect();
    let mut policy = misses();
    for (number, rule) in policy["rules"].as_array_mut().into_iter().flatten().enumerate() {
        // Every second one is about a tool that is there.
        if number % 2 == 0 {
            rule["tools"] = json!([format!("s{:02}__tool1*", number / 2)]);
            rule["when"] = json!("has(args.path) && args.path == 'x'");
        }
    }
    let views = json!({ "v": { "include": ["s*"], "exclude": ["*tool7"], "readOnly": "declared" } });
    let host = json!({ "approval": "warn", "views": views, "policy": policy });
    let text = json!({ "mcpServers": entries, "host": host }).to_string();
    Ok(parse_str(&text, Syntax::Json, "bench.json", &Vars::from_process())?)
}

async fn catalogs() -> Result<()> {
    let servers = Servers::start(SERVERS, TOOLS)?;
    let state = tempfile::tempdir().context("no temporary directory")?;
    let (mut first, mut changed) = (Vec::new(), Vec::new());
    for _ in 0..HOSTS {
        let host = Host::builder().config(many(&servers)?).state_directory(state.path()).start().await?;
        host.settled().await;
        let view = host.view("v")?;
        let begun = Instant::now();
        let catalog = view.catalog();
        first.push(micros(begun.elapsed()) / 1000.0);
        anyhow::ensure!(catalog.tools().len() == SERVERS * (TOOLS - 1), "{} tools", catalog.tools().len());
        let mut events = host.events();
        for _ in 0..CHANGES {
            let (before, expected) = (view.catalog(), servers.changes() + 1);
            host.call_tool(&format!("s00__{FLIP}"), json!({})).await?;
            // The host tells of each change, and the catalog is another one then.
            let (took, after) = loop {
                anyhow::ensure!(events.next().await.is_some(), "the host has ended");
                let begun = Instant::now();
                let after = view.catalog();
                if !std::sync::Arc::ptr_eq(&before, &after) {
                    break (begun.elapsed(), after);
                }
            };
            changed.push(micros(took) / 1000.0);
            anyhow::ensure!(servers.changes() == expected && after.tools().len() == before.tools().len(), "no change");
        }
        host.shutdown().await;
    }
    println!("\n{} tools of {SERVERS} servers with a view, 100 rules, and pins: medians\n", SERVERS * TOOLS);
    tell("the first catalog of a host", median(first), "ms", 40.0);
    tell("the catalog after one server's change", median(changed), "ms", 2.0);
    Ok(())
}
