//! Servers that speak both eras at one URL: each client is served in its own.
//!
//! A server over HTTP that needs no sessions may still offer them, and offer more to clients that have one. It is asked
//! by `initialize` when the first client with a session comes. That takes a connection of its own: a lease of the older
//! era, which becomes the client's if the server accepts. Calls wait [`PATIENCE`] for the answer. Lists never wait:
//! they are those of the shared lease until the other lease has listed.
//!
//! | the server | clients with a session are on | known |
//! |---|---|---|
//! | takes `initialize` | leases of the older era, until one is refused | until then |
//! | refuses it | what clients without one are on | for a day |
//! | says neither in time | the same | for this session |
//!
//! When a session is refused, those leases end after their calls. Clients go on with the shared lease at their next
//! request, and what they watch is watched there first (`router/rewatch.rs`).
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

/// Calls wait that long for a server to say whether it takes `initialize`.
pub(super) const PATIENCE: Duration = Duration::from_secs(3);

/// What is known of a server that may speak both eras.
pub(super) struct Eras {
    /// Nothing for a server that is never asked: a process speaks one era, and the config may say which.
    book: Option<(Arc<Known>, Arc<str>)>,
    state: watch::Sender<State>,
}

#[derive(Debug, Default)]
struct State {
    took: Took,
    /// It is being asked; until then calls wait.
    asking: Option<Instant>,
    /// The clients that it said nothing to: they go on without, as long as their session lasts.
    unanswered: BTreeSet<Owner>,
}

/// Whether it takes `initialize`.
#[derive(Clone, Copy, Debug, Default)]
enum Took {
    #[default]
    Unknown,
    Yes,
    /// It does not, as seen then.
    No(SystemTime),
}

impl State {
    /// Whether nobody asks it now, and this client has no answer of it yet.
    fn may_ask(&self, owner: Owner, now: Instant) -> bool {
        self.asking.is_none_or(|until| until <= now) && !self.unanswered.contains(&owner)
    }
}

/// A refusal is believed that long.
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
        let book = may_be.then(|| (known.clone(), known::era_key(&config.transport).into()));
        let state = State { took: recall(book.as_ref()), ..State::default() };
        Self { book, state: watch::Sender::new(state) }
    }

    /// Whether clients with a session get leases of the older era; `None` where that is not known.
    pub(super) fn takes_sessions(&self) -> Option<bool> {
        match self.state.borrow().took {
            Took::Unknown => None,
            Took::Yes => Some(true),
            Took::No(at) => SystemTime::now().duration_since(at).is_ok_and(|age| age < DAY).then_some(false),
        }
    }

    /// The server has answered `initialize`.
    fn answered(&self, yes: bool) {
        let now = SystemTime::now();
        let news = self.state.send_if_modified(|state| {
            let same = matches!((state.took, yes), (Took::Yes, true));
            state.took = if yes { Took::Yes } else { Took::No(now) };
            !same
        });
        if let (true, Some((known, key))) = (news, &self.book) {
            known.note_sessions(key, yes, now);
        }
    }

    /// Whether it is to be asked for this client, which has none but the lease that everybody shares.
    fn is_to_ask(&self, who: &Who) -> bool {
        let may_be = self.book.is_some() && who.era == protocol::Era::Legacy && self.takes_sessions().is_none();
        may_be && self.state.borrow().may_ask(who.owner, Instant::now())
    }

    /// The same; from then on it is being asked.
    fn begin(&self, who: &Who) -> bool {
        if self.book.is_none() || who.era == protocol::Era::Modern || self.takes_sessions().is_some() {
            return false;
        }
        let now = Instant::now();
        self.state.send_if_modified(|state| {
            let may = state.may_ask(who.owner, now);
            if may {
                // What was said a day ago is no answer.
                (state.asking, state.took) = (Some(now + PATIENCE), Took::Unknown);
            }
            may
        })
    }

    /// It is asked no longer. The client that it was asked for goes on without an answer, if there is none.
    fn end(&self, owner: Option<Owner>) {
        self.state.send_modify(|state| {
            state.asking = None;
            let is_unanswered = matches!(state.took, Took::Unknown);
            state.unanswered.extend(owner.filter(|_| is_unanswered));
        });
    }

    /// Waits for the answer, where it is being asked, and no longer than calls wait.
    async fn settled(&self, owner: Owner) {
        let mut changes = self.state.subscribe();
        let Some(until) = self.state.borrow().asking else { return };
        let answer = changes.wait_for(|state| state.asking.is_none() || !matches!(state.took, Took::Unknown));
        let _ = timeout_at(until, answer).await.map(drop);
        if self.takes_sessions().is_none() {
            self.state.send_if_modified(|state| state.unanswered.insert(owner));
        }
    }

    /// The session is over; another one of the same client is asked for anew.
    pub(super) fn forget(&self, owner: Owner) {
        if self.book.is_some() {
            self.state.send_if_modified(|state| {
                state.unanswered.remove(&owner);
                false
            });
        }
    }
}

/// What was known before.
fn recall(book: Option<&(Arc<Known>, Arc<str>)>) -> Took {
    match book.and_then(|(known, key)| known.sessions(key)) {
        None => Took::Unknown,
        Some((true, _)) => Took::Yes,
        Some((false, at)) => Took::No(at),
    }
}

impl Server {
    /// The era that leases for this client are opened in.
    pub(super) fn lease_era(&self, who: &Who) -> config::Era {
        let eras = &self.eras;
        let own = eras.book.is_some() && who.era == protocol::Era::Legacy && eras.takes_sessions() == Some(true);
        if own && !eras.state.borrow().unanswered.contains(&who.owner) {
            return config::Era::Legacy;
        }
        self.config.era
    }

    /// Whether this lease is one of those that its clients with a session have beside the one that all others share.
    pub(super) fn is_for_sessions(&self, upstream: &Upstream) -> bool {
        self.eras.book.is_some() && upstream.era() == config::Era::Legacy
    }

    /// Whether that client is served in the era of this lease.
    pub(crate) fn is_in_era(&self, upstream: &Upstream, who: &Who) -> bool {
        upstream.era() == self.lease_era(who)
    }

    /// Whether it is known to speak both.
    pub(super) fn speaks_both(&self) -> bool {
        self.eras.takes_sessions() == Some(true)
    }

    /// Whether this client is served in another era than those without a session.
    pub(super) fn is_apart(&self, who: &Who) -> bool {
        self.lease_era(who) != self.config.era
    }

    /// What a client with a session is shown where no lease of its era has ever listed: what is listed to all who share one.
    /// That one knows of no client, so that it names nothing that is somebody's.
    pub(super) fn listed_before(&self, who: &Who) -> Option<Arc<Offer>> {
        let mut upstreams = self.upstreams().into_iter().filter(|_| self.is_apart(who));
        upstreams.find(|upstream| upstream.is_modern())?.offer()
    }

    /// Whether it needs no sessions, and is to be asked whether it takes one from this client.
    pub(super) fn is_to_ask_for_sessions(&self, who: &Who) -> bool {
        self.eras.is_to_ask(who) && self.upstreams().iter().any(|upstream| upstream.is_modern())
    }

    /// Whether this client may be shown other lists in a moment, of its own era.
    pub(super) fn is_to_list_anew(&self, who: &Who) -> bool {
        let may_be = self.eras.book.is_some() && who.era == protocol::Era::Legacy;
        may_be
            && if self.is_apart(who) {
                Manager::lease_of(self, who).is_none_or(|upstream| upstream.offer().is_none())
            } else {
                self.eras.state.borrow().asking.is_some()
            }
    }

    /// Where its leases are opened, and what they remember of its era.
    pub(super) fn opened_in(&self, era: config::Era) -> (Target, upstream::Memory) {
        let target = self.target.clone().unwrap_or_else(|| Target::Memory(Arc::new(|_, _| {})));
        if era == self.config.era {
            return (target, self.era_memory());
        }
        // It has answered at this URL: no other transport is looked for.
        let target = match target {
            Target::Auto(endpoint, _) => Target::Http(endpoint),
            other => other,
        };
        let eras = self.eras.clone();
        (target, upstream::Memory { took: Arc::new(move |yes| eras.answered(yes)), ..upstream::Memory::none() })
    }
}

impl Manager {
    /// Asks a server that needs no sessions by `initialize`, if this client has one and is the first.
    pub(super) fn ask_for_sessions(&self, server: &Arc<Server>, table: &mut Table, who: &Who) {
        // Nobody is to make way for a question.
        let limits = self.limits();
        let has_room = table.entries.len() < limits.leases_per_server && self.lease_count() < limits.leases;
        if !has_room || !server.eras.begin(who) {
            return;
        }
        // One that lists will do; its calls may want another one.
        let key = Key { roots: None, ..server.rules().key(who) };
        let Ok(upstream) = self.add(server, table, key, who, config::Era::Legacy) else {
            // There is none for this principal: the next one tries.
            return server.eras.end(None);
        };
        let (manager, server, owner) = (self.clone(), server.clone(), who.owner);
        let stop = self.0.stop.clone();
        self.0.tasks.spawn(async move {
            let (mut state, mut status) = (server.eras.state.subscribe(), upstream.watch());
            let answered = state.wait_for(|state| !matches!(state.took, Took::Unknown));
            // What fails before it says anything says nothing in the next moment either.
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
            // Its session may have ended meanwhile.
            let is_here = lock(&server.leases).is_used_by(owner);
            server.eras.end(is_here.then_some(owner));
            if !server.speaks_both() {
                manager.leave_sessions(&server);
            }
            manager.touch();
        });
    }

    /// Waits until it is known of a server that needs no session whether it takes one from this client.
    pub(crate) async fn settle_era(&self, server: &Arc<Server>, who: &Who) {
        let may_be = server.eras.book.is_some() && who.era == protocol::Era::Legacy;
        if may_be && server.eras.takes_sessions().is_none() {
            self.ask_for_sessions(server, &mut lock(&server.leases), who);
            server.eras.settled(who.owner).await;
        }
    }

    /// A lease of the older era that was refused anew ends, and so do the others.
    pub(super) fn follow_eras(&self, server: &Arc<Server>, change: &Change) {
        let is_lost = matches!(change.to, StateName::Reconnecting | StateName::Failed);
        if is_lost && server.eras.book.is_some() && server.eras.takes_sessions() == Some(false) {
            self.leave_sessions(server);
        }
    }

    /// Ends the leases of the older era once no call is on them: nobody is given one any more.
    pub(super) fn leave_sessions(&self, server: &Arc<Server>) {
        for upstream in server.upstreams().into_iter().filter(|upstream| server.is_for_sessions(upstream)) {
            self.outlive(server.clone(), upstream, Owner::HOST);
        }
    }
}
