//! Clients without a session (2026-07-28): each request says who sends it and what the sender can be asked.
//!
//! Requests of one principal with equal capabilities count as one client, unless `mcp-host/affinity` sets them apart.
//! They share its leases, as the specification tells modern clients to expect; that is how servers with sessions can
//! serve them at all. Such a client never says goodbye. It goes after `host.limits.sessionIdle` without a request, over
//! a pipe with the pipe.
//!
//! Ids of such requests are good for one exchange only: two clients both use `1`. So each request gets an id of ours on
//! its way in.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::answer::Failure;
use super::client::Client;
use super::level::{LEVELS, Level};
use super::route::Routed;
use super::{Mailbox, Principal, Router};
use crate::protocol::{self, ErrorObject, Method, Outcome, Profile, ProtocolVersion, Raw, Request, RequestId};
use crate::queues::Account;

/// The clients without a session that are known now.
#[derive(Debug, Default)]
pub(super) struct Pool {
    clients: Mutex<HashMap<Key, Pooled>>,
    requests: AtomicI64,
}

/// What makes two requests those of one client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    principal: Principal,
    profile: Profile,
    extensions: Option<Raw>,
    affinity: Option<Box<str>>,
}

#[derive(Debug)]
struct Pooled {
    client: Arc<Client>,
    used: Instant,
}

impl Router {
    /// The client that sends a request with these `clientCapabilities` and says nothing more of itself.
    #[cfg(test)]
    pub(crate) fn modern(&self, principal: Principal, capabilities: &Raw) -> Result<Arc<Client>, ErrorObject> {
        self.modern_apart(principal, capabilities, None)
    }

    /// The client that sends a request with these `clientCapabilities`. `affinity` is a word of its own choice: requests with
    /// another one are another client's, though of the same person.
    ///
    /// # Errors
    /// When there are as many clients as there may be, all of them busy.
    pub(crate) fn modern_apart(
        &self,
        principal: Principal,
        capabilities: &Raw,
        affinity: Option<&str>,
    ) -> Result<Arc<Client>, ErrorObject> {
        let profile = Profile::from_capabilities(capabilities.as_value());
        let key = Key {
            principal,
            profile,
            extensions: self.carried_extensions(capabilities, ProtocolVersion::LATEST_MODERN),
            affinity: affinity.map(Box::from),
        };
        let mut pool = self.0.modern.lock();
        if let Some(pooled) = pool.get_mut(&key) {
            pooled.used = Instant::now();
            return Ok(pooled.client.clone());
        }
        let limits = self.limits();
        let is_own = |other: &Key| other.principal == key.principal;
        let of_one = limits.sessions_per_principal;
        let own_full = !key.principal.is_local() && pool.keys().filter(|other| is_own(other)).count() >= of_one;
        if own_full || pool.len() >= limits.sessions {
            let may_go = |other: &Key, pooled: &Pooled| pooled.client.is_idle() && (!own_full || is_own(other));
            let idle = pool.iter().filter(|(other, pooled)| may_go(other, pooled));
            let Some(longest) = idle.min_by_key(|(_, pooled)| pooled.used).map(|(key, _)| key.clone()) else {
                let (limit, name) =
                    if own_full { (of_one, "sessionsPerPrincipal") } else { (limits.sessions, "sessions") };
                return Err(Failure::sessions(limit, name).of_host().into());
            };
            if let Some(pooled) = pool.remove(&longest) {
                self.close(&pooled.client);
            }
        }
        let Key { principal, profile, extensions, affinity } = key.clone();
        let client = self.admit(principal, ProtocolVersion::LATEST_MODERN, profile, extensions);
        if affinity.is_some() {
            client.set_apart();
        }
        pool.insert(key, Pooled { client: client.clone(), used: Instant::now() });
        Ok(client)
    }

    /// Whoever sent requests under that word sends no more.
    pub(crate) fn leave(&self, affinity: &str) {
        let mut gone = Vec::new();
        self.0.modern.lock().retain(|key, pooled| {
            let stays = key.affinity.as_deref() != Some(affinity);
            if !stays {
                gone.push(pooled.client.clone());
            }
            stays
        });
        gone.sort_by_key(|client| client.owner());
        gone.iter().for_each(|client| self.close(client));
    }

    /// A mailbox for one modern request, with the level of log lines that it wants.
    #[cfg(test)]
    pub(crate) fn modern_leg(&self, level: Option<&str>) -> Arc<Mailbox> {
        self.modern_leg_of(level, self.account())
    }

    /// The same for a request whose messages and answer count for that account.
    #[must_use]
    pub(crate) fn modern_leg_of(&self, level: Option<&str>, account: Account) -> Arc<Mailbox> {
        let known = level.and_then(|level| LEVELS.iter().position(|known| *known == level));
        let level: Option<Level> = known.and_then(|level| u8::try_from(level).ok());
        Arc::new(Mailbox::new(self.limits(), account).of_request().with_level(level))
    }

    /// Serves a request that speaks for itself, as [`Router::request`] does. A listen ends when its door closes.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call at the server.
    pub(crate) fn stateless(
        &self,
        client: &Arc<Client>,
        routed: impl Into<Routed>,
        leg: &Arc<Mailbox>,
        closing: &CancellationToken,
    ) -> Pin<Box<dyn Future<Output = Option<Outcome>> + Send>> {
        let Routed { request, route } = routed.into();
        match request.method {
            Method::Discover => {
                let answer = std::future::ready(Ok(self.discover(client)));
                Box::pin(self.clone().beside(client.clone(), request, leg.clone(), answer))
            }
            Method::Listen => {
                let (id, params) = (request.id.clone(), request.params.clone());
                let answer = self.clone().listen(client.clone(), id, params, leg.clone(), closing.clone());
                Box::pin(self.clone().beside(client.clone(), request, leg.clone(), answer))
            }
            _ => {
                let id = RequestId::Number(self.0.modern.requests.fetch_add(1, Ordering::Relaxed));
                Box::pin(self.serving(
                    client,
                    Routed { request: Request { id, ..request }, route },
                    leg,
                    Self::finished,
                ))
            }
        }
    }

    /// `server/discover`: what we speak and offer. It never waits for a server.
    fn discover(&self, client: &Client) -> Raw {
        let versions: Vec<&str> = ProtocolVersion::MODERN.iter().map(|version| version.as_str()).collect();
        let mut result = format!(
            r#"{{"supportedVersions":{},"capabilities":{{"tools":{{"listChanged":true}},"prompts":{{"listChanged":true}},"resources":{{"subscribe":true,"listChanged":true}},"completions":{{}},"logging":{{}},"extensions":{}}}"#,
            Raw::from_value(&versions),
            self.offered_extensions(ProtocolVersion::LATEST_MODERN, client.principal())
        );
        if let Some(instructions) = self.manager().instructions(client.principal()) {
            result += r#","instructions":"#;
            result += Raw::from_value(&instructions).as_str();
        }
        result.push('}');
        let hints = self.manager().freshness(&client.who_now(), None);
        let id = self.manager().host_id();
        let own = id.map(|id| format!(r#","{}":"{}""#, protocol::meta::HOST_ID, id.as_str())).unwrap_or_default();
        self.0.finish.completed_with(&own, &Raw::trusted(result.into()), Some(hints))
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Pooled>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Lets clients go that have sent nothing for long, until the router stops.
pub(super) async fn reap(router: Router) {
    let stop = router.0.stop.clone();
    let idle = router.limits().session_idle;
    let period = (idle / 4).clamp(Duration::from_millis(10), Duration::from_secs(30));
    while stop.run_until_cancelled(tokio::time::sleep(period)).await.is_some() {
        let mut gone = Vec::new();
        router.0.modern.lock().retain(|_, pooled| {
            let stays = !pooled.client.is_idle() || pooled.used.elapsed() < idle;
            if !stays {
                gone.push(pooled.client.clone());
            }
            stays
        });
        gone.sort_by_key(|client| client.owner());
        for client in gone {
            router.close(&client);
        }
        router.0.roster.forget_unseen(idle);
    }
}
