//! Puts questions of servers to clients with a session, and takes back what is open when a call ends.

use std::sync::Arc;

use tokio::sync::Notify;

use super::client::Client;
use super::parked::Parked;
use super::{Mailbox, question, roots};
use crate::manager::Server;
use crate::upstream::{Ask, Connection, Upstream};

/// Puts a question of a server to a client with a session, or answers it here.
pub(super) fn put(
    client: &Arc<Client>,
    server: &Arc<Server>,
    upstream: &Arc<Upstream>,
    ask: Ask,
    call: Option<(u64, &Arc<Mailbox>)>,
    answered: Option<Arc<Notify>>,
) {
    // The lease may declare more than this client can do.
    let Some(ask) = roots::for_whom_has_none(server, upstream, &client.who, ask) else { return };
    let Some(ask) = question::judge(server, server.declared(client.profile()), ask) else { return };
    if client.revision().is_modern() {
        // It is asked by results alone. A call whose result may ask is parked, so this request has none.
        return question::refuse(ask);
    }
    let Some(ask) = roots::known(client, server, upstream, ask) else { return };
    let ask = roots::learning(client, server, upstream, ask);
    if let Some(ask) = question::reword(server, ask, client.revision()) {
        client.ask(ask, call, answered);
    }
}

/// Takes the open questions of a call back when dropped, however the call ends.
pub(super) enum AskGuard {
    /// The questions of one call.
    Client(Arc<Client>, u64),
    /// The questions of a parked call on one connection.
    Parked(Arc<Parked>, Arc<Connection>),
}

impl AskGuard {
    pub(super) fn new(client: &Arc<Client>, call: u64) -> Self {
        Self::Client(client.clone(), call)
    }
}

impl Drop for AskGuard {
    fn drop(&mut self) {
        match self {
            Self::Client(client, call) => client.drop_asks(*call, drop),
            Self::Parked(parked, connection) => parked.leaves(connection),
        }
    }
}
