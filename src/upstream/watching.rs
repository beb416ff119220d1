//! Resources that clients watch: counted, so that a server is asked once and told after the last one. How it is asked is for
//! the connection to say that is there: the next one may be of another era.
//!
//! A server of the legacy era is told about one resource by one after the other: what is taken back does not overtake what is
//! wanted anew, and nobody counts as told who is not.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::tell::asking;
use super::{Connection, Unavailable, Upstream, Wanted, listen, listing};
use crate::lock::lock;
use crate::protocol::{ErrorObject, Method, Outcome, Raw, Theirs};
use crate::transport;

/// A server that does not answer when it is told that a resource is watched no longer holds up the next one for so long.
const PATIENCE: Duration = Duration::from_secs(5);

/// A resource that clients watch.
#[derive(Debug, Default)]
pub(crate) struct Watched {
    /// How many. None for as long as the server is being told that.
    count: usize,
    told: Told,
}

/// Whether a server of the legacy era watches it for us over the connection that is there. Whoever holds the lock tells it.
type Told = Arc<tokio::sync::Mutex<bool>>;

impl Upstream {
    /// Watches a resource for one more subscriber: done once the server has agreed. Undo it with
    /// [`Upstream::unwant_uri`].
    ///
    /// # Cancel safety
    /// A dropped wait subscribes nobody.
    ///
    /// # Errors
    /// When there is no answer. The server's own no is an answer.
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
                // Asking twice does no harm.
                Err(error) if std::mem::take(&mut again) && is_loss(&error) => {
                    connection = self.ready().await.map_err(Unsubscribed::Unavailable)?;
                }
                asked => break asked.map_err(Unsubscribed::Lost),
            }
        };
        wish.end(matches!(outcome, Ok(Ok(_))));
        outcome
    }

    /// Waits for what a modern server says to the set of resources of that generation.
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

    /// Tells a server of the legacy era to watch a resource, unless it does. Whoever else wants it waits for its answer.
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

    /// Tells a server of the legacy era, connected anew, what is watched.
    pub(super) fn watch_again(&self, connection: &Arc<Connection>, wanted: &mut Wanted) {
        wanted.uris.retain(|_, watched| watched.count > 0);
        for (uri, watched) in &mut wanted.uris {
            // What the connection before was told says nothing, and whoever waits for it holds up nobody here.
            watched.told = Told::default();
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

    /// Counts a subscriber in; tells the generation that it belongs to.
    fn want_uri(&self, uri: &Arc<str>) -> u64 {
        let mut wanted = self.wanted();
        let watched = wanted.uris.entry(uri.clone()).or_default();
        watched.count += 1;
        if watched.count == 1 {
            self.watching.send_modify(|generation| *generation += 1);
        }
        *self.watching.borrow()
    }

    /// Counts a subscriber out; tells the server after the last one.
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

    /// What is watched now, and which generation of it.
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

/// Tells a server of the legacy era that a resource is watched no longer, if nobody wants it by then.
async fn unwatch(connection: Arc<Connection>, wanted: Arc<Mutex<Wanted>>, told: Told, uri: Arc<str>) {
    let is_over = |wanted: &Wanted| {
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
    // Whoever wants it anew is not to find another lock as long as this one is held.
    let _held = connection.stop_token().run_until_cancelled(tell).await;
    let mut wanted = lock(&wanted);
    if is_over(&wanted) {
        wanted.uris.remove(&uri);
    }
}

/// Whether another connection may do what this one did not.
fn is_loss(error: &transport::Error) -> bool {
    error.not_sent() || matches!(error, transport::Error::Broken | transport::Error::Closed)
}

/// Why a resource is not watched, where that is not the server's word.
#[derive(Clone, Debug)]
pub(crate) enum Unsubscribed {
    Unavailable(Unavailable),
    Lost(transport::Error),
}

/// A subscriber that counts only once the server has agreed.
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
