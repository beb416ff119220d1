//! `mcp-host policy explain TOOL`: shows what the rules decide about one call, and why each rule matches or not.
//!
//! The server of the tool is started to get the tool's definition, with no rules and no view, so that nothing is left
//! out. No tool is called.

use mcp_host::config::{Audience, Case, Decision, Hints, HostAuth};
use mcp_host::policy::{Proof, Trial};
use mcp_host::protocol::Raw;
use mcp_host::registry::Kind;
use serde::Serialize;
use serde_json::Value;

use super::{said, tell_mode, word};
use crate::args::{Common, PolicyExplain};
use crate::output::Output;
use crate::parameters::{self, Misfit};
use crate::report::{Exit, Failure};
use crate::servers::{Plan, Selection};
use crate::session::Session;
use crate::{given, named, text};

/// The decision of the rules, as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Explained {
    tool: String,
    verdict: Option<&'static str>,
    rule: Option<String>,
    refused: Option<String>,
    hidden: bool,
    rules: Vec<Row>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    name: String,
    verdict: &'static str,
    matches: bool,
    why: Option<String>,
}

/// What is known of a tool.
struct Known {
    name: String,
    server: Option<String>,
    raw_name: Option<String>,
    hints: Hints,
    input: Option<Value>,
}

pub(crate) async fn run(args: &PolicyExplain, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let words = given::read(&args.arguments, output).await?;
    parameters::for_tool(&words, None, Misfit::Refuse)?;
    let mut plan = Plan::load(common, false, None)?;
    plan.tell_notes(output);
    tell_mode(&plan, output);
    let config = plan.config.clone();
    let view = plan.view().map(str::to_owned);
    let principal = args.principal.as_deref().map(|name| principal(name, &config.host.auth)).transpose()?;
    // Tools that rules and views leave out can be explained, too.
    plan.config.host.policy = Default::default();
    plan.config.host.views.clear();
    plan.config.host.default_view = "all".to_owned();
    let known = Box::pin(look(plan, &args.tool, common, output)).await?;
    let arguments = parameters::for_tool(&words, known.input.as_ref(), Misfit::Send)?;
    let mut case = Case::tool(&known.name);
    case.server = known.server;
    case.raw_name = known.raw_name;
    case.hints = known.hints;
    case.view = view;
    case.principal = principal.unwrap_or(Audience::Local);
    case.arguments = Some(arguments);
    let trial = Trial::of(&config, &case);
    let verdicts = config.host.policy.rules.iter().map(|rule| rule.verdict);
    let rows: Vec<Row> =
        trial.rules.iter().zip(verdicts).map(|((name, why), verdict)| row(name, why, verdict)).collect();
    if output.json {
        let verdict = trial.verdict.as_ref();
        output.value(&Explained {
            tool: known.name,
            verdict: verdict.ok().map(|verdict| word(verdict.decision)),
            rule: verdict.ok().and_then(|verdict| Some(verdict.rule.as_deref()?.to_owned())),
            refused: verdict.err().cloned(),
            hidden: trial.hidden,
            rules: rows,
        })?;
        return Ok(Exit::Ok);
    }
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or_default();
    let lines = rows.into_iter().map(|row| {
        let why = row.why.map_or("matches".to_owned(), |why| format!("does not match: {why}"));
        format!("  {:width$}  {:5}  {why}", row.name, row.verdict)
    });
    output.lines([text::line(&headline(&known.name, &trial)).into_owned()].into_iter().chain(lines))?;
    Ok(Exit::Ok)
}

fn row(name: &str, why: &Result<(), String>, verdict: Decision) -> Row {
    Row { name: name.to_owned(), verdict: word(verdict), matches: why.is_ok(), why: why.as_ref().err().cloned() }
}

/// Describes what happens to the call.
fn headline(name: &str, trial: &Trial) -> String {
    let verdict = match &trial.verdict {
        Ok(verdict) => verdict,
        Err(refused) => return format!("{name}: {refused}"),
    };
    let mut line = format!("{name}: {}", said(verdict));
    if verdict.decision == Decision::Ask {
        let who =
            if verdict.proof == Proof::Person { "the person who runs the host" } else { "the client's form will do" };
        let kept = verdict.remember.map(|time| format!(", and a yes counts for {}", text::duration(millis(time))));
        line.push_str(&format!(" ({who}{})", kept.unwrap_or_default()));
    }
    if trial.hidden {
        line.push_str("; clients are not shown it");
    }
    line
}

fn millis(time: std::time::Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn principal(name: &str, auth: &HostAuth) -> Result<Audience, Failure> {
    if name == "local" {
        return Ok(Audience::Local);
    }
    let nobody = |help: String| Failure::new(Exit::Usage, format!("there is no client `{name}`")).help(help);
    match Audience::parse(name) {
        Some(Audience::Client(client)) => {
            let HostAuth::Bearer(clients) = auth else {
                return Err(nobody("the config has no `host.auth.clients`".to_owned()));
            };
            if clients.iter().any(|known| known.name == client) {
                return Ok(Audience::Client(client));
            }
            let names: Vec<&str> = clients.iter().map(|client| client.name.as_str()).collect();
            Err(nobody(format!("the clients are {}", names.join(", "))))
        }
        Some(one @ Audience::Subject(..)) => Ok(one),
        _ => Err(nobody("write local, the name of a client, or ISSUER#SUBJECT".to_owned())),
    }
}

/// Looks the tool up at its server. If the tool is not listed, only its name is known.
async fn look(mut plan: Plan, typed: &str, common: &Common, output: &Output) -> Result<Known, Failure> {
    let by_name =
        || Known { name: typed.to_owned(), server: None, raw_name: None, hints: Hints::default(), input: None };
    if plan.names().is_empty() || plan.keep(Selection::Named(typed)).is_err() {
        output.remark(&format!("note: no server lists `{typed}`; it is judged by its name alone"));
        return Ok(by_name());
    }
    let session = Box::pin(Session::look_alone(plan, common.again(false), output)).await?;
    session.warn(&session.failures());
    let catalog = session.host.catalog();
    let tools = session.entries(Kind::Tools, &catalog);
    let known = named::entry(&session, Kind::Tools, &tools, typed).map(|entry| Known {
        name: entry.name().to_owned(),
        server: Some(entry.server().as_str().to_owned()),
        raw_name: Some(entry.raw_name().to_owned()),
        hints: hints(entry.definition()),
        input: entry.definition().member("inputSchema").and_then(|schema| schema.read().ok()),
    });
    session.close().await;
    if known.is_none() {
        output.remark(&format!("note: no server lists `{typed}`; it is judged by its name alone"));
    }
    Ok(known.unwrap_or_else(by_name))
}

/// Returns the hints in a tool's definition.
fn hints(definition: &Raw) -> Hints {
    let annotations = definition.member("annotations").unwrap_or_else(Raw::empty_object);
    let hint = |name: &str| annotations.member(name).and_then(|flag| flag.read().ok());
    let mut hints = Hints::default();
    hints.read_only_hint = hint("readOnlyHint");
    hints.destructive_hint = hint("destructiveHint");
    hints.idempotent_hint = hint("idempotentHint");
    hints.open_world_hint = hint("openWorldHint");
    hints
}
