//! `mcp-host tools|resources|prompts [SERVER]`: lists what servers offer. `tools.rs` shows a single tool.

use mcp_host::protocol::Raw;
use mcp_host::{Catalog, Entry, registry};
use serde::Serialize;

use crate::args::{Common, List};
use crate::arguments::summary;
use crate::joined;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{Plan, Selection};
use crate::session::Session;
use crate::table::{Column, Table};
use crate::text;

/// The kind of things to list.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Tools,
    Resources,
    Prompts,
}

/// One entry of a list, as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Item<'a> {
    name: &'a str,
    server: &'a str,
    definition: Raw,
}

impl<'a> Item<'a> {
    pub(super) fn of(session: &'a Session<'_>, kind: registry::Kind, entry: &'a Entry) -> Self {
        Self { name: entry.name(), server: session.owner(kind, entry).0, definition: session.definition(entry) }
    }
}

pub(crate) async fn run(kind: Kind, args: &List, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let wanted = args.server.as_deref().map_or(Selection::All, Selection::Server);
    let mut plan = joined::plan(common, args.demo.demo).await?;
    plan.keep(wanted)?;
    Box::pin(all(kind, plan, common.again(args.demo.demo), output)).await
}

/// Lists what the servers of a plan offer.
pub(super) async fn all(kind: Kind, plan: Plan, again: String, output: &Output) -> Result<Exit, Failure> {
    let session = Box::pin(Session::look(plan, again, output)).await?;
    let catalog = session.host.catalog();
    let mut failures = session.failures();
    // A failed server never fails the list of the others. If all servers fail, the first failure is the outcome.
    let nobody = !failures.is_empty() && failures.len() == session.status().len();
    let first = nobody.then(|| failures.remove(0));
    session.warn(&failures);
    let outcome = first.map_or_else(|| print(kind, &session, &catalog, output), Err);
    session.close().await;
    outcome
}

fn print(kind: Kind, session: &Session<'_>, catalog: &Catalog, output: &Output) -> Result<Exit, Failure> {
    let kinds: &[registry::Kind] = match kind {
        Kind::Tools => &[registry::Kind::Tools],
        Kind::Prompts => &[registry::Kind::Prompts],
        Kind::Resources => &[registry::Kind::Resources, registry::Kind::ResourceTemplates],
    };
    let of = |kind: registry::Kind| session.entries(kind, catalog).into_iter().map(move |entry| (kind, entry));
    let entries: Vec<(registry::Kind, &Entry)> = kinds.iter().copied().flat_map(of).collect();
    if output.json {
        let items: Vec<Item<'_>> = entries.iter().map(|(kind, entry)| Item::of(session, *kind, entry)).collect();
        output.value(&items)?;
        return Ok(Exit::Ok);
    }
    if entries.is_empty() {
        output.remark(match kind {
            Kind::Tools => "no tools",
            Kind::Resources => "no resources",
            Kind::Prompts => "no prompts",
        });
        return Ok(Exit::Ok);
    }
    let description = Column::cuts("DESCRIPTION");
    let mut table = match kind {
        Kind::Tools => Table::new(&[Column::stays("TOOL"), Column::wraps("ARGUMENTS"), description]),
        Kind::Resources => Table::new(&[Column::stays("URI"), Column::stays("TYPE"), description]),
        Kind::Prompts => Table::new(&[Column::stays("PROMPT"), Column::wraps("ARGUMENTS"), description]),
    };
    entries.iter().for_each(|(_, entry)| table.row(row(kind, entry)));
    output.table(table)?;
    Ok(Exit::Ok)
}

fn row(kind: Kind, entry: &Entry) -> Vec<String> {
    let definition = entry.definition();
    let name = entry.name().to_owned();
    let said = definition.text("description").or_else(|| definition.text("title")).unwrap_or_default();
    match kind {
        Kind::Tools => {
            let input = definition.member("inputSchema");
            vec![name, input.as_ref().map(summary).unwrap_or_default(), text::headline(&said)]
        }
        Kind::Prompts => vec![name, arguments(definition), text::headline(&said)],
        Kind::Resources => {
            let said = if said.is_empty() { definition.text("name").unwrap_or_default() } else { said };
            let mime = definition.text("mimeType").unwrap_or_default();
            vec![name, mime, text::headline(&said)]
        }
    }
}

/// Formats `topic= [tone=]`, with optional arguments in brackets.
fn arguments(definition: &Raw) -> String {
    let list: Vec<Raw> = definition.member("arguments").and_then(|list| list.read().ok()).unwrap_or_default();
    let words = list.iter().map(|argument| {
        let name = argument.text("name").unwrap_or_default();
        let required = argument.member("required").is_some_and(|flag| flag.as_str() == "true");
        if required { format!("{}=", text::line(&name)) } else { format!("[{}=]", text::line(&name)) }
    });
    words.collect::<Vec<_>>().join(" ")
}
