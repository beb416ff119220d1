//! `host.join` and `host.idleExit`: whether processes of one user and one config share a daemon.

use super::super::fields::Fields;
use super::super::report::Report;
use super::HostSettings;

/// Whether `stdio` and the commands that end by themselves use a running daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Join {
    /// If a daemon of the same config runs.
    #[default]
    Auto,
    /// Never.
    Never,
    /// Always: the first `stdio` starts a daemon.
    Start,
}

/// Reads both keys.
pub(super) fn fill(settings: &mut HostSettings, fields: &mut Fields<'_>, report: &mut Report) {
    if let Some(field) = fields.take(&["join"], report) {
        let choices = [("auto", Join::Auto), ("never", Join::Never), ("start", Join::Start)];
        settings.join = field.choice(&choices, report);
    }
    if let Some(time) = fields.take(&["idleExit"], report).and_then(|field| field.time(report)) {
        settings.idle_exit = time;
    }
}
