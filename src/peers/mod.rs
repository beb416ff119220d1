//! The other replicas of a cluster (`host.cluster`): where they are, which of them answer, and the channel to each.
//!
//! In: the config, and requests for another replica. Out: its answers. A replica is one life of a process, named by its
//! [`Boot`]. `members.rs` follows where the replicas are, `link.rs` is the channel to one of them, and `identity.rs` is what
//! both ends prove.
//!
//! **Invariant:** nothing is sent to a process that does not prove a key of the cluster, and nothing is taken from one.
//! Start reading at [`Peers::find`].

mod identity;
mod link;
mod members;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use http_body_util::combinators::UnsyncBoxBody;
use sha2::{Digest as _, Sha256};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

pub(crate) use self::identity::ALPN;
use self::identity::Identity;
pub(crate) use self::link::{CONNECTION_WINDOW, Hello, Link, STREAM_WINDOW, SendFailed};
use self::members::Place;
use crate::boot::Boot;
use crate::config::Cluster;
use crate::lock::lock;

/// The body of a request to another replica.
pub(crate) type Sending = UnsyncBoxBody<bytes::Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// The path at which a replica says who it is.
pub(crate) const HELLO: &str = "/hello";

/// The other replicas.
pub(crate) struct Peers {
    cluster: Cluster,
    identity: Identity,
    /// What this replica says of itself.
    own: Hello,
    places: Mutex<BTreeMap<SocketAddr, Arc<Place>>>,
    /// The names that have no address at present, and why.
    unknown: Mutex<BTreeMap<String, String>>,
    /// Whether this replica stops: it takes up no session any more.
    is_leaving: AtomicBool,
    /// Asks for a look at the names.
    look: Notify,
    /// How often the names were looked up.
    looks: watch::Sender<u64>,
    /// When all places were last tried on behalf of a request. Held while they are.
    tried: tokio::sync::Mutex<Option<Instant>>,
}

/// A replica, as `status` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Its address, or a name that has none.
    pub(crate) address: String,
    pub(crate) boot: Option<Boot>,
    /// Why it does not answer; `None` if it does.
    pub(crate) why: Option<String>,
    /// Whether it serves other servers, or by other rules.
    pub(crate) differs: bool,
    /// Whether it stops.
    pub(crate) leaves: bool,
}

impl std::fmt::Debug for Peers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Peers").field("own", &self.own).finish_non_exhaustive()
    }
}

impl Peers {
    /// Makes ready to find the others. `config` is a digest of the servers and rules, by which replicas see that they serve
    /// the same.
    ///
    /// # Errors
    /// With one sentence, if TLS cannot be set up with these keys.
    pub(crate) fn new(boot: Boot, cluster: &Cluster, config: String) -> Result<Self, String> {
        let identity = Identity::new(cluster)?;
        let own =
            Hello { boot, version: env!("CARGO_PKG_VERSION").to_owned(), config, address: cluster.address.clone() };
        Ok(Self {
            cluster: cluster.clone(),
            identity,
            own,
            places: Mutex::default(),
            unknown: Mutex::default(),
            is_leaving: AtomicBool::new(false),
            look: Notify::new(),
            looks: watch::Sender::default(),
            tried: tokio::sync::Mutex::default(),
        })
    }

    /// Returns this replica.
    pub(crate) fn boot(&self) -> Boot {
        self.own.boot
    }

    /// Returns what this replica says of itself.
    pub(crate) fn hello(&self) -> &Hello {
        &self.own
    }

    /// Returns what the peer channel listens with: it lets in who proves a key of the cluster.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.identity.acceptor()
    }

    /// Records that this replica stops.
    pub(crate) fn leave(&self) {
        self.is_leaving.store(true, Ordering::Release);
    }

    /// Returns the channel to this replica. If there is none, looks once more where the replicas are.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(crate) async fn find(&self, boot: Boot) -> Option<Link> {
        if let Some(link) = self.linked(boot) {
            return Some(link);
        }
        self.try_all().await;
        self.linked(boot)
    }

    /// Chooses the replica that takes up what a dead one had: all that see the same replicas choose the same. `None` means
    /// this one.
    pub(crate) fn heir(&self, of: &[u8]) -> Option<Link> {
        let links = self.links().into_iter().filter(|link| !link.leaves());
        let others = links.map(|link| (weight(of, link.boot()), Some(link)));
        let own = (!self.is_leaving.load(Ordering::Acquire)).then(|| (weight(of, self.boot()), None));
        others.chain(own).max_by_key(|(weight, _)| *weight).and_then(|(_, link)| link)
    }

    /// Returns all other replicas, for people.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        let unknown = lock(&self.unknown).clone();
        let unknown = unknown.into_iter().map(|(name, why)| Seen {
            address: name,
            boot: None,
            why: Some(why),
            differs: false,
            leaves: false,
        });
        let places: Vec<Arc<Place>> = lock(&self.places).values().cloned().collect();
        places.iter().filter_map(|place| place.seen(&self.own)).chain(unknown).collect()
    }

    fn linked(&self, boot: Boot) -> Option<Link> {
        self.links().into_iter().find(|link| link.boot() == boot)
    }

    /// Returns the channels to the replicas that answer, one to each.
    fn links(&self) -> Vec<Link> {
        let mut links: Vec<Link> = lock(&self.places).values().filter_map(|place| place.link()).collect();
        links.sort_by_key(Link::boot);
        links.dedup_by_key(|link| link.boot());
        links
    }
}

/// Returns how much a replica wants something: whoever wants it most gets it, and only what a lost replica had moves.
fn weight(of: &[u8], boot: Boot) -> [u8; 8] {
    let hash = Sha256::new().chain_update(of).chain_update(boot.0).finalize();
    hash.first_chunk().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests;
