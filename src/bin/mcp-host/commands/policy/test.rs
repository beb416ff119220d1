//! `mcp-host policy test FILE`: checks whether the rules decide as the cases in a file expect. Nothing is started.

use mcp_host::config::{Action, Case, Decision, Error, Syntax, Target};
use mcp_host::policy::Trial;
use serde::Serialize;

use super::{said, tell_mode, word};
use crate::args::{Common, PolicyTest};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::Plan;
use crate::text;

/// The result, as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Found {
    cases: usize,
    missed: Vec<Missed>,
}

/// A case about which the rules decide otherwise.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Missed {
    file: String,
    line: usize,
    case: String,
    expected: String,
    found: String,
    rule: Option<String>,
}

pub(crate) fn run(args: &PolicyTest, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let plan = Plan::load(common, false, None)?;
    plan.tell_notes(output);
    tell_mode(&plan, output);
    let file = &args.file;
    let unread = |error| Failure::new(Exit::Usage, format!("{}: {error}", file.display()));
    let text = std::fs::read_to_string(file).map_err(unread)?;
    let cases = plan.config.cases(&text, Syntax::of(file), file).map_err(|error| match error {
        Error::Invalid { problems } => Failure::found(problems),
        other => Failure::new(Exit::Usage, other.to_string()),
    })?;
    if cases.is_empty() {
        let failure = Failure::new(Exit::Usage, format!("{}: there is no case", file.display()));
        return Err(failure.help("write a list: [ { \"tool\": \"db__query\", \"expect\": \"deny\" } ]"));
    }
    let missed: Vec<Missed> = cases.iter().filter_map(|case| miss(&Trial::of(&plan.config, case), case)).collect();
    let exit = if missed.is_empty() { Exit::Ok } else { Exit::Failed };
    if output.json {
        output.value(&Found { cases: cases.len(), missed })?;
        return Ok(exit);
    }
    let line = |missed: &Missed| {
        let Missed { file, line, case, expected, found, rule: _ } = missed;
        text::line(&format!("{file}:{line}: {case}: expected {expected}, found {found}")).into_owned()
    };
    let right = cases.len() - missed.len();
    let last = format!("{right} of {} as expected", text::count(cases.len(), "case"));
    output.lines(missed.iter().map(line).chain([last]))?;
    Ok(exit)
}

/// Returns how the result differs from the case's expectation; `None` if it does not.
fn miss(trial: &Trial, case: &Case) -> Option<Missed> {
    let expected = case.expect.unwrap_or_default();
    let rule = trial.verdict.as_ref().ok().and_then(|verdict| verdict.rule.as_deref());
    // A call whose arguments are refused is not sent.
    let decision = trial.verdict.as_ref().map_or(Decision::Deny, |verdict| verdict.decision);
    let by_rule = |wanted: &String| rule.is_some_and(|rules| rules.split(", ").any(|rule| rule == wanted));
    if decision == expected && case.rule.as_ref().is_none_or(by_rule) {
        return None;
    }
    let found = match &trial.verdict {
        Ok(verdict) => said(verdict),
        Err(error) => error.clone(),
    };
    let by = case.rule.as_ref().map(|rule| format!(" by the rule {rule}"));
    Some(Missed {
        file: case.place.0.display().to_string(),
        line: case.place.1,
        case: case.title.clone().unwrap_or_else(|| named(case)),
        expected: format!("{}{}", word(expected), by.unwrap_or_default()),
        found,
        rule: rule.map(str::to_owned),
    })
}

/// Describes the request of a case.
fn named(case: &Case) -> String {
    match &case.target {
        Target::Tool(name) => name.clone(),
        Target::Prompt(name) => format!("prompt {name}"),
        Target::Resource(uri) => format!("resource {uri}"),
        _ => {
            let asks = match case.action {
                Action::Sample => "sample",
                Action::Elicit => "elicit",
                _ => "roots",
            };
            format!("{asks} of {}", case.server.as_deref().unwrap_or_default())
        }
    }
}
