//! `mcp-host undo`: undoes edits of a config.

use std::time::{SystemTime, UNIX_EPOCH};

use mcp_host::config::LoadRequest;
use mcp_host::config::edit::{Done, What};
use mcp_host::edits::{Error, Record, UndoneFile};
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
    /// When it was made, in seconds since 1970.
    at: u64,
    what: String,
    files: Vec<String>,
    /// Whether it can be undone.
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
        let first = meant.and_then(|(record, _)| record.parts.first());
        let file = first.map_or_else(|| path_of(&error), |part| part.file.clone());
        failed(error, &file)
    })?;
    for file in &undone.files {
        stay_approved(file, &request).await?;
    }
    let failures: Vec<Failure> = undone.refused.into_iter().map(|(file, error)| failed(error, &file)).collect();
    let code = if failures.is_empty() { Exit::Ok } else { Exit::Failed };
    if output.json {
        let files = undone.files.iter().map(|file| file.part.file.display().to_string()).collect();
        let what = reversed(&undone.record);
        output.value(&Row { edit: undone.id, at: now(), what, files, stands: true })?;
        failures.iter().for_each(|failure| failure.warn(output));
        return Ok(code);
    }
    let (id, what) = (undone.record.id, said(&undone.record));
    match &undone.files[..] {
        [file] if undone.record.parts.len() == 1 => {
            let how = how(file);
            output.line(&format!("took back edit {id}: {what}; {} {how}", shown(&file.part.file)))?;
        }
        files => {
            output.line(&format!("took back edit {id}: {what}"))?;
            output.lines(files.iter().map(|file| format!("  {} {}", shown(&file.part.file), how(file))))?;
        }
    }
    failures.iter().for_each(|failure| failure.warn(output));
    output.remark(&format!("mcp-host undo {} does it again", undone.id));
    Ok(code)
}

fn how(file: &UndoneFile) -> &'static str {
    if file.is_exact { "is as before it" } else { "was changed since, and only this edit is taken back" }
}

/// Keeps entries of a project approved that were approved before the undo.
async fn stay_approved(file: &UndoneFile, request: &LoadRequest) -> Result<(), Failure> {
    let UndoneFile { part, was, text, .. } = file;
    let (Some(was), Some(text)) = (was, text) else { return Ok(()) };
    if !part.is_project {
        return Ok(());
    }
    let request = LoadRequest { files: vec![part.file.clone()], project: true, ..request.clone() };
    let before = write::load(&request, &part.file, was).ok();
    let after = write::load(&request, &part.file, text).ok();
    for Done { name, what } in &part.done {
        let until_now = match what {
            What::Rename(to) => to,
            _ => name,
        };
        let server = before.as_ref().and_then(|config| write::server(config, until_now));
        if server.is_some_and(write::is_approved) {
            write::keep_approved(after.as_ref(), name).await?;
        }
    }
    Ok(())
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
        what: said(record),
        files: record.parts.iter().map(|part| part.file.display().to_string()).collect(),
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
        let more = match row.files.len() {
            0 | 1 => String::new(),
            count => format!(", and {} more", count - 1),
        };
        let file = row.files.first().map(|file| format!("{file}{more}")).unwrap_or_default();
        table.row([row.edit.to_string(), age, row.what, stands.to_owned(), file]);
    }
    output.table(table)?;
    Ok(Exit::Ok)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// Describes an edit, such as `removed files`, or `migrate`.
fn said(record: &Record) -> String {
    let all = record.parts.iter().flat_map(|part| &part.done);
    match &record.command {
        Some(command) if record.undoes.is_some() => format!("took back {}", text::line(command)),
        Some(command) => text::line(command).into_owned(),
        None => all.map(in_words).collect::<Vec<_>>().join(", "),
    }
}

/// Describes the edit that undid another one.
fn reversed(record: &Record) -> String {
    let all = record.parts.iter().flat_map(|part| &part.done);
    match &record.command {
        Some(command) => format!("took back {}", text::line(command)),
        None => all.map(|done| in_words(&done.reversed())).collect::<Vec<_>>().join(", "),
    }
}

fn in_words(done: &Done) -> String {
    let name = text::line(&done.name);
    match &done.what {
        What::Add => format!("added {name}"),
        What::Remove => format!("removed {name}"),
        What::Rename(to) => format!("renamed {name} to {}", text::line(to)),
        What::Enable => format!("enabled {name}"),
        What::Disable => format!("disabled {name}"),
        What::Setting(key) => format!("changed host.{}", text::line(&key.join("."))),
        What::Text(_) => format!("changed {name}"),
    }
}
