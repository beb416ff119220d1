//! After an edit, removes locked trees, and locks beside the config, that are no longer referred to.

use std::path::Path;

use mcp_host::edits::Edits;
use mcp_host::install;

use crate::output::Output;
use crate::text;

/// Removes them and reports that. `file` is the edited config. Failures are only warnings, because the edit is done.
pub(super) async fn sweep(edits: &Edits, file: &Path, output: &Output) {
    let swept = Box::pin(install::sweep(file.to_owned(), edits.folder().to_owned())).await;
    for (folder, why) in &swept.failures {
        let folder = folder.display().to_string();
        output.talk(&format!("warning: {} cannot be removed: {}", text::line(&folder), text::line(why)));
        output.talk(&format!("help: rm -r {}", text::quoted(&folder)));
    }
    let counted = [(swept.trees, "locked tree"), (swept.locks, "lock")];
    let removed = counted.into_iter().filter(|(count, _)| *count > 0).map(|(count, noun)| text::count(count, noun));
    let removed: Vec<String> = removed.collect();
    if !removed.is_empty() {
        output.remark(&format!("removed {}: nothing refers to that any longer", removed.join(" and ")));
    }
}
