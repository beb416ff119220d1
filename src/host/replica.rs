//! Opens the peer channel of a host that is one of several (`host.cluster`).

use std::net::TcpListener as StdListener;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use tokio::net::TcpListener;

use super::Host;
use crate::config::HostSettings;
use crate::downstream::http::Channel;
use crate::error::{Error, ErrorKind};
use crate::hex;
use crate::peers::Peers;
use crate::router::home;

/// How many bytes the digest of a config has.
const DIGEST: usize = 8;

/// Listens for the other replicas; `None` if the host serves alone.
///
/// # Errors
/// When the address cannot be listened at, or TLS cannot be set up with the keys.
pub(super) fn channel(host: &Host, settings: &HostSettings) -> Result<Option<Channel>, Error> {
    let Some(cluster) = &settings.cluster else { return Ok(None) };
    let wrong = |why: String| Error::new(ErrorKind::Config, format!("host.cluster: {why}"));
    let peers = Peers::new(home::boot(&host.0.router), cluster, digest(host, settings)).map_err(wrong)?;
    let listening = StdListener::bind(cluster.listen).and_then(|listener| {
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    });
    let listener = listening.map_err(|error| {
        wrong(format!("cannot listen at {} for other replicas (host.cluster.listen): {error}", cluster.listen))
    })?;
    Ok(Some(Channel { peers: Arc::new(peers), listener: Arc::new(listener) }))
}

/// Returns a digest of the servers and rules. Replicas compare it, so that people learn of one that serves something else.
fn digest(host: &Host, settings: &HostSettings) -> String {
    let mut hash = Sha256::new();
    for server in host.0.manager.servers().iter() {
        hash.update(server.config.alias.as_str());
        hash.update([0]);
        // Without an entry, an embedding program has made the server.
        hash.update(format!("{:?}", server.config.entry));
    }
    hash.update(format!("{:?} {:?} {:?} {:?}", settings.policy, settings.views, settings.merge, settings.auth));
    hex::encode(hash.finalize().get(..DIGEST).unwrap_or_default())
}
