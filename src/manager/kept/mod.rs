//! What servers listed, kept for the next start, so that a first list waits for no server that was ever there
//! (`STATE/offers`).
//!
//! In: what leases of the host list, and what others list before their first call. Out: at the next start the same, put in
//! [`super::last`]. Written behind and read ahead, both off the runtime's thread. **Invariant:** a name stands for an entry
//! with its secrets and its login (`name.rs`), so no account is shown what another one listed; and a file is no authority
//! (`listing.rs`). What cannot be read or written costs a wait and nothing else. Start reading at [`Kept`].

mod folder;
mod key;
mod listing;
mod name;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::last::Listing;
use super::{Manager, Server, leases};
use crate::config::{Manifest, Transport};
use crate::upstream::{Target, Upstream};
use folder::Folder;
pub(super) use key::ListKey;
use listing::{Page, Reader};
use name::Identity;

/// The listings that are kept, and those that are about to be.
#[derive(Debug)]
pub(super) struct Kept {
    folder: Folder,
    due: Mutex<BTreeMap<(Identity, String), Page>>,
    news: Notify,
}

/// What a server needs to know of its own listings.
#[derive(Debug, Default)]
pub(super) struct Place {
    /// `None` inside: nothing is kept of it.
    identity: OnceLock<Option<Identity>>,
    /// They are being read, or were.
    read: OnceLock<CancellationToken>,
}

/// Lists of many servers that come at once are written together.
const TOGETHER: Duration = Duration::from_millis(100);
/// At the end of the program, writing may take no longer.
const LAST: Duration = Duration::from_secs(1);
/// How long a login may take to be read.
const LOGIN: Duration = Duration::from_secs(10);

/// One server whose listings are to be read.
struct Wanted {
    server: Arc<Server>,
    identity: Identity,
    reader: Reader,
}

impl Kept {
    fn new(state: &Path) -> Self {
        Self { folder: Folder::new(state), due: Mutex::default(), news: Notify::new() }
    }

    fn due(&self) -> MutexGuard<'_, BTreeMap<(Identity, String), Page>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a listing to be written; of several of one key the last.
    fn put(&self, identity: Identity, page: Page) {
        self.due().insert((identity, page.key.text()), page);
        self.news.notify_one();
    }

    /// Writes what is due.
    async fn flush(self: &Arc<Self>) {
        let due = std::mem::take(&mut *self.due());
        if due.is_empty() {
            return;
        }
        let folder = self.folder.clone();
        let written = tokio::task::spawn_blocking(move || {
            folder.write(|names| {
                let text = |((identity, _), page): (&(Identity, String), &Page)| {
                    (names.listing(identity, &page.key), listing::write(page))
                };
                due.iter().map(text).collect()
            })
        });
        if let Ok(Err(error)) = written.await {
            tracing::warn!("what servers list is not kept for the next start: {error}");
        }
    }

    /// Writes behind, until `stop`.
    async fn run(self: Arc<Self>, stop: CancellationToken) {
        while stop.run_until_cancelled(self.news.notified()).await.is_some() {
            let _ = stop.run_until_cancelled(tokio::time::sleep(TOGETHER)).await;
            self.flush().await;
        }
        let _ = tokio::time::timeout(LAST, self.flush()).await;
    }
}

impl Place {
    /// Something is about to be read: a list waits for it.
    fn begin(&self) {
        self.read.get_or_init(CancellationToken::new);
    }

    fn is_read(&self) {
        self.read.get_or_init(CancellationToken::new).cancel();
    }

    /// Waits until what was kept of the server is read.
    pub(super) async fn wait(&self) {
        if let Some(read) = self.read.get() {
            read.cancelled().await;
        }
    }
}

impl Manager {
    /// Keeps listings in the state directory from now on, and shows those of earlier starts if it is to. Without this nothing
    /// is kept, and nothing shown.
    pub(crate) fn keep_listings(&self, state: &Path, recall: bool) {
        let kept = Arc::new(Kept::new(state));
        if self.0.kept.set(kept.clone()).is_err() {
            return;
        }
        self.0.tasks.spawn(kept.run(self.0.stop.clone()));
        if recall {
            self.recall(&self.servers());
        }
    }

    /// Has what is kept of these servers read.
    pub(super) fn recall(&self, servers: &[Arc<Server>]) {
        let Some(kept) = self.0.kept.get().cloned() else { return };
        let (signing_in, plain): (Vec<_>, Vec<_>) =
            servers.iter().filter(|server| server.has_kept()).cloned().partition(|server| server.tokens().is_some());
        for server in plain.iter().chain(&signing_in) {
            // Before any list asks: it is waited for.
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
        let settings = self.settings();
        let to_read = servers.clone();
        let read = tokio::task::spawn_blocking(move || {
            let Some(names) = folder.names() else { return };
            let listings = folder.listings();
            for server in to_read {
                let reader = Reader {
                    caps: leases::caps(&settings, server.config.prefix),
                    is_remote: !matches!(server.config.transport, Transport::Stdio(_)),
                };
                let Some(identity) = server.identity() else { continue };
                let wanted = Wanted { server, identity, reader };
                wanted.read(&folder, &names, &listings);
            }
        });
        if read.await.is_err() {
            tracing::warn!("what servers listed before could not be read");
        }
        servers.iter().for_each(|server| server.kept.is_read());
        self.touch();
    }

    /// Keeps what a lease lists for the next start, if it may be kept. A listing of a client's own lease is, as it was before
    /// the first call: after that it may be a work of that client.
    pub(super) fn keep_listing(&self, server: &Server, upstream: &Upstream, key: &ListKey, listing: &Listing) {
        let (Some(kept), Some(connection)) = (self.0.kept.get(), upstream.connection()) else { return };
        let Some(revision) = connection.peer().map(|peer| peer.version) else { return };
        let may = key.is_kept() && (*key == ListKey::Rest || !connection.has_served());
        if !may || !server.has_kept() || !listing::is_whole(&listing.offer) {
            return;
        }
        if let Some(identity) = server.identity() {
            kept.put(identity, Page { key: key.clone(), revision, listing: listing.clone() });
        }
    }

    /// Forgets what was listed to that login of a server: it is over.
    pub(crate) async fn forget_listings(&self, server: &str, login: Option<&str>) {
        let servers = self.servers();
        let Some(server) = servers.iter().find(|other| other.config.name == server) else { return };
        server.last_offers.clear();
        let (Some(kept), Some(own)) = (self.0.kept.get().cloned(), server.own_identity()) else { return };
        let identity = name::signed_in(&own, login);
        kept.due().retain(|(of, _), _| *of != identity);
        let forgotten = tokio::task::spawn_blocking(move || kept.folder.forget(|names| names.server(&identity))).await;
        if let Ok(Err(error)) = forgotten {
            tracing::warn!(server = &*server.label, "what it listed is still kept: {error}");
        }
        self.touch();
    }
}

impl Wanted {
    /// Reads the listings of a server. One that nobody can read is as good as none.
    fn read(&self, folder: &Folder, names: &name::Names, listings: &BTreeMap<String, Vec<String>>) {
        let Some(files) = listings.get(&names.server(&self.identity)) else { return };
        let mut all: Vec<(ListKey, Listing)> = Vec::new();
        for file in files {
            let Ok(text) = folder.read(file, listing::cap(&self.reader)) else { continue };
            let Some((key, listing)) = listing::read(text, &self.reader) else {
                tracing::debug!(server = &*self.server.label, "a kept listing is broken or of another version");
                continue;
            };
            // The name was made for its key: nobody gives a listing to others by renaming a file.
            let Some(key) = ListKey::parse(&key).filter(|key| names.listing(&self.identity, key) == **file) else {
                continue;
            };
            // Most keys of a server list the same.
            let same = all.iter().find(|(_, other)| other.offer.hash() == listing.offer.hash());
            let offer = same.map_or(listing.offer, |(_, other)| other.offer.clone());
            all.push((key, Listing { offer, ..listing }));
        }
        for (key, listing) in all {
            self.server.last_offers.recall(&key, listing);
        }
    }
}

impl Server {
    /// Whether anything of it is kept at all.
    fn has_kept(&self) -> bool {
        let has_identity = !matches!(self.target, None | Some(Target::Memory(_)));
        has_identity && self.config.manifest == Manifest::On
    }

    /// Stands for the entry.
    fn own_identity(&self) -> Option<Identity> {
        *self.kept.identity.get_or_init(|| name::identity(&self.config))
    }

    /// Stands for the entry and its login.
    fn identity(&self) -> Option<Identity> {
        let login = self.tokens().and_then(|tokens| tokens.login_id_now());
        Some(name::signed_in(&self.own_identity()?, login.as_deref()))
    }
}
