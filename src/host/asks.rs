//! Calls that wait for a person's permission, for programs that embed the host.

use super::Host;
use crate::router::{Decided, OpenAsk};

impl Host {
    /// Lists the calls and other requests that wait for a person's permission, because a rule wants that
    /// (`host.policy`); oldest first.
    #[must_use]
    pub fn asks(&self) -> Vec<OpenAsk> {
        self.0.router.clients().asks().list()
    }

    /// Records a person's decision about a waiting request. Returns false if no request with this number waits:
    /// somebody else has decided, or its time is over.
    ///
    /// ```no_run
    /// # fn decide(host: &mcp_host::Host) {
    /// use mcp_host::Decided;
    ///
    /// for ask in host.asks() {
    ///     println!("{} {} {}", ask.server, ask.name, ask.arguments);
    ///     host.decide(ask.id, Decided::Once);
    /// }
    /// # }
    /// ```
    pub fn decide(&self, id: u64, decided: Decided) -> bool {
        self.0.router.clients().asks().decide(id, decided)
    }
}
