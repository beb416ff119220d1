//! Requests that name a resource: reading, watching, completing.

use std::sync::Arc;

use bytes::Bytes;

use super::answer::Failure;
use super::call::twice;
use super::client::{Client, Subscription};
use super::find::Lost;
use super::forward::Forward;
use super::{Mailbox, Router};
use crate::answered::{Answered, NoResult};
use crate::manager::Server;
use crate::protocol::{ErrorObject, Method, Outcome, Raw};
use crate::upstream::{Unsubscribed, Upstream};

impl Router {
    pub(super) async fn read_resource(
        &self,
        client: &Arc<Client>,
        params: Option<Raw>,
        leg: &Arc<Mailbox>,
    ) -> Answered {
        let (uri, forward) = self.resource(client, Method::ResourcesRead, params).await?;
        let answered = self.forward(client, forward, leg).await;
        answered.map_err(|none| none.map_error(|error| with_exposed_uri(error, &uri)))
    }

    pub(super) async fn complete(&self, client: &Arc<Client>, params: Option<Raw>, leg: &Arc<Mailbox>) -> Answered {
        let params = params.unwrap_or_else(Raw::empty_object);
        let [reference, meta] = params.distinct(["ref", "_meta"]).map_err(twice)?;
        let wrong = || ErrorObject::invalid_params("completion/complete: `ref` names neither a prompt nor a resource");
        let reference = reference.ok_or_else(wrong)?;
        let [kind, name, uri] = reference.distinct(["type", "name", "uri"]).map_err(twice)?;
        let kind = kind.as_ref().and_then(Raw::string).ok_or_else(wrong)?;
        let named = if kind == "ref/prompt" { name } else { uri }.ok_or_else(wrong)?;
        let text = named.string().ok_or_else(wrong)?.into_owned();
        self.measured("completion/complete: what `ref` names", &text)?;
        let target = match &*kind {
            "ref/prompt" => self.find(client, "prompt", &text, |catalog| catalog.prompt(&text)).await?,
            "ref/resource" => self.find(client, "resource template", &text, |catalog| catalog.template(&text)).await?,
            _ => return Err(wrong().into()),
        };
        let server = self.server(&target)?;
        if !self.offers(client, &server, |offers| offers.completions).await {
            let none = Raw::trusted(Bytes::from_static(br#"{"completion":{"values":[],"total":0,"hasMore":false}}"#));
            return Ok(if client.revision().is_modern() { self.completed(&none, None) } else { none });
        }
        let forward = Forward::new(server, Method::Complete, params, named, meta, target.name);
        self.forward(client, forward, leg).await
    }

    pub(super) async fn subscribe(&self, client: &Arc<Client>, params: Option<Raw>, leg: &Mailbox) -> Answered {
        let (uri, forward) = self.resource(client, Method::ResourcesSubscribe, params).await?;
        leg.concerns(&forward.server, &forward.target);
        let limit = self.limits().subscriptions;
        if !client.may_watch(&uri, limit) {
            return Err(too_many(&Method::ResourcesSubscribe, limit).into());
        }
        let (server, raw) = (forward.server.clone(), forward.target.clone());
        if !self.offers(client, &server, |offers| offers.subscribe).await {
            let text = format!("server {:?} does not offer subscriptions to resources", server.config.name);
            return Err(ErrorObject::invalid_params(text).into());
        }
        let (upstream, _) = self.reached(client, &server, None).await.map_err(|failure| failure.of(&server))?;
        let watched = watch(&server, &upstream, &raw).await;
        watched.map_err(|none| none.map_error(|error| with_exposed_uri(error, &uri)))?;
        let subscribed = client.subscribe(&uri, Subscription { server: server.id, raw, upstream }, limit);
        let is_full = subscribed.is_err();
        if let Some(over) = subscribed.unwrap_or_else(Some) {
            over.upstream.unwant_uri(&over.raw);
        }
        if is_full { Err(too_many(&Method::ResourcesSubscribe, limit).into()) } else { Ok(Raw::empty_object()) }
    }

    pub(super) fn unsubscribe(&self, client: &Arc<Client>, params: Option<&Raw>) -> Outcome {
        let uri = params
            .and_then(|params| params.text("uri"))
            .ok_or_else(|| ErrorObject::invalid_params("resources/unsubscribe: `uri` is missing"))?;
        self.unwatch(client, &uri);
        Ok(Raw::empty_object())
    }

    /// Ends the subscription of a client to a resource, if it has one.
    pub(crate) fn unwatch(&self, client: &Arc<Client>, uri: &str) {
        if let Some(subscription) = client.watched(|all| all.remove(uri)) {
            subscription.upstream.unwant_uri(&subscription.raw);
        }
    }

    async fn resource(
        &self,
        client: &Arc<Client>,
        method: Method,
        params: Option<Raw>,
    ) -> Result<(String, Forward), NoResult> {
        let params = params.unwrap_or_else(Raw::empty_object);
        let [named, meta, ..] = params.distinct(["uri", "_meta", "requestState", "inputResponses"]).map_err(twice)?;
        let missing = || ErrorObject::invalid_params(format!("{method}: `uri` is missing"));
        let named = named.ok_or_else(missing)?;
        let uri = named.string().ok_or_else(missing)?.into_owned();
        self.measured(&format!("{method}: `uri`"), &uri)?;
        let found = self.find(client, "resource", &uri, |catalog| catalog.resource(&uri)).await;
        let target = found.map_err(|lost| match lost {
            Lost::Error(error) => NoResult::from(with_uri(error, &uri)),
            down @ Lost::Down(..) => NoResult::from(down),
        })?;
        let server = self.server(&target)?;
        Ok((uri, Forward::new(server, method, params, named, meta, target.name)))
    }

    /// Refuses a URI, a cursor or a name that is larger than any of them may be.
    pub(super) fn measured(&self, what: &str, text: &str) -> Result<(), ErrorObject> {
        let limit = self.limits().uri;
        if text.len() <= limit {
            return Ok(());
        }
        let text = format!("{what} has {} bytes; {limit} at most (host.limits.uri)", text.len());
        Err(ErrorObject::invalid_params(text))
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

/// An error about a resource names it.
pub(super) fn with_uri(error: ErrorObject, uri: &str) -> ErrorObject {
    error.with_data(Raw::from_value(&serde_json::json!({ "uri": uri })))
}

/// An error that names the resource names it as the client did.
fn with_exposed_uri(error: ErrorObject, uri: &str) -> ErrorObject {
    let data = error.data.as_ref().filter(|data| data.text("uri").is_some());
    match data.map(|data| data.with_member("uri", Raw::from_value(uri).as_bytes())) {
        Some(data) => error.with_data(data),
        None => error,
    }
}
