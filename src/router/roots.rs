//! Roots (`docs/bridging.md` 15.3): the host asks a client for them once, at its first call of a server that wants
//! them (`ask_roots.rs`), and answers servers itself from then on.
//!
//! Clients that told the same roots share leases. A question for roots that a lease already knows does not bind the lease
//! to one client. A client that could not be asked, because a completion cannot ask, is on the rest lease.

use std::sync::Arc;

use super::client::Client;
use super::question;
use crate::config::Roots;
use crate::manager::{Server, Told, Who};
use crate::protocol::{Method, Outcome, Profile, Raw};
use crate::upstream::{Ask, Upstream};

/// Answers a server with no roots during the call of a client that has none, if several clients share a lease that declares
/// them.
pub(super) fn for_whom_has_none(server: &Server, upstream: &Upstream, who: &Who, ask: Ask) -> Option<Ask> {
    let is_asked =
        ask.method == Method::RootsList && !ask.is_gathered() && matches!(server.config.roots, Roots::Client);
    let has_none = !server.declared(who.profile).has(Profile::ROOTS) && upstream.profile().has(Profile::ROOTS);
    if is_asked && has_none && !upstream.is_only(who.owner) {
        server.note_ask(&ask);
        ask.answer(Ok(Told::nothing().result().clone()));
        return None;
    }
    Some(ask)
}

/// Answers a question for roots if they are known. If several clients have called, the answer is no roots, since a server
/// takes the answer for all of them.
pub(super) fn known(client: &Client, server: &Arc<Server>, upstream: &Arc<Upstream>, ask: Ask) -> Option<Ask> {
    if ask.method != Method::RootsList || ask.is_gathered() {
        return Some(ask);
    }
    if let Some(told) = client.roots().filter(|_| client.is_one_conversation()) {
        server.told_roots(upstream, &told, &client.who_now());
    }
    if let Some(roots) = upstream.roots() {
        ask.answer(Ok(roots));
        return None;
    }
    if !upstream.is_only(client.owner()) {
        ask.answer(Ok(Told::nothing().result().clone()));
        return None;
    }
    Some(ask)
}

/// Makes a question for roots keep its answer: for the client if it is one conversation, and for the lease.
pub(super) fn learning(client: &Arc<Client>, server: &Arc<Server>, upstream: &Arc<Upstream>, ask: Ask) -> Ask {
    if ask.method != Method::RootsList || ask.is_gathered() {
        return ask;
    }
    let (client, server, upstream) = (Arc::downgrade(client), server.clone(), Arc::downgrade(upstream));
    let params = ask.params.clone();
    let keep = move |outcome: Outcome| -> Outcome {
        let Ok(result) = outcome else { return Ok(Told::nothing().result().clone()) };
        let told = Told::read(&result);
        let Some(client) = client.upgrade() else { return Ok(result) };
        if client.is_one_conversation() {
            client.keep_roots(Some(told.clone()));
        }
        if let Some(upstream) = upstream.upgrade() {
            server.told_roots(&upstream, &told, &client.who_now());
        }
        Ok(result)
    };
    ask.put(params, Box::new(keep))
}

/// Answers a question on a connection on which no client has called, or several that cannot be told apart.
pub(super) fn for_nobody(server: &Server, upstream: &Upstream, ask: Ask, started: bool) {
    let Some(ask) = question::judge(server, upstream.profile(), ask) else { return };
    if ask.method == Method::RootsList {
        let roots = upstream.roots().unwrap_or_else(|| Told::nothing().result().clone());
        return ask.answer(Ok(roots));
    }
    if started {
        let error = crate::protocol::ErrorObject::method_not_found(ask.method.as_str());
        return ask.answer(Err(error));
    }
    question::refuse(ask);
}

/// The key of the question that asks a client without a session for its roots.
pub(super) const KEY: &str = "roots";

/// Returns the roots among the answers that a request brings.
pub(super) fn brought(answers: Option<Raw>) -> Arc<Told> {
    let result = answers.and_then(|answers| answers.member(KEY));
    result.map_or_else(Told::nothing, |result| Told::read(&result))
}
