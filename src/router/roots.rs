//! Roots (`docs/bridging.md` 15.3): mcp-host asks a client for its roots once, at the client's first call to a server
//! that wants them (`ask_roots.rs`), and itself answers servers that ask from then on.
//!
//! Clients that told the same roots share leases. A server's question for roots that are already known for the lease
//! does not bind the lease to one client. A client that could not be asked, since a completion allows no questions, is
//! on the *rest* lease, which all clients without a lease of their own share.

use std::sync::Arc;

use super::client::Client;
use super::question;
use crate::config::Roots;
use crate::manager::{Server, Told, Who};
use crate::protocol::{Method, Outcome, Profile, Raw};
use crate::upstream::{Ask, Upstream};

/// Answers a server's question for roots with an empty list if the lease declares roots, but is shared by several
/// clients and this client has none. Returns every other question.
pub(super) fn for_whom_has_none(server: &Server, upstream: &Upstream, who: &Who, ask: Ask) -> Option<Ask> {
    let is_asked =
        ask.method == Method::RootsList && !ask.is_gathered() && matches!(server.config.roots, Roots::Client);
    let has_none = !server.declared(who).has(Profile::ROOTS) && upstream.profile().has(Profile::ROOTS);
    if is_asked && has_none && !upstream.is_only(who.owner) {
        server.note_ask(&ask);
        ask.answer(Ok(Told::nothing().result().clone()));
        return None;
    }
    Some(ask)
}

/// Answers a question for roots if they are known. If several clients have called on the lease, the answer is an empty
/// list, since a server takes the answer for all of them. Returns every other question.
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

/// Wraps a question for roots so that mcp-host keeps its answer: for the client if it is one conversation, and for the
/// lease.
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

/// Answers a question in the client's place if no client has called on the connection, or several that cannot be told
/// apart. `started` says that none has called.
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

/// The key (in `inputRequests`) of the question that asks a client without a session for its roots.
pub(super) const KEY: &str = "roots";

/// Returns the roots among the answers that a request brings; without that answer, no roots.
pub(super) fn brought(answers: Option<Raw>) -> Arc<Told> {
    let result = answers.and_then(|answers| answers.member(KEY));
    result.map_or_else(Told::nothing, |result| Told::read(&result))
}
