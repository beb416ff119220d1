//! Clients without a session (2026-07-28): each request says who sends it and what the sender can be asked.
//!
//! Requests from one principal (user) in one view with equal capabilities count as one client, unless
//! `mcp-host/affinity` sets them apart. They share that client's leases (connections to servers), as the specification
//! tells modern clients to expect; otherwise servers with sessions could not serve them. Such a client never
//! disconnects. It is closed after `host.limits.sessionIdle` without a request; over a pipe it ends with the pipe.
//!
//! The id of such a request is unique only within its HTTP exchange: two clients may both use `1`. So mcp-host gives
//! each request a new id when it comes in.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::answer::Failure;
use super::background::Background;
use super::client::{Abilities, Client};
use super::clients::Clients;
use super::extensions::carried;
use super::level::{LEVELS, Level};
use super::presence::{Named, Sender};
use super::{Identity, Mailbox};
use crate::config::Limits;
use crate::manager::Manager;
use crate::protocol::{ErrorObject, Profile, ProtocolVersion, Raw, RequestId};
use crate::queues::{Account, Queues};

/// The clients without a session.
#[derive(Debug)]
pub(crate) struct Pool {
    manager: Manager,
    clients: Arc<Clients>,
    queues: Queues,
    pooled: Mutex<HashMap<Key, Pooled>>,
    requests: AtomicI64,
}

/// The name in `clientInfo` of every mcp-host process and of the program's own commands.
const HOST: &str = env!("CARGO_PKG_NAME");

fn is_host(info: &Raw) -> bool {
    info.member("name").is_some_and(|name| name.string().is_some_and(|name| name == HOST))
}

/// Two requests with equal keys count as coming from one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    identity: Identity,
    profile: Profile,
    extensions: Option<Raw>,
    affinity: Option<Box<str>>,
    /// Whether the sender is another mcp-host process or one of its commands. False if that makes no difference to its
    /// lists.
    is_host: bool,
}

#[derive(Debug)]
struct Pooled {
    client: Arc<Client>,
    used: Instant,
}

impl Pool {
    pub(super) fn new(manager: Manager, clients: Arc<Clients>, queues: Queues) -> Self {
        let (pooled, requests) = Default::default();
        Self { manager, clients, queues, pooled, requests }
    }

    /// Returns the client that a request with these `clientCapabilities` belongs to. `affinity` is a string that the
    /// client chooses: requests with another string belong to another client, even of the same principal.
    ///
    /// # Errors
    /// When there are as many clients as allowed, in all or for this principal, and all of them are busy.
    #[cfg(any(test, all(unix, feature = "script")))]
    pub(crate) fn get(
        &self,
        identity: impl Into<Identity>,
        capabilities: &Raw,
        affinity: Option<&str>,
    ) -> Result<Arc<Client>, ErrorObject> {
        self.get_from(identity, capabilities, affinity, None)
    }

    /// Returns the client like [`Pool::get`], for a sender that described itself by this `clientInfo`.
    ///
    /// # Errors
    /// As for [`Pool::get`].
    pub(crate) fn get_from(
        &self,
        identity: impl Into<Identity>,
        capabilities: &Raw,
        affinity: Option<&str>,
        info: Option<&Raw>,
    ) -> Result<Arc<Client>, ErrorObject> {
        let profile = Profile::from_capabilities(capabilities.as_value());
        let key = Key {
            identity: identity.into(),
            profile,
            extensions: carried(&self.manager, capabilities, ProtocolVersion::LATEST_MODERN),
            affinity: affinity.map(Box::from),
            is_host: self.manager.may_search() && info.is_some_and(is_host),
        };
        let mut pool = self.lock();
        if let Some(pooled) = pool.get_mut(&key) {
            pooled.used = Instant::now();
            return Ok(pooled.client.clone());
        }
        let limits = self.manager.limits();
        let is_own = |other: &Key| other.identity.principal == key.identity.principal;
        let of_one = limits.sessions_per_principal;
        let own_full =
            !key.identity.principal.is_local() && pool.keys().filter(|other| is_own(other)).count() >= of_one;
        if own_full || pool.len() >= limits.sessions {
            let may_go = |other: &Key, pooled: &Pooled| pooled.client.is_idle() && (!own_full || is_own(other));
            let idle = pool.iter().filter(|(other, pooled)| may_go(other, pooled));
            let Some(longest) = idle.min_by_key(|(_, pooled)| pooled.used).map(|(key, _)| key.clone()) else {
                let (limit, name) =
                    if own_full { (of_one, "sessionsPerPrincipal") } else { (limits.sessions, "sessions") };
                return Err(Failure::sessions(limit, name).of_host().into());
            };
            if let Some(pooled) = pool.remove(&longest) {
                self.clients.close(&pooled.client);
            }
        }
        let Key { identity, profile, extensions, affinity, is_host } = key.clone();
        let named = if is_host { Named::new(HOST, None) } else { Named::default() };
        let abilities = Abilities { revision: ProtocolVersion::LATEST_MODERN, profile, extensions };
        let client = self.clients.admit(identity, abilities, named, self.queues.account());
        if affinity.is_some() {
            client.set_apart();
        }
        pool.insert(key, Pooled { client: client.clone(), used: Instant::now() });
        Ok(client)
    }

    /// Closes the clients that sent requests with that `affinity`.
    pub(crate) fn leave(&self, affinity: &str) {
        let mut gone = Vec::new();
        self.lock().retain(|key, pooled| {
            let stays = key.affinity.as_deref() != Some(affinity);
            if !stays {
                gone.push(pooled.client.clone());
            }
            stays
        });
        gone.sort_by_key(|client| client.owner());
        gone.iter().for_each(|client| self.clients.close(client));
    }

    /// Closes the clients that `is_gone` names: their streams end.
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "only the HTTP door asks"))]
    pub(crate) fn close_if(&self, is_gone: impl Fn(&Identity) -> bool) {
        let mut gone = Vec::new();
        self.lock().retain(|key, pooled| {
            let stays = !is_gone(&key.identity);
            if !stays {
                gone.push(pooled.client.clone());
            }
            stays
        });
        gone.sort_by_key(|client| client.owner());
        gone.iter().for_each(|client| self.clients.close(client));
    }

    /// Returns a new id for one more request.
    pub(super) fn next_id(&self) -> RequestId {
        RequestId::Number(self.requests.fetch_add(1, Ordering::Relaxed))
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Pooled>> {
        self.pooled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Mailbox {
    /// Makes a mailbox for one request without a session, from that sender. The request wants log messages of at least
    /// `level`; an unknown level means none. Messages and the answer count for `account`.
    #[must_use]
    pub(crate) fn of_modern(limits: Arc<Limits>, account: Account, level: Option<&str>, sender: Sender) -> Arc<Self> {
        let known = level.and_then(|level| LEVELS.iter().position(|known| *known == level));
        let level: Option<Level> = known.and_then(|level| u8::try_from(level).ok());
        Arc::new(Self::new(limits, account).of_request().with_level(level).with_sender(sender))
    }
}

/// Closes idle clients, until the router stops.
pub(super) async fn reap(pool: Arc<Pool>, background: Background) {
    let idle = pool.manager.limits().session_idle;
    let period = (idle / 4).clamp(Duration::from_millis(10), Duration::from_secs(30));
    while background.stop().run_until_cancelled(tokio::time::sleep(period)).await.is_some() {
        let mut gone = Vec::new();
        pool.lock().retain(|_, pooled| {
            let stays = !pooled.client.is_idle() || pooled.used.elapsed() < idle;
            if !stays {
                gone.push(pooled.client.clone());
            }
            stays
        });
        gone.sort_by_key(|client| client.owner());
        for client in gone {
            pool.clients.close(&client);
        }
        pool.clients.roster().forget_unseen(idle);
    }
}
