//! Requests that name a resource (read, subscribe, unsubscribe), and completions.

use std::sync::Arc;

use bytes::Bytes;

use super::Mailbox;
use super::answer::Failure;
use super::call::Forwarder;
use super::client::{Client, Subscription};
use super::forward::Forward;
use super::reach::Connector;
use super::route::One;
use crate::answered::Answered;
use crate::manager::Server;
use crate::protocol::{ErrorObject, Method, Outcome, Raw};
use crate::upstream::{Unsubscribed, Upstream};

impl Forwarder {
    /// Reads a resource that the client knows by this URI.
    pub(super) async fn read_resource(
        self: &Arc<Self>,
        client: &Arc<Client>,
        forward: Forward,
        uri: &str,
        leg: &Arc<Mailbox>,
    ) -> Answered {
        let answered = self.forward(client, Box::new(forward), leg).await;
        answered.map_err(|none| none.map_error(|error| with_exposed_uri(error, uri)))
    }

    pub(super) async fn complete(
        self: &Arc<Self>,
        client: &Arc<Client>,
        forward: Forward,
        leg: &Arc<Mailbox>,
    ) -> Answered {
        if !self.connector.offers(client, &forward.server, |offers| offers.completions).await {
            let none = Raw::trusted(Bytes::from_static(br#"{"completion":{"values":[],"total":0,"hasMore":false}}"#));
            return Ok(if client.revision().is_modern() { self.finish.completed(&none, None) } else { none });
        }
        self.forward(client, Box::new(forward), leg).await
    }
}

impl Connector {
    /// Subscribes the client to a resource that it knows by this URI.
    pub(super) async fn subscribe(&self, client: &Arc<Client>, one: &One, uri: &str, leg: &Mailbox) -> Answered {
        let One { server, target: raw, .. } = one;
        leg.concerns(server, raw, None);
        let limit = leg.limits().subscriptions;
        if !client.may_watch(uri, limit) {
            return Err(too_many(&Method::ResourcesSubscribe, limit).into());
        }
        if !self.offers(client, server, |offers| offers.subscribe).await {
            return Err(no_subscriptions(server).into());
        }
        let (upstream, _) = self.connect(client, server, None).await.map_err(|failure| failure.of(server))?;
        let watched = watch(server, &upstream, raw).await;
        watched.map_err(|none| none.map_error(|error| with_exposed_uri(error, uri)))?;
        let subscribed = client.subscribe(uri, Subscription { server: server.id, raw: raw.clone(), upstream }, limit);
        let is_full = subscribed.is_err();
        if let Some(over) = subscribed.unwrap_or_else(Some) {
            over.upstream.unwant_uri(&over.raw);
        }
        if is_full { Err(too_many(&Method::ResourcesSubscribe, limit).into()) } else { Ok(Raw::empty_object()) }
    }
}

/// Ends a client's subscription to a resource.
pub(super) fn unsubscribe(client: &Client, params: Option<&Raw>) -> Outcome {
    let uri = params
        .and_then(|params| params.text("uri"))
        .ok_or_else(|| ErrorObject::invalid_params("resources/unsubscribe: `uri` is missing"))?;
    client.unwatch(&uri);
    Ok(Raw::empty_object())
}

/// Returns the error for a server that has no subscriptions.
pub(super) fn no_subscriptions(server: &Server) -> ErrorObject {
    let text = format!("server {:?} does not offer subscriptions to resources", server.config.name);
    ErrorObject::invalid_params(text)
}

/// Returns the error for a client that already watches as many resources as it may.
pub(super) fn too_many(method: &Method, limit: usize) -> ErrorObject {
    let text = format!(
        "{method}: a client may watch {limit} resources at most (host.limits.subscriptions); unsubscribe from some first"
    );
    ErrorObject::invalid_params(text)
}

/// Subscribes to a resource at the server for one more subscriber. Returns `Ok` once the server has agreed.
///
/// # Cancel safety
/// A dropped wait adds no subscriber.
pub(super) async fn watch(server: &Server, upstream: &Upstream, raw: &Arc<str>) -> Answered {
    let limit = server.config.call_timeout;
    let failure = match tokio::time::timeout(limit, upstream.subscribe(raw)).await {
        Ok(Ok(outcome)) => return Ok(outcome?),
        Ok(Err(Unsubscribed::Unavailable(why))) => Failure::unavailable(&why),
        Ok(Err(Unsubscribed::Lost(error))) => Failure::lost(&error),
        Err(_) => Failure::timeout(limit, "callTimeout"),
    };
    Err(failure.of(server))
}

/// Replaces the URI in an error's data, if there is one, with the URI that the client used.
fn with_exposed_uri(error: ErrorObject, uri: &str) -> ErrorObject {
    let data = error.data.as_ref().filter(|data| data.text("uri").is_some());
    match data.map(|data| data.with_member("uri", Raw::from_value(uri).as_bytes())) {
        Some(data) => error.with_data(data),
        None => error,
    }
}
