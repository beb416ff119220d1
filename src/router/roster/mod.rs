//! The clients as people are shown them: those with a session, and those without one that sent a request lately.
//!
//! A client's name and version are its own claims: both are shown, and never trusted. A client without a session never
//! disconnects, so it counts until it has been silent for a while. **Invariant:** the table is bounded, whatever names
//! clients make up, and a request from a known client costs one lookup.

mod news;

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use news::Listeners;
pub use news::{ClientChange, ClientEvent, ClientEvents, ClientNews};

use super::Principal;
use super::client::Client;
use super::presence::{Sender, Via};
use crate::protocol::{Method, ProtocolVersion, Raw};

/// One client, as people are shown it.
///
/// ```
/// # fn show(host: &mcp_host::Host) {
/// for client in host.clients() {
///     println!("{} over {}: {} calls", client.name, client.transport, client.calls);
/// }
/// # }
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[non_exhaustive]
pub struct ClientStatus {
    /// The name that it gave for itself; empty if it gave none.
    pub name: String,
    /// The version that it gave for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The protocol revision that it speaks.
    pub revision: String,
    /// `http`, `sse`, `stdio`, or `console` for the page.
    #[serde(deserialize_with = "transport")]
    pub transport: Word,
    /// The authenticated user; `None` for the local user of this machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Milliseconds since it connected, or since its first request.
    pub since_ms: u64,
    /// Milliseconds since its last request.
    pub idle_ms: u64,
    /// The number of tools called, resources read, and prompts fetched.
    pub calls: u64,
}

/// One of a few fixed words. This is a type alias, because `serde` would borrow a plain `&str` from the input.
type Word = &'static str;

/// Reads the name of a transport. A name that this version does not know becomes empty.
fn transport<'de, D: Deserializer<'de>>(from: D) -> Result<Word, D::Error> {
    let name = Cow::<'de, str>::deserialize(from)?;
    Ok(Via::ALL.map(Via::as_str).into_iter().find(|known| *known == name).unwrap_or_default())
}

/// A client without a session.
#[derive(Debug)]
struct SeenClient {
    name: Arc<str>,
    version: Option<String>,
    user: Option<String>,
    via: Via,
    since: Instant,
    used: Instant,
    calls: u64,
}

/// The table of the clients that people are shown.
#[derive(Debug)]
pub(crate) struct Roster {
    /// The number of clients with a session.
    sessions: AtomicUsize,
    /// Clients without a session, by a hash of their principal, transport, and `clientInfo`.
    seen: Mutex<HashMap<u64, SeenClient>>,
    hash: RandomState,
    listeners: Listeners,
    /// The moment from which the times of sessions are counted.
    begun: Instant,
    /// Cancelled when the host ends. All clients leave then, and listeners are not told of that.
    closing: CancellationToken,
}

/// How long a client without a session may be silent before it counts as gone.
const SILENT: Duration = Duration::from_secs(5 * 60);
/// The most clients without a session in the table. For one more, the client that has been silent longest is forgotten.
const MOST: usize = 256;
/// How many characters of a name or version are kept.
const NAME: usize = 200;
/// How many bytes of `clientInfo` are compared to distinguish one client from another.
const TOLD_APART: usize = 2048;

impl Roster {
    pub(super) fn new(closing: CancellationToken) -> Self {
        Self {
            sessions: AtomicUsize::new(0),
            seen: Mutex::default(),
            hash: RandomState::new(),
            listeners: Listeners::default(),
            begun: Instant::now(),
            closing,
        }
    }

    fn table(&self) -> MutexGuard<'_, HashMap<u64, SeenClient>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the milliseconds since the roster was made.
    fn now(&self) -> u64 {
        milliseconds(self.begun.elapsed())
    }

    fn of_session(&self, client: &Client) -> ClientStatus {
        let presence = client.presence();
        let now = self.now();
        let (came, via) = presence.came().unwrap_or((now, Via::Stdio));
        let age = now.saturating_sub(came);
        let (name, version) = client.named();
        ClientStatus {
            name: name.unwrap_or_default().to_owned(),
            version: version.map(str::to_owned),
            revision: client.revision().to_string(),
            transport: via.as_str(),
            user: user(client.principal()),
            since_ms: age,
            idle_ms: age.saturating_sub(presence.used.load(Ordering::Relaxed).into()),
            calls: presence.calls.load(Ordering::Relaxed).into(),
        }
    }

    /// Shows a client that opened a session, until the session is closed.
    pub(crate) fn welcome(&self, client: &Client, via: Via) {
        if client.presence().begin(self.now(), via) {
            self.sessions.fetch_add(1, Ordering::Relaxed);
            self.tell_of(ClientChange::Connected, || self.of_session(client));
        }
    }

    /// Records a request in a session.
    pub(super) fn note(&self, client: &Client, method: &Method, now: Instant) {
        let presence = client.presence();
        if let Some((came, _)) = presence.came() {
            let used = milliseconds(now.saturating_duration_since(self.begun)).saturating_sub(came);
            presence.used.store(u32::try_from(used).unwrap_or(u32::MAX), Ordering::Relaxed);
            if is_call(method) {
                let more = |calls: u32| calls.checked_add(1);
                let _ = presence.calls.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
            }
        }
    }

    /// Records that the session of a client is over.
    pub(super) fn farewell(&self, client: &Client) {
        if client.presence().came().is_some() {
            self.sessions.fetch_sub(1, Ordering::Relaxed);
            self.tell_of(ClientChange::Left, || self.of_session(client));
        }
    }

    /// Returns the door of a client's session, and for how long the session has lasted; `None` if there is none.
    #[cfg(feature = "otel")]
    pub(super) fn stay(&self, client: &Client) -> Option<(&'static str, Duration)> {
        let (came, via) = client.presence().came()?;
        Some((via.as_str(), Duration::from_millis(self.now().saturating_sub(came))))
    }

    /// Records a request without a session, and returns its sender. `info` is the sender's `clientInfo`.
    pub(crate) fn seen(&self, principal: &Principal, info: Option<&Raw>, method: &Method, via: Via) -> Sender {
        let sender = |name: &Arc<str>| Sender { name: Some(name.clone()).filter(|name| !name.is_empty()), via };
        // Clients that go on to open a session may send `server/discover` first, so it makes no client known.
        if *method == Method::Discover {
            return Sender { name: None, via };
        }
        let told = info.map_or(&[][..], |info| &info.as_bytes()[..info.as_bytes().len().min(TOLD_APART)]);
        let key = self.hash.hash_one((principal, told, via));
        let (now, calls) = (Instant::now(), u64::from(is_call(method)));
        let mut seen = self.table();
        if let Some(known) = seen.get_mut(&key) {
            known.used = now;
            known.calls += calls;
            return sender(&known.name);
        }
        let full = seen.len() >= MOST;
        let longest = full.then(|| seen.iter().min_by_key(|(_, seen)| seen.used).map(|(key, _)| *key)).flatten();
        let forgotten = longest.and_then(|key| seen.remove(&key));
        let [name, version] = info.map_or([None, None], |info| info.members(["name", "version"]));
        let short = |member: &Raw| Some(member.string()?.chars().take(NAME).collect::<String>());
        let client = SeenClient {
            name: name.as_ref().and_then(short).unwrap_or_default().into(),
            version: version.as_ref().and_then(short),
            user: user(principal),
            via,
            since: now,
            used: now,
            calls,
        };
        let (status, sender) = (of_seen(&client), sender(&client.name));
        seen.insert(key, client);
        drop(seen);
        if let Some(forgotten) = forgotten {
            self.tell_of(ClientChange::Left, || of_seen(&forgotten));
        }
        self.tell_of(ClientChange::Connected, || status.clone());
        sender
    }

    /// Forgets clients without a session that have been silent for [`SILENT`], or for `idle` if that is shorter.
    pub(super) fn forget_unseen(&self, idle: Duration) {
        let mut gone = Vec::new();
        self.table().retain(|_, seen| {
            let stays = seen.used.elapsed() < idle.min(SILENT);
            if !stays {
                gone.push(of_seen(seen));
            }
            stays
        });
        for client in gone {
            self.tell_of(ClientChange::Left, || client.clone());
        }
    }

    /// Lists those of `clients` that opened a session, and the known ones without a session, oldest first. The program
    /// that embeds the host is not listed.
    pub(super) fn list(&self, clients: &[Arc<Client>]) -> Vec<ClientStatus> {
        let shown = clients.iter().filter(|client| client.presence().came().is_some());
        let mut all: Vec<ClientStatus> = shown.map(|client| self.of_session(client)).collect();
        all.extend(self.table().values().map(of_seen));
        all.sort_by(|a, b| b.since_ms.cmp(&a.since_ms).then_with(|| a.name.cmp(&b.name)));
        all
    }

    /// Returns a stream of the clients that connect and leave from now on.
    #[must_use]
    pub(crate) fn events(&self) -> ClientEvents {
        self.listeners.listen()
    }

    fn tell_of(&self, change: ClientChange, client: impl Fn() -> ClientStatus) {
        if !self.closing.is_cancelled() {
            let clients = || self.sessions.load(Ordering::Relaxed) + self.table().len();
            self.listeners.tell(change, clients, client);
        }
    }
}

/// Reports whether a request counts in [`ClientStatus::calls`].
fn is_call(method: &Method) -> bool {
    matches!(method, Method::ToolsCall | Method::ResourcesRead | Method::PromptsGet)
}

fn of_seen(seen: &SeenClient) -> ClientStatus {
    ClientStatus {
        name: seen.name.to_string(),
        version: seen.version.clone(),
        revision: ProtocolVersion::LATEST_MODERN.to_string(),
        transport: seen.via.as_str(),
        user: seen.user.clone(),
        since_ms: milliseconds(seen.since.elapsed()),
        idle_ms: milliseconds(seen.used.elapsed()),
        calls: seen.calls,
    }
}

/// Returns the authenticated user: the name that the config gives to the client's bearer token, or the subject (else
/// the client id) of its OAuth token. Returns `None` for the local user.
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
