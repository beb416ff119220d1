//! `host.join`: whether processes with the same user and config share a daemon.

use super::super::fields::Fields;
use super::super::report::Report;
use super::HostSettings;

/// Whether `stdio` and one-shot commands use a running daemon.
///
/// ```
/// use mcp_host::config::{HostSettings, Join};
///
/// assert_eq!(HostSettings::default().join(Join::Never).join, Some(Join::Never));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Join {
    /// If a daemon with the same config runs.
    #[default]
    Auto,
    /// Never.
    Never,
    /// Always: the first of them starts the daemon.
    Start,
}

/// Reads `join` and `idleExit`.
pub(super) fn fill(settings: &mut HostSettings, fields: &mut Fields<'_>, report: &mut Report) {
    if let Some(field) = fields.take(&["join"], report) {
        settings.join = field.choice(&[("auto", Join::Auto), ("never", Join::Never), ("start", Join::Start)], report);
    }
    if let Some(idle) = fields.take(&["idleExit"], report).and_then(|field| field.time(report)) {
        settings.idle_exit = idle;
    }
}
