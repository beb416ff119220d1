//! `host.audit`: where to log each call.

use std::path::{Path, PathBuf};

use super::super::fields::Field;
use super::super::report::Report;

/// A file that gets one line for each call.
///
/// ```
/// use mcp_host::config::{Audit, HostSettings};
///
/// let audit = Audit { keep: 10, ..Audit::new("/var/log/mcp/audit.jsonl") };
/// let settings = HostSettings::default().audit(audit);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// The file; its folder must exist.
    pub file: PathBuf,
    /// The size, in bytes, up to which the file grows before it is rotated.
    pub max_size: usize,
    /// How many rotated files to keep.
    pub keep: usize,
}

impl Audit {
    /// Returns the settings for this file, with the defaults for everything else.
    pub fn new(file: impl Into<PathBuf>) -> Self {
        Self { file: file.into(), max_size: 64 << 20, keep: 5 }
    }
}

/// Reads `host.audit`. A relative path starts in the folder of the config file.
pub(super) fn read(field: &Field<'_>, report: &mut Report) -> Option<Audit> {
    let mut fields = field.fields(report)?;
    let file = fields.take(&["file"], report);
    let path = match &file {
        Some(file) => file.text(report).filter(|path| !path.is_empty()),
        None => None,
    };
    // Settings may come from several sources; the one that names the audit file decides where a relative path starts.
    let place = file.as_ref().map_or(field.at, |file| file.at);
    let base = report.file(place.file).parent().unwrap_or(Path::new("")).to_owned();
    let mut audit = path.map(|path| Audit::new(base.join(path)));
    if audit.is_none() {
        let problem = report.problem(field.at, &format!("{}.file", field.path), "is missing, or not a path");
        problem.help("name a file in an existing folder");
    }
    let size = fields.take(&["maxSize"], report).and_then(|field| field.positive_size(report));
    let keep = fields.take(&["keep"], report).and_then(|field| field.positive_count(report));
    if let Some(audit) = &mut audit {
        audit.max_size = size.unwrap_or(audit.max_size);
        audit.keep = keep.unwrap_or(audit.keep);
    }
    fields.finish(&["file", "maxSize", "keep"], report);
    audit
}
