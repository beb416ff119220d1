//! `host.console`: to whom the endpoint serves the page, which shows what goes on and calls tools.

use super::super::fields::Fields;
use super::super::report::Report;
use super::HostSettings;

/// To whom the endpoint serves the page at `/`. What the page shows needs a session, which `mcp-host open` begins.
///
/// ```
/// use mcp_host::config::{Console, HostSettings};
///
/// assert_eq!(HostSettings::default().console(Console::Off).console, Console::Off);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Console {
    /// To browsers of this machine that no proxy stands before.
    #[default]
    Local,
    /// To whoever may reach the endpoint.
    On,
    /// To nobody.
    Off,
}

/// Reads `console`.
pub(super) fn fill(settings: &mut HostSettings, fields: &mut Fields<'_>, report: &mut Report) {
    if let Some(field) = fields.take(&["console"], report)
        && let Some(console) =
            field.choice(&[("local", Console::Local), ("on", Console::On), ("off", Console::Off)], report)
    {
        settings.console = console;
    }
}
