//! Resources that clients watch. Their subscribers are counted, so that the server gets one subscribe and, after the
//! last subscriber has left, one unsubscribe. How the server is told depends on the era of the current connection; the
//! next one may be of another era.
//!
//! A legacy server is told about each resource in strict order: an unsubscribe never overtakes a later subscribe, and
//! no client counts as subscribed before the server has agreed.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::tell::asking;
use super::{Connection, Demand, Unavailable, Upstream, listen, listing};
use crate::lock::lock;
use crate::protocol::{ErrorObject, Method, Outcome, Raw, Theirs};
use crate::transport;

/// How long an unanswered `resources/unsubscribe` holds up the next request about the same resource.
const PATIENCE: Duration = Duration::from_secs(5);

/// A resource that clients watch.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// The number of subscribers; 0 while the server is being told to unsubscribe.
    count: usize,
    told: WatchState,
}

/// Whether a legacy server watches the resource over the current connection. Only the holder of the lock tells the
/// server.
type WatchState = Arc<tokio::sync::Mutex<bool>>;

impl Upstream {
    /// Watches a resource for one more subscriber; returns the server's answer. [`Upstream::unwant_uri`] undoes this.
    ///
    /// # Cancel safety
    /// Dropping the future subscribes nothing.
    ///
    /// # Errors
    /// When the server gives no answer. A refusal is an answer.
    pub(crate) async fn subscribe(&self, uri: &Arc<str>) -> Result<Outcome, Unsubscribed> {
        let mut connection = self.ready().await.map_err(Unsubscribed::Unavailable)?;
        let generation = self.want_uri(uri);
        let wish = Wish { upstream: self, uri, granted: false };
        let mut again = true;
        let outcome = loop {
            let asked = if connection.is_modern() {
                self.honored(&connection, uri, generation).await
            } else {
                self.told(&connection, uri).await
            };
            match asked {
                // Subscribing twice does no harm.
                Err(error) if std::mem::take(&mut again) && is_loss(&error) => {
                    connection = self.ready().await.map_err(Unsubscribed::Unavailable)?;
                }
                asked => break asked.map_err(Unsubscribed::Lost),
            }
        };
        wish.end(matches!(outcome, Ok(Ok(_))));
        outcome
    }

    /// Waits for a modern server's answer to the resource set of `generation`.
    async fn honored(&self, connection: &Connection, uri: &str, generation: u64) -> Result<Outcome, transport::Error> {
        let mut honored = self.honored.subscribe();
        let said = honored.wait_for(|honored| honored.generation >= generation);
        let Some(Ok(honored)) = connection.stop_token().run_until_cancelled(said).await else {
            return Err(transport::Error::Closed);
        };
        if honored.uris.contains(uri) {
            return Ok(Ok(Raw::empty_object()));
        }
        let unwatched = || ErrorObject::invalid_params(format!("the server does not watch {}", Theirs(uri)));
        Ok(Err(honored.refused.clone().unwrap_or_else(unwatched)))
    }

    /// Subscribes to a resource at a legacy server, unless that was done already. Concurrent callers wait for the same
    /// answer.
    async fn told(&self, connection: &Arc<Connection>, uri: &str) -> Result<Outcome, transport::Error> {
        let told = self.wanted().uris.get(uri).map(|watched| watched.told.clone()).unwrap_or_default();
        let Some(mut told) = connection.stop_token().run_until_cancelled(told.lock()).await else {
            return Err(transport::Error::Closed);
        };
        if *told {
            return Ok(Ok(Raw::empty_object()));
        }
        let outcome = listing::ask(connection, &Method::ResourcesSubscribe, Some(&uri_params(uri))).await;
        *told = matches!(outcome, Ok(Ok(_)));
        outcome
    }

    /// Subscribes to all watched resources at a legacy server after a reconnect.
    pub(super) fn watch_again(&self, connection: &Arc<Connection>, wanted: &mut Demand) {
        wanted.uris.retain(|_, watched| watched.count > 0);
        for (uri, watched) in &mut wanted.uris {
            // The state of the previous connection means nothing here, and its waiters must not block this one.
            watched.told = WatchState::default();
            let (told, uri, wanted) = (watched.told.clone(), uri.clone(), self.wanted.clone());
            let ask = asking(connection, Method::ResourcesSubscribe, uri_params(&uri));
            connection.tasks().spawn(async move {
                let mut told = told.lock().await;
                let counts = lock(&wanted).uris.get(&uri).is_some_and(|watched| watched.count > 0);
                if counts && !*told {
                    *told = ask.await;
                }
            });
        }
    }

    /// Adds a subscriber and returns the generation of the resource set that includes it.
    fn want_uri(&self, uri: &Arc<str>) -> u64 {
        let mut wanted = self.wanted();
        let watched = wanted.uris.entry(uri.clone()).or_default();
        watched.count += 1;
        if watched.count == 1 {
            self.watching.send_modify(|generation| *generation += 1);
        }
        *self.watching.borrow()
    }

    /// Removes a subscriber; after the last one, the server is told.
    pub(crate) fn unwant_uri(&self, uri: &str) {
        let mut wanted = self.wanted();
        let Some(uri) = wanted.uris.get_key_value(uri).map(|(uri, _)| uri.clone()) else { return };
        let Some(watched) = wanted.uris.get_mut(&uri).filter(|watched| watched.count > 0) else { return };
        watched.count -= 1;
        if watched.count > 0 {
            return;
        }
        let told = watched.told.clone();
        self.watching.send_modify(|generation| *generation += 1);
        match self.connection().filter(|connection| !connection.is_modern()) {
            Some(connection) => {
                let over = unwatch(connection.clone(), self.wanted.clone(), told, uri);
                connection.tasks().spawn(over);
            }
            None => drop(wanted.uris.remove(&uri)),
        }
    }

    /// Returns the watched resources and their generation.
    pub(super) fn watched(&self) -> (u64, BTreeSet<Arc<str>>) {
        let wanted = self.wanted();
        let generation = *self.watching.borrow();
        let uris = wanted.uris.iter().filter(|(_, watched)| watched.count > 0);
        (generation, uris.map(|(uri, _)| uri.clone()).collect())
    }

    pub(super) fn honor(&self, generation: u64, uris: BTreeSet<Arc<str>>, refused: Option<ErrorObject>) {
        self.honored.send_replace(listen::Honored { generation, uris: Arc::new(uris), refused });
    }
}

/// Unsubscribes from a resource at a legacy server, unless a client watches it again by then.
async fn unwatch(connection: Arc<Connection>, wanted: Arc<Mutex<Demand>>, told: WatchState, uri: Arc<str>) {
    let is_over = |wanted: &Demand| {
        wanted.uris.get(&uri).is_some_and(|watched| watched.count == 0 && Arc::ptr_eq(&watched.told, &told))
    };
    let tell = async {
        let mut watches = told.lock().await;
        if is_over(&lock(&wanted)) {
            *watches = false;
            let ask = asking(&connection, Method::ResourcesUnsubscribe, uri_params(&uri));
            let _ = tokio::time::timeout(PATIENCE, ask).await;
        }
        watches
    };
    // Locked until the entry is gone, so that a new subscriber does not find another lock meanwhile.
    let _held = connection.stop_token().run_until_cancelled(tell).await;
    let mut wanted = lock(&wanted);
    if is_over(&wanted) {
        wanted.uris.remove(&uri);
    }
}

/// Whether another connection may succeed where this one failed.
fn is_loss(error: &transport::Error) -> bool {
    error.not_sent() || matches!(error, transport::Error::Broken | transport::Error::Closed)
}

/// Why a subscription failed without an answer from the server.
#[derive(Clone, Debug)]
pub(crate) enum Unsubscribed {
    Unavailable(Unavailable),
    Lost(transport::Error),
}

/// A subscriber that is removed again unless the server agrees.
struct Wish<'a> {
    upstream: &'a Upstream,
    uri: &'a str,
    granted: bool,
}

impl Wish<'_> {
    fn end(mut self, granted: bool) {
        self.granted = granted;
    }
}

impl Drop for Wish<'_> {
    fn drop(&mut self) {
        if !self.granted {
            self.upstream.unwant_uri(self.uri);
        }
    }
}

fn uri_params(uri: &str) -> Raw {
    Raw::empty_object().with_member("uri", Raw::from_value(uri).as_bytes())
}
