//! Scripts (`run_script`) one after the other, each in a process of its own: in the end the host holds as much as in the beginning,
//! and no process is left. And one script that computes without end: the other calls take no longer.

use std::fs;
use std::time::Instant;

use serde_json::json;

use crate::alone::Alone;
use crate::hostile::memory;
use crate::peer;
use crate::process::below;
use crate::soak::{Plan, Verdict};

const RUNS: usize = 1000;
const RUNS_WHOLE: usize = 10_000;
/// How many runs fill what a host fills once.
const WARM: usize = 200;
/// How much more the host may hold in the end, in KiB.
const GROWTH: u64 = 1024;
/// How often the times of calls are compared, and over how many calls.
const ROUNDS: usize = 5;
const CALLS: usize = 2000;
/// How much longer calls may take, at p99, while a script computes.
const LONGER: f64 = 1.2;

/// The argument that makes this program the server.
pub(crate) const SERVER: &str = "scripts-server";

/// That server.
pub(crate) fn serve() -> std::io::Result<()> {
    peer::serve("scripts", || json!({ "name": "act", "inputSchema": { "type": "object" } }), |_| "[1, 2, 3]".into())
}

pub(crate) fn run(plan: &Plan) -> Verdict {
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    let code = json!({ "tools": "all", "time": "120s", "cpu": "100s" });
    let config = json!({
        "host": { "catalog": { "mode": "code", "code": code } },
        "mcpServers": { "it": { "command": own, "args": [SERVER] } },
    });
    let file = home.path().join("mcp.json");
    fs::write(&file, config.to_string()).map_err(|error| error.to_string())?;
    let mut host = Alone::start(&plan.host, home.path(), &file)?;
    let grown = many(&mut host, if plan.whole { RUNS_WHOLE } else { RUNS })?;
    let longer = beside(&mut host)?;
    host.end()?;
    let text = format!("{grown}; p99 of calls {longer:.2} times as long beside a script that computes");
    if longer > LONGER {
        return Err(format!("{text}; {LONGER} times at most"));
    }
    Ok(text)
}

fn script(text: &str) -> serde_json::Value {
    json!({ "name": "run_script", "arguments": { "script": text } })
}

/// Runs scripts that call a tool, and compares what the host holds.
fn many(host: &mut Alone, runs: usize) -> Verdict {
    let few = script("const all = await Promise.all([1, 2, 3].map(() => call('it__act'))); return all.flat().length");
    let once = |host: &mut Alone| {
        let answer = host.ask("tools/call", &few)?;
        let text = answer["result"]["content"][0]["text"].as_str();
        if text == Some("9") { Ok(()) } else { Err(format!("a script got {answer}")) }
    };
    for _ in 0..WARM {
        once(host)?;
    }
    let count = |what: &str| fs::read_dir(format!("/proc/{}/{what}", host.pid())).map_or(0, Iterator::count);
    let held = |host: &Alone| Ok::<_, String>((memory(host.pid(), "RssAnon:")?, below(host.pid()).len()));
    let (files, (before, processes)) = (count("fd"), held(host)?);
    let begun = Instant::now();
    for _ in 0..runs {
        once(host)?;
    }
    let each = begun.elapsed() / u32::try_from(runs).unwrap_or(u32::MAX);
    let count = |what: &str| fs::read_dir(format!("/proc/{}/{what}", host.pid())).map_or(0, Iterator::count);
    let (more, (after, left)) = (count("fd"), held(host)?);
    let text =
        format!("{runs} scripts, {each:?} each; {before} KiB, then {after} KiB; {processes} processes, then {left}");
    if after > before + GROWTH || left > processes || more > files {
        return Err(format!("{text}; {files} descriptors, then {more}"));
    }
    Ok(text)
}

/// Returns how much longer calls take at p99 while a script computes: the median of some rounds.
fn beside(host: &mut Alone) -> Result<f64, String> {
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let alone = p99(host)?;
        host.send("tools/call", &script("for (;;) {}"))?;
        let id = host.sent();
        let with = p99(host)?;
        host.cancel(id)?;
        ratios.push(with / alone);
    }
    ratios.sort_by(f64::total_cmp);
    Ok(ratios[ROUNDS / 2])
}

fn p99(host: &mut Alone) -> Result<f64, String> {
    let mut times = Vec::with_capacity(CALLS);
    for _ in 0..CALLS {
        let begun = Instant::now();
        host.ask("tools/call", &json!({ "name": "it__act", "arguments": {} }))?;
        times.push(begun.elapsed().as_secs_f64());
    }
    times.sort_by(f64::total_cmp);
    Ok(times[CALLS * 99 / 100])
}
