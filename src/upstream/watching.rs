//! Resources that clients watch: counted, so that a server is asked once and told after the last one. How it is asked is for
//! the connection to say that is there: the next one may be of another era.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::tell::tell;
use super::{Connection, Unavailable, Upstream, listen, listing};
use crate::protocol::{ErrorObject, Method, Outcome, Raw};
use crate::transport;

impl Upstream {
    /// Watches a resource for one more subscriber: done once the server has agreed. Undo it with
    /// [`Upstream::unwant_uri`].
    ///
    /// # Cancel safety
    /// A dropped wait subscribes nobody.
    ///
    /// # Errors
    /// When there is no answer. The server's own no is an answer.
    pub(crate) async fn subscribe(&self, uri: &str) -> Result<Outcome, Unsubscribed> {
        let mut connection = self.ready().await.map_err(Unsubscribed::Unavailable)?;
        let (first, generation) = self.want_uri(uri);
        let wish = Wish { upstream: self, uri, granted: false };
        let mut again = true;
        let outcome = loop {
            let asked = if connection.is_modern() {
                self.honored(&connection, uri, generation).await
            } else if first {
                let params = uri_params(uri);
                listing::ask(&connection, &Method::ResourcesSubscribe, Some(&params)).await
            } else {
                Ok(Ok(Raw::empty_object()))
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
        let unwatched = || ErrorObject::invalid_params(format!("the server does not watch {uri}"));
        Ok(Err(honored.refused.clone().unwrap_or_else(unwatched)))
    }

    /// Counts a subscriber in: whether it is the first one, and the generation that it belongs to.
    fn want_uri(&self, uri: &str) -> (bool, u64) {
        let mut wanted = self.wanted();
        let count = wanted.uris.entry(uri.to_owned()).or_default();
        *count += 1;
        let first = *count == 1;
        if first {
            self.watching.send_modify(|generation| *generation += 1);
        }
        (first, *self.watching.borrow())
    }

    /// Counts a subscriber out; tells the server after the last one.
    pub(crate) fn unwant_uri(&self, uri: &str) {
        let mut wanted = self.wanted();
        match wanted.uris.get_mut(uri) {
            Some(count) if *count > 1 => {
                *count -= 1;
                return;
            }
            Some(_) => drop(wanted.uris.remove(uri)),
            None => return,
        }
        self.watching.send_modify(|generation| *generation += 1);
        drop(wanted);
        if let Some(connection) = self.connection().filter(|connection| !connection.is_modern()) {
            tell(&connection, Method::ResourcesUnsubscribe, uri_params(uri));
        }
    }

    /// What is watched now, and which generation of it.
    pub(super) fn watched(&self) -> (u64, BTreeSet<String>) {
        let wanted = self.wanted();
        let generation = *self.watching.borrow();
        (generation, wanted.uris.keys().cloned().collect())
    }

    pub(super) fn honor(&self, generation: u64, uris: BTreeSet<String>, refused: Option<ErrorObject>) {
        self.honored.send_replace(listen::Honored { generation, uris: Arc::new(uris), refused });
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

pub(super) fn uri_params(uri: &str) -> Raw {
    Raw::empty_object().with_member("uri", Raw::from_value(uri).as_bytes())
}
