//! Puts what a server asks to a client with a session.

use std::sync::Arc;

use tokio::sync::Notify;

use super::client::Client;
use super::{Mailbox, question, roots};
use crate::manager::Server;
use crate::upstream::{Ask, Upstream};

/// Puts a server's question to a client with a session, or answers it.
pub(super) fn put(
    client: &Arc<Client>,
    server: &Arc<Server>,
    upstream: &Arc<Upstream>,
    ask: Ask,
    call: Option<(u64, &Arc<Mailbox>)>,
    answered: Option<Arc<Notify>>,
) {
    // Its lease may declare more than this client can.
    let Some(ask) = roots::for_whom_has_none(server, upstream, &client.who, ask) else { return };
    let Some(ask) = question::judge(server, server.declared(client.profile()), ask) else { return };
    if client.revision().is_modern() {
        // It is asked by results alone, and this request has none that asks: a call that has is parked.
        return question::refuse(ask);
    }
    let Some(ask) = roots::known(client, server, upstream, ask) else { return };
    let ask = roots::learning(client, server, upstream, ask);
    if let Some(ask) = question::reword(server, ask, client.revision()) {
        client.ask(ask, call, answered);
    }
}
