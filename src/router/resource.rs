//! Requests that name a resource: reading, watching, completing.

use std::sync::Arc;

use super::call::Forward;
use super::client::{Client, Subscription};
use super::{Mailbox, Router};
use crate::protocol::{ErrorObject, Method, Outcome, Raw};
use crate::registry::Target;

impl Router {
    pub(super) async fn read_resource(&self, client: &Arc<Client>, params: Option<Raw>, leg: &Arc<Mailbox>) -> Outcome {
        let params = params.unwrap_or_else(Raw::empty_object);
        let (uri, target) = self.resource(client, "resources/read", &params).await?;
        let server = self.server(&target)?;
        let renames = vec![(&["uri"] as &[_], target.name)];
        let outcome = self.forward(client, Forward { server, method: Method::ResourcesRead, params, renames }, leg).await;
        outcome.map_err(|error| with_exposed_uri(error, &uri))
    }

    pub(super) async fn complete(&self, client: &Arc<Client>, params: Option<Raw>, leg: &Arc<Mailbox>) -> Outcome {
        let params = params.unwrap_or_else(Raw::empty_object);
        let reference = params.member("ref").ok_or_else(|| ErrorObject::invalid_params("completion/complete: `ref` is missing"))?;
        let kind = reference.text("type").unwrap_or_default();
        let (target, path): (Target, &'static [&'static str]) = match (kind.as_str(), reference.text("name"), reference.text("uri")) {
            ("ref/prompt", Some(name), _) => {
                (self.find(client, "prompt", &name, |catalog| catalog.prompt(&name)).await?, &["ref", "name"])
            }
            ("ref/resource", _, Some(uri)) => {
                (self.find(client, "resource template", &uri, |catalog| catalog.template(&uri)).await?, &["ref", "uri"])
            }
            _ => return Err(ErrorObject::invalid_params("completion/complete: `ref` is neither a prompt nor a resource")),
        };
        let server = self.server(&target)?;
        if !self.offers(client, &server, |offers| offers.completions).await {
            return Ok(Raw::trusted(bytes::Bytes::from_static(br#"{"completion":{"values":[],"total":0,"hasMore":false}}"#)));
        }
        let renames = vec![(path, target.name)];
        self.forward(client, Forward { server, method: Method::Complete, params, renames }, leg).await
    }

    pub(super) async fn subscribe(&self, client: &Arc<Client>, params: Option<&Raw>, leg: &Arc<Mailbox>) -> Outcome {
        let params = params.cloned().unwrap_or_else(Raw::empty_object);
        let (uri, target) = self.resource(client, "resources/subscribe", &params).await?;
        let server = self.server(&target)?;
        if !self.offers(client, &server, |offers| offers.subscribe).await {
            let text = format!("server {:?} does not offer subscriptions to resources", server.config.name);
            return Err(ErrorObject::invalid_params(text));
        }
        let upstream = match self.lease(client, &server) {
            Ok(upstream) => upstream,
            Err(failure) => return failure.answer(&server, &Method::ResourcesSubscribe),
        };
        if upstream.want_uri(&target.name) {
            let renames = vec![(&["uri"] as &[_], target.name.clone())];
            let forward = Forward { server: server.clone(), method: Method::ResourcesSubscribe, params, renames };
            if let Err(error) = self.forward(client, forward, leg).await {
                upstream.unwant_uri(&target.name);
                return Err(with_exposed_uri(error, &uri));
            }
        }
        let subscription = Subscription { server: server.id, raw: target.name, upstream };
        if let Some(old) = client.subscribe(&uri, subscription) {
            old.upstream.unwant_uri(&old.raw);
        }
        Ok(Raw::empty_object())
    }

    pub(super) fn unsubscribe(&self, client: &Arc<Client>, params: Option<&Raw>) -> Outcome {
        let uri = params
            .and_then(|params| params.text("uri"))
            .ok_or_else(|| ErrorObject::invalid_params("resources/unsubscribe: `uri` is missing"))?;
        if let Some(subscription) = client.unsubscribe(&uri) {
            subscription.upstream.unwant_uri(&subscription.raw);
        }
        Ok(Raw::empty_object())
    }

    async fn resource(&self, client: &Arc<Client>, method: &str, params: &Raw) -> Result<(String, Target), ErrorObject> {
        let uri = params.text("uri").ok_or_else(|| ErrorObject::invalid_params(format!("{method}: `uri` is missing")))?;
        let look = |catalog: &crate::registry::Catalog| catalog.resource(&uri);
        match self.find(client, "resource", &uri, look).await {
            Ok(target) => Ok((uri, target)),
            Err(error) => Err(with_uri(error, &uri)),
        }
    }

    /// Whether the server offers a family; it is started for that if need be.
    async fn offers(
        &self,
        client: &Arc<Client>,
        server: &Arc<crate::manager::Server>,
        family: impl Fn(&crate::upstream::Offers) -> bool,
    ) -> bool {
        let Ok(upstream) = self.lease(client, server) else { return true };
        match upstream.ready().await {
            Ok(connection) => connection.peer().is_none_or(|peer| family(&peer.offers)),
            // The request itself tells why.
            Err(_) => true,
        }
    }
}

/// Whom a lookup of a resource gives.
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

