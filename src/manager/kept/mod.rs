//! What servers listed, kept for the next start, so that a first list waits for no server that was there before
//! (`STATE/offers`). Resources are not kept.
//!
//! In: what leases of the host list, and what others list before their first call. Out: at the next start the same, put
//! in [`super::last`]. It is written behind and read ahead, both off the runtime's thread.
//!
//! **Invariant:** a name stands for an entry with its secrets and its login (`name.rs`), so no account is shown what
//! another one listed; a list knows the login that it was asked by, and none is kept once that login is over. A file is
//! no authority (`listing.rs`). What cannot be read or written costs a wait and nothing else. Start reading at
//! [`Kept`].

mod folder;
mod listing;
mod name;
mod small;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
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

/// The listings that are kept, and those that are about to be.
#[derive(Debug)]
pub(super) struct Kept {
    folder: Folder,
    due: Mutex<BTreeMap<Of, Due>>,
    /// Logins that are over: nothing of theirs is written any more.
    over: Mutex<BTreeSet<String>>,
    news: Notify,
}

/// Whose listing it is: the server, its login, and the key.
type Of = (usize, Option<String>, String);

/// A listing that is to be written.
#[derive(Debug)]
struct Due {
    server: Arc<Server>,
    login: Option<String>,
    page: Page,
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
    login: Option<String>,
    identity: Identity,
    reader: Reader,
}

impl Kept {
    fn new(state: &Path) -> Self {
        Self { folder: Folder::new(state), due: Mutex::default(), over: Mutex::default(), news: Notify::new() }
    }

    /// Takes a listing to be written; of several of one key the last.
    fn put(&self, due: Due) {
        lock(&self.due).insert((due.server.id, due.login.clone(), due.page.key.text()), due);
        self.news.notify_one();
    }

    /// Writes what is due.
    async fn flush(self: &Arc<Self>) {
        let due = std::mem::take(&mut *lock(&self.due));
        if due.is_empty() {
            return;
        }
        let kept = self.clone();
        let written = keep::aside(move || {
            kept.folder.write(|names| {
                // Who signs out waits for the lock of the folder: what is written here is there to be removed.
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
            tracing::warn!("what servers list is not kept for the next start: {error}");
        }
    }

    /// Removes what is kept of a login that is over, and keeps nothing more of it.
    fn forget(&self, login: &str) -> std::io::Result<()> {
        lock(&self.over).insert(login.to_owned());
        self.folder.forget(login)
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
                let wanted = Wanted { server, login, identity, reader };
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
            kept.put(Due { server: server.clone(), login: listed.login.clone(), page });
        }
    }

    /// Forgets what was listed to that login of a server: it is over.
    pub(crate) async fn forget_listings(&self, server: &str, login: &str) {
        let servers = self.servers();
        let Some(server) = servers.iter().find(|other| other.config.name == server).cloned() else { return };
        server.last_offers.clear();
        self.forget_kept(&server, login.to_owned()).await;
        self.touch();
    }

    /// The same of what is kept alone.
    async fn forget_kept(&self, server: &Server, login: String) {
        if let Some(kept) = self.0.kept.get().cloned() {
            let forgotten = keep::aside(move || kept.forget(&login)).await;
            if let Ok(Err(error)) = forgotten {
                tracing::warn!(server = &*server.label, "what it listed is still kept: {error}");
            }
        }
    }

    /// What a server lists is listed to that login from now on: what another one was shown is over.
    pub(super) fn listed_to(&self, server: &Arc<Server>, login: &Option<String>) {
        if let Some(before) = server.last_offers.listed_to(login) {
            let (manager, server) = (self.clone(), server.clone());
            self.0.tasks.spawn(async move { manager.forget_kept(&server, before).await });
        }
    }

    /// The same behind the news that a login is over, whoever ended it.
    pub(super) fn forget_login(&self, server: &Server, login: String) {
        let (manager, name) = (self.clone(), server.config.name.clone());
        self.0.tasks.spawn(async move { manager.forget_listings(&name, &login).await });
    }
}

impl Wanted {
    /// Reads the listings of a server. One that nobody can read is as good as none.
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
            // The name was made for its key: nobody gives a listing to others by renaming a file.
            let Some(key) = ListKey::parse(&key).filter(|key| names.listing(&self.identity, login, key) == **file)
            else {
                continue;
            };
            if all.len() >= KEYS && key != ListKey::Rest {
                continue;
            }
            // Most keys of a server list the same.
            let same = all.iter().find(|(_, other)| other.offer.hash() == listing.offer.hash());
            let offer = same.map_or(listing.offer, |(_, other)| other.offer.clone());
            all.push((key, Listing { offer, ..listing }));
        }
        if all.is_empty() || self.server.login() != self.login {
            // Somebody else has signed in meanwhile.
            return;
        }
        self.server.last_offers.listed_to(&self.login);
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

    /// Stands for the login that its requests carry now.
    pub(super) fn login(&self) -> Option<String> {
        self.tokens()?.login_id_now()
    }

    /// Whether the other entry has a server list the same: it is reached in the same way, with the same secrets and roots.
    pub(super) fn lists_as(&self, other: &Self) -> bool {
        let (own, other) = (&self.config, &other.config);
        let is_same_way = (own.sharing, own.era) == (other.sharing, other.era);
        is_same_way && own.transport == other.transport && own.roots == other.roots
    }

    /// Stands for the entry and a login of it. Looks at files: it runs where blocking is fine.
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
    use crate::exposed::UriMode;
    use crate::protocol::{ProtocolVersion, Raw};
    use crate::registry::{Caps, Kind, OfferBuilder, ParamHeaders};

    fn server(name: &str) -> Arc<Server> {
        let remote = Remote::new(format!("https://{name}.example/mcp").parse().unwrap());
        let entry = config::Server::new("it", Transport::Http(remote)).unwrap();
        let known = Arc::new(crate::manager::Known::load(None));
        Arc::new(Server::new(entry, None, UriMode::Passthrough, &known, &Default::default()))
    }

    fn due(server: &Arc<Server>, login: &str) -> Due {
        let mut builder = OfferBuilder::new(Caps::default(), ParamHeaders::Ignore);
        let tools = Raw::trusted(r#"{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}"#.into());
        builder.page(Kind::Tools, &tools).unwrap();
        let listing = Listing { offer: Arc::new(builder.finish()), instructions: None };
        let page = Page { key: ListKey::Rest, revision: ProtocolVersion::LATEST_HANDSHAKE, listing };
        Due { server: server.clone(), login: Some(login.to_owned()), page }
    }

    /// What is written behind may be written after the login of it is over, in whatever order.
    #[tokio::test]
    async fn nothing_is_kept_of_a_login_that_is_over() {
        let state = tempfile::tempdir().unwrap();
        let kept = Arc::new(Kept::new(state.path()));
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
