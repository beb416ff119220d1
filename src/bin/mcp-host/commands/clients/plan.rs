//! The changes that a command plans for each file. They are shown, the user is asked, and all are written as one edit.

use std::path::PathBuf;

use mcp_host::config::LoadRequest;
use mcp_host::config::clients::Client;
use mcp_host::config::edit::{self, Change};
use mcp_host::edits::{Error, FileChange};
use serde::Serialize;

use super::diff;
use super::here::Here;
use super::own::{Own, with};
use crate::args::Move;
use crate::commands::agreed;
use crate::commands::edits::failures::failed;
use crate::commands::edits::target::Target;
use crate::commands::edits::write::{LOOK, edits, look, shown};
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers;
use crate::text;

/// The changes of one file.
#[derive(Debug)]
pub(super) struct Planned {
    /// The client whose file it is; `None` for our own config.
    client: Option<&'static Client>,
    file: PathBuf,
    seen: Option<String>,
    changes: Vec<Change>,
    request: LoadRequest,
    /// The text after the changes.
    new: String,
}

impl Planned {
    /// Plans changes of our own config. Returns `None` if there are none.
    pub(super) fn of_own(own: &Own, changes: Vec<Change>) -> Result<Option<Self>, Failure> {
        let planned = Self::of(None, own.file.clone(), own.text.clone(), own.request.clone(), changes)?;
        if let Some(planned) = &planned {
            servers::load(&with(&own.request, &planned.new)).map_err(|error| {
                let help = "nothing was written: the config could not be read with this edit".to_owned();
                Failure::from(error).more_help(vec![help])
            })?;
        }
        Ok(planned)
    }

    /// Plans changes of a client's file.
    pub(super) fn of_client(here: &Here, own: &Own, changes: Vec<Change>) -> Result<Option<Self>, Failure> {
        let seen = here.text().map(str::to_owned);
        Self::of(Some(here.client), here.file.clone(), seen, here.request(own), changes)
    }

    fn of(
        client: Option<&'static Client>,
        file: PathBuf,
        seen: Option<String>,
        request: LoadRequest,
        changes: Vec<Change>,
    ) -> Result<Option<Self>, Failure> {
        if changes.is_empty() {
            return Ok(None);
        }
        let text = seen.as_deref().unwrap_or_default();
        let (new, _) = edit::edit_all(text, &file, &request, &changes)
            .map_err(|refused| failed(Error::Refused(refused), &file))?;
        Ok(Some(Self { client, file, seen, changes, request, new }))
    }

    fn diff(&self) -> Vec<String> {
        diff::shown(self.seen.as_deref().unwrap_or_default(), &self.new)
    }
}

/// The changes of all files, and what to tell the user about them.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) files: Vec<Planned>,
    /// The clients and servers that are left unchanged, and why.
    pub(super) refused: Vec<Refused>,
    /// What the user should know, such as which clients to restart.
    pub(super) remarks: Vec<String>,
    /// The result in one line.
    pub(super) summary: String,
}

/// A client or server that is left unchanged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Refused {
    pub(super) client: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) server: Option<String>,
    pub(super) why: String,
}

impl Refused {
    fn line(&self) -> String {
        let name = Client::named(self.client).map_or(self.client, |client| client.name);
        match &self.server {
            Some(server) => format!("{name}: `{server}`: {}", self.why),
            None => format!("{name}: {}", self.why),
        }
    }
}

/// What a command did, as `--json` prints it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Told<'a> {
    command: &'a str,
    /// The number for `undo`; `None` if nothing was written.
    edit: Option<u64>,
    files: Vec<File>,
    refused: &'a [Refused],
    remarks: &'a [String],
}

#[derive(Serialize)]
struct File {
    client: Option<&'static str>,
    file: String,
    diff: Vec<String>,
}

impl Plan {
    /// Records that a client is left unchanged.
    pub(super) fn refuse(&mut self, client: &'static Client, why: impl Into<String>) {
        self.refused.push(Refused { client: client.id, server: None, why: why.into() });
    }

    /// Records that a server of a client is left unchanged.
    pub(super) fn refuse_server(&mut self, client: &'static Client, server: &str, why: impl Into<String>) {
        self.refused.push(Refused { client: client.id, server: Some(server.to_owned()), why: why.into() });
    }

    /// Plans changes of a client's file. If they cannot be made, the client is left unchanged. Returns whether they
    /// can.
    pub(super) fn add(&mut self, here: &Here, own: &Own, changes: Vec<Change>) -> bool {
        match Planned::of_client(here, own, changes) {
            Ok(planned) => {
                self.files.extend(planned);
                true
            }
            Err(failure) => {
                self.refuse(here.client, failure.first());
                false
            }
        }
    }

    /// Returns the text that a client's file will have.
    pub(super) fn text_of(&self, here: &Here) -> Option<&str> {
        let planned = self.files.iter().find(|planned| planned.client == Some(here.client))?;
        Some(&planned.new)
    }

    /// Shows the plan, asks, and writes it.
    pub(super) async fn carry_out(self, command: &str, how: &Move, output: &Output) -> Result<Exit, Failure> {
        if !output.json {
            self.show(output)?;
        }
        // Everything that was left unchanged is reported, so the exit code says that the command was not fully
        // successful.
        let code = if self.refused.is_empty() { Exit::Ok } else { Exit::Failed };
        if self.files.is_empty() {
            self.told(command, None, output)?;
            if !output.json {
                output.remark("nothing to write");
            }
            return Ok(code);
        }
        if how.dry_run {
            self.told(command, None, output)?;
            return Ok(code);
        }
        if !how.yes {
            if !output.interactive() {
                self.told(command, None, output)?;
                let error = "nothing was written: there is no terminal to ask on";
                return Err(Failure::new(Exit::Denied, error).help(format!("mcp-host {command} … --yes writes it")));
            }
            if !agreed("Write this? [y/N]", output).await {
                return Err(Failure::new(Exit::Denied, "nothing was written"));
            }
        }
        let change = |planned: &Planned| FileChange {
            file: planned.file.clone(),
            seen: planned.seen.clone(),
            changes: planned.changes.clone(),
            request: planned.request.clone(),
        };
        let changes = self.files.iter().map(change).collect();
        let made = edits()?.make_all(Some(command), changes).await.map_err(|error| {
            let file = match &error {
                Error::Read { path, .. } | Error::Write { path, .. } | Error::Changed { path } => path.clone(),
                _ => PathBuf::new(),
            };
            failed(error, &file)
        })?;
        self.told(command, Some(made.id), output)?;
        self.watch(output).await;
        Ok(code)
    }

    /// Checks after a second whether running clients have overwritten the edit.
    async fn watch(&self, output: &Output) {
        let theirs: Vec<&Planned> = self.files.iter().filter(|planned| planned.client.is_some()).collect();
        if theirs.is_empty() {
            return;
        }
        tokio::time::sleep(LOOK).await;
        for planned in theirs {
            // A client writes its whole file, so checking one change is enough.
            let is_link = |change: &&Change| matches!(change, Change::Add { .. });
            let target = Target { file: planned.file.clone(), request: planned.request.clone() };
            if let Some(change) = planned.changes.iter().find(is_link).or(planned.changes.first()) {
                look(&target, change, output);
            }
        }
    }

    fn show(&self, output: &Output) -> Result<(), Failure> {
        for refused in &self.refused {
            output.talk(&format!("warning: {}", refused.line()));
        }
        for planned in &self.files {
            let owner = planned.client.map_or("mcp-host", |client| client.name);
            let new = if planned.seen.is_none() { ", a new file" } else { "" };
            output.line(&format!("{}  ({owner}{new})", shown(&planned.file)))?;
            output.lines(planned.diff().iter().map(|line| format!("  {line}")))?;
            output.line("")?;
        }
        Ok(())
    }

    fn told(&self, command: &str, edit: Option<u64>, output: &Output) -> Result<(), Failure> {
        if output.json {
            let file = |planned: &Planned| File {
                client: planned.client.map(|client| client.id),
                file: planned.file.display().to_string(),
                diff: planned.diff(),
            };
            let files = self.files.iter().map(file).collect();
            let told = Told { command, edit, files, refused: &self.refused, remarks: &self.remarks };
            return Ok(output.value(&told)?);
        }
        let Some(id) = edit else { return Ok(()) };
        output.line(&format!("{}; mcp-host undo {id}", text::line(&self.summary)))?;
        self.remarks.iter().for_each(|remark| output.remark(remark));
        Ok(())
    }
}
