//! `mcp-host search`: finds servers in the registry.

use mcp_host::install::{Manifest, Status};
use serde::Serialize;

use super::failures::failed;
use super::{open, tell_age};
use crate::args::{Common, Search};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers;
use crate::table::{Column, Table};
use crate::text;

/// A server, as `--json` prints it.
#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    version: &'a str,
    title: Option<&'a str>,
    description: &'a str,
    status: &'static str,
    forms: Vec<&'a str>,
}

pub(super) async fn run(args: &Search, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let index = open(&servers::request(common, None))?;
    let found = index.search(&args.words, usize::from(args.number)).await.map_err(|error| failed(&error))?;
    tell_age(found.freshness, &index, output);
    if let Some((count, first)) = &found.skipped {
        let entries = text::count(*count, "entry");
        output.talk(&format!("warning: {entries} left out that cannot be read; the first: {first}"));
    }
    let row = |server| row(server);
    let rows: Vec<Row<'_>> = found.servers.iter().map(row).collect();
    if output.json {
        output.value(&rows)?;
        return Ok(Exit::Ok);
    }
    if rows.is_empty() {
        output.remark(&format!("{} has no server with these words", index.origin()));
        return Ok(Exit::Ok);
    }
    let columns =
        [Column::stays("SERVER"), Column::stays("VERSION"), Column::stays("FORMS"), Column::cuts("DESCRIPTION")];
    let mut table = Table::new(&columns);
    for row in &rows {
        let note = if row.status == "active" { String::new() } else { format!("({}) ", row.status) };
        table.row([
            text::line(row.name).into_owned(),
            text::line(row.version).into_owned(),
            text::line(&row.forms.join(", ")).into_owned(),
            format!("{note}{}", text::headline(row.description)),
        ]);
    }
    output.table(table)?;
    if found.is_cut {
        output.remark("there are more: give more words, or --number");
    }
    output.remark("mcp-host show NAME shows one, mcp-host install NAME adds it to the config");
    Ok(Exit::Ok)
}

fn row(server: &Manifest) -> Row<'_> {
    Row {
        name: &server.name,
        version: &server.version,
        title: server.title.as_deref(),
        description: &server.description,
        status: status(server.status),
        forms: server.forms(),
    }
}

pub(super) fn status(status: Status) -> &'static str {
    match status {
        Status::Active => "active",
        Status::Deprecated => "deprecated",
        Status::Deleted => "deleted",
    }
}
