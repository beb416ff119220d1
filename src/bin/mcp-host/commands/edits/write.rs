//! Makes an edit: checks that the config can still be read with it, writes it, and keeps approved what the user has
//! approved of a project.

use std::path::Path;
use std::time::Duration;

use mcp_host::approvals::Approvals;
use mcp_host::config::edit::{Change, Edited, Refused, edit, edit_all};
use mcp_host::config::{self, Config, LoadRequest, Server};
use mcp_host::edits::{Edits, Error, FileChange, Made};
use mcp_host::pins;
use serde::Serialize;

use super::failures::failed;
use super::target::Target;
use crate::output::Output;
use crate::report::{Exit, Failure};
use crate::servers::{self, state_directory};
use crate::text;

/// How often to start again if another program writes the file at the same time.
const TRIES: usize = 20;
/// When to check whether another program has overwritten the edit.
pub(in crate::commands) const LOOK: Duration = Duration::from_secs(1);

/// An edit, as `--json` prints it.
#[derive(Serialize)]
struct Told<'a> {
    edit: u64,
    server: &'a str,
    file: String,
}

/// The result that an edit would have for the file and for the config.
pub(in crate::commands) struct Preview {
    seen: Option<String>,
    pub(in crate::commands) edited: Edited,
    /// The config without the edit, if it could be read.
    before: Option<Config>,
    /// The config with the edit, if it can be read.
    pub(in crate::commands) after: Option<Config>,
}

/// Makes an edit of an entry, and reports it.
pub(super) async fn run(target: &Target, change: Change, output: &Output) -> Result<Exit, Failure> {
    refuse_below()?;
    let text = target.text()?.unwrap_or_default();
    if let Err(Refused::Nothing(why)) = edit(&text, &target.file, &target.request, &change) {
        output.remark(&why);
        return Ok(Exit::Ok);
    }
    let (made, _) = make(target, &change).await?;
    tell(target, &change, &made, output)?;
    watch(target, &change, output).await;
    Ok(Exit::Ok)
}

/// Refuses edits by a process that a server started: only a person may add programs to the config.
pub(in crate::commands) fn refuse_below() -> Result<(), Failure> {
    if !pins::is_below_a_host() {
        return Ok(());
    }
    let error = "a server of a running mcp-host has started this, and no server may edit a config";
    Err(Failure::new(Exit::Denied, error).help("run it in a terminal of your own"))
}

pub(in crate::commands) fn edits() -> Result<Edits, Failure> {
    let directory = state_directory().ok_or_else(|| {
        let error = "there is no directory for backups of edited files";
        Failure::new(Exit::Failed, error).help("set HOME or XDG_STATE_HOME")
    })?;
    Ok(Edits::of(&directory))
}

/// Checks what an edit would do. Writes nothing.
pub(in crate::commands) fn preview(target: &Target, changes: &[Change]) -> Result<Preview, Failure> {
    let seen = target.text()?;
    let (text, done) = edit_all(seen.as_deref().unwrap_or_default(), &target.file, &target.request, changes)
        .map_err(|refused| failed(Error::Refused(refused), &target.file))?;
    let edited = Edited { text, name: done.last().map(|done| done.name.clone()).unwrap_or_default() };
    let before = seen.as_ref().and_then(|seen| load(&target.request, &target.file, seen).ok());
    let after = load(&target.request, &target.file, &edited.text);
    // An edit may repair a config that cannot be read, but must not break one.
    if let Err(error) = &after
        && (before.is_some() || seen.is_none())
    {
        let failure = Failure::from(error.clone());
        return Err(
            failure.more_help(vec!["nothing was written: the config could not be read with this edit".to_owned()])
        );
    }
    Ok(Preview { seen, edited, before, after: after.ok() })
}

/// Loads a config with `text` in place of the content of `file`. Approvals are also judged by `text`, even if the file
/// is changed meanwhile.
pub(in crate::commands) fn load(request: &LoadRequest, file: &Path, text: &str) -> Result<Config, config::Error> {
    let texts = vec![(file.to_owned(), text.to_owned())];
    servers::load(&LoadRequest { texts, ..request.clone() })
}

/// Makes one change, and starts again if the file changes meanwhile.
pub(in crate::commands) async fn make(target: &Target, change: &Change) -> Result<(Made, Preview), Failure> {
    make_all(target, None, std::slice::from_ref(change)).await
}

/// Makes several changes of one server as one edit, and starts again if the file changes meanwhile. `command` names the
/// edit in the journal.
pub(in crate::commands) async fn make_all(
    target: &Target,
    command: Option<&str>,
    changes: &[Change],
) -> Result<(Made, Preview), Failure> {
    let edits = edits()?;
    let mut tries = 0;
    loop {
        tries += 1;
        let preview = preview(target, changes)?;
        let (file, seen, request) = (target.file.clone(), preview.seen.clone(), target.request.clone());
        match edits.make_all(command, vec![FileChange { file, seen, changes: changes.to_vec(), request }]).await {
            Ok(made) => {
                let to = match changes.last() {
                    Some(Change::Rename { to, .. }) => to,
                    _ => &made.name,
                };
                let was = preview.before.as_ref().and_then(|config| server(config, &made.name));
                let is_new = changes.iter().any(|change| matches!(change, Change::Add { .. } | Change::Put { .. }));
                if is_new || was.is_some_and(is_approved) {
                    keep_approved(preview.after.as_ref(), to).await?;
                }
                return Ok((made, preview));
            }
            Err(Error::Changed { .. }) if tries < TRIES => {}
            Err(error) => return Err(failed(error, &target.file)),
        }
    }
}

pub(super) fn server<'a>(config: &'a Config, name: &str) -> Option<&'a Server> {
    config.servers.iter().find(|server| server.name == name)
}

pub(super) fn is_approved(server: &Server) -> bool {
    server.project.as_ref().is_some_and(|project| project.approved)
}

/// Approves an entry of a project that was approved before the user edited it.
pub(super) async fn keep_approved(config: Option<&Config>, name: &str) -> Result<(), Failure> {
    let (Some(directory), Some(server)) = (state_directory(), config.and_then(|config| server(config, name))) else {
        return Ok(());
    };
    let Some(project) = server.project.as_ref().filter(|project| !project.approved) else { return Ok(()) };
    let approve = Approvals::of(&directory);
    approve.approve(&server.source.file, [(name, project)]).await.map_err(|error| {
        Failure::new(Exit::Failed, format!("the edit was written, but not approved: {error}")).help("mcp-host approve")
    })
}

fn tell(target: &Target, change: &Change, made: &Made, output: &Output) -> Result<(), Failure> {
    let (name, file) = (text::line(&made.name).into_owned(), shown(&target.file));
    if output.json {
        let file = target.file.display().to_string();
        return Ok(output.value(&Told { edit: made.id, server: &made.name, file })?);
    }
    output.line(&match change {
        Change::Add { .. } | Change::Put { .. } => format!("added {name} to {file}"),
        Change::Setting { key, .. } => format!("changed host.{} in {file}", text::line(&key.join("."))),
        Change::Text { .. } => format!("changed {name} in {file}"),
        Change::Remove { .. } => format!("removed {name} from {file}"),
        Change::Rename { to, .. } => format!("renamed {name} to {} in {file}", text::line(to)),
        Change::Switch { on: true, .. } => format!("enabled {name} in {file}"),
        Change::Switch { on: false, .. } => format!("disabled {name} in {file}"),
    })?;
    way_back(made.id, output);
    Ok(())
}

/// Prints how to undo an edit.
pub(in crate::commands) fn way_back(id: u64, output: &Output) {
    output.remark(&format!("mcp-host undo {id} takes it back"));
}

/// Returns the path of a file in the form that is shown to people.
pub(in crate::commands) fn shown(file: &Path) -> String {
    let path = file.display().to_string();
    text::line(&path).into_owned()
}

/// Checks after a second whether the client that owns the file has overwritten the edit.
pub(in crate::commands) async fn watch(target: &Target, change: &Change, output: &Output) {
    let file = target.file.clone();
    let is_ours = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("mcp-host."))
        || file.parent().and_then(Path::file_name).is_some_and(|name| name == "mcp-host");
    if is_ours {
        return;
    }
    tokio::time::sleep(LOOK).await;
    look(target, change, output);
}

/// Warns if another program has written the file without the change.
pub(in crate::commands) fn look(target: &Target, change: &Change, output: &Output) {
    let file = target.file.clone();
    let Ok(Some(text)) = target.text() else { return };
    // If the change can be made again, the file has lost it.
    let is_gone = match change {
        Change::Add { name, .. } | Change::Put { name, .. } => !config::edit::has(&text, &file, &target.request, name),
        _ => edit(&text, &file, &target.request, change).is_ok(),
    };
    if is_gone {
        let owner = crate::found::client(&file)
            .map_or_else(|| "another program".to_owned(), |client| format!("{client} (it runs)"));
        output.talk(&format!("warning: {owner} has written {} again, without this edit", shown(&file)));
        output.talk("help: end that program, and run this again");
    }
}
