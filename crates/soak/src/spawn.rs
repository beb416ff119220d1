//! Thousands of servers started and stopped by one process, `examples/cycles.rs`: in the end it has as many descriptors,
//! threads, and children as in the beginning, and no server is left (`docs/hazards.md` H15).

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Duration;

use crate::process;
use crate::soak::{Plan, Verdict};

const SETTLE: Duration = Duration::from_secs(2);

pub(crate) fn run(plan: &Plan) -> Verdict {
    let cycles = if plan.whole { "10000" } else { "500" };
    let word = format!("soak-{}-{:x}-spawn", std::process::id(), plan.seed);
    let done = Command::new(&plan.cycles)
        .arg(&plan.host)
        .args([cycles, &plan.seed.to_string(), &word])
        .output()
        .map_err(|error| format!("`{}` (--cycles): {error}", plan.cycles.display()))?;
    process::wait_gone(&BTreeSet::new(), &word, SETTLE).map_err(|left| format!("left behind: {left:?}"))?;
    let line = String::from_utf8_lossy(&done.stdout).trim().to_owned();
    if done.status.success() { Ok(line) } else { Err(format!("{line} ({})", done.status)) }
}
