//! The access rules from the current config: the guard, the authentication, and the TLS certificate. They are rebuilt
//! when the config is reloaded.
//!
//! **Invariant:** once a reload is reported as done, no request is judged by the old rules, and all sessions and
//! connections whose authentication no longer holds have been ended.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use arc_swap::{ArcSwap, Guard as Loaded};
use tokio_rustls::TlsAcceptor;

use super::tls;
use crate::config::{ClaimsRead, HostSettings};
use crate::downstream::authentication::Authentication;
use crate::downstream::guard::{Guard, Own};
use crate::lock::lock;
use crate::manager::Manager;
use crate::router::Principal;

/// The access rules of a door, and the means to rebuild them.
pub(super) struct Rules {
    manager: Manager,
    address: SocketAddr,
    now: ArcSwap<Now>,
    taking: Mutex<()>,
}

/// One set of rules.
pub(super) struct Now {
    /// The settings that the rules were built from.
    of: Arc<HostSettings>,
    pub(super) guard: Guard,
    pub(super) authentication: Authentication,
    pub(super) tls: Option<TlsAcceptor>,
    /// Whether clients can get another view than `all`.
    has_views: bool,
    /// The claims of tokens that rules read; `None` if they read none.
    claims_read: Option<ClaimsRead>,
}

/// A change of the access rules.
pub(super) struct Change {
    pub(super) before: Arc<Now>,
    pub(super) after: Arc<Now>,
}

impl Change {
    /// Reports whether a proof by this principal still holds after the change.
    pub(super) fn keeps(&self, principal: &Principal) -> bool {
        self.after.authentication.keeps(&self.before.authentication, principal)
    }

    /// Reports whether clients now authenticate in a different way.
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
    /// Builds the rules from the config, for a door at this address with this TLS acceptor.
    pub(super) fn new(manager: Manager, address: SocketAddr, tls: Option<TlsAcceptor>) -> Self {
        let of = manager.settings();
        let read = claims_read(&manager, &of);
        let now = Now::new(of, address, tls, (&Authentication::None, read));
        Self { manager, address, now: ArcSwap::from_pointee(now), taking: Mutex::default() }
    }

    /// Returns the rules; `None` if the config has changed since they were built.
    pub(super) fn now(&self) -> Option<Loaded<Arc<Now>>> {
        let now = self.now.load();
        self.manager.has_settings(&now.of).then_some(now)
    }

    /// Rebuilds the rules from the current config, and returns the change; `None` if the rules stay the same.
    pub(super) fn take(&self) -> Option<Change> {
        let _one_at_a_time = lock(&self.taking);
        let before = self.now.load_full();
        let of = self.manager.settings();
        if Arc::ptr_eq(&before.of, &of) {
            return None;
        }
        // The config loader refuses a config that lacks protection for its own address, but the listener of an
        // embedding program may be at another address.
        if let Some((lacks, help)) = of.lacks_for(self.address) {
            tracing::error!("the endpoint keeps its old access rules: {lacks}; {help}");
            self.now.store(Arc::new(before.as_of(of)));
            return None;
        }
        let (certificate, read) = (before.certificate(&of), claims_read(&self.manager, &of));
        let after = Arc::new(Now::new(of, self.address, certificate, (&before.authentication, read)));
        self.now.store(after.clone());
        Some(Change { before, after })
    }
}

/// Returns the claims of tokens that rules read; `None` if they read none.
fn claims_read(manager: &Manager, settings: &HostSettings) -> Option<ClaimsRead> {
    if manager.is_judged_by_program() { Some(ClaimsRead::All) } else { settings.policy.claims_read() }
}

impl Now {
    fn new(
        of: Arc<HostSettings>,
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
        (before, claims_read): (&Authentication, Option<ClaimsRead>),
    ) -> Self {
        let own = Own { port: address.port(), default_port: if tls.is_some() { 443 } else { 80 } };
        Self {
            guard: Guard::new(own, &of.allowed_hosts, &of.allowed_origins),
            authentication: Authentication::new(&of, before),
            tls,
            has_views: Self::judge_views(&of),
            claims_read,
            of,
        }
    }

    /// Returns the settings that the rules were built from.
    pub(super) fn settings(&self) -> &HostSettings {
        &self.of
    }

    /// Reports whether clients can get another view than `all`.
    pub(super) fn has_views(&self) -> bool {
        self.has_views
    }

    /// Returns the claims of tokens that rules read; `None` if they read none.
    pub(super) fn claims_read(&self) -> Option<&ClaimsRead> {
        self.claims_read.as_ref()
    }

    /// Returns the same rules, marked as up to date with these settings.
    fn as_of(&self, of: Arc<HostSettings>) -> Self {
        let (guard, authentication, tls) = (self.guard.clone(), self.authentication.clone(), self.tls.clone());
        let (has_views, claims_read) = (Self::judge_views(&of), self.claims_read.clone());
        Self { has_views, claims_read, of, guard, authentication, tls }
    }

    /// Reads the certificate again: files are renewed under the same names. If the new certificate is unusable, the old
    /// one stays.
    fn certificate(&self, of: &HostSettings) -> Option<TlsAcceptor> {
        let read = of.tls.as_ref().filter(|_| self.tls.is_some()).map(tls::acceptor);
        match read {
            Some(Ok(acceptor)) => Some(acceptor),
            Some(Err(error)) => {
                tracing::warn!("the old certificate stays in use: {error}");
                self.tls.clone()
            }
            None => self.tls.clone(),
        }
    }
}
