//! `mcp-host doctor`: looks for problems, from the files to the clients, and suggests one command for each.
//!
//! `configured.rs` checks the config, `started.rs` starts the servers that can be started, `machine.rs` checks the
//! rest. A server with a problem is left out of all later checks, so each problem is reported once. **Invariant:**
//! nothing is changed.

mod configured;
mod finding;
mod machine;
mod started;

use std::collections::BTreeSet;

use serde::Serialize;

use self::finding::{CHECKS, Finding, OF_CONFIG, Verdict};
use super::clients;
use crate::args::{Common, Doctor};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::Plan;
use crate::text;

/// All findings, as `--json` prints them.
#[derive(Serialize)]
struct Report<'a> {
    ok: bool,
    checks: Vec<Row<'a>>,
}

#[derive(Serialize)]
struct Row<'a> {
    check: &'static str,
    title: &'static str,
    verdict: Verdict,
    findings: Vec<&'a Finding>,
}

pub(super) async fn run(args: &Doctor, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let mut found = Vec::new();
    let mut is_config_there = true;
    match Plan::load(common, false, None) {
        Ok(mut plan) => {
            if let Some(name) = &args.server {
                let server = plan.server(name)?.clone();
                plan.config.servers = vec![server];
            }
            look(plan, common, &mut found, output).await?;
        }
        Err(failure) => {
            is_config_there = false;
            found.extend(configured::unread(&failure));
        }
    }
    found.extend(machine::state_folder());
    found.extend(machine::trees().await);
    found.extend(machine::orphans().await);
    tell(&found, is_config_there, output)
}

/// Runs the checks that need a readable config.
async fn look(plan: Plan, common: &Common, found: &mut Vec<Finding>, output: &Output) -> Result<(), Failure> {
    let request = plan.same_files();
    found.extend(configured::files(&plan.config));
    found.extend(configured::variables(&plan.config, &request));
    found.extend(configured::commands(&plan.config));
    found.extend(configured::runtimes(&plan.config).await);
    found.extend(machine::port(&plan.config));
    found.extend(machine::service().await);
    let clients = clients::seen(common);
    let linked = clients.as_ref().map(|seen| seen.linked.clone()).unwrap_or_default();
    let bad: BTreeSet<String> = found.iter().filter_map(Finding::broken).map(str::to_owned).collect();
    let mut healthy = plan;
    healthy
        .config
        .servers
        .retain(|server| server.disabled.is_none() && server.unusable.is_none() && !bad.contains(&server.name));
    if !healthy.config.servers.is_empty() {
        found.extend(Box::pin(started::look(healthy, &linked, common, output)).await?);
    }
    found.extend(clients.iter().flat_map(machine::twice));
    Ok(())
}

fn tell(found: &[Finding], is_config_there: bool, output: &Output) -> Result<Exit, Failure> {
    let of = |check: &str| -> Vec<&Finding> { found.iter().filter(|finding| finding.check == check).collect() };
    let row = |(check, title): &(&'static str, &'static str)| {
        let findings = of(check);
        let empty = match is_config_there || !OF_CONFIG.contains(check) {
            true => Verdict::Ok,
            false => Verdict::Unchecked,
        };
        let verdict = findings.iter().map(|finding| finding.verdict).max().unwrap_or(empty);
        Row { check, title, verdict, findings }
    };
    let rows: Vec<Row<'_>> = CHECKS.iter().map(row).collect();
    let ok = rows.iter().all(|row| row.verdict != Verdict::Fail);
    let exit = if ok { Exit::Ok } else { Exit::Failed };
    if output.json {
        output.value(&Report { ok, checks: rows })?;
        return Ok(exit);
    }
    for row in &rows {
        match (row.findings.is_empty(), row.verdict) {
            (true, Verdict::Unchecked) => output.line(&format!("{}  -     {}: no config", row.check, row.title))?,
            (true, _) => output.line(&format!("{}  ok    {}", row.check, row.title))?,
            (false, _) => {}
        }
        for finding in &row.findings {
            let (word, what) = (finding.verdict.word(), text::line(&finding.what));
            output.line(&format!("{}  {word:4}  {}: {what}", row.check, row.title))?;
            output.line(&format!("           help: {}", text::line(&finding.help)))?;
        }
    }
    Ok(exit)
}
