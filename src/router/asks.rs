//! The questions that people are asked before a call is sent because a rule requires it: which are open, what was
//! decided, and which decisions are still valid.
//!
//! In: a call that a rule wants a person to decide on. Out: whether it was allowed. **Invariant:** a yes is valid only
//! for the principal, view, session (if any), rule, and request that it was given for. It allows one request, unless
//! the person chose a time during which it allows equal ones. Everything is in memory, and lost at a restart.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::lock::lock;
use crate::manager::Principal;
use crate::record::{Part, Record};
use crate::upstream::Owner;

/// A question that waits for a person's decision: may this call be sent?
///
/// ```no_run
/// # async fn decide(host: &mcp_host::Host) {
/// for ask in host.asks() {
///     println!("{}: {} of {} wants {}", ask.id, ask.principal, ask.server, ask.name);
///     host.decide(ask.id, mcp_host::Decided::No);
/// }
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct OpenAsk {
    /// The number of the question, which `Host::decide` takes.
    pub id: u64,
    /// The rule that wants a person to decide.
    pub rule: String,
    /// The server that the request is for.
    pub server: String,
    /// The server's own name for the tool or prompt, or the URI of the resource.
    pub name: String,
    /// The method of the request.
    pub method: String,
    /// The principal that sends the request, written as in the audit.
    pub principal: String,
    /// The name that the client gave for itself: shown, never trusted.
    pub client: Option<String>,
    /// The view that the client uses.
    pub view: String,
    /// The arguments as the server would get them, without hidden ones; control characters are escaped.
    pub arguments: String,
    /// For how long a yes may count, if the rule allows more than one request; in seconds.
    pub remember_secs: Option<u64>,
    /// For how many seconds it has been open.
    pub waits_secs: u64,
    /// Whether only a person at this machine may decide, and not the client.
    pub person_only: bool,
}

/// A person's decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Decided {
    /// This one request is sent.
    Once,
    /// This request is sent, and equal ones for as long as the rule says (`remember`).
    Remember,
    /// The request is refused.
    No,
}

/// What a yes is valid for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Scope {
    /// The principal, bound to the view.
    pub(super) bound: Principal,
    /// The session; `None` for a client without one.
    pub(super) session: Option<Owner>,
    pub(super) rule: Arc<str>,
    /// The number of the server, which changes with its entry.
    pub(super) server: usize,
    pub(super) target: Arc<str>,
    /// The definition of the tool at the time; empty if there is none.
    pub(super) pin: Box<str>,
}

/// The questions to people, and the decisions that are still valid.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    table: Mutex<Table>,
    /// Gets an event for each question and each decision.
    record: Record,
}

#[derive(Debug, Default)]
struct Table {
    last: u64,
    open: BTreeMap<u64, Entry>,
    /// Until when equal requests are allowed.
    granted: HashMap<Scope, Instant>,
    /// For each running script, by its name, what is allowed until it ends.
    granted_to: HashMap<Arc<str>, HashSet<Scope>>,
}

#[derive(Debug)]
struct Entry {
    scope: Scope,
    /// The digest of the request.
    digest: String,
    shown: OpenAsk,
    since: Instant,
    /// When the entry expires: first the time until which a person may decide, then the time until which the decision
    /// is valid.
    until: Instant,
    /// How long a decision is valid.
    life: Duration,
    remember: Option<Duration>,
    state: watch::Sender<State>,
}

/// The state of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Nobody has decided.
    Open,
    /// Yes, and the request was not sent yet.
    Yes,
    /// Yes, and the request was sent.
    Used,
    No,
}

/// The most questions that are kept in all, and of one principal. The oldest question goes first.
const MOST: usize = 1000;
const MOST_OF_ONE: usize = 64;

impl Asks {
    /// Makes the table. The record is told of each question and each decision.
    pub(super) fn new(record: Record) -> Self {
        Self { record, ..Self::default() }
    }

    /// Tells the record the new state of a question, without the arguments of the call.
    fn tell(&self, ask: &OpenAsk, what: &'static str) {
        if self.record.is_on() {
            let OpenAsk { id, rule, server, name, method, principal, client, .. } = ask;
            let shown = serde_json::json!({
                "id": id, "what": what, "rule": rule, "server": server, "name": name, "method": method,
                "principal": principal, "client": client,
            });
            self.record.happened(Part::Asks, &shown.to_string(), SystemTime::now());
        }
    }

    /// Allows a tool for as long as a script runs.
    pub(super) fn grant_to(&self, script: &Arc<str>, scope: &Scope) {
        self.table().granted_to.entry(script.clone()).or_default().insert(scope.clone());
    }

    /// Reports whether a tool is allowed for as long as a script runs.
    pub(super) fn is_granted_to(&self, script: &Arc<str>, scope: &Scope) -> bool {
        self.table().granted_to.get(script).is_some_and(|scopes| scopes.contains(scope))
    }

    /// Drops what was allowed for a script that has ended.
    #[cfg(all(unix, feature = "script"))]
    pub(super) fn end_script(&self, script: &Arc<str>) {
        self.table().granted_to.remove(script);
    }

    /// Reports whether equal requests are allowed for a while.
    pub(super) fn is_granted(&self, scope: &Scope) -> bool {
        self.table().granted.get(scope).is_some_and(|until| *until > Instant::now())
    }

    /// Reports whether there is a yes for this request that was not used.
    pub(super) fn has_yes(&self, scope: &Scope, digest: &str) -> bool {
        let table = self.table();
        table.open.values().any(|entry| entry.is_of(scope, digest) && *entry.state.borrow() == State::Yes)
    }

    /// Uses a yes that was given for this request, if there is one. Returns the number of its question.
    pub(super) fn use_yes(&self, scope: &Scope, digest: &str) -> Option<u64> {
        let mut table = self.table();
        let (id, entry) = table
            .open
            .iter_mut()
            .find(|(_, entry)| entry.is_of(scope, digest) && *entry.state.borrow() == State::Yes)?;
        entry.state.send_replace(State::Used);
        Some(*id)
    }

    /// Reports whether this question was answered with a yes for this request, used or not.
    pub(super) fn is_allowed(&self, id: u64, scope: &Scope, digest: &str) -> bool {
        let table = self.table();
        let entry = table.open.get(&id).filter(|entry| entry.is_of(scope, digest));
        entry.is_some_and(|entry| matches!(*entry.state.borrow(), State::Yes | State::Used))
    }

    /// Reports whether this question still exists: it is open, or its yes is still valid.
    pub(super) fn is_there(&self, id: u64) -> bool {
        self.table().open.contains_key(&id)
    }

    /// Makes a used yes valid again, because its request did not reach the server.
    pub(super) fn give_back(&self, id: u64) {
        if let Some(entry) = self.table().open.get(&id) {
            entry.state.send_if_modified(|state| std::mem::replace(state, State::Yes) == State::Used);
        }
    }

    /// Returns the open question about this request, if there is one.
    pub(super) fn find(&self, scope: &Scope, digest: &str) -> Option<(u64, watch::Receiver<State>)> {
        let table = self.table();
        let found =
            table.open.iter().find(|(_, entry)| entry.is_of(scope, digest) && *entry.state.borrow() == State::Open);
        found.map(|(id, entry)| (*id, entry.state.subscribe()))
    }

    /// Opens a question. A decision on it is valid for `life`.
    pub(super) fn open(
        &self,
        scope: Scope,
        digest: &str,
        (shown, remember): (OpenAsk, Option<Duration>),
        life: Duration,
    ) -> (u64, watch::Receiver<State>) {
        let mut table = self.table();
        let of_one = |entry: &Entry| entry.shown.principal == shown.principal;
        if table.open.values().filter(|entry| of_one(entry)).count() >= MOST_OF_ONE {
            let oldest = table.open.iter().find(|(_, entry)| of_one(entry)).map(|(id, _)| *id);
            oldest.and_then(|id| table.open.remove(&id));
        }
        if table.open.len() >= MOST {
            table.open.pop_first();
        }
        table.last += 1;
        let (id, now) = (table.last, Instant::now());
        let shown = OpenAsk { id, remember_secs: remember.map(|time| time.as_secs()), ..shown };
        let (state, receiver) = watch::channel(State::Open);
        self.tell(&shown, "open");
        let entry =
            Entry { scope, digest: digest.to_owned(), shown, since: now, until: now + life, life, remember, state };
        table.open.insert(id, entry);
        (id, receiver)
    }

    /// Returns for how long a yes to the question may allow equal requests; `None` if it allows one request only.
    pub(super) fn remember(&self, id: u64) -> Option<Duration> {
        self.table().open.get(&id)?.remember
    }

    /// Records a decision. Returns false if the question is not open.
    pub(crate) fn decide(&self, id: u64, decided: Decided) -> bool {
        let mut table = self.table();
        let Some(entry) = table.open.get_mut(&id).filter(|entry| *entry.state.borrow() == State::Open) else {
            return false;
        };
        self.tell(&entry.shown, if decided == Decided::No { "refused" } else { "allowed" });
        if decided == Decided::No {
            let gone = table.open.remove(&id);
            if let Some(entry) = gone {
                entry.state.send_replace(State::No);
            }
            return true;
        }
        let remembered = entry.remember.filter(|_| decided == Decided::Remember);
        let scope = entry.scope.clone();
        // A yes that comes late is valid as long as one that comes early.
        entry.until = Instant::now() + entry.life;
        entry.state.send_replace(State::Yes);
        if let Some(time) = remembered {
            table.granted.insert(scope, Instant::now() + time);
        }
        true
    }

    /// Drops a question that nobody will decide on.
    pub(super) fn drop(&self, id: u64) {
        self.table().open.remove(&id);
    }

    /// Drops the questions and decisions of a session that is over: none of them can count any more.
    pub(super) fn end_session(&self, session: Owner) {
        let mut table = self.table();
        let is_left = |scope: &Scope| scope.session != Some(session);
        table.open.retain(|_, entry| is_left(&entry.scope));
        table.granted.retain(|scope, _| is_left(scope));
    }

    /// Drops all questions and decisions.
    pub(super) fn clear(&self) {
        let mut table = self.table();
        table.open.clear();
        table.granted.clear();
        table.granted_to.clear();
    }

    /// Lists the open questions, oldest first.
    pub(crate) fn list(&self) -> Vec<OpenAsk> {
        let table = self.table();
        let open = table.open.values().filter(|entry| *entry.state.borrow() == State::Open);
        open.map(|entry| OpenAsk { waits_secs: entry.since.elapsed().as_secs(), ..entry.shown.clone() }).collect()
    }

    /// Removes what has expired, and locks the table.
    fn table(&self) -> MutexGuard<'_, Table> {
        let mut table = lock(&self.table);
        let now = Instant::now();
        table.open.retain(|_, entry| entry.until > now);
        table.granted.retain(|_, until| *until > now);
        table
    }
}

impl Entry {
    fn is_of(&self, scope: &Scope, digest: &str) -> bool {
        self.scope == *scope && self.digest == digest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(session: u64, rule: &str) -> Scope {
        Scope {
            bound: Principal::local(),
            session: Some(Owner(session)),
            rule: rule.into(),
            server: 1,
            target: "t".into(),
            pin: "p".into(),
        }
    }

    fn shown() -> OpenAsk {
        OpenAsk {
            id: 0,
            rule: "r".to_owned(),
            server: "s".to_owned(),
            name: "t".to_owned(),
            method: "tools/call".to_owned(),
            principal: "local".to_owned(),
            client: None,
            view: "all".to_owned(),
            arguments: "{}".to_owned(),
            remember_secs: None,
            waits_secs: 0,
            person_only: true,
        }
    }

    fn open(asks: &Asks, scope: Scope, digest: &str) -> u64 {
        asks.open(scope, digest, (shown(), Some(Duration::from_secs(60))), Duration::from_secs(600)).0
    }

    #[tokio::test(start_paused = true)]
    async fn a_yes_counts_once_and_for_what_it_was_given() {
        let asks = Asks::default();
        let id = open(&asks, scope(1, "r"), "d");
        assert!(!asks.is_allowed(id, &scope(1, "r"), "d"));
        assert!(asks.decide(id, Decided::Once) && !asks.decide(id, Decided::No), "only the first decision counts");
        for (other, digest) in [(scope(2, "r"), "d"), (scope(1, "q"), "d"), (scope(1, "r"), "e")] {
            assert_eq!(asks.use_yes(&other, digest), None, "{other:?}");
            assert!(!asks.is_allowed(id, &other, digest));
        }
        assert_eq!(asks.use_yes(&scope(1, "r"), "d"), Some(id));
        assert_eq!(asks.use_yes(&scope(1, "r"), "d"), None, "it is used");
        assert!(asks.is_allowed(id, &scope(1, "r"), "d"), "the same call goes on");
        asks.give_back(id);
        assert_eq!(asks.use_yes(&scope(1, "r"), "d"), Some(id), "it was not sent");
        assert!(!asks.is_granted(&scope(1, "r")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_yes_for_a_while_ends() {
        let asks = Asks::default();
        let id = open(&asks, scope(1, "r"), "d");
        assert!(asks.decide(id, Decided::Remember));
        assert!(asks.is_granted(&scope(1, "r")) && !asks.is_granted(&scope(2, "r")));
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(!asks.is_granted(&scope(1, "r")));
    }

    #[tokio::test(start_paused = true)]
    async fn questions_and_decisions_of_a_session_end_with_it() {
        let asks = Asks::default();
        let ids = [1, 2].map(|session| open(&asks, scope(session, "r"), "d"));
        let granted = [1, 2].map(|session| open(&asks, scope(session, "q"), "d"));
        assert!(granted.iter().all(|id| asks.decide(*id, Decided::Remember)));
        asks.end_session(Owner(1));
        assert_eq!(ids.map(|id| asks.decide(id, Decided::Once)), [false, true]);
        assert_eq!([1, 2].map(|session| asks.is_granted(&scope(session, "q"))), [false, true]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_question_ends_with_a_no_with_its_time_or_when_there_are_too_many() {
        let asks = Asks::default();
        let id = open(&asks, scope(1, "r"), "d");
        let (_, state) = asks.find(&scope(1, "r"), "d").unwrap();
        assert!(asks.decide(id, Decided::No));
        assert_eq!((*state.borrow(), asks.list().len()), (State::No, 0));
        let first = open(&asks, scope(1, "r"), "0");
        for number in 1..=MOST_OF_ONE {
            open(&asks, scope(1, "r"), &number.to_string());
        }
        assert_eq!(asks.list().len(), MOST_OF_ONE);
        assert!(!asks.decide(first, Decided::Once), "the oldest went");
        tokio::time::advance(Duration::from_secs(601)).await;
        assert_eq!(asks.list(), []);
    }
}
