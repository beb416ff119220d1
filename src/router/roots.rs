//! Roots (`docs/bridging.md` 15.3): the host asks a client for them once, at its first call of a server that wants
//! them, and answers servers itself from then on.
//!
//! Clients that told the same roots share. A question for roots that a lease already knows makes the lease nobody's
//! own. A client that could not be asked, because a completion cannot ask, is on the rest lease.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Router;
use super::client::Client;
use super::question;
use super::running::AskGuard;
use crate::config::Roots;
use crate::manager::{Server, Told, Who};
use crate::protocol::{Method, Outcome, Profile, Raw};
use crate::upstream::{Ask, Upstream};

/// A client has so long to tell its roots. One that does not has none.
const PATIENCE: Duration = Duration::from_secs(5);
/// The number of no call, under which a client is asked for its roots.
const NO_CALL: u64 = u64::MAX;

impl Router {
    /// The roots of the client, if they decide which lease of the server it gets.
    pub(super) async fn roots_for(&self, client: &Arc<Client>, server: &Arc<Server>) -> Option<Arc<Told>> {
        if !server.wants_roots(client.profile()) || server.is_sessionless(&client.who) {
            return None;
        }
        if client.revision().is_modern() {
            // One that is asked by results told them with the request, or is asked nothing during it.
            return client.roots();
        }
        Some(self.roots_of(client).await)
    }

    /// The roots of a client with a session; it is asked if it was not before.
    async fn roots_of(&self, client: &Arc<Client>) -> Arc<Told> {
        if let Some(told) = client.roots() {
            return told;
        }
        let asking = client.asking();
        let _turn = asking.turn.lock().await;
        if let Some(told) = client.roots() {
            return told;
        }
        let told = self.ask_roots(client).await;
        client.keep_roots(Some(told.clone()));
        told
    }

    async fn ask_roots(&self, client: &Arc<Client>) -> Arc<Told> {
        let (ask, answer) = Ask::gathered("roots", client.revision(), Method::RootsList, None);
        // It is asked for a call of it: strict clients hear of such on the streams of requests alone.
        let leg = client.any_leg();
        let _taken_back = AskGuard::new(client, NO_CALL);
        client.ask_beside(ask, NO_CALL, leg);
        match tokio::time::timeout(PATIENCE, answer).await {
            Ok(Ok(Ok(result))) => Told::read(&result),
            Ok(_) | Err(_) => Told::nothing(),
        }
    }

    /// The client has other roots: it is asked anew. Where nobody else has called, its lease stays with it and the server is
    /// told; else the client moves at its next request.
    pub(super) fn roots_changed(&self, client: &Arc<Client>) {
        if !client.profile().has(Profile::ROOTS) {
            return;
        }
        if client.roots().is_none() {
            // Nobody has asked it so far; a server that asks is told by the client itself.
            return self.tell_roots(client, None);
        }
        let asking = client.asking();
        if asking.has_others.swap(true, Ordering::AcqRel) {
            // What it tells then is of now.
            return;
        }
        let (router, client) = (self.clone(), client.clone());
        self.spawn(async move {
            let told = {
                let _turn = asking.turn.lock().await;
                asking.has_others.store(false, Ordering::Release);
                let told = router.ask_roots(&client).await;
                client.keep_roots(Some(told.clone()));
                told
            };
            router.tell_roots(&client, Some(&told));
        });
    }

    fn tell_roots(&self, client: &Arc<Client>, told: Option<&Arc<Told>>) {
        for (server, upstream) in client.leases() {
            let Some(server) = self.manager().server(server) else { continue };
            if upstream.is_only(client.owner()) {
                if let Some(told) = told.filter(|_| server.wants_roots(client.profile()) || upstream.roots().is_some())
                {
                    server.told_roots(&upstream, told, &client.who_now());
                }
                upstream.tell_roots_changed();
            }
            client.drop_lease(server.id);
        }
    }
}

/// Tells a server no roots during the call of a client that has none, where several share a lease that declares them.
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

/// Answers a question for roots where they are known, and where several clients have called: a server takes what it is told
/// for all of them.
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

/// The question for roots, of which the answer is kept: for the client if it is one conversation, and for the lease.
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

/// The answer to a question on a connection on which no client has called, or several that cannot be told apart.
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

/// The entry of a result that asks a client without a session for its roots.
pub(super) const KEY: &str = "roots";

/// The roots among the answers that a request brings.
pub(super) fn brought(answers: Option<Raw>) -> Arc<Told> {
    let result = answers.and_then(|answers| answers.member(KEY));
    result.map_or_else(Told::nothing, |result| Told::read(&result))
}
