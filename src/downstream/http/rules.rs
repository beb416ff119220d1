//! Who may come in, as the config says now: the guard, how clients prove who they are, the certificate. Taken anew with the
//! config.
//!
//! **Invariant:** once a reload is told to be done, no request is judged by what was before it, and whoever proved who it is
//! by what no longer counts has nothing open.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use arc_swap::{ArcSwap, Guard as Loaded};
use tokio_rustls::TlsAcceptor;

use super::tls;
use crate::config::HostSettings;
use crate::downstream::authentication::Authentication;
use crate::downstream::guard::{Guard, Own};
use crate::lock::lock;
use crate::manager::Manager;
use crate::router::Principal;

/// The rules of a door.
pub(super) struct Rules {
    manager: Manager,
    address: SocketAddr,
    now: ArcSwap<Now>,
    taking: Mutex<()>,
}

/// One set of rules.
pub(super) struct Now {
    /// What they are made of.
    of: Arc<HostSettings>,
    pub(super) guard: Guard,
    pub(super) authentication: Authentication,
    pub(super) tls: Option<TlsAcceptor>,
}

/// Other rules came.
pub(super) struct Change {
    before: Arc<Now>,
    after: Arc<Now>,
}

impl Change {
    /// Whether what proved who that is proves it still.
    pub(super) fn keeps(&self, principal: &Principal) -> bool {
        self.after.authentication.keeps(&self.before.authentication, principal)
    }

    /// Whether clients prove who they are in another way altogether.
    pub(super) fn is_another_way(&self) -> bool {
        self.after.authentication.is_another_way(&self.before.authentication)
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Rules {
    /// Those of the config, for a door at that address which speaks TLS by `tls`.
    pub(super) fn new(manager: Manager, address: SocketAddr, tls: Option<TlsAcceptor>) -> Self {
        let now = Now::new(manager.settings(), address, tls, &Authentication::None);
        Self { manager, address, now: ArcSwap::from_pointee(now), taking: Mutex::default() }
    }

    /// As they are, if the config is what it was.
    pub(super) fn now(&self) -> Option<Loaded<Arc<Now>>> {
        let now = self.now.load();
        self.manager.has_settings(&now.of).then_some(now)
    }

    /// Makes them of the config of now; `None` if somebody else did.
    pub(super) fn take(&self) -> Option<Change> {
        let _one_at_a_time = lock(&self.taking);
        let before = self.now.load_full();
        let of = self.manager.settings();
        if Arc::ptr_eq(&before.of, &of) {
            return None;
        }
        // A config is refused for this where it is read; a listener of the embedding program may be elsewhere.
        if let Some((lacks, help)) = of.lacks_for(self.address) {
            tracing::error!("the endpoint goes by the rules from before: {lacks}; {help}");
            self.now.store(Arc::new(before.as_of(of)));
            return None;
        }
        let after = Arc::new(Now::new(of.clone(), self.address, before.certificate(&of), &before.authentication));
        self.now.store(after.clone());
        Some(Change { before, after })
    }
}

impl Now {
    fn new(of: Arc<HostSettings>, address: SocketAddr, tls: Option<TlsAcceptor>, before: &Authentication) -> Self {
        let own = Own { port: address.port(), default_port: if tls.is_some() { 443 } else { 80 } };
        Self {
            guard: Guard::new(own, &of.allowed_hosts, &of.allowed_origins),
            authentication: Authentication::new(&of, before),
            tls,
            of,
        }
    }

    /// The same, judged to be what those settings come to.
    fn as_of(&self, of: Arc<HostSettings>) -> Self {
        Self { of, guard: self.guard.clone(), authentication: self.authentication.clone(), tls: self.tls.clone() }
    }

    /// The certificate as its files are now: they are renewed under the same names. One that cannot be used changes nothing.
    fn certificate(&self, of: &HostSettings) -> Option<TlsAcceptor> {
        let read = of.tls.as_ref().filter(|_| self.tls.is_some()).map(tls::acceptor);
        match read {
            Some(Ok(acceptor)) => Some(acceptor),
            Some(Err(error)) => {
                tracing::warn!("the certificate from before stays: {error}");
                self.tls.clone()
            }
            None => self.tls.clone(),
        }
    }
}
