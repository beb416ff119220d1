//! `mcp-host policy`: shows what the rules of the config decide, without a call.

mod explain;
mod test;

use mcp_host::config::{Decision, PolicyMode};
use mcp_host::policy::Verdict;

use crate::args::{Common, Policy, PolicyCommand};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::Plan;

pub(crate) async fn run(args: &Policy, common: &Common, output: &Output) -> Result<Exit, Failure> {
    match &args.what {
        PolicyCommand::Test(args) => test::run(args, common, output),
        PolicyCommand::Explain(args) => Box::pin(explain::run(args, common, output)).await,
    }
}

/// Returns the word for a decision.
fn word(decision: Decision) -> &'static str {
    match decision {
        Decision::Deny => "deny",
        Decision::Ask => "ask",
        _ => "allow",
    }
}

/// Describes a verdict, and which rule it comes from.
fn said(verdict: &Verdict) -> String {
    let decision = word(verdict.decision);
    match &verdict.rule {
        Some(rules) if rules.contains(',') => format!("{decision} by the rules {rules}"),
        Some(rule) => format!("{decision} by the rule {rule}"),
        None if verdict.decision == Decision::Allow => "allow: no rule denies or asks".to_owned(),
        None => format!("{decision} by default: no rule matches"),
    }
}

/// Prints a note if the rules of the config are not enforced.
fn tell_mode(plan: &Plan, output: &Output) {
    let policy = &plan.config.host.policy;
    if policy.rules.is_empty() {
        output.remark("note: the config has no rules (host.policy.rules)");
    } else if policy.mode == PolicyMode::Report {
        output.remark("note: host.policy.mode is \"report\": verdicts are only written down, and nothing is refused");
    }
}
