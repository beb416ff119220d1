//! `mcp-host tools [SERVER | TOOL]`: lists the tools, or shows one in full.

use mcp_host::protocol::Raw;
use mcp_host::{Entry, registry};

use super::list::{self, Item, Kind};
use crate::args::{Common, Tools};
use crate::nearest::{nearest, question};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::Selection;
use crate::session::Session;
use crate::{arguments, joined, named, text};

pub(crate) async fn run(args: &Tools, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let mut plan = joined::plan(common, args.demo.demo).await?;
    let again = common.again(args.demo.demo);
    // If a server and a tool have the same name, the server is meant.
    let typed = match args.of.as_slice() {
        [] => return Box::pin(list::all(Kind::Tools, plan, again, output)).await,
        [name] if plan.has(name) => {
            plan.keep(Selection::Server(name))?;
            return Box::pin(list::all(Kind::Tools, plan, again, output)).await;
        }
        words => words.join(" "),
    };
    let servers: Vec<String> = plan.names().into_iter().map(str::to_owned).collect();
    let is_near = !nearest(&typed, servers.iter().map(String::as_str)).is_empty();
    if is_near && !plan.may_have_tool(&typed) {
        // Without starting anything, it is known that no such tool exists.
        return Err(plan.unknown_server(&typed));
    }
    plan.keep(Selection::Named(&typed))?;
    let session = Box::pin(Session::look(plan, again, output)).await?;
    let catalog = session.host.catalog();
    let tools = session.entries(registry::Kind::Tools, &catalog);
    let found = named::entry(&session, registry::Kind::Tools, &tools, &typed).map(|entry| {
        let item = Item::of(&session, registry::Kind::Tools, entry);
        if output.json { output.value(&item) } else { output.lines(whole(entry, session.again(), output.width())) }
    });
    let mut failures = session.failures();
    let nobody = !failures.is_empty() && failures.len() == session.status().len();
    if found.is_none() && !nobody {
        session.warn(&failures);
    }
    let help = format!("mcp-host tools{} lists all", session.again());
    session.close().await;
    match found {
        Some(written) => Ok(written.map(|()| Exit::Ok)?),
        None if nobody => Err(failures.remove(0)),
        None => {
            let tools = tools.iter().map(|tool| tool.name());
            let near = question(&nearest(&typed, servers.iter().map(String::as_str).chain(tools)));
            Err(Failure::new(Exit::Usage, format!("no server and no tool is called `{typed}`"))
                .help(near.unwrap_or(help)))
        }
    }
}

/// Returns everything that a person needs to call a tool. Prose wraps at the width of the terminal.
fn whole(entry: &Entry, again: &str, width: Option<usize>) -> Vec<String> {
    let definition = entry.definition();
    let annotations = definition.member("annotations").unwrap_or_else(Raw::empty_object);
    let empty = Raw::empty_object();
    let input = definition.member("inputSchema").unwrap_or(empty);
    let mut lines = vec![text::line(entry.name()).into_owned()];
    let title = definition.text("title").or_else(|| annotations.text("title"));
    lines.extend(title.filter(|title| title != entry.name()).map(|title| text::line(&title).into_owned()));
    if let Some(said) = definition.text("description").filter(|said| !said.trim().is_empty()) {
        lines.push(String::new());
        lines.extend(prose(&said, 0, width));
    }
    let nature = nature(&annotations);
    if !nature.is_empty() {
        lines.extend([String::new(), format!("Its server says: {}.", nature.join(", "))]);
    }
    lines.push(String::new());
    lines.extend(block("Arguments", &input, width).unwrap_or_else(|| vec!["Takes no arguments.".to_owned()]));
    if let Some(output) = definition.member("outputSchema").and_then(|schema| block("Returns", &schema, width)) {
        lines.push(String::new());
        lines.extend(output);
    }
    lines.extend([String::new(), "Example:".to_owned()]);
    lines.push(format!("  {}", arguments::example(entry.name(), &input, again)));
    lines
}

/// Returns the tool's behavior as declared by the server, in words.
fn nature(annotations: &Raw) -> Vec<&'static str> {
    let hint = |name: &str| annotations.member(name).and_then(|flag| flag.read::<bool>().ok());
    let read_only = hint("readOnlyHint") == Some(true);
    let words = [
        match (read_only, hint("readOnlyHint")) {
            (true, _) => Some("read-only"),
            (_, Some(false)) => Some("changes things"),
            _ => None,
        },
        // The next two hints do not apply to a tool that only reads.
        match hint("destructiveHint").filter(|_| !read_only) {
            Some(true) => Some("destructive"),
            Some(false) => Some("not destructive"),
            None => None,
        },
        match hint("idempotentHint").filter(|_| !read_only) {
            Some(true) => Some("safe to repeat (idempotent)"),
            Some(false) => Some("not safe to repeat"),
            None => None,
        },
        match hint("openWorldHint") {
            Some(true) => Some("reaches the outside world"),
            Some(false) => Some("stays within its own data"),
            None => None,
        },
    ];
    words.into_iter().flatten().collect()
}

/// Formats a server's text: keeps its lines, and indents them.
fn prose(said: &str, indent: usize, width: Option<usize>) -> Vec<String> {
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(indent).max(NARROWEST));
    let said = text::block(said.trim());
    let wrapped = said.lines().flat_map(|line| match text::width(line) > room {
        true => text::wrap(line, room),
        false => vec![line.to_owned()],
    });
    wrapped.map(|line| format!("{:indent$}{line}", "").trim_end().to_owned()).collect()
}

/// Formats a schema as rows under a heading. Returns `None` if the schema names no argument.
fn block(heading: &str, schema: &Raw, terminal: Option<usize>) -> Option<Vec<String>> {
    let rows = arguments::all(schema);
    if rows.is_empty() {
        return None;
    }
    let width = rows.iter().map(|row| row.path.chars().count()).max().unwrap_or(0).min(WIDEST);
    let mut lines = vec![format!("{heading}:")];
    for row in rows {
        lines.push(format!("  {:width$}  {}", row.path, row.kind));
        let said = prose(&row.description, width + 6, terminal);
        lines.extend(said.into_iter().filter(|line| !line.is_empty()));
    }
    Some(lines)
}

/// The narrowest prose in columns.
const NARROWEST: usize = 20;
/// The widest column of argument names; a longer name only moves its own line.
const WIDEST: usize = 28;
