//! `mcp-host tools|resources|prompts [SERVER]`: what there is.

use mcp_host::protocol::Raw;
use mcp_host::{Catalog, Entry, Host};
use serde::Serialize;

use crate::args::{Common, List};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{self, Wanted};
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
    let host = servers::start(common, args.demo.demo, wanted, output).await?;
    let printed = print(kind, &host.catalog(), output);
    let outcome = judge(&host, output);
    host.shutdown().await;
    printed?;
    outcome
}

/// A failed server never fails the list of the others. With nobody left, its failure is the answer.
fn judge(host: &Host, output: &Output) -> Result<Exit, Failure> {
    let mut failures = servers::failures(host);
    let all_failed = failures.len() == host.status().len();
    let first = if all_failed && !failures.is_empty() { Some(failures.remove(0)) } else { None };
    for failure in failures.iter().filter(|failure| failure.exit != Exit::Denied) {
        failure.warn(output);
    }
    first.map_or(Ok(Exit::Ok), Err)
}

fn print(kind: Kind, catalog: &Catalog, output: &Output) -> Result<(), Failure> {
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
        return Ok(output.value(&items.collect::<Vec<_>>())?);
    }
    if entries.is_empty() {
        output.remark(match kind {
            Kind::Tools => "no tools",
            Kind::Resources => "no resources",
            Kind::Prompts => "no prompts",
        });
        return Ok(());
    }
    let rows: Vec<Vec<String>> = entries.iter().map(|entry| row(kind, entry)).collect();
    let head = match kind {
        Kind::Tools => ["TOOL", "DESCRIPTION"].as_slice(),
        Kind::Resources => ["URI", "TYPE", "DESCRIPTION"].as_slice(),
        Kind::Prompts => ["PROMPT", "ARGUMENTS", "DESCRIPTION"].as_slice(),
    };
    Ok(output.lines(text::table(head, &rows))?)
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
