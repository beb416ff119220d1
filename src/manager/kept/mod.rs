//! Server lists kept for the next start, so that the first list need not wait for known servers (`STATE/offers`).
//! Resources are not kept.
//!
//! In: the lists of the host's own leases, and those of other leases before their first call. Out: the same lists at
//! the next start, placed in [`super::last`]. They are written behind and read ahead, both off the runtime's thread.
//!
//! **Invariant:** a file name stands for an entry with its secrets and its login (`name.rs`), so no account sees the
//! lists of another. Each list carries the login that requested it, and is not kept after that login ends. A file is
//! trusted no more than its server (`listing.rs`). A failure to read or write costs a wait and nothing else. Start
//! reading at [`Kept`].

mod folder;
mod listing;
mod name;
mod small;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::last::{KEYS, Listing};
use super::list_key::ListKey;
use super::{Manager, Server, leases, lock};
use crate::config::{Manifest, Transport};
use crate::keep;
use crate::upstream::{Listed, Target, Upstream};
use folder::Folder;
use listing::{Page, Reader};
use name::Identity;

/// The listings that are kept, and those waiting to be written.
#[derive(Debug)]
pub(super) struct Kept {
    folder: Folder,
    /// The upper bound of all files together, in bytes (`host.limits.offers`).
    room: AtomicUsize,
    due: Mutex<BTreeMap<DueKey, Due>>,
    /// Logins that are over: their listings are written no more.
    over: Mutex<BTreeSet<String>>,
    news: Notify,
}

/// Identifies a listing: the server's id, the login, and the key.
type DueKey = (usize, Option<String>, String);

/// A listing to write.
#[derive(Debug)]
struct Due {
    server: Arc<Server>,
    login: Option<String>,
    page: Page,
}

/// What is known about one server's kept listings.
#[derive(Debug, Default)]
pub(super) struct KeptState {
    /// The server's fingerprint, once it was needed. The inner `None` means that none of its lists are kept.
    identity: OnceLock<Option<Identity>>,
    /// Set once reading begins; canceled once it is done.
    read: OnceLock<CancellationToken>,
}

/// How long to collect the lists of several servers before writing them together.
const TOGETHER: Duration = Duration::from_millis(100);
/// How long writing may take when the program ends.
const LAST: Duration = Duration::from_secs(1);
/// How long to wait for a login to be read.
const LOGIN: Duration = Duration::from_secs(10);

/// One server whose listings are to be read.
struct ToRead {
    server: Arc<Server>,
    login: Option<String>,
    identity: Identity,
    reader: Reader,
}

impl Kept {
    fn new(state: &Path, room: usize) -> Self {
        let (folder, room) = (Folder::new(state), AtomicUsize::new(room));
        Self { folder, room, due: Mutex::default(), over: Mutex::default(), news: Notify::new() }
    }

    /// Queues a listing to be written, in place of a queued one with the same key.
    fn put(&self, due: Due) {
        lock(&self.due).insert((due.server.id, due.login.clone(), due.page.key.text()), due);
        self.news.notify_one();
    }

    /// Writes all queued listings.
    async fn flush(self: &Arc<Self>) {
        let due = std::mem::take(&mut *lock(&self.due));
        if due.is_empty() {
            return;
        }
        let kept = self.clone();
        let written = keep::aside(move || {
            kept.folder.write(kept.room.load(Ordering::Relaxed), |names| {
                // A logout waits for the folder's lock, so it also removes what is written here.
                let over = lock(&kept.over);
                let text = |due: &Due| {
                    let login = due.login.as_deref();
                    if login.is_some_and(|login| over.contains(login)) {
                        return None;
                    }
                    let identity = due.server.identity(login)?;
                    Some((names.listing(&identity, login, &due.page.key), listing::write(&due.page)))
                };
                due.values().filter_map(text).collect()
            })
        });
        if let Ok(Err(error)) = written.await {
            tracing::warn!("cannot keep server listings for the next start: {error}");
        }
    }

    /// Removes the listings of a login that is over, and writes no more of them.
    fn forget(&self, login: &str) -> std::io::Result<()> {
        lock(&self.over).insert(login.to_owned());
        self.folder.forget(login)
    }

    /// Writes queued listings until `stop`.
    async fn run(self: Arc<Self>, stop: CancellationToken) {
        while stop.run_until_cancelled(self.news.notified()).await.is_some() {
            let _ = stop.run_until_cancelled(tokio::time::sleep(TOGETHER)).await;
            self.flush().await;
        }
        let _ = tokio::time::timeout(LAST, self.flush()).await;
    }
}

impl KeptState {
    /// Announces that kept listings are about to be read: clients' list requests wait for them.
    fn begin(&self) {
        self.read.get_or_init(CancellationToken::new);
    }

    fn is_read(&self) {
        self.read.get_or_init(CancellationToken::new).cancel();
    }

    /// Waits until the server's kept listings are read.
    pub(super) async fn wait(&self) {
        if let Some(read) = self.read.get() {
            read.cancelled().await;
        }
    }
}

impl Manager {
    /// Keeps listings in the state directory from now on, and with `recall` shows those of earlier runs. Without this
    /// call nothing is kept or shown.
    pub(crate) fn keep_listings(&self, state: &Path, recall: bool) {
        let kept = Arc::new(Kept::new(state, self.settings().limits.offers));
        if self.0.kept.set(kept.clone()).is_err() {
            return;
        }
        self.0.tasks.spawn(kept.run(self.0.stop.clone()));
        if recall {
            self.recall(&self.servers());
        }
    }

    /// Starts reading the kept listings of these servers.
    pub(super) fn recall(&self, servers: &[Arc<Server>]) {
        let Some(kept) = self.0.kept.get().filter(|kept| kept.folder.is_there()).cloned() else { return };
        let (signing_in, plain): (Vec<_>, Vec<_>) =
            servers.iter().filter(|server| server.has_kept()).cloned().partition(|server| server.tokens().is_some());
        for server in plain.iter().chain(&signing_in) {
            // Before any client can list, so that its list request waits.
            server.kept.begin();
        }
        let manager = self.clone();
        let stop = self.0.stop.clone();
        self.0.tasks.spawn(async move {
            let all = async {
                manager.read_listings(&kept, plain).await;
                let logins = signing_in.into_iter().map(|server| {
                    let (manager, kept) = (&manager, &kept);
                    async move {
                        if let Some(tokens) = server.tokens() {
                            let _ = tokio::time::timeout(LOGIN, tokens.login_id()).await;
                        }
                        manager.read_listings(kept, vec![server]).await;
                    }
                });
                futures_util::future::join_all(logins).await;
            };
            stop.run_until_cancelled(all).await;
        });
    }

    async fn read_listings(&self, kept: &Arc<Kept>, servers: Vec<Arc<Server>>) {
        let folder = kept.folder.clone();
        let (settings, host) = (self.settings(), self.host_id().cloned());
        let to_read = servers.clone();
        let read = keep::aside(move || {
            let Some(names) = folder.names() else { return };
            let listings = folder.listings();
            for server in to_read {
                let reader = Reader {
                    caps: leases::caps(&settings, server.config.prefix),
                    is_remote: !matches!(server.config.transport, Transport::Stdio(_)),
                    host: host.clone(),
                };
                let login = server.login();
                let Some(identity) = server.identity(login.as_deref()) else { continue };
                let one = ToRead { server, login, identity, reader };
                one.read(&folder, &names, &listings);
            }
        });
        if read.await.is_err() {
            tracing::warn!("cannot read the server listings of earlier runs");
        }
        servers.iter().for_each(|server| server.kept.is_read());
        self.touch();
    }

    /// Keeps the lists of a lease for the next start, if that is allowed. The lists of a private lease are kept as they
    /// were before its first call: after that they may depend on the client.
    pub(super) fn keep_listing(
        &self,
        server: &Arc<Server>,
        upstream: &Upstream,
        key: &ListKey,
        listing: &Listing,
        listed: &Listed,
    ) {
        let (Some(kept), Some(connection)) = (self.0.kept.get(), upstream.connection()) else { return };
        let Some(revision) = connection.peer().map(|peer| peer.version) else { return };
        let may = key.is_kept() && (*key == ListKey::Rest || listed.untouched);
        if may && server.has_kept() && listing::is_whole(&listing.offer) {
            let page = Page { key: key.clone(), revision, listing: listing.clone() };
            kept.room.store(self.settings().limits.offers, Ordering::Relaxed);
            kept.put(Due { server: server.clone(), login: listed.login.clone(), page });
        }
    }

    /// Forgets the lists of a login that is over.
    pub(crate) async fn forget_listings(&self, server: &str, login: &str) {
        let servers = self.servers();
        let Some(server) = servers.iter().find(|other| other.config.name == server).cloned() else { return };
        server.last_offers.clear();
        self.forget_kept(&server, login.to_owned()).await;
        self.touch();
    }

    /// Removes the kept files of a login, but not what is in memory.
    async fn forget_kept(&self, server: &Server, login: String) {
        if let Some(kept) = self.0.kept.get().cloned() {
            let forgotten = keep::aside(move || kept.forget(&login)).await;
            if let Ok(Err(error)) = forgotten {
                tracing::warn!(server = &*server.label, "cannot delete its kept listings: {error}");
            }
        }
    }

    /// Notes the login that a server now lists to; lists that it gave another login are forgotten.
    pub(super) fn listed_to(&self, server: &Arc<Server>, login: &Option<String>) {
        if let Some(before) = server.last_offers.listed_to(login) {
            let (manager, server) = (self.clone(), server.clone());
            self.0.tasks.spawn(async move { manager.forget_kept(&server, before).await });
        }
    }

    /// Spawns `forget_listings` when a login is over, whoever ended it.
    pub(super) fn forget_login(&self, server: &Server, login: String) {
        let (manager, name) = (self.clone(), server.config.name.clone());
        self.0.tasks.spawn(async move { manager.forget_listings(&name, &login).await });
    }
}

impl ToRead {
    /// Reads the listings of a server. An unreadable listing counts as missing.
    fn read(&self, folder: &Folder, names: &name::Names, listings: &BTreeMap<String, Vec<String>>) {
        let Some(files) = listings.get(&names.server(&self.identity)) else { return };
        let login = self.login.as_deref();
        let mut all: Vec<(ListKey, Listing)> = Vec::new();
        for file in files {
            let Ok(text) = folder.read(file, listing::cap(&self.reader)) else { continue };
            let Some((key, listing)) = listing::read(text, &self.reader) else {
                tracing::debug!(server = &*self.server.label, "a kept listing is broken or of another version");
                continue;
            };
            // The name was derived from the key: renaming a file does not give its listing to another account.
            let Some(key) = ListKey::parse(&key).filter(|key| names.listing(&self.identity, login, key) == **file)
            else {
                continue;
            };
            if all.len() >= KEYS && key != ListKey::Rest {
                continue;
            }
            // Most keys of a server have the same lists.
            let same = all.iter().find(|(_, other)| other.offer.hash() == listing.offer.hash());
            let offer = same.map_or(listing.offer, |(_, other)| other.offer.clone());
            all.push((key, Listing { offer, ..listing }));
        }
        if all.is_empty() || self.server.login() != self.login {
            // Another user has signed in meanwhile.
            return;
        }
        self.server.last_offers.listed_to(&self.login);
        for (key, listing) in all {
            self.server.last_offers.recall(&key, listing);
        }
    }
}

impl Server {
    /// Reports whether this server's lists may be kept.
    fn has_kept(&self) -> bool {
        let has_identity = !matches!(self.target, None | Some(Target::Memory(_)));
        has_identity && self.config.manifest == Manifest::On
    }

    /// Returns the id of the login that its requests carry now.
    pub(super) fn login(&self) -> Option<String> {
        self.tokens()?.login_id_now()
    }

    /// Reports whether the other server must list the same: it is reached in the same way, with the same secrets and
    /// roots.
    pub(super) fn lists_as(&self, other: &Self) -> bool {
        let (own, other) = (&self.config, &other.config);
        let is_same_way = (own.sharing, own.era) == (other.sharing, other.era);
        is_same_way && own.transport == other.transport && own.roots == other.roots
    }

    /// Returns a fingerprint of the config entry and one of its logins; `None` if its lists are not kept. Blocks,
    /// because it looks at files.
    fn identity(&self, login: Option<&str>) -> Option<Identity> {
        let own = *self.kept.identity.get_or_init(|| name::identity(&self.config));
        Some(name::signed_in(&own?, login))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::config::{self, Remote};
    use crate::protocol::{ProtocolVersion, Raw};
    use crate::registry::{Caps, Kind, OfferBuilder, ParamHeaders};

    fn server(name: &str) -> Arc<Server> {
        let remote = Remote::new(format!("https://{name}.example/mcp").parse().unwrap());
        let entry = config::Server::new("it", Transport::Http(remote)).unwrap();
        let known = Arc::new(crate::manager::Known::load(None));
        Arc::new(Server::new(entry, None, &Default::default(), &known, &Default::default(), &Default::default()))
    }

    fn due(server: &Arc<Server>, login: &str) -> Due {
        let mut builder = OfferBuilder::new(Caps::default(), ParamHeaders::Ignore);
        let tools = Raw::trusted(r#"{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}"#.into());
        builder.page(Kind::Tools, &tools).unwrap();
        let listing = Listing { offer: Arc::new(builder.finish()), instructions: None };
        let page = Page { key: ListKey::Rest, revision: ProtocolVersion::LATEST_HANDSHAKE, listing };
        Due { server: server.clone(), login: Some(login.to_owned()), page }
    }

    /// A queued write may run after its login is over, in any order.
    #[tokio::test]
    async fn nothing_is_kept_of_a_login_that_is_over() {
        let state = tempfile::tempdir().unwrap();
        let kept = Arc::new(Kept::new(state.path(), 1 << 20));
        let (server, changed) = (server("one"), server("two"));
        let count = || kept.folder.listings().values().map(Vec::len).sum::<usize>();
        for (server, login) in [(&server, "one"), (&server, "two"), (&changed, "one")] {
            kept.put(due(server, login));
        }
        kept.flush().await;
        assert_eq!(count(), 3, "each login has its own");
        kept.put(due(&server, "one"));
        let forgets = kept.clone();
        keep::done(move || forgets.forget("one")).await.unwrap();
        assert_eq!(count(), 1, "whatever the entry was when it was listed");
        kept.flush().await;
        kept.put(due(&server, "one"));
        kept.flush().await;
        assert_eq!(count(), 1);
        let names = kept.folder.names().unwrap();
        let left = kept.folder.listings().into_keys().collect::<Vec<_>>();
        assert_eq!(left, [names.server(&server.identity(Some("two")).unwrap())]);
    }
}
