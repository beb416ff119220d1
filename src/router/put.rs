//! Puts questions from servers to clients with a session, and takes open questions back when their call ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;

use super::client::Client;
use super::parked::Parked;
use super::{Mailbox, question, roots};
use crate::manager::Server;
use crate::upstream::{Ask, Connection, Upstream};

/// Puts a server's question to a client with a session, or answers it in the client's place. `call` is the call that it
/// belongs to and the call's leg; `answered` is woken by the client's answer.
pub(super) fn put(
    client: &Arc<Client>,
    server: &Arc<Server>,
    upstream: &Arc<Upstream>,
    ask: Ask,
    call: Option<(u64, &Arc<Mailbox>)>,
    answered: Option<Arc<Notify>>,
) {
    // mcp-host may have declared more on the lease than this client can do.
    let Some(ask) = roots::for_whom_has_none(server, upstream, &client.who, ask) else { return };
    let Some(ask) = question::judge(server, server.declared(&client.who), ask) else { return };
    if client.revision().is_modern() {
        // A modern client can be asked only by a result. A call during which it may be asked is parked, so this
        // question cannot reach it.
        return question::refuse(ask);
    }
    let Some(ask) = roots::known(client, server, upstream, ask) else { return };
    let ask = roots::learning(client, server, upstream, ask);
    if let Some(ask) = question::reword(server, ask, client.revision()) {
        client.ask(ask, call, answered);
    }
}

/// Returns a number for a question of mcp-host itself, in place of the number of a call. It is smaller than all ids of
/// requests to servers, so it belongs to no call.
pub(super) fn own_number() -> u64 {
    static ASKED: AtomicU64 = AtomicU64::new(0);
    ASKED.fetch_add(1, Ordering::Relaxed) & 0xf_ffff
}

/// Takes a call's open questions back when dropped, so this happens however the call ends.
pub(super) enum AskGuard {
    /// The questions of a call that is not parked, by its number.
    Client(Arc<Client>, u64),
    /// The questions of a parked call that came over this connection.
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
