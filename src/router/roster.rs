//! Which clients are there: those with a session, and those without one that were heard of lately.
//!
//! Clients say their own name and version, and nobody proves it: both are shown and never believed. A client without a
//! session never says goodbye, so it counts until it has been silent for a while. **Invariant:** the table is bounded,
//! whatever names clients make up, and a request of a known client costs one look into it.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde::Serialize;
use tokio::sync::broadcast;
use tokio::time::Instant;

use super::client::Client;
use super::{Principal, Router};
use crate::protocol::{Method, ProtocolVersion, Raw};

/// One client, as people see it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct ClientStatus {
    /// What it calls itself; empty where it does not say.
    pub name: String,
    /// Which version of itself it says it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The revision that it speaks.
    pub revision: String,
    /// `http`, `sse` or `stdio`.
    pub transport: &'static str,
    /// Who it has proved to be, where clients prove that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Milliseconds since it connected, or was first heard of.
    pub since_ms: u64,
    /// Milliseconds since its last request.
    pub idle_ms: u64,
    /// Tools that it called, resources it read, prompts it got.
    pub calls: u64,
}

/// What became of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum ClientChange {
    /// It connected; without a session, it sent its first request for a while.
    Connected,
    /// Its session ended; without one, it was silent for a while.
    Left,
}

/// A client came or went.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientEvent {
    /// Which of the two.
    pub change: ClientChange,
    /// The client.
    pub client: ClientStatus,
    /// How many clients there are now.
    pub clients: usize,
    /// When.
    pub at: SystemTime,
}

/// The way a client comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Via {
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "there is no HTTP door"))]
    Http,
    #[cfg_attr(not(feature = "server"), allow(dead_code, reason = "there is no HTTP door"))]
    Sse,
    Stdio,
}

impl Via {
    fn as_str(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Sse => "sse",
            Self::Stdio => "stdio",
        }
    }
}

/// A session that is shown to people.
#[derive(Debug)]
pub(super) struct Presence {
    via: Via,
    since: Instant,
    /// Its last request, in milliseconds after `since`.
    used: AtomicU64,
    calls: AtomicU64,
}

impl Presence {
    fn new(via: Via) -> Self {
        Self { via, since: Instant::now(), used: AtomicU64::new(0), calls: AtomicU64::new(0) }
    }

    /// Notes a request.
    pub(super) fn note(&self, method: &Method) {
        self.used.store(milliseconds(self.since.elapsed()), Ordering::Relaxed);
        if is_call(method) {
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A client without a session.
#[derive(Debug)]
struct Seen {
    name: String,
    version: Option<String>,
    user: Option<String>,
    via: Via,
    since: Instant,
    used: Instant,
    calls: u64,
}

/// Who is shown to people as a client.
#[derive(Debug)]
pub(super) struct Roster {
    /// How many have a session.
    sessions: AtomicUsize,
    /// Those without one, by what they say of themselves.
    seen: Mutex<HashMap<u64, Seen>>,
    hash: RandomState,
    events: broadcast::Sender<ClientEvent>,
}

/// A client without a session has left when it was silent for that long.
const SILENT: Duration = Duration::from_secs(5 * 60);
/// Clients without a session that are told apart. Of more, the one silent longest is forgotten.
const MOST: usize = 256;
/// Characters of a name or version that are kept.
const NAME: usize = 200;
/// Bytes of what a client says of itself that tell it from another.
const TOLD_APART: usize = 2048;
/// Events that a slow reader may be behind.
const EVENTS: usize = 256;

impl Roster {
    pub(super) fn new() -> Self {
        Self {
            sessions: AtomicUsize::new(0),
            seen: Mutex::default(),
            hash: RandomState::new(),
            events: broadcast::Sender::new(EVENTS),
        }
    }

    fn seen(&self) -> MutexGuard<'_, HashMap<u64, Seen>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Router {
    /// Shows a client that has opened a session, until it is closed.
    pub(crate) fn welcome(&self, client: &Arc<Client>, via: Via) {
        if client.be_present(Presence::new(via)) {
            self.0.roster.sessions.fetch_add(1, Ordering::Relaxed);
            self.tell_of(ClientChange::Connected, of_session(client));
        }
    }

    /// The session of a client is over.
    pub(super) fn farewell(&self, client: &Client) {
        if client.presence().is_some() {
            self.0.roster.sessions.fetch_sub(1, Ordering::Relaxed);
            self.tell_of(ClientChange::Left, of_session(client));
        }
    }

    /// Notes a request without a session. `info` is what its sender says of itself.
    pub(crate) fn seen(&self, principal: &Principal, info: Option<&Raw>, method: &Method, via: Via) {
        // Clients that go on with a handshake ask that first.
        if *method == Method::Discover {
            return;
        }
        let roster = &self.0.roster;
        let told = info.map_or(&[][..], |info| &info.as_bytes()[..info.as_bytes().len().min(TOLD_APART)]);
        let key = roster.hash.hash_one((principal, told, via));
        let (now, calls) = (Instant::now(), u64::from(is_call(method)));
        let mut seen = roster.seen();
        if let Some(known) = seen.get_mut(&key) {
            known.used = now;
            known.calls += calls;
            return;
        }
        let full = seen.len() >= MOST;
        let longest = full.then(|| seen.iter().min_by_key(|(_, seen)| seen.used).map(|(key, _)| *key)).flatten();
        let forgotten = longest.and_then(|key| seen.remove(&key));
        let [name, version] = info.map_or([None, None], |info| info.members(["name", "version"]));
        let short = |member: &Raw| Some(member.string()?.chars().take(NAME).collect::<String>());
        let client = Seen {
            name: name.as_ref().and_then(short).unwrap_or_default(),
            version: version.as_ref().and_then(short),
            user: user(principal),
            via,
            since: now,
            used: now,
            calls,
        };
        let status = of_seen(&client);
        seen.insert(key, client);
        drop(seen);
        if let Some(forgotten) = forgotten {
            self.tell_of(ClientChange::Left, of_seen(&forgotten));
        }
        self.tell_of(ClientChange::Connected, status);
    }

    /// Forgets clients without a session that have been silent for long; no longer than `idle`, where that is shorter.
    pub(super) fn forget_unseen(&self, idle: Duration) {
        let mut gone = Vec::new();
        self.0.roster.seen().retain(|_, seen| {
            let stays = seen.used.elapsed() < idle.min(SILENT);
            if !stays {
                gone.push(of_seen(seen));
            }
            stays
        });
        for client in gone {
            self.tell_of(ClientChange::Left, client);
        }
    }

    /// Every client that is there, the oldest first. The program that embeds the host is none.
    #[must_use]
    pub(crate) fn roster(&self) -> Vec<ClientStatus> {
        let clients: Vec<Arc<Client>> = self.clients().values().cloned().collect();
        let sessions = clients.iter().filter(|client| client.presence().is_some()).map(|client| of_session(client));
        let mut all: Vec<ClientStatus> = sessions.collect();
        all.extend(self.0.roster.seen().values().map(of_seen));
        all.sort_by(|a, b| b.since_ms.cmp(&a.since_ms).then_with(|| a.name.cmp(&b.name)));
        all
    }

    /// Clients that come and go, from now on.
    #[must_use]
    pub(crate) fn client_events(&self) -> broadcast::Receiver<ClientEvent> {
        self.0.roster.events.subscribe()
    }

    fn tell_of(&self, change: ClientChange, client: ClientStatus) {
        let roster = &self.0.roster;
        // At the end of the host everybody leaves, which is no news.
        if roster.events.receiver_count() == 0 || self.0.closing.is_cancelled() {
            return;
        }
        let clients = roster.sessions.load(Ordering::Relaxed) + roster.seen().len();
        // Nobody listening is fine.
        let _ = roster.events.send(ClientEvent { change, client, clients, at: SystemTime::now() });
    }
}

/// What counts as a call.
fn is_call(method: &Method) -> bool {
    matches!(method, Method::ToolsCall | Method::ResourcesRead | Method::PromptsGet)
}

fn of_session(client: &Client) -> ClientStatus {
    let presence = client.presence();
    let age = presence.map(|presence| milliseconds(presence.since.elapsed())).unwrap_or_default();
    let used = presence.map(|presence| presence.used.load(Ordering::Relaxed)).unwrap_or_default();
    ClientStatus {
        name: client.name().unwrap_or_default().to_owned(),
        version: client.version().map(str::to_owned),
        revision: client.revision().to_string(),
        transport: presence.map_or(Via::Stdio, |presence| presence.via).as_str(),
        user: user(client.principal()),
        since_ms: age,
        idle_ms: age.saturating_sub(used),
        calls: presence.map(|presence| presence.calls.load(Ordering::Relaxed)).unwrap_or_default(),
    }
}

fn of_seen(seen: &Seen) -> ClientStatus {
    ClientStatus {
        name: seen.name.clone(),
        version: seen.version.clone(),
        revision: ProtocolVersion::LATEST_MODERN.to_string(),
        transport: seen.via.as_str(),
        user: seen.user.clone(),
        since_ms: milliseconds(seen.since.elapsed()),
        idle_ms: milliseconds(seen.used.elapsed()),
        calls: seen.calls,
    }
}

/// Who a client has proved to be: the name that the config gives its token, or the subject of its issuer's.
fn user(principal: &Principal) -> Option<String> {
    if principal.is_local() {
        return None;
    }
    let whole = principal.as_str();
    if let Some(name) = whole.strip_prefix("bearer:") {
        return Some(name.to_owned());
    }
    let parts: Option<[Option<String>; 3]> =
        whole.strip_prefix("oauth:").and_then(|parts| serde_json::from_str(parts).ok());
    let named = parts.and_then(|[_, subject, client]| subject.or(client));
    Some(named.unwrap_or_else(|| whole.to_owned()))
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
