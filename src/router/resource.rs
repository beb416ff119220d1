//! Requests that name a resource: reading, watching, completing.

use std::sync::Arc;

use bytes::Bytes;

use super::answer::Failure;
use super::client::{Client, Subscription};
use super::forward::Forward;
use super::route::One;
use super::{Mailbox, Router};
use crate::answered::Answered;
use crate::manager::Server;
use crate::protocol::{ErrorObject, Method, Outcome, Raw};
use crate::upstream::{Unsubscribed, Upstream};

impl Router {
    /// Reads a resource that the client knows by that URI.
    pub(super) async fn read_resource(
        &self,
        client: &Arc<Client>,
        forward: Forward,
        uri: &str,
        leg: &Arc<Mailbox>,
    ) -> Answered {
        let answered = self.forward(client, forward, leg).await;
        answered.map_err(|none| none.map_error(|error| with_exposed_uri(error, uri)))
    }

    pub(super) async fn complete(&self, client: &Arc<Client>, forward: Forward, leg: &Arc<Mailbox>) -> Answered {
        if !self.offers(client, &forward.server, |offers| offers.completions).await {
            let none = Raw::trusted(Bytes::from_static(br#"{"completion":{"values":[],"total":0,"hasMore":false}}"#));
            return Ok(if client.revision().is_modern() { self.0.finish.completed(&none, None) } else { none });
        }
        self.forward(client, forward, leg).await
    }

    /// Watches a resource that the client knows by that URI.
    pub(super) async fn subscribe(&self, client: &Arc<Client>, one: &One, uri: &str, leg: &Mailbox) -> Answered {
        let One { server, target: raw, .. } = one;
        leg.concerns(server, raw);
        let limit = leg.limits().subscriptions;
        if !client.may_watch(uri, limit) {
            return Err(too_many(&Method::ResourcesSubscribe, limit).into());
        }
        if !self.offers(client, server, |offers| offers.subscribe).await {
            let text = format!("server {:?} does not offer subscriptions to resources", server.config.name);
            return Err(ErrorObject::invalid_params(text).into());
        }
        let (upstream, _) = self.reached(client, server, None).await.map_err(|failure| failure.of(server))?;
        let watched = watch(server, &upstream, raw).await;
        watched.map_err(|none| none.map_error(|error| with_exposed_uri(error, uri)))?;
        let subscribed = client.subscribe(uri, Subscription { server: server.id, raw: raw.clone(), upstream }, limit);
        let is_full = subscribed.is_err();
        if let Some(over) = subscribed.unwrap_or_else(Some) {
            over.upstream.unwant_uri(&over.raw);
        }
        if is_full { Err(too_many(&Method::ResourcesSubscribe, limit).into()) } else { Ok(Raw::empty_object()) }
    }

    /// Whether the server offers a family; it is started for that if need be.
    async fn offers(
        &self,
        client: &Arc<Client>,
        server: &Arc<Server>,
        family: impl Fn(&crate::upstream::Offers) -> bool,
    ) -> bool {
        match self.reached(client, server, None).await {
            Ok((_, connection)) => connection.peer().is_none_or(|peer| family(&peer.offers)),
            // The request itself tells why.
            Err(_) => true,
        }
    }
}

/// A client watches a resource no longer.
pub(super) fn unsubscribe(client: &Client, params: Option<&Raw>) -> Outcome {
    let uri = params
        .and_then(|params| params.text("uri"))
        .ok_or_else(|| ErrorObject::invalid_params("resources/unsubscribe: `uri` is missing"))?;
    client.unwatch(&uri);
    Ok(Raw::empty_object())
}

/// A client watches as many resources as it may.
pub(super) fn too_many(method: &Method, limit: usize) -> ErrorObject {
    let text =
        format!("{method}: a client watches {limit} resources at most (host.limits.subscriptions); end some first");
    ErrorObject::invalid_params(text)
}

/// Watches a resource for one more subscriber; the server has agreed to it where this is `Ok`.
///
/// # Cancel safety
/// A dropped wait subscribes nobody.
async fn watch(server: &Server, upstream: &Upstream, raw: &Arc<str>) -> Answered {
    let limit = server.config.call_timeout;
    let failure = match tokio::time::timeout(limit, upstream.subscribe(raw)).await {
        Ok(Ok(outcome)) => return Ok(outcome?),
        Ok(Err(Unsubscribed::Unavailable(why))) => Failure::unavailable(&why),
        Ok(Err(Unsubscribed::Lost(error))) => Failure::lost(&error),
        Err(_) => Failure::timeout(limit, "callTimeout"),
    };
    Err(failure.of(server))
}

/// An error that names the resource names it as the client did.
fn with_exposed_uri(error: ErrorObject, uri: &str) -> ErrorObject {
    let data = error.data.as_ref().filter(|data| data.text("uri").is_some());
    match data.map(|data| data.with_member("uri", Raw::from_value(uri).as_bytes())) {
        Some(data) => error.with_data(data),
        None => error,
    }
}
