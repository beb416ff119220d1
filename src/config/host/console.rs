//! `host.console`: who may open the page of the endpoint, which shows what the host does and calls tools.

#[cfg(feature = "server")]
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use super::super::fields::Fields;
use super::super::report::Report;
use super::HostSettings;

/// Who may open the page at `/`. To see its content takes a session, which `mcp-host open` begins.
///
/// ```
/// use mcp_host::config::{Console, HostSettings};
///
/// assert_eq!(HostSettings::default().console(Console::Off).console, Console::Off);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Console {
    /// Browsers on this machine that are not behind a proxy.
    #[default]
    Local,
    /// Everyone who may reach the endpoint.
    On,
    /// Nobody.
    Off,
}

impl HostSettings {
    /// Returns the URL at which browsers on this machine open the page of an endpoint that listens on this address.
    ///
    /// # Errors
    /// Fails with one sentence if the config allows no page there.
    #[cfg(feature = "server")]
    pub(crate) fn page_at(&self, listen: SocketAddr) -> Result<String, &'static str> {
        let is_reachable = listen.ip().is_loopback() || listen.ip().is_unspecified();
        match self.console {
            Console::Off => return Err("there is no page (host.console is \"off\")"),
            Console::Local if !is_reachable => {
                return Err(
                    "the page is for browsers of this machine (host.console is \"local\"), and the endpoint does not \
                            listen on loopback",
                );
            }
            _ => {}
        }
        let mut address = listen;
        if address.ip().is_unspecified() {
            address.set_ip(if address.is_ipv4() { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
        }
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{address}/"))
    }
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
