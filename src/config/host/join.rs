//! `host.join`: whether processes of the same user with the same config share a daemon, which is a host that keeps
//! running.

use super::super::fields::Fields;
use super::super::report::Report;
use super::HostSettings;

/// Whether the command `stdio` and the one-shot commands use a running daemon.
///
/// ```
/// use mcp_host::config::{HostSettings, Join};
///
/// assert_eq!(HostSettings::default().join(Join::Never).join, Some(Join::Never));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Join {
    /// They use a daemon if one with the same config runs.
    #[default]
    Auto,
    /// They never use a daemon.
    Never,
    /// They always use a daemon: the first of them starts it.
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
