//! `mcp-host undo`: takes edits of a config back.

use std::time::{SystemTime, UNIX_EPOCH};

use mcp_host::config::LoadRequest;
use mcp_host::config::edit::{Done, What};
use mcp_host::edits::{Error, Record, Undone};
use serde::Serialize;

use super::failures::failed;
use super::write::{self, shown};
use crate::args::{Common, Undo};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers;
use crate::table::{Column, Table};
use crate::text;

/// An edit, as `--json` prints it.
#[derive(Serialize)]
struct Row {
    edit: u64,
    /// In seconds since 1970.
    at: u64,
    what: String,
    file: String,
    /// Whether it can be taken back.
    stands: bool,
}

pub(super) async fn run(args: &Undo, common: &Common, output: &Output) -> Result<Exit, Failure> {
    let edits = write::edits()?;
    let request = LoadRequest { files: Vec::new(), ..servers::request(common, None) };
    let whole = |error: Error| {
        let file = path_of(&error);
        failed(error, &file)
    };
    let all = edits.list().await.map_err(whole)?;
    if args.list {
        return list(&all, output);
    }
    write::refuse_below()?;
    let meant = match args.id {
        Some(id) => all.iter().find(|(record, _)| record.id == id),
        None => all.iter().find(|(record, stands)| *stands && record.undoes.is_none()),
    };
    let undone = edits.undo(args.id, request.clone()).await.map_err(|error| {
        let file = meant.map_or_else(|| path_of(&error), |(record, _)| record.file.clone());
        failed(error, &file)
    })?;
    stay_approved(&undone, &request).await?;
    if output.json {
        output.value(&Row {
            edit: undone.id,
            at: now(),
            what: said(&undone.record.done.reversed()),
            file: undone.record.file.display().to_string(),
            stands: true,
        })?;
        return Ok(Exit::Ok);
    }
    let file = shown(&undone.record.file);
    let how = if undone.is_exact { "is as before it" } else { "was changed since, and only this edit is taken back" };
    output.line(&format!("took back edit {}: {}; {file} {how}", undone.record.id, said(&undone.record.done)))?;
    output.remark(&format!("mcp-host undo {} does it again", undone.id));
    Ok(Exit::Ok)
}

/// Keeps an entry of a project approved that was approved until now.
async fn stay_approved(undone: &Undone, request: &LoadRequest) -> Result<(), Failure> {
    let Undone { record, was, text, .. } = undone;
    let (Some(was), Some(text)) = (was, text) else { return Ok(()) };
    if !record.is_project {
        return Ok(());
    }
    let request = LoadRequest { files: vec![record.file.clone()], project: true, ..request.clone() };
    let Done { name, what } = &record.done;
    let until_now = match what {
        What::Rename(to) => to,
        _ => name,
    };
    let before = write::load(&request, &record.file, was).ok();
    let was_approved =
        before.as_ref().and_then(|config| write::server(config, until_now)).is_some_and(write::is_approved);
    let after = write::load(&request, &record.file, text).ok();
    if was_approved { write::keep_approved(after.as_ref(), name).await } else { Ok(()) }
}

fn path_of(error: &Error) -> std::path::PathBuf {
    match error {
        Error::Read { path, .. } | Error::Write { path, .. } | Error::Changed { path } => path.clone(),
        _ => std::path::PathBuf::new(),
    }
}

fn list(all: &[(Record, bool)], output: &Output) -> Result<Exit, Failure> {
    let row = |(record, stands): &(Record, bool)| Row {
        edit: record.id,
        at: record.at,
        what: said(&record.done),
        file: record.file.display().to_string(),
        stands: *stands,
    };
    let rows: Vec<Row> = all.iter().map(row).collect();
    if output.json {
        output.value(&rows)?;
        return Ok(Exit::Ok);
    }
    if rows.is_empty() {
        output.remark("no edits so far");
        return Ok(Exit::Ok);
    }
    let columns = [
        Column::stays("ID"),
        Column::stays("AGE"),
        Column::wraps("EDIT"),
        Column::stays("STANDS"),
        Column::cuts("FILE"),
    ];
    let mut table = Table::new(&columns);
    let now = now();
    for row in rows {
        let age = text::duration(now.saturating_sub(row.at).saturating_mul(1000));
        let stands = if row.stands { "yes" } else { "no" };
        table.row([row.edit.to_string(), age, row.what, stands.to_owned(), row.file]);
    }
    output.table(table)?;
    Ok(Exit::Ok)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Returns an edit in words, such as `removed files`.
fn said(done: &Done) -> String {
    let name = text::line(&done.name);
    match &done.what {
        What::Add => format!("added {name}"),
        What::Remove => format!("removed {name}"),
        What::Rename(to) => format!("renamed {name} to {}", text::line(to)),
        What::Enable => format!("enabled {name}"),
        What::Disable => format!("disabled {name}"),
    }
}
