//! Facts about a server that decide which clients share its leases (connections), and the consequences of new facts.
//!
//! Clients that only listed leave a lease whose server was told the roots of another client, and a lease that declares
//! what its server is by now known to ask. If no lease lists for everyone any more, the host opens one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::SystemTime;

use super::lease::Rules;
use super::{Asked, Pool, Server, Told, Who, known, lock};
use crate::config::{Roots, Sharing, Transport};
use crate::protocol::{Method, Profile};
use crate::upstream::{Ask, Connection, Upstream};

/// What one server is known to ask and to show.
#[derive(Debug)]
pub(super) struct Traits {
    asks: AtomicU8,
    shows_ui: AtomicBool,
    /// A counter that grows with everything that may make clients move to another lease.
    stamp: AtomicU64,
    /// Its key in the record; `None` for a server in this process, which is not recorded.
    key: Option<String>,
}

impl Traits {
    pub(super) fn of(known: &known::Known, transport: &Transport, in_process: bool) -> Self {
        let key = (!in_process).then(|| known::key(transport));
        let (asks, shows_ui) = match &key {
            Some(key) => (known.asks(key), known.shows_ui(key)),
            None => (Asked::NOTHING, false),
        };
        Self { asks: asks.bits().into(), shows_ui: shows_ui.into(), stamp: AtomicU64::new(1), key }
    }
}

impl Server {
    /// Returns what the server is known to ask its clients.
    pub(crate) fn asks(&self) -> Asked {
        Asked::from_bits(self.traits.asks.load(Ordering::Relaxed))
    }

    /// Reports whether the server lists something for MCP Apps.
    pub(super) fn shows_ui(&self) -> bool {
        self.traits.shows_ui.load(Ordering::Relaxed)
    }

    /// Returns the rules that decide which clients share a lease (connection) of this server.
    pub(super) fn rules(&self) -> Rules<'_> {
        let (sharing, roots) = (self.config.sharing, &self.config.roots);
        let refused = Profile::EMPTY;
        Rules { sharing, roots, asks: self.asks(), shows_ui: self.shows_ui(), refused }
    }

    /// Returns the rules for one client, including the questions that the server may not ask it.
    pub(super) fn rules_for(&self, who: &Who) -> Rules<'_> {
        Rules { refused: self.refused(who), ..self.rules() }
    }

    /// Returns a counter that grows whenever clients may have to move to another lease.
    pub(crate) fn stamp(&self) -> u64 {
        self.traits.stamp.load(Ordering::Acquire)
    }

    pub(super) fn touch(&self) {
        self.traits.stamp.fetch_add(1, Ordering::AcqRel);
    }

    /// Notes a question from the server: from now on clients that can answer it share with fewer others. Questions that
    /// the config answers do not count.
    pub(crate) fn note_ask(&self, ask: &Ask) {
        let is_answered = ask.method == Method::RootsList && !matches!(self.config.roots, Roots::Client);
        if !ask.is_gathered() && !is_answered {
            self.note_asked(Asked::of(&ask.method), ask.server_version());
        }
    }

    /// Notes that the server asks questions of these kinds, however that became known.
    pub(crate) fn note_asked(&self, asks: Asked, version: Option<String>) {
        // A server in this process with `sharing: profile` is told exactly its clients' capabilities, and its questions
        // name the calls that they belong to.
        let is_told_all = self.traits.key.is_none() && self.config.sharing == Sharing::Profile;
        if asks.is_empty() || self.config.sharing == Sharing::Host {
            return;
        }
        if is_told_all {
            return self.note_asked_by_result();
        }
        let before = Asked::from_bits(self.traits.asks.fetch_or(asks.bits(), Ordering::AcqRel));
        if before.has(asks) && !asks.has(Asked::ROOTS) {
            return;
        }
        if let Some(key) = &self.traits.key {
            self.known.note(key, asks, version, SystemTime::now());
        }
        if !before.has(asks) {
            self.redeclare();
        }
    }

    /// Notes that a result of the server asked its client something, which changes nothing about who shares.
    pub(crate) fn note_asked_by_result(&self) {
        if let Some(pool) = &self.pool {
            pool.note_asked();
        }
    }

    /// Notes the first response to a client on this connection. If roots were declared, the server has not asked for
    /// them before it answered.
    pub(crate) fn note_answer(&self, upstream: &Upstream, connection: &Connection) {
        let Some(key) = &self.traits.key else { return };
        if !self.asks().has(Asked::ROOTS) || !upstream.profile().has(Profile::ROOTS) || !connection.is_first_answer() {
            return;
        }
        if self.known.note_quiet(key, connection.server_version().as_deref(), SystemTime::now()) {
            self.traits.asks.fetch_and(!Asked::ROOTS.bits(), Ordering::AcqRel);
            self.redeclare();
        }
    }

    /// Notes whether a complete list has anything for MCP Apps.
    pub(super) fn note_ui(&self, shows: bool) {
        if self.traits.shows_ui.swap(shows, Ordering::AcqRel) != shows {
            if let Some(key) = &self.traits.key {
                self.known.note_ui(key, shows, SystemTime::now());
            }
            self.redeclare();
        }
    }

    /// Forgets what the server asks and shows, so that it is learned again. Returns what it asked.
    pub(crate) fn forget_asks(&self) -> Asked {
        let before = Asked::from_bits(self.traits.asks.swap(0, Ordering::AcqRel));
        self.traits.shows_ui.store(false, Ordering::Release);
        self.pool.iter().for_each(Pool::forget_asked);
        if let Some(key) = &self.traits.key {
            self.known.forget(key);
        }
        self.redeclare();
        before
    }

    /// Updates what its leases declare from their next start on.
    fn redeclare(&self) {
        let rules = self.rules();
        for entry in &lock(&self.leases).entries {
            entry.upstream.declare(entry.key.declares(&rules));
        }
        self.touch();
    }

    /// Returns the capabilities of a client that the server is told.
    pub(crate) fn declared(&self, who: &Who) -> Profile {
        self.rules_for(who).declared(who.profile)
    }

    /// Reports whether the roots of a client decide which lease serves it.
    pub(crate) fn wants_roots(&self, who: &Who) -> bool {
        let answers = self.rules_for(who).answers(who.profile);
        self.config.sharing != Sharing::Host && answers.has(Asked::ROOTS)
    }

    /// Reports whether the server is known to need no sessions for this client. Such a server asks through its results.
    pub(crate) fn is_sessionless(&self, who: &Who) -> bool {
        let era = self.lease_era(who);
        lock(&self.leases).entries.iter().any(|entry| entry.upstream.is_modern() && entry.is_in(era))
    }

    /// Records the roots of a client. If no other client has ever called on the lease, they become the lease's: clients
    /// with the same roots may share it.
    pub(crate) fn told_roots(&self, upstream: &Upstream, told: &Arc<Told>, who: &Who) {
        if !upstream.is_only(who.owner) {
            return;
        }
        let rules = self.rules_for(who);
        let mut table = lock(&self.leases);
        let Some(entry) = table.entries.iter_mut().find(|entry| entry.upstream.id == upstream.id) else { return };
        let was_bound = upstream.bound_to().is_some();
        // Claimed first, so that a concurrent call of another client goes to another lease.
        if !upstream.claim(who.owner) {
            return;
        }
        if entry.key.own {
            // With several conversations, each call has its own roots.
            if who.is_one {
                upstream.keep_roots(told.result());
            }
            return;
        }
        upstream.keep_roots(told.result());
        if entry.key.roots.as_ref() != Some(told) {
            // No other client has called, and its lists may now name this client's files.
            entry.leave(|user| user != who.owner);
        }
        entry.key.roots = Some(told.clone());
        upstream.declare(entry.key.declares(&rules));
        if !was_bound || (rules.sharing != Sharing::Session && self.asks().without(Asked::ROOTS).is_empty()) {
            upstream.unbind();
        }
        drop(table);
        self.touch();
    }

    /// Returns what a lease declares, as far as it depends on a client: the rest lease counts as declaring nothing.
    pub(super) fn profile_of(&self, upstream: &Upstream) -> Profile {
        let table = lock(&self.leases);
        let entry = table.entries.iter().find(|entry| entry.upstream.id == upstream.id);
        match entry {
            Some(entry) if entry.key.is_rest() && upstream.bound_to().is_none() => Profile::EMPTY,
            _ => upstream.profile(),
        }
    }
}
