//! `mcp-host tools|resources|prompts [SERVER]`: what there is.

use mcp_host::protocol::Raw;
use mcp_host::{Catalog, Entry};
use serde::Serialize;

use crate::args::{Common, List};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{Plan, Wanted};
use crate::session::Session;
use crate::text;

/// What is listed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Tools,
    Resources,
    Prompts,
}

/// One entry for a machine.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    name: &'a str,
    server: &'a str,
    definition: &'a Raw,
}

pub(crate) async fn run(kind: Kind, args: &List, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let wanted = args.server.as_deref().map_or(Wanted::All, Wanted::Server);
    let mut plan = Plan::load(common, args.demo.demo, None)?;
    plan.keep(wanted)?;
    let session = Session::look(plan, common.again(args.demo.demo), output).await?;
    let catalog = session.host.catalog();
    let mut failures = session.failures();
    // A failed server never fails the list of the others. With nobody left, its failure is the answer.
    let nobody = !failures.is_empty() && failures.len() == session.host.status().len();
    let first = nobody.then(|| failures.remove(0));
    session.warn(&failures);
    session.close().await;
    match first {
        Some(failure) => Err(failure),
        None => print(kind, &catalog, output),
    }
}

fn print(kind: Kind, catalog: &Catalog, output: &Output) -> Result<Exit, Failure> {
    let entries: Vec<&Entry> = match kind {
        Kind::Tools => catalog.tools().iter().collect(),
        Kind::Prompts => catalog.prompts().iter().collect(),
        Kind::Resources => catalog.resources().iter().chain(catalog.resource_templates()).collect(),
    };
    if output.json {
        let items = entries.iter().map(|entry| Item {
            name: entry.name(),
            server: entry.server().as_str(),
            definition: entry.definition(),
        });
        output.value(&items.collect::<Vec<_>>())?;
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
    let rows: Vec<Vec<String>> = entries.iter().map(|entry| row(kind, entry)).collect();
    let head = match kind {
        Kind::Tools => ["TOOL", "DESCRIPTION"].as_slice(),
        Kind::Resources => ["URI", "TYPE", "DESCRIPTION"].as_slice(),
        Kind::Prompts => ["PROMPT", "ARGUMENTS", "DESCRIPTION"].as_slice(),
    };
    output.lines(text::table(head, &rows))?;
    Ok(Exit::Ok)
}

fn row(kind: Kind, entry: &Entry) -> Vec<String> {
    let definition = entry.definition();
    let name = text::line(entry.name()).into_owned();
    let said = definition.text("description").or_else(|| definition.text("title")).unwrap_or_default();
    match kind {
        Kind::Tools => vec![name, text::headline(&said, WIDTH)],
        Kind::Prompts => vec![name, arguments(definition), text::headline(&said, WIDTH)],
        Kind::Resources => {
            let said = if said.is_empty() { definition.text("name").unwrap_or_default() } else { said };
            let mime = definition.text("mimeType").unwrap_or_default();
            vec![name, text::line(&mime).into_owned(), text::headline(&said, WIDTH)]
        }
    }
}

/// `topic= [tone=]`: what is required, and in brackets what is not.
fn arguments(definition: &Raw) -> String {
    let list: Vec<Raw> = definition.member("arguments").and_then(|list| list.read().ok()).unwrap_or_default();
    let words = list.iter().map(|argument| {
        let name = argument.text("name").unwrap_or_default();
        let required = argument.member("required").is_some_and(|flag| flag.as_str() == "true");
        if required { format!("{}=", text::line(&name)) } else { format!("[{}=]", text::line(&name)) }
    });
    words.collect::<Vec<_>>().join(" ")
}

const WIDTH: usize = 80;
