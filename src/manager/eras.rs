//! Servers that speak both eras (with sessions and without) at one URL: each client is served in its own era.
//!
//! An HTTP server that needs no sessions may still offer them, and may offer more to clients that have one. The host
//! sends it `initialize` when the first client with a session comes. That takes a separate connection: a lease of the
//! legacy era, which becomes the client's if the server accepts. Calls wait [`PATIENCE`] for the answer. Lists never
//! wait: they come from the shared lease until the other lease has listed.
//!
//! | the server | clients with a session use | remembered |
//! |---|---|---|
//! | accepts `initialize` | legacy leases, until a session is refused | until then |
//! | refuses it | the same leases as clients without one | for a day |
//! | does not answer in time | the same | for this client session |
//!
//! When a session is refused, the legacy leases end after their calls. Clients move to the shared lease at their next
//! request, and their subscriptions are opened there first (`router/rewatch.rs`).
//!
//! Start reading at [`Server::lease_era`].

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};

use super::known::{self, Known};
use super::lease::Key;
use super::leases::Table;
use super::{Manager, Server, Who, lock};
use crate::config::{self, Sharing, Transport};
use crate::protocol;
use crate::registry::Offer;
use crate::upstream::{self, Change, Owner, StateName, Target, Upstream};

/// How long calls wait for a server to accept or refuse `initialize`.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// What is known about the eras of one server.
pub(super) struct Eras {
    /// `None` if the server never gets the extra `initialize`: a process speaks one era, and the config may set the
    /// era.
    book: Option<Book>,
    state: watch::Sender<EraState>,
}

/// The record of what is learned about the server, which outlives this run.
struct Book {
    known: Arc<Known>,
    key: Arc<str>,
}

#[derive(Debug, Default)]
struct EraState {
    took: Took,
    /// The deadline for the answer to an `initialize` in flight; calls wait until then.
    asking: Option<Instant>,
    /// Clients for which the server did not answer in time: they stay on the shared lease while their own session
    /// lasts.
    unanswered: BTreeSet<Owner>,
}

/// Whether the server accepts `initialize`.
#[derive(Clone, Copy, Debug, Default)]
enum Took {
    #[default]
    Unknown,
    Yes,
    /// The server refused at this time.
    No(SystemTime),
}

impl EraState {
    /// Reports whether `initialize` may be sent for this client: none is in flight, and none stayed unanswered for it.
    fn may_ask(&self, owner: Owner, now: Instant) -> bool {
        self.asking.is_none_or(|until| until <= now) && !self.unanswered.contains(&owner)
    }
}

/// How long a refusal counts.
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

impl fmt::Debug for Eras {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Eras({:?})", self.state.borrow())
    }
}

impl Eras {
    pub(super) fn of(config: &config::Server, known: &Arc<Known>, in_process: bool) -> Self {
        let over_http = matches!(config.transport, Transport::Http(_) | Transport::Auto(_));
        let may_be = over_http && !in_process && config.era == config::Era::Auto && config.sharing != Sharing::Host;
        let book = may_be.then(|| Book { known: known.clone(), key: known::era_key(&config.transport).into() });
        let state = EraState { took: recall(book.as_ref()), ..EraState::default() };
        Self { book, state: watch::Sender::new(state) }
    }

    /// Returns whether clients with a session get legacy leases; `None` if unknown.
    pub(super) fn takes_sessions(&self) -> Option<bool> {
        match self.state.borrow().took {
            Took::Unknown => None,
            Took::Yes => Some(true),
            Took::No(at) => SystemTime::now().duration_since(at).is_ok_and(|age| age < DAY).then_some(false),
        }
    }

    /// Records the server's answer to `initialize`.
    fn answered(&self, yes: bool) {
        let now = SystemTime::now();
        let news = self.state.send_if_modified(|state| {
            let same = matches!((state.took, yes), (Took::Yes, true));
            state.took = if yes { Took::Yes } else { Took::No(now) };
            !same
        });
        if let (true, Some(book)) = (news, &self.book) {
            book.known.note_sessions(&book.key, yes, now);
        }
    }

    /// Reports whether to send `initialize` for this client, which has only the shared lease so far.
    fn is_to_ask(&self, who: &Who) -> bool {
        let may_be = self.book.is_some() && who.era == protocol::Era::Legacy && self.takes_sessions().is_none();
        may_be && self.state.borrow().may_ask(who.owner, Instant::now())
    }

    /// Like `is_to_ask`, and if so marks the `initialize` as in flight.
    fn begin(&self, who: &Who) -> bool {
        if self.book.is_none() || who.era == protocol::Era::Modern || self.takes_sessions().is_some() {
            return false;
        }
        let now = Instant::now();
        self.state.send_if_modified(|state| {
            let may = state.may_ask(who.owner, now);
            if may {
                // A refusal of a day ago no longer counts.
                (state.asking, state.took) = (Some(now + PATIENCE), Took::Unknown);
            }
            may
        })
    }

    /// Notes that the `initialize` is over. If it got no answer, `owner` stays on the shared lease.
    fn end(&self, owner: Option<Owner>) {
        self.state.send_modify(|state| {
            state.asking = None;
            let is_unanswered = matches!(state.took, Took::Unknown);
            state.unanswered.extend(owner.filter(|_| is_unanswered));
        });
    }

    /// Waits for the answer to an `initialize` in flight, until its deadline at most. Without one, `owner` stays on the
    /// shared lease.
    async fn settled(&self, owner: Owner) {
        let mut changes = self.state.subscribe();
        let Some(until) = self.state.borrow().asking else { return };
        let answer = changes.wait_for(|state| state.asking.is_none() || !matches!(state.took, Took::Unknown));
        let _ = timeout_at(until, answer).await.map(drop);
        if self.takes_sessions().is_none() {
            self.state.send_if_modified(|state| state.unanswered.insert(owner));
        }
    }

    /// Forgets a client's session that is over, so that the host asks again for its next one.
    pub(super) fn forget(&self, owner: Owner) {
        if self.book.is_some() {
            self.state.send_if_modified(|state| {
                state.unanswered.remove(&owner);
                false
            });
        }
    }
}

/// Reads what earlier runs learned.
fn recall(book: Option<&Book>) -> Took {
    match book.and_then(|book| book.known.sessions(&book.key)) {
        None => Took::Unknown,
        Some((true, _)) => Took::Yes,
        Some((false, at)) => Took::No(at),
    }
}

impl Server {
    /// Returns the era in which leases for this client are opened.
    pub(super) fn lease_era(&self, who: &Who) -> config::Era {
        let eras = &self.eras;
        let own = eras.book.is_some() && who.era == protocol::Era::Legacy && eras.takes_sessions() == Some(true);
        if own && !eras.state.borrow().unanswered.contains(&who.owner) {
            return config::Era::Legacy;
        }
        self.config.era
    }

    /// Reports whether this is a legacy lease, opened in addition to the shared lease for clients with a session.
    pub(super) fn is_for_sessions(&self, upstream: &Upstream) -> bool {
        self.eras.book.is_some() && upstream.era() == config::Era::Legacy
    }

    /// Reports whether this client is served in the era of this lease.
    pub(crate) fn is_in_era(&self, upstream: &Upstream, who: &Who) -> bool {
        upstream.era() == self.lease_era(who)
    }

    /// Reports whether the server is known to speak both eras.
    pub(super) fn speaks_both(&self) -> bool {
        self.eras.takes_sessions() == Some(true)
    }

    /// Reports whether this client is served in another era than clients without a session.
    pub(super) fn is_apart(&self, who: &Who) -> bool {
        self.lease_era(who) != self.config.era
    }

    /// Returns the lists of a shared lease, for a client with a session if no lease of its era has ever listed. On a
    /// shared lease the server knows no client, so its lists name nothing private.
    pub(super) fn listed_before(&self, who: &Who) -> Option<Arc<Offer>> {
        let mut upstreams = self.upstreams().into_iter().filter(|_| self.is_apart(who));
        upstreams.find(|upstream| upstream.is_modern())?.offer()
    }

    /// Reports whether the server needs no sessions, and still has to be asked whether it accepts one from this client.
    pub(super) fn is_to_ask_for_sessions(&self, who: &Who) -> bool {
        self.eras.is_to_ask(who) && self.upstreams().iter().any(|upstream| upstream.is_modern())
    }

    /// Reports whether this client may soon see other lists: those from a lease of its own era.
    pub(super) fn is_to_list_anew(&self, who: &Who) -> bool {
        let may_be = self.eras.book.is_some() && who.era == protocol::Era::Legacy;
        may_be
            && if self.is_apart(who) {
                Manager::lease_of(self, who).is_none_or(|upstream| upstream.offer().is_none())
            } else {
                self.eras.state.borrow().asking.is_some()
            }
    }

    /// Returns where leases of this era connect to, and what they remember about the server.
    pub(super) fn opened_in(&self, era: config::Era) -> (Target, upstream::Memory) {
        let target = self.target.clone().unwrap_or_else(|| Target::Memory(Arc::new(|_, _| {})));
        if era == self.config.era {
            return (target, self.era_memory());
        }
        // The server has answered at this URL, so no other transport is tried.
        let target = match target {
            Target::Auto(endpoint, _) => Target::Http(endpoint),
            other => other,
        };
        let eras = self.eras.clone();
        (target, upstream::Memory { took: Arc::new(move |yes| eras.answered(yes)), ..upstream::Memory::none() })
    }
}

impl Manager {
    /// Sends `initialize` to a server that needs no sessions, if this client has a session and is the first.
    pub(super) fn ask_for_sessions(&self, server: &Arc<Server>, table: &mut Table, who: &Who) {
        // No other lease makes way for this `initialize` alone.
        let limits = self.limits();
        let has_room = table.entries.len() < limits.leases_per_server && self.lease_count() < limits.leases;
        if !has_room || !server.eras.begin(who) {
            return;
        }
        // A lease without the client's roots will do for lists; the client's calls may need another one.
        let key = Key { roots: None, ..server.rules_for(who).key(who) };
        let Ok(upstream) = self.add(server, table, key, who, config::Era::Legacy) else {
            // This principal gets no lease: the next principal may try.
            return server.eras.end(None);
        };
        let (manager, server, owner) = (self.clone(), server.clone(), who.owner);
        let stop = self.0.stop.clone();
        self.0.tasks.spawn(async move {
            let (mut state, mut status) = (server.eras.state.subscribe(), upstream.watch());
            let answered = state.wait_for(|state| !matches!(state.took, Took::Unknown));
            // If the lease fails before the server answers, no answer will come.
            let over = status.wait_for(|status| !status.state.is_starting() && status.state != StateName::Connected);
            let asked = async {
                tokio::select! {
                    _ = answered => {}
                    _ = over => {}
                }
            };
            let until = Instant::now() + PATIENCE;
            if stop.run_until_cancelled(timeout_at(until, asked)).await.is_none() {
                return;
            }
            // The client's session may have ended meanwhile.
            let is_here = lock(&server.leases).is_used_by(owner);
            server.eras.end(is_here.then_some(owner));
            if !server.speaks_both() {
                manager.leave_sessions(&server);
            }
            manager.touch();
        });
    }

    /// Waits until it is known whether a server that needs no sessions accepts one from this client.
    pub(crate) async fn settle_era(&self, server: &Arc<Server>, who: &Who) {
        let may_be = server.eras.book.is_some() && who.era == protocol::Era::Legacy;
        if may_be && server.eras.takes_sessions().is_none() {
            self.ask_for_sessions(server, &mut lock(&server.leases), who);
            server.eras.settled(who.owner).await;
        }
    }

    /// When a legacy lease was refused on reconnect, ends it and the other legacy leases.
    pub(super) fn follow_eras(&self, server: &Arc<Server>, change: &Change) {
        let is_lost = matches!(change.to, StateName::Reconnecting | StateName::Failed);
        if is_lost && server.eras.book.is_some() && server.eras.takes_sessions() == Some(false) {
            self.leave_sessions(server);
        }
    }

    /// Ends each legacy lease once no call is on it. No client is given one any more.
    pub(super) fn leave_sessions(&self, server: &Arc<Server>) {
        for upstream in server.upstreams().into_iter().filter(|upstream| server.is_for_sessions(upstream)) {
            self.outlive(server.clone(), upstream, Owner::HOST);
        }
    }
}
