//! Thousands of servers started and stopped by one process: in the end it has as many descriptors, threads, and
//! children as in the beginning (`docs/hazards.md` H15).

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use mcp_host::Host;
use serde_json::{Map, Value, json};

use crate::kill9::Chance;
use crate::process;
use crate::soak::{Plan, Verdict};

/// Servers of one host.
const FLEET: usize = 20;

pub(crate) fn run(plan: &Plan) -> Verdict {
    let cycles = if plan.whole { 10_000 } else { 500 };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|error| error.to_string())?;
    let mut chance = Chance(plan.seed);
    let home = tempfile::tempdir().map_err(|error| error.to_string())?;
    let word = format!("soak-{}-{:x}-spawn", std::process::id(), plan.seed);
    // The first fleet creates what stays: the guard, and threads of the runtime.
    runtime.block_on(fleet(plan, home.path(), &word, &mut chance))?;
    process::wait_gone(&BTreeSet::new(), &word, SETTLE).map_err(|left| format!("left of the first fleet: {left:?}"))?;
    let before = Balance::now();
    for _ in 0..cycles / FLEET {
        runtime.block_on(fleet(plan, home.path(), &word, &mut chance))?;
    }
    process::wait_gone(&BTreeSet::new(), &word, SETTLE).map_err(|left| format!("left behind: {left:?}"))?;
    let after = Balance::now();
    if before == after {
        Ok(format!("{cycles} cycles; before and after: {after}"))
    } else {
        Err(format!("before: {before}; after {cycles} cycles: {after}"))
    }
}

const SETTLE: Duration = Duration::from_secs(2);

/// Runs one host with its servers, from start to shutdown; every third is shut down while they start.
async fn fleet(plan: &Plan, home: &Path, word: &str, chance: &mut Chance) -> Result<(), String> {
    let server = |number: usize| {
        let (command, args) = match number % 5 {
            0 => ("sh", json!(["-c", r#""$0" __demo-server; true"#, plan.host])),
            1 => ("sh", json!(["-c", r#"setsid sleep 600 & exec "$0" __demo-server"#, plan.host])),
            2 => ("true", json!([])),
            _ => (plan.host.to_str().unwrap_or_default(), json!(["__demo-server"])),
        };
        // A server that ends at once is not retried, so that nothing waits for it.
        let restart = json!({ "maxRetries": 0 });
        json!({ "command": command, "args": args, "env": { "SOAK": word }, "restart": restart })
    };
    let servers: Map<String, Value> = (0..FLEET).map(|number| (format!("s{number}"), server(number))).collect();
    let file = home.join("mcp.json");
    std::fs::write(&file, json!({ "mcpServers": servers }).to_string()).map_err(|error| error.to_string())?;
    let host = Host::builder().config_file(file).start().await.map_err(|error| error.to_string())?;
    if chance.below(3) == 0 {
        let life = Duration::from_millis(chance.below(50) as u64);
        let _ = tokio::time::timeout(life, host.catalog_ready()).await;
    } else {
        let tools = host.catalog_ready().await.tools().len();
        if tools == 0 {
            return Err("no server was ready in time".to_owned());
        }
    }
    tokio::time::timeout(Duration::from_secs(17), host.shutdown())
        .await
        .map_err(|_| "a shutdown took more than 17 s".to_owned())
}

/// The resources of a process.
#[derive(Debug, PartialEq, Eq)]
struct Balance {
    descriptors: usize,
    threads: usize,
    children: usize,
}

impl Balance {
    fn now() -> Self {
        let count = |folder| std::fs::read_dir(folder).map_or(0, Iterator::count);
        Self {
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
            children: process::below(std::process::id()).len(),
        }
    }
}

impl std::fmt::Display for Balance {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} descriptors, {} threads, {} children", self.descriptors, self.threads, self.children)
    }
}
