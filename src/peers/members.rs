//! Follows where the replicas are: looks their names up, and keeps a channel to each address.
//!
//! An address that answers as this replica itself is left alone. One that is no longer among those of its name is kept for as
//! long as its channel lasts, since a name server may forget a replica that is still there.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::net::lookup_host;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::link::{Hello, Link, Tasks};
use super::{Peers, Seen};
use crate::lock::lock;

/// How often the names are looked up.
const LOOK: Duration = Duration::from_secs(2);
/// How long one name may take.
const NAME: Duration = Duration::from_secs(1);
/// The most addresses that are followed.
const MOST: usize = 256;
/// How long to wait after a failed attempt: the first time, and at most.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(2));
/// How long a request waits until every place was tried.
const PATIENCE: Duration = Duration::from_millis(600);
/// How often places are tried on behalf of requests, at most.
const REST: Duration = Duration::from_secs(1);

/// An address at which a replica may be.
#[derive(Debug)]
pub(super) struct Place {
    address: SocketAddr,
    state: watch::Sender<State>,
    /// Asks for an attempt now.
    wake: Notify,
    /// Whether a name still has the address.
    is_listed: AtomicBool,
    end: CancellationToken,
}

#[derive(Clone, Debug)]
enum State {
    /// This replica itself.
    Own,
    Up(Link),
    /// After this many attempts there is no channel.
    Down {
        why: Arc<str>,
        tries: u64,
    },
}

impl Place {
    fn new(address: SocketAddr, end: CancellationToken) -> Self {
        let state = watch::Sender::new(State::Down { why: "it was not tried yet".into(), tries: 0 });
        Self { address, state, wake: Notify::new(), is_listed: AtomicBool::new(true), end }
    }

    /// Returns the channel, if there is one.
    pub(super) fn link(&self) -> Option<Link> {
        match &*self.state.borrow() {
            State::Up(link) if !link.is_closed() => Some(link.clone()),
            _ => None,
        }
    }

    /// Returns what people see of it; `None` if it is this replica itself.
    pub(super) fn seen(&self, own: &Hello) -> Option<Seen> {
        let seen = |boot, why, differs, leaves| Seen { address: self.address.to_string(), boot, why, differs, leaves };
        match &*self.state.borrow() {
            State::Own => None,
            State::Up(link) => Some(seen(Some(link.boot()), None, link.hello().config != own.config, link.leaves())),
            State::Down { why, .. } => Some(seen(None, Some(why.to_string()), false, false)),
        }
    }

    /// Waits until an attempt that begins from now on has ended. Returns at once if there is a channel.
    async fn tried(&self) {
        let mut states = self.state.subscribe();
        let before = match &*states.borrow_and_update() {
            State::Own => return,
            State::Up(link) if !link.is_closed() => return,
            State::Up(_) => 0,
            State::Down { tries, .. } => *tries,
        };
        self.wake.notify_one();
        // It fails only once the place is gone.
        let _ = states
            .wait_for(|state| match state {
                State::Own => true,
                State::Up(link) => !link.is_closed(),
                State::Down { tries, .. } => *tries > before,
            })
            .await;
    }
}

impl Peers {
    /// Follows the replicas until `stop`.
    pub(crate) async fn follow(self: Arc<Self>, stop: &CancellationToken) {
        let tasks = Tasks { tracker: TaskTracker::new(), stop: stop.clone() };
        loop {
            self.look_up(&tasks).await;
            self.looks.send_modify(|looks| *looks += 1);
            tokio::select! {
                () = stop.cancelled() => break,
                () = self.look.notified() => {}
                () = sleep(LOOK) => {}
            }
        }
        tasks.tracker.close();
        tasks.tracker.wait().await;
    }

    /// Looks up where the replicas are, and tries each place without a channel once. Requests that come within a moment share
    /// one attempt.
    pub(super) async fn try_all(&self) {
        let mut tried = self.tried.lock().await;
        if tried.is_some_and(|at| at.elapsed() < REST) {
            return;
        }
        let all = async {
            let mut looks = self.looks.subscribe();
            self.look.notify_one();
            let _ = looks.changed().await;
            let places: Vec<Arc<Place>> = lock(&self.places).values().cloned().collect();
            futures_util::future::join_all(places.iter().map(|place| place.tried())).await;
        };
        // Whatever takes longer counts as gone.
        let _ = timeout(PATIENCE, all).await;
        *tried = Some(Instant::now());
    }

    /// Looks the names up, and begins to keep a channel to each new address.
    async fn look_up(self: &Arc<Self>, tasks: &Tasks) {
        let mut found = BTreeSet::new();
        let mut is_whole = true;
        for name in self.cluster.peers.names() {
            let why = match timeout(NAME, lookup_host(name.as_str())).await {
                Ok(Ok(addresses)) => {
                    let before = found.len();
                    found.extend(addresses);
                    (found.len() == before && found.is_empty()).then(|| "it has no address".to_owned())
                }
                Ok(Err(error)) => Some(format!("it cannot be looked up: {error}")),
                Err(_) => Some(format!("it cannot be looked up: no answer within {NAME:?}")),
            };
            let mut unknown = lock(&self.unknown);
            match why {
                Some(why) => {
                    is_whole = false;
                    unknown.insert(name.clone(), why);
                }
                None => drop(unknown.remove(name)),
            }
        }
        let mut places = lock(&self.places);
        if is_whole {
            // A name server that fails takes no replica away.
            for place in places.values().filter(|place| !found.contains(&place.address)) {
                place.is_listed.store(false, Ordering::Release);
                if place.link().is_none() {
                    place.end.cancel();
                }
            }
            places.retain(|_, place| !place.end.is_cancelled());
        }
        for address in found {
            if let Some(place) = places.get(&address) {
                place.is_listed.store(true, Ordering::Release);
            } else if places.len() < MOST {
                let place = Arc::new(Place::new(address, tasks.stop.child_token()));
                places.insert(address, Arc::clone(&place));
                let (peers, kept) = (Arc::clone(self), tasks.clone());
                tasks.tracker.spawn(async move {
                    let end = place.end.clone();
                    end.run_until_cancelled(peers.keep(&place, &kept)).await;
                });
            }
        }
    }

    /// Keeps a channel to the replica at one address, until nothing is there and no name has it.
    async fn keep(&self, place: &Place, tasks: &Tasks) {
        let connector = self.identity.connector();
        let (mut tries, mut pause) = (0, BACKOFF.0);
        loop {
            let why = match Link::open(place.address, &connector, tasks).await {
                Ok((link, _)) if link.boot() == self.boot() => {
                    // As long as this process lives, nothing else is at its address.
                    place.state.send_replace(State::Own);
                    return std::future::pending().await;
                }
                Ok((link, channel)) => {
                    tracing::info!(address = %place.address, replica = %link.boot(), "a replica answers");
                    place.state.send_replace(State::Up(link));
                    pause = BACKOFF.0;
                    channel.await;
                    tracing::warn!(address = %place.address, "the channel to a replica has ended");
                    "its channel has ended".to_owned()
                }
                Err(why) => why,
            };
            tries += 1;
            place.state.send_replace(State::Down { why: why.into(), tries });
            if !place.is_listed.load(Ordering::Acquire) {
                return;
            }
            tokio::select! {
                () = place.wake.notified() => {}
                () = sleep(pause) => {}
            }
            pause = (pause * 2).min(BACKOFF.1);
        }
    }
}
