//! What the config turns on for calls, noted once per config, so that a call pays only for what is turned on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::{Manager, Server};
#[cfg(any(feature = "validate", test))]
use crate::config::Validate;
use crate::config::{HostSettings, ToolRules, ToolSettings};

/// What the config turns on for calls.
#[derive(Debug, Default)]
pub(super) struct Wants {
    /// Whether calls of any tool are checked against its schemas.
    #[cfg(any(feature = "validate", test))]
    validates: AtomicBool,
    /// Whether any tool has limits of its own.
    limits_tools: AtomicBool,
    /// Whether the host has tools of its own for any client, or cuts results.
    has_own_tools: AtomicBool,
}

impl Manager {
    /// Notes what the config turns on for calls.
    pub(super) fn note_rules(&self) {
        let (settings, servers) = (self.settings(), self.servers());
        self.0.rates.follow(&settings, &servers);
        self.note_heeding();
        self.0.answers.follow(&settings, &servers);
        let of_any =
            |is_such: fn(&ToolSettings) -> bool| tool_rules(&settings, &servers).any(|rules| rules.any(is_such));
        self.0.wants.limits_tools.store(of_any(ToolSettings::limits_calls), Ordering::Relaxed);
        let cuts = settings.cuts_results() || of_any(|tool| tool.results.is_on());
        let has_own = settings.has_catalogs() || !settings.merge.is_empty() || cuts;
        self.0.wants.has_own_tools.store(has_own, Ordering::Relaxed);
        #[cfg(any(feature = "validate", test))]
        {
            let checks = |validate: Validate| validate != Validate::Definitions;
            let of_server = servers.iter().any(|server| server.config.validate.is_some_and(checks));
            let validates = checks(settings.validate) || of_server || of_any(ToolSettings::checks_calls);
            self.0.wants.validates.store(validates, Ordering::Relaxed);
        }
    }

    /// Reports whether calls of any tool are checked against its schemas.
    #[cfg(any(feature = "validate", test))]
    pub(crate) fn validates(&self) -> bool {
        self.0.wants.validates.load(Ordering::Relaxed)
    }

    /// Reports whether the host has tools of its own for any client, or cuts results: if so, each call is checked for
    /// that.
    pub(crate) fn has_own_tools(&self) -> bool {
        self.0.wants.has_own_tools.load(Ordering::Relaxed)
    }

    /// Reports whether any tool has limits of its own: of size, time, or number.
    pub(crate) fn limits_tools(&self) -> bool {
        self.0.wants.limits_tools.load(Ordering::Relaxed)
    }
}

/// Returns the settings of tools in all views and of all servers.
pub(super) fn tool_rules<'a>(
    settings: &'a HostSettings,
    servers: &'a [Arc<Server>],
) -> impl Iterator<Item = &'a ToolRules> {
    let of_views = settings.views.values().map(|view| &view.tools);
    of_views.chain(servers.iter().map(|server| &server.config.tools))
}
