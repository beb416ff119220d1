//! `status SERVER --forget`: the host learns again what a server asks, on leases that declare everything again.

use std::sync::Arc;

use super::{Manager, Server, lock};
use crate::config::Start;

impl Manager {
    /// Forgets what the server of this name or alias asks clients, and returns that in words; `None` if there is no
    /// such server.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the status socket asks"))]
    pub(crate) fn forget_asks(&self, name: &str) -> Option<Vec<&'static str>> {
        let servers = self.servers();
        let is_it = |server: &&Arc<Server>| server.config.name == name || server.config.alias.as_str() == name;
        let server = servers.iter().find(is_it)?;
        let asked = server.forget_asks();
        if server.leave_outdated() {
            let start = if server.config.idle_stop.is_zero() { server.config.start } else { Start::Lazy };
            self.open_rest(server, start);
        }
        self.touch();
        Some(asked.words())
    }
}

impl Server {
    /// Marks leases that declare fewer client capabilities than a new one would: the server would send no requests over
    /// them, so no client is given them any more. Ends the unused ones. Returns true if no lease is left.
    fn leave_outdated(&self) -> bool {
        let rules = self.rules();
        let mut table = lock(&self.leases);
        let before = table.entries.len();
        table.entries.retain_mut(|entry| {
            let is_sure = !entry.upstream.is_modern();
            entry.outdated |= is_sure && entry.upstream.profile() != entry.key.declares(&rules);
            let over = entry.outdated && !entry.has_users() && entry.is_idle();
            if over {
                entry.upstream.stop();
            }
            !over
        });
        table.entries.is_empty() && before > 0
    }
}
