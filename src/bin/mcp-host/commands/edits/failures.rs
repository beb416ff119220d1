//! Why an edit was not made, and what to do about it.

use std::io;
use std::path::Path;

use mcp_host::config::edit::Refused;
use mcp_host::edits::Error;

use crate::nearest::{nearest, question};
use crate::report::{Exit, Failure};
use crate::text::quoted;

/// Explains why nothing was edited.
pub(in crate::commands) fn failed(error: Error, file: &Path) -> Failure {
    let file = quoted(&file.to_string_lossy());
    let text = error.to_string();
    match error {
        Error::Refused(Refused::Mistakes(error)) => error.into(),
        Error::Refused(Refused::Unknown { name, known }) => unknown(&name, &known),
        Error::Refused(Refused::Exists(name)) => {
            let name = quoted(&name);
            Failure::new(Exit::Usage, text)
                .help(format!("mcp-host get {name} shows it; mcp-host remove {name} takes it out"))
        }
        Error::Refused(Refused::Name(_)) => Failure::new(Exit::Usage, text).help("use letters, digits, - and _"),
        Error::Refused(Refused::Unproven { snippet, .. }) => {
            let lines = snippet.lines().map(|line| format!("  {line}")).collect::<Vec<_>>();
            let head = if lines.is_empty() { "edit it by hand" } else { "edit it by hand; this is what is meant:" };
            let failure = Failure::new(Exit::Failed, format!("{file}: {text}")).help(head);
            failure.more_help(lines)
        }
        Error::Refused(_) => Failure::new(Exit::Failed, text).help(format!("edit {file} by hand")),
        Error::Read { source, .. } if source.kind() == io::ErrorKind::NotFound => {
            Failure::new(Exit::Usage, text).help(format!("look for its name: ls -a {file}"))
        }
        Error::Read { .. } | Error::Write { .. } => {
            Failure::new(Exit::Failed, text).help(format!("ls -l {file} shows who may read and write it"))
        }
        Error::Changed { .. } => Failure::new(Exit::Failed, text).help("nothing was written; run it again"),
        Error::None | Error::Unknown(_) | Error::Undone(_) => {
            Failure::new(Exit::Usage, text).help("mcp-host undo --list shows the edits")
        }
        _ => Failure::new(Exit::Failed, text).help("nothing was written"),
    }
}

/// Returns the failure for a server that no file has.
pub(super) fn unknown(name: &str, known: &[String]) -> Failure {
    let near = question(&nearest(name, known.iter().map(String::as_str)));
    let all = || (!known.is_empty()).then(|| format!("the config has: {}", known.join(", ")));
    Failure::new(Exit::Usage, format!("no server is called `{name}`")).maybe_help(near.or_else(all))
}
